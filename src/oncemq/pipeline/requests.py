# SPDX-License-Identifier: Apache-2.0
"""How Spark's processes speak with a broker: questions with patience, and no session unless one is opened aloud.

May not: be made at import time or carried over a fork: ZeroMQ's sockets belong to one process.
The idea: an exception in a driver-side call ends the query, and one in a task costs an attempt. So what may pass (a broker that
restarts) is waited for here, up to SPARK_PATIENCE_MS; what will not pass is raised at once, with what to do about it.
Next: source.py and sink.py, which ask.
"""

from __future__ import annotations

import os
from typing import TypeVar

from oncemq.adapters.system import SystemClock, SystemEntropy
from oncemq.adapters.zmq_link import ZmqLink
from oncemq.client.session import Block, Session
from oncemq.client.state import NoState
from oncemq.core import packets as p
from oncemq.errors import BrokerUnreachable, Diverged, OnceMQError, Refused
from oncemq.limits import BACKOFF_MS_MAX, SPARK_PATIENCE_MS
from oncemq.model.names import EPHEMERAL_PREFIX
from oncemq.model.refusals import TRANSIENT_FOR_PUTS

Answer = TypeVar("Answer", bound=p.Packet)


class Requests:
    """A connection of this process to one broker."""

    def __init__(self, address: str, *, patience_ms: int = SPARK_PATIENCE_MS) -> None:
        self.session_id = SystemEntropy().id16()
        self._clock = SystemClock()
        self._patience_ms = patience_ms
        state = NoState(EPHEMERAL_PREFIX + self.session_id.hex())
        self._session = Session(ZmqLink(address), self._clock, state, session_id=self.session_id, address=address, takeover=False)

    def ask(self, packet: p.Packet, kind: type[Answer], block: Block | None = None) -> Answer:
        """Send a packet until it is answered, or patience is over; raise the refusal if there is one."""
        reply = self._patiently(packet, block)
        if not isinstance(reply, kind):
            raise Diverged(f"the broker answered {type(reply).__name__} to {type(packet).__name__}")
        return reply

    def read(self, packet: p.Read) -> tuple[p.Blocks, bytes | memoryview]:
        """Read a range of a topic: what the broker says of it, and the records."""
        return self.ask(packet, p.Blocks), self._session.body

    def topics(self, topic: str = "") -> dict[str, p.TopicInfo]:
        return {info.topic: info for info in self.ask(p.ListTopics(topic), p.Topics).topics}

    def log_id(self) -> bytes:
        return self.ask(p.Stats(), p.StatsDone).log_id

    def close(self) -> None:
        self._session.close()

    def _patiently(self, packet: p.Packet, block: Block | None) -> p.Packet:
        due_ms = self._clock.now().ticks_ms + self._patience_ms
        while True:
            try:
                return self._session.exchange(packet, block=block)
            except OnceMQError as problem:
                if not _may_pass(problem) or self._clock.now().ticks_ms >= due_ms:
                    raise
                if isinstance(problem, Refused):
                    self._clock.pause(BACKOFF_MS_MAX // 4)


def _may_pass(problem: OnceMQError) -> bool:
    """Whether the same question may be answered a little later."""
    return isinstance(problem, BrokerUnreachable) or (isinstance(problem, Refused) and problem.code in TRANSIENT_FOR_PUTS)


_open: dict[tuple[int, str], Requests] = {}


def shared_requests(address: str) -> Requests:
    """Return this process's connection to that broker: Python workers are forked and reused, connections are not forked."""
    place = (os.getpid(), address)
    if place not in _open:
        _open[place] = Requests(address)
    return _open[place]


def close_shared() -> None:
    """Close what this process shares: for processes that go on after their last task."""
    for place in [place for place in _open if place[0] == os.getpid()]:
        _open.pop(place).close()

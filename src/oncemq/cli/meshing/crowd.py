# SPDX-License-Identifier: Apache-2.0
"""Applications at the nodes of a mesh: one client at each, that puts, gets, and writes down what it saw.

May not: know what the product promises, or ask a node anything but through the public client.
The idea: clients have no threads, so one process holds all of them and visits each in turn; nodes die, clients do not. What an
application saw goes to a history of its own (docs/history.md), which is all that the verdict reads.
Next: verdict.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from time import monotonic

import oncemq
from oncemq.cli.meshing.nodes import Node, Nodes
from oncemq.cli.torturing.recorder import Recorder, history_of
from oncemq.errors import BrokerUnreachable, Gap, Refused
from oncemq.model.refusals import Code
from oncemq.sim.history import Event

TOPIC = "mesh"
_SUBSCRIBE_S = 60.0
_GET_MAX = 1_000


class Application:
    """A client of one node, for as long as the run takes."""

    def __init__(self, node: Node, directory: Path, topic: str = TOPIC) -> None:
        self.node = node
        self.name = f"app-{node.number}"
        self.delivered: dict[str, float] = {}
        """What was handed over, and when."""
        self.confirmed: dict[str, float] = {}
        self._topic = topic
        self._topic_id = ""
        self._state = directory / "clients" / self.name
        self._recorder = Recorder(history_of(directory, self.name), self.name, 1)
        self._client: oncemq.Client | None = None
        self._count = 0

    @property
    def client(self) -> oncemq.Client:
        if self._client is None:
            self._client = oncemq.connect(self.node.address, id=self.name, state=self._state)
        return self._client

    def subscribe(self) -> None:
        """Subscribe as soon as the node has joined: until then it refuses."""
        deadline = monotonic() + _SUBSCRIBE_S
        while True:
            try:
                subscription = self.client.subscribe(self._topic)
            except (Refused, BrokerUnreachable) as refused:
                is_joining = isinstance(refused, BrokerUnreachable) or refused.code == Code.JOINING
                if not is_joining or monotonic() > deadline:
                    raise
            else:
                break
        self._topic_id = str(subscription.topic_id)
        start = subscription.start
        self._recorder.note("ok", "subscribe", subscription=self.name, topic_id=self._topic_id, start=start, cursor=start)

    def put(self) -> str:
        """Put the next message. Its name says at which node, in which life of it, and where in the order."""
        self._count += 1
        message = f"{self.node.number}/{self.node.life}/{self._count}"
        self._recorder.note("invoke", "put", message=message)
        receipt = self.client.put(self._topic, message.encode())
        answer = {"stored": receipt.stored, "duplicate": receipt.duplicate}
        self._recorder.note("ok", "put", message=message, topic_id=self._topic_id, offset=receipt.offset, **answer)
        self.confirmed[message] = monotonic()
        return message

    def collect(self) -> int:
        """Get whatever is there; return how many messages that was."""
        if not self.node.is_up:
            return 0
        try:
            messages = self.client.get_many(self._topic, _GET_MAX, timeout=0)
        except BrokerUnreachable:
            return 0
        except Gap as gap:
            self._recorder.note("ok", "gap", subscription=self.name, topic_id=self._topic_id, first=gap.first, end=gap.end)
            return 0
        place = {"subscription": self.name, "topic_id": self._topic_id}
        rows: list[Event] = [{**place, "offset": each.offset, "message": each.value.decode()} for each in messages]
        self._recorder.note_all("ok", "deliver", rows)
        for each in messages:
            self.delivered.setdefault(each.value.decode(), monotonic())
        return len(messages)

    def note(self, operation: str, **fields: str | int) -> None:
        self._recorder.note("ok", operation, **fields)

    def close(self) -> None:
        if self._client is not None:
            self._client._abandon()
        self._recorder.close()


class Crowd:
    """All of them."""

    def __init__(self, nodes: Nodes, directory: Path) -> None:
        self.all = [Application(node, directory) for node in nodes]

    def at(self, nodes: Iterable[Node]) -> list[Application]:
        return [self.all[node.number] for node in nodes]

    def close(self) -> None:
        for each in self.all:
            each.close()

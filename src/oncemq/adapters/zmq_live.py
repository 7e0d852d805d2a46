# SPDX-License-Identifier: Apache-2.0
"""The live path on ZeroMQ: a broker's XPUB socket, and a client's SUB socket beside its link.

May not: decide anything, or be relied on: a full queue, a connection that breaks and one that is not there yet all lose packets
without a word. core/live.py notices.
The idea: one send reaches every follower, ZeroMQ's thread copies it to their connections. XPUB says when somebody begins to
follow a channel (each time: the newcomer wants to be told its end) and when the last one leaves.
A SUB socket names its channels again after a reconnect, but only when the application calls into it: `wait` and `receive` do.
Next: engine/live.py and client/live.py, which use the two ends.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

import zmq

from oncemq.adapters.zmq_frames import EVENTS, MORE, NOW, READABLE, receive_frames
from oncemq.errors import UsageError
from oncemq.limits import BLOCK_BYTES_MAX, LIVE_RECEIVE_BACKLOG_PACKETS, LIVE_SEND_BACKLOG_PACKETS, MIB
from oncemq.ports import Frames

log = logging.getLogger("oncemq.broker")

_TCP = re.compile(r"tcp://(?P<host>.+):(?P<port>\d+|\*)")
_EVERYWHERE = frozenset({"*", "0.0.0.0", "[::]"})  # noqa: S104 - recognised, not bound
_ANYWHERE = "tcp://127.0.0.1:*"
_PORT_MAX = 65_535
_CHANNEL_BYTES_MAX = 64
"""Longer names of channels end the connection unread: nobody has such a topic."""


def check_port(address: str) -> None:
    """Refuse a port that is none: ZeroMQ counts on from 0 behind the last one, and would listen or ask elsewhere."""
    found = _TCP.fullmatch(address)
    if found is not None and found["port"] != "*" and int(found["port"]) > _PORT_MAX:
        raise UsageError(f"{address!r} is not an address (a port is at most {_PORT_MAX}): use one like tcp://127.0.0.1:5556")


def beside(address: str) -> str:
    """Where a broker publishes unless it is told: on the same host, one port higher; behind the last one there is any."""
    found = _TCP.fullmatch(address)
    if found is None:
        return f"{address}-live" if address.startswith("ipc://") else _ANYWHERE
    port = found["port"]
    return f"tcp://{found['host']}:{'*' if port in {'*', str(_PORT_MAX)} else int(port) + 1}"


def as_reached(live: str, address: str) -> str:
    """The live address as a client must connect to it, who reached the broker itself at `address`."""
    bound, reached = _TCP.fullmatch(live), _TCP.fullmatch(address)
    if bound is None or reached is None or bound["host"] not in _EVERYWHERE:
        return live
    return f"tcp://{reached['host']}:{bound['port']}"


class ZmqPublisher:
    """A broker's end. Bound beside `address` unless `wanted` says where."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str, wanted: str) -> None:
        check_port(wanted)
        self.socket = context.socket(zmq.XPUB)
        self._set_options()
        try:
            self._bind(wanted or beside(address), is_wanted=bool(wanted))
        except zmq.ZMQError as problem:
            self.socket.close()
            raise UsageError(f"cannot publish at {wanted!r} ({problem}): is another broker running there?") from problem
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def _set_options(self) -> None:
        socket = self.socket
        socket.setsockopt(zmq.LINGER, 0)  # What is not heard live is asked for.
        socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # Every newcomer is told the end of its channel, not only the first.
        socket.setsockopt(zmq.SNDHWM, LIVE_SEND_BACKLOG_PACKETS)
        socket.setsockopt(zmq.MAXMSGSIZE, _CHANNEL_BYTES_MAX)  # Of what followers send: nothing but names of channels.
        socket.setsockopt(zmq.HANDSHAKE_IVL, 5_000)
        socket.setsockopt(zmq.HEARTBEAT_IVL, 5_000)  # A follower that vanished or stands still lets go of its queue.
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15_000)
        socket.setsockopt(zmq.IPV6, 1)

    def _bind(self, address: str, *, is_wanted: bool) -> None:
        try:
            self.socket.bind(address)
        except zmq.ZMQError as problem:
            found = _TCP.fullmatch(address)
            if is_wanted or found is None:
                raise
            log.warning("%s for live subscribers is taken (%s): using a free port, which they are told", address, problem)
            self.socket.bind(f"tcp://{found['host']}:*")

    def publish(self, frames: Sequence[bytes | bytearray | memoryview]) -> None:
        # Never blocks: a follower whose queue is full loses the packet (XPUB_NODROP is off).
        for frame in frames[:-1]:
            self.socket.send(frame, MORE)
        self.socket.send(frames[-1], NOW)

    def followings(self) -> list[tuple[bytes, bool]]:
        found = []
        while int(self.socket.get(EVENTS)) & READABLE:
            said = b"".join(map(bytes, receive_frames(self.socket)))
            if said[:1] in {b"\0", b"\1"}:  # Anything else is what a peer chose to send upstream.
                found.append((said[1:], said[:1] == b"\1"))
        return found

    def close(self) -> None:
        self.socket.close()


class ZmqLiveLink:
    """A client's end. `link_socket` gives the socket of the link it waits beside, which may change."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], address: str, link_socket: Callable[[], zmq.Socket[bytes]]
    ) -> None:
        self._link_socket = link_socket
        self._socket = context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, LIVE_RECEIVE_BACKLOG_PACKETS)
        self._socket.setsockopt(zmq.MAXMSGSIZE, BLOCK_BYTES_MAX + MIB)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 20)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, 5_000)  # A broker that vanished without a word is looked for again.
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15_000)
        self._socket.setsockopt(zmq.IPV6, 1)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as problem:
            self._socket.close()
            raise UsageError(f"the broker's live address {address!r} is none ({problem}): see oncemq serve") from problem

    def follow(self, channel: bytes) -> None:
        self._socket.setsockopt(zmq.SUBSCRIBE, channel)

    def leave(self, channel: bytes) -> None:
        self._socket.setsockopt(zmq.UNSUBSCRIBE, channel)

    def receive(self) -> Frames | None:
        if not int(self._socket.get(EVENTS)) & READABLE:
            return None
        return receive_frames(self._socket)

    def wait(self, timeout_ms: int) -> None:
        zmq.zmq_poll([(self._socket, READABLE), (self._link_socket(), READABLE)], timeout_ms)

    def close(self) -> None:
        self._socket.close()

# SPDX-License-Identifier: Apache-2.0
"""The broker's end of the wire: a ROUTER socket, an XPUB socket beside it, and nothing that waits for a single peer.

May not: decide anything, block on a slow peer, or trust a routing id a peer chose for itself.
The idea: an address is one byte that says whether the peer is a plain REQ socket (its packets come behind an empty frame, and
so must the answers), then ZeroMQ's routing id.
Next: adapters/zmq_link.py for the other end, engine/loop.py for whoever drains this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import zmq

from oncemq.adapters.zmq_frames import EVENTS, MORE, NOW, READABLE, let_it_leave, receive_frames
from oncemq.adapters.zmq_live import ZmqPublisher, check_port
from oncemq.errors import UsageError
from oncemq.limits import BLOCK_BYTES_MAX, MIB, NETWORK_BACKLOG_PACKETS
from oncemq.ports import Frames

_PLAIN, _DELIMITED = b"\0", b"\1"
_MAPPED = re.compile(r"\[::ffff:(\d+(?:\.\d+){3})\]")
"""How ZeroMQ writes an IPv4 address on a socket that also speaks IPv6; only such sockets could connect to it."""


class ZmqNetwork:
    def __init__(self, address: str, live_address: str = "") -> None:
        check_port(address)
        self.context = self._context = zmq.Context[zmq.Socket[bytes]]()
        self._socket = self._context.socket(zmq.ROUTER)
        self._set_options()
        try:
            self._socket.bind(address)
        except zmq.ZMQError as problem:
            self._socket.close()
            self._context.term()
            raise UsageError(
                f"cannot listen at {address!r} ({problem}): is another broker running there, or one at the port before it? "
                "(It publishes at the next one.)"
            ) from problem
        self.address = self.plain(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
        try:
            self._publisher = ZmqPublisher(self._context, address, live_address)
        except BaseException:
            self._socket.close()
            self._context.term()
            raise
        self.live_address = self.plain(self._publisher.address)
        self.publish = self._publisher.publish
        self._sockets = [(self._socket, READABLE), (self._publisher.socket, READABLE)]
        self.also: Callable[[], list[tuple[zmq.Socket[bytes], int]]] = list
        """Sockets of others to wait for besides: a node's links."""
        self._has_followings = False
        self.dropped = 0
        self.close_also: Callable[[], None] = lambda: None

    @staticmethod
    def plain(endpoint: str) -> str:
        """An endpoint as those can use it who speak only IPv4."""
        return _MAPPED.sub(r"\1", endpoint)

    def _set_options(self) -> None:
        socket = self._socket
        socket.setsockopt(zmq.LINGER, 1_000)  # The last answers of a clean stop may still leave.
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # An answer nobody can get is an error here, not silence.
        socket.setsockopt(zmq.MAXMSGSIZE, BLOCK_BYTES_MAX + MIB)  # Larger frames end the connection unread.
        socket.setsockopt(zmq.SNDHWM, NETWORK_BACKLOG_PACKETS)
        socket.setsockopt(zmq.RCVHWM, NETWORK_BACKLOG_PACKETS)
        socket.setsockopt(zmq.HANDSHAKE_IVL, 5_000)  # A peer that only connects must not hold a place for long.
        socket.setsockopt(zmq.HEARTBEAT_IVL, 5_000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15_000)
        socket.setsockopt(zmq.IPV6, 1)

    def wait(self, timeout_ms: int) -> bool:
        ready = zmq.zmq_poll([*self._sockets, *self.also()], timeout_ms)
        self._has_followings = any(socket is self._publisher.socket for socket, _ in ready)
        return bool(ready)

    def followings(self) -> list[tuple[bytes, bool]]:
        return self._publisher.followings() if self._has_followings else []

    def receive(self) -> tuple[bytes, Frames] | None:
        # Asking costs a microsecond; being told no by an exception costs ten, in every drain.
        while int(self._socket.get(EVENTS)) & READABLE:
            first, *frames = receive_frames(self._socket)
            identity = bytes(first)
            if identity[:1] != b"\0":  # Chosen by the peer: it could be somebody else's.
                self.dropped += 1
                continue
            if frames and not frames[0]:
                return _DELIMITED + identity, frames[1:]
            return _PLAIN + identity, frames
        return None

    def send(self, address: bytes, frames: Sequence[bytes | bytearray | memoryview]) -> bool:
        envelope = [address[1:]] if address[:1] == _PLAIN else [address[1:], b""]
        try:
            for frame in [*envelope, *frames[:-1]]:
                self._socket.send(frame, MORE)
            self._socket.send(frames[-1], NOW)
        except zmq.ZMQError as problem:
            if problem.errno not in {zmq.EHOSTUNREACH, zmq.EAGAIN}:
                raise
            self.dropped += 1  # Gone, or too slow to be waited for: it will ask again.
            return False
        let_it_leave()
        return True

    def close(self) -> None:
        self.close_also()
        self._publisher.close()
        self._socket.close()
        self._context.term()

# SPDX-License-Identifier: Apache-2.0
"""Links between nodes on ZeroMQ: one PULL socket for all who speak to this node, one PUSH socket per node it speaks to.

May not: decide anything; block; hold more for a node than its bounds say.
The idea: who sent a packet stands in the packet. A link is made when it is first spoken through, and closed when it is idle.
ZeroMQ's own queues count its messages, so they are kept very short, a queue that counts bytes stands before them, and small
packets that wait there go together as one message, so that short queues hold enough. A monitor per link says at once when a
connection breaks or cannot be made: a node that was killed is noticed before its heartbeats are missed.
Next: engine/mesh.py, which drains and sends; adapters/zmq_network.py, whose `wait` waits for these sockets too.
"""

from __future__ import annotations

import re
import socket as names
import struct
import time
from collections import deque
from collections.abc import Sequence

import zmq

from oncemq.adapters.zmq_frames import EVENTS, MORE, NOW, READABLE, receive_frames
from oncemq.adapters.zmq_network import ZmqNetwork
from oncemq.errors import UsageError
from oncemq.limits import (
    BLOCK_BYTES_MAX,
    MESH_LINK_BACKLOG,
    MESH_LINK_BUNDLE_BYTES,
    MESH_LINK_BYTES,
    MESH_LINK_IDLE_MS,
    MESH_LINK_PACKETS,
    MESH_LINK_SPARE_MS,
    MESH_LINKS_MAX,
    MIB,
)
from oncemq.ports import Frames

_WRITABLE = int(zmq.POLLOUT)
_BREAKS = zmq.Event.CLOSED | zmq.Event.DISCONNECTED | zmq.Event.CONNECT_RETRIED
_EVENT = struct.Struct("=HI")
_TCP = re.compile(r"tcp://(?P<host>.+):(?P<port>\d+)")
_EVERYWHERE = frozenset({"*", "0.0.0.0", "[::]"})  # noqa: S104 - recognised, not bound

Packet = Sequence[bytes | bytearray | memoryview]


class _Link:
    """To one node: ZeroMQ's socket, what waits before it, and the monitor that says when it breaks."""

    __slots__ = ("monitor", "queue", "queue_bytes", "socket", "used_ms")

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
        self.queue: deque[tuple[int, Packet]] = deque()
        """What waits, with its bytes."""
        self.queue_bytes = 0
        self.used_ms = _now_ms()
        self.socket = context.socket(zmq.PUSH)
        self.socket.setsockopt(zmq.LINGER, 1_000)  # A goodbye may still leave.
        self.socket.setsockopt(zmq.SNDHWM, MESH_LINK_BACKLOG)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 1_000)  # It is closed before it would reconnect.
        self.socket.setsockopt(zmq.IPV6, 1)
        self.monitor = self.socket.get_monitor_socket(int(_BREAKS))
        self.monitor.setsockopt(zmq.LINGER, 0)
        try:
            self.socket.connect(address)
        except zmq.ZMQError:
            self.close(is_broken=True)
            raise

    def send(self, frames: Packet) -> bool:
        """Queue a packet behind those that wait; False if there is no room."""
        size_bytes = sum(map(len, frames))
        is_large = self.queue and self.queue_bytes + size_bytes > MESH_LINK_BYTES
        if is_large or len(self.queue) >= MESH_LINK_PACKETS:
            return False
        self.queue.append((size_bytes, frames))
        self.queue_bytes += size_bytes
        self.pump()
        return True

    def pump(self) -> None:
        """Hand over as many packets as ZeroMQ takes."""
        while self.queue and int(self.socket.get(EVENTS)) & _WRITABLE:
            frames = self._bundle()
            for frame in frames[:-1]:
                self.socket.send(frame, MORE)
            self.socket.send(frames[-1], NOW)

    def _bundle(self) -> list[bytes | bytearray | memoryview]:
        """Take out what goes as one message: as many packets as may, but one at least."""
        size_bytes, first = self.queue.popleft()
        frames = [*first]
        while self.queue and size_bytes + self.queue[0][0] <= MESH_LINK_BUNDLE_BYTES:
            more_bytes, more = self.queue.popleft()
            size_bytes += more_bytes
            frames += more
        self.queue_bytes -= size_bytes
        return frames

    def is_broken(self) -> bool:
        has_broken = False
        while int(self.monitor.get(EVENTS)) & READABLE:
            said = receive_frames(self.monitor)
            has_broken = has_broken or bool(_EVENT.unpack_from(said[0])[0] & int(_BREAKS))
        return has_broken

    def close(self, *, is_broken: bool) -> None:
        if is_broken:
            self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.disable_monitor()
        self.monitor.close()
        self.socket.close()


class ZmqLinks:
    """A node's links. Its sockets are waited for together with those of its broker's network."""

    def __init__(self, network: ZmqNetwork, address: str, advertised: str = "") -> None:
        self._context = network.context
        self._network = network
        self._links: dict[str, _Link] = {}
        self._broken: list[str] = []
        self._tidied_ms = _now_ms()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, MESH_LINK_BACKLOG)
        self._socket.setsockopt(zmq.MAXMSGSIZE, BLOCK_BYTES_MAX + MIB)
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, 5_000)
        self._socket.setsockopt(zmq.IPV6, 1)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as problem:
            self._socket.close()
            raise UsageError(f"cannot listen for nodes at {address!r} ({problem}): is another node running there?") from problem
        self.address = advertised or _reachable(network.plain(self._socket.getsockopt_string(zmq.LAST_ENDPOINT)))
        network.also, network.close_also = self._items, self.close

    def _items(self) -> list[tuple[zmq.Socket[bytes], int]]:
        """What to wait for: packets, breaks, and room for what waits."""
        items = [(self._socket, READABLE), *((link.monitor, READABLE) for link in self._links.values())]
        return items + [(link.socket, _WRITABLE) for link in self._links.values() if link.queue]

    def receive(self) -> Frames | None:
        if not int(self._socket.get(EVENTS)) & READABLE:
            return None
        return receive_frames(self._socket)

    def send(self, address: str, frames: Packet) -> bool:
        link = self._links.get(address)
        if link is None:
            if address.partition("://")[0] != self.address.partition("://")[0]:
                self._broken.append(address)  # Nobody is led to another kind of place by what others say.
                return True
            if len(self._links) >= MESH_LINKS_MAX and not self._spare_one():
                return False
            try:
                link = self._links[address] = _Link(self._context, address)
            except zmq.ZMQError:
                self._broken.append(address)  # No address at all: somebody made it up.
                return True
        link.used_ms = _now_ms()
        return link.send(frames)

    def _spare_one(self) -> bool:
        """Close the link that was not used for longest, if that is long enough: a journal and clients need descriptors too.

        Nothing is waited for: whoever has not taken a packet by now may not be there, or be many who are not.
        """
        address = min(self._links, key=lambda each: (bool(self._links[each].queue), self._links[each].used_ms))
        is_spare = _now_ms() - self._links[address].used_ms >= MESH_LINK_SPARE_MS
        if is_spare:
            self._drop(address, is_broken=True)
        return is_spare

    def room_bytes(self, address: str) -> int:
        link = self._links.get(address)
        if link is None:
            return MESH_LINK_BYTES
        return MESH_LINK_BYTES - link.queue_bytes if len(link.queue) < MESH_LINK_PACKETS // 2 else 0

    def broken(self) -> list[str]:
        """Look after all links: hand on what waits, close what broke or was not used."""
        found, self._broken = self._broken, []
        for address, link in list(self._links.items()):
            if link.is_broken():
                found.append(address)
                self._drop(address, is_broken=True)
            else:
                link.pump()
        now_ms = _now_ms()
        if now_ms - self._tidied_ms >= 1_000:
            self._tidied_ms = now_ms
            for address in [each for each, link in self._links.items() if now_ms - link.used_ms > MESH_LINK_IDLE_MS]:
                self._drop(address, is_broken=False)
        return found

    def drop(self, address: str) -> None:
        if address in self._links:
            self._drop(address, is_broken=True)

    def _drop(self, address: str, *, is_broken: bool) -> None:
        self._links.pop(address).close(is_broken=is_broken)

    def close(self) -> None:
        self._network.also, self._network.close_also = list, lambda: None
        for address in list(self._links):
            self._drop(address, is_broken=False)
        self._socket.close()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _reachable(bound: str) -> str:
    """How others reach a socket that is bound everywhere: by the name of this machine."""
    found = _TCP.fullmatch(bound)
    if found is None or found["host"] not in _EVERYWHERE:
        return bound
    return f"tcp://{names.gethostname()}:{found['port']}"

# SPDX-License-Identifier: Apache-2.0
"""The live path of a simulated network: publish and subscribe as ZeroMQ does it, with all that it loses.

May not: deliver out of order inside a connection, or twice.
The idea: every listener has one connection at a time. What is published while it is away, before its subscription has arrived,
or while its queue is at the high-water mark is lost to it without a word. A broker that dies takes all connections with it; a
listener connects again by itself, but names its channels only when its application next calls into it, as libzmq does (H31).
Next: adapters/zmq_live.py, whose place this takes; sim/network.py for the rule that decides what becomes of a packet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from oncemq.core.packets import Live
from oncemq.ports import Frames
from oncemq.sim.scheduler import Process, Scheduler
from oncemq.sim.transit import FROM_LISTENER, TO_LISTENER, Transit, Verdict
from oncemq.wire.codec import decode

Carry = Callable[[Transit, Callable[[], None]], Verdict]
CHANNEL_BYTES = 8


class Beside(Protocol):
    """The link a listener is opened beside."""

    name: str

    @property
    def has_packets(self) -> bool: ...

    @property
    def is_broker_up(self) -> bool: ...

    def wake_broker(self) -> None: ...

    def wait_beside(self, process: Process, timeout_ms: int) -> None: ...


class SimPublisher:
    """The broker's XPUB socket."""

    def __init__(self) -> None:
        self.backlog_max = 1_000
        """Packets that may be on their way to one listener or waiting in it; beyond that they are lost."""
        self.lost = 0
        self.on_told: Callable[[int, int], None] = lambda _topic_id, _end: None
        """Called with a topic's end when it is told for the first time."""
        self._told: dict[int, int] = {}
        self._listeners: dict[int, SimLiveLink] = {}
        self._changes: list[tuple[bytes, bool]] = []
        self._followed: dict[bytes, dict[int, None]] = {}
        self._connections = 0

    def connect(self, listener: SimLiveLink) -> int:
        self._connections += 1
        self._listeners[self._connections] = listener
        return self._connections

    def disconnect(self, connection: int) -> None:
        """The broker notices that a connection is gone, and with it everything it followed."""
        if self._listeners.pop(connection, None) is not None:
            for channel in list(self._followed):
                self.on_leave(connection, channel)

    def on_follow(self, connection: int, channel: bytes) -> None:
        if connection in self._listeners:
            self._followed.setdefault(channel, {})[connection] = None
            self._changes.append((channel, True))

    def on_leave(self, connection: int, channel: bytes) -> None:
        following = self._followed.get(channel, {})
        if following.pop(connection, self) is None and not following:
            del self._followed[channel]
            self._changes.append((channel, False))

    def has_changes(self) -> bool:
        return bool(self._changes)

    def take_changes(self) -> list[tuple[bytes, bool]]:
        changes, self._changes = self._changes, []
        return changes

    def publish(self, frames: Sequence[bytes | bytearray | memoryview]) -> None:
        packet: Frames = [bytes(frame) for frame in frames]
        self._note(packet[0])
        for connection in list(self._followed.get(bytes(packet[0][:CHANNEL_BYTES]), ())):
            if not self._listeners[connection].send(connection, packet, self.backlog_max):
                self.lost += 1

    def _note(self, first: bytes | memoryview) -> None:
        _, live = decode(first[CHANNEL_BYTES:])
        if isinstance(live, Live) and self._told.get(live.topic_id) != live.end:
            self._told[live.topic_id] = live.end
            self.on_told(live.topic_id, live.end)

    def go_down(self) -> None:
        """The broker is gone: no connection survives it, and a new one knows of nobody."""
        listeners = list(self._listeners.values())
        self._listeners.clear()
        self._followed.clear()
        self._changes.clear()
        for listener in listeners:
            listener.on_broken()


class SimLiveLink:
    """ports.LiveLink: a client's SUB socket."""

    def __init__(self, publisher: SimPublisher, link: Beside, scheduler: Scheduler, carry: Carry) -> None:
        self._publisher = publisher
        self._link = link
        self._scheduler = scheduler
        self._carry = carry
        self._channels: dict[bytes, None] = {}
        self._inbox: deque[Frames] = deque()
        self._on_their_way = 0
        self._waiting: Process | None = None
        self._is_closed = False
        self._connection = 0
        """0: not connected, or connected without having named the channels."""

    # --- ports.LiveLink ----------------------------------------------------------------------------------

    def follow(self, channel: bytes) -> None:
        self._channels[channel] = None
        if self._connection:
            self._say(channel, self._publisher.on_follow)
        self._catch_up()

    def leave(self, channel: bytes) -> None:
        self._channels.pop(channel, None)
        self._inbox = deque(frames for frames in self._inbox if frames[0][:CHANNEL_BYTES] != channel)
        if self._connection:
            self._say(channel, self._publisher.on_leave)

    def receive(self) -> Frames | None:
        self._catch_up()
        return self._inbox.popleft() if self._inbox else None

    def wait(self, timeout_ms: int) -> None:
        self._catch_up()
        if self._inbox or self._link.has_packets or timeout_ms <= 0:
            return
        self._waiting = self._scheduler.current()
        self._link.wait_beside(self._waiting, timeout_ms)
        self._waiting = None

    def close(self) -> None:
        self._is_closed = True
        self._publisher.disconnect(self._connection)
        self._connection = 0

    # --- connections ---------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Somebody called into the socket: only now are channels named on a new connection."""
        if self._connection == 0 and not self._is_closed and self._link.is_broker_up:
            self._connection = self._publisher.connect(self)
            for channel in self._channels:
                self._say(channel, self._publisher.on_follow)

    def _say(self, channel: bytes, arrive: Callable[[int, bytes], None]) -> None:
        connection = self._connection
        transit = Transit(FROM_LISTENER, self._link.name, connection, [channel])

        def deliver() -> None:
            arrive(connection, channel)
            self._link.wake_broker()

        self._carry(transit, deliver)

    def send(self, connection: int, frames: Frames, backlog_max: int) -> bool:
        """Called by the broker's end; False if the queue was full."""
        if self._on_their_way + len(self._inbox) >= backlog_max:
            return False
        self._on_their_way += 1
        transit = Transit(TO_LISTENER, self._link.name, connection, frames)
        if self._carry(transit, lambda: self._arrive(connection, frames)).copies == 0:
            self._on_their_way -= 1
        return True

    def _arrive(self, connection: int, frames: Frames) -> None:
        self._on_their_way -= 1
        if connection == self._connection and frames[0][:CHANNEL_BYTES] in self._channels:
            self._inbox.append(frames)
            if self._waiting is not None:
                self._waiting.wake()

    def on_broken(self) -> None:
        """What had arrived is still here; what was on its way is not."""
        self._connection = 0

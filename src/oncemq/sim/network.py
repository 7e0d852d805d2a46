# SPDX-License-Identifier: Apache-2.0
"""A network that behaves like ZeroMQ at its worst: first in, first out inside a connection, and nothing promised beyond it.

May not: lose anything inside a living connection, or keep anything in order across two.
The idea: a link is a client's socket; each reset makes a new connection with an address of its own, while what the old one had on
its way may still arrive, late. A broker that is away lets senders queue; one that dies takes what was on its way with it.
`rule` decides for every packet: deliver, drop, delay, repeat. Tests script it, the simulator draws it.
Next: adapters/zmq_network.py and adapters/zmq_link.py, whose place this takes.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from oncemq.ports import Frames
from oncemq.sim.live_link import SimLiveLink, SimPublisher
from oncemq.sim.scheduler import Process, Scheduler
from oncemq.sim.transit import DELIVER, DROP, TO_BROKER, TO_CLIENT, Transit, Verdict

__all__ = ["DELIVER", "DROP", "TO_BROKER", "TO_CLIENT", "SimLink", "SimNetwork", "Transit", "Verdict"]


class SimNetwork:
    """ports.Network: the broker's end. One for the life of a world; brokers come and go."""

    def __init__(self, scheduler: Scheduler, delay_us: int = 50) -> None:
        self.rule: Callable[[Transit], Verdict] = lambda _: DELIVER
        self.is_up = False
        self.on_change: Callable[[bool], None] = lambda _is_up: None
        """Called when a broker begins to serve, and when it is gone."""
        self.packets = 0
        self.dropped = 0
        self.live_address = "sim-live"
        self.publisher = SimPublisher()
        self.publish = self.publisher.publish
        self.followings = self.publisher.take_changes
        self.trace = hashlib.blake2b(digest_size=12)
        """Every packet that was ever sent, with its time: two runs of one seed must agree on it."""
        self._scheduler = scheduler
        self._delay_us = delay_us
        self._inbox: deque[tuple[bytes, Frames]] = deque()
        self._waiting: Process | None = None
        self._links: dict[bytes, SimLink] = {}
        self._life = 0
        self._connections = 0
        self._free_at: dict[tuple[str, int], int] = {}

    # --- ports.Network -------------------------------------------------------------------------------

    def wait(self, timeout_ms: int) -> bool:
        if not self._inbox and not self.publisher.has_changes():
            self._waiting = self._scheduler.current()
            self._waiting.wait(timeout_ms * 1000)
            self._waiting = None
        return bool(self._inbox)

    def wake(self) -> None:
        """Have a broker that waits look again."""
        if self._waiting is not None:
            self._waiting.wake()

    def receive(self) -> tuple[bytes, Frames] | None:
        return self._inbox.popleft() if self._inbox else None

    def send(self, address: bytes, frames: Sequence[bytes | bytearray | memoryview]) -> bool:
        link = self._links.get(address)
        if link is None or link.address != address:
            return False
        transit = Transit(TO_CLIENT, link.name, link.connection, [bytes(frame) for frame in frames])
        self._carry(transit, partial(link.arrive, address, transit.frames))
        return True

    def close(self) -> None:
        self.go_down()

    # --- broker's life -------------------------------------------------------------------------------

    def come_up(self) -> None:
        self.is_up = True
        self.on_change(True)
        for link in list(self._links.values()):
            link.reconnect()

    def go_down(self) -> None:
        """What was waiting here, and what was on its way to here, is gone."""
        if self.is_up:
            self.on_change(False)
        self.is_up = False
        self._life += 1
        self._inbox.clear()
        self._waiting = None
        self.publisher.go_down()

    # --- links ---------------------------------------------------------------------------------------

    def connect(self, link: SimLink) -> bytes:
        self._connections += 1
        address = b"\0" + self._connections.to_bytes(8, "big")
        self._links[address] = link
        return address

    def disconnect(self, address: bytes) -> None:
        self._links.pop(address, None)

    def carry_to_broker(self, link: SimLink, frames: Frames) -> None:
        address, life = link.address, self._life
        transit = Transit(TO_BROKER, link.name, link.connection, frames)

        def arrive() -> None:
            if self.is_up and self._life == life:
                self._inbox.append((address, frames))
                self.wake()

        self._carry(transit, arrive)

    def _note(self, transit: Transit) -> Verdict:
        self.packets += 1
        self.trace.update(b"%d %s %d " % (self._scheduler.time_us, transit.direction.encode(), transit.connection))
        self.trace.update(transit.frames[0] if transit.frames else b"")
        return self.rule(transit)

    def carry_in_order(self, transit: Transit, arrive: Callable[[], None]) -> Verdict:
        """The same on the live path: what is delayed delays all behind it, and nothing comes twice."""
        verdict, line = self._note(transit), (transit.direction, transit.connection)
        if verdict.copies:
            at_us = max(self._scheduler.time_us + self._delay_us + verdict.delay_us, self._free_at.get(line, 0))
            self._free_at[line] = at_us
            self._scheduler.after(at_us - self._scheduler.time_us, arrive)
        return verdict

    def _carry(self, transit: Transit, arrive: Callable[[], None]) -> None:
        """Put a packet on the line. Inside a connection and direction nothing overtakes, unless the rule delays it."""
        verdict = self._note(transit)
        line = transit.direction, transit.connection
        at_us = max(self._scheduler.time_us + self._delay_us, self._free_at.get(line, 0))
        self._free_at[line] = at_us
        for _ in range(verdict.copies):
            self._scheduler.after(at_us - self._scheduler.time_us + verdict.delay_us, arrive)


class SimLink:
    """ports.Link: a client's end."""

    def __init__(self, network: SimNetwork, scheduler: Scheduler, name: str) -> None:
        self.name = name
        self._network = network
        self._scheduler = scheduler
        self._inbox: deque[Frames] = deque()
        self._queued: deque[Frames] = deque()
        self._waiting: Process | None = None
        self.address = network.connect(self)

    @property
    def connection(self) -> int:
        return int.from_bytes(self.address, "big")

    def send(self, frames: Sequence[bytes | bytearray | memoryview]) -> bool:
        packet: Frames = [bytes(frame) for frame in frames]
        if self._network.is_up:
            self._network.carry_to_broker(self, packet)
        else:
            self._queued.append(packet)
        return True

    def receive(self, timeout_ms: int) -> Frames | None:
        if not self._inbox and timeout_ms > 0:
            self._waiting = self._scheduler.current()
            self._waiting.wait(timeout_ms * 1000)
            self._waiting = None
        return self._inbox.popleft() if self._inbox else None

    def arrive(self, address: bytes, frames: Frames) -> None:
        """A packet for the connection that had this address; a closed one hears nothing."""
        if address == self.address:
            self._inbox.append(frames)
            if self._waiting is not None:
                self._waiting.wake()

    def reconnect(self) -> None:
        """The broker is back: ZeroMQ connects again by itself and sends what was queued meanwhile."""
        self._network.disconnect(self.address)
        self.address = self._network.connect(self)
        while self._queued:
            self._network.carry_to_broker(self, self._queued.popleft())

    def open_live(self, _: str) -> SimLiveLink:
        return SimLiveLink(self._network.publisher, self, self._scheduler, self._network.carry_in_order)

    @property
    def has_packets(self) -> bool:
        return bool(self._inbox)

    @property
    def is_broker_up(self) -> bool:
        return self._network.is_up

    def wake_broker(self) -> None:
        self._network.wake()

    def wait_beside(self, process: Process, timeout_ms: int) -> None:
        """Wait like a receive would, for whoever waits for something else as well."""
        self._waiting = process
        process.wait(timeout_ms * 1000)
        self._waiting = None

    def reset(self) -> None:
        self._network.disconnect(self.address)
        self._inbox.clear()
        self._queued.clear()
        self.address = self._network.connect(self)

    def close(self) -> None:
        self._network.disconnect(self.address)

# SPDX-License-Identifier: Apache-2.0
"""Whole nodes of a mesh in one process: the shipped loop with its journal, its clients and its links, on disks that forget.

May not: contain a rule of the product. A node is engine/loop.py with engine/mesh.py; only disk, network, clock and dice are ours.
The idea: every node is a world of its own with a broker and clients; all share one scheduler, and wires that lose and repeat.
What sim/mesh_world.py does with the machine alone, by the hundred, is done here with everything around it, by the few.
Next: sim/world.py for one broker, sim/mesh_world.py for large meshes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oncemq import crashpoints
from oncemq.engine.loop import BrokerLoop
from oncemq.engine.mesh import MeshTerms
from oncemq.journal.journal import JournalSettings
from oncemq.mesh.settings import MeshSettings
from oncemq.ports import Frames
from oncemq.sim.network import SimNetwork
from oncemq.sim.scheduler import Killed, Scheduler
from oncemq.sim.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

_SMALL = JournalSettings(segment_bytes=64 * 1024, reserve_bytes=8 * 1024, segment_records_max=500)
_RESTART_US = 300_000


class Wires:
    """All links of a mesh. `loss` and `repeat` are shares of one; `cut` are directed pairs between which nothing passes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.loss = self.repeat = 0.0
        self.delay_us_max = 5_000
        self.cut: set[tuple[str, str]] = set()
        self.ends: dict[str, SimLinks] = {}
        self.random = scheduler.random("wires")


class SimLinks:
    """ports.Links: one node's end of the wires."""

    def __init__(self, wires: Wires, address: str, wake: Callable[[], None]) -> None:
        self.address = address
        self.inbox: deque[Frames] = deque()
        self.is_up = False
        self._wires = wires
        self._wake = wake
        self._broken: list[str] = []
        wires.ends[address] = self

    def receive(self) -> Frames | None:
        return self.inbox.popleft() if self.inbox else None

    def send(self, address: str, frames: Sequence[bytes | bytearray | memoryview]) -> bool:
        wires, packet = self._wires, [bytes(frame) for frame in frames]
        if wires.random.random() < wires.loss or (self.address, address) in wires.cut:
            return True
        for _ in range(1 + (wires.random.random() < wires.repeat)):
            wires.scheduler.after(wires.random.randrange(50, wires.delay_us_max), lambda: self._arrive(address, packet))
        return True

    def _arrive(self, address: str, packet: list[bytes]) -> None:
        end = self._wires.ends.get(address)
        if end is None or not end.is_up:
            self._broken.append(address)
            self._wake()
        else:
            end.inbox.append(list(packet))
            end._wake()

    def room_bytes(self, _address: str) -> int:
        return 1 << 30

    def drop(self, address: str) -> None:
        """What is on its way arrives, or not: as with sockets, that is not known."""

    def broken(self) -> list[str]:
        found, self._broken = self._broken, []
        return found

    def go_down(self) -> None:
        self.is_up = False
        self.inbox.clear()
        self._broken.clear()

    def close(self) -> None:
        self.go_down()


class _NodeNetwork(SimNetwork):
    """A broker's network that also ends its wait when a node has spoken."""

    links: SimLinks

    def wait(self, timeout_ms: int) -> bool:
        return bool(self.links.inbox) or super().wait(timeout_ms)

    def go_down(self) -> None:
        super().go_down()
        self.links.go_down()


class NodeWorld(World):
    """One node: a world whose broker has links to others."""

    def __init__(self, wires: Wires, number: int, contacts: tuple[str, ...], settings: MeshSettings) -> None:
        super().__init__(wires.scheduler.seed * 100 + number, settings=_SMALL, scheduler=wires.scheduler)
        self.address = f"node-{number}"
        self.entropy = type(self.entropy)(wires.scheduler.random(f"entropy {number}"))
        network = _NodeNetwork(wires.scheduler)
        network.links = self.links = SimLinks(wires, self.address, network.wake)
        self.network = network
        self._terms = MeshTerms(self.links, wires.scheduler.random(f"dice {number}"), contacts, settings)

    def open_loop(self) -> BrokerLoop:
        loop = BrokerLoop.open(self.disk, self.network, self.clock, self.entropy, self._settings, self._terms)
        self.links.is_up = True
        return loop

    def strike(self, after_us: int, down_us: int, *, power_cut: bool) -> None:
        """Have this node killed at that time, whatever it is doing, and started again after another while."""

        def die() -> None:
            self._kill_broker()
            if power_cut:
                self.disk.power_cut()
            self.scheduler.after(down_us, revive)

        def revive() -> None:
            if not self.is_broker_running:  # It was struck again while it was down.
                self.launch_broker()

        self.scheduler.after(after_us, die)

    @contextmanager
    def dying_at(self, point: str, hit: int, *, power_cut: bool) -> Iterator[list[int]]:
        """Have this node die at that hit of a crash point, once, and start again a little later. Yields the time of the death."""
        deaths: list[int] = []
        left = [hit]

        def hook(name: str) -> None:
            if name != point or deaths or self._broker is None or self.scheduler.running is not self._broker:
                return
            left[0] -= 1
            if left[0] == 0:
                deaths.append(self.scheduler.time_us)
                self.disk.kill()
                if power_cut:
                    self.disk.power_cut()
                self.scheduler.after(_RESTART_US, self.launch_broker)
                raise Killed

        before = crashpoints.install(hook)
        try:
            yield deaths
        finally:
            crashpoints.install(before)


def mesh_of(seed: int, count: int, settings: MeshSettings | None = None) -> list[NodeWorld]:
    """Start a small mesh, and wait until everybody has joined."""
    wires = Wires(Scheduler(seed))
    nodes: list[NodeWorld] = []
    for number in range(count):
        contacts = tuple(node.address for node in nodes[:2])
        nodes.append(NodeWorld(wires, number, contacts, settings or MeshSettings()))
        nodes[-1].start_broker()
    wires.scheduler.run(until=lambda: all(is_member(node) for node in nodes), limit_us=120_000_000)
    return nodes


def is_member(node: NodeWorld) -> bool:
    return node.loop is not None and node.loop.mesh is not None and node.loop.machine.state.origins.has_baseline

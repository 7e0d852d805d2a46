# SPDX-License-Identifier: Apache-2.0
"""A small mesh, event by event: nodes with disks that forget, and a network that loses, delays, repeats and cuts.

May not: contain a rule of the product: nodes are mesh/node.py, packets are bytes of wire/mesh_codec.py.
The idea: a node drains what has arrived, applies its records at once, and speaks when the sync has ended, some milliseconds
later; it may die in between. A kill keeps what was written, a power cut only what was synced, an older copy even less.
One seed is one history, to the byte.
Next: sim/mesh_swarm.py for the faults, sim/mesh_checkers.py for the judges.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from oncemq.mesh.effects import Down, HandOver, MeshEffects, Send, Serve, Speech, TellGap, Up
from oncemq.mesh.node import Life, MeshNode
from oncemq.mesh.packets import Address, Baseline, Heartbeat, MeshPacket, Origin, Spread, Vector
from oncemq.mesh.records import GivenUp, MeshRecord, Taken
from oncemq.mesh.settings import MeshSettings
from oncemq.mesh.state import NodeState
from oncemq.sim.mesh_history import MeshHistory, Offer
from oncemq.wire.mesh_codec import decode, encode


class NodeDisk:
    """What a node wrote, how much of it is synced, and what it can still serve."""

    def __init__(self, node: bytes) -> None:
        self.node = node
        self.records: list[MeshRecord] = []
        self.synced = 0
        self.low: dict[Origin, int] = {}
        self._stored: dict[Origin, dict[int, Taken]] = {}

    def append(self, record: MeshRecord) -> None:
        self.records.append(record)
        if isinstance(record, Taken):
            self._stored.setdefault(record.origin, {})[record.number] = record

    def lose_unsynced(self) -> None:
        self.set_back(self.synced)

    def set_back(self, count: int) -> None:
        """Only the first records are left: power was cut, or an older copy was put back."""
        kept, self.records, self._stored = self.records[:count], [], {}
        for record in kept:
            self.append(record)
        self.synced = len(self.records)

    def whole_before(self, count: int) -> int:
        """So many records or fewer, so that they end with a whole transaction: a group is written as one."""
        while count and isinstance(last := self.records[count - 1], Taken) and last.has_more:
            count -= 1
        return count

    def trim(self, origin: Origin, low: int) -> None:
        """Messages below `low` are no longer kept."""
        self.low[origin] = max(low, self.low.get(origin, 0))

    def read(self, origin: Origin, number: int) -> Taken | None:
        return self._stored.get(origin, {}).get(number) if number >= self.low.get(origin, 0) else None

    def is_expired(self, origin: Origin, number: int) -> bool:
        """mesh.node.Store: whether it was stored, and trimmed."""
        return number < self.low.get(origin, 0) and number in self._stored.get(origin, {})

    def held(self, origin: Origin, first: int, last: int) -> list[tuple[int, int]]:
        """mesh.node.Store: the stored stretches of a range."""
        spans: list[tuple[int, int]] = []
        for number in range(first, last + 1):
            if self.read(origin, number) is None:
                continue
            if spans and spans[-1][1] == number - 1:
                spans[-1] = (spans[-1][0], number)
            else:
                spans.append((number, number))
        return spans


@dataclass(slots=True)
class Faults:
    """What the network does to packets, in shares of one; delays in milliseconds."""

    loss: float = 0.0
    repeat: float = 0.0
    delay_ms_max: int = 20
    late: float = 0.0
    late_ms_max: int = 0
    reset: float = 1.0
    """How often the sender of a packet to a dead node is told so."""
    cuts: set[tuple[Address, Address]] = field(default_factory=set)
    """Directed pairs between which nothing passes."""


class SimNode:
    """A place in the mesh: a disk that stays, and the machine that runs on it now, if any."""

    def __init__(self, address: Address, node: bytes, contacts: tuple[Address, ...]) -> None:
        self.address = address
        self.contacts = contacts
        self.disk = NodeDisk(node)
        self.machine: MeshNode | None = None
        self.life = 0
        self.started_ms = 0
        self.inbox: list[Callable[[MeshNode, int], MeshEffects]] = []
        self.is_busy = False
        self.sync_ms_max = 5
        self.wakes_ms = -1
        self.remembered: list[Address] = []


INBOX_MAX = 300
"""Packets that may wait for a slow node before its neighbours expel it."""


class MeshWorld:
    def __init__(self, seed: int, settings: MeshSettings) -> None:
        self.now_ms = 0
        self.faults = Faults()
        self.nodes: dict[Address, SimNode] = {}
        self.history = MeshHistory()
        self.sent: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()
        self.copies = 0
        """Of the messages sent, those that were requested; the others are floods."""
        self.received: Counter[Address] = Counter()
        self.dice = random.Random(f"mesh world {seed}")
        self._settings = settings
        self._seed = seed
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._hash = blake2b(digest_size=8)

    @property
    def digest(self) -> str:
        """A hash of all packets so far, in order."""
        return self._hash.hexdigest()

    # --- time ---------------------------------------------------------------------------------------------

    def at(self, delay_ms: int, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._count, what))

    def run(self, duration_ms: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; True as soon as `until` holds (looked at once a simulated second)."""
        end_ms, look_ms = self.now_ms + duration_ms, self.now_ms
        while self._heap and self._heap[0][0] <= end_ms:
            if self._heap[0][0] >= look_ms:
                look_ms = self._heap[0][0] + 1_000
                if until():
                    return True
            self.now_ms, _, what = heapq.heappop(self._heap)
            what()
        self.now_ms = end_ms
        return until()

    # --- nodes --------------------------------------------------------------------------------------------

    def add(self, address: Address, contacts: tuple[Address, ...] = ()) -> SimNode:
        node = SimNode(address, blake2b(address.encode(), digest_size=16).digest(), contacts)
        self.nodes[address] = node
        return node

    def start(self, address: Address) -> None:
        """Start a node on its disk as it is. What an unclean end left unproven is synced first (R11)."""
        node = self.nodes[address]
        node.life += 1
        node.started_ms = self.now_ms
        self.history.synced(address, node.disk.records[node.disk.synced :], self.now_ms)
        node.disk.synced = len(node.disk.records)
        state = NodeState()
        for record in node.disk.records:
            state.apply(record)
        dice = random.Random(f"{self._seed}/{address}/{node.life}")
        start_id = dice.randbytes(16)
        node.machine = MeshNode(address, state, node.disk, self._settings, dice, node.contacts, node.remembered)
        node.inbox, node.is_busy, node.wakes_ms = [], False, -1
        self.history.started(address, self.now_ms)
        self._give(node, lambda machine, now_ms: machine.start(now_ms, node.disk.node, start_id))

    def kill(self, address: Address, *, power_cut: bool = False, set_back_to: int | None = None) -> None:
        node = self.nodes[address]
        node.life += 1
        if node.machine is not None:
            node.remembered = node.machine.membership.memory()
        node.machine = None
        if power_cut:
            node.disk.lose_unsynced()
        if set_back_to is not None:
            node.disk.set_back(min(set_back_to, node.disk.synced))
            self.history.set_back(address, node.disk.records)
        self.history.stopped(address)

    def is_up(self, address: Address) -> bool:
        return self.nodes[address].machine is not None

    def running(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.machine is not None]

    # --- draining -----------------------------------------------------------------------------------------

    def _give(self, node: SimNode, what: Callable[[MeshNode, int], MeshEffects]) -> None:
        """An input for a node; it drains at once, unless it is syncing."""
        node.inbox.append(what)
        if not node.is_busy:
            node.is_busy = True
            life = node.life
            self.at(0, lambda: self._drain(node, life))

    def _drain(self, node: SimNode, life: int) -> None:
        machine = node.machine
        if machine is None or node.life != life:
            return
        inputs, node.inbox = node.inbox, []
        speech: list[Speech] = []
        for what in inputs:
            speech += self._carry_out(node, machine, what(machine, self.now_ms))
        speech += self._carry_out(node, machine, machine.settle(self.now_ms))
        written = len(node.disk.records)
        self.at(self.dice.randint(0, node.sync_ms_max), lambda: self._synced(node, life, written, speech))

    def _carry_out(self, node: SimNode, machine: MeshNode, effects: MeshEffects) -> tuple[Speech, ...]:
        for record in effects.records:
            machine.apply(record)
            node.disk.append(record)
            self.history.wrote(node.address, record)
            if isinstance(record, GivenUp):
                self._check_given_up(node, record)
        return effects.speech

    def _check_given_up(self, node: SimNode, record: GivenUp) -> None:
        """P3: what somebody can serve who could be asked is not lost, unless somebody has kept it for as long as is promised."""
        for other in self.running():
            has_been_there = self.now_ms - other.started_ms >= self._settings.retention_ms // 2
            held = other.disk.held(record.origin, record.first, record.last)
            if held and has_been_there and not self._is_cut_off(node, other) and not self._is_expired(record.origin, held[0][0]):
                self.history.violate("P3 given up", f"{node.address} gave up number {held[0][0]}, which {other.address} has")

    def _is_cut_off(self, node: SimNode, other: SimNode) -> bool:
        return not self.faults.cuts.isdisjoint({(node.address, other.address), (other.address, node.address)})

    def _is_expired(self, origin: Origin, number: int) -> bool:
        return any(each.disk.is_expired(origin, number) for each in self.nodes.values())

    def _synced(self, node: SimNode, life: int, written: int, speech: list[Speech]) -> None:
        machine = node.machine
        if machine is None or node.life != life:
            return
        self.history.synced(node.address, node.disk.records[node.disk.synced : written], self.now_ms)
        node.disk.synced = written
        for each in speech:
            self._speak(node, each)
        node.is_busy = False
        if machine.life is Life.LEFT:
            node.machine = None
            self.history.left(node.address)
            return
        if node.inbox:
            self._give(node, lambda _machine, _now_ms: MeshEffects())
        self._wake_when_due(node, machine)

    def _wake_when_due(self, node: SimNode, machine: MeshNode) -> None:
        due_ms = machine.due_ms
        if node.wakes_ms == due_ms:
            return
        node.wakes_ms = due_ms
        life = node.life

        def wake() -> None:
            if node.life == life and node.wakes_ms == due_ms:
                node.wakes_ms = -1
                self._give(node, lambda each, now_ms: each.tick(now_ms))

        self.at(max(0, due_ms - self.now_ms), wake)

    # --- speech -------------------------------------------------------------------------------------------

    def _speak(self, node: SimNode, each: Speech) -> None:
        match each:
            case Send(to=to, packet=packet, block=block):
                self._check_told(node, packet)
                self.send(node.address, to, packet, bytes(block))
            case Serve():
                for number in range(each.first, each.last + 1):
                    self._serve(node, each, node.disk.read(each.origin, number))
            case HandOver():
                self.history.handed(node.address, each)
            case TellGap():
                self.history.told_gap(node.address, each)
            case Up() | Down():
                self.history.changed(node.address, each)

    def _serve(self, node: SimNode, serve: Serve, stored: Taken | None) -> None:
        if stored is None:
            return  # Trimmed meanwhile; whoever asked will ask again, and be denied.
        names = (stored.topics, stored.publisher, stored.count)
        packet = Spread(stored.origin, stored.number, *names, serve.is_copy, stored.has_more)
        self.send(node.address, serve.to, packet, bytes(stored.block))

    def _check_told(self, node: SimNode, packet: MeshPacket) -> None:
        """Whatever a node says of what it has must be on its disk at this instant."""
        if isinstance(packet, Heartbeat):
            self.history.told_digest(node.address, packet.digest)
        elif isinstance(packet, Vector | Baseline):
            self.history.told_entries(node.address, packet.entries)

    # --- the network --------------------------------------------------------------------------------------

    def send(self, source: Address, target: Address, packet: MeshPacket, block: bytes) -> None:
        frame, faults, dice = encode(source, packet), self.faults, self.dice
        kind = type(packet).__name__
        self.sent[kind] += 1
        self.sent_bytes[kind] += len(frame) + len(block)
        self.copies += isinstance(packet, Spread) and packet.is_copy
        self._hash.update(frame)
        if target not in self.nodes or (source, target) in faults.cuts or dice.random() < faults.loss:
            return
        for _ in range(1 + (dice.random() < faults.repeat)):
            delay_ms = dice.randint(1, faults.delay_ms_max)
            if faults.late and dice.random() < faults.late:
                delay_ms += dice.randint(0, faults.late_ms_max)
            self.at(delay_ms, lambda: self._arrive(source, target, [frame, block] if isinstance(packet, Spread) else [frame]))

    def _arrive(self, source: Address, target: Address, frames: list[bytes]) -> None:
        node, sender = self.nodes.get(target), self.nodes.get(source)
        if sender is None or node is None:
            return
        self.received[target] += 1
        if node.machine is None:
            if sender.machine is not None and self.dice.random() < self.faults.reset and (target, source) not in self.faults.cuts:
                self._give(sender, lambda machine, now_ms: machine.lost(now_ms, target))
        elif len(node.inbox) >= INBOX_MAX:
            self.sent["dropped_slow"] += 1
            if sender.machine is not None:
                self._give(sender, lambda machine, now_ms: machine.expel(now_ms, target))
        else:
            address, packet, block = decode(list(frames))
            self._give(node, lambda machine, now_ms: machine.hear(now_ms, address, packet, block))

    def tell_lost(self, address: Address, dead: list[Address]) -> None:
        """A node's link layer finds these dead."""
        for each in dead:
            self._give(self.nodes[address], lambda machine, now_ms, each=each: machine.lost(now_ms, each))  # type: ignore[misc]

    # --- applications -------------------------------------------------------------------------------------

    def put(self, address: Address, topics: tuple[str, ...], block: bytes, *, has_more: bool = False) -> None:
        """Put a message at a node; it is confirmed when its record is synced. `has_more`: the next put belongs to it."""
        node = self.nodes[address]

        def take(machine: MeshNode, now_ms: int) -> MeshEffects:
            if machine.life in {Life.LEAVING, Life.LEFT}:
                return MeshEffects()
            number = machine.state.had[machine.own_origin] + 1
            self.history.offered(machine.own_origin, number, Offer(address, topics, block, has_more))
            return machine.put(now_ms, topics, "sim", 1, block, has_more=has_more)

        if node.machine is not None:
            self._give(node, take)

    def subscribe(self, address: Address, topic: str, *, is_wanted: bool = True) -> None:
        node = self.nodes[address]

        def take(machine: MeshNode, _now_ms: int) -> MeshEffects:
            if not is_wanted:
                return machine.unwant(topic)
            return machine.want(topic) if machine.may_subscribe else MeshEffects()

        if node.machine is not None:
            self._give(node, take)

    def leave(self, address: Address) -> None:
        node = self.nodes[address]
        if node.machine is not None and node.machine.life in {Life.JOINING, Life.MEMBER}:
            self._give(node, _leave)


def _leave(machine: MeshNode, now_ms: int) -> MeshEffects:
    return machine.leave(now_ms) if machine.life in {Life.JOINING, Life.MEMBER} else MeshEffects()

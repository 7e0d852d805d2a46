# SPDX-License-Identifier: Apache-2.0
"""One seed, one small mesh gone wrong: which nodes, which faults, and when. Load with faults, heal, drain, judge.

May not: use any randomness but that of the seed: the same seed is the same history, to the byte.
The idea: as in sim/swarm.py, every fault class is on or off with even odds. Three of them can truly lose messages (an older disk,
a destroyed node, retention); half of the worlds have none of these, and there nothing may ever be given up.
Next: sim/mesh_checkers.py for the judges, sim/mesh_bugs.py for bugs they must see.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from random import Random

from oncemq.mesh.node import Life
from oncemq.mesh.packets import Address
from oncemq.mesh.settings import MeshSettings
from oncemq.model.block import cut_block
from oncemq.sim.mesh_checkers import is_connected, judge
from oncemq.sim.mesh_world import Faults, MeshWorld

FAULT_CLASSES = (
    "kill",
    "power_cut",
    "older_copy",
    "destroy",
    "leave",
    "newcomer",
    "loss",
    "repeat",
    "late",
    "silent_death",
    "partition",
    "one_way",
    "slow",
    "trim",
    "outnumbered",
)
LOSING = ("older_copy", "destroy", "trim")
TOPICS = ("orders", "payments", "events")
DRAIN_MS_MAX = 400_000
RETENTION_MS = 15_000
REST_MS = 20_000
HOLD_MS = 2 * MeshSettings().heartbeat_timeout_ms
"""How long what was told to a neighbour is kept for its replacement (mesh/node.py)."""
RENDEZVOUS = "n0"
"""The node that everybody knows: it may die and return, but it does not leave."""


@dataclass(frozen=True, slots=True)
class MeshOutcome:
    """What one seed gave."""

    seed: int
    digest: str
    nodes: int
    messages: int
    faults: int
    packets: int
    given_up: int
    drain_ms: int
    violations: dict[str, list[str]]
    counts: dict[str, int] = field(default_factory=dict)


def block_of(value: bytes) -> bytes:
    """A block of one message."""
    return bytes(cut_block([value], array("q", [0])))


class MeshSwarm:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = random = Random(f"mesh swarm {seed}")
        drawn = FAULT_CLASSES if random.random() < 0.5 else [each for each in FAULT_CLASSES if each not in LOSING]
        self.classes = tuple(each for each in drawn if random.random() < 0.5)
        self.may_lose = any(each in LOSING for each in self.classes)
        retention_ms = RETENTION_MS if self.may_lose else 3_600_000
        self._active_max = random.choice((3, 4, 5))
        settings = MeshSettings(
            heal_ms=4_000, retention_ms=retention_ms, active=self._active_max, early_messages=random.choice((5, 1_000))
        )
        self.world = MeshWorld(seed, settings)
        self._span_ms = random.randint(10_000, 40_000)
        self._faults = random.randint(1, 12)
        self._destroyed: set[Address] = set()
        self._messages = 0
        self._newcomers = 0
        self._starting: dict[Address, None] = {}

    # --- phases -------------------------------------------------------------------------------------------

    def run(self) -> MeshOutcome:
        world = self.world
        self._found(self._random.randint(2, 12))
        world.run(self._random.randint(0, 8_000))
        self._schedule_load()
        self._set_line()
        world.run(self._span_ms)
        drain_ms = self._heal_and_drain()
        violations = judge(world, may_lose=self.may_lose, active_max=self._active_max)
        given_up = sum(gap.last - gap.first + 1 for book in world.history.books.values() for gap in book.gaps)
        packets = sum(count for kind, count in world.sent.items() if kind != "dropped_slow")
        counts = dict(world.history.downs) | {"expelled": world.sent["dropped_slow"]}
        nodes = len(world.nodes)
        return MeshOutcome(
            self.seed, world.digest, nodes, self._messages, self._faults, packets, given_up, drain_ms, violations, counts
        )

    def _found(self, count: int) -> None:
        names = [f"n{index}" for index in range(count)]
        for index, name in enumerate(names):
            contacts = _contacts(self._random, names[:index])
            self.world.add(name, contacts)
            self._start(name, delay_ms=self._random.randint(0, 3_000) if index else 0)

    def _start(self, name: Address, *, delay_ms: int = 0) -> None:
        """Start a node later, unless somebody else does first."""
        self._starting[name] = None

        def start() -> None:
            self._starting.pop(name, None)
            if not self.world.is_up(name) and name not in self._destroyed and not self.world.history.book(name).is_gone:
                self.world.start(name)

        self.world.at(delay_ms, start)

    def _schedule_load(self) -> None:
        random, world = self._random, self.world
        for _ in range(random.randint(5, 80)):
            world.at(random.randint(0, self._span_ms), self._put)
        for _ in range(random.randint(2, 10)):
            world.at(random.randint(0, self._span_ms // 2), self._subscribe)
        for _ in range(self._faults):
            world.at(random.randint(0, self._span_ms), self._harm)

    def _set_line(self) -> None:
        random, faults = self._random, self.world.faults
        faults.delay_ms_max = random.choice((2, 20, 100))
        faults.loss = random.uniform(0.01, 0.3) if "loss" in self.classes else 0.0
        faults.repeat = random.uniform(0.01, 0.2) if "repeat" in self.classes else 0.0
        faults.late = random.uniform(0.01, 0.1) if "late" in self.classes else 0.0
        faults.late_ms_max = 3_000
        faults.reset = random.choice((0.0, 0.5)) if "silent_death" in self.classes else 1.0

    # --- load ---------------------------------------------------------------------------------------------

    def _pick(self) -> Address | None:
        up = [node.address for node in self.world.running()]
        return self._random.choice(up) if up else None

    def _put(self) -> None:
        name = self._pick()
        if name is not None:
            self._messages += 1
            topics = tuple(self._random.sample(TOPICS, self._random.choice((1, 1, 2))))
            count, is_tied = self._random.choice(((1, False), (1, False), (5, False), (5, True)))
            for left in reversed(range(count)):
                block = block_of(b"%d/%d" % (self._messages, self._random.randrange(10**6)))
                self.world.put(name, topics, block, has_more=is_tied and left > 0)

    def _subscribe(self) -> None:
        name = self._pick()
        if name is not None:
            self.world.subscribe(name, self._random.choice(TOPICS), is_wanted=self._random.random() < 0.85)

    # --- faults -------------------------------------------------------------------------------------------

    def _harm(self) -> None:
        classes = [each for each in self.classes if each not in ("loss", "repeat", "late", "silent_death")]
        if not classes:
            return
        kind, name = self._random.choice(classes), self._pick()
        if name is None:
            return
        match kind:
            case "kill" | "power_cut" | "older_copy":
                self._crash(kind, name)
            case "destroy":
                self._destroy(name)
            case "leave":
                self._leave(name)
            case "newcomer":
                self._newcomer()
            case "partition" | "one_way":
                self._partition(one_way=kind == "one_way")
            case "slow":
                self._slow(name)
            case "trim":
                self._trim(name)
            case "outnumbered":
                self._outnumber(name)

    def _crash(self, kind: str, name: Address) -> None:
        disk = self.world.nodes[name].disk
        back = self._random.randint(min(2, disk.synced), disk.synced) if kind == "older_copy" else None
        self.world.kill(name, power_cut=kind != "kill", set_back_to=back and disk.whole_before(back))
        self._start(name, delay_ms=self._random.choice((10, 500, 5_000, 20_000)))

    def _destroy(self, name: Address) -> None:
        """For good, but not the last ones: somebody must be left to tell."""
        if len(self.world.nodes) - len(self._destroyed) > 3 and name != RENDEZVOUS:
            self.world.kill(name, power_cut=True)
            self._destroyed.add(name)

    def _leave(self, name: Address) -> None:
        """With a message in its last moment, which nobody hears at once: it may not be lost by leaving."""
        if name != RENDEZVOUS:
            self._cut({(name, other) for other in self.world.nodes if other != name}, self._random.choice((0, 3_000)))
            self.world.put(name, TOPICS[:1], block_of(b"last words of " + name.encode()))
            self.world.leave(name)

    def _newcomer(self) -> None:
        self._newcomers += 1
        name = f"new{self._newcomers}"
        contacts = _contacts(self._random, list(self.world.nodes))
        self.world.add(name, contacts)
        self._start(name)
        for delay_ms in (1, 2_000):  # Whoever comes too early is refused, and comes again; what is put meanwhile is not for it.
            self.world.at(delay_ms, lambda: self.world.subscribe(name, TOPICS[0]))
        self.world.at(2, self._put)

    def _outnumber(self, name: Address) -> None:
        """It is away while others put and many join, and returns through these: neighbours that never had what it missed."""
        if self._newcomers or name == RENDEZVOUS:
            return
        node = self.world.nodes[name]
        self.world.kill(name)
        for delay_ms in (10, 500):
            self.world.at(delay_ms, self._put)
        for _ in range(2 * self._active_max + 2):
            self.world.at(2_000, self._newcomer)
        node.contacts, node.remembered = ("new1", "new2"), []
        self._start(name, delay_ms=8_000)

    def _partition(self, *, one_way: bool) -> None:
        names = list(self.world.nodes)
        size = self._random.choice((self._random.randint(1, len(names)), len(names) // 2))
        side = set(self._random.sample(names, size))
        cuts = {(a, b) for a in names for b in names if (a in side) and (b not in side)}
        if not one_way:
            cuts |= {(b, a) for a, b in cuts}
        self._cut(cuts, self._random.choice((1_000, 8_000, 25_000)))

    def _cut(self, cuts: set[tuple[Address, Address]], duration_ms: int) -> None:
        self.world.faults.cuts |= cuts
        self.world.at(duration_ms, lambda: self.world.faults.cuts.difference_update(cuts))

    def _slow(self, name: Address) -> None:
        node = self.world.nodes[name]
        node.sync_ms_max = self._random.choice((300, 3_000))
        self.world.at(10_000, lambda: _hasten(node))

    def _trim(self, name: Address) -> None:
        """Retention: some of what a node has stored is no longer kept there."""
        node = self.world.nodes[name]
        if node.machine is not None:
            had = node.machine.state.had
            for origin in list(had):
                node.disk.trim(origin, self._random.randint(0, had[origin] + 1))

    # --- the end ------------------------------------------------------------------------------------------

    def _heal_and_drain(self) -> int:
        """Everything heals, everybody who can returns; then it must become quiet. The dead who were silent stay silent."""
        world = self.world
        world.faults = Faults(reset=0.0 if "silent_death" in self.classes else 1.0)
        for name, node in world.nodes.items():
            node.sync_ms_max = 5
            if node.machine is None and name not in self._starting:
                self._start(name)
        healed_ms = world.now_ms
        if not world.run(DRAIN_MS_MAX, self._is_quiet):
            world.history.violate("liveness", f"not quiet {DRAIN_MS_MAX // 1000} s after everything healed: {self._why()}")
        drain_ms = world.now_ms - healed_ms
        self._rest()
        return drain_ms

    def _rest(self) -> None:
        """At rest there are heartbeats, shuffles, probes, and the odd search for a place that cannot be filled.

        Before that, new links are handed what is still held for the neighbours they replace, whether they lack it or not.
        """
        world = self.world
        world.run(HOLD_MS)
        before = sum(world.sent.values())
        world.run(REST_MS)
        nodes = len(world.running())
        per_node = self._active_max * REST_MS / 800 + 7 * REST_MS / 4_000 + 2 * REST_MS / 3_200 + 60
        sent = sum(world.sent.values()) - before
        if sent > nodes * per_node:
            world.history.violate("at rest", f"{sent} packets of {nodes} nodes in {REST_MS // 1000} quiet seconds")

    def _is_quiet(self) -> bool:
        return not self._starting and not self._why()

    def _why(self) -> str:
        machines = [node.machine for node in self.world.running() if node.machine is not None]
        if any(machine.life is not Life.MEMBER for machine in machines):
            return "somebody is still joining or leaving"
        waits = len(machines) > 1 and any(machine.early.count for machine in machines)
        if waits or len({machine.state.had.digest for machine in machines}) > 1:
            return "vectors differ"
        views = {machine.membership.me: list(machine.membership.active) for machine in machines}
        if any(a not in views.get(b, ()) for a, view in views.items() for b in view):
            return "a link is one-sided"
        return "" if is_connected(views) else "the overlay is not connected"


def _contacts(random: Random, names: list[Address]) -> tuple[Address, ...]:
    """Whom a node joins through: one who is there for good, and somebody else."""
    return tuple(dict.fromkeys([RENDEZVOUS, random.choice(names)])) if names else ()


def _hasten(node: object) -> None:
    node.sync_ms_max = 5  # type: ignore[attr-defined]


def run_seed(seed: int) -> MeshOutcome:
    """Run one seed; an exception nobody expected is a violation like any other."""
    try:
        return MeshSwarm(seed).run()
    except Exception as problem:
        return MeshOutcome(seed, "", 0, 0, 0, 0, 0, 0, {"crashed": [f"{type(problem).__name__}: {problem}"]})

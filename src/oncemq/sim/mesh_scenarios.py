# SPDX-License-Identifier: Apache-2.0
"""Catastrophes of a mesh, each as one seeded run with figures: a split, a storm of joins, churn, and what anti-entropy costs.

May not: help the nodes: all they get is what a network and a clock would give them.
The idea: every run ends with the judges of sim/mesh_checkers.py; figures are times and counts until everything was well again.
Next: sim/mesh_world.py for the world, sim/mesh_paper.py for the papers' experiments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncemq.mesh.node import Life
from oncemq.mesh.packets import Address, Heartbeat
from oncemq.mesh.settings import MeshSettings
from oncemq.sim.mesh_checkers import is_connected, judge, reached_from
from oncemq.sim.mesh_graph import measure, sizes_by_node
from oncemq.sim.mesh_overlay import Overlay, name_of
from oncemq.sim.mesh_paper import Progress, build, living_links, nobody, tell_of_the_dead
from oncemq.sim.mesh_swarm import block_of
from oncemq.sim.mesh_world import MeshWorld
from oncemq.wire.mesh_codec import encode

TOPIC = "news"
WAIT_MS = 600_000
"""How long anything may take before it counts as never."""


class Village:
    """A mesh of so many nodes, all subscribed to one topic, and ways to look at it."""

    def __init__(self, seed: int, settings: MeshSettings | None = None) -> None:
        self.settings = settings or MeshSettings()
        self.world = MeshWorld(seed, self.settings)
        self.puts = 0

    def found(self, nodes: int, *, spread_ms: int) -> None:
        """Start a founder, and everybody else within `spread_ms`, all through that one contact."""
        world = self.world
        world.add(name_of(0))
        world.start(name_of(0))
        for index in range(1, nodes):
            self.join(name_of(index), delay_ms=world.dice.randint(0, spread_ms))

    def join(self, name: Address, *, delay_ms: int = 0) -> None:
        self.world.add(name, (name_of(0),))
        self.world.at(delay_ms, lambda: self.world.start(name))

    def subscribe_all(self) -> None:
        for node in self.world.running():
            self.world.subscribe(node.address, TOPIC)

    def put(self, name: Address) -> None:
        self.puts += 1
        self.world.put(name, (TOPIC,), block_of(b"%d" % self.puts))

    def views(self) -> dict[Address, list[Address]]:
        return {node.address: list(node.machine.membership.active) for node in self.world.running() if node.machine}

    def mean_degree(self) -> float:
        views = self.views()
        return sum(len(view) for view in views.values()) / max(len(views), 1)

    def is_linked(self) -> bool:
        """Whoever lives: symmetric and connected."""
        views = self.views()
        is_symmetric = all(name in views.get(other, ()) for name, view in views.items() for other in view)
        return is_symmetric and is_connected(views)

    def is_whole(self) -> bool:
        """Symmetric, connected, and nobody joining any more."""
        return all(self._is_member(name) for name in self.world.nodes) and self.is_linked()

    def _is_member(self, name: Address) -> bool:
        machine = self.world.nodes[name].machine
        return self.world.history.book(name).is_gone if machine is None else machine.life is Life.MEMBER

    def is_level(self) -> bool:
        """Everybody has the same messages."""
        machines = [node.machine for node in self.world.running() if node.machine is not None]
        return len({machine.state.had.digest for machine in machines}) == 1 and not any(each.early.count for each in machines)

    def time_until(self, what: Callable[[], bool]) -> float | None:
        """Seconds until something holds; None for never."""
        before_ms = self.world.now_ms
        is_so = self.world.run(WAIT_MS, what)
        return round((self.world.now_ms - before_ms) / 1_000, 1) if is_so else None

    def verdict(self, *, may_lose: bool = False) -> dict[str, Any]:
        violations = judge(self.world, may_lose=may_lose, active_max=self.settings.active)
        history = self.world.history
        return {
            "nodes": len(self.world.running()),
            "messages": len(history.confirmed),
            "handed_over": sum(len(numbers) for book in history.books.values() for numbers in book.handed.values()),
            "given_up": sum(gap.last - gap.first + 1 for book in history.books.values() for gap in book.gaps),
            "violations": violations,
        }


# --- a split ------------------------------------------------------------------------------------------------


def split(nodes: int, seed: int, advance: Progress = nobody) -> dict[str, Any]:
    """Half and half, until each side has forgotten the other in its views; messages on both sides meanwhile; then healed."""
    village = Village(seed)
    world = village.world
    village.found(nodes, spread_ms=50 * nodes)
    village.time_until(village.is_whole)
    world.run(30_000)
    village.subscribe_all()
    names = list(world.nodes)
    side = set(world.dice.sample(names, nodes // 2))
    world.faults.cuts = {(a, b) for a in names for b in names if (a in side) != (b in side)}
    for _ in range(30):
        village.put(world.dice.choice(names))
        world.run(2_000)
    forgotten = _forget(village, side)
    village.put(world.dice.choice(names))
    world.run(5_000)
    islands = len(islands_of(village.views()))
    world.faults.cuts = set()
    advance("split", 1)
    joined_s = village.time_until(village.is_whole)
    level_s = village.time_until(village.is_level)
    row = {
        "islands_before_healing": islands,
        "had_forgotten": forgotten,
        "seconds_to_one_island": joined_s,
        "seconds_to_nothing_missing": None if joined_s is None or level_s is None else round(joined_s + level_s, 1),
        "bridges": sum(node.machine.membership.counters["bridges"] for node in world.running() if node.machine),
    }
    return row | village.verdict()


def islands_of(views: dict[Address, list[Address]]) -> list[set[Address]]:
    """The islands."""
    islands: list[set[Address]] = []
    for name in views:
        if not any(name in island for island in islands):
            islands.append(reached_from(views, name))
    return islands


def _forget(village: Village, side: set[Address]) -> bool:
    """Every far id in a passive view is dialled once, and found dead, until there is none; True if that came to an end."""
    for _ in range(60):
        far_left = False
        for node in village.world.running():
            if node.machine is not None:
                far = [each for each in node.machine.membership.passive.ids if (each in side) != (node.address in side)]
                far_left = far_left or bool(far)
                village.world.tell_lost(node.address, far)
        village.world.run(1_000)
        if not far_left:
            return True
    return False


# --- a storm of joins -----------------------------------------------------------------------------------------


def storm(nodes: int, seed: int, advance: Progress = nobody) -> dict[str, Any]:
    """Everybody joins through one contact at the same moment."""
    village = Village(seed)
    world = village.world
    village.found(nodes, spread_ms=100)
    whole_s = village.time_until(village.is_whole)
    advance("storm", 1)
    full = 4.9 if nodes >= 40 else min(4.0, nodes - 1.1)
    busiest = world.received[name_of(0)]
    full_s = village.time_until(lambda: village.mean_degree() >= full)
    village.subscribe_all()
    world.run(1_000)
    for _ in range(20):
        village.put(world.dice.choice(list(world.nodes)))
    level_s = village.time_until(lambda: village.is_level() and len(world.history.confirmed) == 20)
    row = {
        "seconds_to_one_island": whole_s,
        "seconds_to_full_views": None if whole_s is None or full_s is None else round(whole_s + full_s, 1),
        "seconds_to_deliver": level_s,
        "mean_degree": round(village.mean_degree(), 3),
        "evictions_per_join": round(world.history.downs["evicted"] / 2 / nodes, 2),
        "packets_to_the_contact_per_join": round(busiest / nodes, 1),
    }
    return row | village.verdict()


# --- churn ------------------------------------------------------------------------------------------------------

CHURN = 0.005
CHURN_CYCLES = 40
CHURN_NODES_MAX = 100
"""Of the run with messages; the overlay alone is as large as asked."""


def churn(nodes: int, seed: int, advance: Progress = nobody, cycles: int = CHURN_CYCLES) -> dict[str, Any]:
    """Half a percent of all nodes dies in each cycle, and as many join: an overlay of full size, and a mesh with messages."""
    overlay = build(nodes, seed, cycles=10)
    reach = []
    for cycle in range(cycles):
        _replace(overlay, max(1, round(nodes * CHURN)), cycle)
        reach += _reach_before_anybody_knows(overlay)
        tell_of_the_dead(overlay, list(overlay.nodes))
        overlay.cycle()
        advance("churn", 1)
    figures = {"mean_reach": round(sum(reach) / len(reach), 6), "worst_reach": min(reach)}
    row = {"overlay": measure(overlay.neighbours()) | figures}
    return row | _churn_with_messages(min(nodes, CHURN_NODES_MAX), seed, cycles)


def _replace(overlay: Overlay, count: int, cycle: int) -> None:
    """Some die, unknown to all; as many join through whoever lives."""
    overlay.kill(overlay.dice.sample(list(overlay.nodes), count))
    for index in range(count):
        overlay.add(f"new{cycle}/{index}", (overlay.dice.choice(list(overlay.nodes)),))
        overlay.settle()


def _reach_before_anybody_knows(overlay: Overlay) -> list[float]:
    """What ten messages reach before anybody has noticed the deaths."""
    sizes = sizes_by_node(living_links(overlay))
    return [round(sizes[name] / len(overlay.nodes), 6) for name in overlay.dice.sample(list(overlay.nodes), 10)]


def _churn_with_messages(nodes: int, seed: int, cycles: int) -> dict[str, Any]:
    village = Village(seed)
    world = village.world
    village.found(nodes, spread_ms=50 * nodes)
    village.time_until(village.is_whole)
    village.subscribe_all()
    for cycle in range(cycles):
        victim = world.dice.choice([node.address for node in world.running() if node.address != name_of(0)])
        world.kill(victim, power_cut=True)
        del world.nodes[victim]
        village.join(f"new{cycle}")
        for _ in range(3):
            village.put(world.dice.choice([node.address for node in world.running()]))
        world.run(5_000)
        village.subscribe_all()
    level_s = village.time_until(lambda: village.is_level() and village.is_whole())
    return {"seconds_to_nothing_missing": level_s} | village.verdict(may_lose=True)


# --- the cost of anti-entropy -----------------------------------------------------------------------------------

CACHES = (10, 25, 50, 75)
"""Messages per node, as in the earlier design's experiment."""
MISSED = (1, 10, 100)
ID_BYTES = 16
"""Of one id in a list of ids."""


def entropy(nodes: int, seed: int, advance: Progress = nobody) -> dict[str, Any]:
    """Bytes of an exchange in step, and bytes besides the messages to recover some, beside lists of ids."""
    rows = []
    for per_node in CACHES:
        for missed in MISSED:
            rows.append(_recover(nodes, seed, per_node, missed))
            advance("entropy", 1)
    return {"in_step_bytes": rows[0]["in_step_bytes"], "rows": rows}


def _recover(nodes: int, seed: int, per_node: int, missed: int) -> dict[str, Any]:
    village = Village(seed, MeshSettings(shuffle_ms=0, heal_ms=0))
    world = village.world
    village.found(nodes, spread_ms=2_000)
    village.time_until(village.is_whole)
    for name in list(world.nodes):
        for _ in range(per_node):
            village.put(name)
    village.time_until(lambda: village.is_level() and len(world.history.confirmed) == nodes * per_node)
    away = name_of(nodes - 1)
    world.kill(away)
    for _ in range(missed):
        village.put(name_of(world.dice.randrange(nodes - 1)))
    total = nodes * per_node + missed
    village.time_until(lambda: village.is_level() and len(world.history.confirmed) == total)
    world.run(10_000)
    before = dict(world.sent_bytes)
    world.start(away)
    seconds = village.time_until(lambda: village.is_level() and village.is_whole())
    kinds = ("Vector", "Request", "Denied")
    beat = encode("tcp://192.168.100.100:7000", Heartbeat(2**53 - 1, bytes(8), 2**53 - 1, 10**6))
    return {
        "messages": total,
        "missed": missed,
        "in_step_bytes": len(beat),
        "in_step_bytes_as_ids": ID_BYTES * total,
        "recovery_bytes": sum(world.sent_bytes[kind] - before.get(kind, 0) for kind in kinds),
        "seconds": seconds,
        "violations": village.verdict()["violations"],
    }

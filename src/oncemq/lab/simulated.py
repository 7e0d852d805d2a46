# SPDX-License-Identifier: Apache-2.0
"""The experiments in the simulator: the machines as shipped, on a seeded network and clock.

May not: help the nodes, or leave a bad run out.
The idea: small meshes run whole nodes with messages, disks and latency (sim/mesh_world.py); large ones run the papers' set-up,
membership machines driven by cycles (sim/mesh_paper.py).
Next: real.py for the same experiments with processes, anchors.py for what they are held against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from oncemq.lab.trials import Experiment, Kind, Observation, Trial, seen
from oncemq.mesh.packets import Address, Origin
from oncemq.mesh.records import Taken
from oncemq.sim import mesh_paper
from oncemq.sim.mesh_overlay import name_of
from oncemq.sim.mesh_scenarios import Village
from oncemq.sim.mesh_world import NodeDisk

STEP_MS = 100
"""How often a mesh is looked at."""
WAIT_MS = 300_000
SETTLE_MS = 60_000
PUT_EVERY_MS = 100
"""One message per node and so many milliseconds, at random instants."""
JOIN_EVERY_MS = 200
MEMBERSHIP_MS = 60_000
"""How long packets of membership are counted, from the start of the first node."""
WATCH_MS = 10_000
"""How long the degree is watched after a storm of joins."""
FULL_DEGREE, FULL_DEGREE_OF_FEW, FEW = 4.9, 4.5, 20
"""A full overlay has so many neighbours in the mean; among few nodes, two that lack one may be neighbours already."""
RELIABILITY_PUTS = 20
"""Messages per node, as in the earlier design's experiment."""


def run(trial: Trial) -> Iterator[Observation]:
    """Run one trial; yield what is seen."""
    return _TRIALS[trial.kind](trial)


# --- messages received ------------------------------------------------------------------------------------


def received(trial: Trial) -> Iterator[Observation]:
    """Packets with a message that arrive anywhere, for so many messages put at every node, on an overlay at rest."""
    village = _settled(trial)
    world = village.world
    for per_node in trial.sweep:
        views, before, count = village.views(), world.sent["Spread"] - world.copies, village.puts + per_node * trial.nodes
        span_ms = per_node * PUT_EVERY_MS
        for name in list(world.nodes):
            for _ in range(per_node):
                world.at(world.dice.randint(0, span_ms), lambda name=name: village.put(name))  # type: ignore[misc]
        world.run(span_ms + STEP_MS)
        village.time_until(lambda count=count: village.is_level() and len(world.history.confirmed) == count)  # type: ignore[misc]
        links_twice = sum(map(len, views.values()))
        exact = (links_twice - (trial.nodes - 1)) * per_node * trial.nodes
        yield seen(trial, Experiment.RECEIVED, "receptions", per_node, world.sent["Spread"] - world.copies - before)
        yield seen(trial, Experiment.RECEIVED, "receptions_exact", per_node, exact)
        yield seen(trial, Experiment.RECEIVED, "overlay_changed", per_node, float(village.views() != views))
    yield seen(trial, Experiment.RECEIVED, "violations", 0, len(village.verdict()["violations"]))


def _settled(trial: Trial) -> Village:
    """A mesh that has found its overlay, and subscribes to one topic everywhere."""
    village = Village(trial.seed)
    village.found(trial.nodes, spread_ms=JOIN_EVERY_MS * trial.nodes)
    village.time_until(village.is_whole)
    village.subscribe_all()
    village.world.run(SETTLE_MS)
    return village


# --- convergence ------------------------------------------------------------------------------------------


def convergence(trial: Trial) -> Iterator[Observation]:
    """Seconds from the last join until the overlay is symmetric, connected and full; one by one, and all at once."""
    for way, every_ms in (("one_by_one", JOIN_EVERY_MS), ("at_once", 0)):
        village = Village(trial.seed)
        world = village.world
        world.add(name_of(0))
        world.start(name_of(0))
        for index in range(1, trial.nodes):
            village.join(name_of(index), delay_ms=index * every_ms)
        world.run((trial.nodes - 1) * every_ms)
        yield from _watch(trial, village, way)


def full_degree(nodes: int) -> float:
    return min(FULL_DEGREE if nodes >= FEW else FULL_DEGREE_OF_FEW, nodes - 1)


def _watch(trial: Trial, village: Village, way: str) -> Iterator[Observation]:
    """The mean degree over time, and when there was one island, and when it was full."""
    world, full = village.world, full_degree(trial.nodes)
    began_ms = world.now_ms
    island_s = full_s = None
    while world.now_ms - began_ms < WATCH_MS or (full_s is None and world.now_ms - began_ms < WAIT_MS):
        elapsed_s = (world.now_ms - began_ms) / 1_000
        degree, is_whole = village.mean_degree(), village.is_whole()
        if elapsed_s <= WATCH_MS / 1_000:
            yield seen(trial, Experiment.CONVERGENCE, f"degree_{way}", elapsed_s, degree)
        island_s = elapsed_s if island_s is None and is_whole else island_s
        full_s = elapsed_s if full_s is None and is_whole and degree >= full else full_s
        world.run(STEP_MS)
    yield seen(trial, Experiment.CONVERGENCE, f"seconds_to_one_island_{way}", trial.nodes, island_s)
    yield seen(trial, Experiment.CONVERGENCE, f"seconds_to_full_views_{way}", trial.nodes, full_s)


# --- packets of membership --------------------------------------------------------------------------------

PACKETS = {
    "Join": "join",
    "ForwardJoin": "forward_join",
    "Neighbour": "neighbour",
    "NeighbourReply": "neighbour_reply",
    "Disconnect": "disconnect",
    "Shuffle": "shuffle",
    "ShuffleReply": "shuffle_reply",
    "Probe": "probe",
    "ProbeReply": "probe_reply",
    "Heartbeat": "heartbeat",
}


def membership(trial: Trial) -> Iterator[Observation]:
    """Packets of each kind in the first minute of a mesh whose nodes join one after the other."""
    village = Village(trial.seed)
    world = village.world
    world.add(name_of(0))
    world.start(name_of(0))
    for index in range(1, trial.nodes):
        village.join(name_of(index), delay_ms=index * JOIN_EVERY_MS)
    world.run(MEMBERSHIP_MS)
    for kind, name in PACKETS.items():
        yield seen(trial, Experiment.MEMBERSHIP, f"packets_{name}", trial.nodes, world.sent[kind])


# --- reliability of small meshes --------------------------------------------------------------------------


def kills(trial: Trial) -> Iterator[Observation]:
    """A share of all nodes is killed while messages are put; later it returns."""
    for percent in trial.sweep:
        yield from _killed(trial, percent)


def _killed(trial: Trial, percent: int) -> Iterator[Observation]:
    village = _settled(trial)
    world = village.world
    names = list(world.nodes)
    span_ms = RELIABILITY_PUTS * PUT_EVERY_MS
    for name in names:
        for _ in range(RELIABILITY_PUTS):
            world.at(world.dice.randint(0, span_ms), lambda name=name: _put_if_up(village, name))  # type: ignore[misc]
    world.run(span_ms // 2)
    victims = world.dice.sample(names, round(trial.nodes * percent / 100))
    for name in victims:
        world.kill(name)
    world.run(span_ms // 2 + STEP_MS)
    seconds = _seconds_until(village, lambda: village.is_level() and village.is_linked())
    survivors = [name for name in names if name not in victims]
    yield seen(trial, Experiment.RELIABILITY, "survivors_have", percent, _share(village, survivors, survivors))
    yield seen(trial, Experiment.RELIABILITY, "seconds_to_level", percent, seconds)
    for name in victims:
        world.start(name)
    seconds = _seconds_until(village, lambda: village.is_level() and village.is_whole())
    yield seen(trial, Experiment.RELIABILITY, "all_have", percent, _share(village, names, names))
    yield seen(trial, Experiment.RELIABILITY, "seconds_to_level_again", percent, seconds)
    yield seen(trial, Experiment.RELIABILITY, "violations", percent, len(village.verdict()["violations"]))


def _put_if_up(village: Village, name: Address) -> None:
    if village.world.is_up(name):
        village.put(name)


def _seconds_until(village: Village, what: Callable[[], bool]) -> float | None:
    began_ms = village.world.now_ms
    while not what():
        if village.world.now_ms - began_ms > WAIT_MS:
            return None
        village.world.run(STEP_MS)
    return (village.world.now_ms - began_ms) / 1_000


def _share(village: Village, names: list[Address], holders: list[Address]) -> float:
    """The share of what any of the holders has that each of the nodes has stored for its subscription."""
    taken = {name: _stored(village.world.nodes[name].disk) for name in {*names, *holders}}
    held = set().union(*(taken[name] for name in holders))
    return sum(len(taken[name] & held) for name in names) / max(1, len(held) * len(names))


def _stored(disk: NodeDisk) -> set[tuple[Origin, int]]:
    return {(each.origin, each.number) for each in disk.records if isinstance(each, Taken) and each.wanted}


# --- the papers' set-up -----------------------------------------------------------------------------------

OVERLAY_MEASURES = ("clustering", "mean_path", "max_hops", "mean_degree", "flood_receptions", "flood_expected")
REACH_MEASURES = ("first_without_hold", "first_with_hold", "told_mean", "heartbeat_mean", "heartbeat_once_told", "send_mean")
HEAL_MEASURES = ("told_cycles", "send_cycles")


def papers(trial: Trial) -> Iterator[Observation]:
    """Join one by one, 50 cycles, measure, fail; one run serves three experiments."""
    row = mesh_paper.run(trial.nodes, trial.seed, levels=trial.sweep)
    for measure in OVERLAY_MEASURES:
        yield seen(trial, Experiment.OVERLAY, measure, trial.nodes, row[measure])
    for level in row["failures"]:
        for measure in REACH_MEASURES:
            yield seen(trial, Experiment.RELIABILITY, measure, level["failed"], level[measure])
        for measure in HEAL_MEASURES:
            yield seen(trial, Experiment.HEALING, measure, level["failed"], level[measure])


_TRIALS: dict[Kind, Callable[[Trial], Iterator[Observation]]] = {
    Kind.RECEIVED: received,
    Kind.CONVERGENCE: convergence,
    Kind.MEMBERSHIP: membership,
    Kind.KILLS: kills,
    Kind.PAPERS: papers,
}

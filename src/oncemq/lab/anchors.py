# SPDX-License-Identifier: Apache-2.0
"""What ours is held against: values of the papers and of the earlier design, and closed forms.

May not: hold a value of ours, or one that nobody published.
The idea: one function per kind of anchor, by experiment and measure; None where there is none. The earlier design published no
readable curve values; what it states is 100 % reliability at 20 nodes with 10 to 90 % failing.
Next: statistics.py, which puts them beside ours; docs/experiments/README.md for the sources.
"""

from __future__ import annotations

from oncemq.lab.trials import Experiment
from oncemq.limits import MESH_ACTIVE, MESH_ACTIVE_WALK, MESH_PASSIVE, MESH_SHUFFLE_MS, MESH_SHUFFLE_TTL
from oncemq.sim import mesh_paper
from oncemq.sim.mesh_graph import giant_share, knowledge_share, random_clustering, random_mean_path

PAPER_NODES = 10_000
MEMBERSHIP_S = 60
CONVERGENCE_LIMIT_S = 60.0
"""lashup's test of HyParView: one component within 60 s."""
HOP_S = 0.025
"""Longest hop of the simulated network: 20 ms on the line, 5 ms for the sync before anything is said."""
WALK_S = (1 + (MESH_ACTIVE_WALK + 1) + 2) * HOP_S
"""The longest way to a link: a join, all hops of a walk, an ask and its answer."""
HEAL_CYCLES = {10: 2.0, 25: 2.0, 50: 2.0, 75: 2.0, 90: 4.0}
"""HyParView 5.3: 1 to 2 cycles below 80 %, "as few as 4" at 90 %."""


def paper_value(experiment: str, measure: str, nodes: int, at: float) -> float | None:
    """What a paper, or the earlier design, says at this place."""
    match experiment, measure:
        case Experiment.OVERLAY, "clustering" | "mean_path" | "max_hops" | "mean_degree" if nodes == PAPER_NODES:
            return float(mesh_paper.PAPER[measure])  # type: ignore[arg-type]
        case Experiment.OVERLAY, "flood_receptions" if nodes == PAPER_NODES:
            return float(mesh_paper.PAPER["receptions"])  # type: ignore[arg-type]
        case Experiment.RELIABILITY, "survivors_have":
            return 1.0
        case Experiment.RELIABILITY, "told_mean" | "heartbeat_mean" | "send_mean":
            return mesh_paper.PAPER_MEAN_REACH.get(int(at), 1.0)
        case Experiment.HEALING, _:
            return HEAL_CYCLES.get(int(at))
        case Experiment.CONVERGENCE, _ if measure.startswith("seconds_"):
            return CONVERGENCE_LIMIT_S
        case _:
            return None


def closed_form(experiment: str, measure: str, nodes: int, at: float) -> float | None:
    """What arithmetic says at this place."""
    match experiment, measure:
        case Experiment.OVERLAY, "mean_path":
            return random_mean_path(nodes, MESH_ACTIVE)
        case Experiment.OVERLAY, "clustering":
            return random_clustering(nodes, MESH_ACTIVE)
        case Experiment.OVERLAY, "flood_receptions":
            return flood_receptions(nodes)
        case Experiment.OVERLAY, "mean_degree":
            return float(MESH_ACTIVE)
        case Experiment.CONVERGENCE, _ if measure.startswith("seconds_to_one_island"):
            return WALK_S
        case Experiment.RECEIVED, "receptions":
            return flood_receptions(nodes) * nodes * at
        case Experiment.RELIABILITY, "first_without_hold":
            return giant_share(at / 100, MESH_ACTIVE) ** 2
        case Experiment.RELIABILITY, "told_mean" | "heartbeat_mean" | "send_mean":
            return knowledge_share(at / 100, MESH_ACTIVE + 2 * MESH_PASSIVE) ** 2
        case Experiment.MEMBERSHIP, _:
            return membership_packets(measure.removeprefix("packets_"), nodes)
        case _:
            return None


def flood_receptions(nodes: int) -> float:
    """2 x links - (nodes - 1), if everybody has five neighbours."""
    return float(MESH_ACTIVE * nodes - (nodes - 1))


def membership_packets(kind: str, nodes: int) -> float | None:
    """What HyParView as published sends at most in the first minute: four walks per join, a shuffle per node and period."""
    shuffles = nodes * MEMBERSHIP_S * 1_000 / MESH_SHUFFLE_MS
    budget = {
        "join": nodes - 1,
        "neighbour": (nodes - 1) * (MESH_ACTIVE - 1),
        "neighbour_reply": (nodes - 1) * (MESH_ACTIVE - 1),
        "disconnect": (nodes - 1) * MESH_ACTIVE,
        "forward_join": (nodes - 1) * (MESH_ACTIVE - 1) * (MESH_ACTIVE_WALK + 1),
        "shuffle": shuffles * MESH_SHUFFLE_TTL,
        "shuffle_reply": shuffles,
    }
    return float(budget[kind]) if kind in budget else None

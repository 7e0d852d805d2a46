# SPDX-License-Identifier: Apache-2.0
"""Which trials an experiment consists of: the settings of the earlier design and of the papers, in full and in short.

May not: run them.
The idea: sizes and settings are those of the designs we are held against; seeds are ours. One run as the papers ran theirs serves
three experiments, so trials that differ only in what is swept are run once, with all of it.
Next: running.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from oncemq.lab.trials import REAL, SIMULATED, Experiment, Kind, Trial
from oncemq.sim.mesh_paper import FAILED_PERCENT

PER_NODE = (10, 25, 50, 75)
KILLED_PERCENT = (10, 25, 50, 75, 90)
KILLS_NODES_MAX = 100
"""Larger meshes run as the papers ran theirs."""
_COST = {Kind.RECEIVED: 100.0, Kind.CONVERGENCE: 10.0, Kind.MEMBERSHIP: 5.0, Kind.KILLS: 60.0, Kind.PAPERS: 1.0}
"""Of one node, roughly, beside other kinds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a kind of trial is swept: seeds for each size of the mesh, and settings within a trial."""

    kind: Kind
    sizes: Mapping[int, int]
    """Nodes: seeds."""
    sweep: tuple[int, ...] = ()


Plans = Mapping[Experiment, tuple[Plan, ...]]
FULL: Plans = {
    Experiment.RECEIVED: (Plan(Kind.RECEIVED, {20: 5}, PER_NODE),),
    Experiment.CONVERGENCE: (Plan(Kind.CONVERGENCE, {10: 20, 20: 20, 30: 20, 100: 5}),),
    Experiment.MEMBERSHIP: (Plan(Kind.MEMBERSHIP, {10: 20, 20: 20, 30: 20}),),
    Experiment.RELIABILITY: (
        Plan(Kind.KILLS, {20: 20}, KILLED_PERCENT),
        Plan(Kind.PAPERS, {1_000: 10, 10_000: 1}, FAILED_PERCENT),
    ),
    Experiment.OVERLAY: (Plan(Kind.PAPERS, {100: 10, 316: 10, 1_000: 10, 3_162: 2, 10_000: 1}),),
    Experiment.HEALING: (Plan(Kind.PAPERS, {1_000: 10, 10_000: 1}, FAILED_PERCENT),),
}
QUICK: Plans = {
    Experiment.RECEIVED: (Plan(Kind.RECEIVED, {20: 2}, PER_NODE[:2]),),
    Experiment.CONVERGENCE: (Plan(Kind.CONVERGENCE, {10: 3, 20: 3, 30: 3}),),
    Experiment.MEMBERSHIP: (Plan(Kind.MEMBERSHIP, {10: 3, 20: 3, 30: 3}),),
    Experiment.RELIABILITY: (Plan(Kind.KILLS, {20: 2}, KILLED_PERCENT), Plan(Kind.PAPERS, {1_000: 2}, FAILED_PERCENT)),
    Experiment.OVERLAY: (Plan(Kind.PAPERS, {100: 2, 316: 2, 1_000: 2}),),
    Experiment.HEALING: (Plan(Kind.PAPERS, {1_000: 2}, FAILED_PERCENT),),
}
WITH_PROCESSES: Plans = {
    Experiment.RECEIVED: (Plan(Kind.RECEIVED, {20: 1}, PER_NODE),),
    Experiment.CONVERGENCE: (Plan(Kind.CONVERGENCE, {10: 1, 20: 1, 30: 1}),),
    Experiment.MEMBERSHIP: (Plan(Kind.MEMBERSHIP, {10: 1, 20: 1, 30: 1}),),
    Experiment.RELIABILITY: (Plan(Kind.KILLS, {20: 1}, KILLED_PERCENT),),
}
"""The papers' experiments need thousands of nodes: those are only simulated."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asks for."""

    experiments: tuple[Experiment, ...]
    is_quick: bool = False
    is_real: bool = False
    nodes: int | None = None
    largest: int | None = None
    seeds: int | None = None
    first: int = 0


def trials_of(wish: Wish) -> list[Trial]:
    """All trials that a wish takes, each once, the longest first."""
    merged: dict[tuple[Kind, int, int], Trial] = {}
    for trial in _wished(wish):
        key = (trial.kind, trial.nodes, trial.seed)
        earlier = merged.get(key, trial)
        merged[key] = replace(trial, sweep=tuple(sorted({*earlier.sweep, *trial.sweep})))
    return sorted(merged.values(), key=_cost, reverse=True)


def _wished(wish: Wish) -> Iterator[Trial]:
    plans = WITH_PROCESSES if wish.is_real else QUICK if wish.is_quick else FULL
    for experiment in wish.experiments:
        for plan in _sized(plans.get(experiment, ()), wish.nodes):
            for nodes, seeds in plan.sizes.items():
                if wish.largest is not None and nodes > wish.largest:
                    continue
                for seed in range(wish.first, wish.first + (wish.seeds or seeds)):
                    yield Trial(plan.kind, nodes, seed, plan.sweep, REAL if wish.is_real else SIMULATED)


def _sized(plans: Iterable[Plan], nodes: int | None) -> Iterator[Plan]:
    """The plans as they are, or for one size of the mesh."""
    for plan in plans:
        if nodes is None:
            yield plan
        elif plan.kind is not Kind.KILLS or nodes <= KILLS_NODES_MAX:
            yield replace(plan, sizes={nodes: max(plan.sizes.values())})


def _cost(trial: Trial) -> float:
    settings = sum(trial.sweep) / 100 if trial.kind is Kind.RECEIVED else len(trial.sweep) + 1
    return _COST[trial.kind] * trial.nodes * settings

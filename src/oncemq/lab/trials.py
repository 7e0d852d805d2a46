# SPDX-License-Identifier: Apache-2.0
"""What is asked, what is run, and what is seen: the nouns of the laboratory.

May not: run anything.
The idea: an observation is one number with everything needed to know what it is a number of. A trial is small, and can be sent to
any Spark worker; one kind of trial may serve several experiments.
Next: plans.py for the trials of each experiment, running.py for who runs them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple


class Experiment(enum.StrEnum):
    """What is measured."""

    RECEIVED = "received"
    CONVERGENCE = "convergence"
    MEMBERSHIP = "membership"
    RELIABILITY = "reliability"
    OVERLAY = "overlay"
    HEALING = "healing"


class Kind(enum.StrEnum):
    """What is run."""

    RECEIVED = "received"
    CONVERGENCE = "convergence"
    MEMBERSHIP = "membership"
    KILLS = "kills"
    """Nodes with messages and disks; some are killed, and return."""
    PAPERS = "papers"
    """Thousands of membership machines, as the papers ran theirs: overlay, reliability and healing in one."""


SIMULATED, REAL = "simulated", "real"


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: how many nodes, a seed, and the settings that are swept within it."""

    kind: Kind
    nodes: int
    seed: int
    sweep: tuple[int, ...] = ()
    mode: str = SIMULATED


class Observation(NamedTuple):
    """One number of a trace."""

    experiment: str
    mode: str
    nodes: int
    seed: int
    measure: str
    at: float
    """Where on the axis of the experiment: messages per node, seconds, nodes, percent failed."""
    value: float | None
    """None for never."""


def seen(trial: Trial, experiment: Experiment, measure: str, at: float, value: float | None) -> Observation:
    """An observation of a trial."""
    return Observation(experiment, trial.mode, trial.nodes, trial.seed, measure, at, value)

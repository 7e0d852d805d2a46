# SPDX-License-Identifier: Apache-2.0
"""Runs seeds against every seeded bug until the judges see it.

May not: count an exception of the harness as a catch unless the product raised it in a world that was sound without the bug.
Next: sim/bugs.py for the bugs, docs/testing.md for what was caught when.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from oncemq.sim.bugs import planted
from oncemq.sim.worker import outcome_of

SECONDS_MAX = 60.0
"""How long a bug may hide: seconds of one core, whatever else the machine does."""


@dataclass(frozen=True, slots=True)
class Find:
    """What became of one bug: the seed and the law that caught it, or none."""

    name: str
    seconds: float
    seed: int
    law: str

    @property
    def is_caught(self) -> bool:
        return bool(self.law)


def hunt(name: str, seconds_max: float = SECONDS_MAX) -> Find:
    """Run seeds with one bug planted until one is judged guilty, or the time is over."""
    started = time.process_time()
    seed = 0
    while time.process_time() - started < seconds_max:
        with planted(name):
            violations = outcome_of(seed).violations
        if violations:
            return Find(name, round(time.process_time() - started, 2), seed, ", ".join(violations))
        seed += 1
    return Find(name, round(time.process_time() - started, 2), seed, "")

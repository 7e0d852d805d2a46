# SPDX-License-Identifier: Apache-2.0
"""Runs seeds against every seeded bug until the judges see it.

May not: count an exception of the harness as a catch unless the product raised it in a world that was sound without the bug.
Next: sim/bugs.py for the bugs, docs/testing.md for what was caught when.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

from oncemq.sim.bugs import all_bugs, planted
from oncemq.sim.worker import outcome_of

SECONDS_MAX = 60.0
"""How long a bug may hide."""


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


def hunt_all(seconds_max: float = SECONDS_MAX) -> Iterator[Find]:
    """Hunt each bug in turn."""
    logging.disable(logging.CRITICAL)
    try:
        for name in all_bugs():
            yield hunt(name, seconds_max)
    finally:
        logging.disable(logging.NOTSET)


def hunt(name: str, seconds_max: float = SECONDS_MAX) -> Find:
    """Run seeds with one bug planted until one is judged guilty, or the time is over."""
    started = time.monotonic()
    seed = 0
    while time.monotonic() - started < seconds_max:
        with planted(name):
            violations = outcome_of(seed).violations
        if violations:
            return Find(name, round(time.monotonic() - started, 2), seed, ", ".join(violations))
        seed += 1
    return Find(name, round(time.monotonic() - started, 2), seed, "")

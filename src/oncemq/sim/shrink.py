# SPDX-License-Identifier: Apache-2.0
"""Shrinks a world that broke a promise: the fewest faults, people and messages with which the same law is still broken.

May not: call a world guilty of another law the same finding.
The idea: delta debugging (Zeller 2002) over what the seed has drawn. Faults are left out in halves, then quarters, then one by
one; then the line is mended, and numbers are lowered; and again, until nothing can be taken away any more.
Next: sim/cuts.py for what can be left out; `oncemq sim --seed N --cut CUT` replays the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from oncemq.sim.cuts import LOWEST, Cut
from oncemq.sim.history import Event
from oncemq.sim.plan import LINE_CLASSES, Plan
from oncemq.sim.swarm import Swarm

RUNS_MAX = 300
"""Worlds tried for one seed: enough for a dozen faults and eight numbers, and some seconds."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest world found, what it broke, and what struck there."""

    seed: int
    cut: Cut
    law: str
    witness: str
    world: str
    runs: int

    @property
    def replay(self) -> str:
        return f"oncemq sim --seed {self.seed}" + (f" --cut {self.cut}" if str(self.cut) else "")


def shrink(seed: int, *, runs_max: int = RUNS_MAX) -> Shrunk | None:
    """Find the smallest world of a seed that breaks the law which the whole world breaks first; None if it breaks none."""
    shrinker = _Shrinker(seed, runs_max)
    return shrinker.shrunk() if shrinker.find_law() else None


class _Shrinker:
    def __init__(self, seed: int, runs_max: int) -> None:
        self._seed = seed
        self._runs_max = runs_max
        self._law = ""
        self._known: dict[Cut, bool] = {}
        self._best, self._swarm = Cut(), Swarm(seed)
        self._violations: dict[str, list[str]] = {}

    def find_law(self) -> str:
        self._violations = violations_of(self._swarm)
        self._law = next(iter(self._violations), "")
        return self._law

    def shrunk(self) -> Shrunk:
        before = None
        while before != self._best:
            before = self._best
            for name, lowest in LOWEST.items():
                self._lower(name, lowest)
            self._leave_out_strikes()
            for name in LINE_CLASSES:
                if name in self._swarm.plan.classes and name not in self._best.off:
                    self._try(replace(self._best, off=(*self._best.off, name)))
        return Shrunk(
            self._seed, self._best, self._law, self._violations[self._law][0], _describe(self._swarm), len(self._known) + 1
        )

    def _lower(self, name: str, lowest: int) -> None:
        """To the lowest if that will do, else as far as halving leads."""
        guilty = _number_of(self._swarm.plan, name)
        innocent = lowest - 1
        goal = lowest
        while goal < guilty:
            if self._try(self._best.with_number(name, goal)):
                guilty = goal
            else:
                innocent = goal
            goal = (innocent + guilty + 1) // 2 if guilty - innocent > 1 else guilty

    def _leave_out_strikes(self) -> None:
        kept = list(range(self._swarm.strikes)) if self._best.strikes is None else list(self._best.strikes)
        size = len(kept)
        while size:
            at = 0
            while at < len(kept):
                fewer = kept[:at] + kept[at + size :]
                if self._try(replace(self._best, strikes=tuple(fewer))):
                    kept = fewer
                else:
                    at += size
            size //= 2

    def _try(self, cut: Cut) -> bool:
        """Run a smaller world; if it is guilty of the same, it is the best so far."""
        if cut in self._known or len(self._known) >= self._runs_max:
            return False
        swarm = Swarm(self._seed, cut)
        violations = violations_of(swarm)
        self._known[cut] = self._law in violations
        if self._known[cut]:
            self._best, self._swarm, self._violations = cut, swarm, violations
        return self._known[cut]


def violations_of(swarm: Swarm) -> dict[str, list[str]]:
    """Run a world; an exception nobody expected is a violation like any other."""
    try:
        return swarm.run().violations
    except Exception as problem:
        return {f"crashed by {type(problem).__name__}": [str(problem)]}


def _number_of(plan: Plan, name: str) -> int:
    return len(plan.topics) if name == "topics" else int(getattr(plan, name))


def _describe(swarm: Swarm) -> str:
    """Who lives there, and what happened to them."""
    plan = swarm.plan
    numbers = {name: _number_of(plan, name) for name in LOWEST if name not in {"batch_max", "sync_us_max"}}
    people = ", ".join(f"{name} {number}" for name, number in numbers.items() if number)
    line = [name for name in LINE_CLASSES if name in plan.classes and plan.rates[name]]
    struck = [_fault(event) for event in swarm.history.events if event["op"] in {"fault", "crash"}]
    return "; ".join([people, *(["the line: " + ", ".join(line)] if line else []), *struck])


def _fault(event: Event) -> str:
    place = f" of {event['name']} at {event['point']}" if event["op"] == "crash" else f" {event['name']}"
    return f"{int(event['t'] or 0) / 1e6:.3f} s {event['op']}{place}"

# SPDX-License-Identifier: Apache-2.0
"""Every crash point, each of its first hits, then every ordered pair of points: one small world per death, judged as any other.

May not: draw anything. The world is always the same; only who dies where differs.
The idea: everybody there is lives in one world whose segments are so small that it rolls, snapshots and trims. A first run
without a death counts how often each point is reached; then each of these instants is somebody's last, by kill -9 and with the
power. In a pair the second death is the first hit of its point after the first death.
Next: sim/swarm.py, which this world is one of; crashpoints.py for the points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from oncemq.crashpoints import POINTS
from oncemq.journal.journal import JournalSettings
from oncemq.sim.history import History
from oncemq.sim.network import Transit, Verdict
from oncemq.sim.plan import Plan
from oncemq.sim.swarm import Outcome, Swarm
from oncemq.sim.world import World

HITS = 50
_SLOW = Verdict(delay_us=40_000)
_SEED = 7
_PLAN = Plan(
    publishers=2,
    subscribers=1,
    topics=("orders", "payments"),
    messages=20,
    classes=(),
    faults=0,
    span_ms=2_500,
    retain="",
    limit="",
    batch_max=4,
    wanderers=1,
    sync_us_max=300,
    downtime_us_max=100_000,
    sleepers=1,
    listeners=1,
    relays=1,
    ledgers=1,
    receivers=1,
    backlog_max=3,
)


@dataclass(frozen=True, slots=True)
class Death:
    """Whoever reaches `point` for the `hit`-th time (counted from the death before) ends there."""

    point: str
    hit: int
    power_cut: bool

    def __str__(self) -> str:
        return f"{self.point}:{self.hit}:{'power' if self.power_cut else 'kill'}"


Case = tuple[Death, ...]
"""Deaths in their order."""


def text_of(case: Case) -> str:
    """A case as people type it."""
    return ",".join(map(str, case))


def read_case(text: str) -> Case:
    """Read `point:hit:kill` or `point:hit:power`, several of them with commas; ValueError if it is something else."""
    deaths = []
    for piece in text.split(","):
        point, hit, how = piece.split(":")
        if point not in POINTS or how not in {"kill", "power"}:
            raise ValueError(piece)
        deaths.append(Death(point, int(hit), how == "power"))
    return tuple(deaths)


class PointSwarm(Swarm):
    """The small world, with deaths at named places instead of drawn ones."""

    def __init__(self, case: Case = ()) -> None:
        super().__init__(_SEED)
        settings = JournalSettings(segment_bytes=16 * 1024, reserve_bytes=24 * 1024, segment_records_max=3, clean_slack_bytes=0)
        self.world = World(_SEED, settings=settings)
        self.scheduler = self.world.scheduler
        self.history = History()
        self.plan = _PLAN
        self.hits: Counter[str] = Counter()
        """How often each point was reached since the last death."""
        self.left = list(case)
        self._is_set_up = False

    def _set_up(self) -> None:
        super()._set_up()
        self._is_set_up = True

    def _rule(self, _: Transit) -> Verdict:
        """A slow line, so that puts and gets are still under way when the broker trims for the first time."""
        return _SLOW

    def _at_crash_point(self, name: str) -> None:
        process = self.scheduler.running
        if not self._is_set_up or process is None or process.name == "script":
            return
        self.hits[name] += 1
        if self.left and self.left[0].point == name and self.left[0].hit == self.hits[name]:
            death = self.left.pop(0)
            self.hits.clear()
            self._end(process, name, power_cut=death.power_cut)


def count_hits() -> dict[str, int]:
    """How often each point is reached when nobody dies."""
    swarm = PointSwarm()
    outcome = swarm.run()
    return {point: swarm.hits[point] for point in POINTS} if not outcome.violations else {}


def single_cases(hits: dict[str, int], hits_max: int = HITS) -> Iterator[Case]:
    """Each point, each of its first hits, by kill -9 and with the power."""
    for point in POINTS:
        for hit, power_cut in product(range(1, min(hits[point], hits_max) + 1), (False, True)):
            yield (Death(point, hit, power_cut),)


def pair_cases(hits: dict[str, int]) -> Iterator[Case]:
    """Every ordered pair of points: twice kill -9, twice the power, and the power after kill -9, when nothing of the first
    life need be on the disk. Early enough in the run that the second point is still to come."""
    for one, other, (first, second) in product(POINTS, POINTS, ((False, False), (True, True), (False, True))):
        yield Death(one, 1 + hits[one] // 4, first), Death(other, 1, second)


def run_case(case: Case) -> tuple[Case, int, Outcome]:
    """Run one case; also return how many of its deaths did not come about."""
    swarm = PointSwarm(case)
    try:
        outcome = swarm.run()
    except Exception as problem:  # An exception nobody expected is a violation like any other.
        outcome = Outcome(_SEED, "", 0, 0, 0, 0, 0, {"crashed": [f"{type(problem).__name__}: {problem}"]})
    return case, len(swarm.left), outcome

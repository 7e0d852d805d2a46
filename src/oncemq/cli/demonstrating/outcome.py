# SPDX-License-Identifier: Apache-2.0
"""What came of a demo: a row per reader with put, got, lost and twice, and how many laws were broken.

May not: count what it did not read from histories, from the ledger's database, or from what Spark found in them.
Next: demo.py, which tells it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oncemq.cli.demonstrating.director import booked
from oncemq.cli.demonstrating.lake import Findings
from oncemq.cli.demonstrating.mesh import Mesh
from oncemq.cli.torturing.recorder import events_of, history_of, merged
from oncemq.cli.torturing.verdict import deliveries_of
from oncemq.sim.checkers import check

Figures = dict[str, int]


@dataclass(frozen=True)
class Row:
    """One reader."""

    subscriber: str
    put: int
    got: int
    lost: int
    twice: int
    in_doubt: int = 0
    effects: int | None = None

    @property
    def is_exact(self) -> bool:
        return self.lost == self.twice == 0


@dataclass(frozen=True)
class Outcome:
    """All of them."""

    rows: list[Row]
    violations: int

    @property
    def lost(self) -> int:
        return sum(row.lost for row in self.rows)

    @property
    def twice(self) -> int:
        return sum(row.twice for row in self.rows)

    @property
    def is_right(self) -> bool:
        return not self.violations and all(row.is_exact for row in self.rows)

    @property
    def has_exact_effects(self) -> bool:
        return all(row.is_exact for row in self.rows if row.effects is not None)


def stored_in(directory: Path) -> int:
    """How many messages the topic has, as they were read from it one by one at the end."""
    return sum(event["op"] == "log" for event in events_of(history_of(directory, "harness")))


def outcome_of(directory: Path, mesh: Mesh, findings: Findings | None) -> Outcome:
    """Put it together; without Spark the judges of the simulator look at the histories, in memory."""
    stored = stored_in(directory)
    events = merged(directory / "histories") if findings is None else []
    figures: dict[str, Figures] = deliveries_of(events) if findings is None else findings.subscriptions
    rows = [Row(name, stored, **figures[name]) for name in ("plain", "live")]
    effects, different = booked(directory)
    rows.append(Row("ledger", stored, different, stored - different, effects - different, effects=effects))
    if findings is not None:
        rows.append(Row("lake", stored, findings.rows, stored - findings.rows, 0))
        violations = findings.violations
    else:
        violations = sum(len(witnesses) for witnesses in check(events).values())
    rows += [Row(name, mesh.put, **found) for name, found in mesh.got.items()]
    return Outcome(rows, violations + sum(len(witnesses) for witnesses in mesh.violations.values()))

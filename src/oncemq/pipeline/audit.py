# SPDX-License-Identifier: Apache-2.0
"""The audit: histories of any size in, a verdict per law and subscription out, with the figures people ask for.

May not: look at anything but the histories (and an archive, if one is named); collect events.
The idea: every law yields judged rows, their counts are one union, and only sums and a few witnesses leave Spark. The laws are
those of sim/checkers.py, which judges small histories in memory; tests hold the two against each other.
Next: audit_laws.py and audit_deliveries.py for the laws, report.py for the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from oncemq.errors import UsageError
from oncemq.pipeline import audit_archive, audit_deliveries, audit_laws, audit_passed
from oncemq.pipeline.audit_events import audit_session, is_ok, read_histories
from oncemq.pipeline.audit_figures import Flow, Latency, Totals, flow, latencies, totals
from oncemq.pipeline.audit_laws import SEEN, Charge, Judged

STEPS = ("reading histories", "judging", "measuring")
LAWS: dict[Callable[[DataFrame], Judged], tuple[str, ...]] = {
    audit_laws.messages: ("kept", *SEEN),
    audit_laws.kept: ("kept",),
    audit_laws.copies: ("log", "put"),
    audit_laws.places: ("put", *SEEN),
    audit_laws.holes: ("end",),
    audit_laws.kept_for_ever: ("end",),
    audit_laws.numbers: ("log",),
    audit_laws.streams: ("log",),
    audit_laws.puts: ("put",),
    audit_laws.told_for_nothing: ("told", "damaged"),
    audit_laws.told_too_early: ("recovered",),
    audit_deliveries.deliveries: audit_deliveries.STEPS,
    audit_deliveries.told: ("gap", "in_doubt"),
    audit_passed.skipped_unput: ("gap", "skip"),
}
"""Every law, with the operations without which there is nothing to judge: a question that is not asked costs nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One law, one way to break it, one subscription ("" where the law is not about one)."""

    law: str
    verdict: str
    subscription: str
    checked: int
    violations: int
    witness: str = ""

    @property
    def is_guilty(self) -> bool:
        return self.violations > 0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.law, self.verdict, self.subscription


@dataclass(frozen=True, slots=True)
class Audit:
    """What came of it."""

    runs: int
    set_back: int
    """Runs that were not judged, because a directory was set back to an older copy in the middle of them."""
    totals: Totals
    verdicts: list[Verdict]
    in_doubt: dict[str, int]
    latencies: list[Latency]
    flow: Flow

    @property
    def violations(self) -> int:
        return sum(verdict.violations for verdict in self.verdicts)


def audit(
    spark: SparkSession, paths: Sequence[str], tell: Callable[[str], None] = lambda _: None, *, archive: Path | None = None
) -> Audit:
    """Judge histories, and an archive of the same topics if there is one; `tell` hears of each step before it begins."""
    tell(STEPS[0])
    spark = audit_session(spark, paths)
    histories = read_histories(spark, paths)
    if archive is not None and len(histories.runs) > 1:
        count = len(histories.runs)
        raise UsageError(f"--archive belongs to one run, and these histories are of {count}: name one directory")
    events = histories.events
    try:
        counted = totals(events)
        tell(STEPS[1])
        happened = operations(events)
        apart = set_back_runs(events) if "set_back" in happened else []
        events = events.where(~F.col("run").isin(apart)) if apart else events
        verdicts = judge(events, histories.runs, happened)
        verdicts += judge_archive(spark, events, archive, histories.runs) if archive is not None else []
        tell(STEPS[2])
        doubts = {row["subscription"]: row["in_doubt"] for row in audit_deliveries.in_doubt(events).collect()}
        times, rates = latencies(events), flow(events, counted.span_us)
        return Audit(len(histories.runs), len(apart), counted, verdicts, doubts, times, rates)
    finally:
        histories.close()


def operations(events: DataFrame) -> set[str]:
    """What happened at all."""
    return {row["op"] for row in events.select("op").distinct().collect()}


def set_back_runs(events: DataFrame) -> list[int]:
    """Runs in which a directory was set back: what may be gone then depends on who was told when, which sim/checkers.py knows."""
    return [row["run"] for row in events.where(is_ok("set_back")).select("run").distinct().collect()]


def judge(events: DataFrame, runs: Mapping[int, str], happened: set[str]) -> list[Verdict]:
    """The verdicts of all laws over all runs, the guilty first."""
    verdicts = _verdicts([law(events) for law, needed in LAWS.items() if happened.intersection(needed)], runs)
    if any(verdict.is_guilty and verdict.law == audit_laws.ONE_PLACE for verdict in verdicts):
        exact = _verdicts([audit_laws.places_exactly(events)], runs)
        verdicts = [verdict for verdict in verdicts if verdict.key not in {one.key for one in exact}] + exact
    if any(verdict.is_guilty and _is_unordered(verdict) for verdict in verdicts):
        verdicts = _told_apart(verdicts, _verdicts([audit_deliveries.told_apart(events)], runs))
    return sorted(verdicts, key=lambda verdict: (not verdict.is_guilty, verdict.verdict, verdict.law, verdict.subscription))


def judge_archive(spark: SparkSession, events: DataFrame, place: Path, runs: Mapping[int, str]) -> list[Verdict]:
    """Whether the table is the topic: in itself, and against the log of the histories, which must be of one run."""
    rows = audit_archive.read_archive(spark, place)
    return _verdicts([audit_archive.dense(rows), audit_archive.agrees(events, rows)], runs)


# --- counting -----------------------------------------------------------------------------------------


def counted(judged: Judged) -> DataFrame:
    """(run, law, verdict, subscription, checked, violations) of every charge: numbers only, so that Spark can hash."""
    whose = F.col("subscription") if judged.has_subscription else F.lit("")
    sums = [F.sum(_number(charge.checked)).alias(f"checked{place}") for place, charge in enumerate(judged.charges)]
    sums += [F.sum(_number(charge.amount)).alias(f"violations{place}") for place, charge in enumerate(judged.charges)]
    rows = judged.rows.groupBy("run", whose.alias("subscription")).agg(*sums)
    findings = [
        F.struct(
            F.lit(charge.law).alias("law"),
            F.lit(charge.verdict).alias("verdict"),
            F.col(f"checked{place}").alias("checked"),
            F.col(f"violations{place}").alias("violations"),
        )
        for place, charge in enumerate(judged.charges)
    ]
    return rows.select("run", "subscription", F.inline(F.array(*findings)))


def _number(column: Column) -> Column:
    return F.coalesce(column.cast("long"), F.lit(0))


def _verdicts(laws: Sequence[Judged], runs: Mapping[int, str]) -> list[Verdict]:
    """Count all laws in one job; look for a witness only where a law was broken."""
    if not laws:
        return []
    findings = reduce(DataFrame.unionByName, map(counted, laws))
    sums = findings.groupBy("law", "verdict", "subscription").agg(
        F.sum("checked").alias("checked"), F.sum("violations").alias("violations")
    )
    verdicts = [Verdict(**row.asDict()) for row in sums.collect()]
    broken = {(verdict.law, verdict.verdict) for verdict in verdicts if verdict.is_guilty}
    witnesses: dict[tuple[str, str, str], str] = {}
    for law in laws:
        for charge in law.charges:
            if (charge.law, charge.verdict) in broken:
                witnesses |= _witnesses(law, charge, runs)
    return [replace(verdict, witness=witnesses.get(verdict.key, "")) for verdict in verdicts]


def _witnesses(law: Judged, charge: Charge, runs: Mapping[int, str]) -> dict[tuple[str, str, str], str]:
    """A witness for each subscription. It names its run where there are several."""
    whose = F.col("subscription") if law.has_subscription else F.lit("")
    guilty = law.rows.where(_number(charge.amount) > 0).groupBy(whose.alias("subscription"))
    found = guilty.agg(F.min(F.struct("run", charge.witness.alias("witness"))).alias("first")).select("subscription", "first.*")
    words = {row["subscription"]: (row["witness"], runs[row["run"]]) for row in found.collect()}
    return {
        (charge.law, charge.verdict, subscription): f"{witness} ({run})" if len(runs) > 1 else witness
        for subscription, (witness, run) in words.items()
    }


# --- deliveries out of order --------------------------------------------------------------------------


def _is_unordered(verdict: Verdict) -> bool:
    unordered = (audit_deliveries.DUPLICATED, audit_deliveries.REORDERED)
    return verdict.law == audit_deliveries.LAW and verdict.verdict in unordered


def _told_apart(verdicts: list[Verdict], apart: list[Verdict]) -> list[Verdict]:
    """Put the exact names of deliveries out of order in the place of the first guess, keeping what was checked."""
    exact = {found.key: found for found in apart}
    merged = []
    for found in verdicts:
        kept = replace(found, violations=0, witness="") if _is_unordered(found) else found
        more = exact.get(found.key)
        if more is not None and more.is_guilty:
            kept = replace(kept, violations=kept.violations + more.violations, witness=kept.witness or more.witness)
        merged.append(kept)
    return merged

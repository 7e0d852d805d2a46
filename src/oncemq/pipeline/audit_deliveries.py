# SPDX-License-Identifier: Apache-2.0
"""What each subscription was handed: every message from its start on, in order, once; and what it was told instead.

May not: bring events to the driver, run Python per row, or excuse anything sim/checkers.py would not.
The idea: along a subscription's events the next offset due is known from what came before: behind a delivery it is the next one,
after a repeat its first, after a gap or skip its end. `turn` counts deliveries and repeats, so that one running maximum of
(turn, offset) is that memory.
Next: audit_laws.py for the other laws.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from oncemq.pipeline.audit_events import SEAT, is_ok, seat
from oncemq.pipeline.audit_laws import Charge, Judged, text

LAW = "deliveries"
DUPLICATED, REORDERED, LOST, INVENTED = "duplicated", "reordered", "lost", "invented"
STEPS = ("subscribe", "deliver", "gap", "skip", "repeat", "drained")
_LANE = ("subscription", "topic_id", "run")


def walk(events: DataFrame) -> DataFrame:
    """Every step of every subscription, with the offset that was due then (null: it was not subscribed)."""
    steps = Window.partitionBy(*_LANE).orderBy(*SEAT)
    so_far = steps.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    moves = events.where(is_ok(*STEPS)).withColumns(
        {
            "turn": F.count_if(F.col("op").isin("deliver", "repeat")).over(so_far),
            "began": F.first(F.when(F.col("op") == "subscribe", F.coalesce("cursor", "start")), ignorenulls=True).over(so_far),
        }
    )
    due = _due_after()
    memory = F.max(F.when(due.isNotNull(), F.struct("turn", due.alias("due"))))
    gap = F.last(F.when(F.col("op") == "gap", F.struct("first", "end", "life")), ignorenulls=True)
    before = steps.rowsBetween(Window.unboundedPreceding, -1)
    return moves.withColumns({"expected": memory.over(before)["due"], "last_gap": gap.over(before)})


def _due_after() -> Column:
    return (
        F.when(F.col("op") == "deliver", F.col("offset") + 1)
        .when(F.col("op") == "repeat", F.col("first"))
        .when(F.col("op").isin("gap", "skip"), F.col("end"))
        .when((F.col("op") == "subscribe") & (F.col("turn") == 0), F.col("began"))
    )


def _is_again() -> Column:
    return (F.col("op") == "deliver") & (F.col("offset") < F.col("expected"))


def _is_told_again() -> Column:
    """Whoever dies before the next call is told the gap again from its beginning: nobody knows whether it was heard."""
    last = F.col("last_gap")
    is_same = (last["first"] == F.col("first")) & (last["end"] == F.col("expected")) & (last["life"] < F.col("life"))
    return F.coalesce(is_same, F.lit(False))


def _is_ahead() -> Column:
    return (F.col("op") == "deliver") & (F.col("offset") > F.col("expected"))


def deliveries(events: DataFrame) -> Judged:
    """deliveries: in order, once, nothing left out. Which steps out of order are repeats is for `told_apart` to say."""
    is_delivery, due, end = F.col("op") == "deliver", F.coalesce(F.col("expected"), F.lit(0)), F.col("end")
    is_unasked = is_delivery & F.col("expected").isNull()
    is_misplaced = (F.col("op") == "gap") & ~F.col("first").eqNullSafe(F.col("expected")) & ~_is_told_again()
    is_left_out = F.col("op").isin("skip", "repeat") & (F.col("first") > due)
    missed = (
        F.when(is_misplaced, 1)
        .when(is_left_out, F.col("first") - due)
        .when((F.col("op") == "drained") & end.isNull(), 1)  # The topic itself is gone.
        .when(F.col("op") == "drained", F.greatest(end - due, F.lit(0)))
    )
    witness = F.when(is_misplaced, _gap_text()).when(is_left_out, _left_out_text()).otherwise(_drained_text())
    unasked = text("%s got %d without a subscription", "subscription", "offset")
    return Judged(
        walk(events),
        [
            Charge(LAW, LOST, is_delivery, missed, witness),
            Charge(LAW, DUPLICATED, is_delivery, _is_again(), _step_text()),
            Charge(LAW, REORDERED, is_delivery, _is_ahead(), _step_text()),
            Charge(LAW, INVENTED, is_delivery, is_unasked, unasked),
        ],
        has_subscription=True,
    )


def told_apart(events: DataFrame) -> Judged:
    """Steps out of order, by what became of the message: had before (duplicated), had later (reordered), never (lost)."""
    steps = walk(events)
    had = steps.where(F.col("op") == "deliver").groupBy(*_LANE, F.col("offset").alias("asked")).agg(F.min(seat()).alias("had"))
    offences = steps.where(_is_again() | _is_ahead()).select(
        *_LANE,
        seat().alias("seat"),
        _is_again().alias("is_again"),
        F.when(_is_again(), F.col("offset")).otherwise(F.col("expected")).alias("asked"),
        _step_text().alias("witness"),
    )
    is_duplicated = F.col("is_again") & (F.col("had") < F.col("seat"))
    is_lost = ~F.col("is_again") & F.col("had").isNull()
    cases = {DUPLICATED: is_duplicated, LOST: is_lost, REORDERED: ~(is_duplicated | is_lost)}
    charges = [Charge(LAW, verdict, F.lit(False), case, F.col("witness")) for verdict, case in cases.items()]
    return Judged(offences.join(had, [*_LANE, "asked"], "left"), charges, has_subscription=True)


def _step_text() -> Column:
    return text("%s got %d of topic %s where %d was next", "subscription", "offset", "topic_id", "expected")


def _drained_text() -> Column:
    return text("%s was handed up to %d of %d of topic %s", "subscription", "expected", "end", "topic_id")


def _left_out_text() -> Column:
    return text("%s was asked about %d and behind in topic %s where %d was next", "subscription", "first", "topic_id", "expected")


def _gap_text() -> Column:
    return text(
        "%s was told a gap [%d, %d) of topic %s where %d was next", "subscription", "first", "end", "topic_id", "expected"
    )


# --- what was told ------------------------------------------------------------------------------------


def told(events: DataFrame) -> Judged:
    """retention-law and in-doubt-bound: no gap without a limit, and no more in doubt than was handed out or reserved."""
    limited = (
        events.where(is_ok("end") & F.col("is_limited")).select("run", "topic_id", F.lit(True).alias("has_limit")).distinct()
    )
    spoken = events.where(is_ok("gap", "missed", "in_doubt", "subscribe")).join(F.broadcast(limited), ["run", "topic_id"], "left")
    is_gap, is_doubt = F.col("op").isin("gap", "missed"), F.col("op") == "in_doubt"
    is_large = is_doubt & (F.col("end") - F.col("first") > F.col("bound"))
    gap = text("%s lost [%d, %d) of topic %s, which has no limit", "subscription", "first", "end", "topic_id")
    doubt = text(
        "%s has [%d, %d) of topic %s in doubt, %d at most are possible", "subscription", "first", "end", "topic_id", "bound"
    )
    return Judged(
        spoken,
        [
            Charge("retention-law", LOST, is_gap, is_gap & F.col("has_limit").isNull(), gap),
            Charge("in-doubt-bound", "in doubt", is_doubt, is_large, doubt),
        ],
        has_subscription=True,
    )


def in_doubt(events: DataFrame) -> DataFrame:
    """How many messages each subscription was told to be in doubt, each told once per life. No violation: a fact to settle."""
    spans = events.where(is_ok("in_doubt")).select(*_LANE, "life", "first", "end").distinct()
    return spans.groupBy("subscription").agg(F.sum(F.col("end") - F.col("first")).alias("in_doubt"))

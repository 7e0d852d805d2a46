# SPDX-License-Identifier: Apache-2.0
"""The laws of transactions, and of what was passed over: what came out is what went in, one for one and in order.

May not: bring events to the driver, or excuse anything the checkers would not.
The idea: two sequences are equal if they have the same message at every place. So both are numbered, and joined by number.
Next: audit_laws.py for the other laws, sim/relay.py for who makes such sequences.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from oncemq.pipeline.audit_events import SEAT, is_ok, seat
from oncemq.pipeline.audit_laws import SEEN, Charge, Judged, text

_RELAYED = "relayed "


def relayed(events: DataFrame) -> Judged:
    """relayed: whoever consumes and produces in transactions produces once for each message, in their order."""
    ways = _ways(events, "relaying", "run", "topic_id")
    wanted = _shown(events, ways, ["run", "topic_id", "began"]).withColumn("wanted", F.concat(F.lit(_RELAYED), "wanted"))
    produced = _last_at_each_place(events.where(is_ok("log"))).where(F.col("message").startswith(_RELAYED))
    found = _numbered(produced, ["run"], "topic_id", "offset").select("run", "place", F.col("message").alias("found"))
    return _compared("relayed", wanted, ways.join(found, "run"), ["run", "topic_id", "began"])


def effects(events: DataFrame) -> Judged:
    """effects: whoever keeps its place in its database has one effect for each message, in their order."""
    ways = _ways(events, "booking", "run", "process", "topic_id")
    wanted = _shown(events, ways, ["run", "process", "topic_id", "began"])
    booked = _numbered(events.where(is_ok("effect")), ["run", "process"], *SEAT)
    found = ways.join(booked.select("run", "process", "place", F.col("message").alias("found")), ["run", "process"])
    return _compared("effects", wanted, found, ["run", "process", "topic_id", "began"])


def skipped_unput(events: DataFrame) -> Judged:
    """skipped-unput: a gap or a skip passes over what was there when it was told, never over what was put later."""
    spans = events.where(is_ok("gap", "skip")).select("run", "topic_id", "subscription", "first", "end", seat().alias("passed"))
    within = (F.col("offset") >= F.col("first")) & (F.col("offset") < F.col("end"))
    log = _last_at_each_place(events.where(is_ok("log")))
    over = log.join(F.broadcast(spans), ["run", "topic_id"]).where(within)
    is_invoke = (F.col("op") == "put") & (F.col("kind") == "invoke")
    invoked = events.where(is_invoke).groupBy("run", "message").agg(F.max(seat()).alias("invoked"))
    one = ["run", "topic_id", "offset", "message", "subscription"]
    handed = events.where(is_ok("deliver")).select(*one, F.lit(True).alias("is_handed")).distinct()
    known = over.join(invoked, ["run", "message"], "left").join(handed, one, "left")
    is_skipped = (F.col("invoked") > F.col("passed")) & F.col("is_handed").isNull()
    sentence = text(
        "%s never got %s at %d of topic %s, put after that was passed over", "subscription", "message", "offset", "topic_id"
    )
    return Judged(known, [Charge("skipped-unput", "lost", F.lit(True), is_skipped, sentence)], has_subscription=True)


# --- sequences ----------------------------------------------------------------------------------------


def _ways(events: DataFrame, operation: str, *names: str) -> DataFrame:
    """Who said that from an offset of a topic on every message will come out again."""
    began = F.coalesce("start", F.lit(0)).alias("began")
    return F.broadcast(events.where(is_ok(operation)).select(*names, began).distinct())


def _last_at_each_place(events: DataFrame) -> DataFrame:
    """The message of each place: the last word on it counts."""
    return events.groupBy("run", "topic_id", "offset").agg(F.max_by("message", seat()).alias("message"))


def _shown(events: DataFrame, ways: DataFrame, way: list[str]) -> DataFrame:
    """Every message of a way's topic, from where it began, that anybody was shown or told, numbered in order."""
    places = _last_at_each_place(events.where(is_ok("put", *SEEN) & F.col("offset").isNotNull()))
    due = places.join(ways, ["run", "topic_id"]).where(F.col("offset") >= F.col("began"))
    return _numbered(due, way, "offset").select(*way, "place", F.col("message").alias("wanted"))


def _numbered(rows: DataFrame, whose: list[str], *order: str) -> DataFrame:
    return rows.withColumn("place", F.row_number().over(Window.partitionBy(*whose).orderBy(*order)))


def _compared(law: str, wanted: DataFrame, found: DataFrame, way: list[str]) -> Judged:
    """Too few are lost, too many are duplicates, and in between each must be at its own place."""
    both = wanted.join(found, [*way, "place"], "full")
    is_wanted, is_found = F.col("wanted").isNotNull(), F.col("found").isNotNull()
    sentence = text("number %d from topic %s is %s, and %s was due", "place", "topic_id", "found", "wanted")
    cases: dict[str, Column] = {
        "lost": ~is_found,
        "duplicated": ~is_wanted,
        "reordered": is_wanted & is_found & (F.col("wanted") != F.col("found")),
    }
    return Judged(both, [Charge(law, verdict, is_wanted, case, sentence) for verdict, case in cases.items()])

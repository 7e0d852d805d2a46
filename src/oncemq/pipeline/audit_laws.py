# SPDX-License-Identifier: Apache-2.0
"""The laws of sim/checkers.py over histories of any size: each a few Spark operations from events to judged rows.

May not: bring events to the driver, run Python per row, or excuse anything the checkers would not.
The idea: a law looks at all events of one message, of one place, of one stream or of one put. So each is one grouping, or one
sorted walk with a running maximum. What is counted are numbers only, which Spark groups by hashing; words for a witness are made
in a second pass, for those laws that were broken.
Next: audit_deliveries.py for the laws of subscriptions, audit.py, which puts all together.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from oncemq.pipeline.audit_events import SEAT, is_ok, seat

SEEN = ("log", "deliver", "received", "doubted")
"""Events that show a stored message: in the log at the end, handed out, received, or looked at while in doubt."""
SHOWN = (*SEEN, "effect")
"""Those, and rows of a database: their messages were handed out to its application."""


@dataclass(frozen=True, slots=True)
class Charge:
    """One way to break a law. `amount` is how much of it a row breaks: true or false, or a number of messages."""

    law: str
    verdict: str
    checked: Column
    amount: Column
    witness: Column


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows that several charges look at. With a `subscription` they are counted for each."""

    rows: DataFrame
    charges: list[Charge]
    has_subscription: bool = False


def text(form: str, *columns: str) -> Column:
    """A sentence with values of this row in it."""
    return F.format_string(form, *(F.col(name) for name in columns))


# --- one message ------------------------------------------------------------------------------------


def messages(events: DataFrame) -> Judged:
    """unexpected: what is somewhere was put. lost-accept, where nobody said for which topic a message was kept: it is somewhere,
    or was and was told as damaged."""
    put = F.col("op") == "put"
    flags = (
        events.where("message is not null")
        .groupBy("run", "message")
        .agg(
            F.max(put & (F.col("kind") == "invoke")).alias("is_invoked"),
            F.max(put & (F.col("kind") == "fail")).alias("is_failed"),
            F.max(is_ok(*SEEN)).alias("is_seen"),
            F.max(is_ok(*SHOWN)).alias("is_shown"),
            F.max(F.when(is_ok("kept") & F.col("topic_id").isNull(), F.xxhash64("run", "process"))).alias("kept_by"),
        )
    )
    fleeting = _fleeting(events).select("run", "is_fleeting").distinct()
    known = flags.join(F.broadcast(_given_up(events)), "kept_by", "left").join(F.broadcast(fleeting), "run", "left")
    known = known.join(F.broadcast(_damaged(events).drop("topic_id").distinct()), ["run", "message"], "left")
    is_kept, is_excused = F.col("kept_by").isNotNull(), F.coalesce("is_given_up", "is_fleeting", "is_damaged").isNotNull()
    is_lost = is_kept & ~F.col("is_shown") & ~is_excused
    is_invented = F.col("is_seen") & (~F.col("is_invoked") | F.col("is_failed"))
    lost, invented = text("%s was kept in an outbox and is nowhere", "message"), text("%s was never put", "message")
    return Judged(
        known,
        [
            Charge("lost-accept", "confirmed but missing", is_kept, is_lost, lost),
            Charge("unexpected", "invented", F.col("is_seen"), is_invented, invented),
        ],
    )


def kept(events: DataFrame) -> Judged:
    """lost-accept: what was kept for a topic is there, or was; only what a limit may take, or nobody ever asked for, may go."""
    found = (
        events.where(is_ok("kept", *SHOWN) & F.col("topic_id").isNotNull())
        .groupBy("run", "message", "topic_id")
        .agg(
            F.max(is_ok(*SHOWN)).alias("is_shown"),
            F.max(F.when(is_ok("kept"), F.xxhash64("run", "process"))).alias("kept_by"),
        )
    )
    known = found.join(F.broadcast(_given_up(events)), "kept_by", "left")
    known = known.join(F.broadcast(_fleeting(events)), ["run", "topic_id"], "left")
    known = known.join(F.broadcast(_damaged(events)), ["run", "topic_id", "message"], "left")
    is_kept, is_excused = F.col("kept_by").isNotNull(), F.coalesce("is_given_up", "is_fleeting", "is_damaged").isNotNull()
    lost = text("%s was kept in an outbox for topic %s and is not there", "message", "topic_id")
    return Judged(
        known, [Charge("lost-accept", "confirmed but missing", is_kept, is_kept & ~F.col("is_shown") & ~is_excused, lost)]
    )


def _given_up(events: DataFrame) -> DataFrame:
    """Whose directory was given up, with what it alone had kept."""
    taken = events.where(is_ok("taken_over")).select(F.xxhash64("run", "name").alias("kept_by"), F.lit(True).alias("is_given_up"))
    return taken.distinct()


def _fleeting(events: DataFrame) -> DataFrame:
    """Topics of which something may go that nobody has read: a limit may take it, or nobody ever subscribed."""
    heard = events.where(is_ok("subscribe")).select("run", "topic_id", F.lit(True).alias("is_heard")).distinct()
    ends = events.where(is_ok("end")).join(F.broadcast(heard), ["run", "topic_id"], "left")
    may_go = F.col("is_limited") | (~F.col("is_kept") & F.col("is_heard").isNull())
    return ends.where(may_go).select("run", "topic_id", F.lit(True).alias("is_fleeting")).distinct()


def _damaged(events: DataFrame) -> DataFrame:
    """Messages whose receipts name a place that somebody was told is damaged: they may be trimmed unread."""
    spans = events.where(is_ok("damaged")).select("run", "topic_id", "first", "end")
    receipts = events.where(is_ok("put") & F.col("offset").isNotNull()).select("run", "topic_id", "offset", "message")
    is_inside = (F.col("offset") >= F.col("first")) & (F.col("offset") < F.col("end"))
    told = receipts.join(F.broadcast(spans), ["run", "topic_id"]).where(is_inside)
    return told.select("run", "topic_id", "message", F.lit(True).alias("is_damaged")).distinct()


def copies(events: DataFrame) -> Judged:
    """duplicate, first half, and two-answers: a message is once in a topic, and whoever asks is told one offset."""
    is_told = is_ok("put") & F.col("stored") & F.col("offset").isNotNull()
    found = (
        events.where(is_ok("log") | is_told)
        .groupBy("run", "message", "topic_id")
        .agg(
            F.min(F.when(is_ok("log"), F.col("offset"))).alias("at"),
            F.max(F.when(is_ok("log"), F.col("offset"))).alias("also_at"),
            F.min(F.when(is_told, F.col("offset"))).alias("lowest"),
            F.max(F.when(is_told, F.col("offset"))).alias("highest"),
        )
    )
    twice = text("%s is stored at %d and at %d of topic %s", "message", "at", "also_at", "topic_id")
    told = text("%s was told %d and %d", "message", "lowest", "highest")
    return Judged(
        found,
        [
            Charge("duplicate", "duplicated", F.col("at").isNotNull(), F.col("at") != F.col("also_at"), twice),
            Charge("two-answers", "rolled back", F.col("lowest").isNotNull(), F.col("lowest") != F.col("highest"), told),
        ],
    )


# --- one place --------------------------------------------------------------------------------------


ONE_PLACE = "inconsistent-offsets"


def places(events: DataFrame) -> Judged:
    """lost-write and inconsistent-offsets: one place is one message, for everybody, and in the log at the end.

    The messages of one place are compared by a hash of 64 bits: two that differ look alike once in 10^19 places.
    Which of several messages that the log has of one place is the last takes sorting. So it is asked only if there are several
    of any place, which is a breach of the second law: `places_exactly`.
    """
    return _places(events, F.max(F.when(is_ok("log"), F.xxhash64("message"))))


def places_exactly(events: DataFrame) -> Judged:
    """The same, where one place may have had several messages: the last word of the log counts."""
    return _places(events, F.max_by(F.xxhash64("message"), F.when(is_ok("log"), seat())))


def _places(events: DataFrame, logged_message: Column) -> Judged:
    confirmed, name = is_ok("put") & F.col("stored"), F.xxhash64("message")
    found = (
        events.where(is_ok("put", *SEEN) & F.col("offset").isNotNull())
        .groupBy("run", "topic_id", "offset")
        .agg(
            F.min(name).alias("least"),
            F.max(name).alias("most"),
            logged_message.alias("logged"),
            F.min(F.when(confirmed, name)).alias("confirmed"),
            F.max(F.when(confirmed, name)).alias("also_confirmed"),
        )
        .join(F.broadcast(_ends(events)), ["run", "topic_id"], "left")
        .join(F.broadcast(_left(events)), ["run", "topic_id"], "left")
        .join(F.broadcast(_read(events)), "run", "left")
    )
    # A topic that ends nowhere, and that nobody left, was lost with all that was confirmed there.
    is_there = F.when(F.col("low").isNotNull(), F.col("offset") >= F.col("low"))
    is_there = is_there.otherwise(F.col("is_read").isNotNull() & F.col("is_left").isNull())
    logged, is_kept = F.col("logged"), F.col("confirmed").isNotNull() & is_there
    is_lost = is_kept & (logged.isNull() | (F.col("confirmed") != logged) | (F.col("also_confirmed") != logged))
    other = text("two messages have been offset %d of topic %s", "offset", "topic_id")
    lost = text("a message was confirmed at %d of topic %s, the log has none or another there", "offset", "topic_id")
    return Judged(
        found,
        [
            Charge(ONE_PLACE, "rolled back", F.lit(True), F.col("least") != F.col("most"), other),
            Charge("lost-write", "confirmed but missing", is_kept, is_lost, lost),
        ],
    )


def holes(events: DataFrame) -> Judged:
    """gap-in-log: offsets at the end are low, low + 1, ... without a hole. Counted as bits, so that a repeat fills no hole."""
    span, following = ["run", "topic_id", "low", "end"], F.col("offset") + 1
    ends = events.where(is_ok("end")).select(*span).distinct()
    within = (F.col("offset") >= F.col("low")) & (F.col("offset") < F.col("end"))
    bits = (
        events.where(is_ok("log"))
        .select("run", "topic_id", "offset")
        .join(F.broadcast(ends), ["run", "topic_id"])
        .where(within)
        .groupBy(*span, F.bitmap_bucket_number(following).alias("bucket"))
        .agg(F.bitmap_count(F.bitmap_construct_agg(F.bitmap_bit_position(following))).alias("present"))
    )
    present = bits.groupBy(*span).agg(F.sum("present").alias("present"))
    size, missing = F.col("end") - F.col("low"), F.col("end") - F.col("low") - F.coalesce(F.col("present"), F.lit(0))
    sentence = text("topic %s has only %d messages in [%d, %d)", "topic_id", "present", "low", "end")
    return Judged(ends.join(present, span, "left"), [Charge("gap-in-log", "lost", size, missing, sentence)])


def kept_for_ever(events: DataFrame) -> Judged:
    """retention-law, second half: nothing takes what is kept for ever, whether anybody still needs it or not."""
    sentence = text("topic %s is kept for ever, and begins at %d", "topic_id", "low")
    kept = events.where(is_ok("end") & F.col("is_kept"))
    return Judged(kept, [Charge("retention-law", "lost", F.lit(True), F.col("low") > 0, sentence)])


def _left(events: DataFrame) -> DataFrame:
    """Topics that somebody left, or tried to."""
    left = events.where(F.col("op") == "unsubscribe").select("run", "topic_id", F.lit(True).alias("is_left"))
    return left.distinct()


def _read(events: DataFrame) -> DataFrame:
    """Runs whose logs were read at the end."""
    return events.where(is_ok("end", "topics")).select("run", F.lit(True).alias("is_read")).distinct()


def _ends(events: DataFrame) -> DataFrame:
    """Where the topics of each run ended: the last word on each."""
    told = events.where(is_ok("end")).groupBy("run", "topic_id").agg(F.max_by(F.struct("low", "end"), seat()).alias("told"))
    return told.select("run", "topic_id", "told.low", "told.end")


# --- one stream -------------------------------------------------------------------------------------


def numbers(events: DataFrame) -> Judged:
    """duplicate, second half: a put number of a stream is in one place."""
    found = (
        events.where(is_ok("log"))
        .withColumn("place", F.xxhash64("topic_id", "offset"))
        .groupBy("run", "stream", "number")
        .agg(F.min("place").alias("least"), F.max("place").alias("most"))
    )
    sentence = text("number %d of stream %s is stored in two places", "number", "stream")
    return Judged(found, [Charge("duplicate", "duplicated", F.lit(True), F.col("least") != F.col("most"), sentence)])


def streams(events: DataFrame) -> Judged:
    """nonmonotonic-send: of one stream and topic, later put numbers have higher offsets."""
    before = Window.partitionBy("stream", "topic_id", "run").orderBy("offset", *SEAT).rowsBetween(Window.unboundedPreceding, -1)
    walked = events.where(is_ok("log")).withColumn("highest", F.max("number").over(before))
    sentence = text("stream %s has number %d behind %d in topic %s", "stream", "number", "highest", "topic_id")
    is_behind = F.col("number") <= F.col("highest")
    return Judged(walked, [Charge("nonmonotonic-send", "reordered", F.lit(True), is_behind, sentence)])


# --- one put ----------------------------------------------------------------------------------------


def puts(events: DataFrame) -> Judged:
    """fencing: what an older life began after a newer one was welcomed is never told ok. real-time-order: a put confirmed before
    another began has the lower offset in their topic.

    Every put is seated once where it ended and once where it began; the running maximum of what had ended is its floor.
    """
    ended, nothing = _begun(events), F.lit(None).cast("long")
    is_new = F.col("stored") & F.col("offset").isNotNull() & ~F.col("duplicate") & F.col("began").isNotNull()
    named = ("run", "topic_id", "message", "process", "life")
    ends = ended.select(*named, *SEAT, F.when(is_new, F.col("offset")).alias("confirmed"), nothing.alias("mine"), "is_late")
    begins = ended.where(is_new).select(
        *named, "began.*", nothing.alias("confirmed"), F.col("offset").alias("mine"), F.lit(None).cast("boolean").alias("is_late")
    )
    before = Window.partitionBy("topic_id", "run").orderBy(*SEAT).rowsBetween(Window.unboundedPreceding, -1)
    walked = ends.unionByName(begins).withColumn("floor", F.max("confirmed").over(before))
    late = text("%s life %d put %s and was told ok, after a newer life was welcomed", "process", "life", "message")
    early = text("%s got %d in topic %s, below %d, confirmed before it began", "message", "mine", "topic_id", "floor")
    is_begin = F.col("mine").isNotNull()
    return Judged(
        walked,
        [
            Charge("fencing", "fenced and heard", ~is_begin, F.col("is_late"), late),
            Charge("real-time-order", "reordered", is_begin, F.col("mine") <= F.col("floor"), early),
        ],
    )


def told_for_nothing(events: DataFrame) -> Judged:
    """told-for-nothing: nobody is told of a takeover, a directory set back or damage, unless there was one."""
    taken = events.where(is_ok("taken_over")).select("run", F.col("name").alias("process"), F.lit(True).alias("is_given_up"))
    rot = events.where(F.col("op") == "rot").groupBy("run").agg(F.min(seat()).alias("rotten"))
    spoken = events.where(F.col("op").isin("told", "damaged")).join(F.broadcast(taken.distinct()), ["run", "process"], "left")
    known = spoken.join(F.broadcast(rot), "run", "left")
    is_damage = F.col("op") == "damaged"
    is_wrong = F.when(is_damage, F.col("rotten").isNull() | (seat() < F.col("rotten"))).otherwise(F.col("is_given_up").isNull())
    sentence = text("%s was told %s, and nothing was set back or damaged", "process", "op")
    return Judged(known, [Charge("told-for-nothing", "told for nothing", F.lit(True), is_wrong, sentence)])


def told_too_early(events: DataFrame) -> Judged:
    """told-too-early: an end that was told is synced, so a broker that comes back has at least that much."""
    sentence = text("topic %s was told to end at %d, and came back ending at %d", "topic_id", "told", "end")
    is_less = F.col("told") > F.coalesce(F.col("end"), F.lit(0))
    return Judged(events.where(is_ok("recovered")), [Charge("told-too-early", "rolled back", F.lit(True), is_less, sentence)])


def _begun(events: DataFrame) -> DataFrame:
    """Every answer to a put, with the seat where that put began, and whether it was too late by then."""
    is_invoke = F.col("kind") == "invoke"
    own = Window.partitionBy("message", "process", "life", "run").orderBy(*SEAT)
    spoken = events.where((F.col("op") == "put") & F.col("kind").isin("invoke", "ok"))
    fenced = spoken.join(F.broadcast(_fences(events)), ["run", "process", "life"], "left")
    began = F.last(F.when(is_invoke, seat()), ignorenulls=True).over(own)
    is_late = F.max(is_invoke & (seat() > F.col("fenced"))).over(own)
    return fenced.withColumns({"began": began, "is_late": is_late}).where(~is_invoke)


def _fences(events: DataFrame) -> DataFrame:
    """For every life of a process: when a newer one was welcomed for the first time."""
    one = ["run", "process", "life"]
    welcomed = events.where(is_ok("welcome")).groupBy(*one).agg(F.min(seat()).alias("welcomed"))
    lives = events.where(F.col("op").isin("put", "welcome")).select(*one).distinct().join(F.broadcast(welcomed), one, "left")
    newer = Window.partitionBy("run", "process").orderBy(F.desc("life")).rowsBetween(Window.unboundedPreceding, -1)
    return lives.select(*one, F.min("welcomed").over(newer).alias("fenced"))

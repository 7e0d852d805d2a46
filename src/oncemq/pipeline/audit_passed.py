# SPDX-License-Identifier: Apache-2.0
"""The law of what was passed over: a gap or a skip is about messages that were there.

May not: bring events to the driver, or excuse anything the checkers would not.
The idea: gaps are few, so they are brought to the log; what lies in one is compared with when it was put.
Next: audit_laws.py for the other laws.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from oncemq.pipeline.audit_events import is_ok, seat
from oncemq.pipeline.audit_laws import Charge, Judged, text


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


def _last_at_each_place(events: DataFrame) -> DataFrame:
    """The message of each place: the last word on it counts."""
    return events.groupBy("run", "topic_id", "offset").agg(F.max_by("message", seat()).alias("message"))

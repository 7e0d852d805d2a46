# SPDX-License-Identifier: Apache-2.0
"""Whether an archive is the topic: every offset once, without a hole, and the same message as in the log of a history.

May not: bring rows to the driver.
The idea: in the table itself, rows, distinct offsets and highest − lowest + 1 are one number for each log and topic. Against a
history, every message that its `log` events show in a range that the table covers must be there, and nothing else.
Next: audit.py; archive_tables.py for what counts as the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from oncemq.pipeline.archive_tables import find_table
from oncemq.pipeline.audit_events import is_ok
from oncemq.pipeline.audit_laws import Charge, Judged, text
from oncemq.pipeline.replay import table_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_archive(spark: SparkSession, place: Path) -> DataFrame:
    """The rows of an archive; run 0, so that they can be judged like events."""
    table = find_table(place)
    rows: DataFrame = table_frame(spark, table.files(), table.place)
    return rows.withColumns({"run": F.lit(0), "topic_id": F.col("topic_id").cast("string")})


def dense(rows: DataFrame) -> Judged:
    """archive-dense: of each log and topic, every offset between the lowest and the highest is there once."""
    places = rows.groupBy("run", "log", "topic", "topic_id", "offset").agg(F.count("*").alias("copies"))
    found = places.groupBy("run", "log", "topic", "topic_id").agg(
        F.count("*").alias("offsets"),
        F.sum("copies").alias("rows"),
        F.min("offset").alias("lowest"),
        F.max("offset").alias("highest"),
    )
    holes = F.col("highest") - F.col("lowest") + 1 - F.col("offsets")
    lost = text("topic %s has only %d offsets in [%d, %d]", "topic", "offsets", "lowest", "highest")
    twice = text("topic %s has %d rows of %d offsets", "topic", "rows", "offsets")
    return Judged(
        found,
        [
            Charge("archive-dense", "lost", F.col("offsets"), holes, lost),
            Charge("archive-dense", "duplicated", F.col("rows"), F.col("rows") - F.col("offsets"), twice),
        ],
    )


def agrees(events: DataFrame, rows: DataFrame) -> Judged:
    """archive-agrees: where table and log both are, they have the same message. Topics of the history that were not archived are
    left alone, and so is what lies outside the offsets that both cover."""
    logged = events.where(is_ok("log")).select("topic_id", "offset", F.col("message").alias("logged"))
    words = F.rtrim(F.decode("value", "UTF-8"), F.lit("."))  # Values may be longer than the names in a history (docs/history.md).
    kept = rows.select("topic_id", "offset", words.alias("archived"))
    bounds = [
        frame.groupBy("topic_id").agg(F.min("offset").alias(f"{name}_low"), F.max("offset").alias(f"{name}_high"))
        for name, frame in (("log", logged), ("table", kept))
    ]
    both = logged.join(kept, ["topic_id", "offset"], "full").join(F.broadcast(bounds[0].join(bounds[1], "topic_id")), "topic_id")
    low, high = F.greatest("log_low", "table_low"), F.least("log_high", "table_high")
    common = both.where((F.col("offset") >= low) & (F.col("offset") <= high)).withColumn("run", F.lit(0))
    is_other = ~F.col("logged").eqNullSafe(F.col("archived"))
    sentence = text("offset %d of topic %s is %s in the log and %s in the archive", "offset", "topic_id", "logged", "archived")
    return Judged(common, [Charge("archive-agrees", "rolled back", F.lit(True), is_other, sentence)])

# SPDX-License-Identifier: Apache-2.0
"""The audit of a topic while it grows: every offset once and in order, every publisher's put numbers rising.

May not: keep what grows with messages. The state of a topic is one offset, and one number for each put stream seen lately.
The idea: rows of a micro-batch arrive in any order, so they are sorted first; then each is compared with what was next, a column
at a time. State and checkpoint are one (RocksDB, transformWithState): a batch that runs again finds the state it had, and
findings go to a table that Spark's own file sink writes once.
Next: audit.py for the proof over finished histories; cli/pipeline_watch.py for the command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pandas
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from oncemq.limits import AUDIT_STREAM_MEMORY_MS, AUDIT_STREAM_ROWS_PER_BATCH, SPARK_SHUFFLE_PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "topic string, finding string, offset long, expected long, publisher string, put_number long"
DUPLICATED, LOST, REORDERED = "duplicated", "lost", "put twice or reordered"
OBSERVED = "findings"
"""Under this name the progress of the query says how many findings a batch had: field `found`."""
_COLUMNS = ("topic", "offset", "publisher", "put_number", "stream")


class TopicAuditor(StatefulProcessor):
    """Watches one topic."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._next = handle.getValueState("next", "offset long")
        self._numbers = handle.getMapState("numbers", "stream string", "number long", AUDIT_STREAM_MEMORY_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002, N803
        """Compare every row with what was next. Spark gives the method its name, a key of one column, and pieces of a batch."""
        batch = pandas.concat(list(rows)).sort_values("offset", kind="stable")
        for found in (self._judge_offsets(batch), *self._judge_numbers(batch)):
            if len(found):
                yield found.assign(topic=key[0])[[name.split()[0] for name in SCHEMA.split(", ")]]

    def _judge_offsets(self, batch: Any) -> Any:
        offsets = batch["offset"].to_numpy()
        known = self._next.get()
        due = int(known[0] if known is not None else offsets[0])
        expected = numpy.maximum(numpy.append(due, offsets[:-1] + 1), due)
        self._next.update((max(due, int(offsets[-1]) + 1),))
        names = numpy.where(offsets < expected, DUPLICATED, LOST)
        return batch.assign(expected=expected, finding=names)[offsets != expected]

    def _judge_numbers(self, batch: Any) -> Iterator[Any]:
        """Put numbers of a stream count over all topics, so one topic may miss some; but they never come again or go back."""
        for stream, rows in batch.groupby("stream", sort=False):
            name, numbers = (bytes(stream).hex(),), rows["put_number"].to_numpy()
            known = self._numbers.getValue(name)
            highest = numpy.maximum.accumulate(numpy.append(known[0] if known is not None else 0, numbers))
            self._numbers.updateValue(name, (int(highest[-1]),))
            yield rows.assign(expected=highest[:-1] + 1, finding=REORDERED)[numbers <= highest[:-1]]

    def close(self) -> None:
        """Nothing to let go of."""


def findings(rows: DataFrame) -> DataFrame:
    """A streaming table of everything wrong with streamed rows of topics; it stays empty."""
    return rows.groupBy("topic").transformWithStateInPandas(TopicAuditor(), SCHEMA, "Append", "ProcessingTime")


def watch_session(spark: SparkSession, topics: int) -> SparkSession:
    """A session beside the given one, as these queries need it."""
    own = spark.newSession()
    # A topic is judged in one place: more partitions would be idle, each with a Python process. The checkpoint pins it.
    own.conf.set("spark.sql.shuffle.partitions", str(min(topics, SPARK_SHUFFLE_PARTITIONS)))
    # A state that may be forgotten by the clock has Spark run batches without rows, one after the other, without end.
    own.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    return own


@dataclass(frozen=True, slots=True)
class Watch:
    """Topics at a broker, and the directory in which their auditor keeps its checkpoint and its findings."""

    address: str
    topics: Sequence[str]
    subscription: str
    place: Path
    starting: str = "earliest"

    def start(
        self, spark: SparkSession, *, is_endless: bool, rows_per_batch: int = AUDIT_STREAM_ROWS_PER_BATCH
    ) -> StreamingQuery:
        """Go on where the last one stopped: for ever, or until what is stored now has been seen."""
        options = {
            "address": self.address,
            "subscribe": ",".join(self.topics),
            "subscription": self.subscription,
            "startingOffsets": self.starting,
            "columns": ",".join(_COLUMNS),
            "maxOffsetsPerTrigger": str(rows_per_batch),
            "failOnDataLoss": "false",  # What a limit took is a finding: said, and no reason to stop looking.
        }
        rows = watch_session(spark, len(self.topics)).readStream.format("oncemq").options(**options).load()
        found = findings(rows).observe(OBSERVED, F.count(F.lit(1)).alias("found"))
        writing = found.writeStream.format("parquet").option("path", str(self._table))
        writing = writing.option("checkpointLocation", str(self.place / "checkpoint")).queryName(self.subscription)
        trigger: dict[str, Any] = {"processingTime": "0 seconds"} if is_endless else {"availableNow": True}
        query: StreamingQuery = writing.trigger(**trigger).start()
        return query

    @property
    def _table(self) -> Path:
        return self.place / "findings"

    def found(self, spark: SparkSession, count_max: int) -> list[dict[str, Any]]:
        """What was found so far, all runs together."""
        if not (self._table / "_spark_metadata").exists():
            return []
        rows = spark.read.schema(SCHEMA).parquet(str(self._table)).orderBy("topic", "offset").limit(count_max)
        return [row.asDict() for row in rows.collect()]

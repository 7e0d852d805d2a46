# SPDX-License-Identifier: Apache-2.0
"""A driver whose queries each stop at another step of a batch and wait to be killed: started by test_spark_kills.py.

    python driver_role.py ADDRESS DIRECTORY

It copies the topic STEP to STEP-copy for every step, with the checkpoint DIRECTORY/STEP-checkpoint, and touches
DIRECTORY/STEP-marker where it stops.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

from oncemq.pipeline.datasource import OnceMQDataSource
from oncemq.pipeline.session import spark_session
from oncemq.pipeline.sink import TopicStreamWriter
from oncemq.pipeline.source import TopicStreamReader

BATCH, BATCH_ROWS = 1, 400
"""The batch in which it stops: the one before it must survive as well."""
STEPS = ("planned", "half-staged", "staged", "committed", "logged", "ended", "released")
"""In the order in which a batch comes by; test_spark_kills.py says what lies between them."""


class Stopping:
    """Says that a step is reached, and waits."""

    step, marker = "", ""

    def stop_at(self, step: str) -> None:
        if step == self.step:
            Path(self.marker).touch()
            signal.pause()


class StoppingReader(Stopping, TopicStreamReader):
    """The shipped reader, but for the steps of the driver's side of it."""

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        if _rows(start) == (BATCH + 1) * BATCH_ROWS:
            self.stop_at("logged")
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        if _rows(start) == BATCH * BATCH_ROWS:
            self.stop_at("planned")
        return super().partitions(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        is_due = _rows(end) == (BATCH + 1) * BATCH_ROWS
        if is_due:
            self.stop_at("ended")
        super().commit(end)
        if is_due:
            self.stop_at("released")


class StoppingWriter(Stopping, TopicStreamWriter):
    """The shipped writer, likewise."""

    def write(self, iterator: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        is_due = context.getLocalProperty("streaming.sql.batchId") == str(BATCH) and self.step == "half-staged"
        if is_due and context.partitionId() == 1:
            signal.pause()
        staged = super().write(iterator)
        if is_due:
            self.stop_at("half-staged")
        return staged

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        if batchId == BATCH:
            self.stop_at("staged")
        super().commit(messages, batchId)
        if batchId == BATCH:
            self.stop_at("committed")


def _rows(place: dict[str, Any]) -> int:
    """How many rows lie before a place in the one topic it speaks of."""
    (mark,) = place["topics"].values()
    return int(mark["next"])


class StoppingSource(OnceMQDataSource):
    """Registered under the usual name, instead of the usual one. The step is the name of the topic."""

    directory = ""

    def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
        reader: Any = super().streamReader(schema)
        return self._stopping(StoppingReader(reader.options), reader.options.topics[0])

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        writer: Any = super().streamWriter(schema, overwrite)
        return self._stopping(StoppingWriter(writer.options), writer.options.topic.removesuffix("-copy"))

    def _stopping(self, made: Any, step: str) -> Any:
        made.step, made.marker = step, f"{self.directory}/{step}-marker"
        return made


def publish(spark: Any, address: str, source: str, directory: Path) -> Any:
    """Copy a topic, three batches of it, and return the query."""
    reading = spark.readStream.format("oncemq").option("address", address).option("subscribe", source)
    rows = reading.options(subscription=f"copy-{source}", maxOffsetsPerTrigger=BATCH_ROWS, minPartitions=2, columns="key,value")
    writing = rows.load().writeStream.format("oncemq").option("address", address)
    place = str(directory / f"{source}-checkpoint")
    return writing.option("topic", f"{source}-copy").option("checkpointLocation", place).trigger(availableNow=True).start()


if __name__ == "__main__":
    to_address, below = sys.argv[1:]
    StoppingSource.directory = below
    brief = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    session = spark_session(master="local[3]", name="kills", settings=brief)  # Room for the task that waits for ever.
    session.dataSource.register(StoppingSource)
    queries = []
    for step in STEPS:  # One after the other: Spark gives a Python process ten seconds to say hello, however busy the machine is.
        queries.append(publish(session, to_address, step, Path(below)))
        while not Path(f"{below}/{step}-marker").exists():
            if queries[-1].awaitTermination(0.1):
                raise SystemExit(f"the query never came to {step}")
    signal.pause()

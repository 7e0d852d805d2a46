# SPDX-License-Identifier: Apache-2.0
"""A driver that stops at a given step and waits to be killed: started by test_spark_kills.py, not by pytest.

    python driver_role.py ADDRESS SOURCE SINK CHECKPOINT STEP MARKER

The steps: `staged` (tasks have staged, nothing is committed) and `committed` (the broker has committed, Spark has not written
it down).
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

from oncemq.pipeline.datasource import OnceMQDataSource
from oncemq.pipeline.session import spark_session
from oncemq.pipeline.sink import TopicStreamWriter

BATCH = 1
"""The batch in which it stops: the one before it must survive as well."""


class StoppingWriter(TopicStreamWriter):
    """The shipped writer, but for one step at which it says so and waits."""

    step = ""
    marker = ""

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        if batchId == BATCH and self.step == "staged":
            self._wait()
        super().commit(messages, batchId)
        if batchId == BATCH and self.step == "committed":
            self._wait()

    def _wait(self) -> None:
        Path(self.marker).touch()
        signal.pause()


class StoppingSource(OnceMQDataSource):
    """Registered under the usual name, instead of the usual one."""

    step = ""
    marker = ""

    def streamWriter(self, schema: Any, overwrite: bool) -> TopicStreamWriter:  # noqa: N802 - Spark's name
        writer: Any = super().streamWriter(schema, overwrite)
        stopping = StoppingWriter(writer.options)
        stopping.step, stopping.marker = self.step, self.marker
        return stopping


def publish(spark: Any, address: str, source: str, sink: str, checkpoint: str) -> Any:
    """Copy a topic, three batches of it, and return the query."""
    reading = spark.readStream.format("oncemq").option("address", address).option("subscribe", source)
    rows = reading.option("subscription", f"copy-{source}").option("maxOffsetsPerTrigger", "400").option("minPartitions", "2")
    writing = rows.option("columns", "key,value").load().writeStream.format("oncemq").option("address", address)
    return writing.option("topic", sink).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


if __name__ == "__main__":
    address, source, sink, checkpoint, step, marker = sys.argv[1:]
    StoppingSource.step, StoppingSource.marker = step, marker
    session = spark_session(master="local[2]", name=step)
    session.dataSource.register(StoppingSource)
    publish(session, address, source, sink, checkpoint).awaitTermination()

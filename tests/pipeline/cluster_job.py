# SPDX-License-Identifier: Apache-2.0
"""A job for `spark-submit`: started by test_cluster.py on a real cluster, not by pytest.

    cluster_job.py ADDRESS DIRECTORY

It copies the topic `streamed`, in whose second batch a task kills its executor after it has staged everything; and it writes the
rows of `written`, of which one attempt stages everything and then stands still, until Spark lets another one win.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from oncemq.pipeline.datasource import OnceMQDataSource
from oncemq.pipeline.sink import TopicStreamWriter, TopicWriter


def executor_pid() -> int:
    """The JVM above the daemon above this worker."""
    pid = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
    if b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        raise RuntimeError(f"process {pid} is no executor")
    return pid


class FatalWriter(TopicStreamWriter):
    """Stages everything, then its executor dies."""

    marker = ""

    def write(self, iterator: Any) -> Any:
        staged = super().write(iterator)
        context = TaskContext.get()
        if staged.batch == 1 and context.partitionId() == 0 and context.attemptNumber() == 0:
            Path(self.marker).write_text(str(executor_pid()))
            os.kill(executor_pid(), signal.SIGKILL)
            signal.pause()
        return staged


class LingeringWriter(TopicWriter):
    """Stages everything, then says nothing more."""

    marker = ""

    def write(self, iterator: Any) -> Any:
        staged = super().write(iterator)
        context = TaskContext.get()
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            Path(self.marker).write_text(str(sum(claim.rows for claim in staged.claims)))
            signal.pause()
        return staged


class ClusterSource(OnceMQDataSource):
    """Registered under the usual name, instead of the usual one."""

    directory = ""

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        writer: Any = super().streamWriter(schema, overwrite)
        made = FatalWriter(writer.options)
        made.marker = f"{self.directory}/killed"
        return made

    def writer(self, schema: Any, overwrite: bool) -> Any:
        writer: Any = super().writer(schema, overwrite)
        made = LingeringWriter(writer.options)
        made.marker = f"{self.directory}/lingering"
        return made


def stream(spark: SparkSession, address: str, directory: str) -> None:
    options = {"address": address, "subscribe": "streamed", "subscription": "cluster", "columns": "value"}
    rows = spark.readStream.format("oncemq").options(**options).option("maxOffsetsPerTrigger", 400).option("minPartitions", 2)
    writing = rows.load().writeStream.format("oncemq").options(address=address, topic="streamed-copy")
    writing.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start().awaitTermination()


def write(spark: SparkSession, address: str) -> None:
    options = {"address": address, "subscribe": "written", "columns": "value", "minPartitions": "2"}
    rows = spark.read.format("oncemq").options(**options).load()
    rows.write.format("oncemq").options(address=address, topic="written-copy").mode("append").save()


if __name__ == "__main__":
    to_address, below = sys.argv[1:]
    ClusterSource.directory = below
    session = SparkSession.builder.appName("cluster").getOrCreate()
    session.dataSource.register(ClusterSource)
    stream(session, to_address, below)
    write(session, to_address)
    session.stop()

# SPDX-License-Identifier: Apache-2.0
"""A driver to be killed: one topic into a table and into another topic, at the same time, until it is stopped.

May not: know that it will be killed: it is what a user would write.
The idea: two streaming queries over one topic, with their checkpoints below one directory. Started again it goes on where it was.

    python -m oncemq.pipeline.copying ADDRESS SOURCE SINK DIRECTORY now|always

`now` copies what is there and ends; `always` goes on until it is killed.
Next: cli/torturing/spark.py, which kills it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oncemq.adapters.starter import end_with_starter
from oncemq.pipeline.session import spark_session

TABLE = "table"
COPYING = "copying"
"""What it says once both queries have been started."""
ROWS_PER_BATCH = 20_000
"""A bound, so that there are many batches to be killed in, but one that the last driver catches up with."""


def copy_for_ever(address: str, source: str, sink: str, directory: Path, *, is_endless: bool) -> None:
    spark = spark_session(master="local[2,4]", name="oncemq-copying")  # Four tries of a task, as on a cluster.
    trigger: dict[str, Any] = {"processingTime": "0 seconds"} if is_endless else {"availableNow": True}
    queries = [
        _to_table(spark, address, source, directory, trigger),
        _to_topic(spark, address, source, sink, directory, trigger),
    ]
    print(COPYING, flush=True)
    for query in queries:
        query.awaitTermination()
    spark.stop()


def _from(spark: SparkSession, address: str, source: str, name: str, columns: str) -> Any:
    reading = spark.readStream.format("oncemq").options(address=address, subscribe=source, subscription=name, columns=columns)
    return reading.option("maxOffsetsPerTrigger", ROWS_PER_BATCH).option("minPartitions", 2).load()


def _to_table(spark: SparkSession, address: str, source: str, directory: Path, trigger: dict[str, Any]) -> StreamingQuery:
    rows = _from(spark, address, source, "copying-table", "offset,value")
    writing = rows.writeStream.format("parquet").option("path", str(directory / TABLE))
    query: StreamingQuery = writing.option("checkpointLocation", str(directory / "table-checkpoint")).trigger(**trigger).start()
    return query


def _to_topic(
    spark: SparkSession, address: str, source: str, sink: str, directory: Path, trigger: dict[str, Any]
) -> StreamingQuery:
    rows = _from(spark, address, source, "copying-topic", "value")
    writing = rows.writeStream.format("oncemq").options(address=address, topic=sink)
    query: StreamingQuery = writing.option("checkpointLocation", str(directory / "topic-checkpoint")).trigger(**trigger).start()
    return query


def table_values(directory: Path) -> list[tuple[int, bytes]]:
    """Return (offset, value) of every row of the table, as Spark sees it: files of failed attempts do not count."""
    spark = spark_session(master="local[2,4]", name="oncemq-copying")
    try:
        return [(row.offset, bytes(row.value)) for row in spark.read.parquet(str(directory / TABLE)).collect()]
    finally:
        spark.stop()


if __name__ == "__main__":
    end_with_starter()
    from_address, from_topic, to_topic, below, how_long = sys.argv[1:]
    copy_for_ever(from_address, from_topic, to_topic, Path(below), is_endless=how_long == "always")

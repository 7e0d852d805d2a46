# SPDX-License-Identifier: Apache-2.0
"""How fast Spark reads and writes topics: the three ways that matter, one pass each.

May not: warm anything up, or start a broker: whoever measures does.
The idea: a pass is a whole query from start to end, as a user would wait for it, and it is counted: a pass that moved another
number of rows than it should is an error, not a figure.
Next: cli/benchmarks/spark.py, which runs passes and reports.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from oncemq.errors import invariant
from oncemq.pipeline.session import spark_session


class SparkRig:
    """A Spark session beside a broker whose topic `source` holds `rows` messages; `sink` keeps what is written."""

    def __init__(self, address: str, source: str, sink: str, rows: int, *, master: str = "local[*]") -> None:
        self._address = address
        self._source = source
        self._sink = sink
        self._rows = rows
        self._passes = 0
        self._is_own = SparkSession.getActiveSession() is None
        self.spark: SparkSession = spark_session(master=master, name="oncemq-bench", memory="4g")

    def read_batch(self) -> float:
        """spark.read → noop; seconds."""
        started = time.perf_counter()
        self._from(self.spark.read).load().write.format("noop").mode("append").save()
        return time.perf_counter() - started

    def read_stream(self, directory: Path) -> float:
        """spark.readStream, available now → noop; seconds."""
        return self._stream(directory, "noop", {}, {})

    def write_stream(self, directory: Path) -> float:
        """spark.readStream, available now → the sink; seconds."""
        return self._stream(directory, "oncemq", {"columns": "key,value"}, {"address": self._address, "topic": self._sink})

    def _from(self, reading: Any, **options: str) -> Any:
        return reading.format("oncemq").options(address=self._address, subscribe=self._source, **options)

    def _stream(self, directory: Path, to: str, source: dict[str, str], sink: dict[str, str]) -> float:
        self._passes += 1
        name = f"pass-{self._passes}"
        started = time.perf_counter()
        rows = self._from(self.spark.readStream, subscription=name, **source).load()
        writing = rows.writeStream.format(to).options(**sink).option("checkpointLocation", str(directory / name))
        query: StreamingQuery = writing.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - started
        moved = sum(progress.numInputRows for progress in query.recentProgress)
        invariant(moved == self._rows, "a pass moved another number of rows", moved=moved, expected=self._rows)
        return seconds

    def close(self) -> None:
        """Stop Spark, unless it ran before."""
        if self._is_own:
            self.spark.stop()

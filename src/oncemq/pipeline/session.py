# SPDX-License-Identifier: Apache-2.0
"""A Spark session as the pipeline needs it: any master, UTC, few shuffle partitions, Java found by itself.

May not: keep anything; change a session that an application made itself, beyond what can be changed while it runs.
The idea: every setting here has a reason beside it. `format("oncemq")` works in any other session too, only slower where
the Arrow setting is missing.
Next: source.py, sink.py; docs/pipeline.md for tuning and clusters.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from oncemq.limits import SPARK_SHUFFLE_PARTITIONS
from oncemq.pipeline.java import java_home

SETTINGS: dict[str, str] = {
    "spark.sql.session.timeZone": "UTC",  # Publish times are instants; local time would make them ambiguous twice a year.
    "spark.sql.shuffle.partitions": str(SPARK_SHUFFLE_PARTITIONS),  # 200 by default, which ruins small stateful jobs.
    # Spark asks for the size of the whole Arrow batch after every row if this is bounded: quadratic for array columns
    # such as headers. Exactly this number is "unbounded"; batches are bounded by rows instead.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.ui.enabled": "false",  # A port and a hundred megabytes that a pipeline does not need.
    "spark.ui.showConsoleProgress": "false",  # Commands draw their own progress.
    "spark.sql.streaming.stateStore.providerClass": (  # transformWithState needs it, and a checkpoint pins it.
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def prepare_environment() -> None:
    """Have Spark find a Java that is new enough, and run its Python workers with this very Python."""
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def spark_session(
    *,
    master: str = "local[*]",
    name: str = "oncemq",
    memory: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a Spark session: the running one if there is one, else a new one at `master`.

    `settings` go over the pipeline's own. `memory` is the driver's ("4g"), which in local mode is all there is.
    """
    prepare_environment()
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # One machine: nothing has to listen outside.
    builder = SparkSession.builder.appName(name).master(master)
    wanted = SETTINGS | ({"spark.driver.memory": memory} if memory else {}) | dict(settings or {})
    for key, value in wanted.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session

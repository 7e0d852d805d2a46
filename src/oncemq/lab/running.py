# SPDX-License-Identifier: Apache-2.0
"""Trials as Spark tasks, and their traces as Parquet.

May not: know what a trial does.
The idea: one row of a range is one trial is one partition is one task, so Spark hands the next one to whichever core is free, on
any master. Trials with processes share this machine's ports and cores: they run in one task, one after the other.
Next: statistics.py, which sums the traces up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from oncemq.lab import real, simulated
from oncemq.lab.trials import REAL, Observation, Trial

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "experiment string, mode string, nodes int, seed int, measure string, at double, value double"
_LOOK_S = 0.5

Progress = Callable[[int], None]
"""Called with the number of trials that are done."""


def observe(trial: Trial) -> list[Observation]:
    """Run one trial here."""
    return list(real.run(trial) if trial.mode == REAL else simulated.run(trial))


def run_trials(spark: SparkSession, trials: Sequence[Trial], target: Path, progress: Progress) -> DataFrame:
    """Run all trials on Spark, keep what they saw in `target`, and return all that is there and beside it.

    Whatever other runs left beside it is drawn with it: processes beside simulations, large meshes beside small ones.
    """
    partitions = 1 if any(trial.mode == REAL for trial in trials) else len(trials)
    numbers = spark.range(0, len(trials), 1, partitions)
    frame = numbers.mapInArrow(partial(_run_numbers, tuple(trials)), SCHEMA)
    group = "oncemq experiment"
    with ThreadPoolExecutor(1) as pool:
        spark.sparkContext.setJobGroup(group, "trials")
        written = pool.submit(frame.write.mode("overwrite").parquet, str(target))
        while True:
            try:
                written.result(timeout=_LOOK_S)
                break
            except NotYet:
                progress(_tasks_done(spark, partitions))
    progress(len(trials))
    return spark.read.schema(SCHEMA).parquet(*sorted(str(each) for each in target.parent.iterdir()))


def _run_numbers(trials: tuple[Trial, ...], batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """One Spark task: these trials, by their numbers."""
    import pyarrow  # noqa: PLC0415 - on the worker

    names = Observation._fields
    types = (*[pyarrow.string()] * 2, *[pyarrow.int32()] * 2, pyarrow.string(), *[pyarrow.float64()] * 2)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            columns = list(zip(*observe(trials[number]), strict=True))
            arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            yield pyarrow.RecordBatch.from_arrays(arrays, names=list(names))


def _tasks_done(spark: SparkSession, partitions: int) -> int:
    """How many tasks of the stage that runs the trials are done."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return max((stage.numCompletedTasks for stage in stages if stage is not None and stage.numTasks == partitions), default=0)

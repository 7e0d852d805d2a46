# SPDX-License-Identifier: Apache-2.0
"""The kill matrix with a real Spark: whatever dies between two steps of a batch, the topic holds every row once.

| dies | between | cell |
|---|---|---|
| driver, kill -9 | tasks staged · commit at the broker | `staged` |
| driver, kill -9 | commit at the broker · Spark's commit log | `committed` |
| commit log | written · the next run (its last entry lost) | `commits/N` deleted |
| task | after it has written everything | fails at its last row, on its first attempt |
| broker | between two batches | stopped and started again on its directory |

`oncemq torture --spark` kills at random instants.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import oncemq
from tests.pipeline.driver_role import publish
from tests.pipeline.test_spark_source import forget_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real, pytest.mark.slow]
ROLE = Path(__file__).with_name("driver_role.py")
ROWS = [b"%d" % number for number in range(1_000)]
STEPS = ("staged", "committed")


class Stage:
    """One broker, and pairs of topics on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker = oncemq.Broker(directory / "data")
        self.address = self.broker.address

    def restart(self) -> None:
        self.broker.stop()
        self.broker = oncemq.Broker(self.directory / "data", self.address)

    def prepare(self, name: str) -> None:
        with oncemq.connect(self.address) as client:
            for topic in (name, f"{name}-copy"):
                client.admin.create_topic(topic, retain="forever")
            client.put_many(name, ROWS)

    def values(self, topic: str) -> list[bytes]:
        with oncemq.connect(self.address) as client:
            (info,) = client.admin.topics(topic)
            return [message.value for message in client.read(topic, 0, info.end)]

    def copy(self, spark: SparkSession, name: str) -> list[int]:
        query = publish(spark, self.address, name, f"{name}-copy", str(self.directory / f"{name}-checkpoint"))
        query.awaitTermination()
        return [progress.batchId for progress in query.recentProgress]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("kills"))
    yield made
    made.broker.stop()


@pytest.fixture(scope="module")
def killed(stage: Stage) -> Callable[[str], None]:
    """Start one driver per step, all at once, and kill each -9, with its JVM and its workers, when it has come that far."""
    drivers = {}
    for step in STEPS:
        stage.prepare(step)
        marker = stage.directory / f"{step}-marker"
        place = [stage.address, step, f"{step}-copy", str(stage.directory / f"{step}-checkpoint"), step, str(marker)]
        drivers[step] = subprocess.Popen([sys.executable, ROLE, *place], start_new_session=True, stderr=subprocess.DEVNULL)

    def kill(step: str) -> None:
        due = time.monotonic() + 240
        try:
            while not (stage.directory / f"{step}-marker").exists():
                assert time.monotonic() < due, "the driver never came that far"
                with suppress(subprocess.TimeoutExpired):
                    assert drivers[step].wait(0.2) is None, "the driver ended by itself"
        finally:
            os.killpg(drivers[step].pid, signal.SIGKILL)
            drivers[step].wait()

    return kill


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_killed_in_the_middle_of_a_batch(stage: Stage, spark: SparkSession, killed: Any, step: str) -> None:
    killed(step)
    seen = stage.values(f"{step}-copy")
    assert sorted(seen) == sorted(ROWS[: 400 if step == "staged" else 800]), "only committed batches are seen"

    assert stage.copy(spark, step) == [1, 2], "batch 1 runs again"

    assert sorted(stage.values(f"{step}-copy")) == sorted(ROWS)
    assert stage.values(f"{step}-copy")[: len(seen)] == seen, "what was seen stays where it was"


def test_a_lost_entry_of_the_commit_log_and_a_broker_that_restarts(stage: Stage, spark: SparkSession) -> None:
    stage.prepare("lost")
    assert stage.copy(spark, "lost") == [0, 1, 2]
    copied = stage.values("lost-copy")
    assert sorted(copied) == sorted(ROWS)

    forget_commit(stage.directory / "lost-checkpoint", 2)
    stage.restart()

    assert stage.copy(spark, "lost") == [2]
    assert stage.values("lost-copy") == copied


def test_a_task_that_fails_after_it_has_written_everything(stage: Stage, spark: SparkSession) -> None:
    stage.prepare("failing")

    def fail_at_the_end(batches: Any) -> Any:
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("this attempt fails with all its rows written")

    reading = spark.read.format("oncemq").option("address", stage.address).option("subscribe", "failing")
    rows = reading.option("minPartitions", "2").option("columns", "value").load()
    rows = rows.mapInArrow(fail_at_the_end, rows.schema)
    rows.write.format("oncemq").option("address", stage.address).option("topic", "failing-copy").mode("append").save()

    assert sorted(stage.values("failing-copy")) == sorted(ROWS)

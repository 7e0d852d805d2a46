# SPDX-License-Identifier: Apache-2.0
"""The kill matrix with a real Spark: whatever dies between two steps of a batch, the topic holds every row once.

| dies | between | cell |
|---|---|---|
| driver, kill -9 | Spark's offset log · the first task | `planned` |
| driver, kill -9 | one task staged · the other one | `half-staged` |
| driver, kill -9 | all tasks staged · commit at the broker | `staged` |
| driver, kill -9 | commit at the broker · Spark's commit log | `committed` |
| driver, kill -9 | Spark's commit log · the offset log of the next batch | `logged` |
| driver, kill -9 | that offset log · the source's commit of this batch | `ended` |
| driver, kill -9 | the source's commit · the tasks of the next batch | `released` |
| commit log | written · the next run (its last entry lost) | `commits/N` deleted |
| task | after it has written everything | fails at its last row, on its first attempt |
| broker | between two batches | stopped and started again on its directory |

An executor that dies and an attempt that loses against a speculative one need a cluster: test_cluster.py.
`oncemq torture --spark` kills at random instants.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import oncemq
from oncemq.cli.torturing.spark import kill_session
from tests.pipeline.driver_role import STEPS, publish
from tests.pipeline.test_spark_source import forget_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real, pytest.mark.slow]
ROLE = Path(__file__).with_name("driver_role.py")
ROWS = [b"%d" % number for number in range(1_000)]
PUBLISHED = {"planned": 400, "half-staged": 400, "staged": 400} | dict.fromkeys(STEPS[3:], 800)
"""How many rows are to be seen when the driver has died."""
RUN_AGAIN = {step: [1, 2] if step in STEPS[:4] else [2] for step in STEPS}
"""The batches that the next driver runs."""


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
        query = publish(spark, self.address, name, self.directory)
        query.awaitTermination()
        return [progress.batchId for progress in query.recentProgress]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("kills"))
    yield made
    made.broker.stop()


@pytest.fixture(scope="module")
def killed(stage: Stage) -> Stage:
    """One driver, whose queries have come to one step each; kill -9 to it, its JVM and its workers."""
    for step in STEPS:
        stage.prepare(step)
    with (stage.directory / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, ROLE, stage.address, stage.directory], start_new_session=True, stdout=log, stderr=log
        )
    due, waiting = time.monotonic() + 480, set(STEPS)
    try:
        while waiting:
            waiting = {step for step in waiting if not (stage.directory / f"{step}-marker").exists()}
            log_text = (stage.directory / "driver.log").read_text()
            assert time.monotonic() < due, f"the driver never came to {waiting}:\n{log_text}"
            with suppress(subprocess.TimeoutExpired):
                assert driver.wait(0.1) is None, f"the driver ended by itself:\n{log_text}"
    finally:
        kill_session(driver)
    return stage


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_killed_between_two_steps_of_a_batch(killed: Stage, spark: SparkSession, step: str) -> None:
    seen = killed.values(f"{step}-copy")
    assert sorted(seen) == sorted(ROWS[: PUBLISHED[step]]), "only committed batches are seen"

    assert killed.copy(spark, step) == RUN_AGAIN[step]

    assert sorted(killed.values(f"{step}-copy")) == sorted(ROWS)
    assert killed.values(f"{step}-copy")[: len(seen)] == seen, "what was seen stays where it was"


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

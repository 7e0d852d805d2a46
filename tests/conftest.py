# SPDX-License-Identifier: Apache-2.0
"""What every test relies on: Ctrl-C reaches what they start, drawn examples may take their time, and there is one Spark."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A busy machine is slow, not wrong: what takes time here is the machine's other work.
settings.register_profile("oncemq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("oncemq")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A background job of a shell ignores Ctrl-C, and so would every process it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = (
    "tests/real/test_kill_anything.py",
    "tests/bench/test_commands.py",
    "tests/real/test_demo.py",
    "tests/pipeline/test_cluster.py",
    "tests/real/test_crash_points_d0.py",
    "tests/pipeline/test_spark_kills.py",
    "tests/pipeline/test_archive.py",
    "tests/pipeline/test_audit_stream.py",
    "tests/cli/test_sim.py",
    "tests/lab/test_experiments.py",
)
"""Files that take longest, whatever the number of their tests: they begin first, so that no worker is left alone with one."""

BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for a minute has no use for its second compiler, nor for a collector with threads of its own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(LONG)))


@pytest.fixture(scope="session", autouse=True)
def _java_leaves_nothing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Temporary files of every JVM go where those of its tests go: a JVM that is killed takes none of them away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", f"-Djava.io.tmpdir={tmp_path_factory.mktemp('java')}")
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One JVM for all tests that need Spark; `local[2,4]`, so that failed tasks are tried again."""
    from oncemq.pipeline.session import spark_session

    place = tmp_path_factory.mktemp("spark")
    session = spark_session(
        master="local[2,4]",
        name="oncemq-tests",
        settings={
            "spark.driver.extraJavaOptions": BRIEF_JAVA,
            "spark.sql.warehouse.dir": str(place / "warehouse"),
        },
    )
    yield session
    session.stop()

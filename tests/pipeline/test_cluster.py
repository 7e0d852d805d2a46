# SPDX-License-Identifier: Apache-2.0
"""The `spark-submit` of docs/pipeline.md on a real cluster: an executor dies, an attempt loses against a speculative one."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

import oncemq
from tests.bench.harness import is_alive
from tests.conftest import BRIEF_JAVA
from tests.pipeline.cluster import Cluster

pytestmark = [pytest.mark.real, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
ROWS = [b"%d" % number for number in range(1_000)]
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",  # Of two tasks one has to be done before the other is slow.
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": BRIEF_JAVA,
    "spark.ui.enabled": "false",
}
"""What the page does not say: the smallest cluster there is, and one that speculates early."""


def submitted(master: str, *words: str) -> list[str]:
    """The command of the page, for this cluster and this Python."""
    (block,) = re.findall(r"^```sh\n(spark-submit .*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    text = block.replace("spark://host:7077", master).replace("/opt/venv/bin/python", sys.executable)
    program, *command = shlex.split(text.replace("\\\n", " "))
    assert command.pop() == "job.py"
    executors = {"spark.executor.extraJavaOptions": f"{BRIEF_JAVA} {os.environ['SPARK_SUBMIT_OPTS']}"}
    more = [word for name, value in (SETTINGS | executors).items() for word in ("--conf", f"{name}={value}")]
    return [str(Path(sys.executable).with_name(program)), *command, *more, *words]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the job has run, and left what it had to say."""
    directory = tmp_path_factory.mktemp("cluster")
    with oncemq.Broker(directory / "data") as broker, oncemq.connect(broker.address) as client, Cluster(directory) as cluster:
        for topic in ("streamed", "written"):
            client.admin.create_topic(f"{topic}-copy", retain="forever")
            client.admin.create_topic(topic, retain="forever")
            client.put_many(topic, ROWS)
        command = submitted(cluster.address, str(Path(__file__).with_name("cluster_job.py")), broker.address, str(directory))
        code, log = cluster.run(command)
        assert code == 0, log[-5_000:]
        for topic in ("streamed", "written"):
            values = [message.value for message in client.read(f"{topic}-copy", 0, 10**6)]
            (directory / topic).write_bytes(b"\n".join(values))
    return directory


def test_an_executor_that_dies_with_everything_staged_changes_nothing(place: Path) -> None:
    assert not is_alive(int((place / "killed").read_text()))
    assert sorted((place / "streamed").read_bytes().split(b"\n")) == sorted(ROWS)


def test_of_two_attempts_of_a_task_one_counts_though_both_have_staged_everything(place: Path) -> None:
    assert int((place / "lingering").read_text()) == len(ROWS) // 2
    assert sorted((place / "written").read_bytes().split(b"\n")) == sorted(ROWS)

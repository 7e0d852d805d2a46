# SPDX-License-Identifier: Apache-2.0
"""A real standalone cluster on loopback: one master, two workers of one core each, as `spark-class` of the wheel starts them.

May not: listen anywhere else, or leave a process behind.
The idea: every worker has an address of its own (127.0.0.1, 127.0.0.2), because Spark never speculates on the host that is slow.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from oncemq.cli.torturing.spark import kill_session
from oncemq.pipeline.session import prepare_environment
from tests.conftest import BRIEF_JAVA

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
HOSTS = ("127.0.0.1", "127.0.0.2")
DEADLINE_S = 240.0
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = ""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        prepare_environment()
        with self._stack:
            master = ["org.apache.spark.deploy.master.Master", "--host", HOSTS[0], "--port", "0", "--webui-port", "0"]
            self.address = self._address(self._start("master", HOSTS[0], SPARK_CLASS, *master))
            for host in HOSTS:
                name = f"worker-{host}"
                resources = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.directory / name)]
                place = ["--host", host, "--webui-port", "0", *resources, self.address]
                self._start(name, host, SPARK_CLASS, "org.apache.spark.deploy.worker.Worker", *place)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def run(self, command: list[str]) -> tuple[int, str]:
        """Run a command beside the cluster to its end; return exit code and log."""
        process = self._start("job", HOSTS[0], *command)
        return process.wait(DEADLINE_S), self.log("job").read_text()

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _start(self, name: str, host: str, *command: str | Path) -> subprocess.Popen[bytes]:
        java = f"{BRIEF_JAVA} {os.environ['SPARK_SUBMIT_OPTS']}"
        environment = {"SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": java}
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log, start_new_session=True)
        self._stack.callback(kill_session, process)
        return process

    def _address(self, master: subprocess.Popen[bytes]) -> str:
        """Wait until the master says where it is."""
        due = time.monotonic() + DEADLINE_S
        while (found := _STARTED.search(self.log("master").read_text())) is None:
            assert time.monotonic() < due, self.log("master").read_text()
            with suppress(subprocess.TimeoutExpired):
                assert master.wait(0.1) is None, self.log("master").read_text()
        return found.group(1)

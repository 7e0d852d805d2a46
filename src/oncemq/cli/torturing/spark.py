# SPDX-License-Identifier: Apache-2.0
"""`oncemq torture --spark`: a Spark driver, its workers and the broker are killed at random while they copy a topic.

May not: know what Spark or the broker are doing when it strikes; leave a process behind.
The idea: numbered messages go in; a table and a second topic come out. After all kills the driver is let alone until it has
caught up, and both must hold every message once, the table at its own offset. Whatever dies, dies by kill -9: the driver with
its JVM, one Python worker, or the broker.
Next: pipeline/copying.py for the driver; docs/pipeline.md for why this must hold.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import oncemq
from oncemq.adapters.starter import ends_with_us
from oncemq.cli.benchmarks.workplace import end_process, read_first_line
from oncemq.cli.signals import uninterrupted
from oncemq.errors import PutPending, UsageError

SOURCE, SINK = "spark-in", "spark-out"
COPYING = "copying\n"
"""What a driver writes to its log once it is at work (pipeline/copying.py)."""
VICTIMS = ("driver", "worker", "broker")
_PUT_MESSAGES = 100
_CALM_S_MAX = 6.0
_START_S_MAX = 120.0
_CATCH_UP_S = 600.0


@dataclass(frozen=True, slots=True)
class SparkVerdict:
    """What one run came to. Lost and twice count over table and topic together."""

    kills: int
    driver_kills: int
    worker_kills: int
    broker_kills: int
    messages: int
    table_rows: int
    topic_rows: int
    lost: int
    twice: int
    misplaced: int
    seconds: float
    seed: int

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.twice or self.misplaced)


class SparkTorture:
    """One run in one directory. `on_step` is told how many kills there were, and the last victim."""

    def __init__(self, directory: Path, kills: int, seed: int, on_step: Callable[[int, str], None]) -> None:
        self._directory = directory
        self._kills = kills
        self._seed = seed
        self._on_step = on_step
        self._random = Random(seed)  # noqa: S311 - to be drawn again from the same seed
        self._tally: Counter[str] = Counter()
        self._stack = ExitStack()
        self._put = 0
        self._at_work = 0
        """How often a driver before this one has said that it is at work."""
        self._address = "tcp://127.0.0.1:*"
        self._broker: subprocess.Popen[str] | None = None
        self._driver: subprocess.Popen[bytes] | None = None

    def run(self) -> SparkVerdict:
        started = time.monotonic()
        with self._stack:
            self._start_broker()
            client = self._stack.enter_context(oncemq.connect(self._address, id="feeder", state=self._directory / "feeder"))
            for topic in (SOURCE, SINK):
                client.admin.create_topic(topic, retain="forever")
            self._start_driver("always")
            for number in range(self._kills):
                self._await_copying(client)
                self._calm(client)
                victim = self._random.choice(VICTIMS)
                self._strike(victim)
                self._on_step(number + 1, victim)
            self._finish(client)
            return self._judge(client, time.monotonic() - started)

    # --- processes -----------------------------------------------------------------------------------

    def _start_broker(self) -> None:
        command = [sys.executable, "-m", "oncemq", "serve", str(self._directory / "broker"), "--address", self._address]
        command += ["--json", "--log-level", "warning"]
        with uninterrupted():  # Or a process that runs is not known here, and nobody ends it; so is it with the driver.
            self._broker = subprocess.Popen(  # noqa: S603 - our own interpreter
                command, stdout=subprocess.PIPE, env=os.environ | ends_with_us(), text=True, start_new_session=True
            )
            self._stack.callback(end_process, self._broker)
        self._address = str(read_first_line(self._broker)["address"])

    def _start_driver(self, how_long: str) -> None:
        place = (self._address, SOURCE, SINK, str(self._directory), how_long)
        log = self._stack.enter_context((self._directory / "driver.log").open("ab"))
        self._at_work = (self._directory / "driver.log").read_bytes().count(COPYING.encode())
        command = [sys.executable, "-m", "oncemq.pipeline.copying", *place]
        with uninterrupted():
            self._driver = subprocess.Popen(  # noqa: S603 - our own interpreter
                command, stdout=log, stderr=log, env=os.environ | ends_with_us(), start_new_session=True
            )
            self._stack.callback(kill_session, self._driver)

    # --- what happens --------------------------------------------------------------------------------

    def _await_copying(self, client: oncemq.Client) -> None:
        """Mostly wait until the driver is at work, so that there is work to be killed in; sometimes strike while it starts."""
        until = time.monotonic() + (_START_S_MAX if self._random.random() < 0.8 else 0)
        log = self._directory / "driver.log"
        while time.monotonic() < until and log.read_bytes().count(COPYING.encode()) < self._at_work + 1:
            self._feed(client)
            if self._driver is not None and self._driver.poll() is not None:
                self._start_driver("always")

    def _calm(self, client: oncemq.Client) -> None:
        """Put messages for a while. A driver that ended by itself, because its broker was away too long, is started again."""
        until = time.monotonic() + self._random.random() * _CALM_S_MAX
        while time.monotonic() < until:
            self._feed(client)
        if self._driver is not None and self._driver.poll() is not None:
            self._start_driver("always")

    def _feed(self, client: oncemq.Client) -> None:
        values = [b"%d" % number for number in range(self._put, self._put + _PUT_MESSAGES)]
        with suppress(PutPending):
            client.put_many(SOURCE, values)
        self._put += _PUT_MESSAGES
        time.sleep(0.2)

    def _strike(self, victim: str) -> None:
        if victim == "worker" and not self._kill_worker():
            victim = "driver"  # It has none yet.
        if victim == "driver" and self._driver is not None:
            kill_group(self._driver)
            self._start_driver("always")
        elif victim == "broker" and self._broker is not None:
            self._broker.kill()
            end_process(self._broker)
            self._start_broker()
        self._tally[victim] += 1

    def _kill_worker(self) -> bool:
        """Kill one Python process below the driver's JVM."""
        if self._driver is None:
            return False
        workers = [pid for pid in group_of(self._driver.pid) if b"pyspark" in command_of(pid)]
        if not workers:
            return False
        with suppress(ProcessLookupError):
            os.kill(self._random.choice(workers), signal.SIGKILL)
        return True

    # --- the end -------------------------------------------------------------------------------------

    def _finish(self, client: oncemq.Client) -> None:
        """Have everything confirmed, then let one undisturbed driver catch up."""
        while client.pending:
            with suppress(PutPending):
                client.flush()
        if self._driver is not None:
            kill_group(self._driver)
        self._start_driver("now")
        if self._driver is not None and self._driver.wait(_CATCH_UP_S) != 0:
            raise UsageError(f"the last driver failed: see {self._directory / 'driver.log'}")

    def _judge(self, client: oncemq.Client, seconds: float) -> SparkVerdict:
        from oncemq.pipeline.copying import table_values

        expected = {message.offset: message.value for message in client.read(SOURCE, 0, self._end(client, SOURCE))}
        table = table_values(self._directory)
        topic = Counter(message.value for message in client.read(SINK, 0, self._end(client, SINK)))
        rows = Counter(value for _, value in table)
        values = Counter(expected.values())
        return SparkVerdict(
            kills=sum(self._tally.values()),
            driver_kills=self._tally["driver"],
            worker_kills=self._tally["worker"],
            broker_kills=self._tally["broker"],
            messages=len(expected),
            table_rows=len(table),
            topic_rows=topic.total(),
            lost=(values - rows).total() + (values - topic).total(),
            twice=(rows - values).total() + (topic - values).total(),
            misplaced=sum(expected.get(offset) != value for offset, value in table),
            seconds=round(seconds, 1),
            seed=self._seed,
        )

    def _end(self, client: oncemq.Client, topic: str) -> int:
        (info,) = client.admin.topics(topic)
        return info.end


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """kill -9 to a driver and its JVM. Its workers are in a group of their own and notice by themselves, a little later."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """The same to everything that it started."""
    members = group_of(process.pid)
    kill_group(process)
    for pid in members:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def group_of(leader: int) -> list[int]:
    """The processes of the session that this process leads."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if os.getsid(int(entry.name)) == leader:
                    found.append(int(entry.name))
    return found


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""

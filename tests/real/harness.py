# SPDX-License-Identifier: Apache-2.0
"""Real processes for tests: a broker that can be killed and started again, clients that die where they are told to.

May not: end a process it did not start; wait without a deadline.
The idea: a `Stage` is one directory with one broker, any number of publishers and subscribers, and their facts. Tests say
who dies where (`crash_at="broker.after_sync:2"`), start whoever died again, and finally compare what was put, what is
stored and what each subscriber got.
Next: roles.py for what the clients do, test_crash_points_d0.py for the smallest use.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import oncemq
from oncemq.adapters.crash_hook import EXIT_CODE, VARIABLE
from oncemq.cli.torturing.ports import reserve_port
from oncemq.limits import MIB
from tests.real import roles

DEADLINE_S = 120.0
"""No single wait of a test takes longer on the slowest machine we know, with five times as much to do."""
SOURCES = Path(oncemq.__file__).resolve().parents[1]
CLOSE_WAIT = "08"


def until(condition: Callable[[], bool], what: str, *, within_s: float = DEADLINE_S) -> None:
    """Wait for a condition; fail with `what` if it does not come true in time."""
    due = time.monotonic() + within_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < due, f"waited {within_s} s in vain: {what}"
        pause.wait(0.005)


def connections_given_up(port: int) -> int:
    """How many connections to a port were closed by the other side while nobody here looked."""
    tables = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
    rows = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return sum(int(row[1].rpartition(":")[2], 16) == port and row[3] == CLOSE_WAIT for row in rows)


# --- processes ------------------------------------------------------------------------------------------


class Process:
    """One process of ours, known by its pid."""

    def __init__(self, command: list[str], log: Path, *, crash_at: str = "") -> None:
        environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
        environment.pop(VARIABLE, None)
        if crash_at:
            environment[VARIABLE] = crash_at
        self._log = log
        with log.open("ab") as errors:
            self._child = subprocess.Popen(
                [sys.executable, *command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )
        self.pid = self._child.pid

    def first_line(self) -> bytes:
        """The first line it prints; empty if it died before."""
        return self._child.stdout.readline() if self._child.stdout is not None else b""

    @property
    def is_alive(self) -> bool:
        return self._child.poll() is None

    def wait(self) -> int:
        """Wait for its end and return its exit code, negative for a signal."""
        try:
            return self._child.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"process {self.pid} does not end:\n{self.log}") from None

    def wait_for_crash(self) -> None:
        """Wait until it died at the crash point it was given."""
        code = self.wait()
        assert code == EXIT_CODE, f"ended with {code} instead of dying at its crash point:\n{self.log}"

    def wait_for_success(self) -> None:
        code = self.wait()
        assert code == 0, f"ended with {code}:\n{self.log}"

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def kill(self) -> None:
        """As abrupt as it gets; waits until it is gone."""
        if self.is_alive:
            self.signal(signal.SIGKILL)
        self._child.wait(DEADLINE_S)

    def close(self) -> None:
        self.kill()
        if self._child.stdout is not None:
            self._child.stdout.close()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")[-2_000:]


class BrokerProcess:
    """A broker in a process of its own, at one address and over one directory for all its lives."""

    def __init__(self, directory: Path, *, segment_bytes: int = 8 * MIB) -> None:
        self.directory = directory
        self.port = reserve_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.starts = 0
        self._segment_bytes = segment_bytes
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None, "the broker was never started"
        return self._process

    def start(self, *, crash_at: str = "", may_die: bool = False) -> bool:
        """Start it and wait until it listens; False if it `may_die` and died before."""
        if self._process is not None:
            self._process.close()
        self._process = Process(self._command(), self.directory.with_suffix(".log"), crash_at=crash_at)
        self.starts += 1
        line = self._process.first_line()
        assert line or may_die, f"the broker did not start:\n{self._process.log}"
        if line:
            assert json.loads(line)["address"] == self.address
        return bool(line)

    def _command(self) -> list[str]:
        options = ["--address", self.address, "--segment-size", f"{self._segment_bytes}B", "--json"]
        return ["-m", "oncemq", "serve", str(self.directory), *options]

    def kill(self) -> None:
        self.process.kill()

    def stop(self) -> None:
        """End it cleanly."""
        self.process.signal(signal.SIGTERM)
        self.process.wait_for_success()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have it neither receive nor answer, while its connections stay."""
        self.process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.signal(signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()


# --- facts ----------------------------------------------------------------------------------------------


class Got(NamedTuple):
    offset: int
    topic: str
    value: str


@dataclass(frozen=True)
class Done:
    """A put as its publisher saw it confirmed. `offset` is None where only a flush confirmed it."""

    number: int
    offset: int | None
    duplicate: bool


class Facts:
    """What a role wrote down, over all its lives."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, word: str) -> list[list[str]]:
        """The rest of every line that begins with a word."""
        if not self.path.exists():
            return []
        whole = self.path.read_text().rpartition("\n")[0]
        lines = [line.split() for line in whole.splitlines()]
        return [line[1:] for line in lines if line and line[0] == word]

    def has(self, line: str) -> bool:
        word, *rest = line.split()
        return rest in self.rows(word)

    def tried(self) -> list[int]:
        return [int(row[0]) for row in self.rows("try")]

    def done(self) -> list[Done]:
        return [Done(int(row[0]), None if row[1] == "?" else int(row[1]), row[2] == "1") for row in self.rows("done")]

    def got(self) -> list[Got]:
        return [Got(int(row[0]), row[1], row[2]) for row in self.rows("got")]

    def doubts(self) -> list[tuple[int, int, str]]:
        return [(int(row[0]), int(row[1]), row[2]) for row in self.rows("doubt")]


# --- the stage ------------------------------------------------------------------------------------------


class Stage:
    """One broker, its clients, and everything they wrote down. Use the `stage` fixture."""

    def __init__(self, directory: Path, *, segment_bytes: int = 8 * MIB) -> None:
        self.directory = directory
        self.broker = BrokerProcess(directory / "broker", segment_bytes=segment_bytes)
        self._processes: list[Process] = []

    def role(self, role: str, name: str, *options: str, crash_at: str = "") -> Process:
        """Start a client process; a second start of the same name is the same client with the same state."""
        paths = ["--state", str(self.directory / f"{name}.state"), "--facts", str(self.facts(name).path)]
        command = [roles.__file__, role, "--address", self.broker.address, "--id", name, *paths, *options]
        process = Process(command, self.directory / f"{name}.log", crash_at=crash_at)
        self._processes.append(process)
        return process

    def publisher(self, first: int, last: int, *options: str, name: str = "publisher", crash_at: str = "") -> Process:
        return self.role("publish", name, "--first", str(first), "--last", str(last), *options, crash_at=crash_at)

    def subscriber(self, *options: str, name: str = "subscriber", crash_at: str = "") -> Process:
        """Start a subscriber and wait until its subscription is there (or it died)."""
        process = self.role("subscribe", name, *options, crash_at=crash_at)
        until(lambda: bool(self.facts(name).rows("subscribed")) or not process.is_alive, f"{name} subscribes")
        return process

    def facts(self, name: str) -> Facts:
        return Facts(self.directory / f"{name}.facts")

    @contextmanager
    def client(self, **options: object) -> Iterator[oncemq.Client]:
        """A client of the test itself, for administration and reading."""
        with oncemq.connect(self.broker.address, **options) as client:  # type: ignore[arg-type]
            yield client

    def keep_everything(self, *topics: str) -> None:
        """Have the broker keep every message for ever, so that `stored` can be asked at the end."""
        with self.client() as client:
            for topic in topics or ("t",):
                client.admin.create_topic(topic, retain="forever")

    def put_end(self, topic: str = "t") -> None:
        """Put the message after which subscribers go home."""
        with self.client() as client:
            client.put(topic, roles.END)

    def stored(self, topic: str = "t") -> list[str]:
        """Every value stored in a topic, in order, as the broker has it now."""
        with self.client() as client:
            end = next(info.end for info in client.topics() if info.topic == topic)
            values = [message.value.rstrip(b".").decode() for message in client.read(topic, 0, end)]
        assert len(values) == end
        return values

    def close(self) -> None:
        for process in self._processes:
            process.close()
        self.broker.close()

    # --- what must hold in the end ----------------------------------------------------------------------

    def assert_got_once(self, subscriber: str = "subscriber", topic: str = "t") -> list[str]:
        """The subscriber has every stored message, each once, in offset order; return their values without the end."""
        stored = self.stored(topic)
        got = [entry for entry in self.facts(subscriber).got() if entry.topic == topic]
        assert [entry.value for entry in got] == stored
        assert [entry.offset for entry in got] == list(range(len(stored)))
        return [value for value in stored if value != roles.END.decode()]

    def assert_stored_once(self, numbers: range, publisher: str = "publisher", topic: str = "t") -> None:
        """Exactly these numbers of a publisher are stored, each once, in the order they were put."""
        stored = [value for value in self.stored(topic) if value.startswith(f"{publisher}:")]
        assert stored == [f"{publisher}:{number}" for number in numbers]

    def assert_confirmed_is_stored(self, publisher: str = "publisher", topic: str = "t") -> None:
        """Whatever a publisher was told is stored is there once, at the offset it was told; nothing was invented."""
        facts, stored = self.facts(publisher), self.stored(topic)
        mine = [value for value in stored if value.startswith(f"{publisher}:")]
        assert not {value: count for value, count in Counter(mine).items() if count > 1}
        tried = [f"{publisher}:{number}" for number in facts.tried()]
        there = set(mine)
        assert mine == [value for value in tried if value in there], "order, and nothing that was never tried"
        for done in facts.done():
            assert f"{publisher}:{done.number}" in there
            assert done.offset is None or stored[done.offset] == f"{publisher}:{done.number}"

# SPDX-License-Identifier: Apache-2.0
"""Where a benchmark runs: a temporary directory on a named disk, a broker process of its own, clients with everything on.

May not: leave anything behind. Processes, clients and files go when the workplace is left, also by Ctrl-C, SIGTERM or SIGHUP.
The idea: the broker is `oncemq serve` as anybody starts it, in a session of its own, so that a Ctrl-C at the terminal reaches
only us and we end it by its process id.
Next: puts.py, the simplest benchmark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import oncemq
from oncemq.adapters.starter import ends_with_us
from oncemq.cli.signals import StopAsked, uninterrupted

TOPIC = "bench"
VALUES_KEPT = 1_000
"""Different values of one run; they are put over and over again."""
_STOP_SECONDS_MAX = 30
_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


class BrokerProcess:
    """A broker in a process of its own, which is ready once this is made."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        first_line = read_first_line(process)
        self.address = str(first_line["address"])
        self.pid = int(str(first_line["pid"]))

    def rss_bytes(self) -> int:
        """How much memory it has right now."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise oncemq.UsageError("this system does not tell how much memory a process has")

    def kill(self) -> None:
        kill_process(self._process)


def read_first_line(process: subprocess.Popen[str]) -> dict[str, object]:
    """Wait for what a process says of itself once it is ready: one JSON object in one line."""
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        raise oncemq.UsageError(f"the process {process.args!r} ended with exit code {process.wait()} before it was ready")
    found: dict[str, object] = json.loads(line)
    return found


def end_process(process: subprocess.Popen[str]) -> None:
    """Ask a process to stop, and make it stop if it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def kill_process(process: subprocess.Popen[str]) -> None:
    """End a process as abruptly as it gets: kill -9."""
    process.kill()
    end_process(process)


class Workplace:
    """A directory on the disk that is measured; use `workplace()`."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.file_system = file_system_of(directory)
        self._stack = stack
        self._clients = 0

    @property
    def is_in_memory(self) -> bool:
        """Whether a sync costs nothing here, so that figures mean little."""
        return self.file_system.split()[0] in _MEMORY_FILE_SYSTEMS

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a process, with its standard output in our hands; it is ended at the end."""
        with uninterrupted():  # A process that is started and not yet known here would stay for ever.
            environment = os.environ | ends_with_us()
            process = subprocess.Popen(  # noqa: S603 - our own programs
                command, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
            )
            self._stack.callback(end_process, process)
        return process

    def start_python(self, *arguments: str) -> subprocess.Popen[str]:
        """Start this interpreter again."""
        return self.start(sys.executable, *arguments)

    def start_broker(self) -> BrokerProcess:
        """Start a broker on the one broker directory of this workplace."""
        where = ("--address", "tcp://127.0.0.1:*", "--json", "--log-level", "warning")
        return BrokerProcess(self.start_python("-m", "oncemq", "serve", str(self.directory / "broker"), *where))

    def connect(self, broker: BrokerProcess) -> oncemq.Client:
        """Return a new client with everything on: an id, a state directory on the same disk, outbox and slots."""
        self._clients += 1
        name = f"client-{self._clients}"
        client = oncemq.connect(broker.address, id=name, state=self.directory / name)
        # Not close(): after Ctrl-C a client may be in the middle of anything, and its directory goes anyway.
        self._stack.callback(client._abandon)
        return client

    def subscribe(self, broker: BrokerProcess, topics: Sequence[str] = (TOPIC,)) -> oncemq.Client:
        """Return a subscriber, so that what is put is stored."""
        client = self.connect(broker)
        for topic in topics:
            client.subscribe(topic)
        return client

    def settle(self) -> None:
        """Let the disk finish what earlier work left to it, files that were removed included."""
        os.sync()


@contextmanager
def workplace(directory: Path) -> Iterator[Workplace]:
    """Make a temporary directory below `directory`; leave nothing of it behind."""
    with (
        _interruptible() as until_the_end,
        TemporaryDirectory(prefix="oncemq-bench-", dir=directory) as name,
        ExitStack() as stack,
    ):
        try:
            yield Workplace(Path(name), stack)
        finally:
            until_the_end.enter_context(StopAsked())  # A second Ctrl-C must not leave half of it behind.


@contextmanager
def _interruptible() -> Iterator[ExitStack]:
    """Have whatever asks this process to end do what Ctrl-C does; the stack is left before that is over."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with ExitStack() as stack:
            yield stack
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def file_system_of(directory: Path) -> str:
    """Name the file system of a directory and what it is on, for example "ext4 on /dev/vda"."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    device = directory.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in reversed(lines):
        fields, _, described = line.partition(" - ")
        if fields.split()[2] == wanted:
            kind, source = described.split()[:2]
            return f"{kind} on {source}"
    return "unknown"


def values_of(size_bytes: int) -> list[bytes]:
    """Values that differ, so that nothing on the way can profit from their being the same."""
    return [os.urandom(size_bytes) for _ in range(VALUES_KEPT)]


def repeated(values: list[bytes], count: int) -> list[bytes]:
    """The first `count` values of an endless repetition."""
    return (values * (count // len(values) + 1))[:count]


def shares(count: int, rounds: int) -> list[int]:
    """Cut a count into up to `rounds` shares of almost the same size, none of them empty."""
    rounds = min(count, rounds)
    return [count // rounds + (index < count % rounds) for index in range(rounds)]

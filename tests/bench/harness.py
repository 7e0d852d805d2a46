# SPDX-License-Identifier: Apache-2.0
"""Benchmarks as processes: run to the end, or interrupted on the way.

May not: judge a speed; sleep; end a process it did not start.
Next: test_commands.py.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import oncemq

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(oncemq.__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers.py"
DEADLINE_S = 120.0


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with these words and return what it left."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env=_environment(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def figures_of(*words: str | Path) -> dict[str, Any]:
    """Run a benchmark and return the one JSON object it prints."""
    ended = run(*words)
    assert ended.returncode == 0, ended.stderr
    (line,) = ended.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


class Running:
    """A benchmark that is on its way, and every process it was seen to start."""

    def __init__(self, *words: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            env=_environment({}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.children: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is not None:
            return
        self._look()
        self.process.kill()
        for pid in self.children:  # They hold our pipes open: without this the next line would wait for them.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate(timeout=DEADLINE_S)

    def wait_until(self, is_so: Callable[[Self], bool]) -> None:
        """Look until it is so, and remember the processes seen meanwhile."""
        due, pause = time.monotonic() + DEADLINE_S, select.poll()
        while not is_so(self):
            assert time.monotonic() < due, "waited in vain"
            assert self.process.poll() is None, f"it ended before: {self.process.communicate()}"
            self._look()
            pause.poll(5)
        self._look()

    def end(self) -> tuple[int, str, str]:
        """Wait for its end: exit code, stdout, stderr."""
        out, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out, errors

    def _look(self) -> None:
        pid = self.process.pid
        self.children |= set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def is_alive(pid: int) -> bool:
    """Whether a process still runs; one that is only waiting to be noticed does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _environment(more: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCES), **more}

# SPDX-License-Identifier: Apache-2.0
"""Running commands, in this process or as processes of their own, and waiting for what they do.

May not: sleep. `wait_until` looks again and again until a deadline.
The idea: `Shell` runs a command as `main` would, in this process, and keeps what it wrote: quick, and everything but the
process is real. `Program` is a process, for whatever needs signals, pipes or an end.
Next: conftest.py for the fixtures.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oncemq.cli.main import run

DEADLINE_S = 120.0
"""A machine with five times as much to do takes five times as long; what hangs, hangs longer than that."""


@dataclass(frozen=True)
class Ended:
    """What a command left."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        assert len(self.lines) == 1, self
        return json.loads(self.text)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    @property
    def error(self) -> Any:
        """The last JSON object on stderr."""
        return json.loads(self.err.splitlines()[-1])


class Shell:
    """Runs commands in this process, against one broker."""

    def __init__(self, capture: pytest.CaptureFixture[bytes], address: str = "") -> None:
        self._capture = capture
        self.address = address

    def __call__(self, *arguments: str | Path, local: bool = False) -> Ended:
        """Run one command; `local` ones are about a directory and take no address."""
        self._capture.readouterr()
        reaching = [] if local else ["--address", self.address]
        handlers = list(logging.getLogger("oncemq").handlers)
        code = run([*map(str, arguments), *reaching])
        logging.getLogger("oncemq").handlers[:] = handlers  # `serve` logs to a stderr that is gone after this test.
        out, err = self._capture.readouterr()
        return Ended(code, out, err.decode())


class Program:
    """One `oncemq` process."""

    def __init__(self, *arguments: str | Path, stdin: int | None = subprocess.DEVNULL, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "oncemq", *map(str, arguments)],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # A line that waits in a buffer of ours would not be seen by select.
            env={**os.environ, **environment},
        )

    def line(self) -> str:
        """Its next line on stdout."""
        out = self.process.stdout
        assert out is not None
        assert select.select([out], [], [], DEADLINE_S)[0], "no line in time"
        return out.readline().decode()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, stdin: bytes | None = None) -> Ended:
        """Wait until it has ended."""
        out, err = self.process.communicate(stdin, timeout=DEADLINE_S)
        return Ended(self.process.returncode, out, err.decode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Look until it is so; the test fails if that takes too long."""
    pause = select.poll()
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"not in time: {what}"
        pause.poll(10)

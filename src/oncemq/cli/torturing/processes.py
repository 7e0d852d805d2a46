# SPDX-License-Identifier: Apache-2.0
"""One process of the run, known by its id: started, paused, killed, and asked how it ended.

May not: signal anything but what it started itself.
The idea: every process has a session of its own, so that Ctrl-C reaches only the run, which then cleans up; killed, the run takes
its processes with it all the same. A process knows which exit codes are expected of it by now: any other is a finding.
Next: cast.py, which starts them again.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from oncemq.adapters.crash_hook import EXIT_CODE, VARIABLE
from oncemq.adapters.starter import ends_with_us

_START_S = 120.0
_STOP_S = 120.0
"""Moments on a machine of our own; they are seen to be ten times as busy."""
_CRASH_S = 5.0
"""How long a process may take to come to its crash point, before other faults may end it."""


class TortureFailed(Exception):
    """A process did something that no fault explains."""


class Child:
    """A process with its standard streams: orders in, words out, errors into a file."""

    def __init__(self, name: str, command: Sequence[str], errors: Path, *, crash_at: str = "") -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ONCEMQ_")} | ends_with_us()
        self.name = name
        self.expected = {EXIT_CODE} if crash_at else set()
        """Exit codes that a fault explains."""
        self._born_s = time.monotonic()
        self._is_heard = False
        self._errors = errors
        errors.parent.mkdir(parents=True, exist_ok=True)
        with errors.open("ab") as file:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and modules
                command,
                env=environment | ({VARIABLE: crash_at} if crash_at else {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                bufsize=0,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended; None while it lives."""
        return self._process.poll()

    def is_to_crash(self) -> bool:
        """Whether it was started a moment ago to end at a crash point, and should be left alone until then."""
        return EXIT_CODE in self.expected and time.monotonic() - self._born_s < _CRASH_S

    def is_ready(self, within_s: float = 0.0) -> bool:
        """Whether it has said its first line by now."""
        out = self._process.stdout
        if not self._is_heard and out is not None and select.select([out], [], [], within_s)[0]:
            self._is_heard = bool(out.readline())
        return self._is_heard

    def wait_until_ready(self) -> None:
        if not self.is_ready(_START_S):
            raise self.failed("did not start")

    def first_line(self) -> str:
        """The line that says it is ready."""
        line = self.next_line(_START_S)
        self._is_heard = True
        return line

    def has_spoken(self) -> bool:
        """Whether `next_line` would return at once: it has said something, or ended."""
        out = self._process.stdout
        return out is not None and bool(select.select([out], [], [], 0)[0])

    def next_line(self, within_s: float) -> str:
        """What it says next."""
        out = self._process.stdout
        line = out.readline().decode() if out is not None and select.select([out], [], [], within_s)[0] else ""
        if not line:
            raise self.failed(
                f"ended with exit code {self.wait()}" if self.code is not None else f"said nothing for {within_s:.0f} s"
            )
        return line

    def wait(self, within_s: float = _STOP_S) -> int:
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise self.failed("does not end") from None

    def order(self, text: str) -> None:
        """Say a line on its stdin."""
        if self._process.stdin is not None:
            self._process.stdin.write(text.encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        if self.code is None:
            self._process.send_signal(number)

    def freeze(self) -> None:
        """Stop it, and wait until none of its threads runs or is inside the kernel any more."""
        self.signal(signal.SIGSTOP)
        deadline = time.monotonic() + _STOP_S
        while self.code is None and not _is_stopped(self.pid):
            if time.monotonic() > deadline:
                raise self.failed("cannot be stopped")
            time.sleep(0.001)

    def shoot(self) -> None:
        """Kill it without waiting until it is gone."""
        self.expected.add(-signal.SIGKILL)
        self.signal(signal.SIGKILL)

    def kill(self) -> None:
        """As abrupt as it gets, and wait until it is gone."""
        self.shoot()
        self._process.wait()

    def failed(self, what: str) -> TortureFailed:
        words = self._errors.read_text(errors="replace").strip().splitlines()
        return TortureFailed(f"{self.name} {what}" + (f": {words[-1]}" if words else ""))

    def close(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _is_stopped(pid: int) -> bool:
    """Whether every thread is stopped (T); one inside a system call that cannot be interrupted is not (D)."""
    try:
        states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except FileNotFoundError:
        return False  # A thread ended meanwhile: look again.
    return all(state == "T" for state in states)

# SPDX-License-Identifier: Apache-2.0
"""The processes of `oncemq demo`: started, killed, restarted, and gone in the end, whatever happens.

May not: kill anything but what it started itself, by its id; leave a process behind.
The idea: every process runs in a session of its own, so that Ctrl-C reaches only the demo, which then cleans up.
Next: demo.py, which directs them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from oncemq.cli.demo_roles import facts_in

_START_S = 30.0
_STOP_S = 10.0


class DemoFailed(Exception):
    """A process of the demo did not do its part."""


class Actor:
    """One process, with a directory of its own."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._errors = directory / "stderr"
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,  # A line that waits in a buffer of ours would not be seen by select.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self, within_s: float) -> str | None:
        """Its next line on stdout; "" once it has closed that, None if nothing came in time."""
        out = self.process.stdout
        if out is None or not select.select([out], [], [], within_s)[0]:
            return None
        return out.readline().decode()

    def first_line(self) -> str:
        """The line that says it is ready."""
        found = self.line(_START_S)
        if not found:
            raise self.failed("did not start")
        return found

    def failed(self, what: str) -> DemoFailed:
        errors = self._errors.read_text(errors="replace").strip().splitlines()
        return DemoFailed(f"{self.directory.name} {what}" + (f": {errors[-1]}" if errors else ""))

    def kill(self) -> None:
        """As abrupt as it gets, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Ask it to end and wait for that; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait(_STOP_S)

    def wait(self, within_s: float) -> int:
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise self.failed("did not end") from None

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Stage:
    """All processes of one demo, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = "tcp://127.0.0.1:*"
        self._actors: list[Actor] = []
        self.broker: Actor  # Set by __enter__, so that whatever interrupts its start ends it as well.

    def __enter__(self) -> Self:
        try:
            self.broker = self._open_broker()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        for actor in self._actors:
            actor.close()

    def role(self, role: str, name: str, *more: str) -> Actor:
        """Start a publisher or a subscriber."""
        directory = self.directory / name
        actor = Actor(directory, "oncemq.cli.demo_roles", role, self.address, str(directory), *more)
        self._actors.append(actor)
        return actor

    def _open_broker(self) -> Actor:
        directory = self.directory / "broker"
        data = str(directory / "journal")
        actor = Actor(directory, "oncemq", "serve", data, "--address", self.address, "--json", "--log-level", "warning")
        self._actors.append(actor)
        self.address = str(json.loads(actor.first_line())["address"])  # From now on always this one.
        return actor

    def kill_broker(self) -> float:
        """kill -9, then start it again at the same address; the seconds nobody was served."""
        started = time.monotonic()
        self.broker.kill()
        self.broker = self._open_broker()
        return time.monotonic() - started


class Facts:
    """How many lines a role has written down so far, read on from where the last look ended."""

    def __init__(self, directory: Path) -> None:
        self._path = facts_in(directory)
        self._position = self._lines = 0

    def count(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._position, os.SEEK_SET)
                content = file.read()
            self._position += len(content)
            self._lines += content.count(b"\n")
        return self._lines

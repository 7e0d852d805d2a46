# SPDX-License-Identifier: Apache-2.0
"""One file of history per process, in the format of docs/history.md, and all of them as one history at the end.

May not: keep an event in memory: whoever is killed has written down everything it saw.
The idea: what one call brought is one `write`, with one time of the machine's monotonic clock, which all processes share.
Next: roles.py, which notes; verdict.py, which reads.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterable
from pathlib import Path

from oncemq.sim.history import Event, History, read_history

Field = str | int | bool | None


def now_us() -> int:
    """The clock of all histories of a run."""
    return time.monotonic_ns() // 1000


def history_of(directory: Path, process: str) -> Path:
    """Where a process of a run writes."""
    return directory / "histories" / f"{process}.jsonl"


class Recorder:
    """Appends the events of one life of a process."""

    def __init__(self, path: Path, process: str, life: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._process = process
        self._life = life
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        # A kill may tear a write that is longer than a page: half a line is no event.
        os.ftruncate(self._descriptor, len(_whole_lines(path)))

    def note(self, kind: str, operation: str, **fields: Field) -> None:
        self.note_all(kind, operation, [fields])

    def note_all(self, kind: str, operation: str, rows: Iterable[Event]) -> None:
        """Write down what one call brought, in one go."""
        history, time_us = History(), now_us()
        for row in rows:
            history.add(time_us, self._process, self._life, kind, operation, row)
        content = b"".join(line + b"\n" for line in history.lines())
        while content:
            content = content[os.write(self._descriptor, content) :]

    def close(self) -> None:
        os.close(self._descriptor)


def events_of(path: Path) -> list[Event]:
    """Everything a process wrote down so far, in all its lives."""
    return read_history(iter(_whole_lines(path).splitlines())).events


def merged(directory: Path) -> list[Event]:
    """The histories of all processes of a run as one, in order of time; the order within each is kept."""
    histories = [events_of(path) for path in sorted(directory.glob("*.jsonl"))]
    return list(heapq.merge(*histories, key=lambda event: int(event["t"] or 0)))


def _whole_lines(path: Path) -> bytes:
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]

# SPDX-License-Identifier: Apache-2.0
"""Signals that ask a command to end, noticed where it suits the command.

May not: interrupt anything: a handler only sets a flag.
The idea: an exception out of a signal handler could fall between a hand-over and its flush, or into a drain.
Next: serve.py and getting.py, which look at the flag between two steps.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self


class StopAsked:
    """While it is entered, SIGTERM, SIGINT and whatever else is named make `is_set` true and do nothing else."""

    def __init__(self, *also: signal.Signals) -> None:
        self.is_set = False
        self.is_final = False
        """Whether it was more than Ctrl-C, which may be meant for one command of many."""
        self._numbers = (signal.SIGTERM, signal.SIGINT, *also)
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in self._numbers:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # What signal.signal() returned, it also takes.

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.is_set, self.is_final = True, self.is_final or number != signal.SIGINT


class UntilInterrupted:
    """Ctrl-C in here ends the block and nothing else: what was done so far can be said behind it."""

    def __init__(self) -> None:
        self.is_interrupted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self.is_interrupted = kind is KeyboardInterrupt
        return self.is_interrupted


@contextmanager
def deaf_children() -> Iterator[None]:
    """Processes that are started in here do not hear Ctrl-C, which a terminal tells to all: whoever started them ends them.

    Blocked, not ignored: a process inherits either, but what is blocked is told here as soon as all are started.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put signals that ask for an end off until a few lines are done: then whoever waits for them is told.

    For a process that is started, above all: one that runs and is not yet known to whoever ends it would stay for ever.
    """
    if threading.current_thread() is not threading.main_thread():  # Nothing interrupts it: handlers run in the main thread.
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])

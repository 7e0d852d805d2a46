# SPDX-License-Identifier: Apache-2.0
"""What a person sees of `oncemq demo` while it runs: a bar per process, and a line per kill.

May not: know more than the files of facts say.
Next: demo.py.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from oncemq.cli.demo_stage import Facts
from oncemq.cli.output import Output

if TYPE_CHECKING:
    from rich.progress import Progress


class Display:
    """Bars on a terminal; only the lines elsewhere; silence with --json."""

    def __init__(self, output: Output, directory: Path, names: list[str], messages: int) -> None:
        self._output = output
        self._facts = [Facts(directory / name) for name in names]
        self._progress: Progress | None = None
        if output.has_watcher:
            self._progress = _bars(output)
            for name in names:
                self._progress.add_task(f"{name} {'put' if name == 'publisher' else 'got'}", total=messages)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.update()
        if self._progress is not None:
            self._progress.stop()

    def say(self, text: str) -> None:
        if self._progress is not None:
            self._progress.console.print(text)
        else:
            self._output.note(text)

    def update(self) -> None:
        if self._progress is not None:
            for task, facts in zip(self._progress.task_ids, self._facts, strict=True):
                self._progress.update(task, completed=facts.count())


def _bars(output: Output) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description:<16}"), BarColumn(bar_width=40), MofNCompleteColumn())
    return Progress(*columns, console=output.console(stderr=True))

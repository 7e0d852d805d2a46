# SPDX-License-Identifier: Apache-2.0
"""Processes that tests kill: `python -m tests.pipeline.roles archive ... STEP COUNT` dies by SIGKILL at the COUNTth STEP."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from oncemq.pipeline.archive import Archive, here
from oncemq.pipeline.archive_tables import find_table, open_table
from oncemq.pipeline.replay import Replay, Wanted, files_rows


def deadly(step: str, count: int) -> Callable[[str], None]:
    remaining = count

    def on_step(reached: str) -> None:
        nonlocal remaining
        if reached == step:
            remaining -= 1
            if remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return on_step


def archive(address: str, topics: str, place: str, form: str, step: str = "", count: str = "0") -> None:
    """Archive everything in steps of at most 400 rows."""
    table = open_table(Path(place), form)
    with Archive(address, topics.split(","), table, here, subscription="archive", on_step=deadly(step, int(count))) as running:
        while running.step(400):
            pass


def replay(address: str, place: str, source: str, topic: str, state: str, step: str = "", count: str = "0") -> None:
    """Replay everything in steps of at most 400 rows."""
    import oncemq.pipeline.replay as module

    module.REPLAY_ROWS_PER_FLUSH = 400  # type: ignore[misc]
    table, wanted = find_table(Path(place)), Wanted(place, source, topic)
    rows = partial(files_rows, place=table.place, source=source)
    with Replay(address, wanted, table, Path(state), rows=rows, on_step=deadly(step, int(count))) as running:
        while running.step():
            pass


if __name__ == "__main__":
    {"archive": archive, "replay": replay}[sys.argv[1]](*sys.argv[2:])

# SPDX-License-Identifier: Apache-2.0
"""`oncemq pipeline archive`: topics → table, continuously or once.

May not: decide what is archived; pipeline/archive.py does.
Next: docs/archive.md for why a second start adds nothing twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.exits import Exit
from oncemq.cli.options import DEFAULT_ADDRESS, Address, Json
from oncemq.cli.output import Output, output_of
from oncemq.cli.pipeline_spark import LOCAL, Master, Memory, start_spark
from oncemq.errors import UsageError
from oncemq.limits import ARCHIVE_POLL_MS, ARCHIVE_ROWS_PER_COMMIT

if TYPE_CHECKING:
    from oncemq.pipeline.archive import Archive
    from oncemq.pipeline.archive_tables import Table

FORMATS = ("delta", "parquet")
Topics = Annotated[str, typer.Option("--topics", metavar="A,B", help="The topics, separated by commas.")]
To = Annotated[Path, typer.Option("--to", metavar="DIR", file_okay=False, help="The archive's directory.")]
Once = Annotated[bool, typer.Option("--once", help="Archive what is there now, then end.")]
CaughtUp = Annotated[bool, typer.Option("--until-caught-up", help="End as soon as nothing is waiting.")]
Format = Annotated[str, typer.Option("--format", metavar="FORMAT", help="delta, or parquet: plain files and a manifest.")]
Compact = Annotated[bool, typer.Option("--compact", help="Merge small files at the end (Delta).")]
CompactEvery = Annotated[int, typer.Option("--compact-every", min=0, metavar="N", help="Merge after every N commits; 0: never.")]
RowsPerCommit = Annotated[int, typer.Option("--rows-per-commit", min=1, metavar="N", help="Rows of one commit at most.")]
Subscription = Annotated[
    str | None,
    typer.Option("--subscription", metavar="NAME", help="The name the broker keeps messages for. Without it: one per DIR."),
]
Starting = Annotated[str, typer.Option("--from", metavar="PLACE", help="Where a new archive begins: earliest, latest or JSON.")]


def archive(
    context: typer.Context,
    topics: Topics,
    to: To,
    once: Once = False,
    until_caught_up: CaughtUp = False,
    format: Format = "delta",
    compact: Compact = False,
    compact_every: CompactEvery = 0,
    rows_per_commit: RowsPerCommit = ARCHIVE_ROWS_PER_COMMIT,
    subscription: Subscription = None,
    starting: Starting = "earliest",
    address: Address = DEFAULT_ADDRESS,
    master: Master = LOCAL,
    memory: Memory = "",
    _json: Json = False,
) -> int:
    """Keep topics in a table, every message once, however often this is stopped, killed and started again.

    The broker keeps messages until they are in the table. Without --once or --until-caught-up it goes on until it is stopped.

    oncemq pipeline archive --topics orders,payments --to lake --once
    oncemq pipeline archive --topics orders --to lake --compact-every 100
    """
    from oncemq.pipeline.archive import Archive, on_spark, subscription_for
    from oncemq.pipeline.archive_tables import open_table

    if format not in FORMATS:
        raise UsageError(f"--format {format}: use {' or '.join(FORMATS)}")
    output, table = output_of(context), open_table(to, format)
    names = [name.strip() for name in topics.split(",") if name.strip()]
    spark = start_spark(master, memory)
    started = time.monotonic()
    name = subscription or subscription_for(to)
    with Archive(address, names, table, on_spark(spark), subscription=name, starting=starting) as running:
        total = sum(running.waiting().values()) if once else None
        merge = table.compact if compact_every else None
        with _shown(output, running) as advance:
            rows, commits = _run(running, rows_per_commit, total, not (once or until_caught_up), advance, compact_every, merge)
        merged = table.compact() if compact else 0
        _say(output, running, table, {"rows": rows, "commits": commits, "seconds": time.monotonic() - started, "merged": merged})
    return Exit.OK


def _run(
    running: Archive,
    rows_max: int,
    total: int | None,
    is_endless: bool,
    advance: Callable[[int], None],
    compact_every: int,
    merge: Callable[[], int] | None,
) -> tuple[int, int]:
    """Step until everything wanted is archived; return rows and commits."""
    rows = commits = 0
    while total is None or rows < total:
        done = running.step(rows_max if total is None else min(rows_max, total - rows))
        if done:
            rows, commits = rows + done, commits + 1
            advance(done)
            if merge is not None and commits % compact_every == 0:
                merge()
        elif is_endless:
            time.sleep(ARCHIVE_POLL_MS / 1000)
        else:
            break
    return rows, commits


@contextmanager
def _shown(output: Output, running: Archive) -> Iterator[Callable[[int], None]]:
    """A bar with rows, rows per second and what is waiting, on a terminal."""
    if not output.has_watcher:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.completed:,.0f} rows  {task.fields[rate]:,.0f} rows/s  {task.fields[lag]:,} waiting")
    columns = (TextColumn("archiving"), BarColumn(bar_width=30), text, TimeElapsedColumn())
    with Progress(*columns, console=output.console(stderr=True), transient=True) as progress:
        lag = sum(running.waiting().values())
        task = progress.add_task("", total=lag, rate=0.0, lag=lag)
        last = time.monotonic()

        def advance(rows: int) -> None:
            nonlocal last
            now, lag = time.monotonic(), sum(running.waiting().values())
            progress.update(task, advance=rows, rate=rows / max(now - last, 0.001), lag=lag)
            progress.update(task, total=progress.tasks[0].completed + lag)
            last = now

        yield advance


def _say(output: Output, running: Archive, table: Table, counts: dict[str, float]) -> None:
    seconds = counts["seconds"]
    row = {
        "rows": int(counts["rows"]),
        "commits": int(counts["commits"]),
        "files_merged": int(counts["merged"]),
        "seconds": round(seconds, 1),
        "rows_per_second": round(counts["rows"] / max(seconds, 0.001)),
        "waiting": sum(running.waiting().values()),
        "version": table.version(),
    }
    output.card(row)

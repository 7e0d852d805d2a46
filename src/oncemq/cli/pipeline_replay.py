# SPDX-License-Identifier: Apache-2.0
"""`oncemq pipeline replay`: an archive back into a topic.

May not: put anything itself; pipeline/replay.py does.
Next: docs/archive.md for what comes back as it was, and what does not.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.exits import Exit
from oncemq.cli.options import DEFAULT_ADDRESS, Address, Json
from oncemq.cli.output import output_of
from oncemq.cli.pipeline_spark import LOCAL, Master, Memory, start_spark, steps_shown
from oncemq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncemq.pipeline.archive_tables import Table
    from oncemq.pipeline.replay import Rows, Wanted

From = Annotated[Path, typer.Option("--from", metavar="DIR", exists=True, file_okay=False, help="The archive's directory.")]
To = Annotated[str, typer.Option("--to", metavar="TOPIC", help="The topic to put into.")]
Source = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="The topic of the archive. Without it: as --to.")]
OffsetsOption = Annotated[str, typer.Option("--offsets", metavar="A:B", help="Only offsets from A up to, not including, B.")]
Where = Annotated[str, typer.Option("--where", metavar="SQL", help="Only rows for which this Spark SQL expression is true.")]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Another replay of the same rows: the same name goes on.")]
StateOption = Annotated[Path | None, typer.Option("--state", metavar="DIR", help="Where it is written down how far it is.")]


def replay(
    context: typer.Context,
    archive: From,
    to: To,
    topic: Source = None,
    offsets: OffsetsOption = "",
    where: Where = "",
    name: Name = "",
    state: StateOption = None,
    address: Address = DEFAULT_ADDRESS,
    master: Master = LOCAL,
    memory: Memory = "",
    _json: Json = False,
) -> int:
    """Put the rows of an archive into a topic, in order, every row once. Interrupted and started again, it goes on.

    oncemq pipeline replay --from lake --to orders-again --topic orders
    oncemq pipeline replay --from lake --to tests --topic orders --offsets 0:1000 --where "key = 'de'"
    """
    from oncemq.pipeline.archive_tables import find_table
    from oncemq.pipeline.replay import Replay, Wanted

    output, table, started = output_of(context), find_table(archive), time.monotonic()
    first, end = _offsets(offsets)
    wanted = Wanted(str(archive.resolve()), topic or to, to, first, end, where, name)
    with Replay(address, wanted, table, state or _state(), rows=_reader(wanted, table, master, memory)) as running:
        before = running.progress.done
        steps = -(-(running.progress.end - running.progress.at) // 100_000)
        with steps_shown(output, max(1, steps)) as tell:
            tell("replaying")
            while running.step():
                tell("replaying")
        progress = running.progress
    seconds = time.monotonic() - started
    output.card({"rows": progress.done, "put_now": progress.done - before, "seconds": round(seconds, 1), "job": wanted.job})
    return Exit.OK


def _offsets(text: str) -> tuple[int, int]:
    first, colon, end = text.partition(":")
    if not text:
        return 0, 2**63 - 1
    if not colon or not (first or "0").isdigit() or not (end or "0").isdigit():
        raise UsageError(f"--offsets {text}: use A:B, A: or :B, as 0:1000")
    return int(first or 0), int(end) if end else 2**63 - 1


def _state() -> Path:
    import platformdirs

    return platformdirs.user_state_path("oncemq") / "replays"


def _reader(wanted: Wanted, table: Table, master: str, memory: str) -> Callable[[list[str]], Rows]:
    """Only an SQL expression needs Spark."""
    from oncemq.pipeline.replay import files_rows, spark_rows

    if not wanted.where:
        return partial(files_rows, place=table.place, source=wanted.source)
    return partial(spark_rows, start_spark(master, memory), place=table.place, source=wanted.source, where=wanted.where)

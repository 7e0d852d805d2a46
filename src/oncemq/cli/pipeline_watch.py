# SPDX-License-Identifier: Apache-2.0
"""`oncemq pipeline watch`: topics judged while they grow.

May not: judge; pipeline/audit_stream.py does.
Next: docs/archive.md for what can be seen while messages come, and what only afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from oncemq.cli.exits import Exit
from oncemq.cli.options import DEFAULT_ADDRESS, Address, Json
from oncemq.cli.output import Output, output_of
from oncemq.cli.pipeline_archive import CaughtUp, Topics
from oncemq.cli.pipeline_spark import LOCAL, Master, Memory, start_spark

_LOOK_SECONDS = 1
_FINDINGS_SHOWN_MAX = 20
State = Annotated[Path, typer.Option("--state", metavar="DIR", file_okay=False, help="Where checkpoint and findings are kept.")]
Starting = Annotated[str, typer.Option("--from", metavar="PLACE", help="Where a new watch begins: earliest, latest or JSON.")]


def watch(
    context: typer.Context,
    topics: Topics,
    state: State,
    until_caught_up: CaughtUp = False,
    starting: Starting = "earliest",
    address: Address = DEFAULT_ADDRESS,
    master: Master = LOCAL,
    memory: Memory = "",
    _json: Json = False,
) -> int:
    """Judge topics while they grow: every offset once and in order, every publisher's put numbers rising.

    Without --until-caught-up it goes on until it is stopped, or finds something. Started again, it goes on where it was.
    Exit code 1 if something was found, by this run or an earlier one with the same --state.

    oncemq pipeline watch --topics orders,payments --state watching
    oncemq pipeline watch --topics orders --state watching --until-caught-up
    """
    from oncemq.pipeline.archive import subscription_for
    from oncemq.pipeline.audit_stream import Watch

    output = output_of(context)
    names = [name.strip() for name in topics.split(",") if name.strip()]
    watching = Watch(address, names, subscription_for(state, "watch"), state.absolute(), starting)
    spark = start_spark(master, memory)
    query = watching.start(spark, is_endless=not until_caught_up)
    try:
        with _shown(output) as tell:
            rows = _follow(query, tell)
    finally:
        query.stop()
    found = watching.found(spark, _FINDINGS_SHOWN_MAX)
    if output.is_json:
        output.card({"rows": rows, "findings": found})
    else:
        output.rows("findings", found, empty="nothing was found")
        output.card({"rows": rows})
    return Exit.FAILED if found else Exit.OK


def _follow(query: Any, tell: Callable[[int, int], None]) -> int:
    """Wait until the query ends or has found something; return how many rows it has seen."""
    from oncemq.pipeline.audit_stream import OBSERVED
    from oncemq.pipeline.lag import lag_of

    seen: dict[int, int] = {}
    is_over = False
    while not is_over:
        is_over = bool(query.awaitTermination(_LOOK_SECONDS))
        reports: list[Any] = query.recentProgress
        seen |= {report.batchId: report.numInputRows for report in reports if report.numInputRows}
        if reports:
            tell(sum(seen.values()), sum(lag_of(reports[-1].sources).values()))
        is_over = is_over or any(report.observedMetrics[OBSERVED].found for report in reports if report.observedMetrics)
    return sum(seen.values())


@contextmanager
def _shown(output: Output) -> Iterator[Callable[[int, int], None]]:
    """How many rows were seen and how many wait, on a terminal."""
    if not output.has_watcher:
        yield lambda _rows, _lag: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.completed:,.0f} rows  {task.fields[lag]:,} waiting")
    columns = (SpinnerColumn(), TextColumn("watching"), text, TimeElapsedColumn())
    with Progress(*columns, console=output.console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None, lag=0)
        yield lambda rows, lag: progress.update(task, completed=rows, lag=lag)

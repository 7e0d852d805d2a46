# SPDX-License-Identifier: Apache-2.0
"""`oncemq pipeline audit`: the laws of the simulator's judges over histories of any size, on Spark.

May not: judge; pipeline/audit.py does.
Next: docs/archive.md for how to read the verdicts, docs/history.md for what a history is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.exits import Exit
from oncemq.cli.options import Json
from oncemq.cli.output import Output, output_of
from oncemq.cli.pipeline_spark import LOCAL, Master, Memory, start_spark, steps_shown
from oncemq.errors import UsageError

if TYPE_CHECKING:
    from oncemq.pipeline.audit import Audit

Histories = Annotated[
    list[str], typer.Argument(metavar="HISTORY...", help="Histories, or directories of them: .jsonl or .parquet files.")
]
ArchiveOption = Annotated[
    Path | None,
    typer.Option("--archive", metavar="DIR", exists=True, file_okay=False, help="Hold this archive against the run's log, too."),
]
Report = Annotated[Path | None, typer.Option("--report", metavar="DIR", help="Write report.html, with plots, to this directory.")]


def audit(
    context: typer.Context,
    histories: Histories,
    archive: ArchiveOption = None,
    report: Report = None,
    master: Master = LOCAL,
    memory: Memory = "4g",
    _json: Json = False,
) -> int:
    """Judge histories of any size: lost, duplicated, invented, reordered, rolled back, confirmed but missing.

    The files of one directory are one run. Exit code 1 if a law was broken.

    oncemq pipeline audit history.jsonl --report page
    oncemq torture --kills 100 --keep run && oncemq pipeline audit run
    oncemq sim --seeds 200 --history runs && oncemq pipeline audit runs --report page
    """
    from oncemq.pipeline.audit import STEPS
    from oncemq.pipeline.audit import audit as judge

    output = output_of(context)
    with steps_shown(output, len(STEPS) + bool(report)) as tell:
        spark = start_spark(master, memory)
        result = judge(spark, histories, tell, archive=archive)
        if result.totals.events == result.totals.torn:
            raise UsageError("no event in these files: a history has one JSON object a line ('oncemq sim --history DIR')")
        page = _draw(result, report, tell) if report else None
    _say(output, result)
    if page is not None:
        output.note(f"the report is {page}")
    return Exit.FAILED if result.violations else Exit.OK


def _draw(result: Audit, directory: Path, tell: Callable[[str], None]) -> Path:
    from oncemq.pipeline.report import write_report

    tell("drawing")
    return write_report(result, directory)


def _say(output: Output, result: Audit) -> None:
    from oncemq.pipeline.audit_figures import QUANTILES
    from oncemq.pipeline.report import latency_rows

    names = ("subscription", "messages", *(f"{name}_ms" for name in QUANTILES), "max_ms")
    latency = [dict(zip(names, row, strict=True)) for row in latency_rows(result.latencies)]
    summary = {
        "runs": result.runs,
        "runs_not_judged": result.set_back,
        "events": result.totals.events,
        "put": result.totals.put,
        "confirmed": result.totals.confirmed,
        "delivered": result.totals.delivered,
        "in_doubt": sum(result.in_doubt.values()),
        "violations": result.violations,
    }
    if result.totals.torn:
        output.warn(f"{result.totals.torn} line(s) cannot be read and were left out: a killed process may tear its last one")
    if result.set_back:
        output.warn(f"{result.set_back} run(s) were not judged: a directory was set back in them ('oncemq sim' judges those)")
    if output.is_json:
        verdicts = [asdict(verdict) for verdict in result.verdicts]
        output.card(summary | {"verdicts": verdicts, "latency": latency, "in_doubt_by_subscription": result.in_doubt})
        return
    output.rows("verdicts", _verdict_rows(result), empty="there was nothing to judge")
    output.rows("latency", latency, empty="nothing was delivered")
    output.card(summary)


def _verdict_rows(result: Audit) -> list[dict[str, object]]:
    """All that is broken, and one line per law and verdict that held: with many subscriptions the rest is in --json."""
    rows: list[dict[str, object]] = []
    held: dict[tuple[str, str], int] = {}
    for verdict in result.verdicts:
        if verdict.is_guilty:
            rows.append(asdict(verdict))
        else:
            held[verdict.verdict, verdict.law] = held.get((verdict.verdict, verdict.law), 0) + verdict.checked
    guilty = {(row["verdict"], row["law"]) for row in rows}
    rows += [
        {"law": law, "verdict": name, "subscription": "", "checked": checked, "violations": 0, "witness": ""}
        for (name, law), checked in held.items()
        if (name, law) not in guilty
    ]
    return rows

# SPDX-License-Identifier: Apache-2.0
"""`oncemq demo`: kill everybody again and again while messages flow, then have Spark prove what each of them got.

May not: count what it did not read from the files of those it happened to.
The idea: a real broker, two publishers and three subscribers, all processes, killed (SIGKILL) and started again in turn, while a
Spark process archives the topic. In the end the histories are audited, and put, got, lost and twice are shown.
Next: demonstrating/director.py for the order of things.
"""

from __future__ import annotations

import importlib.util
import shutil
import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from oncemq.cli.exits import Exit
from oncemq.cli.options import Json
from oncemq.cli.output import Output, output_of

if TYPE_CHECKING:
    from oncemq.cli.demonstrating.director import Director, Facts
    from oncemq.cli.demonstrating.lake import Findings
    from oncemq.cli.demonstrating.stage import Stage
    from oncemq.cli.torturing.processes import Child

_AUDIT_S = 180.0
_NEXT = (
    "oncemq serve data                         a broker of your own; kill -9 it as you like",
    "oncemq shell                              put and get by hand",
    "oncemq torture --kills 20                 power cuts, full disks, partitions, and the same judges",
    "oncemq sim --seeds 20                     the same in simulated worlds, thousands of faults a minute",
)


def demo(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="How long processes are killed.")] = 20,
    seed: Annotated[int, typer.Option(help="Who is killed when.")] = 1,
    report: Annotated[Path, typer.Option("--report", metavar="DIR", file_okay=False, help="Where the page goes.")] = Path(
        "demo-report"
    ),
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Archive and audit on Spark, and write a page.")] = True,
    _json: Json = False,
) -> int:
    """Kill a broker and its clients while messages flow, and have an audit prove: nothing lost, nothing twice.

    Everything happens in a temporary directory on free ports of loopback. Exit code 1 if a promise was broken; the directory is
    then kept.

    oncemq demo
    oncemq demo --seconds 60 --seed 7
    oncemq demo --no-spark --json
    """
    from oncemq.cli.torturing.processes import TortureFailed

    output = output_of(context)
    if spark and importlib.util.find_spec("pyspark") is None:
        output.warn("without Spark there is no table, no audit on Spark and no page: pip install 'oncemq[spark]'")
        spark = False
    directory = Path(tempfile.mkdtemp(prefix="oncemq-demo-"))
    is_right = False
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # Either signal ends all processes of the demo.
    try:
        is_right = _perform(output, directory, seconds, seed, report if spark else None)
    except TortureFailed as failed:
        output.failure("demo_failed", str(failed))
    except KeyboardInterrupt:
        is_right = True  # Nothing is wrong with what is there: nobody needs it.
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        if is_right:
            shutil.rmtree(directory)
        else:
            output.warn(f"kept for a look: {directory}")
    return Exit.OK if is_right else Exit.FAILED


def _perform(output: Output, directory: Path, seconds: float, seed: int, report: Path | None) -> bool:
    from oncemq.cli.demonstrating.director import Director
    from oncemq.cli.demonstrating.display import Display
    from oncemq.cli.demonstrating.stage import Stage

    started = time.monotonic()
    stage = Stage(directory, seed)
    with ExitStack() as world:
        world.callback(stage.close)
        display = world.enter_context(Display(output, stage, has_lake=report is not None))
        director = Director(stage, seed, display.on_look, display.on_kill)
        stage.open()
        lake = _start_lake(stage, report)
        director.run(seconds)
        stage.errand("read")
        findings = None
        if lake is not None:
            display.say("everybody has everything; Spark reads all histories")
            findings = _audited(lake, stage, director)
        stage.stop_broker()
    return _told(output, stage, director.facts, findings, time.monotonic() - started)


def _start_lake(stage: Stage, report: Path | None) -> Child | None:
    if report is None:
        return None
    where = [str(stage.directory), stage.address, str(report.resolve())]
    return stage.spawn("lake", ["oncemq.cli.demonstrating.lake", *where])


def _audited(lake: Child, stage: Stage, director: Director) -> Findings:
    """Have Spark finish the table and judge: what it found is the last line it says."""
    from oncemq.cli.demonstrating.lake import FACTS, Findings

    lake.next_line(_AUDIT_S)  # "ready": a busy machine takes its time to start Spark.
    stored = _stored(stage.directory)
    director.wait(lambda: director.facts.latest("lake") >= stored or lake.code is not None, "have the table catch up")
    draft = stage.directory / f"{FACTS}.new"
    draft.write_bytes(msgspec.json.encode(director.facts))
    draft.rename(stage.directory / FACTS)
    return msgspec.json.decode(lake.next_line(_AUDIT_S), type=Findings)


def _stored(directory: Path) -> int:
    """How many messages the topic has, as they were read from it one by one at the end."""
    from oncemq.cli.torturing.recorder import events_of, history_of

    return sum(event["op"] == "log" for event in events_of(history_of(directory, "harness")))


def _told(output: Output, stage: Stage, facts: Facts, findings: Findings | None, seconds: float) -> bool:
    """Say what came of it; whether every promise was kept."""
    rows = _rows(stage, findings)
    violations = findings.violations if findings is not None else _judged_here(stage.directory)
    is_right = not violations and all(row["lost"] == row["twice"] == 0 for row in rows)
    page = findings.page if findings is not None else ""
    result = {
        "put": rows[0]["put"],
        "kills": len(facts.kills),
        "lost": sum(int(str(row["lost"])) for row in rows),
        "twice": sum(int(str(row["twice"])) for row in rows),
        "violations": violations,
        "effects_exact": all(row["lost"] == row["twice"] == 0 for row in rows if row["subscriber"] == "ledger"),
        "seconds": round(seconds, 1),
        "report": page,
    }
    if output.is_json:
        output.card(result | {"subscribers": rows})
        return is_right
    output.rows("subscribers", rows, empty="")
    output.line(
        f"{len(facts.kills)} kills in {seconds:.0f} s: {result['lost']} lost, {result['twice']} twice, {violations} violations"
    )
    if page:
        output.note(f"the page with plots: {page}")
    output.note("try next:")
    for line in _NEXT:
        output.note(f"  {line}")
    return is_right


def _judged_here(directory: Path) -> int:
    """Without Spark: the judges of the simulator, in memory."""
    from oncemq.cli.torturing.recorder import merged
    from oncemq.sim.checkers import check

    return sum(len(witnesses) for witnesses in check(merged(directory / "histories")).values())


def _rows(stage: Stage, findings: Findings | None) -> list[dict[str, object]]:
    """One row per reader: what was put, what it got, and how that differs."""
    from oncemq.cli.demonstrating.director import booked
    from oncemq.cli.torturing.recorder import merged
    from oncemq.cli.torturing.verdict import deliveries_of

    stored = _stored(stage.directory)
    figures = findings.subscriptions if findings is not None else deliveries_of(merged(stage.directory / "histories"))
    rows = [_row(name, stored, figures[name]) for name in ("plain", "live")]
    effects, different = booked(stage.directory)
    ledger = {"got": different, "lost": stored - different, "twice": effects - different, "in_doubt": 0}
    rows.append(_row("ledger", stored, ledger, effects))
    if findings is not None:
        lake = {"got": findings.rows, "lost": stored - findings.rows, "twice": 0, "in_doubt": 0}
        rows.append(_row("lake", stored, lake))
    return rows


def _row(name: str, stored: int, figures: dict[str, int], effects: int | None = None) -> dict[str, object]:
    return {"subscriber": name, "put": stored, **figures, "effects": effects}

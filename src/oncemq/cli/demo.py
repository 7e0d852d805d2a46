# SPDX-License-Identifier: Apache-2.0
"""`oncemq demo`: kill everybody again and again while messages flow, then have Spark prove what each of them got.

May not: count what it did not read from the files of those it happened to.
The idea: a real broker, two publishers and three subscribers, all processes, killed (SIGKILL) and started again in turn, while a
Spark process archives the topic and three nodes of a mesh do without it. In the end the histories are audited and counted.
Next: demonstrating/director.py for the order of things.
"""

from __future__ import annotations

import importlib.util
import shutil
import signal
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from oncemq.cli.exits import Exit
from oncemq.cli.options import Json
from oncemq.cli.output import Output, output_of

if TYPE_CHECKING:
    from oncemq.cli.demonstrating.director import Director
    from oncemq.cli.demonstrating.lake import Findings
    from oncemq.cli.demonstrating.mesh import Mesh
    from oncemq.cli.demonstrating.outcome import Outcome
    from oncemq.cli.demonstrating.stage import Stage
    from oncemq.cli.torturing.processes import Child

_AUDIT_S = 900.0
"""Half a minute on two cores of our own; they were seen to be ten times as busy."""
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
    from oncemq.cli.demonstrating.outcome import outcome_of
    from oncemq.cli.demonstrating.stage import Stage

    started = time.monotonic()
    stage = Stage(directory, seed)
    with ExitStack() as world:
        world.callback(stage.close)
        display = world.enter_context(Display(output, stage, has_lake=report is not None))
        director = Director(stage, seed, display.on_look, display.on_kill)
        stage.open()
        lake = _start_lake(stage, report)
        beside = stage.spawn("mesh", ["oncemq.cli.demonstrating.mesh", str(directory / "mesh"), str(seed)], is_parent=True)
        if lake is not None:
            display.say("Spark starts; kills begin when it archives")
            director.wait(lake.is_ready, "Spark has started", _AUDIT_S)
        director.run(seconds)
        stage.errand("read")
        mesh = _of_mesh(beside, director)
        director.facts.overlay = mesh.overlay
        findings = None
        if lake is not None:
            display.say("everybody has everything; Spark reads all histories")
            findings = _audited(lake, stage, director)
        stage.stop_broker()
    outcome = outcome_of(directory, mesh, findings)
    _tell(output, outcome, len(director.facts.kills), time.monotonic() - started, findings.page if findings is not None else "")
    return outcome.is_right


def _start_lake(stage: Stage, report: Path | None) -> Child | None:
    if report is None:
        return None
    where = [str(stage.directory), stage.address, str(report.resolve())]
    return stage.spawn("lake", ["oncemq.cli.demonstrating.lake", *where])


def _audited(lake: Child, stage: Stage, director: Director) -> Findings:
    """Have Spark finish the table and judge: what it found is the last line it says."""
    from oncemq.cli.demonstrating.lake import FACTS, Findings
    from oncemq.cli.demonstrating.outcome import stored_in

    stored = stored_in(stage.directory)
    facts = director.facts
    director.wait(lambda: facts.latest("lake") >= stored or lake.code is not None, "the table has all messages", _AUDIT_S)
    draft = stage.directory / f"{FACTS}.new"
    draft.write_bytes(msgspec.json.encode(facts))
    draft.rename(stage.directory / FACTS)
    # Looking on: seconds that stand still look like a hang.
    director.wait(lake.has_spoken, "Spark has read the histories", _AUDIT_S)
    return msgspec.json.decode(lake.next_line(_AUDIT_S), type=Findings)


def _of_mesh(beside: Child, director: Director) -> Mesh:
    from oncemq.cli.demonstrating.mesh import Mesh

    director.wait(beside.has_spoken, "the mesh is done", _AUDIT_S)
    return msgspec.json.decode(beside.next_line(_AUDIT_S), type=Mesh)


def _tell(output: Output, outcome: Outcome, kills: int, seconds: float, page: str) -> None:
    if output.is_json:
        counts = {"put": outcome.rows[0].put, "kills": kills, "lost": outcome.lost, "twice": outcome.twice}
        facts = {"effects_exact": outcome.has_exact_effects, "seconds": round(seconds, 1), "report": page}
        rows = [asdict(row) for row in outcome.rows]
        output.card(counts | {"violations": outcome.violations} | facts | {"subscribers": rows})
        return
    output.rows("subscribers", [asdict(row) for row in outcome.rows], empty="")
    counts_text = f"{outcome.lost} lost, {outcome.twice} twice, {outcome.violations} violations"
    output.line(f"{kills} kills in {seconds:.0f} s: {counts_text}")
    if page:
        output.note(f"the page with plots: {page}")
    output.note("try next:")
    for line in _NEXT:
        output.note(f"  {line}")

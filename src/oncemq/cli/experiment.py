# SPDX-License-Identifier: Apache-2.0
"""`oncemq experiment`: the experiments of the earlier design and of the HyParView papers, ours beside theirs.

May not: measure or draw; oncemq/lab/ does.
Next: docs/experiments/README.md for what each measures and what came of it.
"""

from __future__ import annotations

import enum
import importlib.util
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.exits import Exit
from oncemq.cli.options import Json
from oncemq.cli.output import Output, Row, output_of
from oncemq.cli.pipeline_spark import LOCAL, Master, start_spark
from oncemq.errors import UsageError

if TYPE_CHECKING:
    from oncemq.lab.plans import Wish
    from oncemq.lab.statistics import Statistic


class Name(enum.StrEnum):
    """Which experiment."""

    ALL = "all"
    RECEIVED = "received"
    CONVERGENCE = "convergence"
    MEMBERSHIP = "membership"
    RELIABILITY = "reliability"
    OVERLAY = "overlay"
    HEALING = "healing"


Which = Annotated[Name, typer.Argument(metavar="NAME", help="all, or one of: " + ", ".join(list(Name)[1:]) + ".")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer seeds and smaller meshes: minutes instead of an hour.")]
Real = Annotated[bool, typer.Option("--real", help="With real processes on this machine, instead of simulated.")]
Nodes = Annotated[int | None, typer.Option("--nodes", min=2, max=100_000, metavar="N", help="Only meshes of this size.")]
Largest = Annotated[int | None, typer.Option("--largest", min=2, metavar="N", help="No meshes larger than this.")]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, metavar="N", help="How many seeds of each size.")]
First = Annotated[int, typer.Option("--first", min=0, metavar="SEED", help="The first seed.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where traces, statistics, figures and the page go.")]


def experiment(
    context: typer.Context,
    name: Which,
    quick: Quick = False,
    real: Real = False,
    nodes: Nodes = None,
    largest: Largest = None,
    seeds: Seeds = None,
    first: First = 0,
    out: Out = Path("experiments"),
    master: Master = LOCAL,
    _json: Json = False,
) -> int:
    """Run an experiment over many seeds as Spark tasks, sum it up on Spark, and draw it beside the papers' values.

    received: messages received for 10, 25, 50 and 75 put per node, 20 nodes.
    convergence: seconds from the last join to a full overlay.
    membership: packets of HyParView at 10, 20 and 30 nodes.
    reliability: 10 to 95 % of all nodes fail, at 20, 1,000 and 10,000 nodes.
    overlay, healing: HyParView's table 1, and cycles until everybody is reached again.

    oncemq experiment all --quick
    oncemq experiment reliability --nodes 1000 --seeds 20 --out reliability
    oncemq experiment reliability --real
    oncemq experiment all --master spark://host:7077
    """
    from oncemq.lab.plans import Wish
    from oncemq.lab.trials import Experiment

    output = output_of(context)
    if importlib.util.find_spec("igraph") is None:
        raise UsageError("this needs igraph and Spark: pip install 'oncemq[spark,lab]'")
    wanted = tuple(Experiment) if name is Name.ALL else (Experiment(name.value),)
    wish = Wish(wanted, is_quick=quick, is_real=real, nodes=nodes, largest=largest, seeds=seeds, first=first)
    started = time.monotonic()
    trials, statistics, page = _run(output, wish, master, out)
    row: dict[str, object] = {
        "experiment": name.value,
        "trials": trials,
        "seconds": round(time.monotonic() - started, 1),
        "page": str(page),
    }
    return _say(output, row, statistics)


def _run(output: Output, wish: Wish, master: str, out: Path) -> tuple[int, list[Statistic], Path]:
    """Run the trials, sum them up, draw; return how many there were, what came of them, and the page."""
    from oncemq.lab.page import write_results
    from oncemq.lab.plans import trials_of
    from oncemq.lab.running import run_trials
    from oncemq.lab.statistics import summed_up

    trials = trials_of(wish)
    if not trials:
        raise UsageError("there is nothing to run: the papers' experiments need thousands of nodes, and are only simulated")
    with _watched(output, len(trials)) as progress:
        spark = start_spark(master)
        statistics = summed_up(run_trials(spark, trials, out / "traces" / _name(wish), progress))
    page = write_results(statistics, out, "oncemq " + shlex.join(sys.argv[1:]))
    return len(trials), statistics, page


def _name(wish: Wish) -> str:
    """Where the traces go: runs of another kind or size lie beside each other, and are drawn together."""
    return ("real" if wish.is_real else "simulated") + (f"-{wish.nodes}" if wish.nodes else "")


@contextmanager
def _watched(output: Output, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many trials are done, where somebody looks."""
    from rich.progress import Progress

    with Progress(console=output.console(stderr=True), transient=True, disable=not output.has_watcher) as progress:
        task = progress.add_task("trials", total=total)
        yield lambda done: progress.update(task, completed=done)


def _say(output: Output, row: Row, statistics: list[Statistic]) -> int:
    """The figures as JSON; for people where the page is. A judge that found something is an exit code."""
    broken = [each for each in statistics if each.measure == "violations" and each.mean]
    for each in broken:
        output.failure(
            "violations", f"{each.experiment} of {each.nodes} nodes, at {each.at:g}: promises were broken; see the traces"
        )
    output.card(dict(row) | ({"statistics": [each._asdict() for each in statistics]} if output.is_json else {}))
    return Exit.FAILED if broken else Exit.OK

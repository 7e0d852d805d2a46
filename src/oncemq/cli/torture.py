# SPDX-License-Identifier: Apache-2.0
"""`oncemq torture`: real processes, real faults, and the judges of the simulator over what everybody wrote down.

May not: judge. Verdicts come from sim/checkers.py through torturing/verdict.py; figures are counted from histories.
The idea: a broker, publishers and subscribers are killed, paused, cut off and robbed of their disk in an order drawn from a seed.
What this machine does not allow is said in the result, never skipped in silence.
Next: torturing/performance.py for the order of things.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.exits import Exit
from oncemq.cli.options import Json, refuse_others
from oncemq.cli.output import Output, output_of
from oncemq.errors import UsageError

if TYPE_CHECKING:
    from oncemq.cli.torturing.performance import Performance, Plan
    from oncemq.cli.torturing.verdict import Verdict

_ALL = "all"

Kills = Annotated[
    int, typer.Option(min=1, metavar="N", help="How often to kill, at least; without kills among the faults: how many faults.")
]
Seconds = Annotated[float, typer.Option(min=1, metavar="S", help="Stop harming after this time, however many kills there were.")]
Seed = Annotated[int | None, typer.Option(min=0, metavar="SEED", help="Draw the faults from this seed; without it: any.")]
Faults = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="What may happen, with commas: broker_kill, client_kill, crash_point, pause, partition, disk_full, io_error, "
        "power_cut, line; or all.",
    ),
]
Spark = Annotated[bool, typer.Option("--spark", help="Kill a Spark driver, its workers and the broker while they copy a topic.")]
Transactions = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help="Have a worker make one effect of every message, in transactions of the broker, sqlite or postgresql; worker and "
        "broker die at every crash point of a transaction.",
    ),
]
Keep = Annotated[Path | None, typer.Option(metavar="DIR", help="Run in this new directory, and keep it with all histories.")]


def torture(
    context: typer.Context,
    kills: Kills = 20,
    seconds: Seconds = float("inf"),
    seed: Seed = None,
    faults: Faults = _ALL,
    keep: Keep = None,
    spark: Spark = False,
    transactions: Transactions = "",
    _json: Json = False,
) -> int:
    """Kill, pause, cut off and starve real brokers and clients, and judge what they did.

    Everything happens on the loopback, or in network namespaces, mounts and processes made by the run and gone with it.
    Exit code 1 if a promise was broken; the directory with the histories is then kept.

    oncemq torture
    oncemq torture --kills 1000 --faults broker_kill,client_kill
    oncemq torture --kills 50 --faults power_cut
    oncemq torture --transactions sqlite --kills 200
    oncemq torture --spark --kills 50
    """
    from oncemq.cli.torturing.performance import Plan

    seed = secrets.randbelow(2**31) if seed is None else seed
    if spark:
        refuse_others(context, "with --spark", ("spark", "kills", "seed", "keep"))
    if transactions:
        refuse_others(context, "with --transactions", ("transactions", "kills", "seconds", "seed", "keep"))
    if spark:
        return _torture_spark(context, kills, seed, keep)
    output, chosen = output_of(context), ("crash_point",) if transactions else _faults(faults)
    directory = directory_of(keep)
    plan = Plan(directory, chosen, kills, seconds, seed)

    def perform() -> tuple[Performance, Verdict]:
        with Progress(output, kills) as progress:
            performance = _performance(plan, transactions, progress)
            return performance, performance.run()

    return judged(output, directory, perform, is_wanted=keep is not None)


def judged(output: Output, directory: Path, perform: Callable[[], tuple[Performance, Verdict]], *, is_wanted: bool) -> int:
    """Run it and say what came of it. Its directory stays if that is wanted, or if something is worth a look."""
    is_kept, started = True, time.monotonic()  # Whatever nobody expected is worth a look.
    with interruptible():
        try:
            performance, verdict = perform()
            is_kept = bool(verdict.violations) or is_wanted
            report(output, performance, verdict, time.monotonic() - started)
        except (KeyboardInterrupt, UsageError):
            is_kept = is_wanted
            raise
        finally:
            clean_up(output, directory, is_kept=is_kept)
    return Exit.FAILED if verdict.violations else Exit.OK


def _performance(plan: Plan, transactions: str, progress: Progress) -> Performance:
    from oncemq.cli.torturing.performance import Performance
    from oncemq.cli.torturing.transactions import KINDS, TransactionTorture

    if transactions and transactions not in KINDS:
        raise UsageError(f"--transactions {transactions!r}: use one of {', '.join(KINDS)}")
    return TransactionTorture(plan, progress.update, transactions) if transactions else Performance(plan, progress.update)


def _torture_spark(context: typer.Context, kills: int, seed: int, keep: Path | None) -> int:
    """Kill a Spark driver, its workers and the broker while they copy a topic, and count what came out."""
    from oncemq.cli.torturing.spark import SparkTorture

    output, directory = output_of(context), directory_of(keep)
    is_kept = True
    try:
        with Progress(output, kills) as progress:
            verdict = SparkTorture(directory, kills, seed, progress.update).run()
        is_kept = keep is not None or not verdict.is_clean
        output.card(asdict(verdict))
    finally:
        clean_up(output, directory, is_kept=is_kept)
    return Exit.OK if verdict.is_clean else Exit.FAILED


@contextmanager
def interruptible() -> Iterator[None]:
    """Have either signal that asks this process to end take everything down."""
    before = {number: signal.signal(number, _on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_signal(_number: int, _frame: object) -> None:
    """Take everything down, once: a second signal must not interrupt that."""
    from oncemq.cli.torturing.performance import ignore_signals

    ignore_signals()
    raise KeyboardInterrupt


def _faults(text: str) -> tuple[str, ...]:
    from oncemq.cli.torturing.nemesis import WEIGHTS

    names = tuple(WEIGHTS) if text == _ALL else tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in WEIGHTS]
    if unknown or not names:
        raise UsageError(f"--faults {text!r}: use some of {', '.join(WEIGHTS)}, with commas, or all")
    return names


def directory_of(keep: Path | None) -> Path:
    """Where a run happens: a new directory, or the one it is to be kept in."""
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="oncemq-torture-"))
    if keep.exists() and any(keep.iterdir()):
        raise UsageError(f"--keep {keep}: this directory is not empty, use a new one")
    keep.mkdir(parents=True, exist_ok=True)
    return keep.resolve()


def clean_up(output: Output, directory: Path, *, is_kept: bool) -> None:
    """Leave nothing of a run but what somebody may want to look at."""
    if is_kept:
        output.note(f"histories and logs are in {directory}")
    else:
        shutil.rmtree(directory)


def report(output: Output, performance: Performance, verdict: Verdict, seconds: float) -> None:
    """Say what a run came to, and who witnessed what."""
    plan = performance.plan
    row = performance.figures(verdict) | {"seconds": round(seconds, 1), "seed": plan.seed}
    if output.is_json:
        row |= {"violations": verdict.violations, "not_possible": performance.not_possible}
        row |= {"directory": str(plan.directory)} if verdict.violations else {}
    output.card(row)
    for law, witnesses in verdict.violations.items():
        for witness in witnesses:
            output.failure(law, f"{law}: {witness}")
    for name, reason in performance.not_possible.items():
        output.warn(f"{name} is not possible here: {reason}")
    if not output.is_json:
        broken = len(verdict.violations)
        output.line(f"{broken} broken promise(s), witnessed above" if broken else "every promise held")


class Progress:
    """A bar on a terminal, nothing elsewhere."""

    def __init__(self, output: Output, kills: int) -> None:
        self._bar = None
        self._output, self._kills, self._done = output, kills, 0
        if output.has_watcher:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description:<16}"), BarColumn(bar_width=40), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=output.console(stderr=True), transient=True)
            self._task = self._bar.add_task("torturing", total=kills)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        if kind is KeyboardInterrupt:
            done = {"done": self._done, "asked": self._kills}
            text = f"interrupted after {self._done} of {self._kills} kills or faults: nothing was judged"
            self._output.remark({"interrupted": done, "text": text}, text)

    def update(self, done: int, last: str) -> None:
        self._done = max(self._done, done)
        if self._bar is not None:
            self._bar.update(self._task, description=last or "torturing", completed=done or None)

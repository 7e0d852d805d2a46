# SPDX-License-Identifier: Apache-2.0
"""`oncemq sim`: run seeded worlds with faults, judge each, and check that two processes agree on every trace.

May not: judge. Verdicts come from sim/checkers.py, traces from sim/swarm.py.
The idea: two workers with different PYTHONHASHSEEDs run the same seeds; whatever they disagree on is not
deterministic, and a failure by itself. A seed that fails is named with the one line that replays it.
Next: sim/worker.py for a worker, sim/bugs.py for `--bugs`, cli/proofs.py for what is exhaustive.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from oncemq.cli.exits import Exit
from oncemq.cli.options import Json, refuse_others
from oncemq.cli.output import Output, output_of
from oncemq.cli.signals import UntilInterrupted, deaf_children
from oncemq.errors import UsageError

if TYPE_CHECKING:
    from oncemq.sim.swarm import Outcome

SHRUNK_MAX = 3
"""Seeds that are shrunk after a run: the others most likely fail of the same."""

SEEDS, AGAIN, EVERYTHING = "Worlds drawn from seeds", "One of them again", "Everything within bounds"

Seeds = Annotated[int, typer.Option("--seeds", min=1, metavar="N", help="How many seeds to run.", rich_help_panel=SEEDS)]
First = Annotated[
    int,
    typer.Option("--first", min=0, metavar="SEED", help="The first seed, or run of --images.", rich_help_panel=SEEDS),
]
Bugs = Annotated[
    bool,
    typer.Option("--bugs", help="Plant each known bug in the product, and run seeds until it is caught.", rich_help_panel=SEEDS),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, metavar="SEED", help="Replay this seed, and print its history.", rich_help_panel=AGAIN),
]
Cut = Annotated[
    str | None,
    typer.Option("--cut", metavar="CUT", help="With --seed: only this part of its world.", rich_help_panel=AGAIN),
]
Case = Annotated[
    str | None,
    typer.Option("--case", metavar="CASE", help="Replay a case of --crash-points, and print its history.", rich_help_panel=AGAIN),
]
Images = Annotated[
    int | None,
    typer.Option(
        "--images", min=1, metavar="N", help="Recover from at least N crash images of recorded runs.", rich_help_panel=EVERYTHING
    ),
]
CrashPoints = Annotated[
    bool,
    typer.Option("--crash-points", help="Let somebody die at every crash point, and at every pair.", rich_help_panel=EVERYTHING),
]
Explore = Annotated[
    bool,
    typer.Option("--explore", help="Search all orders of events for three messages.", rich_help_panel=EVERYTHING),
]
Histories = Annotated[
    Path | None,
    typer.Option("--history", metavar="DIR", help="Keep the history of every seed there, as `oncemq pipeline audit` reads it."),
]


MODES = {"bugs": (), "seed": ("cut",), "case": (), "images": ("first",), "crash_points": (), "explore": ()}
"""What else each of them looks at."""


def sim(
    context: typer.Context,
    seeds: Seeds = 100,
    first: First = 0,
    bugs: Bugs = False,
    seed: Seed = None,
    cut: Cut = None,
    case: Case = None,
    images: Images = None,
    crash_points: CrashPoints = False,
    explore: Explore = False,
    history: Histories = None,
    _json: Json = False,
) -> int:
    """Run the broker and its clients in simulated worlds that go wrong, and judge what they did.

    Whatever breaks a promise is made as small as can be and printed with the line that replays it. The whole judgement:

    oncemq sim --seeds 500 · worlds with drawn faults, each run in two processes that must agree

    oncemq sim --bugs · plant every known bug, and see each of them caught

    oncemq sim --images 100000 · every way a power cut may leave a disk, recovered

    oncemq sim --crash-points · a death at every crash point, and at every pair of them

    oncemq sim --explore · every order of events for three messages, two crashes and a lossy line

    And one world again, with all that happened in it:

    oncemq sim --seed 81 > history.jsonl
    """
    chosen = [bugs, seed is not None, case is not None, images is not None, crash_points, explore]
    if sum(chosen) > 1:
        raise UsageError("choose one of --bugs, --seed, --case, --images, --crash-points and --explore")
    if cut is not None and seed is None:
        raise UsageError("--cut says which part of a --seed to replay: name the seed")
    for name, is_chosen in zip(MODES, chosen, strict=True):
        if is_chosen:
            refuse_others(context, f"with --{name.replace('_', '-')}", (name, *MODES[name]))
    from oncemq.cli import proofs

    output = output_of(context)
    if images is not None:
        return proofs.run_images(output, first, images)
    if case is not None:
        return proofs.replay_case(output, case)
    if crash_points:
        return proofs.run_crash_points(output)
    if explore:
        return proofs.run_explore(output)
    if seed is not None:
        return _replay(output, seed, cut or "")
    return _hunt(output) if bugs else _run(output, first, first + seeds, history)


def _replay(output: Output, seed: int, text: str) -> int:
    """One seed again, with its whole history: what happened is on stdout, the verdict on stderr."""
    from oncemq.sim.cuts import LOWEST, read_cut
    from oncemq.sim.isolation import compared
    from oncemq.sim.shrink import violations_of
    from oncemq.sim.swarm import Swarm

    try:
        swarm = Swarm(seed, read_cut(text))
    except ValueError as problem:
        fields = ", ".join(f"{name}=N" for name in LOWEST)
        raise UsageError(f"a cut is {fields}, off=NAME+NAME, strikes=N+N, with commas: {problem}") from None
    violations = violations_of(swarm) | ({} if text else compared(seed))
    for line in swarm.history.lines():
        output.line(line.decode())
    for law, witnesses in violations.items():
        output.failure(law, "; ".join(witnesses[:5]))
    return Exit.FAILED if violations else Exit.OK


# --- many seeds -------------------------------------------------------------------------------------


def _run(output: Output, first: int, end: int, history: Path | None) -> int:
    if history is not None:
        _check_writable(history)
    from oncemq.cli import proofs

    started, used_before = time.monotonic(), _seconds_of_children()
    totals = dict.fromkeys(("seeds", "messages", "faults", "crashes", "packets", "violations", "replay_mismatches"), 0)
    guilty: list[int] = []
    with UntilInterrupted() as until, closing(_twins(first, end, history)) as twins:
        for one, other in _watched(output, twins, end - first):
            totals["seeds"] += 1
            violations = one.violations | other.violations
            guilty += [one.seed] if violations else []
            for name in ("messages", "faults", "crashes", "packets"):
                totals[name] += getattr(one, name)
            totals["violations"] += bool(violations)
            totals["replay_mismatches"] += one.digest != other.digest
            _tell(output, one.seed, violations, is_same=one.digest == other.digest)
    seconds, used = time.monotonic() - started, _seconds_of_children() - used_before
    # Both workers run every message, so this is the rate of one core, whatever else the machine has to do.
    rates = {"processor_seconds": round(used, 1), "messages_per_second": round(2 * totals["messages"] / max(used, 0.001))}
    row = totals | {"seconds": round(seconds, 1)} | rates
    tell_smallest(output, [] if until.is_interrupted else guilty)
    output.card(row)
    return proofs.ended(output, until, is_broken=bool(totals["violations"] or totals["replay_mismatches"]))


def _check_writable(directory: Path) -> None:
    """Find out before anything is run whether histories can be kept there."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UsageError(
            f"--history {directory}: nothing can be written there ({error.strerror}); name another directory"
        ) from None


def _seconds_of_children() -> float:
    """Processor time of all workers that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tell_smallest(output: Output, seeds: list[int]) -> None:
    """Say of the first seeds that broke a promise how little of their worlds is needed for that."""
    from oncemq.sim.shrink import shrink

    for seed in seeds[:SHRUNK_MAX]:
        output.note(f"shrinking seed {seed}")
        shrunk = shrink(seed)
        if shrunk is not None:
            output.failure(shrunk.law, f"{shrunk.witness}  (smallest world: {shrunk.world}; replay: {shrunk.replay})")


def _tell(output: Output, seed: int, violations: dict[str, list[str]], *, is_same: bool) -> None:
    for law, witnesses in violations.items():
        output.failure(law, f"{witnesses[0]}  (replay: oncemq sim --seed {seed})")
    if not is_same:
        output.failure("replay_mismatch", f"two runs of seed {seed} differ (replay: oncemq sim --seed {seed})")


def _twins(first: int, end: int, history: Path | None) -> Generator[tuple[Outcome, Outcome]]:
    """Run the seeds in two processes at once, and yield what each says of each seed. Each judges every second one."""
    from oncemq.sim.swarm import Outcome

    # Both would write the same histories; one is enough.
    kept = [str(history)] if history else []
    workers: list[subprocess.Popen[bytes]] = []
    decode = msgspec.json.Decoder(Outcome).decode
    try:
        with deaf_children():
            workers += [_worker("1", "0", str(first), str(end), *kept)]
            workers += [_worker("2", "1", str(first), str(end))]
        for _ in range(first, end):
            one, other = (worker.stdout.readline() if worker.stdout else b"" for worker in workers)
            yield decode(one), decode(other)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _worker(hash_seed: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "oncemq.sim.worker", *arguments]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)  # noqa: S603 - our own interpreter


def _watched(output: Output, outcomes: Iterator[tuple[Outcome, Outcome]], total: int) -> Iterator[tuple[Outcome, Outcome]]:
    if not output.has_watcher:
        yield from outcomes
        return
    from rich.progress import track

    yield from track(outcomes, "simulating", total=total, console=output.console(stderr=True), transient=True)


# --- seeded bugs ------------------------------------------------------------------------------------


def _hunt(output: Output) -> int:
    """Plant one bug after the other and run seeds until the judges see it, for a minute of a core at most."""
    from oncemq.cli.proofs import ended, in_parallel
    from oncemq.sim.bugs import all_bugs
    from oncemq.sim.hunt import hunt

    finds = []
    with UntilInterrupted() as until:
        for find in in_parallel(hunt, list(all_bugs())):
            finds.append(find)
            output.note(f"{find.name:45} {find.seconds:6.1f} s  {find.law if find.is_caught else 'MISSED'}")
    missed = [find.name for find in finds if not find.is_caught]
    median = sorted(find.seconds for find in finds)[len(finds) // 2] if finds else 0.0
    bugs = [{"name": find.name, "seconds": find.seconds, "seed": find.seed, "law": find.law} for find in finds]
    row = {"caught": len(finds) - len(missed), "total": len(finds), "missed": missed, "median_seconds": median, "bugs": bugs}
    output.result(row, f"{len(finds) - len(missed)} of {len(finds)} bugs caught, median {median} s")
    return ended(output, until, is_broken=bool(missed))

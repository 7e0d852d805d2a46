# SPDX-License-Identifier: Apache-2.0
"""The exhaustive parts of `oncemq sim`: crash images, every crash point, and the search over all orders of events.

May not: judge. Verdicts come from sim/images.py, sim/matrix.py and sim/explore.py.
The idea: every piece of work is a pure function of its input, so it is spread over all cores, in processes of their own, and
told in order. What fails is named with the one line that replays it.
Next: cli/sim.py for the options.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import chain, count, islice
from multiprocessing.connection import wait
from typing import TypeVar

from oncemq.cli.exits import Exit
from oncemq.cli.output import Output
from oncemq.cli.signals import UntilInterrupted, deaf_children, uninterrupted
from oncemq.errors import UsageError

Input = TypeVar("Input")
Result = TypeVar("Result")


def in_parallel(function: Callable[[Input], Result], inputs: Iterable[Input]) -> Iterator[Result]:
    """Yield the results in the order of their inputs, which may be endless; only a few are worked on ahead."""
    workers = os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    with uninterrupted():  # Half a pool would leave a semaphore behind, and be told so by a tracker that nobody asked.
        pool = ProcessPoolExecutor(workers, context, initializer=_begin)
    source = iter(inputs)
    try:
        # One more than can be worked on: whoever has enough waits for those that have begun, but not after Ctrl-C.
        with deaf_children():
            waiting: deque[Future[Result]] = deque(pool.submit(function, each) for each in islice(source, workers + 1))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(function, each) for each in islice(source, 1))
    except KeyboardInterrupt:
        for child in multiprocessing.active_children():
            child.kill()  # Nobody waits a minute for what nobody will hear of.
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """A worker says nothing, and ends with the command that started it: killed, that one cannot end its workers."""
    logging.disable(logging.CRITICAL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_behind, args=(parent.sentinel,), daemon=True).start()


def _end_behind(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _watched(
    output: Output, results: Iterator[Result], label: str, total: int, steps: Callable[[Result], int]
) -> Iterator[Result]:
    """Show progress where somebody looks; a result may be worth many steps."""
    if not output.has_watcher:
        yield from results
        return
    from rich.progress import Progress

    with Progress(console=output.console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        for result in results:
            progress.advance(task, steps(result))
            yield result


# --- crash images -----------------------------------------------------------------------------------


def run_images(output: Output, first: int, images: int) -> int:
    """Record runs and recover from their images until there were at least so many: a run is finished."""
    from oncemq.sim.images import Recorded, explore

    started, totals = time.monotonic(), Counter[str](images=0, violations=0, runs=0, points=0)

    def worth(recorded: Recorded) -> int:
        return recorded.images

    results = in_parallel(explore, count(first))
    with UntilInterrupted() as until:
        for recorded in _watched(output, results, "recovering", images, worth):
            totals.update(images=recorded.images, violations=len(recorded.violations), runs=1, points=recorded.points)
            for violation in recorded.violations:
                output.failure("crash_image", f"{violation}  (replay: oncemq sim --images 1 --first {recorded.seed})")
            if totals["images"] >= images:
                break
        results.close()  # type: ignore[attr-defined]
    return _tell(output, totals, started, until, images_per_second=round(totals["images"] / (time.monotonic() - started)))


def _tell(output: Output, totals: Counter[str], started: float, until: UntilInterrupted, **figures: float) -> int:
    output.card(dict(totals) | {"seconds": round(time.monotonic() - started, 1)} | figures)
    return ended(output, until, is_broken=bool(totals["violations"]))


def ended(output: Output, until: UntilInterrupted, *, is_broken: bool) -> Exit:
    """Return the exit code of a run that has said what it did, and say if that is not all."""
    if until.is_interrupted:
        return output.failure("interrupted", "interrupted: the figures are those of what was done so far", Exit.INTERRUPTED)
    return Exit.FAILED if is_broken else Exit.OK


# --- crash points -----------------------------------------------------------------------------------


def run_crash_points(output: Output) -> int:
    """Every point and hit, then every ordered pair of points."""
    from oncemq.sim.matrix import HITS, count_hits, pair_cases, run_case, single_cases, text_of

    started, hits = time.monotonic(), count_hits()
    if not hits or not all(hits.values()):
        return output.failure("crash_points", f"the world is not sound without a death, or misses a point: {hits}")
    singles, pairs = list(single_cases(hits, HITS)), list(pair_cases(hits))
    totals = Counter[str](runs=0, violations=0, singles=len(singles), pairs=len(pairs), second_death_not_reached=0)
    results = in_parallel(run_case, chain(singles, pairs))
    with UntilInterrupted() as until:
        for case, left, outcome in _watched(output, results, "crashing", len(singles) + len(pairs), lambda _: 1):
            totals.update(runs=1, violations=bool(outcome.violations), second_death_not_reached=left)
            for law, witnesses in outcome.violations.items():
                output.failure(law, f"{witnesses[0]}  (replay: oncemq sim --case {text_of(case)})")
    return _tell(output, totals, started, until)


def replay_case(output: Output, text: str) -> int:
    """One case again, with its whole history."""
    from oncemq.sim.matrix import PointSwarm, read_case

    try:
        case = read_case(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a case: use POINT:HIT:kill or POINT:HIT:power, several with commas") from None
    swarm = PointSwarm(case)
    outcome = swarm.run()
    for line in swarm.history.lines():
        output.line(line.decode())
    for law, witnesses in outcome.violations.items():
        output.failure(law, "; ".join(witnesses[:5]))
    if swarm.left:
        missed, times = swarm.left[0], swarm.hits[swarm.left[0].point]
        return output.failure("not_reached", f"nobody died at {missed}: {missed.point} was reached only {times} times")
    return Exit.FAILED if outcome.violations else Exit.OK


# --- all orders of events ---------------------------------------------------------------------------


def run_explore(output: Output) -> int:
    """Search all orders of events, once for each of the default bounds."""
    from oncemq.sim.explore import explore
    from oncemq.sim.explore_space import DEFAULT

    started, totals = time.monotonic(), Counter[str](states=0, transitions=0, searches=0, violations=0)
    results = in_parallel(explore, DEFAULT)
    with UntilInterrupted() as until:
        for explored in _watched(output, results, "searching", len(DEFAULT), lambda _: 1):
            violations = int(bool(explored.violation))
            totals.update(states=explored.states, transitions=explored.transitions, searches=1, violations=violations)
            output.note(f"{explored.states:,} states, {explored.transitions:,} transitions within {explored.bounds}")
            if explored.violation:
                output.failure("explore", "\n  ".join([explored.violation, *explored.witness]))
    return _tell(output, totals, started, until)

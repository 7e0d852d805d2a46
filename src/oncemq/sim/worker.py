# SPDX-License-Identifier: Apache-2.0
"""Runs seeds and writes one JSON line for each: `python -m oncemq.sim.worker TURN FIRST END [DIR]`. `oncemq sim` starts two.

May not: share anything with its twin but the seeds. The twins have different PYTHONHASHSEEDs and must agree on every trace.
The idea: both live every world, and as they must agree on its history, one verdict is enough: each judges every second seed.
Next: sim/swarm.py for what a seed is; cli/sim.py for who compares.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from oncemq.sim.history import History
from oncemq.sim.isolation import compared
from oncemq.sim.swarm import Outcome, Swarm

TWINS = 2
"""Workers that run the same seeds, by turns of 0 and 1."""


def outcome_of(seed: int, directory: Path | None = None, *, is_judged: bool = True) -> Outcome:
    """Run a seed; an exception nobody expected is a violation like any other. With a directory, keep the history there."""
    swarm = Swarm(seed)
    try:
        outcome = swarm.run(is_judged=is_judged)
        return replace(outcome, violations=outcome.violations | compared(seed)) if is_judged else outcome
    except Exception as problem:
        return Outcome(seed, "", 0, 0, 0, 0, 0, {"crashed": [f"{type(problem).__name__}: {problem}"]})
    finally:
        if directory is not None:
            keep(swarm.history, directory / f"seed-{seed}")


def keep(history: History, directory: Path) -> None:
    """Write a history into a directory of its own: that is what makes it a run."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "history.jsonl").write_bytes(b"".join(line + b"\n" for line in history.lines()))


def is_turn(turn: int, seed: int) -> bool:
    """Whether the twin with this turn is the one that judges this seed."""
    return seed % TWINS == turn


def main(turn: int, first: int, end: int, directory: Path | None = None) -> None:
    logging.disable(logging.CRITICAL)  # What a broker says in a simulated world is nobody's news.
    gc.freeze()
    gc.disable()  # A world is all events, and they live until it ends: garbage is looked for between worlds only.
    for seed in range(first, end):
        outcome = outcome_of(seed, directory, is_judged=is_turn(turn, seed))
        sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")
        sys.stdout.buffer.flush()
        gc.collect()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *map(Path, sys.argv[4:]))
    except BrokenPipeError:
        os._exit(1)  # Whoever reads is gone, and what is left to write has no reader: no word about it.

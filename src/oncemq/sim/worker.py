# SPDX-License-Identifier: Apache-2.0
"""Runs seeds and writes one JSON line for each: `python -m oncemq.sim.worker FIRST END`. `oncemq sim` starts two of these.

May not: share anything with its twin but the seeds. The twins have different PYTHONHASHSEEDs and must agree on every trace.
Next: sim/swarm.py for what a seed is; cli/sim.py for who compares.
"""

from __future__ import annotations

import logging
import sys

import msgspec

from oncemq.sim.swarm import Outcome, run_seed


def outcome_of(seed: int) -> Outcome:
    """Run a seed; an exception nobody expected is a violation like any other."""
    try:
        return run_seed(seed)
    except Exception as problem:
        return Outcome(seed, "", 0, 0, 0, 0, 0, {"crashed": [f"{type(problem).__name__}: {problem}"]})


def main(first: int, end: int) -> None:
    logging.disable(logging.CRITICAL)  # What a broker says in a simulated world is nobody's news.
    for seed in range(first, end):
        sys.stdout.buffer.write(msgspec.json.encode(outcome_of(seed)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

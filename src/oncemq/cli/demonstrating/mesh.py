# SPDX-License-Identifier: Apache-2.0
"""The mesh beside the broker of `oncemq demo`: three nodes, one of them killed and started again while all three put.

May not: count anything but what the applications at the nodes wrote down.
Run as `python -m oncemq.cli.demonstrating.mesh DIRECTORY SEED`; says one Mesh as JSON in the end.
Next: meshing/trial.py, which does the work.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec

from oncemq.adapters.starter import end_with_starter

NODES = 3
_MESSAGES = 100
"""Of each node: enough that a kill falls between them, few enough to be done when the broker's load is."""


class Mesh(msgspec.Struct, frozen=True):
    """What came of it."""

    put: int
    got: dict[str, dict[str, int]]
    """Got, lost and twice of the application at each node."""
    overlay: dict[str, list[str]]
    violations: dict[str, list[str]]


def perform(directory: Path, seed: int) -> Mesh:
    from oncemq.cli.meshing.trial import Plan, run_trial
    from oncemq.cli.torturing.recorder import merged

    result = run_trial(directory, Plan(NODES, _MESSAGES, 1 / NODES, seed))
    times: dict[str, Counter[object]] = {}
    for event in merged(directory / "histories"):
        if event["op"] == "deliver":
            times.setdefault(str(event["process"]), Counter())[event["message"]] += 1
    got = {
        name.replace("app", "mesh node"): {
            "got": found.total(),
            "lost": result.put - len(found),
            "twice": found.total() - len(found),
        }
        for name, found in sorted(times.items())
    }
    return Mesh(result.put, got, result.overlay, result.violations)


def main() -> None:
    end_with_starter()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # The nodes go with it.
    with suppress(KeyboardInterrupt):
        _main()


def _main() -> None:
    print(json.dumps(msgspec.to_builtins(perform(Path(sys.argv[1]), int(sys.argv[2])))), flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Every world of worlds.txt keeps every promise now."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncemq.sim.images import explore
from oncemq.sim.matrix import read_case, run_case
from oncemq.sim.swarm import run_seed

LINES = [line.split(maxsplit=2) for line in Path(__file__).with_name("worlds.txt").read_text().splitlines()]
WORLDS = [fields for fields in LINES if fields and fields[0] != "#"]


def broken_by(kind: str, which: str) -> object:
    match kind:
        case "seed":
            return run_seed(int(which)).violations or None
        case "image":
            return explore(int(which), sample=60).violations or None
        case "case":
            return run_case(read_case(which))[2].violations or None
    raise ValueError(kind)


@pytest.mark.parametrize(("kind", "which", "why"), WORLDS, ids=[f"{kind} {which}" for kind, which, _ in WORLDS])
def test_a_world_that_once_failed_keeps_every_promise(kind: str, which: str, why: str) -> None:
    assert broken_by(kind, which) is None, f"once: {why}"

# SPDX-License-Identifier: Apache-2.0
"""Small meshes with faults: a few seeds of `oncemq mesh simulate --scenario small`, and those that once failed."""

from __future__ import annotations

import pytest

from oncemq.sim.mesh_swarm import FAULT_CLASSES, MeshSwarm

ONCE_FAILED = {
    94: "two nodes that knew everybody in their passive views probed nobody, so the split stayed",
    126: "a neighbour that had joined later denied what it never had, and nobody else was asked",
    1197: "a hole was forgotten and found again with every round, so it never became old enough to be given up",
    1291: "while the name of an island changed, everybody seemed to be of another island",
}


@pytest.mark.parametrize("seed", [*range(12), *ONCE_FAILED])
def test_a_small_mesh_keeps_its_promises_through_faults(seed: int) -> None:
    outcome = MeshSwarm(seed).run()
    assert outcome.violations == {}
    assert outcome.packets > 100


def test_the_same_seed_is_the_same_history() -> None:
    assert MeshSwarm(5).run() == MeshSwarm(5).run()


def test_every_fault_class_is_on_in_some_of_the_seeds() -> None:
    drawn = {each for seed in range(12) for each in MeshSwarm(seed).classes}
    assert drawn == set(FAULT_CLASSES)

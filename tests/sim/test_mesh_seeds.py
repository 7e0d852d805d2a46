# SPDX-License-Identifier: Apache-2.0
"""Small meshes with faults: a few seeds of `oncemq mesh simulate --scenario small`, and worlds that are rare."""

from __future__ import annotations

import pytest

from oncemq.sim.mesh_swarm import FAULT_CLASSES, MeshSwarm

RARE = {
    25: "a node returns, and all its neighbours joined after what it missed",
    205: "a node leaves unheard while a newcomer joins through it",
    302: "two nodes leave at once, and the others return later",
    309: "two halves forget each other, and find each other again",
    597: "a node returns with little memory, and one in reserve has what it missed",
    1528: "links that replace others are handed what is held, for ten seconds after the last put; then it is quiet",
}


@pytest.mark.parametrize("seed", [*range(12), *RARE])
def test_a_small_mesh_keeps_its_promises_through_faults(seed: int) -> None:
    outcome = MeshSwarm(seed).run()
    assert outcome.violations == {}
    assert outcome.packets > 100


def test_the_same_seed_is_the_same_history() -> None:
    assert MeshSwarm(5).run() == MeshSwarm(5).run()


def test_every_fault_class_is_on_in_some_of_the_seeds() -> None:
    drawn = {each for seed in range(12) for each in MeshSwarm(seed).classes}
    assert drawn == set(FAULT_CLASSES)

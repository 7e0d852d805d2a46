# SPDX-License-Identifier: Apache-2.0
"""The short form of `oncemq sim --explore`: the same search within narrower bounds, and bugs it must find by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array

import pytest

from oncemq.sim.bugs import planted
from oncemq.sim.explore import explore
from oncemq.sim.explore_space import Bounds, cannot_reach

DEATH_AND_LOSS = Bounds(crashes=1, drops=1)
COPY_IN_A_SHARED_DRAIN = Bounds(messages=(("a1",), ("b1",)), crashes=0, drops=0, copies=1, drain_packets=2)


@pytest.mark.parametrize("bounds", [DEATH_AND_LOSS, COPY_IN_A_SHARED_DRAIN], ids=str)
def test_no_order_of_events_breaks_a_promise(bounds: Bounds) -> None:
    explored = explore(bounds)

    assert (explored.violation, explored.witness) == ("", [])
    assert explored.states > 1_000


@pytest.mark.parametrize(
    ("bug", "law"),
    [
        ("resumes_at_the_brokers_cursor", "deliveries"),
        ("resubscribes_at_the_end", "deliveries"),
        ("retries_with_a_new_number", "nonmonotonic-send"),
        ("takes_a_gap_in_a_stream", "nonmonotonic-send"),
        ("de_duplicates_by_a_window", "nonmonotonic-send"),
    ],
)
def test_the_search_finds_a_bug_and_the_shortest_way_to_it(bug: str, law: str) -> None:
    with planted(bug):
        explored = explore(DEATH_AND_LOSS)

    assert explored.violation.startswith(law)
    assert 0 < len(explored.witness) < 20


def test_a_search_without_faults_has_few_states_and_ends_well() -> None:
    explored = explore(Bounds(crashes=0, drops=0))

    assert explored.violation == ""
    assert explored.states < 1_000


def test_states_from_which_no_goal_can_be_reached_are_found() -> None:
    #     0 → 1 → 2 (goal),  1 → 3,  3 → 3
    assert cannot_reach([2], array("q", [0, 1, 1, 2, 1, 3, 3, 3]), 4) == [3]


def run_search(hash_seed: str) -> str:
    program = "from oncemq.sim.explore import explore, Bounds; print(explore(Bounds(crashes=1, drops=0)))"
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=540
    ).stdout


def test_the_search_is_the_same_whatever_the_hash_seed() -> None:
    assert run_search("1") == run_search("2")

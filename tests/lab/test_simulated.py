# SPDX-License-Identifier: Apache-2.0
"""The experiments in the simulator, in small."""

from __future__ import annotations

import pytest

from oncemq.lab import simulated
from oncemq.lab.trials import Experiment, Kind, Observation, Trial

pytestmark = [pytest.mark.simulated, pytest.mark.slow]


def seen(trial: Trial) -> dict[tuple[str, float], float | None]:
    return {(each.measure, each.at): each.value for each in simulated.run(trial)}


def test_receptions_are_two_links_less_the_nodes_but_one_for_every_message() -> None:
    values = seen(Trial(Kind.RECEIVED, 8, 1, (2, 5)))
    for per_node in (2, 5):
        assert values["overlay_changed", per_node] == 0
        assert values["receptions", per_node] == values["receptions_exact", per_node] > 7 * 8 * per_node
    assert values["violations", 0] == 0


def test_an_overlay_becomes_full_however_nodes_join() -> None:
    values = seen(Trial(Kind.CONVERGENCE, 12, 1))
    for way in ("one_by_one", "at_once"):
        one_island, full = values[f"seconds_to_one_island_{way}", 12], values[f"seconds_to_full_views_{way}", 12]
        assert one_island is not None and full is not None
        assert one_island <= full < 60
        assert values[f"degree_{way}", 9.9] >= 4.5


def test_packets_of_membership_stay_below_what_the_paper_sends() -> None:
    values = seen(Trial(Kind.MEMBERSHIP, 10, 1))
    assert values["packets_join", 10] == 9
    assert 0 < values["packets_shuffle", 10] <= 5 * 10 * 60 / 5 * 1.25
    assert values["packets_forward_join", 10] < 9 * 28


def test_survivors_have_what_any_of_them_holds_and_all_have_all_once_the_killed_are_back() -> None:
    values = seen(Trial(Kind.KILLS, 8, 1, (50,)))
    assert values["survivors_have", 50] == values["all_have", 50] == 1.0
    assert values["violations", 50] == 0
    assert values["seconds_to_level", 50] is not None and values["seconds_to_level_again", 50] is not None


def test_one_run_of_the_papers_gives_overlay_reliability_and_healing() -> None:
    rows = list(simulated.run(Trial(Kind.PAPERS, 60, 1, (50,))))
    assert {row.experiment for row in rows} == {Experiment.OVERLAY, Experiment.RELIABILITY, Experiment.HEALING}
    assert all(isinstance(row, Observation) and row.seed == 1 and row.nodes == 60 for row in rows)
    values = {(row.measure, row.at): row.value for row in rows}
    assert values["flood_receptions", 60] == values["flood_expected", 60]


def test_the_same_trial_sees_the_same() -> None:
    trial = Trial(Kind.MEMBERSHIP, 6, 3)
    assert list(simulated.run(trial)) == list(simulated.run(trial))

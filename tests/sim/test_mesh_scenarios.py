# SPDX-License-Identifier: Apache-2.0
"""The scenarios of `oncemq mesh simulate` in short forms: measures of overlays, failures, splits, storms, churn, planted bugs."""

from __future__ import annotations

import pytest

from oncemq.cli.simulating import summed_up
from oncemq.sim import mesh_graph, mesh_paper, mesh_scenarios
from oncemq.sim.mesh_bugs import MESH_BUGS, hunt
from oncemq.sim.mesh_flood import Flooding
from oncemq.sim.mesh_overlay import name_of

NODES = 150

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def paper() -> dict:
    return mesh_paper.run(NODES, 3, levels=(50, 90))


def test_an_overlay_is_symmetric_connected_full_and_has_hardly_a_triangle(paper: dict) -> None:
    assert paper["symmetric"] and paper["connected"]
    assert paper["mean_degree"] >= 4.99
    assert paper["clustering"] < mesh_graph.random_clustering(NODES, 5) / 2, "10,000 nodes have none at all"
    assert paper["mean_path"] <= mesh_graph.random_mean_path(NODES, 5) + 0.05
    assert paper["max_hops"] <= 7


def test_a_flood_costs_two_links_less_the_nodes_but_one(paper: dict) -> None:
    assert paper["flood_receptions"] == paper["flood_expected"] == 2 * paper["links"] - (NODES - 1)
    assert paper["flood_reached"] == paper["flood_reached_by_arrays"] == NODES


def test_at_rest_there_are_shuffles_and_nothing_else() -> None:
    overlay = mesh_paper.build(100, 1, cycles=5)
    overlay.sent.clear()
    overlay.cycle()
    assert set(overlay.sent) == {"Shuffle", "ShuffleReply"}
    assert overlay.sent["Shuffle"] <= 5 * 100, "five hops each, decremented first"


def test_survivors_that_were_told_reach_everybody(paper: dict) -> None:
    for level in paper["failures"]:
        assert level["told_mean"] >= 0.99 and level["heartbeat_once_told"] >= 0.99
        assert level["told_cycles"] is not None


def test_the_first_message_crosses_the_holes_if_it_is_held_and_handed_on(paper: dict) -> None:
    most = paper["failures"][1]
    assert most["first_without_hold"] < 0.5
    assert most["first_with_hold"] > 0.7


def test_a_flood_that_nobody_holds_stops_at_the_dead() -> None:
    overlay = mesh_paper.build(100, 2, cycles=3)
    overlay.kill([name_of(index) for index in range(20, 100)])
    flooded = Flooding(overlay, holds=False).run(name_of(5))
    assert flooded.failed_sends > 0
    assert len(flooded.reached) < 20


def test_closed_forms_are_those_of_the_literature() -> None:
    assert [round(mesh_graph.random_mean_path(nodes, 5), 2) for nodes in (100, 1_000, 10_000)] == [3.06, 4.70, 6.36]
    assert mesh_graph.random_clustering(10_000, 5) == pytest.approx(0.00032)
    assert [round(mesh_graph.giant_share(failed, 5), 3) for failed in (0.5, 0.7, 0.8)] == [0.952, 0.474, 0.0]
    assert mesh_graph.knowledge_share(0.95, 65) == pytest.approx(0.955, abs=0.001)


def test_a_split_heals_and_everything_put_meanwhile_is_delivered_once() -> None:
    row = mesh_scenarios.split(16, 1)
    assert row["violations"] == {}
    assert row["islands_before_healing"] == 2 and row["had_forgotten"]
    assert row["bridges"] >= 1
    assert row["handed_over"] == row["messages"] * row["nodes"]
    assert row["seconds_to_nothing_missing"] <= 60


def test_a_storm_of_joins_on_one_contact_ends_well() -> None:
    row = mesh_scenarios.storm(40, 1)
    assert row["violations"] == {}
    assert row["mean_degree"] >= 4.9
    assert row["evictions_per_join"] < 3
    assert row["handed_over"] == 20 * 40


def test_churn_leaves_the_overlay_whole_and_nothing_is_missed() -> None:
    row = mesh_scenarios.churn(30, 1, cycles=6)
    assert row["violations"] == {} and row["given_up"] == 0
    assert row["overlay"]["symmetric"] and row["overlay"]["connected"]
    assert row["overlay"]["worst_reach"] == 1.0
    assert row["seconds_to_nothing_missing"] is not None


def test_anti_entropy_in_step_costs_less_than_100_bytes_whatever_is_stored() -> None:
    few, many = mesh_scenarios._recover(6, 1, 2, 1), mesh_scenarios._recover(6, 1, 60, 1)
    assert few["in_step_bytes"] == many["in_step_bytes"] < 100
    assert many["recovery_bytes"] < many["in_step_bytes_as_ids"]
    assert few["violations"] == many["violations"] == {}


@pytest.mark.parametrize(
    "name",
    [
        "vector_tells_unsynced",
        "early_messages_in_the_vector",
        "repeats_are_stored_again",
        "topic_filter_ignored",
        "a_restarted_neighbour_comes_up_twice",
        "silent_neighbours_stay",
        "only_neighbours_are_asked_for_holes",
        "transactions_are_torn",
    ],
)
def test_a_planted_bug_is_caught(name: str) -> None:
    """Those that show at once; `oncemq mesh simulate --bugs` hunts them all."""
    assert name in MESH_BUGS
    assert hunt(name, 30).is_caught


def test_several_seeds_are_summed_up_by_mean_p95_and_worst() -> None:
    rows = [{"seconds_to_heal": value, "told_mean": 1 - value / 100, "connected": True} for value in range(1, 21)]
    row = summed_up(rows)
    assert row["spread"]["seconds_to_heal"] == {"mean": 10.5, "p95": 20, "worst": 20}
    assert row["spread"]["told_mean"]["worst"] == 0.8
    assert row["connected"] is True
    assert (
        summed_up([*rows, {"seconds_to_heal": None, "told_mean": 1.0, "connected": False}])["spread"]["seconds_to_heal"]["never"]
        == 1
    )

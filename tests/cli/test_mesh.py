# SPDX-License-Identifier: Apache-2.0
"""`oncemq mesh simulate` as people and programs use it.

May not: need a broker.
Next: tests/sim/test_mesh_scenarios.py for what the scenarios show.
"""

from __future__ import annotations

import pytest

from oncemq.cli import simulating
from oncemq.cli.exits import Exit
from oncemq.cli.output import Output
from tests.cli.harness import Shell


@pytest.mark.real
def test_small_meshes_are_run_and_judged(alone: Shell) -> None:
    ended = alone("mesh", "simulate", "--scenario", "small", "--first", "10", "--seeds", "2", "--json", local=True)
    assert ended.code == Exit.OK
    assert ended.json["seeds"] == 2 and ended.json["violations"] == ended.json["replay_mismatches"] == 0
    assert ended.json["packets"] > 0


def test_one_seed_of_a_scenario_is_one_row_of_figures(alone: Shell) -> None:
    ended = alone("mesh", "simulate", "--scenario", "storm", "--nodes", "12", "--seeds", "1", "--json", local=True)
    assert ended.code == Exit.OK
    assert ended.json["nodes"] == 12 and ended.json["violations"] == {}
    assert ended.json["handed_over"] == 12 * 20


def test_people_get_a_card_and_a_table(alone: Shell) -> None:
    ended = alone("mesh", "simulate", "--scenario", "paper", "--nodes", "12", local=True)
    assert ended.code == Exit.OK
    assert "mean degree" in ended.text and "first with hold" in ended.text


def test_an_unknown_scenario_is_a_usage_error(alone: Shell) -> None:
    assert alone("mesh", "simulate", "--scenario", "flood", local=True).code == Exit.USAGE


@pytest.mark.parametrize(
    "row",
    [
        {"violations": {"P3 agreement": ["n1 lacks 2 messages"]}},
        {"connected": False},
        {"overlay": {"symmetric": False}},
        {"flood_receptions": 10, "flood_expected": 11},
        {"seconds_to_one_island": None},
        {"rows": [{"violations": {"P2 at most once": ["n1 stored number 2 twice"]}}]},
    ],
)
def test_a_run_that_broke_something_ends_with_exit_code_1(
    row: dict, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulating, "run_one", lambda *_: row)
    assert simulating.run_scenario(Output(is_json=True), "split", 2, 7, 1) == Exit.FAILED
    assert "--first 7 --seeds 1" in capfd.readouterr().err

# SPDX-License-Identifier: Apache-2.0
"""The short form of `oncemq sim --crash-points`: every point once by kill -9 and with the power, and every point twice."""

from __future__ import annotations

import pytest

from oncemq.crashpoints import POINTS
from oncemq.sim.bugs import planted
from oncemq.sim.matrix import Death, count_hits, pair_cases, read_case, run_case, single_cases, text_of


@pytest.fixture(scope="module")
def hits() -> dict[str, int]:
    return count_hits()


def test_the_world_reaches_every_point_more_than_once(hits: dict[str, int]) -> None:
    assert {point: count for point, count in hits.items() if count < 4} == {}
    assert set(hits) == set(POINTS)


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_a_death_at_a_point_breaks_no_promise(hits: dict[str, int], point: str, power_cut: bool) -> None:
    _, left, outcome = run_case((Death(point, 1 + hits[point] // 2, power_cut),))

    assert (left, outcome.violations) == (0, {})


@pytest.mark.parametrize("point", POINTS)
def test_dying_again_at_the_same_point_with_the_power_breaks_no_promise(hits: dict[str, int], point: str) -> None:
    _, left, outcome = run_case((Death(point, 1 + hits[point] // 4, False), Death(point, 1, True)))

    assert (left, outcome.violations) == (0, {})


def test_all_hits_up_to_fifty_and_all_pairs_are_visited() -> None:
    hits = dict.fromkeys(POINTS, 2) | {POINTS[0]: 99}
    singles, pairs = list(single_cases(hits)), list(pair_cases(hits))

    assert len(singles) == len(set(singles)) == 2 * (50 + 2 * (len(POINTS) - 1))
    assert {(one.point, other.point) for one, other in pairs} == {(one, other) for one in POINTS for other in POINTS}
    assert len(pairs) == len(set(pairs)) == 3 * len(POINTS) ** 2


def test_a_broker_that_answers_before_the_sync_is_seen_at_one_crash_point() -> None:
    case = read_case("broker.before_append:20:power")
    with planted("answers_before_the_sync"):
        violations = run_case(case)[2].violations

    assert violations
    assert run_case(case)[2].violations == {}


def test_a_case_can_be_typed() -> None:
    case = read_case("broker.after_append:3:power,client.after_send:1:kill")

    assert case == (Death("broker.after_append", 3, True), Death("client.after_send", 1, False))
    assert read_case(text_of(case)) == case


@pytest.mark.parametrize(
    "text", ["", "nowhere:1:kill", "broker.after_append:1", "broker.after_append:x:kill", "broker.after_sync:1:x"]
)
def test_what_is_no_case_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_case(text)

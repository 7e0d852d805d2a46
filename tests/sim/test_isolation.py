# SPDX-License-Identifier: Apache-2.0
"""Nobody gets less or more because of somebody else: pairs of runs, and what the comparison must see."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from oncemq.sim.bugs import planted
from oncemq.sim.isolation import (
    EVERY,
    NEIGHBOURS,
    READERS,
    Place,
    Script,
    compare,
    compared,
    differences,
    draw_script,
)
from oncemq.sim.scheduler import stream

SCRIPT = Script(
    topics=("orders",),
    puts=(("orders", 2, 0), ("orders", 1, 10)),
    readers=("gets",),
    neighbours=("is_deaf",),
    deaths=(),
    retain="",
    loss=0.0,
    sync_us_max=0,
)
ALL: list[Place] = [("orders", 0, "m0"), ("orders", 1, "m1"), ("orders", 2, "m2")]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What a broken broker says in a simulated world is nobody's news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


# --- the product --------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(7_000, 7_060, 10))
def test_a_slow_or_dead_neighbour_changes_nothing_for_anybody(first: int) -> None:
    for seed in range(first, first + 10):
        assert (seed, compare(seed)) == (seed, [])


def test_these_pairs_have_every_reader_and_every_neighbour() -> None:
    scripts = [draw_script(stream(seed, "isolation")) for seed in range(7_000, 7_060)]
    assert {name for script in scripts for name in script.readers} == set(READERS)
    assert {name for script in scripts for name in script.neighbours} == set(NEIGHBOURS)
    assert {len(script.deaths) for script in scripts} == {0, 1, 2}


# --- it can fail --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["waits_for_the_slowest", "takes_the_topic_along", "moves_everybodys_cursor"])
def test_a_broker_that_lets_one_pay_for_another_is_found(name: str) -> None:
    with planted(name):
        assert any(compared(seed) for seed in range(0, 20 * EVERY, EVERY))


def test_only_some_seeds_are_judged_by_this_and_by_both_twins() -> None:
    with planted("waits_for_the_slowest"):
        assert compared(1) == {}
    assert EVERY % 2 == 1


# --- the comparison -----------------------------------------------------------------------------------


def test_the_same_beside_others_is_no_difference() -> None:
    assert list(differences({"gets0": ALL}, {"gets0": list(ALL)}, SCRIPT)) == []


@pytest.mark.parametrize(
    "among",
    [
        pytest.param(ALL[:2], id="less"),
        pytest.param([*ALL, ("orders", 3, "m3")], id="more"),
        pytest.param([*ALL, ALL[0]], id="one twice"),
        pytest.param([ALL[1], ALL[0], ALL[2]], id="in another order"),
        pytest.param([ALL[0], ALL[1], ("orders", 3, "m2")], id="at another offset"),
        pytest.param([*ALL[:2], ("orders", -1, "told: it is gone")], id="told something"),
    ],
)
def test_whatever_is_otherwise_beside_others_is_found(among: list[Place]) -> None:
    (witness,) = differences({"gets0": ALL}, {"gets0": among}, SCRIPT)
    assert "gets0" in witness
    assert "somebody who is deaf" in witness


def test_who_gets_too_little_with_and_without_others_is_found_too() -> None:
    assert list(differences({"gets0": ALL[:2]}, {"gets0": ALL[:2]}, SCRIPT)) == [
        "gets0 got {'orders': 2} of {'orders': 3}, neighbours or not"
    ]


@pytest.mark.parametrize("again", [("orders", 1, "m1"), ("orders", 2, "m1")])
def test_who_gets_one_twice_and_another_never_is_found_too(again: Place) -> None:
    """As many as there are: only their number was compared with what was put."""
    got = [*ALL[:2], again]
    assert list(differences({"gets0": got}, {"gets0": got}, SCRIPT)) == [
        "gets0 got one message twice and another one never, neighbours or not"
    ]

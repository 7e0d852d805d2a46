# SPDX-License-Identifier: Apache-2.0
"""The passive view, the cold list and the quarantine as sets with rules; standings as a table."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.errors import InvariantViolated
from oncemq.mesh.dice import jittered, sample
from oncemq.mesh.islands import SILENT_HEARTBEATS, Island
from oncemq.mesh.packets import Priority
from oncemq.mesh.standing import TRANSITIONS, Ask, Cause, Link, Relations, Standing
from oncemq.mesh.views import ColdList, PassiveView, Quarantine

IDS = st.lists(st.sampled_from([f"n{i}" for i in range(12)]), max_size=40)


@given(IDS, IDS)
def test_the_passive_view_is_a_bounded_set_whatever_comes_and_goes(added: list[str], removed: list[str]) -> None:
    view = PassiveView(5, random.Random(0))
    for address in added:
        view.add(address)
        assert address in view
        assert len(view) == len(set(view.ids)) <= 5
    for address in removed:
        view.remove(address)
        assert address not in view
        assert all(each in view for each in view.ids)


def test_a_view_of_no_size_takes_nothing() -> None:
    view = PassiveView(0, random.Random(0))
    view.add("a")
    assert len(view) == 0


def test_the_cold_list_keeps_the_same_ids_however_often_others_are_heard() -> None:
    """A split must not be forgotten because one side goes on shuffling."""
    cold = ColdList(20, random.Random(1))
    for index in range(200):
        cold.learn(f"far{index}" if index % 2 else f"near{index}")
    kept = [each for each in cold if each.startswith("far")]
    for _ in range(50):
        for index in range(0, 200, 2):
            cold.learn(f"near{index}")
    assert [each for each in cold if each.startswith("far")] == kept
    assert len(kept) >= 5


def test_two_nodes_keep_different_samples() -> None:
    lists = [ColdList(20, random.Random(seed)) for seed in (1, 2)]
    for cold in lists:
        for index in range(1_000):
            cold.learn(f"n{index}")
    assert len(set(lists[0]) & set(lists[1])) < 10


def test_contacts_stay_in_the_cold_list_for_ever() -> None:
    cold = ColdList(2, random.Random(0), ("seed",))
    for index in range(100):
        cold.learn(f"n{index}")
    cold.forget("seed")
    assert "seed" in cold and len(cold) == 3


def test_an_id_that_failed_too_often_gives_way_to_a_new_one() -> None:
    cold = ColdList(5, random.Random(0))
    for index in range(5):
        cold.learn(f"old{index}")
    for _ in range(20):
        for index in range(5):
            cold.failed(f"old{index}", 0)
    for index in range(500):
        cold.learn(f"new{index}")
    assert all(each.startswith("new") for each in cold)


def test_a_spare_is_neither_known_nor_shunned_nor_failed() -> None:
    cold = ColdList(10, random.Random(0))
    for name in ("known", "shunned", "failed", "good"):
        cold.learn(name)
    cold.failed("failed", 0)
    assert {cold.spare({"known"}, {"shunned"}) for _ in range(20)} == {"good"}


def test_whoever_was_probed_longest_ago_is_probed_next() -> None:
    cold = ColdList(3, random.Random(0))
    for name in ("a", "b", "c"):
        cold.learn(name)
    assert sorted(cold.next_probe(now_ms, ()) or "" for now_ms in (1, 2, 3)) == ["a", "b", "c"]
    assert cold.next_probe(4, ("a", "b", "c")) is None


def test_a_quarantine_ends() -> None:
    quarantine = Quarantine(1_000)
    quarantine.add("a", 0)
    quarantine.add("b", 500)
    quarantine.expire(1_000)
    assert "a" not in quarantine and "b" in quarantine
    quarantine.release("b")
    assert "b" not in quarantine


def test_a_quarantine_is_bounded() -> None:
    quarantine = Quarantine(1_000)
    for index in range(2_000):
        quarantine.add(f"n{index}", 0)
    assert sum(f"n{index}" in quarantine for index in range(2_000)) == 1_000


@given(st.lists(st.integers(), unique=True), st.integers(0, 10), st.integers(0, 99))
def test_a_sample_has_no_repeats_and_no_strangers(items: list[int], count: int, seed: int) -> None:
    drawn = sample(random.Random(seed), items, count)
    assert len(drawn) == len(set(drawn)) == min(count, len(items))
    assert set(drawn) <= set(items)


def test_jitter_stays_within_a_fifth() -> None:
    dice = random.Random(0)
    assert {800 <= jittered(dice, 1_000) <= 1_200 for _ in range(100)} == {True}


# --- standings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", Cause)
@pytest.mark.parametrize("standing", Standing)
def test_only_the_ways_of_the_table_are_possible(standing: Standing, cause: Cause) -> None:
    relations = Relations()
    things = {Standing.STRANGER: None, Standing.ASKED: Ask(1, 0, Priority.LOW, ""), Standing.NEIGHBOUR: Link(1, 0)}
    if standing is Standing.ASKED:
        relations.move("a", Cause.ASK, things[standing])
    elif standing is Standing.NEIGHBOUR:
        relations.move("a", Cause.ADMITTED, things[standing])
    after = TRANSITIONS.get((standing, cause))
    if after is None:
        with pytest.raises(InvariantViolated):
            relations.move("a", cause, None)
    else:
        relations.move("a", cause, things[after])
        assert relations.standing_of("a") is after


# --- islands ----------------------------------------------------------------------------------------------


def _islands(count: int) -> list[Island]:
    return [Island(1_000, random.Random(seed)) for seed in range(count)]


def _exchange(islands: list[Island], now_ms: int) -> None:
    for island in islands:
        island.tick(now_ms)
    for left, right in pairwise(islands):
        left.hear(now_ms, right.number, right.beat)
        right.hear(now_ms, left.number, left.beat)


def test_all_nodes_of_an_island_agree_on_its_name_and_two_islands_differ() -> None:
    one, other = _islands(5), [Island(1_000, random.Random(seed)) for seed in range(100, 104)]
    for beat in range(10):
        _exchange(one, 1_000 * beat)
        _exchange(other, 1_000 * beat)
        assert not one[0].differs(1_000 * beat, other[0].name(1_000 * beat)), "names that are young are not compared"
    for beat in range(10, 30):
        _exchange(one, 1_000 * beat)
        _exchange(other, 1_000 * beat)
    assert len({island.name(30_000) for island in one}) == len({island.name(30_000) for island in other}) == 1
    assert one[0].differs(30_000, other[0].name(30_000))


def test_the_name_of_an_island_dies_with_its_node_and_does_not_come_back() -> None:
    """Two neighbours must not keep a dead name alive by telling it to each other."""
    islands = _islands(6)
    for beat in range(10):
        _exchange(islands, 1_000 * beat)
    name = islands[0].number
    alive = [island for island in islands if island._own != name]
    for beat in range(10, 10 + 4 * SILENT_HEARTBEATS):
        _exchange(alive, 1_000 * beat)
    assert len({island.number for island in alive}) == 1
    assert alive[0].number != name

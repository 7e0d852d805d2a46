# SPDX-License-Identifier: Apache-2.0
"""A world that broke a promise is made as small as can be, and one line replays it."""

from __future__ import annotations

import pytest

from oncemq.sim.bugs import planted
from oncemq.sim.cuts import Cut, read_cut
from oncemq.sim.shrink import shrink, violations_of
from oncemq.sim.swarm import Swarm


def test_a_violation_is_shrunk_to_what_is_needed_for_it() -> None:
    """Seed 7 has ten faults; a broker that forgets its tail needs few of them."""
    with planted("drops_the_tail_after_a_restart"):
        whole = Swarm(7)
        assert violations_of(whole)
        shrunk = shrink(7)
        assert shrunk is not None
        again = Swarm(7, read_cut(str(shrunk.cut)))
        violations = violations_of(again)

    assert violations[shrunk.law][0] == shrunk.witness
    assert again.faults < whole.faults // 2
    assert again.plan.messages < whole.plan.messages // 5
    assert shrunk.replay == f"oncemq sim --seed 7 --cut {shrunk.cut}"
    assert shrunk.world


def test_a_shrunk_world_of_a_sound_product_is_sound() -> None:
    with planted("drops_the_tail_after_a_restart"):
        shrunk = shrink(20)
    assert shrunk is not None

    assert violations_of(Swarm(20, shrunk.cut)) == {}


def test_a_seed_that_keeps_every_promise_is_not_shrunk() -> None:
    assert shrink(3) is None


def test_no_more_worlds_are_tried_than_allowed() -> None:
    with planted("drops_the_tail_after_a_restart"):
        shrunk = shrink(20, runs_max=3)

    assert shrunk is not None
    assert shrunk.runs <= 4


def test_a_world_that_is_not_cut_is_the_same_world() -> None:
    assert Swarm(5).run() == Swarm(5, Cut()).run()


@pytest.mark.parametrize(
    "cut",
    [
        Cut(),
        Cut((("messages", 4), ("publishers", 1))),
        Cut(off=("late", "loss")),
        Cut(strikes=()),
        Cut((("topics", 1),), ("repeat",), (2, 11)),
    ],
    ids=str,
)
def test_a_cut_can_be_typed(cut: Cut) -> None:
    assert read_cut(str(cut)) == cut


@pytest.mark.parametrize("text", ["messages", "messages=0", "messages=x", "giraffes=1", "strikes=", "strikes=a"])
def test_what_is_no_cut_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_cut(text)


def test_a_cut_only_takes_away() -> None:
    plan = Swarm(5).plan

    assert read_cut("messages=1000000,publishers=99,topics=9,batch_max=999999").of(plan) == plan

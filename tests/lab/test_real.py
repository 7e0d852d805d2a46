# SPDX-License-Identifier: Apache-2.0
"""The experiments with processes, in small."""

from __future__ import annotations

import pytest

from oncemq.lab import real
from oncemq.lab.trials import REAL, Kind, Trial

pytestmark = pytest.mark.real


def seen(trial: Trial) -> dict[tuple[str, float], float | None]:
    observations = list(real.run(trial))
    assert all(each.mode == REAL for each in observations)
    return {(each.measure, each.at): each.value for each in observations}


def test_real_nodes_hear_of_every_message_as_often_as_the_formula_says() -> None:
    values = seen(Trial(Kind.RECEIVED, 4, 0, (2, 3), REAL))
    for per_node in (2, 3):
        assert values["overlay_changed", per_node] == 0
        assert values["receptions", per_node] == values["receptions_exact", per_node] == (12 - 3) * per_node * 4


def test_real_nodes_become_one_island_and_full() -> None:
    values = seen(Trial(Kind.CONVERGENCE, 3, 0, (), REAL))
    assert values["seconds_to_one_island_one_by_one", 3] is not None
    assert values["seconds_to_full_views_one_by_one", 3] is not None


def test_real_survivors_have_everything_and_all_have_everything_once_the_dead_are_back() -> None:
    values = seen(Trial(Kind.KILLS, 4, 0, (50,), REAL))
    assert values["survivors_have", 50] == values["all_have", 50] == 1.0
    assert values["violations", 50] == 0

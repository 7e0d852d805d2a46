# SPDX-License-Identifier: Apache-2.0
"""A dozen tasks on one AsyncClient, cancelled at random while the broker dies: every message once, every effect once (H14).

Next: tasks.py, which can play longer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real import tasks

pytestmark = pytest.mark.real

SECONDS = 3.0
DEATHS = 2


@pytest.mark.parametrize("seed", [2])
def test_h14_tasks_that_are_cancelled_while_the_broker_dies_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    play = tasks.run(tmp_path, seed=seed, seconds=SECONDS, deaths=DEATHS)
    assert play.wrong == [], f"play longer: python -m tests.real.tasks --seed {seed} --seconds 60"
    assert [each for each in tasks.TO_BE_SEEN if play.seen[each] == 0] == [], dict(play.seen)

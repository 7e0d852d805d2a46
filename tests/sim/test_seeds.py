# SPDX-License-Identifier: Apache-2.0
"""The short form of `oncemq sim`: some seeds, and two processes that must agree. regressions/ has the seeds that once failed."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from oncemq.sim.bugs import planted
from oncemq.sim.scheduler import Scheduler
from oncemq.sim.swarm import PATIENCE_US, Swarm, run_seed
from oncemq.sim.worker import TWINS, is_turn, outcome_of


@pytest.mark.parametrize("first", range(5_000, 5_100, 10))
def test_worlds_that_go_wrong_keep_every_promise(first: int) -> None:
    for seed in range(first, first + 10):
        assert (seed, run_seed(seed).violations) == (seed, {})


def run_worker(hash_seed: str) -> list[str]:
    command = [sys.executable, "-m", "oncemq.sim.worker", "0", "0", "12"]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=540).stdout.splitlines()


def test_one_seed_is_one_history_whatever_the_hash_seed() -> None:
    one, other = run_worker("1"), run_worker("2")

    assert one == other
    assert len({json.loads(line)["digest"] for line in one}) == len(one) == 12


def test_of_twins_one_judges_and_both_live_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncemq.sim.swarm.check", lambda _events: {"a-law": ["a witness"]})

    judged, unjudged = (outcome_of(0, is_judged=is_turn(turn, 0)) for turn in range(TWINS))

    assert (judged.violations, unjudged.violations) == ({"a-law": ["a witness"]}, {})
    assert judged.digest == unjudged.digest
    assert [is_turn(turn, 1) for turn in range(TWINS)] == [False, True]


def test_times_in_a_history_never_go_back() -> None:
    swarm = Swarm(2)
    swarm.run(is_judged=False)
    times = [int(event["t"] or 0) for event in swarm.history.events]

    assert times == sorted(times)


def test_nothing_is_left_of_a_world_that_is_over() -> None:
    """Its broker still runs at the end. Left as it is, a thousand worlds would be in memory at once."""
    swarm = Swarm(5_000)
    world = weakref.ref(swarm.world)
    swarm.run()
    del swarm
    gc.collect()

    assert world() is None


def test_a_process_that_was_killed_before_it_began_never_begins() -> None:
    scheduler, lives = Scheduler(1), []
    process = scheduler.spawn("late", lambda: lives.append(1))
    process.kill()
    scheduler.run(until=lambda: False)

    assert (process.is_running, lives) == (False, [])


def test_a_world_in_which_somebody_gets_nowhere_ends() -> None:
    """The planted bug has somebody told the same in every life: it is not waited for until all simulated time is over."""
    with planted("trims_by_unsynced_cursors"):
        outcome = Swarm(22).run()

    assert "stuck" in outcome.violations
    assert outcome.simulated_us < PATIENCE_US / 2


def test_a_world_in_which_somebody_turns_in_one_life_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug hands the same message out for ever: a hundred microseconds each time, and no end in sight."""
    monkeypatch.setattr("oncemq.sim.swarm.EVENTS_MAX", 12_000)
    with planted("hands_out_a_block_from_its_beginning"):
        outcome = Swarm(5).run()

    assert "stuck" in outcome.violations


@pytest.fixture
def busy_collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.set_threshold(100, 5, 5)
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("busy_collector")
def test_a_world_does_not_depend_on_when_garbage_is_collected() -> None:
    """The planted bug leaves a listener behind that would say, whenever it is found, that it leaves."""
    with planted("retries_with_a_new_number"):
        outcome = Swarm(0).run()
        gc.disable()
        try:
            again = Swarm(0).run()
        finally:
            gc.enable()

    assert outcome == again
    assert gc.isenabled()

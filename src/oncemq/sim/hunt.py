# SPDX-License-Identifier: Apache-2.0
"""Runs seeds against every seeded bug until the judges see it.

May not: count an exception of the harness as a catch unless the product raised it in a world that was sound without the bug.
The idea: seeds from 0 on, as `oncemq sim` runs them, and a few crash images after every tenth. A bug that only some fault brings
to light is looked for in the small worlds that have this fault; which seeds those are is drawn, not chosen.
Next: sim/bugs.py for the bugs, docs/testing.md for what was caught when.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

from oncemq.sim.bugs import planted
from oncemq.sim.images import explore
from oncemq.sim.plan import BULK, Plan, plan_of
from oncemq.sim.scheduler import stream
from oncemq.sim.worker import outcome_of

SECONDS_MAX = 60.0
"""How long a bug may hide: seconds of one core, whatever else the machine does."""


NEEDS: dict[str, Callable[[Plan], bool]] = {
    "acknowledges_what_it_heard": lambda plan: plan.listeners > 0,
    "begins_streams_that_an_old_copy_names": lambda plan: bool({"client_set_back", "client_cloned"} & set(plan.later)),
    "believes_a_bookmark_of_any_start": lambda plan: "broker_set_back" in plan.later,
    "believes_a_topics_name": lambda plan: plan.wanderers > 0 and "late" in plan.classes,
    "believes_a_welcome_that_shows_less": lambda plan: "broker_set_back" in plan.later,
    "renumbers_for_a_broker_that_went_back": lambda plan: "broker_set_back" in plan.later,
    "takes_a_directory_that_does_not_know_the_session": lambda plan: "client_set_back" in plan.later,
    "tells_damage_to_the_end_of_the_topic": lambda plan: "bit_rot" in plan.later,
    "takes_over_in_silence": lambda plan: "client_set_back" in plan.later,
    "answers_a_lost_state_by_taking_over": lambda plan: "client_set_back" in plan.later,
}
"""What a world must have for a bug to show: no other world is worth the time."""
IMAGES_EVERY = 10
IMAGES = 200
"""After so many worlds, so many crash images: what only a torn write shows is seldom met in a world, and always here."""


@dataclass(frozen=True, slots=True)
class Find:
    """What became of one bug: the seed and the law that caught it, or none."""

    name: str
    seconds: float
    seed: int
    law: str

    @property
    def is_caught(self) -> bool:
        return bool(self.law)


def hunt(name: str, seconds_max: float = SECONDS_MAX) -> Find:
    """Run seeds with one bug planted until one is judged guilty, or the time is over."""
    started = time.process_time()
    for seed in count():
        laws: list[str] = []
        if _may_show(name, seed):
            with planted(name):
                laws = _broken_laws(seed)
        seconds = time.process_time() - started
        if laws or seconds >= seconds_max:
            return Find(name, round(seconds, 2), seed, ", ".join(laws))
    raise AssertionError("there is always another seed")


def _may_show(name: str, seed: int) -> bool:
    if name not in NEEDS:
        return True
    plan = plan_of(partial(stream, seed))
    return plan.batch_max < BULK and NEEDS[name](plan)


def _broken_laws(seed: int) -> list[str]:
    laws = list(outcome_of(seed).violations)
    if not laws and seed % IMAGES_EVERY == 0 and explore(seed // IMAGES_EVERY, images_max=IMAGES).violations:
        return ["crash-image"]
    return laws

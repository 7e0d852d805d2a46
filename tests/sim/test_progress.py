# SPDX-License-Identifier: Apache-2.0
"""Judges of those who wait: what they must see, what they must not call a crime, and what writes it down for them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import cast

import pytest

from oncemq.errors import BrokerUnreachable
from oncemq.limits import BACKOFF_MS_MAX, GET_PARK_MS, LIVE_SILENCE_MS, REQUEST_TIMEOUT_MS, REQUEST_TRIES
from oncemq.model.message import Message
from oncemq.sim.asking import NOTED_US, Asking
from oncemq.sim.bugs import planted
from oncemq.sim.checkers import check
from oncemq.sim.forks import Event
from oncemq.sim.history import History
from oncemq.sim.progress import BOUND_US, LONGEST_PAUSE_US, LONGEST_TRY_US
from oncemq.sim.scheduler import Scheduler
from oncemq.sim.worker import outcome_of

S = 1_000_000
LONG = BOUND_US // S + 1
"""Seconds that nobody should wait in calm."""
MESSAGES = cast(list[Message], ["a message"])


def test_the_bound_is_made_of_the_products_own_numbers() -> None:
    assert LONGEST_TRY_US == 1_000 * (GET_PARK_MS + (REQUEST_TIMEOUT_MS << (REQUEST_TRIES - 1))) == 2_000 * LIVE_SILENCE_MS
    assert LONGEST_PAUSE_US == 1_000 * BACKOFF_MS_MAX


# --- the judges ---------------------------------------------------------------------------------------


def event(seconds: float, process: str, operation: str, **fields: str | int | bool | None) -> Event:
    return {"t": int(seconds * S), "process": process, "life": 1, "kind": "ok", "op": operation} | fields


def world(seconds: float, operation: str, **fields: str | int | bool | None) -> Event:
    return event(seconds, "harness", operation, **fields)


def unanswered(since: float, until: float) -> Event:
    return event(until, "any", "unanswered", since=int(since * S))


def away(at: float, active: float = 0) -> Event:
    return event(at, "any", "away", name="BrokerUnreachable", active=int(active * S)) | {"kind": "info"}


def in_vain(since: float, until: float, *, start: int = 0) -> Event:
    span: Event = {"since": int(since * S), "until": int(until * S)}
    return event(until + 5, "any", "in_vain", subscription="any", topic_id="1", start=start, **span)


def put(at: float, offset: int = 0) -> list[Event]:
    message, told = f"m{offset}", Event(topic_id="1", offset=offset, stored=True, duplicate=False)
    return [event(at, "pub", "put", message=message) | {"kind": "invoke"}, event(at, "pub", "put", message=message, **told)]


UP = world(0, "up")


def laws(*events: Event) -> set[str]:
    return set(check(sorted(events, key=lambda entry: int(entry["t"] or 0))))


def test_who_has_no_answer_in_calm_is_seen() -> None:
    assert laws(UP, unanswered(1, 1 + LONG)) == {"reconnect"}
    assert laws(UP, unanswered(1, LONG - 1)) == set()


def test_who_is_told_in_calm_that_nobody_answers_is_seen() -> None:
    assert laws(UP, away(LONG)) == {"reconnect"}
    assert laws(UP, away(LONG - 2)) == set()
    assert laws(UP, away(40, active=39 - LONG)) == {"reconnect"}
    assert laws(UP, away(40, active=41 - LONG)) == set(), "it did something else before, and noticed nothing"


STORMS = [
    pytest.param([world(5, "down"), world(6, "up")], id="the broker was away"),
    pytest.param([world(5, "harmed", name="any")], id="a packet was lost"),
    pytest.param([world(5, "fault", name="disk_full"), world(6, "freed")], id="the disk was full"),
    pytest.param([world(5, "rot", name="segment"), world(6, "repaired")], id="a bit had flipped"),
]
NO_STORMS = [
    pytest.param([], id="nothing"),
    pytest.param([world(5, "harmed", name="other")], id="somebody else's packet was lost"),
    pytest.param([world(5, "rot", name="")], id="there was no bit to flip"),
    pytest.param([world(5, "fault", name="clock_jump")], id="a wall clock jumped"),
    pytest.param([world(5, "fault", name="client_kill")], id="somebody was killed"),
]


@pytest.mark.parametrize("storm", STORMS)
def test_what_stands_in_the_way_makes_a_wait_legal_and_calm_begin_anew(storm: list[Event]) -> None:
    assert laws(UP, *storm, unanswered(1, LONG + 2)) == set()
    assert laws(UP, *storm, away(LONG + 2)) == set()
    assert laws(UP, *storm, *put(0), in_vain(1, LONG + 2)) == set()
    assert laws(UP, *storm, unanswered(1, LONG + 6)) == {"reconnect"}
    assert laws(UP, *storm, away(LONG + 6)) == {"reconnect"}
    assert laws(UP, *storm, *put(0), in_vain(1, LONG + 6)) == {"progress"}


@pytest.mark.parametrize("storm", NO_STORMS)
def test_what_does_not_stand_in_the_way_is_no_excuse(storm: list[Event]) -> None:
    assert laws(UP, *storm, unanswered(1, LONG + 2)) == {"reconnect"}
    assert laws(UP, *storm, away(LONG + 2)) == {"reconnect"}
    assert laws(UP, *storm, *put(0), in_vain(1, LONG + 2)) == {"progress"}


def test_as_long_as_anything_stands_in_the_way_it_is_not_calm() -> None:
    two = [world(2, "fault", name="disk_full"), world(3, "down"), world(4, "up")]

    assert laws(UP, *two, unanswered(1, 60), away(60)) == set()
    assert laws(UP, *two, world(40, "freed"), unanswered(1, 60), away(60)) == {"reconnect"}
    assert laws(world(50, "up"), unanswered(1, 55), away(55)) == set()


def test_a_long_calm_in_the_middle_of_a_wait_counts() -> None:
    assert laws(UP, unanswered(1, 40), world(2, "down"), world(3, "up"), world(4 + LONG, "down")) == {"reconnect"}


def test_asking_in_vain_is_legal_where_nothing_was() -> None:
    nobody_put = in_vain(1, 40)

    assert laws(UP, nobody_put) == set()
    assert laws(UP, *put(40 - LONG), nobody_put) == {"progress"}
    assert laws(UP, *put(38), nobody_put) == set()
    assert laws(UP, *put(0), in_vain(1, 40, start=1)) == set()
    assert laws(UP, *put(0), *put(2, offset=1), in_vain(1, 40, start=1)) == {"progress"}


def test_what_a_broker_that_was_set_back_had_need_not_be_there() -> None:
    set_back = world(20, "set_back", name="broker", copied=0)

    assert "progress" not in laws(UP, *put(2), set_back, in_vain(1, 40))
    assert "progress" in laws(UP, *put(2), set_back, *put(21), in_vain(1, 40))


# --- the notes ----------------------------------------------------------------------------------------


class Notes:
    """An actor's notes on a clock that is set by hand."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(0)
        self.history = History()
        self.asking = Asking("any", self.scheduler, self._note)

    def _note(self, kind: str, operation: str, **fields: str | int | bool | None) -> None:
        self.history.add(self.scheduler.time_us, "any", 1, kind, operation, fields)

    def at(self, seconds: float) -> None:
        self.scheduler.time_us = int(seconds * S)

    def call(self, until: float, *, timeout_s: float = 0, is_answered: bool = True) -> None:
        """A call that ends then."""
        try:
            with self.asking.call(timeout_s):
                self.at(until)
                if not is_answered:
                    raise BrokerUnreachable("sim", 3, 0)
        except BrokerUnreachable:
            return

    def get(self, until: float, *, is_found: bool, topics: tuple[int, ...] = (1,)) -> None:
        """A call for some topics that ends then, with a message of the first one or without."""

        def wait() -> list[Message]:
            self.at(until)
            return MESSAGES if is_found else []

        self.asking.messages(topics, 0.2, wait)
        if is_found:
            self.asking.on_found(str(topics[0]), 1)

    @property
    def seen(self) -> list[tuple[object, ...]]:
        """What was written down: which note, since when and until when."""
        return [(entry["op"], entry.get("since"), entry.get("until", entry["t"])) for entry in self.history.events]


@pytest.fixture
def notes() -> Notes:
    return Notes()


def test_calls_without_an_answer_are_one_wait(notes: Notes) -> None:
    notes.call(3, is_answered=False)
    notes.call(5, is_answered=False)
    notes.call(6)
    notes.call(6.5)

    assert notes.seen == [("away", None, 3 * S), ("away", None, 5 * S), ("unanswered", 0, 6 * S)]


def test_a_wait_ends_with_its_process(notes: Notes) -> None:
    notes.call(3, is_answered=False)
    notes.asking.end()
    notes.at(20)
    notes.call(20.5)

    assert notes.seen == [("away", None, 3 * S), ("unanswered", 0, 3 * S)]


def test_who_does_something_else_for_long_begins_another_wait(notes: Notes) -> None:
    notes.call(3, is_answered=False)
    notes.at(20)
    notes.call(20.5, is_answered=False)
    notes.at(21)
    notes.call(22.5)

    assert notes.seen == [("away", None, 3 * S), ("away", None, 20.5 * S), ("unanswered", 20 * S, 22.5 * S)]
    assert [entry["active"] for entry in notes.history.events[:2]] == [0, 20 * S]


def test_a_call_may_take_the_time_that_it_was_given(notes: Notes) -> None:
    notes.call(16, timeout_s=16)
    notes.call(19, timeout_s=0.5)

    assert notes.seen == [("unanswered", 16.5 * S, 19 * S)]


def test_a_call_that_waits_for_long_begins_a_wait_of_its_own(notes: Notes) -> None:
    notes.call(3, is_answered=False)
    notes.call(19, timeout_s=16)

    assert notes.seen == [("away", None, 3 * S), ("unanswered", 0, 3 * S)]


def test_topics_that_bring_nothing_are_noted_until_one_brings_something(notes: Notes) -> None:
    notes.get(2, is_found=False)
    notes.get(4, is_found=False)
    notes.get(5, is_found=True)
    notes.get(5 + NOTED_US / S / 2, is_found=False)
    notes.asking.end()

    assert [entry for entry in notes.seen if entry[0] == "in_vain"] == [("in_vain", 0, 4 * S)]


def test_a_call_that_brings_something_of_one_topic_says_nothing_of_another(notes: Notes) -> None:
    notes.get(4, is_found=True, topics=(1, 2))
    notes.asking.end()

    assert [entry for entry in notes.seen if entry[0] == "in_vain"] == []


def test_who_is_handed_something_asks_for_nothing_in_vain_and_may_sleep_over_it(notes: Notes) -> None:
    """Who slept between three messages of one topic was taken for somebody who asked for the other one all the time."""
    notes.get(2, is_found=False, topics=(1, 2))
    notes.get(3, is_found=True, topics=(2, 1))
    notes.at(20)
    notes.get(20.1, is_found=False, topics=(1, 2))
    notes.asking.end()

    assert [entry[1:] for entry in notes.seen if entry[0] == "in_vain"] == [(0, 2 * S), (0, 2 * S)]


# --- planted bugs -------------------------------------------------------------------------------------

GUILTY_BY_NAME = {
    "pauses_longer_after_every_loss": ("reconnect", (3, 7, 10)),
    "waits_for_an_answer_that_cannot_come": ("reconnect", (0, 1, 2)),
    "counts_as_sent_what_was_lost": ("reconnect", (0, 1, 2)),
    "forgets_who_waits_when_somebody_acknowledges": ("reconnect", (0, 1, 3)),
    "starves_who_comes_back_until_the_next_put": ("progress", (24, 17, 36)),
    "trusts_a_silent_channel": ("progress", (17, 19, 34)),
}


@pytest.fixture
def _quiet() -> Iterator[None]:
    """What a broken broker says in a simulated world is nobody's news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("name", GUILTY_BY_NAME)
def test_a_planted_bug_is_seen_by_the_judge_that_is_for_it(name: str) -> None:
    law, seeds = GUILTY_BY_NAME[name]
    for seed in (*seeds, *range(500, 540)):
        with planted(name):
            if law in outcome_of(seed).violations:
                return
    pytest.fail(f"{law} does not see {name} any more")

# SPDX-License-Identifier: Apache-2.0
"""Judges of those who work by a place kept elsewhere: what they must see, and what they must not call a crime."""

from __future__ import annotations

import pytest

from oncemq.sim.checkers import check
from oncemq.sim.forks import Event


def event(process: str, operation: str, **fields: str | int | bool | None) -> Event:
    return {"t": 0, "process": process, "life": 1, "kind": "ok", "op": operation} | fields


def put(*messages: str, first: int) -> list[Event]:
    """Messages of topic 1, put and confirmed from an offset on."""
    begun: list[Event] = [event("pub", "put", message=message) | {"kind": "invoke"} for message in messages]
    told: Event = {"topic_id": "1", "stored": True, "duplicate": False}
    return begun + [event("pub", "put", message=message, offset=at, **told) for at, message in enumerate(messages, first)]


PUT = put("before", "a", "b", first=3)
END = event("harness", "end", topic_id="1", low=6, end=6, is_limited=False)
"""Everything was trimmed: the log says nothing any more."""
MISSED = event("any", "missed", subscription="any", topic_id="1", first=4, end=5)


def laws(*events: Event) -> set[str]:
    return set(check(list(events)))


# --- effects and relays -------------------------------------------------------------------------------


def ledger(*booked: str) -> list[Event]:
    rows = [event("any", "effect", topic_id="1", offset=at, message=message) for at, message in enumerate(booked, 4)]
    return [event("any", "booking", topic_id="1", start=4), *PUT, *rows]


def relay(*produced: str) -> list[Event]:
    texts = [f"relayed {message}" for message in produced]
    begun: list[Event] = [event("any", "put", message=text) | {"kind": "invoke"} for text in texts]
    stored = [
        event("harness", "log", topic_id="2", offset=at, message=text, stream="s", number=at + 1) for at, text in enumerate(texts)
    ]
    return [event("any", "relaying", topic_id="1", start=4), *PUT, *begun, *stored]


CASES = [
    pytest.param(["a", "b"], True, id="each once"),
    pytest.param(["a"], False, id="one is missing"),
    pytest.param(["a", "b", "b"], False, id="one twice"),
    pytest.param(["b", "a"], False, id="in another order"),
    pytest.param(["a", "b", "c"], False, id="one that nobody put"),
]


@pytest.mark.parametrize(("done", "is_sound"), CASES)
def test_what_a_ledger_has_booked_is_judged(done: list[str], is_sound: bool) -> None:
    assert ("effects" not in laws(*ledger(*done), END)) is is_sound


@pytest.mark.parametrize(("done", "is_sound"), CASES)
def test_what_a_relay_produces_is_judged(done: list[str], is_sound: bool) -> None:
    assert ("relayed" not in laws(*relay(*done), END)) is is_sound


def test_who_is_told_that_messages_are_gone_owes_nothing_for_them() -> None:
    limited = END | {"is_limited": True}

    assert laws(*ledger("b"), MISSED, limited) == set()
    assert laws(*relay("b"), MISSED, limited) == set()
    assert laws(*ledger(), MISSED, limited) == {"effects"}
    assert laws(*ledger("b"), MISSED | {"process": "other"}, limited) == {"effects"}


def test_messages_are_gone_only_by_a_limit_or_for_a_database_that_was_set_back() -> None:
    set_back = event("harness", "set_back", name="any", copied=0)

    assert laws(*ledger("b"), MISSED, END) == {"retention-law"}
    assert laws(*ledger("b"), set_back, MISSED, END) == set()


@pytest.mark.parametrize(("done", "is_sound"), CASES)
def test_rows_without_places_are_judged_by_their_messages(done: list[str], is_sound: bool) -> None:
    rows = [event("any", "effect", message=message) for message in done]
    assert ("effects" not in laws(*ledger(), *rows, END)) is is_sound


def test_an_effect_of_a_message_that_is_no_more_is_seen() -> None:
    """The broker was set back, and another message has that place now."""
    set_back = event("harness", "set_back", name="broker", copied=0)
    log = [
        event("harness", "log", topic_id="1", offset=at, message=message, stream="s", number=at + 1)
        for at, message in enumerate(["a", "c"], 4)
    ]
    told = event("pub", "told", name="Diverged")
    events = [*ledger("a", "b"), set_back, told, *put("c", first=5), *log, END | {"low": 4}]

    assert laws(*events) == {"effects"}


# --- receive ------------------------------------------------------------------------------------------

RECEIVING = event("any", "receiving", subscription="any", topic_id="1", start=4, cursor=4)
KILLED = event("harness", "crash", name="any", power_cut=False)
CUT = event("harness", "crash", name="any", power_cut=True)


def received(offset: int, attempt: int = 1) -> Event:
    return event("any", "received", subscription="any", topic_id="1", offset=offset, message=f"m{offset}", attempt=attempt)


def leaving(offset: int) -> Event:
    return event("any", "leaving", subscription="any", topic_id="1", offset=offset)


def done(offset: int, attempt: int = 1) -> list[Event]:
    """Received, worked on, left, and answered."""
    finished = event("any", "finished", subscription="any", topic_id="1", offset=offset)
    return [received(offset, attempt), leaving(offset), finished]


def emptied(end: int) -> Event:
    return event("any", "emptied", subscription="any", topic_id="1", end=end)


@pytest.mark.parametrize(
    ("steps", "is_sound"),
    [
        pytest.param([*done(4), *done(5), emptied(6)], True, id="each once"),
        pytest.param([*done(4), received(4, 2)], False, id="again though finished"),
        pytest.param([received(4), KILLED, RECEIVING, *done(4, 2)], True, id="again after a death"),
        pytest.param([received(4), leaving(4), KILLED, RECEIVING, received(5)], True, id="finished, but not answered"),
        pytest.param([received(4), KILLED, RECEIVING, received(5)], False, id="not again although it was not done"),
        pytest.param([received(4), KILLED, RECEIVING, received(4)], False, id="again, and not counted"),
        pytest.param([received(4), CUT, RECEIVING, received(4)], True, id="a power cut forgets the count"),
        pytest.param([received(5)], False, id="one is passed over"),
        pytest.param([*done(4), emptied(6)], False, id="one is not given"),
        pytest.param([MISSED, *done(5), emptied(6)], True, id="told that one is gone"),
        pytest.param([MISSED, KILLED, RECEIVING, MISSED, received(5)], True, id="told again after a death"),
        pytest.param([MISSED | {"first": 5, "end": 6}, received(6)], False, id="told of another one"),
    ],
)
def test_what_is_received_is_judged(steps: list[Event], is_sound: bool) -> None:
    limited = END | {"is_limited": True}

    assert ("receptions" not in laws(RECEIVING, *steps, limited)) is is_sound


def test_a_broker_that_was_set_back_gives_again_from_its_own_place() -> None:
    set_back = event("harness", "set_back", name="broker", copied=0)
    before = [*put("m4", "m5", first=4), RECEIVING, *done(4), *done(5)]

    assert laws(*before, set_back, RECEIVING, *done(4), END) == set()
    assert laws(*before, set_back, RECEIVING, received(5), END) == {"receptions"}


def given(offset: int, message: str) -> Event:
    return event("any", "received", subscription="any", topic_id="1", offset=offset, message=message, attempt=1)


def test_whoever_received_a_message_has_seen_it() -> None:
    kept = event("pub", "kept", message="c", topic_id="1")
    pending = event("pub", "put", message="c") | {"kind": "invoke"}

    assert laws(*PUT, pending, kept, END) == {"lost-accept"}
    assert laws(*PUT, pending, kept, given(5, "c"), END) == {"inconsistent-offsets"}
    assert laws(*PUT, pending, kept, given(2, "c"), END) == set()
    assert laws(*PUT, given(2, "nobody's"), END) == {"unexpected"}

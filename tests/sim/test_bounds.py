# SPDX-License-Identifier: Apache-2.0
"""Judges of how much: what is in doubt, and what may be gone."""

from __future__ import annotations

from random import Random

import pytest

from oncemq.limits import RESERVE_AHEAD_CALLS, RESERVE_AHEAD_MESSAGES
from oncemq.model.message import Message, Source
from oncemq.sim.actors import Subscriber
from oncemq.sim.bounds import RECORD_BYTES_MAX
from oncemq.sim.checkers import check
from oncemq.sim.forks import Event
from oncemq.sim.history import History
from oncemq.sim.world import World

BATCH = 4
RESERVED = RESERVE_AHEAD_MESSAGES + RESERVE_AHEAD_CALLS * BATCH
END = 5_000


def test_a_death_of_the_machine_or_a_takeover_puts_more_in_doubt_once() -> None:
    """Until the place is known again: a later death by kill -9 is like any other."""
    actor = Subscriber(World(1), History(), "sub", Random(1), topics=["t"], batch_max=BATCH)
    source = Source("t", 7, "pub", b"", 1, 0, 1, 0, b"")
    bounds = []

    def look() -> None:
        bounds.append((actor._most_in_doubt("7", END), actor._most_in_doubt("8", END)))

    look()
    actor.os_crashes += 1
    look()
    actor._deliver([Message("t", 0, b"a", None, None, 0, source)])
    look()
    actor.takeovers += 1
    look()
    actor._deliver([Message("t", 1, b"b", None, None, 0, source)])
    look()

    assert bounds == [(BATCH, BATCH), (RESERVED, RESERVED), (BATCH, RESERVED), (END, END), (BATCH, END)]


# --- what was to be kept ------------------------------------------------------------------------------

LARGE = 1_000 - RECORD_BYTES_MAX
"""A message that takes a thousand bytes of a journal at most."""


def event(process: str, operation: str, seconds: int = 0, **fields: str | int | bool | None) -> Event:
    return {"t": seconds * 1_000_000, "process": process, "life": 1, "kind": "ok", "op": operation} | fields


def created(retain: str, limit: str = "") -> Event:
    return event("harness", "created", topic_id="7", name="kept", retain=retain, limit=limit, step_bytes=1_000)


def kept_from(low: int, *, count: int = 10) -> list[Event]:
    """One message put in every second, and all from `low` on in the log when the last second is over."""
    events: list[Event] = []
    for offset in range(count):
        name: Event = {"message": f"m{offset}"}
        place: Event = {"topic_id": "7", "offset": offset, "stored": True, "duplicate": False}
        events.append(event("pub", "put", offset, **name) | {"kind": "invoke"})
        events.append(event("pub", "put", offset, **name, **place))
    for offset in range(low, count):
        of: Event = {"topic_id": "7", "offset": offset, "message": f"m{offset}", "stream": "s", "number": offset + 1}
        events.append(event("harness", "log", count, **of, size_bytes=LARGE))
    end: Event = {"topic_id": "7", "low": low, "end": count, "is_limited": True, "is_kept": False}
    return [*events, event("harness", "end", count, **end)]


@pytest.mark.parametrize(
    ("retain", "limit", "low", "guilty"),
    [
        pytest.param("forever", "", 0, False, id="all is there"),
        pytest.param("forever", "", 1, True, id="kept for ever, and one is gone"),
        pytest.param("size:5000", "", 5, False, id="as much as was asked for"),
        pytest.param("size:5000", "", 6, True, id="less than was asked for"),
        pytest.param("age:5", "", 5, False, id="the old ones are gone"),
        pytest.param("age:5", "", 6, True, id="a young one is gone"),
        pytest.param("", "", 10, False, id="nothing was asked for"),
        pytest.param("forever", "size:5000", 6, False, id="a step below the limit"),
        pytest.param("forever", "size:5000", 7, True, id="more than a step below the limit"),
        pytest.param("forever", "age:5", 5, False, id="old enough for the limit"),
        pytest.param("forever", "age:5", 6, True, id="too young for the limit"),
        pytest.param("age:8", "age:5", 5, False, id="the limit does not ask what was to be kept"),
        pytest.param("size:3000", "size:5000", 7, False, id="no more was to be kept"),
        pytest.param("size:3000", "size:5000", 8, True, id="neither limit nor retention explains it"),
    ],
)
def test_what_was_to_be_kept_is_there(retain: str, limit: str, low: int, *, guilty: bool) -> None:
    assert ("kept-too-little" in check([created(retain, limit), *kept_from(low)])) is guilty


def test_a_topic_that_was_created_never_goes() -> None:
    left = event("sub", "unsubscribe", subscription="sub", topic_id="7")

    assert set(check([created(""), left, event("harness", "topics", number=0)])) == {"kept-too-little"}


@pytest.mark.parametrize("operation", ["gap", "missed"])
@pytest.mark.parametrize(("end", "guilty"), [(5, False), (10, True)])
def test_a_gap_that_is_told_lay_above_the_limit(operation: str, end: int, *, guilty: bool) -> None:
    told = event("sub", operation, 9, subscription="sub", topic_id="7", first=0, end=end)
    found = check([created("", "size:2000"), *kept_from(10)[:-1], told, *kept_from(10)[-1:]])

    assert ("kept-too-little" in found) is guilty


@pytest.mark.parametrize("operation", ["gap", "missed"])
@pytest.mark.parametrize(("end", "guilty"), [(6, False), (7, True)])
def test_a_gap_that_is_told_was_older_than_the_limit(operation: str, end: int, *, guilty: bool) -> None:
    """The newest in it was put at second six, or at five, and it is told at eleven."""
    told = event("sub", operation, 11, subscription="sub", topic_id="7", first=0, end=end)

    assert ("kept-too-little" in check([created("", "age:5"), *kept_from(10), told])) is guilty


def test_what_a_broker_that_was_set_back_has_lost_is_not_too_old() -> None:
    set_back = event("harness", "set_back", 8, name="broker", copied=0)

    assert "kept-too-little" not in check([created("age:5"), *kept_from(10)[:-1], set_back, *kept_from(6)[-1:]])


@pytest.mark.parametrize(
    ("since", "first", "end", "guilty"),
    [
        ([], 2, 4, False),
        ([], 2, 9, False),
        ([], 2, 1, True),
        ([], 0, 1, True),
        ([("deliver", {"offset": 9})], 2, 9, True),
        ([("deliver", {"offset": 9})], 2, 10, False),
        ([("skip", {"first": 9, "end": 9})], 2, 8, True),
    ],
)
def test_who_lost_his_power_may_have_forgotten_the_gap_that_he_was_told(
    since: list[tuple[str, dict[str, int]]], first: int, end: int, *, guilty: bool
) -> None:
    """He will be told it again; but not what he was handed behind it."""
    place = {"subscription": "sub", "topic_id": "7"}
    events = [event("sub", "subscribe", **place, start=0, cursor=0)]
    events += [event("sub", "deliver", **place, offset=offset, message=str(offset)) for offset in (0, 1)]
    events += [event("sub", "gap", **place, first=2, end=9)]
    events += [event("sub", operation, **place, message="m", **fields) for operation, fields in since]
    events += [event("sub", "in_doubt", **place, first=first, end=end, bound=100)]

    assert ("in-doubt-place" in check(events)) is guilty

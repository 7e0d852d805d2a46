# SPDX-License-Identifier: Apache-2.0
"""Judges and directories that were set back: what is told is forgiven, what is silent is not."""

from __future__ import annotations

import pytest

from oncemq.sim.checkers import Event, check


def event(process: str, operation: str, kind: str = "ok", **fields: str | int | bool | None) -> Event:
    return {"t": 0, "process": process, "life": 1, "kind": kind, "op": operation} | fields


def put(message: str, offset: int) -> list[Event]:
    place: Event = {"topic_id": "7", "offset": offset, "stored": True, "duplicate": False}
    return [event("pub", "put", "invoke", message=message), event("pub", "put", message=message) | place]


def set_back(name: str, copied: int) -> Event:
    return event("harness", "set_back", name=name, copied=copied)


def told(process: str, name: str = "Diverged") -> Event:
    return event(process, "told", name=name)


def deliver(message: str, offset: int) -> Event:
    return event("sub", "deliver", subscription="sub", topic_id="7", offset=offset, message=message)


def log(*messages: str) -> list[Event]:
    stored = [
        event("harness", "log", topic_id="7", offset=offset, message=message, stream="s", number=offset + 1)
        for offset, message in enumerate(messages)
    ]
    return [*stored, event("harness", "end", topic_id="7", low=0, end=len(messages), is_limited=False)]


SUBSCRIBE = event("sub", "subscribe", subscription="sub", topic_id="7", start=0, cursor=0, subscription_id="1")
START_OVER = event("sub", "start_over", subscription="sub")
POWER_CUT = event("harness", "crash", name="sub", power_cut=True)
DRAINED = event("sub", "drained", subscription="sub", topic_id="7", end=2)
PUBLISHER: list[list[Event]] = [put("a", 0), put("b", 1)]


@pytest.mark.parametrize(
    ("since", "guilty"),
    [
        pytest.param([], False, id="it has done nothing since"),
        pytest.param([told("pub")], False, id="it was told"),
        pytest.param([told("pub"), *put("c", 1)], False, id="it was told and went on"),
        pytest.param(put("c", 1), True, id="it went on in silence"),
        pytest.param(
            [event("pub", "start_over", subscription="pub"), *put("c", 1)], False, id="somebody took over aloud from it"
        ),
        pytest.param([*put("c", 1), event("sub", "start_over", subscription="sub")], True, id="somebody else took over"),
        pytest.param([event("pub", "welcome")], True, id="it was welcomed in silence"),
        pytest.param([told("sub"), *put("c", 1)], True, id="somebody else was told"),
        pytest.param([event("harness", "crash", name="pub", power_cut=True), *put("c", 1)], False, id="it lost its memory"),
        pytest.param([event("harness", "crash", name="pub", power_cut=False), *put("c", 1)], True, id="a kill forgets nothing"),
    ],
)
def test_a_confirmed_put_may_be_gone_with_the_broker_only_if_its_publisher_is_told(since: list[Event], *, guilty: bool) -> None:
    events = [*PUBLISHER[0], *PUBLISHER[1], set_back("broker", copied=2), *since, *log("a", "c")]

    assert ("lost-write" in check(events)) is guilty


@pytest.mark.parametrize(("message", "guilty"), [("b", False), ("d", True)])
def test_whoever_does_the_same_again_and_is_told_another_place_has_been_told(message: str, *, guilty: bool) -> None:
    """As a batch that runs again: a broker that forgot the first commit takes the second."""
    again = [*put(message, 2), event("pub", "welcome")]
    events = [*PUBLISHER[0], *PUBLISHER[1], set_back("broker", copied=2), *again, *log("a", "c", message)]

    assert ("lost-write" in check(events)) is guilty


KEPT = event("pub", "kept", message="b")


@pytest.mark.parametrize(
    ("since_kept", "since_set_back", "guilty"),
    [
        pytest.param(put("c", 2), [], False, id="it left after the copy was made, and its publisher does nothing since"),
        pytest.param([], [], False, id="nobody knows when it left"),
        pytest.param(put("c", 2), [told("pub"), *put("d", 1)], False, id="its publisher is told"),
        pytest.param(put("c", 2), put("d", 1), True, id="its publisher goes on in silence"),
        pytest.param([], put("d", 1), True, id="it goes on in silence, and nobody knows when the message left"),
        pytest.param(
            [event("harness", "crash", name="pub", power_cut=True)], put("d", 1), False, id="it lost its memory in between"
        ),
    ],
)
def test_a_put_that_was_pending_when_the_broker_was_copied_may_have_been_stored_and_be_gone(
    since_kept: list[Event], since_set_back: list[Event], *, guilty: bool
) -> None:
    pending = [*PUBLISHER[0], event("pub", "put", "invoke", message="b"), KEPT]
    events = [*pending, *since_kept, set_back("broker", copied=len(pending)), *since_set_back, *log("a", "d")]

    assert ("lost-accept" in check(events)) is guilty


def test_a_put_that_had_left_before_the_broker_was_copied_is_never_forgiven() -> None:
    before = [*PUBLISHER[0], event("pub", "put", "invoke", message="b"), KEPT, *put("c", 2)]
    events = [*before, set_back("broker", copied=len(before)), *log("a", "x", "c")]

    assert "lost-accept" in check(events)


def test_what_was_confirmed_before_the_copy_was_made_is_never_forgiven() -> None:
    events = [*PUBLISHER[0], *PUBLISHER[1], set_back("broker", copied=4), told("pub"), *log("a")]

    assert "lost-write" in check(events)


@pytest.mark.parametrize(("since", "guilty"), [([told("sub")], False), ([], True)])
def test_a_message_seen_may_become_another_only_if_its_subscriber_is_told(since: list[Event], *, guilty: bool) -> None:
    before = [SUBSCRIBE, *PUBLISHER[0], *PUBLISHER[1], deliver("a", 0), deliver("b", 1)]
    events = [*before, set_back("broker", copied=3), *since, told("pub"), *put("c", 1), DRAINED, *log("a", "c")]

    assert ("inconsistent-offsets" in check(events)) is guilty


def test_a_message_from_the_memory_of_a_process_that_is_told_next_is_forgiven() -> None:
    before = [SUBSCRIBE, *PUBLISHER[0], *PUBLISHER[1], set_back("broker", copied=3), told("pub"), *put("c", 1)]
    events = [*before, deliver("a", 0), deliver("b", 1), told("sub"), *log("a", "c")]

    assert check(events) == {}


@pytest.mark.parametrize(
    ("handed", "guilty"),
    [
        pytest.param([], False, id="its memory outlived the power cut, and it has everything"),
        pytest.param([deliver("a", 0), deliver("b", 1)], False, id="its memory is gone, and it goes on at the cursor"),
        pytest.param([deliver("a", 0)], True, id="it goes on at the cursor and misses one"),
        pytest.param([deliver("b", 1)], True, id="it goes on somewhere else"),
    ],
)
def test_who_lost_his_power_at_a_restored_broker_goes_on_where_he_was_or_at_its_cursor(
    handed: list[Event], *, guilty: bool
) -> None:
    before = [*put("a", 0), *put("b", 1), SUBSCRIBE, deliver("a", 0), deliver("b", 1)]
    events = [*before, set_back("broker", 2), POWER_CUT, SUBSCRIBE, *handed, DRAINED]

    assert bool(check([*events, *log("a", "b")])) is guilty


@pytest.mark.parametrize(
    ("first", "offset", "guilty"),
    [
        pytest.param(1, 2, False, id="what it had is in doubt up to the end of a shorter log"),
        pytest.param(1, 3, True, id="one is left out behind it"),
        pytest.param(1, 1, True, id="one is handed out although it was skipped"),
        pytest.param(4, 5, True, id="what it never had is left out before it"),
    ],
)
def test_who_lost_his_power_at_a_restored_broker_may_skip_what_is_in_doubt(first: int, offset: int, *, guilty: bool) -> None:
    """It had three messages, of which the broker forgot one; another has come there since."""
    had = [deliver(message, number) for number, message in enumerate("abc")]
    before = [*put("a", 0), *put("b", 1), SUBSCRIBE, *put("c", 2), *had, set_back("broker", 5), POWER_CUT]
    log_since = ["a", "b", "d", "e", "f", "g"]
    puts = [each for number in range(2, 6) for each in put(log_since[number], number)]
    skip = event("sub", "skip", subscription="sub", topic_id="7", first=first, end=max(first + 1, 2))
    rest = [deliver(log_since[number], number) for number in range(offset, 6)]
    drained = DRAINED | {"end": 6}

    assert ("deliveries" in check([*before, *puts, SUBSCRIBE, skip, *rest, drained, *log(*log_since)])) is guilty


@pytest.mark.parametrize(
    ("since", "handed", "guilty"),
    [
        pytest.param("abde", ["d@2", "e@3"], False, id="new messages, where the log ended"),
        pytest.param("abde", ["e@3"], False, id="all of its memory is there: the known limit"),
        pytest.param("abde", ["b@1", "d@2", "e@3"], True, id="a message that it was handed before"),
        pytest.param("abce", ["c@2", "e@3"], True, id="one that came to the same place again"),
        pytest.param("abde", ["d@2"], True, id="the last is missing"),
    ],
)
def test_who_lost_a_part_of_his_memory_goes_on_with_what_is_new_to_him(since: str, handed: list[str], *, guilty: bool) -> None:
    """It had three messages and had synced that it had two; these the broker still has, and others behind them since."""
    had = [deliver(message, number) for number, message in enumerate("abc")]
    before = [*put("a", 0), *put("b", 1), SUBSCRIBE, *put("c", 2), *had, set_back("broker", 5), POWER_CUT]
    puts = [each for number in (2, 3) for each in put(since[number], number)]
    rest = [deliver(message, int(offset)) for message, offset in (each.split("@") for each in handed)]

    assert ("deliveries" in check([*before, *puts, SUBSCRIBE, *rest, DRAINED | {"end": 4}, *log(*since)])) is guilty


@pytest.mark.parametrize(
    ("whose", "since", "guilty"),
    [
        pytest.param("broker", [told("sub"), START_OVER, SUBSCRIBE], False, id="told, begun anew"),
        pytest.param("sub", [told("sub"), START_OVER, SUBSCRIBE], True, id="told, but not in doubt"),
        pytest.param("sub", [SUBSCRIBE], True, id="in silence"),
        pytest.param("broker", [START_OVER, SUBSCRIBE], True, id="begun anew in silence"),
        pytest.param("broker", [POWER_CUT, SUBSCRIBE], False, id="its memory is gone too"),
        pytest.param("sub", [POWER_CUT, SUBSCRIBE], True, id="only its own memory is gone"),
        pytest.param("broker", [SUBSCRIBE, POWER_CUT, SUBSCRIBE], True, id="its memory went later"),
    ],
)
def test_a_subscription_is_handed_messages_again_only_after_it_was_told(whose: str, since: list[Event], *, guilty: bool) -> None:
    """The broker's cursor went back with the broker. Who lost only his own directory must have had every repeat in doubt."""
    before = [SUBSCRIBE, *PUBLISHER[0], *PUBLISHER[1], deliver("a", 0), deliver("b", 1), set_back(whose, copied=5)]
    events = [*before, *since, deliver("a", 0), deliver("b", 1), DRAINED, *log("a", "b")]

    assert ("deliveries" in check(events)) is guilty


@pytest.mark.parametrize(("since", "guilty"), [([told("pub", "StateLost")], False), ([event("pub", "welcome")], True)])
def test_what_was_kept_in_a_directory_that_was_set_back_is_told(since: list[Event], *, guilty: bool) -> None:
    kept = [event("pub", "put", "invoke", message="k"), event("pub", "kept", message="k")]

    assert ("lost-accept" in check([*kept, set_back("pub", copied=0), *since, *log()])) is guilty


@pytest.mark.parametrize(("end", "guilty"), [(1, False), (0, True)])
def test_what_was_stored_and_told_as_damaged_may_be_trimmed_unread(end: int, *, guilty: bool) -> None:
    rot = event("harness", "rot", name="broker")
    damaged = event("sub", "damaged", subscription="sub", topic_id="7", first=0, end=end)
    trimmed = event("harness", "end", topic_id="7", low=1, end=1, is_limited=False)

    assert ("lost-accept" in check([*put("k", 0), event("pub", "kept", message="k"), rot, damaged, trimmed])) is guilty


def test_nobody_is_told_for_nothing() -> None:
    assert "told-for-nothing" in check([told("pub"), *log()])
    assert "told-for-nothing" in check([set_back("sub", copied=0), told("pub"), *log()])
    assert check([set_back("pub", copied=0), told("pub", "StateLost"), *log()]) == {}


def test_a_skip_does_not_cover_what_was_put_later_at_the_same_place() -> None:
    skip = event("sub", "skip", subscription="sub", topic_id="7", first=0, end=2)
    start = [SUBSCRIBE, *PUBLISHER[0], *PUBLISHER[1], skip]

    assert "skipped-unput" in check([*start, set_back("broker", copied=3), told("pub"), *put("c", 1), *log("a", "c")])
    assert check([*start, DRAINED, *log("a", "b")]) == {}


def kept(message: str) -> list[Event]:
    return [event("pub", "put", "invoke", message=message), event("pub", "kept", message=message)]


def test_who_takes_a_new_directory_gives_up_what_was_kept_before_and_nothing_later() -> None:
    copied = [set_back("pub", 2), told("pub", "StateLost")]
    assert "lost-accept" in check([*kept("a"), *copied, *log()]), "it is in the copy"
    assert check([*kept("a"), *copied, event("pub", "anew"), *log()]) == {}
    assert "lost-accept" in check([*copied, event("pub", "anew"), *kept("a"), *log()])


def test_a_place_that_is_passed_over_again_is_judged_by_the_last_time() -> None:
    skip = event("sub", "skip", subscription="sub", topic_id="7", first=0, end=1)
    later = put("a", 0)
    assert "skipped-unput" not in check([SUBSCRIBE, skip, *later, skip, *log("a")])
    assert "skipped-unput" in check([SUBSCRIBE, skip, *later, *log("a")])


@pytest.mark.parametrize(
    ("first", "life", "between", "guilty"),
    [
        pytest.param(0, 2, [], False, id="it died in between: nobody knows whether it heard the gap"),
        pytest.param(0, 1, [], True, id="it lives on"),
        pytest.param(1, 2, [], True, id="from another place"),
        pytest.param(0, 2, [deliver("c", 2)], True, id="it has gone on since"),
    ],
)
def test_a_gap_is_told_again_only_to_a_new_life_that_has_not_gone_on(
    first: int, life: int, between: list[Event], *, guilty: bool
) -> None:
    def gap(first: int, end: int, life: int) -> Event:
        return event("sub", "gap", subscription="sub", topic_id="7", first=first, end=end) | {"life": life}

    events = [SUBSCRIBE, gap(0, 2, 1), *between, gap(first, 4, life)]

    assert ("deliveries" in check(events)) is guilty


@pytest.mark.parametrize("choice", ["repeat", "skip"])
@pytest.mark.parametrize(("first", "is_guilty"), [(0, False), (1, False), (2, True)])
def test_what_is_in_doubt_begins_where_the_next_message_was_due_or_before(choice: str, first: int, is_guilty: bool) -> None:
    settled = event("sub", choice, subscription="sub", topic_id="7", first=first, end=3)
    again = [deliver("abc"[offset], offset) for offset in range(first if choice == "repeat" else 3, 3)]

    found = check([*PUBLISHER[0], *PUBLISHER[1], *put("c", 2), SUBSCRIBE, deliver("a", 0), settled, *again, *log("a", "b", "c")])

    assert found == ({"deliveries": ["('sub', '7') was asked about 2 and behind where 1 was next: unseen"]} if is_guilty else {})


@pytest.mark.parametrize(("is_kept", "is_guilty"), [(True, True), (False, False)])
def test_what_is_kept_for_ever_begins_at_its_beginning(is_kept: bool, is_guilty: bool) -> None:
    end = event("harness", "end", topic_id="7", low=1, end=1, is_limited=False, is_kept=is_kept)

    assert check([*PUBLISHER[0], end]) == ({"retention-law": ["topic 7 is kept for ever, and begins at 1"]} if is_guilty else {})


LEFT = event("wan", "unsubscribe", "invoke", subscription="wan", topic_id="7")
OTHER = event("harness", "end", topic_id="8", low=0, end=0, is_limited=False)


@pytest.mark.parametrize(
    ("events", "is_guilty"),
    [
        pytest.param([OTHER], True, id="the other topics are there"),
        pytest.param([event("harness", "topics", number=0)], True, id="no topic is there"),
        pytest.param([LEFT, OTHER], False, id="somebody left it, and it may have gone with him"),
        pytest.param([], False, id="nobody looked"),
    ],
)
def test_what_was_confirmed_in_a_topic_that_is_gone_is_lost(events: list[Event], *, is_guilty: bool) -> None:
    assert ("lost-write" in check([*PUBLISHER[0], *events])) is is_guilty


def test_a_topic_that_is_gone_is_not_drained() -> None:
    gone = event("sub", "drained", subscription="sub", topic_id="7", end=None)
    emptied = event("sub", "emptied", subscription="sub", topic_id="7", end=None)

    assert check([SUBSCRIBE, gone]) == {"deliveries": ["('sub', '7') is subscribed to a topic that is gone"]}
    assert check([emptied]) == {"receptions": ["('sub', '7') receives from a topic that is gone"]}


def kept_for(topic: str | None) -> list[Event]:
    return [event("pub", "put", "invoke", message="k"), event("pub", "kept", message="k", topic_id=topic)]


@pytest.mark.parametrize(
    ("topic", "is_guilty"),
    [
        pytest.param("7", True, id="for a topic without a limit"),
        pytest.param("8", False, id="for one whose limit may have taken it"),
        pytest.param(None, False, id="for nobody knows which"),
    ],
)
def test_a_limit_takes_what_was_kept_for_its_own_topic_and_no_other(topic: str | None, *, is_guilty: bool) -> None:
    limited = event("harness", "end", topic_id="8", low=5, end=5, is_limited=True)

    assert ("lost-accept" in check([*kept_for(topic), *log("a", "b")[2:], limited])) is is_guilty


def test_what_was_kept_for_two_topics_is_stored_in_both() -> None:
    both = [*kept_for("7"), event("pub", "kept", message="k", topic_id="8"), *log("k")]

    assert check([*both, OTHER]) == {"lost-accept": ["k was kept in an outbox for topic 8 and is nowhere"]}


@pytest.mark.parametrize(("topic", "is_guilty"), [("7", False), ("8", True)])
def test_a_row_of_a_database_shows_that_its_message_was_stored(topic: str, *, is_guilty: bool) -> None:
    """Somebody else may have been told since that it is damaged, and passed over it."""
    row = event("ledger", "effect", topic_id=topic, offset=3, message="k")

    assert ("lost-accept" in check([*kept_for("7"), row, *log("a", "b")[2:], OTHER])) is is_guilty


@pytest.mark.parametrize(("is_kept", "heard", "is_guilty"), [(False, [], False), (False, [SUBSCRIBE], True), (True, [], True)])
def test_what_nobody_ever_subscribed_to_may_go_unread_unless_it_is_kept_for_ever(
    is_kept: bool, heard: list[Event], is_guilty: bool
) -> None:
    end = event("harness", "end", topic_id="7", low=1, end=1, is_limited=False, is_kept=is_kept)

    assert ("lost-accept" in check([*kept_for("7"), *heard, end])) is is_guilty


@pytest.mark.parametrize(
    ("end", "is_traced", "guilty"),
    [
        pytest.param(1, True, False, id="what was damaged"),
        pytest.param(2, True, True, id="and what was not"),
        pytest.param(3, True, True, id="and what was not, and what nobody knows of"),
        pytest.param(2, False, False, id="nobody knows what was damaged"),
    ],
)
def test_only_what_was_damaged_is_told_to_be(end: int, *, is_traced: bool, guilty: bool) -> None:
    rot = [event("harness", "rot", name="segment", is_traced=is_traced), event("harness", "rotten", message="a")]
    damaged = event("sub", "damaged", subscription="sub", topic_id="7", first=0, end=end)

    assert ("told-too-much" in check([*PUBLISHER[0], *PUBLISHER[1], *rot, damaged, *log("a", "b")])) is guilty


@pytest.mark.parametrize(
    ("first", "end", "guilty"),
    [
        pytest.param(0, 1, False, id="what was handed out last"),
        pytest.param(1, 3, False, id="what may have been handed out since"),
        pytest.param(0, 3, False, id="both"),
        pytest.param(2, 3, True, id="what lies behind the next message"),
        pytest.param(0, 0, True, id="what lies before it"),
    ],
)
@pytest.mark.parametrize("touched", [False, True])
def test_what_is_in_doubt_lies_around_the_next_message(first: int, end: int, *, guilty: bool, touched: bool) -> None:
    doubt = event("sub", "in_doubt", subscription="sub", topic_id="7", first=first, end=end, bound=9)
    before = [set_back("sub", copied=0)] if touched else []
    events = [*PUBLISHER[0], *PUBLISHER[1], SUBSCRIBE, deliver("a", 0), *before, doubt, *log("a", "b")]

    assert ("in-doubt-place" in check(events)) is (guilty and not touched)

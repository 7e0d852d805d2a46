# SPDX-License-Identifier: Apache-2.0
"""The broker's rules as tables: one state, one packet, one answer."""

from __future__ import annotations

import pytest

from oncemq.core import sessions
from oncemq.core.effects import Deliver, Report, Send, Stop
from oncemq.core.packets import (
    NOBODY,
    Ack,
    AckDone,
    Clients,
    CommandDone,
    CreateTopic,
    DeleteSubscription,
    DeleteTopic,
    ForgetClient,
    Get,
    Goodbye,
    GoodbyeDone,
    Heartbeat,
    HeartbeatDone,
    Hello,
    ListClients,
    ListSubscriptions,
    ListTopics,
    Packet,
    Put,
    PutDone,
    Read,
    Refused,
    Shutdown,
    ShutdownDone,
    Stats,
    Subscribe,
    SubscribeDone,
    Subscriptions,
    TopicDone,
    Topics,
    Transact,
    TransactPut,
    Unsubscribe,
    Want,
    Welcome,
)
from oncemq.core.records import Stored
from oncemq.limits import CURSOR_DELAY_MS, EPHEMERAL_LEASE_MS, HOUSEKEEPING_MS
from oncemq.model.names import EPHEMERAL_PREFIX
from oncemq.model.refusals import Code
from tests.core.helpers import LOG, OTHER, SESSION, START, TO, Held, Talk, at, block_of

NEW = b"n" * 16


# --- hello -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        (Hello("client", NEW, LOG, (SESSION,)), None),
        (Hello("client", NEW, NOBODY, (OTHER, SESSION)), None),
        (Hello("client", SESSION), None),
        (Hello("client", NEW), Code.STATE_LOST),
        (Hello("client", NEW, LOG, (OTHER,)), Code.STATE_LOST),
        (Hello("client", NEW, LOG, (OTHER,), (SESSION,)), Code.DIVERGED),
        (Hello("client", NEW, takeover=True), None),
        (Hello("client", NEW, OTHER, (SESSION,)), Code.DIVERGED),
        (Hello("client", NEW, LOG, (SESSION,), start_id=START, append_number=1), None),
        (Hello("client", NEW, LOG, (SESSION,), start_id=START, append_number=2), Code.DIVERGED),
        (Hello("client", NEW, LOG, (SESSION,), start_id=OTHER, append_number=1), Code.DIVERGED),
        (Hello("client", NEW, LOG, (SESSION,), start_id=OTHER, append_number=1, takeover=True), None),
        (Hello("client", NOBODY, LOG, (SESSION,)), Code.MALFORMED),
        (Hello("client", NEW, LOG, (SESSION,), pending=(NEW,)), Code.MALFORMED),
        (Hello("client", NEW, LOG, (SESSION,), pending=(OTHER, OTHER)), Code.MALFORMED),
        (Hello("a client", NEW), Code.INVALID_NAME),
        (Hello("client", NEW, ephemeral=True), Code.INVALID_NAME),
        (Hello(EPHEMERAL_PREFIX + "0" * 32, NEW), Code.INVALID_NAME),
        (Hello("newcomer", NEW), None),
        (Hello("newcomer", NEW, LOG), Code.DIVERGED),
        (Hello("newcomer", NEW, LOG, takeover=True), None),
    ],
)
def test_who_may_speak_for_a_client(hello: Hello, code: Code | None) -> None:
    talk = Talk()
    talk.subscribe()
    talk.put(1)

    answer = talk.say(hello)

    assert (answer.code if isinstance(answer, Refused) else None) == code
    assert (hello.session in talk.state.sessions) is (code is None or hello.session == SESSION)


def test_a_session_that_was_replaced_is_fenced_in_hello_and_in_everything_else() -> None:
    talk = Talk()
    talk.say(Hello("client", NEW, LOG, (SESSION,)))

    assert talk.code(Hello("client", SESSION, LOG, (NEW,), takeover=True)) == Code.FENCED
    assert talk.code(Goodbye(SESSION)) == Code.FENCED
    assert talk.code(Goodbye(OTHER)) == Code.NO_SESSION


def test_a_welcome_tells_streams_the_session_before_and_subscriptions() -> None:
    talk = Talk()
    info = talk.subscribe()
    talk.put(1, 3)
    welcome = talk.say(Hello("client", NEW, LOG, (b"x" * 16, SESSION, OTHER), pending=(b"x" * 16, SESSION, OTHER)))

    assert isinstance(welcome, Welcome)
    assert [(each.stream, each.last_number) for each in welcome.streams] == [(SESSION, 3), (OTHER, 0), (NEW, 0)]
    assert (welcome.previous.stream, welcome.previous.last_number) == (SESSION, 3)
    assert [each.subscription_id for each in welcome.subscriptions] == [info.subscription_id]
    assert (welcome.log_id, welcome.start_id, welcome.taken_over) == (LOG, START, False)


def test_the_same_hello_again_gets_the_same_welcome() -> None:
    talk = Talk()
    hello = Hello("client", NEW, takeover=True)

    first, again = talk.say(hello), talk.say(hello)

    assert isinstance(first, Welcome)
    assert first == again
    assert first.taken_over


def test_a_takeover_keeps_only_the_streams_the_broker_knows() -> None:
    talk = Talk()
    welcome = talk.say(Hello("client", NEW, pending=(SESSION, OTHER), takeover=True))

    assert isinstance(welcome, Welcome)
    assert [each.stream for each in welcome.streams] == [SESSION, NEW]
    assert set(talk.state.clients["client"].streams) == {SESSION, NEW}


def test_a_takeover_by_a_directory_that_knows_the_session_is_none() -> None:
    talk = Talk()
    welcome = talk.say(Hello("client", NEW, LOG, (SESSION, OTHER), pending=(OTHER,), takeover=True))

    assert isinstance(welcome, Welcome)
    assert not welcome.taken_over
    assert set(talk.state.clients["client"].streams) == {OTHER, NEW}


def test_a_welcome_tells_cursors_that_are_still_on_their_way() -> None:
    talk = Talk()
    info = talk.subscribe()
    talk.put(1, 5)
    assert talk.speech(Ack(SESSION, info.subscription_id, info.topic_id, 4)) == ()

    welcome = talk.say(Hello("client", NEW, LOG, (SESSION,)))

    assert isinstance(welcome, Welcome)
    assert welcome.subscriptions[0].cursor == 4
    assert talk.state.subscriptions[info.subscription_id].cursor == 4


def test_no_more_clients_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CLIENTS_MAX", 2)
    talk = Talk()

    assert isinstance(talk.say(Hello("second", OTHER)), Welcome)
    assert talk.code(Hello("third", NEW)) == Code.TOO_MANY


def test_goodbye_of_a_durable_client_forgets_nothing() -> None:
    talk = Talk()
    talk.subscribe()

    assert talk.say(Goodbye(SESSION)) == GoodbyeDone(SESSION)
    assert len(talk.state.subscriptions) == len(talk.state.clients) == 1


def test_goodbye_of_an_ephemeral_client_takes_everything_it_had() -> None:
    talk = Talk()
    name = EPHEMERAL_PREFIX + "0" * 32
    talk.say(Hello(name, OTHER, ephemeral=True))
    talk.say(Subscribe(OTHER, 1, "u"))

    assert talk.say(Goodbye(OTHER)) == GoodbyeDone(OTHER)
    assert (list(talk.state.clients), talk.state.topics, talk.state.subscriptions) == (["client"], {}, {})


def test_only_ephemeral_clients_that_are_silent_for_too_long_are_forgotten() -> None:
    talk = Talk()
    talk.say(Hello(EPHEMERAL_PREFIX + "0" * 32, OTHER, ephemeral=True))
    seen_ms = talk.state.sessions[OTHER].seen_ms

    talk.take(talk.machine.tidy(at(seen_ms + EPHEMERAL_LEASE_MS)))
    assert len(talk.state.clients) == 2
    talk.take(talk.machine.tidy(at(seen_ms + EPHEMERAL_LEASE_MS + HOUSEKEEPING_MS)))
    assert list(talk.state.clients) == ["client"]


# --- puts --------------------------------------------------------------------------------------------------


def put_done(answer: Packet) -> PutDone:
    assert isinstance(answer, PutDone), answer
    return answer


def test_a_put_gets_the_next_offsets_and_a_repeat_gets_them_again() -> None:
    talk = Talk()
    talk.subscribe()
    first, second = put_done(talk.put(1, 3)), put_done(talk.put(4, 2))
    again = put_done(talk.put(1, 3))

    assert [first.outcomes[0].first_offset, second.outcomes[0].first_offset, again.outcomes[0].first_offset] == [0, 3, 0]
    assert [first.duplicate, second.duplicate, again.duplicate] == [False, False, True]
    assert talk.state.next_append_number == 3


@pytest.mark.parametrize(
    "packets",
    [
        [Put(SESSION, SESSION, number, 1, ("t",)) for number in (1, 2, 3)],
        [Transact(SESSION, number, (), (TransactPut(("t",), 1, len(block_of(1))),)) for number in (1, 3, 5)],
    ],
    ids=["put", "transaction"],
)
def test_times_of_storing_do_not_go_back_with_a_clock(packets: list[Packet]) -> None:
    """Ages and `offset_at_time` rely on it: later offsets are never older."""
    talk, times_us = Talk(), []
    talk.subscribe()
    for packet, shift_us in zip(packets, (5_000, -10_000_000, 6_000), strict=True):
        effects = talk.machine.decide(at(talk.clock_ms, shift_us), TO, packet, block_of(1))
        times_us += [record.append_time_us for record in effects.records if isinstance(record, Stored)]
        talk.take(effects)
    now_us = at(talk.clock_ms).wall_us
    assert times_us == [now_us + 5_000, now_us + 5_000, now_us + 6_000]


@pytest.mark.parametrize(
    ("first_number", "count", "code"),
    [
        (3, 1, None),
        (4, 1, Code.GAP_IN_STREAM),
        (2, 1, Code.CONFLICTING_PUT),
        (1, 1, Code.CONFLICTING_PUT),
        (2, 2, Code.GAP_IN_STREAM),
    ],
)
def test_only_the_next_number_of_a_stream_is_taken(first_number: int, count: int, code: Code | None) -> None:
    talk = Talk()
    talk.subscribe()
    talk.put(1, 2)

    answer = talk.put(first_number, count)

    assert (answer.code if isinstance(answer, Refused) else None) == code
    if code is Code.GAP_IN_STREAM:
        assert isinstance(answer, Refused)
        assert answer.expected == 3


def test_a_put_with_other_bytes_under_its_number_is_a_conflict() -> None:
    talk = Talk()
    talk.subscribe()
    talk.put(1, 2)

    assert talk.code(Put(SESSION, SESSION, 1, 2, ("t",)), block_of(2, b"w")) == Code.CONFLICTING_PUT


@pytest.mark.parametrize(
    ("packet", "block", "code"),
    [
        (Put(SESSION, OTHER, 1, 1, ("t",)), block_of(1), Code.UNKNOWN_STREAM),
        (Put(SESSION, SESSION, 1, 1, ("t",)), block_of(2), Code.MALFORMED),
        (Put(SESSION, SESSION, 1, 1, ("t",)), block_of(1)[:-1] + b"\xff", Code.CORRUPT_BLOCK),
    ],
)
def test_a_put_that_cannot_be_uses_no_number_up(packet: Put, block: bytes, code: Code) -> None:
    talk = Talk()
    talk.subscribe()

    assert talk.code(packet, block) == code
    assert not put_done(talk.put(1)).duplicate


@pytest.mark.parametrize(
    ("topics", "strict", "code"),
    [(("not a name",), False, "invalid_name"), (("t", "t"), False, "invalid_name"), (("u",), True, "no_subscribers")],
)
def test_a_final_refusal_is_an_outcome_that_is_repeated(topics: tuple[str, ...], *, strict: bool, code: str) -> None:
    talk = Talk()
    talk.subscribe()
    numbers = len(topics)

    first, again = put_done(talk.put(1, 1, topics, strict=strict)), put_done(talk.put(1, 1, topics, strict=strict))

    assert (first.code, first.duplicate, again.code, again.duplicate) == (code, False, code, True)
    assert not put_done(talk.put(1 + numbers)).duplicate


def test_a_put_to_several_topics_uses_a_number_for_each_and_says_who_stored_it() -> None:
    talk = Talk()
    info = talk.subscribe()
    done = put_done(talk.put(1, 2, ("t", "nobody")))

    found = [(each.topic_id, each.stored, each.first_offset) for each in done.outcomes]
    assert found == [(info.topic_id, True, 0), (0, False, None)]
    assert done.numbers == 4
    assert not put_done(talk.put(5)).duplicate


def test_a_put_that_nobody_wants_takes_no_room_and_one_that_does_not_fit_uses_no_number() -> None:
    talk = Talk()
    size = len(block_of(1))
    talk.machine.room_bytes = size
    assert not put_done(talk.put(1)).outcomes[0].stored
    talk.subscribe()
    talk.machine.room_bytes = size
    assert put_done(talk.put(2)).outcomes[0].stored
    assert talk.machine.room_bytes == 0
    assert talk.put(3) == Refused(Code.DISK_FULL, talk.put(3).text, 0)  # type: ignore[attr-defined]
    talk.machine.room_bytes = size - 1
    assert isinstance(talk.put(3), Refused)
    talk.machine.room_bytes = size
    assert put_done(talk.put(3)).outcomes[0].first_offset == 1


# --- gets and acks -----------------------------------------------------------------------------------------


def want(talk: Talk, offset: int, done: int | None = 0, **bookmark: bytes | int) -> Want:
    (subscription,) = talk.state.subscriptions.values()
    return Want(subscription.subscription_id, subscription.topic_id, offset, done, **bookmark)  # type: ignore[arg-type]


def filled(count: int = 5) -> Talk:
    talk = Talk()
    talk.subscribe()
    talk.put(1, count)
    return talk


@pytest.mark.parametrize(
    ("offset", "done", "bookmark", "code"),
    [
        (0, 0, {}, None),
        (5, 5, {}, None),
        (6, 0, {}, Code.BEYOND_END),
        (0, 6, {}, Code.BEYOND_END),
        (5, None, {}, None),
        (3, 0, {"start_id": START, "append_number": 1}, None),
        (3, 0, {"start_id": START, "append_number": 2}, Code.DIVERGED),
        (3, 0, {"start_id": OTHER, "append_number": 1}, Code.DIVERGED),
    ],
)
def test_what_a_get_may_ask_for(offset: int, done: int | None, bookmark: dict[str, bytes | int], code: Code | None) -> None:
    talk = filled()
    (spoken,) = talk.speech(Get(SESSION, (want(talk, offset, done, **bookmark),), 1_000, 0))

    assert (spoken.packet.code if isinstance(spoken, Send) else None) == code  # type: ignore[attr-defined]
    if code is not None:
        assert spoken.packet.expected == 5  # type: ignore[union-attr]


def test_only_done_moves_the_cursor_and_a_get_of_one_number_means_both() -> None:
    for done, cursor in ((0, 0), (2, 2), (None, 4)):
        talk = filled()
        talk.speech(Get(SESSION, (want(talk, 4, done),), 1_000, 0))
        talk.settle(has_records=True)
        (subscription,) = talk.state.subscriptions.values()
        assert subscription.cursor == cursor


def test_a_get_is_given_the_range_from_its_offset_to_the_end() -> None:
    talk = filled()
    found = talk.delivered(Get(SESSION, (want(talk, 2),), 1_000, 0))
    (topic_id,) = talk.state.topics

    assert found.ranges == ((topic_id, 2, 5),)
    assert [(part.offset, part.low, part.end) for part in found.parts] == [(2, 0, 5)]
    assert found.bytes_max == 1_000
    assert found.through == 1


def test_a_get_below_the_low_is_told_so_at_once_and_given_nothing() -> None:
    talk = filled()
    (topic,) = talk.state.topics.values()
    topic.low = 3
    found = talk.delivered(Get(SESSION, (want(talk, 2),), 1_000, 1_000))

    assert found.ranges == ()
    assert [(part.offset, part.low) for part in found.parts] == [(2, 3)]


def test_a_get_at_the_end_waits_until_something_comes_or_its_time_is_over() -> None:
    talk = filled()
    get = Get(SESSION, (want(talk, 5, 5),), 1_000, 100)
    assert talk.speech(get) == ()
    assert talk.settle() == ()
    assert talk.machine.next_due_ms() == min(talk.clock_ms + 100, talk.machine.next_due_ms())
    talk.put(6)
    (spoken,) = talk.settle(has_records=True)
    assert isinstance(spoken, Deliver)
    assert talk.settle() == ()

    get = Get(SESSION, (want(talk, 6, 6),), 1_000, 100)
    talk.speech(get)
    talk.clock_ms += 99
    assert talk.settle() == ()
    talk.clock_ms += 1
    (spoken,) = talk.settle()
    assert isinstance(spoken, Deliver)
    assert spoken.ranges == ()


def test_a_waiting_get_that_loses_its_right_is_refused() -> None:
    for packet, code in (
        (Hello("client", NEW, LOG, (SESSION,)), Code.FENCED),
        (Unsubscribe(SESSION, 2, "t"), Code.NO_SUCH_TOPIC),
    ):
        talk = filled()
        talk.speech(Get(SESSION, (want(talk, 5, 5),), 1_000, 1_000))
        talk.speech(packet)
        (spoken,) = talk.settle(has_records=True)
        assert isinstance(spoken, Send)
        assert isinstance(spoken.packet, Refused)
        assert spoken.packet.code == code


def test_a_waiting_get_of_a_forgotten_client_has_no_session() -> None:
    talk = filled()
    talk.say(Hello("other", OTHER))
    talk.speech(Get(SESSION, (want(talk, 5, 5),), 1_000, 1_000))
    talk.say(ForgetClient(OTHER, 1, "client"))
    (spoken,) = talk.settle(has_records=True)

    assert isinstance(spoken, Send)
    assert isinstance(spoken.packet, Refused)
    assert spoken.packet.code == Code.NO_SESSION


def test_a_stopping_broker_tells_who_waits_and_writes_cursors_if_it_may() -> None:
    for may_write, records in ((True, 1), (False, 0)):
        talk = filled()
        talk.speech(Get(SESSION, (want(talk, 5, 4),), 1_000, 1_000))
        effects = talk.machine.last_words(may_write=may_write)
        assert len(effects.records) == records
        assert [spoken.packet.code for spoken in effects.speech] == [Code.STOPPING]  # type: ignore[union-attr]


def test_an_acknowledgement_never_moves_a_cursor_back_and_is_confirmed_if_asked() -> None:
    talk = filled()
    (subscription,) = talk.state.subscriptions.values()
    place = subscription.subscription_id, subscription.topic_id

    assert talk.say(Ack(SESSION, *place, 3, confirm=True)) == AckDone(subscription.subscription_id, 3)
    assert talk.say(Ack(SESSION, *place, 1, confirm=True)) == AckDone(subscription.subscription_id, 3)
    assert talk.code(Ack(SESSION, *place, 6)) == Code.BEYOND_END
    assert talk.code(Ack(SESSION, *place, 5, start_id=OTHER, append_number=1)) == Code.DIVERGED
    assert talk.code(Ack(SESSION, place[0] + 1, place[1], 4)) == Code.NOT_SUBSCRIBED
    assert talk.code(Ack(SESSION, place[0], place[1] + 1, 4)) == Code.NO_SUCH_TOPIC
    assert subscription.cursor == 3


def test_a_cursor_waits_for_the_next_group_but_not_for_ever() -> None:
    talk = filled()
    talk.take(talk.machine.tidy(at(talk.clock_ms)))
    (subscription,) = talk.state.subscriptions.values()
    talk.speech(Ack(SESSION, subscription.subscription_id, subscription.topic_id, 2))
    talk.settle()
    assert subscription.cursor == 0
    assert talk.machine.next_due_ms() == talk.clock_ms + min(CURSOR_DELAY_MS, HOUSEKEEPING_MS)
    talk.clock_ms += CURSOR_DELAY_MS - 1
    talk.settle()
    assert subscription.cursor == 0
    talk.clock_ms += 1
    talk.settle()
    assert subscription.cursor == 2


def test_a_subscription_is_consumed_in_one_way() -> None:
    talk = filled()
    talk.speech(Get(SESSION, (want(talk, 0),), 1_000, 0))
    (subscription,) = talk.state.subscriptions.values()
    place = subscription.subscription_id, subscription.topic_id

    assert subscription.authority == "local"
    assert talk.code(Ack(SESSION, *place, 1, authority="broker")) == Code.WRONG_AUTHORITY
    assert talk.code(Get(SESSION, (want(talk, 0),), 1_000, 0, "nobody")) == Code.WRONG_AUTHORITY


def test_the_first_acknowledgement_fixes_the_authority_too() -> None:
    talk = filled()
    (subscription,) = talk.state.subscriptions.values()
    talk.speech(Ack(SESSION, subscription.subscription_id, subscription.topic_id, 1, authority="broker"))

    assert subscription.authority == "broker"


def test_another_clients_subscription_is_nobodys() -> None:
    talk = filled()
    talk.say(Hello("other", OTHER))

    assert talk.code(Get(OTHER, (want(talk, 0),), 1_000, 0)) == Code.NOT_SUBSCRIBED


@pytest.mark.parametrize(
    ("offset", "end", "ranges"),
    [(0, 3, [(0, 3)]), (4, 9, [(4, 5)]), (5, 9, []), (3, 3, []), (1, 2, [])],
)
def test_a_read_gets_what_is_there_of_its_range(offset: int, end: int, ranges: list[tuple[int, int]]) -> None:
    talk = filled()
    (topic,) = talk.state.topics.values()
    topic.low = 2 if offset == 1 else 0
    found = talk.delivered(Read("t", 0, offset, end, 1_000))

    assert [each[1:] for each in found.ranges] == ranges


def test_a_read_beyond_the_end_or_of_another_topic_is_refused() -> None:
    talk = filled()

    assert talk.code(Read("t", 0, 6, 9, 1_000)) == Code.BEYOND_END
    assert talk.code(Read("u", 0, 0, 9, 1_000)) == Code.NO_SUCH_TOPIC
    assert talk.code(Read("t", 1, 0, 9, 1_000)) == Code.NO_SUCH_TOPIC


# --- commands ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "at_", "found", "offset"),
    [
        ("new", 0, None, 5),
        ("earliest", 0, None, 2),
        ("offset", 4, None, 4),
        ("offset", 5, None, 5),
        ("offset", 6, None, Code.BEYOND_END),
        ("time", 77, None, 5),
        ("time", 77, 3, 3),
        ("time", 77, 1, 2),
        ("yesterday", 0, None, Code.MALFORMED),
    ],
)
def test_where_a_subscription_begins(start: str, at_: int, found: int | None, offset: int | Code) -> None:
    talk = filled()
    (topic,) = talk.state.topics.values()
    topic.low = 2
    talk.store.at_time = found
    talk.say(Hello("other", OTHER))

    answer = talk.say(Subscribe(OTHER, 1, "t", start, at_))

    assert (answer.code if isinstance(answer, Refused) else answer.subscription.start) == offset  # type: ignore[attr-defined]
    assert talk.store.asked_us == (77 if start == "time" else None)


def test_a_command_is_carried_out_once_and_a_late_one_never() -> None:
    talk = Talk()
    first = talk.say(Subscribe(SESSION, 2, "t"))

    assert isinstance(first, SubscribeDone)
    assert talk.say(Subscribe(SESSION, 2, "t")) == first
    assert talk.code(Unsubscribe(SESSION, 1, "t")) == Code.LATE_COMMAND
    assert len(talk.state.subscriptions) == 1


def test_topics_are_created_once_and_deleted_by_name_and_id() -> None:
    talk = Talk()
    done = talk.say(CreateTopic(SESSION, 1, "t", "forever", "size:10"))

    assert isinstance(done, TopicDone)
    assert (done.info.topic, done.info.explicit, done.info.retain, done.info.limit) == ("t", True, "forever", "size:10")
    assert talk.code(CreateTopic(SESSION, 2, "t")) == Code.TOPIC_EXISTS
    assert talk.code(DeleteTopic(SESSION, 3, "t", done.info.topic_id + 1)) == Code.NO_SUCH_TOPIC
    assert talk.code(DeleteTopic(SESSION, 4, "u", 0)) == Code.NO_SUCH_TOPIC
    assert talk.say(DeleteTopic(SESSION, 5, "t", done.info.topic_id)) == CommandDone(5)
    assert talk.state.topics == {}


def test_a_topic_made_by_a_subscription_goes_with_its_last_one_and_an_explicit_one_stays() -> None:
    talk = Talk()
    info = talk.subscribe()
    assert talk.code(Unsubscribe(SESSION, talk.command(), "t", info.subscription_id + 1)) == Code.NOT_SUBSCRIBED
    assert talk.say(Unsubscribe(SESSION, talk.command(), "t", info.subscription_id)) == CommandDone(3)
    assert talk.state.topics == {}
    talk.say(CreateTopic(SESSION, talk.command(), "t"))
    talk.subscribe()
    talk.say(Unsubscribe(SESSION, talk.command(), "t", 0))
    assert len(talk.state.topics) == 1
    assert talk.code(Unsubscribe(SESSION, talk.command(), "t")) == Code.NOT_SUBSCRIBED
    assert talk.code(Unsubscribe(SESSION, talk.command(), "u")) == Code.NO_SUCH_TOPIC


def test_an_operator_may_end_any_subscription_and_forget_any_client_but_itself() -> None:
    talk = Talk()
    info = talk.subscribe()
    talk.say(Hello("operator", OTHER))

    assert talk.say(DeleteSubscription(OTHER, 1, info.subscription_id)) == CommandDone(1)
    assert talk.state.subscriptions == {}
    assert talk.code(ForgetClient(OTHER, 2, "operator")) == Code.NO_SUCH_CLIENT
    assert talk.code(ForgetClient(OTHER, 3, "stranger")) == Code.NO_SUCH_CLIENT
    assert talk.say(ForgetClient(OTHER, 4, "client")) == CommandDone(4)
    assert list(talk.state.clients) == ["operator"]


def test_a_topic_made_by_a_subscription_has_the_brokers_retention_and_stays_for_it() -> None:
    talk = Talk(retain="age:5", limit="size:7")
    talk.subscribe()
    talk.say(Unsubscribe(SESSION, talk.command(), "t"))
    (topic,) = talk.state.topics.values()

    assert (topic.retain, topic.limit, topic.explicit) == ("age:5", "size:7", False)


# --- questions ---------------------------------------------------------------------------------------------


def test_questions_are_answered_by_name_or_for_all() -> None:
    talk = filled()
    talk.store.held = [Held(3, 10), Held(5, 20)]
    talk.say(CreateTopic(SESSION, 2, "u"))

    for name, topics, rows in (("", ["t", "u"], 1), ("t", ["t"], 1), ("u", ["u"], 0), ("v", [], 0)):
        listed, subscriptions = talk.say(ListTopics(name)), talk.say(ListSubscriptions(name))
        assert isinstance(listed, Topics)
        assert isinstance(subscriptions, Subscriptions)
        assert [each.topic for each in listed.topics] == topics
        assert all(each.size_bytes == 30 for each in listed.topics)
        assert len(subscriptions.subscriptions) == rows


def test_a_broker_says_who_it_is_and_who_is_there() -> None:
    talk = filled()

    assert talk.say(Heartbeat()) == HeartbeatDone(START)
    assert talk.speech(Stats()) == (Report(TO),)
    clients = talk.say(ListClients())
    assert isinstance(clients, Clients)
    assert [(row.client, row.ephemeral) for row in clients.clients] == [("client", False)]
    numbers = talk.machine.statistics()
    assert (numbers["topics"], numbers["subscriptions"], numbers["clients"], numbers["append_number"]) == (1, 1, 1, 1)
    assert numbers["parked_gets"] == 0


def test_a_shutdown_is_for_one_start_only() -> None:
    talk = Talk()

    assert talk.code(Shutdown(OTHER)) == Code.WRONG_START
    assert talk.speech(Shutdown(START)) == (Send(TO, ShutdownDone(START)), Stop())


# --- tidying -----------------------------------------------------------------------------------------------


def test_tidying_is_due_once_a_second() -> None:
    talk = Talk()
    talk.machine.tidy(at(5_000))

    assert not talk.machine.is_tidy_due(at(5_000 + HOUSEKEEPING_MS - 1))
    assert talk.machine.is_tidy_due(at(5_000 + HOUSEKEEPING_MS))
    assert talk.machine.tidy(at(5_000 + HOUSEKEEPING_MS - 1)).records == ()


def test_what_is_below_every_cursor_goes_but_for_one_message() -> None:
    talk = filled()
    (subscription,) = talk.state.subscriptions.values()
    subscription.cursor = 4
    talk.take(talk.machine.tidy(at(5_000)))

    assert list(talk.machine.lows().values()) == [3]


def test_puts_repeats_and_refusals_are_counted_one_by_one() -> None:
    talk = filled()
    talk.put(1, 5)
    talk.put(9)
    talk.put(9)
    numbers = talk.machine.statistics()

    assert (numbers["count_puts"], numbers["count_duplicates"], numbers["count_refused_gap_in_stream"]) == (1, 1, 2)


def test_a_refusal_says_what_is_wrong_and_in_brackets_where_it_is_known() -> None:
    talk = filled()
    known = talk.say(CreateTopic(SESSION, 2, "u", "for a while"))
    plain = talk.say(DeleteTopic(SESSION, 3, "u", 0))

    assert isinstance(known, Refused)
    assert isinstance(plain, Refused)
    assert "(" in known.text
    assert "(" not in plain.text


def test_a_new_session_begins_its_commands_anew() -> None:
    talk = filled()
    talk.say(Hello("client", NEW, LOG, (SESSION,)))

    assert isinstance(talk.say(CreateTopic(NEW, 1, "u")), TopicDone)
    assert talk.code(CreateTopic(NEW, 2, "u")) == Code.TOPIC_EXISTS


def test_a_get_that_may_not_wait_is_answered_with_nothing() -> None:
    talk = filled()
    found = talk.delivered(Get(SESSION, (want(talk, 5, 5),), 1_000, 0))

    assert (found.ranges, found.through) == ((), 1)
    assert talk.delivered(Read("t", 0, 0, 5, 1_000)).through == 1
    assert talk.speech(Get(SESSION, (want(talk, 5, 5),), 1_000, 1)) == ()

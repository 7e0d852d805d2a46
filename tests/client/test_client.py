# SPDX-License-Identifier: Apache-2.0
"""The public client over a real broker: put, get, subscribe and what they promise when nothing goes wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import oncemq
from oncemq.limits import BLOCK_CUT_MESSAGES, HEADERS_BYTES_MAX, KEY_BYTES_MAX, KIB
from oncemq.model.message import Source
from tests.client.conftest import Connect


def values(messages: list[oncemq.Message]) -> list[bytes]:
    return [message.value for message in messages]


def get_value(client: oncemq.Client, topic: str | None) -> bytes | None:
    message = client.get(topic, timeout=0.2)
    return None if message is None else message.value


# --- put ------------------------------------------------------------------------------------------------


def test_a_put_is_confirmed_with_its_place(client: oncemq.Client, topic: str) -> None:
    """Number, offset, stored, not a duplicate."""
    client.subscribe(topic)
    first, second = client.put(topic, b"one"), client.put(topic, b"two")
    assert (first.topic, first.offset, first.stored, first.duplicate) == (topic, 0, True, False)
    assert (second.offset, second.number) == (1, first.number + 1)


def test_a_put_that_nobody_wants_is_not_stored(client: oncemq.Client, topic: str) -> None:
    """D0.1: answered as such, and an error if strict."""
    receipt = client.put(topic, b"lonely")
    assert (receipt.stored, receipt.offset) == (False, None)
    with pytest.raises(oncemq.NoSubscribers, match="no_subscribers"):
        client.put(topic, b"lonely", strict=True)
    client.subscribe(topic)
    assert client.put(topic, b"wanted", strict=True).offset == 0


def test_key_and_headers_come_along(client: oncemq.Client, topic: str) -> None:
    """Each optional, for each message for itself."""
    client.subscribe(topic)
    client.put(topic, b"both", key=b"k", headers={"source": "web", "trace": b"\x00\xff"})
    client.put(topic, b"neither")
    client.put(topic, b"", key=b"", headers={})
    both, neither, empty = (client.get(topic, timeout=5) for _ in range(3))
    assert both is not None
    assert neither is not None
    assert empty is not None
    assert (both.key, both.headers) == (b"k", {"source": "web", "trace": b"\x00\xff"})
    assert (neither.key, neither.headers) == (None, {})
    assert (empty.value, empty.key, empty.headers) == (b"", b"", {})


def test_a_message_knows_its_publisher_and_its_times(client: oncemq.Client, topic: str) -> None:
    """Publish time by the publisher's clock, append time by the broker's."""
    client.subscribe(topic)
    before = datetime.now(UTC).timestamp() * 1e6
    receipt = client.put(topic, b"x")
    message = client.get(topic, timeout=5)
    assert message is not None
    assert (message.publisher, message.put_number) == (client.id, receipt.number)
    assert before - 1e6 <= message.publish_time_us <= message.append_time_us + 1e6


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_anything_like_bytes_is_a_value(client: oncemq.Client, topic: str, kind: type) -> None:
    """It is copied at once: changing it later changes nothing."""
    client.subscribe(topic)
    given = bytearray(b"abc")
    client.put(topic, kind(given), wait=False)
    given[0:1] = b"X"
    client.put_many(topic, [kind(b"def")])
    assert [get_value(client, topic) for _ in range(2)] == [b"abc", b"def"]


@pytest.mark.parametrize("value", ["text", 5, None, [b"x"], {}], ids=repr)
def test_a_value_that_is_not_bytes_is_refused_before_anything_leaves(client: oncemq.Client, topic: str, value: object) -> None:
    """Guessing an encoding would change what is stored."""
    client.subscribe(topic)
    for put in (
        lambda: client.put(topic, value),  # type: ignore[call-overload]
        lambda: client.put(topic, value, wait=False),  # type: ignore[call-overload]
        lambda: client.put_many(topic, [value]),  # type: ignore[list-item]
    ):
        with pytest.raises(oncemq.UsageError, match="must be bytes"):
            put()
    assert client.pending == 0
    assert client.put(topic, b"good").offset == 0


@pytest.mark.parametrize(
    "wrong",
    [{"key": "text"}, {"key": 5}, {"headers": "text"}, {"headers": {1: "x"}}, {"headers": {"x": 5}}, {"headers": [("a", "b")]}],
    ids=repr,
)
@pytest.mark.parametrize("wait", [True, False])
def test_wrong_keys_and_headers_are_refused_and_spoil_nothing(
    client: oncemq.Client, topic: str, wrong: dict[str, object], wait: bool
) -> None:
    """The messages collected before, in the same block, are stored as if nothing had been said."""
    client.subscribe(topic)
    client.put(topic, b"before", wait=False)
    with pytest.raises(oncemq.UsageError):
        client.put(topic, b"x", wait=wait, **wrong)  # type: ignore[call-overload]
    client.put(topic, b"behind", key=b"k", wait=False)
    assert client.flush() == 2
    assert [get_value(client, topic) for _ in range(3)] == [b"before", b"behind", None]


def test_keys_and_headers_have_limits_of_their_own(client: oncemq.Client, topic: str) -> None:
    """Told with the size and the limit."""
    client.subscribe(topic)
    assert client.put(topic, b"x", key=b"k" * KEY_BYTES_MAX).stored
    for too_large in ({"key": b"k" * (KEY_BYTES_MAX + 1)}, {"headers": {"h": "v" * HEADERS_BYTES_MAX}}):
        with pytest.raises(oncemq.MessageTooLarge, match="over the limit of 65,536"):
            client.put(topic, b"x", **too_large)  # type: ignore[call-overload]
    with pytest.raises(oncemq.MessageTooLarge):
        client.put_many(topic, [b"x", b"y"], keys=[None, b"k" * (KEY_BYTES_MAX + 1)])
    assert client.put(topic, b"x").offset == 1


@pytest.mark.parametrize("name", ["", "..", "a b", "nul\0", "line\n", "$sys", "x" * 256, None, 5])
def test_a_wrong_topic_name_never_leaves_the_client(client: oncemq.Client, name: str) -> None:
    """Every call that takes one."""
    for call in (
        lambda: client.put(name, b"x"),
        lambda: client.put_many(name, [b"x"]),
        lambda: client.subscribe(name),
        lambda: client.unsubscribe(name),
        lambda: client.get_many(name, timeout=0),
        lambda: client.ack(name),
        lambda: client.read(name, 0, 1),
    ):
        with pytest.raises((oncemq.InvalidName, oncemq.UsageError, TypeError)):
            call()


def test_one_put_to_several_topics_is_stored_in_all_of_them(client: oncemq.Client, topic: str) -> None:
    """One receipt per topic; not stored in one is no refusal of the others, unless strict."""
    topics = [f"{topic}.a", f"{topic}.b"]
    for name in topics:
        client.subscribe(name)
    receipts = client.put([*topics, f"{topic}.nobody"], b"x")
    assert [(receipt.topic, receipt.stored, receipt.offset) for receipt in receipts] == [
        (topics[0], True, 0),
        (topics[1], True, 0),
        (f"{topic}.nobody", False, None),
    ]
    assert [receipt.number for receipt in receipts] == [1, 2, 3]
    with pytest.raises(oncemq.NoSubscribers):
        client.put([*topics, f"{topic}.nobody"], b"y", strict=True)
    assert [get_value(client, name) for name in topics for _ in range(2)] == [b"x", None, b"x", None]


@pytest.mark.parametrize("topics", [[], ["a", "a"], [f"t{number}" for number in range(65)]], ids=["none", "twice", "too many"])
def test_a_put_names_one_to_sixty_four_different_topics(client: oncemq.Client, topics: list[str]) -> None:
    """Anything else is refused at once."""
    with pytest.raises(oncemq.UsageError, match="one to 64 different topics"):
        client.put(topics, b"x")


def test_many_puts_have_a_receipt_each(client: oncemq.Client, topic: str) -> None:
    """More than one block of them, from a generator."""
    client.subscribe(topic)
    count = 2 * BLOCK_CUT_MESSAGES + 5
    receipts = client.put_many(topic, (b"%d" % number for number in range(count)))
    assert (len(receipts), receipts.stored) == (count, count)
    assert [receipt.offset for receipt in receipts] == list(range(count))
    got: list[bytes] = []
    while len(got) < count:
        got += values(client.get_many(topic, 700, timeout=5))
    assert got == [b"%d" % number for number in range(count)]
    assert len(client.put_many(topic, [])) == 0


def test_many_puts_may_have_keys(client: oncemq.Client, topic: str) -> None:
    """One per value, or None; large ones are cut into blocks that fit."""
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b", b"c"], keys=[b"k", None, b""])
    assert [message.key for message in client.get_many(topic, timeout=5)] == [b"k", None, b""]
    with pytest.raises(oncemq.UsageError, match="2 values and 1 keys"):
        client.put_many(topic, [b"a", b"b"], keys=[b"k"])
    with pytest.raises(oncemq.UsageError, match="a key must be bytes or None, not str"):
        client.put_many(topic, [b"a"], keys=["k"])  # type: ignore[list-item]
    assert client.put_many(topic, [b"x"] * 700, keys=[b"k" * 60 * KIB] * 700).stored == 700


def test_puts_without_waiting_are_confirmed_by_flush(client: oncemq.Client, topic: str) -> None:
    """In the order they were put, also mixed with puts that wait."""
    client.subscribe(topic)
    for number in range(5):
        assert client.put(topic, b"%d" % number, wait=False) is None
    assert client.pending == 5
    assert client.put(topic, b"5").offset == 5
    client.put(topic, b"6", wait=False)
    assert client.flush() >= 1
    assert client.pending == 0
    assert client.flush() == 0
    assert values(client.get_many(topic, timeout=5)) == [b"%d" % number for number in range(7)]


def test_a_full_block_leaves_without_a_flush(client: oncemq.Client, connect: Connect, topic: str) -> None:
    """A thousand messages make a block; the rest waits for close or flush."""
    reader = connect("reader")
    reader.subscribe(topic)
    for number in range(BLOCK_CUT_MESSAGES + 1):
        client.put(topic, b"%d" % number, wait=False)
    assert len(reader.get_many(topic, 2 * BLOCK_CUT_MESSAGES, timeout=5)) == BLOCK_CUT_MESSAGES
    client.close()
    assert get_value(reader, topic) == b"%d" % BLOCK_CUT_MESSAGES


def test_a_strict_refusal_of_a_put_without_waiting_is_told_by_flush(client: oncemq.Client, topic: str) -> None:
    """Once; then the client goes on."""
    client.put(topic, b"x", strict=True, wait=False)
    with pytest.raises(oncemq.NoSubscribers):
        client.flush()
    assert client.flush() == 0
    client.subscribe(topic)
    assert client.put(topic, b"y").offset == 0


# --- get ------------------------------------------------------------------------------------------------


def test_every_message_comes_once_and_in_order(client: oncemq.Client, topic: str) -> None:
    """One by one, in bulk, and mixed."""
    client.subscribe(topic)
    client.put_many(topic, [b"%d" % number for number in range(100)])
    got = [get_value(client, topic) for _ in range(10)]
    got += values(client.get_many(topic, 50, timeout=5))
    while (value := get_value(client, topic)) is not None:
        got.append(value)
    assert got == [b"%d" % number for number in range(100)]


def test_a_get_without_a_message_returns_none_in_time(client: oncemq.Client, topic: str) -> None:
    """With no time at all it looks once."""
    client.subscribe(topic)
    assert client.get(topic, timeout=0) is None
    assert client.get(topic, timeout=0.05) is None
    assert client.get(timeout=0) is None
    assert client.get_many(topic, timeout=0) == []
    client.put(topic, b"x")
    assert get_value(client, topic) == b"x"


def test_a_get_waits_for_a_message_that_comes_later(
    client: oncemq.Client, connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than one Get is parked at the broker: asking again is not noticed."""
    monkeypatch.setattr("oncemq.client.gets.GET_PARK_MS", 20)
    client.subscribe(topic)
    other = connect("other")
    assert client.get(topic, timeout=0.15) is None
    other.put(topic, b"late")
    assert get_value(client, topic) == b"late"


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan")])
def test_a_timeout_that_cannot_be_is_refused(client: oncemq.Client, topic: str, timeout: float) -> None:
    """Every call that takes one."""
    client.subscribe(topic)
    for call in (lambda: client.get(topic, timeout), lambda: client.get_many(topic, 1, timeout), lambda: client.flush(timeout)):
        with pytest.raises(oncemq.UsageError):
            call()


def test_a_timeout_without_end_is_waiting_for_ever(client: oncemq.Client, topic: str) -> None:
    """As None is."""
    client.subscribe(topic)
    client.put(topic, b"x")
    message = client.get(topic, timeout=float("inf"))
    assert message is not None


def test_get_over_all_subscriptions_gives_the_oldest_first(client: oncemq.Client, topic: str) -> None:
    """D4.4: by the time the broker stored them, whatever the topic."""
    topics = [f"{topic}.{letter}" for letter in "abc"]
    for name in topics:
        client.subscribe(name)
    put = [(topics[number * 7 % 3], b"%d" % number) for number in range(30)]
    for name, value in put:
        client.put(name, value)
    got = [client.get(timeout=5) for _ in put]
    assert [(message.topic, message.value) for message in got if message is not None] == put
    assert client.get(timeout=0.1) is None


def test_get_many_hands_out_at_most_what_was_asked_for(client: oncemq.Client, topic: str) -> None:
    """And whatever there is, however much was asked for."""
    client.subscribe(topic)
    client.put_many(topic, [b"x"] * 10)
    assert len(client.get_many(topic, 3, timeout=5)) == 3
    assert len(client.get_many(topic, 2**70, timeout=5)) == 7
    with pytest.raises(oncemq.UsageError, match="at least 1"):
        client.get_many(topic, 0)


def test_without_a_subscription_there_is_nothing_to_get(client: oncemq.Client, topic: str) -> None:
    """D0.4: "no such topic" is one answer, "not subscribed" another."""
    calls = (
        lambda: client.get(topic, timeout=0),
        lambda: client.get_many(topic, timeout=0),
        lambda: client.ack(topic),
    )
    for call in calls:
        with pytest.raises(oncemq.NoSuchTopic):
            call()
    client.admin.create_topic(topic)
    for call in (*calls, lambda: client.get(timeout=0)):
        with pytest.raises(oncemq.NotSubscribed, match="subscribe first"):
            call()


def test_two_clients_on_one_topic_each_get_everything(connect: Connect, topic: str) -> None:
    """D0.6: a topic is not shared out."""
    one, two, publisher = connect("one"), connect("two"), connect("publisher")
    for client in (one, two):
        client.subscribe(topic)
    publisher.put_many(topic, [b"a", b"b", b"c"])
    assert values(one.get_many(topic, timeout=5)) == [b"a", b"b", b"c"]
    assert [get_value(two, topic) for _ in range(4)] == [b"a", b"b", b"c", None]


def test_an_acknowledged_message_is_told_to_the_broker(client: oncemq.Client, connect: Connect, topic: str) -> None:
    """The cursor moves by ack alone, without another get."""
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b", b"c"])
    client.get_many(topic, 2, timeout=5)
    client.ack(topic)
    connect("other").put(topic, b"d")  # Cursors ride along with the next record.
    (row,) = client.admin.subscriptions(topic)
    assert (row.client, row.info.cursor, row.info.end) == (client.id, 2, 4)


# --- subscribe ------------------------------------------------------------------------------------------


def test_a_new_subscription_begins_at_the_end(client: oncemq.Client, connect: Connect, topic: str) -> None:
    """D0.5: what was put before is not for it; the answer says where it begins."""
    connect("first").subscribe(topic)
    client.put_many(topic, [b"old", b"older"])
    info = client.subscribe(topic)
    assert (info.start, info.cursor, info.end) == (2, 2, 2)
    client.put(topic, b"new")
    assert [get_value(client, topic) for _ in range(2)] == [b"new", None]


def test_a_subscription_may_begin_earlier(client: oncemq.Client, connect: Connect, topic: str) -> None:
    """At the earliest message, at an offset, at a time; each client for itself."""
    client.admin.create_topic(topic, retain="forever")
    client.put_many(topic, [b"0", b"1"])
    (second,) = client.read(topic, 1, 2)
    boundary = datetime.fromtimestamp((second.append_time_us + 1) / 1e6, UTC)
    while datetime.now(UTC) <= boundary:
        pass
    client.put_many(topic, [b"2", b"3"])
    starts = {
        "earliest": ("earliest", [b"0", b"1", b"2", b"3"]),
        "offset": (3, [b"3"]),
        "end": (4, []),
        "time": (boundary, [b"2", b"3"]),
        "long-ago": (datetime(1960, 1, 1, tzinfo=UTC), [b"0", b"1", b"2", b"3"]),
        "future": (datetime.now(UTC) + timedelta(days=1), []),
        "new": ("new", []),
    }
    for name, (start, expected) in starts.items():
        reader = connect(name)
        reader.subscribe(topic, start=start)  # type: ignore[arg-type]
        assert values(reader.get_many(topic, timeout=0.1)) == expected, name


@pytest.mark.parametrize("start", ["latest", "", -1, 2**63, True, None, 1.5], ids=repr)
def test_a_start_that_cannot_be_is_refused(client: oncemq.Client, topic: str, start: str) -> None:
    """Before anything leaves."""
    with pytest.raises(oncemq.UsageError, match="'new', 'earliest', an offset or a datetime"):
        client.subscribe(topic, start=start)
    assert client.subscriptions() == []


def test_a_start_beyond_the_end_is_refused(client: oncemq.Client, topic: str) -> None:
    """There is no such place yet."""
    with pytest.raises(oncemq.OnceMQError):
        client.subscribe(topic, start=5)
    assert client.subscriptions() == []


def test_subscribing_again_changes_nothing(client: oncemq.Client, topic: str) -> None:
    """D0.2: or is told, if asked for."""
    first = client.subscribe(topic)
    client.put(topic, b"x")
    again = client.subscribe(topic, start="earliest")
    assert (again.subscription_id, again.topic_id) == (first.subscription_id, first.topic_id)
    with pytest.raises(oncemq.AlreadySubscribed):
        client.subscribe(topic, exist_ok=False)
    assert [get_value(client, topic) for _ in range(2)] == [b"x", None]
    with pytest.raises(oncemq.UsageError, match="cursor must be one of"):
        client.subscribe(topic, cursor="nobody")


def test_unsubscribed_and_subscribed_again_sees_only_what_is_new(client: oncemq.Client, connect: Connect, topic: str) -> None:
    """D0.3: the old place is gone with the old subscription, also in the state directory."""
    connect("keeps-the-topic").subscribe(topic)
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b"])
    assert get_value(client, topic) == b"a"
    client.unsubscribe(topic)
    assert client.subscriptions() == []
    with pytest.raises(oncemq.NotSubscribed):
        client.unsubscribe(topic)
    client.put(topic, b"missed")
    client.subscribe(topic)
    client.put(topic, b"new")
    assert [get_value(client, topic) for _ in range(2)] == [b"new", None]


def test_unsubscribing_from_nothing_is_told(client: oncemq.Client, topic: str) -> None:
    """D0.3: "no such topic" is another answer than "not subscribed"."""
    with pytest.raises(oncemq.NoSuchTopic):
        client.unsubscribe(topic)


def test_a_topic_lives_as_long_as_its_subscriptions(client: oncemq.Client, connect: Connect, topic: str) -> None:
    """Made by the first, gone with the last; one that was created stays until it is deleted."""
    other = connect("other")
    client.subscribe(topic)
    other.subscribe(topic)
    names = {info.topic: info for info in client.topics()}
    assert names[topic].subscriptions == 2
    client.unsubscribe(topic)
    other.unsubscribe(topic)
    assert topic not in {info.topic for info in client.topics()}
    client.admin.create_topic(topic, retain="1GiB", limit="7d")
    (info,) = client.admin.topics(topic)
    assert (info.explicit, info.retain, info.limit) == (True, "size:1073741824", "age:604800")
    client.admin.delete_topic(topic)
    assert client.admin.topics(topic) == []


# --- read -----------------------------------------------------------------------------------------------


def test_any_range_can_be_read_without_a_subscription(client: oncemq.Client, topic: str) -> None:
    """By anyone, nothing is finished by it, and it stops at the end."""
    client.admin.create_topic(topic, retain="forever")
    client.put_many(topic, [b"%d" % number for number in range(2_500)])
    assert values(list(client.read(topic, 10, 13))) == [b"10", b"11", b"12"]
    assert len(list(client.read(topic, 0, 2**70))) == 2_500
    assert list(client.read(topic, 5, 5)) == []
    assert list(client.read(topic, 2_500, 2_600)) == []
    with pytest.raises(oncemq.UsageError):
        client.read(topic, -1, 5)
    with pytest.raises(oncemq.NoSuchTopic):
        list(client.read("nowhere", 0, 1))


def test_reading_what_is_gone_is_a_gap(client: oncemq.Client, topic: str) -> None:
    """Never silently less: a topic that keeps nothing says what it no longer has."""
    client.subscribe(topic)
    client.put_many(topic, [b"x"] * 10)
    client.get_many(topic, 10, timeout=5)
    client.ack(topic)
    for _ in range(200):
        client.get(topic, timeout=0.05)
        (info,) = client.admin.topics(topic)
        if info.low:
            break
    with pytest.raises(oncemq.Gap) as gap:
        list(client.read(topic, 0, 10))
    assert (gap.value.first, gap.value.end) == (0, info.low)


@pytest.mark.usefixtures("impatient")
def test_a_subscription_begun_anew_without_an_answer_is_the_one_that_is_read(
    client: oncemq.Client, connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was ended by somebody else was read on, and refused for ever."""
    info = client.subscribe(topic)
    connect("keeper").subscribe(topic)
    connect("other").admin.delete_subscription(info.subscription_id)
    with monkeypatch.context() as patch, pytest.raises(oncemq.BrokerUnreachable):
        patch.setattr(client._session, "_attempt", lambda *asked: _unheard(client._session, *asked))
        client.subscribe(topic)
    assert client.subscribe(topic).subscription_id != info.subscription_id
    client.put(topic, b"0")
    message = client.get(topic, timeout=5)
    assert message is not None
    assert message.value == b"0"


def _unheard(session: Any, *asked: Any) -> None:
    """Everything is sent and done, and no answer arrives."""
    type(session)._attempt(session, *asked)


# --- administration -------------------------------------------------------------------------------------


def test_administration_sees_and_ends_what_others_have(client: oncemq.Client, connect: Connect, topic: str) -> None:
    """Subscriptions and clients of anybody."""
    other = connect("other")
    info = other.subscribe(topic)
    (row,) = client.admin.subscriptions(topic)
    assert (row.client, row.info.subscription_id) == (other.id, info.subscription_id)
    client.admin.delete_subscription(info.subscription_id)
    with pytest.raises(oncemq.OnceMQError):
        other.get(topic, timeout=1)
    assert other.id in {entry.client for entry in client.admin.clients()}
    client.admin.forget_client(other.id)
    assert other.id not in {entry.client for entry in client.admin.clients()}
    with pytest.raises(oncemq.OnceMQError):
        client.admin.forget_client(other.id)


def test_statistics_are_numbers_with_names(client: oncemq.Client, topic: str) -> None:
    """Enough to see that it works."""
    client.subscribe(topic)
    before = client.admin.stats().values
    client.put(topic, b"x")
    after = client.admin.stats().values
    assert after["append_number"] == before["append_number"] + 1
    assert after["journal_syncs"] > before["journal_syncs"]
    assert after["clients"] >= 1


def test_a_bad_value_among_many_puts_nothing_at_all(connect: Connect, topic: str) -> None:
    """A list is judged as a whole before its first block is cut: what is refused has left nothing behind."""
    client = connect()
    client.subscribe(topic)
    with pytest.raises(oncemq.UsageError):
        client.put_many(topic, [b"x"] * 2_500 + ["text"])  # type: ignore[list-item]

    assert client.pending == 0
    assert client.get(topic, timeout=0) is None


def test_headers_that_cannot_be_read_are_damaged_and_name_the_message() -> None:
    """What another publisher sent must not surprise an application with somebody else's exception."""
    source = Source("t", 1, "p", b"s" * 16, 1, 0, 1, 1, b"s" * 16)
    message = oncemq.Message("t", 7, b"", None, b"\xff\xff", 0, source)
    with pytest.raises(oncemq.Damaged, match="headers"):
        _ = message.headers

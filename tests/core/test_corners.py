# SPDX-License-Identifier: Apache-2.0
"""Branches of the pure machines that only an interruption, a limit or an odd order of events takes."""

from __future__ import annotations

import pytest

from oncemq.core import staging
from oncemq.core.broker import BrokerMachine
from oncemq.core.channels import channel_of
from oncemq.core.effects import Publish, Report
from oncemq.core.identity import Identity
from oncemq.core.origins import MeshRetention
from oncemq.core.packets import DeleteTopic, Live, MeshStatus, Put, PutDone, Stage, Subscribe
from oncemq.core.publisher import Entry, OpenBlock, Publisher
from oncemq.core.subscriber import Subscriber
from oncemq.errors import UsageError
from oncemq.limits import VALUE_BYTES_MAX
from oncemq.model.message import Source
from oncemq.model.refusals import Code
from tests.core.helpers import TO, Talk, block_of
from tests.core.test_edges import SESSION, code_of, say, subscriber_at
from tests.core.test_live import ONE, TOPIC, checked
from tests.core.test_staging import QUERY, block, commit, machine, part_id, stage

__all__ = ["machine"]
OLD, NEW = b"o" * 16, b"n" * 16


# --- identities -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "session", "is_later"),
    [(NEW, OLD, True), (OLD, NEW, False), (OLD, OLD, False), (SESSION, OLD, False), (NEW, SESSION, False)],
)
def test_only_what_this_directory_began_after_a_session_is_later(stream: bytes, session: bytes, is_later: bool) -> None:
    identity = Identity("c", past=(OLD.hex(),), welcomed="", tried=(NEW.hex(),))

    assert identity.is_later(stream, session) is is_later


# --- publishers -----------------------------------------------------------------------------------------


def cut(publisher: Publisher, *values: bytes) -> Entry:
    made = OpenBlock(("t",), strict=False)
    for value in values:
        made.add(value, 1)
    return publisher.cut(made)


def test_what_an_interrupted_add_left_is_cut_off_by_the_next() -> None:
    made = OpenBlock(("t",), strict=False)
    made.add(b"one", 1, b"key")
    made.times_us.append(2)
    made.add(b"two", 3)

    assert (made.values, list(made.times_us), made.keys) == ([b"one", b"two"], [1, 3], [b"key", None])


def test_headers_that_nobody_could_read_are_refused() -> None:
    made = OpenBlock(("t",), strict=False)

    with pytest.raises(UsageError, match="UTF-8"):
        made.add(b"one", 1, None, {"a": "\ud800"})
    assert made.values == []


def test_an_entry_that_was_kept_twice_is_taken_over_once() -> None:
    earlier, publisher = Publisher(OLD), Publisher(NEW)
    entry = cut(earlier, b"one")
    publisher.adopt(entry)
    publisher.adopt(entry)

    assert publisher.entries() == [entry]


def test_a_block_of_another_stream_gets_numbers_of_our_own() -> None:
    publisher = Publisher(NEW)
    publisher.add(cut(publisher, b"one"))
    again = publisher.renumbered(cut(Publisher(OLD), b"two", b"three"))

    assert (again.stream, again.first_number, again.count) == (NEW, 2, 2)


def test_adding_an_entry_again_after_an_interruption_changes_nothing() -> None:
    publisher = Publisher(NEW)
    entry = cut(publisher, b"one")
    publisher.add(entry)
    publisher.next_number = 1  # As if the last line had not been reached.
    publisher.add(entry)

    assert (publisher.entries(), publisher.next_number) == ([entry], 2)


def test_numbers_that_a_transaction_took_are_taken_once() -> None:
    publisher = Publisher(NEW)
    publisher.took(1, 3)
    publisher.took(1, 3)

    assert publisher.next_number == 4


# --- subscribers ----------------------------------------------------------------------------------------


def fed(*blocks: bytes, first: int = 0) -> Subscriber:
    """A subscriber with blocks of two messages each."""
    subscriber = subscriber_at(first)
    for number, content in enumerate(blocks):
        assert subscriber.on_block(Source("t", 2, "p", OLD, 1, first + 2 * number, number + 1, 1, OLD), content, 2)
    return subscriber


def test_settling_where_nothing_is_the_matter_changes_nothing() -> None:
    subscriber = subscriber_at(4)
    subscriber.settle("skip")

    assert (subscriber.given, subscriber.slot.finished) == (4, 4)


def test_a_subscriber_that_is_set_back_asks_again_from_there() -> None:
    subscriber = fed(block(b"a", b"b"))
    assert subscriber.has_message()
    subscriber.take()
    subscriber.given += 1
    assert subscriber.head() == 1
    subscriber.set_back(0, (NEW, 9))

    assert (subscriber.head(), subscriber.given, subscriber.want().offset, subscriber.want().append_number) == (None, 0, 0, 9)


def test_blocks_are_handed_out_whole_or_what_is_left_of_them() -> None:
    subscriber = fed(block(b"a", b"b"), block(b"c", b"d"))
    whole = subscriber.next_block()
    assert whole is not None
    assert [message.value for message in whole] == [b"a", b"b"]
    subscriber.take_block(whole)
    subscriber.given = 3
    rest = subscriber.next_block()
    assert rest is not None
    assert [(message.offset, message.value) for message in rest] == [(3, b"d")]
    subscriber.given = 2
    assert subscriber.has_message()
    sliced = subscriber.next_block()
    assert sliced is not None
    assert [message.value for message in sliced] == [b"c", b"d"]
    subscriber.given = 4
    assert subscriber.next_block() is None
    assert (subscriber.slot.finished, subscriber.slot.handed, subscriber.buffered_bytes) == (0, 2, 0)


def test_a_block_that_lies_behind_what_was_given_is_dropped_when_slicing() -> None:
    subscriber = fed(block(b"a", b"b"), block(b"c", b"d"))
    subscriber.given = 2

    assert subscriber.has_message()
    assert subscriber.take().value == b"c"


def test_a_block_that_cannot_be_cut_is_damaged() -> None:
    subscriber = fed(block(b"a", b"b")[:-1])

    assert subscriber.next_block() is None
    assert subscriber.damaged is not None


# --- the live path --------------------------------------------------------------------------------------


def test_an_end_that_is_no_news_is_a_sign_of_life_and_a_new_channel_begins_in_silence() -> None:
    made = checked()
    assert made.on_live(Live(ONE, TOPIC, 10), 5)
    assert made.is_heard(5)
    made.on_silence()

    assert not made.is_heard(5)
    assert made.get_wait_ms(5) != 0


def test_an_end_that_comes_late_takes_nothing_back_of_what_was_told() -> None:
    made = checked()
    assert made.on_live(Live(ONE, TOPIC, 12), 5)
    assert made.on_live(Live(ONE, TOPIC, 11), 6)

    assert not made.on_answer(b"2" * 16, 11), "a broker that ends at 11 was set back"


# --- brokers --------------------------------------------------------------------------------------------


def test_what_a_followed_topic_gets_is_published_when_its_drain_ends() -> None:
    talk = Talk()
    topic_id = talk.subscribe().topic_id
    talk.machine.channels.note(talk.state.topics, channel_of(topic_id), is_followed=True)
    talk.settle()
    talk.put(1, 2)

    assert talk.settle(has_records=True) == (Publish(topic_id, 0, 2),)


def test_a_node_reports_of_its_mesh() -> None:
    talk = Talk()
    talk.machine.retention = MeshRetention(10**9, 10**9)

    assert talk.speech(MeshStatus()) == (Report(TO, is_mesh=True),)


def test_a_topic_whose_name_is_none_cannot_be_subscribed_to() -> None:
    assert Talk().code(Subscribe(SESSION, 1, "no name")) == Code.INVALID_NAME


def test_a_topic_goes_with_its_subscriptions() -> None:
    talk = Talk()
    topic_id = talk.subscribe().topic_id
    talk.subscribe("u")
    talk.say(DeleteTopic(SESSION, talk.command(), "t", topic_id))

    assert [subscription.topic_id for subscription in talk.state.subscriptions.values()] == list(talk.state.topics)
    assert list(talk.state.clients["client"].subscriptions) == list(talk.state.topics)
    assert len(talk.state.topics) == 1


def test_a_value_over_the_limit_is_refused_for_good_and_its_stream_goes_on() -> None:
    talk = Talk()
    talk.subscribe()
    talk.machine.room_bytes = 2 * VALUE_BYTES_MAX
    refused = talk.say(Put(SESSION, SESSION, 1, 1, ("t",)), block_of(1, bytes(VALUE_BYTES_MAX + 1)))

    assert isinstance(refused, PutDone)
    assert refused.code == Code.TOO_LARGE
    assert isinstance(talk.put(2), PutDone)


# --- staging --------------------------------------------------------------------------------------------


def test_more_parts_or_queries_than_may_be_are_refused(machine: BrokerMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = stage(machine, 1, (b"a",))
    monkeypatch.setattr(staging, "STAGED_PARTS_MAX", 1)
    monkeypatch.setattr(staging, "QUERIES_MAX", 0)

    assert code_of(say(machine, Stage(QUERY, 0, part_id(2), 1, 1), block(b"b"))) == Code.TOO_MANY
    assert code_of([commit(machine, claim)]) == Code.TOO_MANY


def test_a_commit_that_makes_no_sense_is_refused(machine: BrokerMachine) -> None:
    claim = stage(machine, 1, (b"a",))

    assert code_of([commit(machine, claim, query="no/name")]) == Code.INVALID_NAME
    assert code_of([commit(machine, claim, batch=3)]) == Code.BATCH_MISSING
    assert code_of([commit(machine, claim, claim)]) == Code.MALFORMED

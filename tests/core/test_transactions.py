# SPDX-License-Identifier: Apache-2.0
"""Transactions at the broker: all or nothing, compared before swapped, one durable outcome (R17)."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from oncemq.core.broker import BrokerMachine
from oncemq.core.effects import Send
from oncemq.core.packets import (
    Ack,
    CreateTopic,
    Get,
    Packet,
    Put,
    PutDone,
    Refused,
    Subscribe,
    SubscribeDone,
    Transact,
    TransactAck,
    TransactDone,
    TransactPut,
    Want,
)
from oncemq.core.records import Stored, Transacted
from oncemq.core.state import BrokerState
from oncemq.limits import VALUE_BYTES_MAX
from oncemq.model.block import cut_block
from oncemq.model.refusals import Code
from tests.core.test_edges import NOW, SESSION, TO, machine_with_client, say


def block(*values: bytes) -> bytes:
    return bytes(cut_block(values, array("q", [1] * len(values))))


def subscribe(machine: BrokerMachine, topic: str, command: int, authority: str = "") -> TransactAck:
    (done,) = say(machine, Subscribe(SESSION, command, topic, authority=authority))
    assert isinstance(done, SubscribeDone)
    return TransactAck(done.subscription.subscription_id, done.subscription.topic_id, 0, 0)


@pytest.fixture
def machine() -> BrokerMachine:
    """Two topics with three messages each; the stream has come to number 6."""
    machine = machine_with_client()
    for number, topic in enumerate(("orders", "payments")):
        subscribe(machine, topic, number + 1)
        say(machine, Put(SESSION, SESSION, 1 + 3 * number, 3, (topic,)), block(b"a", b"b", b"c"))
    return machine


def ack(machine: BrokerMachine, topic: str, begin: int, end: int) -> TransactAck:
    found = machine.state.topic_named(topic)
    assert found is not None
    (subscription_id,) = found.subscriptions
    return TransactAck(subscription_id, found.topic_id, begin, end)


def put(topics: tuple[str, ...], *values: bytes, strict: bool = False) -> tuple[TransactPut, bytes]:
    content = block(*values)
    return TransactPut(topics, len(values), len(content), strict), content


def cursor(machine: BrokerMachine, topic: str) -> int:
    return machine.state.subscriptions[ack(machine, topic, 0, 0).subscription_id].cursor


def end(machine: BrokerMachine, topic: str) -> int:
    found = machine.state.topic_named(topic)
    assert found is not None
    return found.end


def done(packets: list[Packet]) -> TransactDone:
    (packet,) = packets
    assert isinstance(packet, TransactDone)
    return packet


def refused(packets: list[Packet]) -> str:
    (packet,) = packets
    assert isinstance(packet, Refused)
    return packet.code


def test_acknowledgements_and_puts_on_several_topics_happen_together(machine: BrokerMachine) -> None:
    first, first_block = put(("orders", "payments"), b"d", b"e")
    second, second_block = put(("orders",), b"f")
    acks = (ack(machine, "orders", 0, 2), ack(machine, "payments", 0, 1))
    packet = Transact(SESSION, 7, acks, (first, second))
    effects = machine.decide(NOW, TO, packet, first_block + second_block)
    assert [type(record) for record in effects.records][-3:] == [Transacted, Stored, Stored]
    assert (cursor(machine, "orders"), end(machine, "orders")) == (0, 3), "a decision changes nothing"
    for record in effects.records:
        machine.apply(record)
    (said,) = effects.speech
    assert isinstance(said, Send)
    answer = done([said.packet])
    assert (answer.number, answer.numbers, answer.duplicate, answer.code) == (7, 6, False, "")
    assert [outcome.first_offset for outcome in answer.outcomes] == [3, 3, 5]
    assert (cursor(machine, "orders"), cursor(machine, "payments")) == (2, 1)
    assert (end(machine, "orders"), end(machine, "payments")) == (6, 5)
    (later,) = say(machine, Put(SESSION, SESSION, 13, 1, ("orders",)), block(b"g"))
    assert isinstance(later, PutDone), "the stream goes on behind the numbers it took"


def test_a_repeat_hears_the_same_and_changes_nothing(machine: BrokerMachine) -> None:
    entry, content = put(("orders",), b"d")
    packet = Transact(SESSION, 7, (ack(machine, "orders", 0, 2),), (entry,))
    first = done(say(machine, packet, content))
    again = done(say(machine, packet, content))
    assert (again.duplicate, again.outcomes, again.code) == (True, first.outcomes, "")
    assert (cursor(machine, "orders"), end(machine, "orders")) == (2, 4)
    other = Transact(SESSION, 7, (ack(machine, "orders", 0, 3),), (entry,))
    assert refused(say(machine, other, content)) == Code.CONFLICTING_PUT
    inside = Transact(SESSION, 8, (ack(machine, "orders", 2, 3),))
    assert refused(say(machine, inside)) == Code.CONFLICTING_PUT


def test_a_repeat_from_long_ago_is_told_without_details(machine: BrokerMachine) -> None:
    packet = Transact(SESSION, 7, (ack(machine, "orders", 0, 1),))
    say(machine, packet)
    for number in range(8, 8 + 200):
        say(machine, Put(SESSION, SESSION, number, 1, ("orders",)), block(b"x"))
    assert done(say(machine, packet)) == TransactDone(7, 1, True, "", ())


def test_a_cursor_that_is_elsewhere_refuses_for_good(machine: BrokerMachine) -> None:
    """H28: the same message run again in another transaction: its acknowledgement begins where the cursor no longer is."""
    say(machine, Transact(SESSION, 7, (ack(machine, "orders", 0, 1),)))
    entry, content = put(("payments",), b"invoice")
    late = Transact(SESSION, 8, (ack(machine, "orders", 0, 1),), (entry,))
    before = end(machine, "payments")
    assert done(say(machine, late, content)).code == Code.CURSOR_MOVED
    assert done(say(machine, late, content)) == TransactDone(8, 2, True, Code.CURSOR_MOVED, ())
    assert end(machine, "payments") == before
    assert done(say(machine, Transact(SESSION, 10, (ack(machine, "orders", 1, 2),)))).code == "", "the stream goes on"


def test_a_cursor_that_waits_for_the_next_group_counts(machine: BrokerMachine) -> None:
    wanted = ack(machine, "orders", 0, 1)
    say(machine, Ack(SESSION, wanted.subscription_id, wanted.topic_id, 1, "broker"))
    assert done(say(machine, Transact(SESSION, 7, (wanted,)))).code == Code.CURSOR_MOVED
    assert done(say(machine, Transact(SESSION, 8, (ack(machine, "orders", 1, 3),)))).code == ""
    machine.settle(NOW, has_records=True)
    assert cursor(machine, "orders") == 3, "the older cursor that waited does not set it back"


@pytest.mark.parametrize(("begin", "until"), [(0, 4), (2, 1)])
def test_nothing_beyond_the_end_and_nothing_backwards(machine: BrokerMachine, begin: int, until: int) -> None:
    if begin:
        say(machine, Transact(SESSION, 7, (ack(machine, "orders", 0, begin),)))
    number = machine.state.clients["client"].streams[SESSION].last + 1
    assert done(say(machine, Transact(SESSION, number, (ack(machine, "orders", begin, until),)))).code == Code.BEYOND_END


def test_a_subscription_that_is_consumed_otherwise_is_not_for_transactions(machine: BrokerMachine) -> None:
    wanted = ack(machine, "orders", 0, 1)
    say(machine, Get(SESSION, (Want(wanted.subscription_id, wanted.topic_id, 0, 0),), 100))
    assert done(say(machine, Transact(SESSION, 7, (wanted,)))).code == Code.WRONG_AUTHORITY


def test_the_first_transaction_fixes_how_a_subscription_is_consumed(machine: BrokerMachine) -> None:
    wanted = ack(machine, "orders", 0, 1)
    say(machine, Transact(SESSION, 7, (wanted,)))
    assert machine.state.subscriptions[wanted.subscription_id].authority == "broker"
    want = Want(wanted.subscription_id, wanted.topic_id, 1, 1)
    assert refused(say(machine, Get(SESSION, (want,), 100))) == Code.WRONG_AUTHORITY


def test_a_put_nobody_wants_does_not_stop_a_transaction_unless_strict(machine: BrokerMachine) -> None:
    entry, content = put(("nobody", "orders"), b"d")
    answer = done(say(machine, Transact(SESSION, 7, (), (entry,)), content))
    assert [outcome.stored for outcome in answer.outcomes] == [False, True]
    alone, content = put(("nobody",), b"d")
    assert [outcome.stored for outcome in done(say(machine, Transact(SESSION, 10, (), (alone,)), content)).outcomes] == [False]
    strict, content = put(("nobody",), b"d", strict=True)
    packet = Transact(SESSION, 12, (ack(machine, "orders", 0, 1),), (strict,))
    assert done(say(machine, packet, content)).code == Code.NO_SUBSCRIBERS
    assert cursor(machine, "orders") == 0


def test_an_explicit_topic_without_subscribers_is_no_interest_either(machine: BrokerMachine) -> None:
    say(machine, CreateTopic(SESSION, 3, "kept", retain="forever"))
    entry, content = put(("kept",), b"d")
    (outcome,) = done(say(machine, Transact(SESSION, 7, (), (entry,)), content)).outcomes
    assert outcome.first_offset == 0


def test_what_is_wrong_with_it_is_told(machine: BrokerMachine) -> None:
    wanted, (entry, content) = ack(machine, "orders", 0, 1), put(("orders",), b"d")
    assert refused(say(machine, Transact(SESSION, 9, (wanted,)))) == Code.GAP_IN_STREAM
    assert refused(say(machine, Transact(SESSION, 7, (wanted, wanted)))) == Code.MALFORMED
    assert refused(say(machine, Transact(SESSION, 7, (), (entry,)), content[:-1] + b"x")) == Code.CORRUPT_BLOCK
    assert refused(say(machine, Transact(SESSION, 7, (), (entry,)), content + b"12345678")) == Code.MALFORMED
    other = TransactPut(("orders",), 2, len(content))
    assert refused(say(machine, Transact(SESSION, 7, (), (other,)), content)) == Code.MALFORMED
    machine.room_bytes = 10
    assert refused(say(machine, Transact(SESSION, 7, (wanted,), (entry,)), content)) == Code.DISK_FULL
    machine.room_bytes = 1_000_000
    assert done(say(machine, Transact(SESSION, 7, (wanted,), (entry,)), content)).code == "", "nothing of that took its number"


def test_bad_names_and_large_values_are_outcomes(machine: BrokerMachine) -> None:
    entry, content = put(("not a name",), b"d")
    assert done(say(machine, Transact(SESSION, 7, (), (entry,)), content)).code == Code.INVALID_NAME
    machine.room_bytes = 10 * VALUE_BYTES_MAX
    entry, content = put(("orders",), bytes(VALUE_BYTES_MAX + 1))
    assert done(say(machine, Transact(SESSION, 9, (), (entry,)), content)).code == Code.TOO_LARGE
    gone = TransactAck(12345, ack(machine, "orders", 0, 0).topic_id, 0, 1)
    assert done(say(machine, Transact(SESSION, 11, (gone,)))).code == Code.NOT_SUBSCRIBED


def test_a_transaction_uses_up_the_room_of_its_drain(machine: BrokerMachine) -> None:
    entry, content = put(("orders",), b"d" * 100)
    machine.room_bytes = len(content)
    say(machine, Transact(SESSION, 7, (), (entry,)), content)
    assert machine.room_bytes == 0


def test_a_snapshot_remembers_transactions(machine: BrokerMachine) -> None:
    entry, content = put(("orders",), b"d")
    packet = Transact(SESSION, 7, (ack(machine, "orders", 0, 2),), (entry,))
    say(machine, packet, content)
    restored = BrokerState()
    restored.restore(machine.state.dump())
    machine.state = restored
    again = done(say(machine, packet, content))
    assert (again.duplicate, [outcome.first_offset for outcome in again.outcomes]) == (True, [3])


def test_what_was_read_from_another_history_is_not_finished_here(machine: BrokerMachine) -> None:
    """A broker that was set back has other messages at the offsets that a transaction had read: refused, and no outcome."""
    here = msgspec.structs.replace(ack(machine, "orders", 0, 3), start_id=machine.state.start_id, append_number=1)
    gone = msgspec.structs.replace(here, append_number=machine.state.next_append_number)
    (refused,) = say(machine, Transact(SESSION, 7, (gone,)))
    assert isinstance(refused, Refused)
    assert (refused.code, cursor(machine, "orders")) == (Code.DIVERGED, 0)
    (done,) = say(machine, Transact(SESSION, 7, (here,)))
    assert isinstance(done, TransactDone)
    assert (done.code, cursor(machine, "orders")) == ("", 3)

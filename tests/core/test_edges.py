# SPDX-License-Identifier: Apache-2.0
"""Corners of the pure machines that ordinary runs do not reach: limits, and answers to what should not be asked."""

from __future__ import annotations

import pytest

from oncemq.core import broker, commands
from oncemq.core.broker import BrokerMachine
from oncemq.core.effects import Effects, Send, Sender
from oncemq.core.identity import Identity, hello, trying
from oncemq.core.packets import (
    NOBODY,
    CommandDone,
    CreateTopic,
    DeleteSubscription,
    Get,
    Hello,
    Packet,
    PutDone,
    Refused,
    Subscribe,
    SubscriptionInfo,
    Want,
)
from oncemq.core.publisher import OpenBlock, Publisher
from oncemq.core.records import CommandSettled, CursorMoved
from oncemq.core.slot import Slot
from oncemq.core.state import BrokerState
from oncemq.core.subscriber import Span, Subscriber
from oncemq.errors import UsageError
from oncemq.limits import KNOWN_SESSIONS_MAX, PENDING_STREAMS_MAX
from oncemq.model.message import Source
from oncemq.model.refusals import Code
from oncemq.ports import Instant

NOW = Instant(1_000, 1_700_000_000_000_000)
TO = Sender(b"a", 1)
SESSION = b"s" * 16


class EmptyStore:
    """A journal that holds nothing."""

    def offset_at_time(self, _topic_id: int, _time_us: int) -> int | None:
        return None

    def holdings(self, _topic_id: int) -> list[object]:
        return []


def machine_with_client() -> BrokerMachine:
    machine = BrokerMachine(BrokerState(), EmptyStore(), b"l" * 16)  # type: ignore[arg-type]
    take(machine, machine.start(NOW, b"i" * 16, "test"))
    machine.room_bytes = 1_000_000
    say(machine, Hello("client", SESSION))
    return machine


def take(machine: BrokerMachine, effects: Effects) -> list[Packet]:
    for record in effects.records:
        machine.apply(record)
    return [speech.packet for speech in effects.speech if isinstance(speech, Send)]


def say(machine: BrokerMachine, packet: Packet, block: bytes = b"") -> list[Packet]:
    return take(machine, machine.decide(NOW, TO, packet, block))


def code_of(packets: list[Packet]) -> str:
    (packet,) = packets
    assert isinstance(packet, Refused)
    return packet.code


def test_a_packet_that_only_a_broker_sends_is_refused_by_the_machine_too() -> None:
    machine = machine_with_client()

    assert code_of(say(machine, CommandDone(1))) == Code.UNKNOWN_PACKET


def test_more_gets_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "PARKED_GETS_MAX", 1)
    machine = machine_with_client()
    (done,) = say(machine, Subscribe(SESSION, 1, "t"))
    info: SubscriptionInfo = done.subscription  # type: ignore[attr-defined]
    get = Get(SESSION, (Want(info.subscription_id, info.topic_id, 0),), 1_000, 1_000)

    assert say(machine, get) == []
    assert code_of(say(machine, get)) == Code.TOO_MANY


def test_a_limit_on_topics_or_subscriptions_uses_no_command_number_up(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_with_client()
    monkeypatch.setattr(commands, "TOPICS_MAX", 0)

    assert code_of(say(machine, Subscribe(SESSION, 1, "t"))) == Code.TOO_MANY
    assert code_of(say(machine, CreateTopic(SESSION, 1, "t"))) == Code.TOO_MANY
    monkeypatch.undo()
    assert not isinstance(say(machine, CreateTopic(SESSION, 1, "t"))[0], Refused)


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        (CreateTopic(SESSION, 1, ".."), Code.INVALID_NAME),
        (CreateTopic(SESSION, 1, "t", "for a while"), Code.MALFORMED),
        (DeleteSubscription(SESSION, 1, 7), Code.NO_SUCH_SUBSCRIPTION),
        (Subscribe(SESSION, 1, "t", "new", 0, "nobody"), Code.MALFORMED),
    ],
)
def test_a_command_that_cannot_be_is_refused_once_and_for_all(packet: Packet, code: Code) -> None:
    machine = machine_with_client()

    assert code_of(say(machine, packet)) == code
    assert code_of(say(machine, packet)) == code


def test_records_about_who_is_gone_change_nothing() -> None:
    machine = machine_with_client()
    before = machine.state.dump()
    machine.apply(CursorMoved(99, 5))
    machine.apply(CommandSettled("nobody", SESSION, 1, b""))
    machine.apply(CommandSettled("client", b"o" * 16, 1, b""))

    assert machine.state.dump() == before


def test_an_empty_snapshot_is_a_new_log() -> None:
    state = machine_with_client().state
    state.restore(b"")

    assert state.dump() == BrokerState().dump()


def test_a_client_that_never_reaches_a_broker_is_told_in_the_end() -> None:
    identity = Identity("c", tried=tuple(f"{number:032x}" for number in range(KNOWN_SESSIONS_MAX - 1)))
    with pytest.raises(UsageError, match="without reaching a broker"):
        trying(identity, SESSION)


def test_an_outbox_of_too_many_runs_is_told() -> None:
    pending = tuple(number.to_bytes(16, "big") for number in range(PENDING_STREAMS_MAX + 1))
    with pytest.raises(UsageError, match="earlier runs"):
        hello(Identity("c"), SESSION, pending, (NOBODY, 0), ephemeral=False, takeover=False)


def test_the_last_message_of_an_open_block_can_be_taken_back() -> None:
    block = OpenBlock(("t",), strict=False)
    block.add(b"one", 1)
    block.add(b"two", 2, b"key", {"a": "b"})
    size = block.size_bytes
    block.add(b"three", 3, b"other")
    block.drop_last()

    assert (block.values, block.keys, block.size_bytes) == ([b"one", b"two"], [None, b"key"], size)
    assert block.headers is not None
    assert len(block.headers) == 2


def test_a_key_after_headers_and_headers_after_a_key_fill_what_was_before() -> None:
    block = OpenBlock(("t",), strict=False)
    block.add(b"one", 1, None, {"a": "b"})
    block.add(b"two", 2, b"key")
    block.add(b"three", 3)

    assert block.keys == [None, b"key", None]
    assert block.headers is not None
    assert [entry is not None for entry in block.headers] == [True, False, False]


def test_an_outcome_that_comes_before_its_block_was_sent_again_settles_it() -> None:
    """After a rewind nothing counts as sent; a late answer must not make the window negative."""
    publisher = Publisher(SESSION)
    block = OpenBlock(("t",), strict=False)
    block.add(b"one", 1)
    publisher.add(publisher.cut(block))
    (entry,) = publisher.to_send()
    publisher.rewind()
    assert publisher.on_put_done(PutDone(SESSION, entry.first_number, 1, False, "", ())) == [entry]
    assert not publisher.is_window_full
    assert publisher.to_send() == []


def subscriber_at(offset: int) -> Subscriber:
    info = SubscriptionInfo(1, "t", 2, "local", 0, offset, 0, offset)
    slot = Slot(1, 2, offset, offset, offset)
    slot.freeze()
    return Subscriber(info, slot)


def test_behind_a_gap_no_block_is_buffered_before_the_gap_was_told() -> None:
    subscriber = subscriber_at(0)
    subscriber.on_part(5, 9, 0, None)
    source = Source("t", 2, "p", SESSION, 1, 0, 1, 1, SESSION)

    assert not subscriber.on_block(source, b"", 3)


def test_what_the_broker_cannot_read_is_damaged_from_the_next_offset_on() -> None:
    subscriber = subscriber_at(4)
    subscriber.on_part(0, 9, 0, Span(2, 7))

    assert subscriber.damaged is not None
    assert subscriber.damaged[0] == Span(4, 7)


def test_taking_many_of_nothing_moves_nothing() -> None:
    subscriber = subscriber_at(4)

    assert subscriber.take_many(5) == []
    assert subscriber.take_ready() is None
    assert (subscriber.slot.finished, subscriber.slot.handed) == (4, 4)


def test_what_could_not_be_read_can_be_asked_for_again() -> None:
    """A disk that failed once may read now: "repeat" gives nothing up, "skip" goes on behind it."""
    subscriber = subscriber_at(4)
    subscriber.on_part(0, 9, 0, Span(2, 7))
    subscriber.settle("repeat")

    assert subscriber.damaged is None
    assert (subscriber.next_offset, subscriber.slot.finished) == (4, 4)
    subscriber.on_part(0, 9, 0, Span(2, 7))
    subscriber.settle("skip")
    assert (subscriber.next_offset, subscriber.slot.finished) == (7, 7)

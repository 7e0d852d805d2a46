# SPDX-License-Identifier: Apache-2.0
"""What a listener believes of a live channel, as a table: what was heard, what was answered, what must be asked."""

from __future__ import annotations

import pytest

from oncemq.core.live import Follower
from oncemq.core.packets import Live, SubscriptionInfo
from oncemq.core.slot import Slot
from oncemq.core.subscriber import Subscriber
from oncemq.limits import GET_PARK_MS, LIVE_ACK_MESSAGES, LIVE_ACK_MS, LIVE_SIGN_OF_LIFE_MS, LIVE_SILENCE_MS

ONE, TWO = b"1" * 16, b"2" * 16
TOPIC = 3


def follower(at: int = 10) -> Follower:
    """Of a subscription that has everything below `at`, at time 0."""
    info = SubscriptionInfo(5, "orders", TOPIC, "local", 0, at, 0, at)
    return Follower(Subscriber(info, Slot(5, TOPIC, at, at, at)), 0)


def checked(at: int = 10) -> Follower:
    """The same, after start ONE has served a Get that brought everything there was."""
    made = follower(at)
    assert made.on_answer(ONE, at)
    return made


def test_nothing_is_believed_before_a_get_was_served() -> None:
    made = follower()
    assert made.get_wait_ms(0) == 0
    assert not made.on_live(Live(ONE, TOPIC, 12), 1)
    assert not made.is_heard(1)
    assert made.get_wait_ms(1) == 0


def test_a_silent_channel_is_got_with_a_get_that_waits() -> None:
    made = checked()
    assert made.get_wait_ms(0) == GET_PARK_MS
    made.on_live(Live(ONE, TOPIC, 10), 100)
    assert made.get_wait_ms(100 + LIVE_SILENCE_MS - 1) is None
    assert made.get_wait_ms(100 + LIVE_SILENCE_MS) == GET_PARK_MS


def test_while_a_channel_speaks_and_nothing_is_missing_nothing_is_asked() -> None:
    made = checked()
    assert made.on_live(Live(ONE, TOPIC, 10), 1)
    assert made.get_wait_ms(2) is None
    made.subscriber.next_offset = 15  # Its blocks arrived.
    assert made.on_live(Live(ONE, TOPIC, 15), 3)
    assert made.get_wait_ms(3) is None


def test_h16_an_end_beyond_what_is_here_is_asked_for() -> None:
    """A gap and a lost tail are the same: the end was heard, the messages are not here."""
    made = checked()
    made.on_live(Live(ONE, TOPIC, 11), 1)
    assert made.get_wait_ms(1) == 0
    made.subscriber.next_offset = 11
    assert made.get_wait_ms(1) is None


def test_r01_a_new_start_is_asked_before_it_is_believed() -> None:
    made = checked()
    made.on_live(Live(ONE, TOPIC, 10), 1)
    assert not made.on_live(Live(TWO, TOPIC, 11), 2)
    assert made.get_wait_ms(2) == 0
    assert made.on_answer(TWO, 11)
    assert made.on_live(Live(TWO, TOPIC, 11), 3)


def test_late_packets_of_an_earlier_start_are_neither_believed_nor_asked_about() -> None:
    made = checked()
    made.on_answer(TWO, 10)
    made.on_live(Live(TWO, TOPIC, 10), 1)
    assert not made.on_live(Live(ONE, TOPIC, 99), 2)
    assert made.get_wait_ms(2) is None


@pytest.mark.parametrize(("start_id", "end", "is_fine"), [(TWO, 11, False), (TWO, 12, True), (ONE, 11, True)])
def test_r01_a_broker_that_lacks_what_an_earlier_start_told_was_set_back(start_id: bytes, end: int, *, is_fine: bool) -> None:
    """Of the same start a lower end is only an older answer."""
    made = checked()
    made.on_live(Live(ONE, TOPIC, 12), 1)
    assert made.on_answer(start_id, end) is is_fine


def test_a_refused_acknowledgement_makes_it_ask() -> None:
    made = checked()
    made.on_live(Live(ONE, TOPIC, 10), 1)
    made.on_refused()
    assert made.get_wait_ms(2) == 0


def test_r06_what_is_finished_is_told_by_count_by_time_and_by_sign_of_life() -> None:
    made = checked()
    slot = made.subscriber.slot
    assert not made.is_acknowledgement_due(LIVE_SIGN_OF_LIFE_MS - 1)
    assert made.is_acknowledgement_due(LIVE_SIGN_OF_LIFE_MS)
    slot.finished += 1
    assert not made.is_acknowledgement_due(LIVE_ACK_MS - 1)
    assert made.is_acknowledgement_due(LIVE_ACK_MS)
    slot.finished += LIVE_ACK_MESSAGES - 1
    assert made.is_acknowledgement_due(1)
    made.subscriber.told = slot.finished
    made.on_acknowledged(1)
    assert not made.is_acknowledgement_due(LIVE_ACK_MS + 1)


def test_it_never_asks_to_be_woken_in_the_past() -> None:
    for heard_ms in (None, 0, 1_000):
        made = checked()
        if heard_ms is not None:
            made.on_live(Live(ONE, TOPIC, 10), heard_ms)
        made.on_acknowledged(10_000)
        assert made.next_due_ms(10_000) > 10_000

# SPDX-License-Identifier: Apache-2.0
"""What a broker publishes of followed topics: each block once, the synced end always, and nothing where nobody listens."""

from __future__ import annotations

from oncemq.core.channels import Channels, channel_of
from oncemq.core.effects import Publish
from oncemq.core.topics import Topic
from oncemq.limits import LIVE_HEARTBEAT_MS

A, B = 7, 2**62 + 1


def topics(**ends: int) -> dict[int, Topic]:
    """Two topics, by their first letters."""
    made = {A: Topic(A, "a", explicit=True, retain="", limit=""), B: Topic(B, "b", explicit=True, retain="", limit="")}
    for topic_id, name in ((A, "a"), (B, "b")):
        made[topic_id].end = ends.get(name, 0)
    return made


def followed(held: dict[int, Topic], *topic_ids: int) -> Channels:
    """Channels whose newcomers have been told the end, at time 0."""
    channels = Channels()
    for topic_id in topic_ids:
        channels.note(held, channel_of(topic_id), is_followed=True)
    channels.speech(held, 0)
    return channels


def store(held: dict[int, Topic], channels: Channels, topic_id: int, count: int) -> None:
    held[topic_id].end += count
    channels.on_stored(topic_id)


def test_a_topic_nobody_follows_costs_nothing() -> None:
    held, channels = topics(a=5), Channels()
    store(held, channels, A, 3)
    assert channels.speech(held, 10 * LIVE_HEARTBEAT_MS) == []
    assert channels.next_due_ms() is None
    assert not channels


def test_whoever_begins_to_follow_is_told_the_end_at_once() -> None:
    held = topics(a=5)
    channels = Channels()
    channels.note(held, channel_of(A), is_followed=True)
    assert channels.speech(held, 0) == [Publish(A, 5, 5)]
    channels.note(held, channel_of(A), is_followed=True)  # A second one, a moment later.
    assert channels.speech(held, 1) == [Publish(A, 5, 5)]


def test_what_a_drain_stored_leaves_once() -> None:
    held = topics(a=5, b=9)
    channels = followed(held, A)
    store(held, channels, A, 2)
    store(held, channels, A, 1)
    store(held, channels, B, 4)
    assert channels.speech(held, 1) == [Publish(A, 5, 8)]
    assert channels.speech(held, 2) == []
    store(held, channels, A, 1)
    assert channels.speech(held, 3) == [Publish(A, 8, 9)]


def test_a_heartbeat_tells_every_followed_end_once_a_second() -> None:
    held = topics(a=5, b=9)
    channels = followed(held, A, B)
    assert channels.next_due_ms() == LIVE_HEARTBEAT_MS
    assert channels.speech(held, LIVE_HEARTBEAT_MS - 1) == []
    assert channels.speech(held, LIVE_HEARTBEAT_MS) == [Publish(A, 5, 5), Publish(B, 9, 9)]
    assert channels.next_due_ms() == 2 * LIVE_HEARTBEAT_MS


def test_when_the_last_one_leaves_nothing_is_published_any_more() -> None:
    held = topics(a=5)
    channels = followed(held, A)
    channels.note(held, channel_of(A), is_followed=False)
    store(held, channels, A, 2)
    assert channels.speech(held, LIVE_HEARTBEAT_MS) == []
    assert channels.next_due_ms() is None
    channels.note(held, channel_of(A), is_followed=True)  # What was stored meanwhile is not published late: it is told.
    assert channels.speech(held, LIVE_HEARTBEAT_MS + 1) == [Publish(A, 7, 7)]


def test_a_deleted_topic_is_left_and_channels_of_none_are_never_taken_up() -> None:
    held = topics(a=5)
    channels = followed(held, A)
    del held[A]
    assert channels.speech(held, LIVE_HEARTBEAT_MS) == []
    assert len(channels) == 0
    for channel in (b"", b"\0", channel_of(99), channel_of(B) + b"\0"):
        channels.note(held, channel, is_followed=True)
    assert len(channels) == 0


def test_what_was_trimmed_before_it_could_leave_is_not_asked_for() -> None:
    held = topics(a=5)
    channels = followed(held, A)
    store(held, channels, A, 10)
    held[A].low = 8
    assert channels.speech(held, 1) == [Publish(A, 8, 15)]

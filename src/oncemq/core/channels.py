# SPDX-License-Identifier: Apache-2.0
"""Topics that are followed live: what is still to be published of each, and when its end is told again (R18).

May not: publish anything itself, or remember who follows. Volatile: after a restart followers come again by themselves.
The idea: one channel per topic id. For every followed topic one number, the offset published so far; what a drain stored above
it leaves once, however many follow. A heartbeat is the same with nothing stored: it tells the end, so that a lost tail is
noticed, and whoever has just begun to follow knows from where on nothing is missed. A topic nobody follows costs nothing.
Next: core/broker.py, which asks at the end of a drain; engine/live.py, which carries it out; core/live.py for the other end.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncemq.core.effects import Publish
from oncemq.core.topics import Topic
from oncemq.limits import LIVE_HEARTBEAT_MS

CHANNEL_BYTES = 8


def channel_of(topic_id: int) -> bytes:
    """The channel of a topic: what a subscription on the live socket names."""
    return topic_id.to_bytes(CHANNEL_BYTES, "little")


class Channels:
    __slots__ = ("_due_ms", "_news", "_published")

    def __init__(self) -> None:
        self._published: dict[int, int] = {}
        self._news: dict[int, None] = {}
        """Followed topics with something to say in this drain."""
        self._due_ms: int | None = None

    def __len__(self) -> int:
        return len(self._published)

    def note(self, topics: Mapping[int, Topic], channel: bytes, *, is_followed: bool) -> None:
        """Somebody began to follow a channel, or nobody does any more. Called when all that is applied is synced."""
        topic_id = int.from_bytes(channel, "little")
        if not is_followed:
            self._published.pop(topic_id, None)
        elif len(channel) == CHANNEL_BYTES and topic_id in topics:
            self._published.setdefault(topic_id, topics[topic_id].end)
            self._news[topic_id] = None

    def on_stored(self, topic_id: int) -> None:
        if topic_id in self._published:
            self._news[topic_id] = None

    def speech(self, topics: Mapping[int, Topic], ticks_ms: int) -> list[Publish]:
        """What to publish once this drain is synced."""
        if self._due_ms is None or ticks_ms >= self._due_ms:
            self._due_ms = ticks_ms + LIVE_HEARTBEAT_MS
            self._news = dict.fromkeys(self._published)
        found = [self._publish(topics, topic_id) for topic_id in self._news]
        self._news.clear()
        return [each for each in found if each is not None]

    def _publish(self, topics: Mapping[int, Topic], topic_id: int) -> Publish | None:
        first = self._published.pop(topic_id, None)
        if first is None or topic_id not in topics:
            return None  # Left, or deleted: its followers will ask, and be told.
        topic = topics[topic_id]
        self._published[topic_id] = topic.end
        return Publish(topic_id, max(first, topic.low), topic.end)

    def next_due_ms(self) -> int | None:
        return self._due_ms if self._published else None

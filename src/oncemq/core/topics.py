# SPDX-License-Identifier: Apache-2.0
"""Topics and subscriptions as a broker knows them.

May not: hold messages. A topic is two numbers, `low` and `end`; where its blocks lie is the journal's business.
The idea: a subscription's cursor says all there is to say about who still misses what.
Next: core/retention.py, which moves `low`; core/gets.py, which moves cursors.
"""

from __future__ import annotations

import msgspec

from oncemq.core.packets import SubscriptionInfo, TopicInfo
from oncemq.core.parts import NO_ROWS, Piece, Splice, piece_at, splices_below
from oncemq.model.retention import Retention, read_retention

UNDECIDED, LOCAL, BROKER, DATABASE = "", "local", "broker", "database"
AUTHORITIES = frozenset({LOCAL, BROKER, DATABASE})
"""Who keeps a subscription's position: the client's slot, this broker, or the application's database."""


class Subscription:
    __slots__ = ("authority", "client", "cursor", "start", "subscription_id", "topic_id")

    def __init__(self, subscription_id: int, topic_id: int, client: str, authority: str, start: int) -> None:
        self.subscription_id = subscription_id
        self.topic_id = topic_id
        self.client = client
        self.authority = authority
        self.start = start
        self.cursor = start


class Topic:
    __slots__ = (
        "end",
        "explicit",
        "limit",
        "low",
        "name",
        "retain",
        "retention",
        "splices",
        "subscriptions",
        "topic_id",
        "upper",
    )

    def __init__(self, topic_id: int, name: str, *, explicit: bool, retain: str, limit: str) -> None:
        self.topic_id = topic_id
        self.name = name
        self.explicit = explicit
        self.retain = retain
        self.limit = limit
        self.retention: Retention = read_retention(retain)
        self.upper: Retention = read_retention(limit)
        self.low = 0
        self.end = 0
        self.subscriptions: dict[int, Subscription] = {}
        self.splices: list[Splice] = []
        """Which offsets are rows of committed parts, or stand for lost messages; in order."""

    def piece(self, offset: int, end: int) -> Piece:
        """The run of messages from `offset` on that is read in one way."""
        return piece_at(self.splices, offset, end)

    def low_at(self, offset: int) -> int:
        """The lowest offset that can be had by whoever stands here: behind a gap of the mesh it is the end of that gap."""
        if self.splices and self.low <= offset < self.end:
            piece = self.piece(offset, self.end)
            if piece.splice is not None and piece.splice.storage_id == NO_ROWS:
                return piece.end
        return self.low

    def trim(self, low: int) -> None:
        self.low = low
        del self.splices[: splices_below(self.splices, low)]

    @property
    def has_interest(self) -> bool:
        """Whether a put here is stored: somebody subscribes, or the topic retains."""
        return bool(self.subscriptions) or self.retention.is_set

    def info(self, size_bytes: int = 0) -> TopicInfo:
        return TopicInfo(
            self.name,
            self.topic_id,
            self.explicit,
            self.retain,
            self.limit,
            self.low,
            self.end,
            len(self.subscriptions),
            size_bytes,
        )

    def describe(self, subscription: Subscription) -> SubscriptionInfo:
        return SubscriptionInfo(
            subscription.subscription_id,
            self.name,
            self.topic_id,
            subscription.authority,
            subscription.start,
            subscription.cursor,
            self.low,
            self.end,
        )


class SubscriptionDump(msgspec.Struct, frozen=True, array_like=True):
    subscription_id: int
    client: str
    authority: str
    start: int
    cursor: int


class TopicDump(msgspec.Struct, frozen=True, array_like=True):
    """A topic in a snapshot."""

    topic_id: int
    name: str
    explicit: bool
    retain: str
    limit: str
    low: int
    end: int
    subscriptions: tuple[SubscriptionDump, ...]
    splices: tuple[Splice, ...] = ()


def dump_topic(topic: Topic) -> TopicDump:
    subscriptions = tuple(
        SubscriptionDump(entry.subscription_id, entry.client, entry.authority, entry.start, entry.cursor)
        for entry in topic.subscriptions.values()
    )
    return TopicDump(
        topic.topic_id,
        topic.name,
        topic.explicit,
        topic.retain,
        topic.limit,
        topic.low,
        topic.end,
        subscriptions,
        tuple(topic.splices),
    )


def restore_topic(dump: TopicDump) -> Topic:
    topic = Topic(dump.topic_id, dump.name, explicit=dump.explicit, retain=dump.retain, limit=dump.limit)
    topic.low, topic.end = dump.low, dump.end
    topic.splices = list(dump.splices)
    for entry in dump.subscriptions:
        subscription = Subscription(entry.subscription_id, dump.topic_id, entry.client, entry.authority, entry.start)
        subscription.cursor = entry.cursor
        topic.subscriptions[entry.subscription_id] = subscription
    return topic

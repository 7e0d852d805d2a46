# SPDX-License-Identifier: Apache-2.0
"""The durable subscription of one streaming query, kept by its driver: where it began, what it has finished, what it may believe.

May not: take the name away from a running query before it is sure of its own checkpoint: every check that can be made without a
session is made first.
The idea: the broker remembers where the name began and what it committed, so a moving "latest" is resolved once (R21). The
position is the checkpoint's; the broker's cursor follows one batch behind and only tells retention what may go. A later driver
takes the name over; the earlier one is then fenced and fails instead of running on.
Next: offsets.py for bookmarks, source.py for when Spark calls what.
"""

from __future__ import annotations

from datetime import datetime

from oncemq.core import packets as p
from oncemq.core.topics import DATABASE
from oncemq.errors import Diverged, Fenced, Gap, NoSuchTopic, OnceMQError, Refused, UsageError
from oncemq.journal.codec import decode_delivery
from oncemq.model.refusals import Code
from oncemq.pipeline.offsets import Bookmark, Offsets, check_log
from oncemq.pipeline.options import EARLIEST, LATEST, SourceOptions
from oncemq.pipeline.requests import Requests


class WrongCheckpoint(OnceMQError):
    """The checkpoint and the broker's memory of this subscription contradict each other."""

    def __init__(self, subscription: str, what: str) -> None:
        self.subscription, self.what = subscription, what
        super().__init__(
            f"subscription {subscription!r}: {what}. Either start this query with the checkpoint that belongs to it, or give the "
            "query another name (option 'subscription') and say where to begin (option 'startingOffsets'), or remove the old "
            "subscription with 'oncemq subscription delete' if nobody needs it"
        )


class QuerySubscription:
    """What one query knows at the broker, under one name, on all its topics."""

    def __init__(self, options: SourceOptions, requests: Requests) -> None:
        self._options = options
        self._requests = requests
        self._name = options.subscription
        self._command = 0
        self._is_open = False
        self._known: dict[str, p.SubscriptionInfo] = {}
        self._log_id = b""

    # --- where it began ------------------------------------------------------------------------------

    def begin(self) -> Offsets:
        """Return where the query starts: recorded at the broker once, and only while nothing was committed (R21)."""
        for info in self._look().values():
            if info.cursor > info.start:
                raise WrongCheckpoint(
                    self._name,
                    f"it has finished topic {info.topic!r} up to offset {info.cursor}, but this query has no checkpoint yet",
                )
        self.ensure_all()
        topics = {name: Bookmark(info.topic_id, info.start) for name, info in self._known.items()}
        return Offsets(self.log_id, topics)

    def start_of(self, topic: str) -> Bookmark:
        """Where a topic begins that joined the query after its checkpoint was made."""
        if topic not in self._known:
            self._look()
            self.ensure_all()
        return Bookmark(self._known[topic].topic_id, self._known[topic].start)

    def _look(self) -> dict[str, p.SubscriptionInfo]:
        """What the broker knows of this name, asked without taking it."""
        self._known = {}
        for topic in self._options.topics:
            rows = self._requests.ask(p.ListSubscriptions(topic), p.Subscriptions).subscriptions
            self._known |= {row.info.topic: row.info for row in rows if row.client == self._name}
        return self._known

    def ensure_all(self) -> None:
        """Subscribe to every topic that this name does not have yet."""
        for topic in self._options.topics:
            if topic not in self._known:
                self._open()
                self._known[topic] = self._subscribe(topic)

    def _subscribe(self, topic: str) -> p.SubscriptionInfo:
        start, start_at = _start(self._options.starting.of(topic))
        self._command += 1
        packet = p.Subscribe(self._requests.session_id, self._command, topic, start, start_at, DATABASE)
        try:
            return self._requests.ask(packet, p.SubscribeDone).subscription
        except Refused as refused:
            if refused.code != Code.BEYOND_END:
                raise
            raise UsageError(
                f"option 'startingOffsets': offset {start_at} lies beyond the end of topic {topic!r}: use latest, or a lower one"
            ) from refused

    def _open(self) -> None:
        """Take the name. Whoever had it before is fenced: one name, one query."""
        if not self._is_open:
            self._requests.ask(p.Hello(self._name, self._requests.session_id, takeover=True), p.Welcome)
            self._is_open = True

    # --- the broker's side of a checkpoint -----------------------------------------------------------

    @property
    def log_id(self) -> bytes:
        self._log_id = self._log_id or self._requests.log_id()
        return self._log_id

    def existing(self) -> dict[str, p.TopicInfo]:
        """Those topics of this query that exist, as they are now. An idle query asks all the time: for what it needs only."""
        found = (self._requests.topics(topic) for topic in self._options.topics)
        return {name: info for each in found for name, info in each.items()}

    def topics(self) -> dict[str, p.TopicInfo]:
        """The topics of this query as they are now."""
        found = self.existing()
        for topic in self._options.topics:
            if topic not in found:
                raise NoSuchTopic(Code.NO_SUCH_TOPIC, f"there is no topic {topic!r} at the broker: it was never made, or deleted")
        return {topic: found[topic] for topic in self._options.topics}

    def check(self, start: Offsets) -> None:
        """Refuse a checkpoint of another broker, another topic, an older copy, or another query (R1, R20, R21)."""
        check_log(start, self.log_id)
        self._look()
        for topic, mark in start.topics.items():
            if topic not in self._options.topics:
                raise UsageError(f"the checkpoint has topic {topic!r}, which option 'subscribe' no longer names: name it again")
            self._check_one(topic, mark)
        self.ensure_all()
        self._open()
        for topic, mark in start.topics.items():
            self._check_history(topic, mark)

    def _check_one(self, topic: str, mark: Bookmark) -> None:
        info = self._known.get(topic)
        if info is None:
            raise WrongCheckpoint(self._name, f"its subscription to topic {topic!r} is gone, and with it perhaps messages")
        if info.topic_id != mark.topic_id:
            raise WrongCheckpoint(self._name, f"topic {topic!r} was deleted and created again since this checkpoint")
        if mark.next_offset < info.cursor:
            raise WrongCheckpoint(
                self._name,
                f"this checkpoint is at offset {mark.next_offset} of topic {topic!r}, but {info.cursor} was committed: "
                "another query or an older checkpoint uses this name",
            )

    def _check_history(self, topic: str, mark: Bookmark) -> None:
        """Have the broker say that this place is one of its own history. Nothing is finished by it."""
        known = self._known[topic]
        want = p.Want(known.subscription_id, known.topic_id, mark.next_offset, 0, mark.start_id, mark.append_number)
        packet = p.Get(self._requests.session_id, (want,), 1, 0, DATABASE)
        try:
            self._requests.ask(packet, p.Blocks)
        except Fenced as fenced:
            raise self._taken(fenced) from fenced
        except Refused as refused:
            if refused.code != Code.BEYOND_END:
                raise
            raise Diverged(f"topic {topic!r} ends before offset {mark.next_offset} of this checkpoint", known.end) from refused

    def _taken(self, fenced: Fenced) -> Fenced:
        return Fenced(fenced.code, f"another query took over subscription {self._name!r}: every query needs a name of its own")

    # --- going on ------------------------------------------------------------------------------------

    def bookmark(self, topic: str, topic_id: int, next_offset: int) -> Bookmark:
        """Return the checkable form of a place behind at least one message."""
        if next_offset == 0:
            return Bookmark(topic_id, 0)
        packet, body = self._requests.read(p.Read(topic, topic_id, next_offset - 1, next_offset, 1))
        if not len(body) or packet.parts[0].low > next_offset - 1:
            return Bookmark(topic_id, next_offset)  # The message itself is gone already: nothing to check by.
        delivered = decode_delivery(body, 0)[0]
        return Bookmark(topic_id, next_offset, delivered.start_id, delivered.append_number)

    def commit(self, end: Offsets) -> None:
        """Everything below is finished: retention need not wait for this query any longer."""
        if not all(topic in self._known for topic in end.topics):
            self._look()
        self._open()
        for topic, mark in end.topics.items():
            info = self._known.get(topic)
            if info is None or info.topic_id != mark.topic_id or mark.next_offset <= info.cursor:
                continue
            packet = p.Ack(
                self._requests.session_id, info.subscription_id, info.topic_id, mark.next_offset, DATABASE, confirm=True
            )
            try:
                self._requests.ask(packet, p.AckDone)
            except Fenced as fenced:
                raise self._taken(fenced) from fenced


def _start(place: int | datetime) -> tuple[str, int]:
    """What Subscribe calls a place."""
    if isinstance(place, datetime):
        return "time", max(0, int(place.timestamp() * 1_000_000))
    return {EARLIEST: "earliest", LATEST: "new"}.get(place, "offset"), max(0, place)


# --- places without a subscription -------------------------------------------------------------------


def resolve(requests: Requests, info: p.TopicInfo, place: int | datetime) -> int:
    """Return the offset a place stands for right now."""
    if isinstance(place, datetime):
        return offset_at_time(requests, info, int(place.timestamp() * 1_000_000))
    if place in {EARLIEST, LATEST}:
        return info.low if place == EARLIEST else info.end
    if place > info.end:
        raise UsageError(f"offset {place} lies beyond the end of topic {info.topic!r}, which is {info.end}")
    return place


def offset_at_time(requests: Requests, info: p.TopicInfo, time_us: int) -> int:
    """Return the first offset stored at or after that time, by halving: append times never go back."""
    low, high = info.low, info.end
    while low < high:
        middle = (low + high) // 2
        packet, body = requests.read(p.Read(info.topic, info.topic_id, middle, middle + 1, 1))
        if not len(body):
            raise Gap(info.topic, middle, max(packet.parts[0].low, middle + 1))
        delivered = decode_delivery(body, 0)[0]
        if delivered.append_time_us >= time_us:
            high = max(low, min(middle, delivered.first_offset))
        else:
            low = max(middle + 1, delivered.first_offset + delivered.count)
    return min(low, info.end)

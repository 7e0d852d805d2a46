# SPDX-License-Identifier: Apache-2.0
"""receive(): a message that is acknowledged when the block is left, and given again after an exception or a crash.

May not: acknowledge before the application is done with the message, or count an attempt after it began.
The idea: the broker keeps the place (authority `broker`). The slot, in mapped memory that survives kill -9, says what was given
last, so that a broker that was set back is noticed, and how often. The count is advice (give up after five times); after a
power cut neither is a promise.
Next: client/feeds.py for where messages come from, client/transactions.py for more than one at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

import msgspec

from oncemq.client.alone import alone
from oncemq.client.feeds import NO_BOOKMARK, Feed
from oncemq.client.gets import Gets
from oncemq.client.session import Session
from oncemq.core.packets import Ack, AckDone
from oncemq.core.topics import BROKER, UNDECIDED
from oncemq.errors import Gap, NotSubscribed, UsageError, WrongAuthority, invariant
from oncemq.model.message import Message
from oncemq.model.refusals import TEXTS, Code

ATTEMPTS_MAX = 2**32 - 1
RECEIVE = 1
"""The mode of a slot that counts attempts."""


class Receiving:
    """The feeds of this client whose places the broker keeps."""

    def __init__(self, session: Session, gets: Gets) -> None:
        self._session = session
        self.alone = session.alone
        self._gets = gets
        self._claimed: dict[str, object] = {}
        """Who receives from a topic right now."""

    def feed(self, topic: str) -> Feed:
        """The feed of a topic this client subscribes to, at the broker's cursor when it is first asked for."""
        held = self._gets.find(topic)
        feed = held.feed
        if feed is None or feed.authority != BROKER:
            if held.subscriber.authority not in {UNDECIDED, BROKER}:
                raise WrongAuthority(Code.WRONG_AUTHORITY, TEXTS[Code.WRONG_AUTHORITY])
            place, slot = held.subscriber.info.cursor, held.subscriber.slot
            bookmark = slot.start_id, slot.append_number  # A broker without what an earlier life was given was set back.
            feed = held.feed = Feed(self._session, held.subscriber, BROKER, place=place, bookmark=bookmark)
        return feed

    def claim(self, topic: str, owner: object) -> Feed:
        """The feed, for one use at a time: what is acknowledged is everything up to a place, so two at once would finish each
        other's messages."""
        if self._claimed.setdefault(topic, owner) is not owner:
            raise UsageError(
                f"topic {topic!r} is being received already: leave that receive() or transaction first; "
                "to handle several messages at a time get them in one transaction"
            )
        feed = self.feed(topic)
        if feed.place > feed.confirmed:  # A gap that was told (R10), or an acknowledgement without an answer: this finishes it.
            self.acknowledge(feed, feed.place)
        return feed

    def let_go(self, owner: object) -> None:
        """Whoever claimed topics is done with them; saying so again changes nothing."""
        claimed = self._claimed.copy()  # At once: whoever was refused comes here while another thread is inside.
        for topic in [topic for topic, claimed_by in claimed.items() if claimed_by is owner]:
            del self._claimed[topic]

    def give(self, topic: str, feed: Feed, message: Message) -> Message:
        """Count the attempt, durably against kill -9, before the application sees the message."""
        held = self._gets.find(topic)
        slot, offset = held.subscriber.slot, message.offset
        if slot.subscription_id != feed.info.subscription_id:
            raise NotSubscribed(Code.NOT_SUBSCRIBED, TEXTS[Code.NOT_SUBSCRIBED])  # Ended meanwhile, and begun anew.
        if offset <= feed.done or slot.finished != feed.done or slot.mode != RECEIVE:
            is_again = slot.mode == RECEIVE and slot.finished == feed.done < slot.handed
            feed.given_before = slot.handed if is_again else 0
            slot.attempt = min(slot.attempt + 1, ATTEMPTS_MAX) if is_again else 1
            slot.finished, slot.mode = feed.done, RECEIVE
            slot.handed = slot.handed if is_again else feed.done
        slot.handed = max(slot.handed, offset + 1)
        slot.reserved = max(slot.reserved, slot.handed)
        slot.start_id, slot.append_number = feed.bookmark
        slot.freeze()
        held.place.write(slot)
        return msgspec.structs.replace(message, attempt=slot.attempt) if offset < feed.given_before else message

    def acknowledge(self, feed: Feed, done: int) -> None:
        """Have everything below `done` finished at the broker, on its disk. Without an answer the next call says it again."""
        feed.done = done
        info = feed.info
        ack = Ack(self._session.id, info.subscription_id, info.topic_id, done, BROKER, True, *feed.bookmark)
        reply = self._session.ask(ack)
        invariant(isinstance(reply, AckDone), "the broker answered with another packet", got=type(reply).__name__)
        feed.confirmed = done


class Receive:
    """What `client.receive()` returns: enter it for the message, leave it to acknowledge."""

    def __init__(self, receiving: Receiving, topic: str, timeout_ms: int | None, resolve: Callable[[], None]) -> None:
        self._receiving = receiving
        self._alone = receiving.alone
        self._resolve = resolve
        self._topic = topic
        self.timeout_ms = timeout_ms
        self._feed: Feed | None = None
        self._before = (0, NO_BOOKMARK)
        self._is_used = False

    def __enter__(self) -> Message | None:
        try:
            return self._enter()
        except Gap:
            self._feed = None  # Told: the next call goes on behind it.
            self._give_back()
            raise
        except BaseException:
            self._give_back()
            raise

    @alone
    def _enter(self) -> Message | None:
        if self._is_used:
            raise UsageError("a receive is used once: ask the client for another one")
        self._resolve()  # A transaction whose outcome is not known decides where this begins.
        feed = self._receiving.claim(self._topic, self)
        self._before = feed.place, feed.bookmark
        self._feed = feed
        message = feed.next(self.timeout_ms)
        given = None if message is None else self._receiving.give(self._topic, feed, message)
        self._is_used = True
        return given

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._leave(is_done=kind is None)
        except BaseException:
            self._give_back()
            raise

    @alone
    def _leave(self, *, is_done: bool) -> None:
        feed = self._feed
        if feed is None:
            raise UsageError("a receive is used once: ask the client for another one")
        if is_done and feed.place != self._before[0]:
            self._receiving.acknowledge(feed, feed.place)
        self._give_back()

    def _give_back(self) -> None:
        """Whatever was given and is not acknowledged is given again."""
        feed, self._feed = self._feed, None
        if feed is not None and feed.done <= self._before[0]:
            feed.set_back(*self._before)
        self._receiving.let_go(self)

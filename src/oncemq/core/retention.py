# SPDX-License-Identifier: Apache-2.0
"""What may go: below every cursor (interest), and older or more than `retain` asks to keep; or above `limit`.

May not: look at cursors that are not synced. The broker asks between drains, when all that is applied is synced (R10).
The idea: three lows per topic. Interest: one message below the slowest cursor, kept back for a repeated request.
Retain: keeps more than interest. Limit: keeps less than either, and whoever is behind it is told a Gap.
Ages and sizes are known per segment (holdings), so they move in such steps.
Next: journal/journal.py, which unlinks segments that lie below every low.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from oncemq.core.topics import Topic
from oncemq.limits import CLOCK_JUMP_US_MAX
from oncemq.model.retention import Retention
from oncemq.ports import Instant


class Holding(Protocol):
    """What one segment holds of a topic."""

    @property
    def end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def last_append_time_us(self) -> int: ...


class Store(Protocol):
    """What a broker may ask the journal: never messages, only where and when."""

    def offset_at_time(self, topic_id: int, time_us: int) -> int | None: ...

    def holdings(self, topic_id: int) -> Sequence[Holding]: ...


class Timeline:
    """The wall clock as far as it can be trusted: a jump against the steady clock does not age anything.

    It begins with the first reading of a life. From then on the steady clock counts; the wall clock is believed again
    when the two agree to within CLOCK_JUMP_US_MAX.
    """

    __slots__ = ("_shift_us",)

    def __init__(self) -> None:
        self._shift_us: int | None = None

    def trusted_us(self, now: Instant) -> int:
        steady_us = now.ticks_ms * 1000
        if self._shift_us is None or abs(now.wall_us - steady_us - self._shift_us) <= CLOCK_JUMP_US_MAX:
            self._shift_us = now.wall_us - steady_us
        return steady_us + self._shift_us


def new_low(topic: Topic, store: Store, *, wall_us: int) -> int:
    """Return where `low` may move to; never below where it is."""
    low = _interest_low(topic)
    if topic.retention.is_set:
        low = min(low, _beyond(topic, topic.retention, store, wall_us, at_most=False))
    if topic.upper.is_set:
        low = max(low, _beyond(topic, topic.upper, store, wall_us, at_most=True))
    return max(topic.low, low)


def _interest_low(topic: Topic) -> int:
    if not topic.subscriptions:
        return topic.end
    slowest = min(subscription.cursor for subscription in topic.subscriptions.values())
    return slowest - 1 if slowest > 0 else 0


def _beyond(topic: Topic, retention: Retention, store: Store, wall_us: int, *, at_most: bool) -> int:
    """Return the end of what lies beyond a time or size, in steps of segments.

    `at_most` tells a limit (go down to the size) from a retention (never go below the size).
    """
    if retention.is_forever:
        return topic.low
    low = topic.low
    holdings = store.holdings(topic.topic_id)
    total = sum(holding.size_bytes for holding in holdings)
    for index, holding in enumerate(holdings):
        rest = total - holding.size_bytes
        is_last = index + 1 == len(holdings)
        too_old = retention.age_us is not None and holding.last_append_time_us < wall_us - retention.age_us
        too_much = retention.size_bytes is not None and _is_too_much(total, rest, retention.size_bytes, at_most and not is_last)
        if not (too_old or too_much):
            break
        low, total = holding.end_offset, rest
    return min(low, topic.end)


def _is_too_much(total: int, rest: int, size_bytes: int, at_most: bool) -> bool:
    return total > size_bytes if at_most else rest >= size_bytes

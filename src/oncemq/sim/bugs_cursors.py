# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs of cursors: the broker believes more than was finished, or less than it knew; or one hurts another.

May not: be imported by anything but sim/bugs.py.
The idea: as in bugs_broker.py. Most of these lose nothing by themselves: each takes away what a later accident would have needed.
Next: sim/places.py, whose judge sees them.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oncemq.core import records, subscriber, topics
from oncemq.core import state as core_state
from oncemq.core.packets import Want
from oncemq.sim.bugs import Patch, bug


@bug
def acknowledges_what_it_hands_out(patch: Patch) -> None:
    """What the application has in its hands is told to be done: one message too much, whoever dies with it."""
    want = subscriber.Subscriber.want

    def early(self: subscriber.Subscriber) -> Want:
        return replace(want(self), done=self.slot.handed)

    patch.set(subscriber.Subscriber, "want", early)


@bug
def forgets_cursors_in_snapshots(patch: Patch) -> None:
    """A snapshot is restored with every subscription at its start: cursors go back, and nothing is trimmed for long."""
    restore = topics.restore_topic

    def from_the_start(dump: topics.TopicDump) -> topics.Topic:
        topic = restore(dump)
        for entry in topic.subscriptions.values():
            entry.cursor = entry.start
        return topic

    patch.set(core_state, "restore_topic", from_the_start)


@bug
def doubts_what_was_finished(patch: Patch) -> None:
    """After a crash the last message that was finished is in doubt as well: the client's place has gone back."""
    doubt = subscriber.Subscriber._doubt

    def early(self: subscriber.Subscriber, span: subscriber.Span) -> None:
        is_any = span.end > span.first > self.start
        doubt(self, subscriber.Span(span.first - 1, span.end) if is_any else span)

    patch.set(subscriber.Subscriber, "_doubt", early)


@bug
def moves_everybodys_cursor(patch: Patch) -> None:
    """An acknowledgement counts for all subscriptions of its topic."""
    apply = core_state.BrokerState.apply

    def for_all(self: core_state.BrokerState, record: Any) -> None:
        apply(self, record)
        if isinstance(record, records.CursorMoved) and record.subscription_id in self.subscriptions:
            topic = self.topics[self.subscriptions[record.subscription_id].topic_id]
            for entry in topic.subscriptions.values():
                entry.cursor = max(entry.cursor, record.cursor)

    patch.set(core_state.BrokerState, "apply", for_all)

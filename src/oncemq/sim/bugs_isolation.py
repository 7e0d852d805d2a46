# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs that make one subscription pay for another: who is slow, or goes, takes others along.

May not: be imported by anything but sim/bugs.py.
The idea: as in bugs_broker.py. Where everybody gets everything in the end, nothing of this shows: sim/isolation.py has neighbours
that never do.
Next: sim/isolation.py, which sees them; sim/bugs_cursors.py for cursors that are moved by others.
"""

from __future__ import annotations

from typing import Any

from oncemq.core import commands, gets, records
from oncemq.core.departures import unsubscribe_records
from oncemq.core.effects import Deliver
from oncemq.core.state import BrokerState
from oncemq.core.topics import Subscription, Topic
from oncemq.sim.bugs import Patch, bug

WINDOW = 20
"""So many messages the planted broker lets anybody be ahead of the slowest."""


@bug
def waits_for_the_slowest(patch: Patch) -> None:
    """Nobody is handed more of a topic than a window beyond its slowest subscription."""
    deliver = gets._delivery

    def within(to: Any, parts: Any, wanted: list[tuple[Topic, int, int]], *bounds: int) -> Deliver:
        near = [(topic, first, min(end, _slowest(topic) + WINDOW)) for topic, first, end in wanted]
        return deliver(to, parts, [each for each in near if each[1] < each[2]], *bounds)

    patch.set(gets, "_delivery", within)


def _slowest(topic: Topic) -> int:
    return min((entry.cursor for entry in topic.subscriptions.values()), default=topic.end)


@bug
def takes_the_topic_along(patch: Patch) -> None:
    """Whoever ends a subscription ends its topic, whoever else is subscribed there."""
    end = unsubscribe_records

    def with_the_topic(state: BrokerState, subscription: Subscription) -> list[records.Record]:
        topic = state.topics[subscription.topic_id]
        others = {key: entry for key, entry in topic.subscriptions.items() if entry is not subscription}
        topic.subscriptions = {subscription.subscription_id: subscription}
        try:
            return end(state, subscription)
        finally:
            topic.subscriptions |= others

    patch.set(commands, "unsubscribe_records", with_the_topic)

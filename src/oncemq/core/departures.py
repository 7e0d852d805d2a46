# SPDX-License-Identifier: Apache-2.0
"""What has to be written down when a subscription or a client goes.

May not: apply anything.
The idea: a topic that only subscriptions kept alive goes with its last one, however that one went.
Next: core/commands.py and core/sessions.py, which let them go.
"""

from __future__ import annotations

from oncemq.core.records import ClientForgotten, Record, TopicDeleted, Unsubscribed
from oncemq.core.state import BrokerState
from oncemq.core.streams import ClientState
from oncemq.core.topics import Subscription


def unsubscribe_records(state: BrokerState, subscription: Subscription) -> list[Record]:
    """End a subscription, and its topic if nothing else keeps it."""
    topic = state.topics[subscription.topic_id]
    is_kept = len(topic.subscriptions) > 1 or topic.explicit or topic.retention.is_set
    gone: list[Record] = [Unsubscribed(subscription.subscription_id)]
    return gone if is_kept else [*gone, TopicDeleted(topic.topic_id)]


def forget_records(state: BrokerState, client: ClientState) -> list[Record]:
    """Make a client unknown, with its subscriptions and streams."""
    gone: list[Record] = []
    for subscription_id in client.subscriptions.values():
        gone.extend(unsubscribe_records(state, state.subscriptions[subscription_id]))
    return [*gone, ClientForgotten(client.name)]

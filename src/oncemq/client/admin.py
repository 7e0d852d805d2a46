# SPDX-License-Identifier: Apache-2.0
"""Administration through a client: topics, subscriptions, clients, statistics, shutdown.

May not: consume anything.
Next: core/commands.py for the broker's side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from oncemq.client.alone import alone
from oncemq.client.arguments import whole
from oncemq.client.session import Session
from oncemq.core import packets as p
from oncemq.core.packets import Packet
from oncemq.errors import invariant
from oncemq.model.names import check_client_on_the_wire, check_topic
from oncemq.model.retention import retention_text

Answer = TypeVar("Answer", bound=Packet)


class Admin:
    """What `client.admin` offers."""

    def __init__(self, session: Session, next_command: Callable[[], int]) -> None:
        self._session = session
        self._alone = session.alone
        self._next_command = next_command

    @alone
    def topics(self, topic: str = "") -> list[p.TopicInfo]:
        return list(self._look(p.ListTopics(_some(topic)), p.Topics).topics)

    @alone
    def create_topic(self, topic: str, *, retain: str = "", limit: str = "") -> p.TopicInfo:
        """Create a topic that lives until it is deleted. `retain` and `limit`: "forever", "7d", "10GiB"."""
        self._session.ensure()
        wanted = [retention_text(text) if text else "" for text in (retain, limit)]
        packet = p.CreateTopic(self._session.id, self._next_command(), check_topic(topic), *wanted)
        return self._carry_out(packet, p.TopicDone).info

    @alone
    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages and subscriptions."""
        self._session.ensure()
        self._carry_out(p.DeleteTopic(self._session.id, self._next_command(), check_topic(topic)), p.CommandDone)

    @alone
    def subscriptions(self, topic: str = "") -> list[p.SubscriptionRow]:
        return list(self._look(p.ListSubscriptions(_some(topic)), p.Subscriptions).subscriptions)

    @alone
    def delete_subscription(self, subscription_id: int) -> None:
        self._session.ensure()
        wanted = whole(subscription_id, "a subscription id", 0)
        packet = p.DeleteSubscription(self._session.id, self._next_command(), wanted)
        self._carry_out(packet, p.CommandDone)

    @alone
    def clients(self) -> list[p.ClientRow]:
        return list(self._look(p.ListClients(), p.Clients).clients)

    @alone
    def forget_client(self, client: str) -> None:
        """Make the broker forget a client with its subscriptions and its put streams."""
        self._session.ensure()
        name = check_client_on_the_wire(client)
        self._carry_out(p.ForgetClient(self._session.id, self._next_command(), name), p.CommandDone)

    @alone
    def stats(self) -> p.StatsDone:
        return self._look(p.Stats(), p.StatsDone)

    @alone
    def mesh_status(self) -> p.MeshStatusDone:
        """How the mesh looks from this node; refused by a broker that is no node."""
        return self._look(p.MeshStatus(), p.MeshStatusDone)

    @alone
    def shutdown(self) -> None:
        """Stop the broker as it runs now; a restarted one is not meant."""
        self._look(p.Shutdown(self.stats().start_id), p.ShutdownDone)

    def _carry_out(self, packet: Packet, kind: type[Answer]) -> Answer:
        return self._typed(self._session.ask(packet), kind)

    def _look(self, packet: Packet, kind: type[Answer]) -> Answer:
        return self._typed(self._session.exchange(packet), kind)

    @staticmethod
    def _typed(reply: Packet, kind: type[Answer]) -> Answer:
        invariant(isinstance(reply, kind), "the broker answered with another packet", got=type(reply).__name__)
        return reply  # type: ignore[return-value]


def _some(topic: str) -> str:
    """A name to look for; the empty one stands for all."""
    return topic and check_topic(topic)

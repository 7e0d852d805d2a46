# SPDX-License-Identifier: Apache-2.0
"""Administration for asyncio: the calls of client/admin.py with `await`. `AsyncClient.admin` is one.

May not: hold a rule. Commands of all tasks take turns, because a session has one in flight.
Next: client/admin.py, which says what each call does.
"""

from __future__ import annotations

import asyncio

from oncemq.client.admin import Admin
from oncemq.client.bridge import run
from oncemq.core.packets import ClientRow, MeshStatusDone, StatsDone, SubscriptionRow, TopicInfo


class AsyncAdmin:
    """Topics, subscriptions, clients and the broker itself."""

    def __init__(self, admin: Admin, commands: asyncio.Lock) -> None:
        self._admin = admin
        self._commands = commands

    async def topics(self, topic: str = "") -> list[TopicInfo]:
        return await run(self._admin.topics, topic)

    async def create_topic(self, topic: str, *, retain: str = "", limit: str = "") -> TopicInfo:
        """Create a topic that lives until it is deleted; see Admin.create_topic."""
        async with self._commands:
            return await run(self._admin.create_topic, topic, retain=retain, limit=limit)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages and subscriptions."""
        async with self._commands:
            await run(self._admin.delete_topic, topic)

    async def subscriptions(self, topic: str = "") -> list[SubscriptionRow]:
        return await run(self._admin.subscriptions, topic)

    async def delete_subscription(self, subscription_id: int) -> None:
        async with self._commands:
            await run(self._admin.delete_subscription, subscription_id)

    async def clients(self) -> list[ClientRow]:
        return await run(self._admin.clients)

    async def forget_client(self, client: str) -> None:
        """Make the broker forget a client with its subscriptions and its put streams."""
        async with self._commands:
            await run(self._admin.forget_client, client)

    async def stats(self) -> StatsDone:
        return await run(self._admin.stats)

    async def mesh_status(self) -> MeshStatusDone:
        """How the mesh looks from this node; refused by a broker that is no node."""
        return await run(self._admin.mesh_status)

    async def shutdown(self) -> None:
        """Stop the broker as it runs now; a restarted one is not meant."""
        await run(self._admin.shutdown)

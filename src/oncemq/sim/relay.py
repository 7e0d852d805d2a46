# SPDX-License-Identifier: Apache-2.0
"""An application that consumes, processes and produces: it gets from one topic and puts on another, in transactions.

May not: remember anything from one life to the next. What it has done is what was committed.
The idea: every message becomes one message with the same words on the other side. Whatever dies in between, each is there once,
and in order: sim/checkers.py, `relayed`.
Next: sim/actors.py for the others.
"""

from __future__ import annotations

from typing import Any

from oncemq.client.client import Client
from oncemq.core.packets import SubscriptionInfo
from oncemq.errors import NotCommitted, Uncertain
from oncemq.sim.actors import AWAY, Subscriber

RELAYED = "relayed"
"""The topic it puts on, and what its messages begin with."""


class Relay(Subscriber):
    """Moves every message of one topic on, a few in each transaction."""

    OPERATION = "relaying"
    """What it says in the history that it does."""

    def __init__(self, *place: Any, topic: str, batch_max: int) -> None:
        super().__init__(*place, topics=[topic], batch_max=batch_max)

    def _live(self) -> None:
        client = self.connect()
        info = self._join(client)
        self.note("ok", self.OPERATION, topic_id=str(info.topic_id), start=info.start)
        self.has_subscribed = True
        while not self._is_over(client):
            pass
        client.close()
        self.is_done = True

    def _join(self, client: Client) -> SubscriptionInfo:
        while True:
            try:
                return client.subscribe(self._topics[0], "earliest")
            except AWAY:
                self.world.clock.pause(200)

    def _is_over(self, client: Client) -> bool:
        """Relay some messages; whether no more will come."""
        is_last = self.may_end
        try:
            found = self._relay(client)
        except NotCommitted:
            return False
        except (Uncertain, *AWAY):
            self.world.clock.pause(200)
            return False
        return is_last and not found

    def _relay(self, client: Client) -> int:
        with client.transaction() as transaction:
            found = transaction.get_many(self._topics[0], self.random.randrange(1, self.batch_max + 1), timeout=0.2)
            for message in found:
                text = f"{RELAYED} {message.value.decode()}"
                self.note("invoke", "put", message=text)
                transaction.put(RELAYED, text.encode())
        return len(found)

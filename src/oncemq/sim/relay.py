# SPDX-License-Identifier: Apache-2.0
"""An application that consumes, processes and produces: it gets from one topic and puts on another, in transactions.

May not: remember anything from one life to the next. What it has done is what was committed.
The idea: every message becomes one message with the same words on the other side. Whatever dies in between, and however often it
changes its mind in the middle of a transaction, each is there once, and in order: sim/once.py, `relayed`.
Next: sim/actors.py for the others.
"""

from __future__ import annotations

from typing import Any, Protocol

from oncemq.client.client import Client
from oncemq.core.packets import SubscriptionInfo
from oncemq.errors import Damaged, Gap, NotCommitted, Uncertain
from oncemq.model.message import Message
from oncemq.sim.actors import AWAY, Subscriber

RELAYED = "relayed"
"""The topic it puts on, and what its messages begin with."""
GET_S = 0.2
"""How long it waits for a message."""
FICKLENESS = 0.05
"""How likely a body is to raise an exception instead of ending."""


class ChangedItsMind(Exception):
    """What an application raises in the middle of its work."""


class Gets(Protocol):
    """A transaction of either kind."""

    def get_many(self, topic: str, count: int = ..., timeout: float | None = ...) -> list[Message]: ...


class Relay(Subscriber):
    """Moves every message of one topic on, a few in each transaction."""

    OPERATION = "relaying"
    """What it says in the history that it does."""

    def __init__(self, *place: Any, topic: str, batch_max: int) -> None:
        super().__init__(*place, topics=[topic], batch_max=batch_max)

    def _live(self) -> None:
        client = self.connect()
        self._begin(self._join(client))
        self.has_subscribed = True
        while not self._is_over(client):
            pass
        client.close()
        self.is_done = True

    def _begin(self, info: SubscriptionInfo) -> None:
        self.note("ok", self.OPERATION, topic_id=str(info.topic_id), start=info.start)

    def _join(self, client: Client) -> SubscriptionInfo:
        while True:
            try:
                with self.asking.call():
                    info = client.subscribe(self._topics[0], "earliest")
            except AWAY:
                self.world.clock.pause(200)
            else:
                self._ids[self._topics[0]] = info.topic_id
                self.asking.begin(info.topic_id, info.start)
                return info

    def _is_over(self, client: Client) -> bool:
        """Do some messages; whether no more will come."""
        is_last = self.may_end
        try:
            with self.asking.call(GET_S):
                found = self._do_some(client)
        except (NotCommitted, ChangedItsMind):
            return False
        except Damaged as told:
            self._have_repaired(told)
            return False
        except (Uncertain, *AWAY):
            self.world.clock.pause(200)
            return False
        return is_last and not found

    def _do_some(self, client: Client) -> int:
        with client.transaction() as transaction:
            found = self._get_some(transaction)
            for message in found:
                text = f"{RELAYED} {message.value.decode()}"
                self.note("invoke", "put", message=text)
                transaction.put(RELAYED, text.encode())
            self._change_its_mind_at_times()
            self._go_on(*self._topics)
        return len(found)

    def _get_some(self, transaction: Gets) -> list[Message]:
        """Get some messages. Who is told a gap inside a transaction and goes on has passed over it, if it is committed."""
        self._handed.clear()  # What was handed out in a transaction that came to nothing is handed out again.
        while True:
            began_us = self.world.scheduler.time_us
            try:
                found = transaction.get_many(self._topics[0], self.random.randrange(1, self.batch_max + 1), timeout=GET_S)
            except Gap as gap:
                self._miss(gap)
            else:
                self._watch(found, began_us)
                if found:
                    self._handed[str(self._ids[self._topics[0]])] = found[-1].offset + 1
                return found

    def _watch(self, found: list[Message], began_us: int) -> None:
        """Have it noted whether a call that began then brought something."""
        topic_id = self._ids[self._topics[0]]
        if found:
            self.asking.on_found(str(topic_id), found[-1].offset + 1)
        else:
            self.asking.on_nothing([topic_id], began_us)

    def _miss(self, gap: Gap) -> None:
        topic_id = str(self._ids[gap.topic])
        self.asking.on_found(topic_id, gap.end)
        self.note("ok", "missed", subscription=self.name, topic_id=topic_id, first=gap.first, end=gap.end)

    def _change_its_mind_at_times(self) -> None:
        if self.random.random() < FICKLENESS:
            raise ChangedItsMind

    def _have_repaired(self, told: Damaged) -> None:
        """There is no passing over damage here: an operator has to put it right."""
        topic_id = str(self._ids[told.topic])
        self.asking.on_found(topic_id, told.first)
        self.note("ok", "damaged", subscription=self.name, topic_id=topic_id, first=told.first, end=told.end)
        self.world.repair()
        self.world.clock.pause(200)

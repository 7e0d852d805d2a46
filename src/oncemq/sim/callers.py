# SPDX-License-Identifier: Apache-2.0
"""An application that insists on being heard: it puts strictly, to a topic that nobody subscribes to most of the time.

May not: know what the product promises. What it was refused it notes as failed, and so does it with all else of a transaction
that was refused; nobody may ever see that again. What it was not told it does not note.
The idea: a refusal is an outcome like any other: it uses up a number, survives whatever dies, and is repeated word for word.
Next: sim/actors.py for the others; sim/checkers.py, `unexpected`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from oncemq.client.client import Client
from oncemq.errors import NoSubscribers, NotCommitted, PutPending, Uncertain
from oncemq.model.message import Receipt
from oncemq.sim.actors import AWAY, Wanderer
from oncemq.sim.history import Event

CALLS_MAX = 4
"""So often it calls in vain, at most, before it subscribes to the topic itself."""


class NotHeard(Exception):
    """A strict put was confirmed, and nobody is there to hear it."""


class Caller(Wanderer):
    """Calls in vain, then subscribes, calls and is heard, and leaves again."""

    def __init__(self, *place: Any, topic: str, rounds: int, batch_max: int) -> None:
        super().__init__(*place, rounds=rounds, batch_max=batch_max)
        self._other = topic
        """A topic that others subscribe to: what it puts there lies between its calls."""
        self.may_begin = False
        """Set once that topic has subscribers."""
        self._has_tried = False
        """Whether it may be subscribed: an earlier life may have died before it left."""

    def _live(self) -> None:
        client = self.connect()
        self._flush(client)
        if self._has_tried:
            self._come_and_go(client)
        while not self.may_begin:
            self.world.clock.pause(10)
        while self._rounds:
            for _ in range(self.random.randrange(1, CALLS_MAX + 1)):
                self._call(client)
            self._come_and_go(client)
            self._rounds -= 1
        client.close()
        self.is_done = True

    def _come_and_go(self, client: Client) -> None:
        self._has_tried = True
        restores = self.world.restores
        self._subscribe(client, self._topics[0], "new")
        self._get_up_to(client, self._put_some(client), restores)
        self._leave(client)
        self._has_tried = False

    def _flush(self, client: Client) -> None:
        """Have an outcome of everything; what was refused meanwhile may have been put by an earlier life."""
        while client.pending:
            with suppress(PutPending, NoSubscribers, Uncertain), self.asking.call():
                client.flush()

    def _call(self, client: Client) -> None:
        try:
            match self.random.randrange(3):
                case 0:
                    self._call_and_wait(client)
                case 1:
                    self._call_in_between(client)
                case _:
                    self._call_in_a_transaction(client)
        except (Uncertain, *AWAY):  # The former is of an earlier transaction: nothing is numbered before that is known.
            self.world.clock.pause(200)

    def _invoke(self) -> str:
        self._put += 1
        message = f"{self.name}-{self._put}"
        self.note("invoke", "put", message=message)
        return message

    def _call_and_wait(self, client: Client) -> None:
        message = self._invoke()
        try:
            with self.asking.call():
                receipt = client.put(self._topics[0], message.encode(), strict=True)
        except NoSubscribers:
            self.note("fail", "put", message=message)
        except PutPending:
            self._flush(client)
        else:
            self._heard(message, receipt)

    def _heard(self, message: str, receipt: Receipt) -> None:
        """Somebody subscribes after all: this one itself, at a broker that was set back to before it had left."""
        if not receipt.stored:
            raise NotHeard(message)
        self._expect_hearers(message)
        told: Event = {"topic_id": str(receipt.topic_id), "offset": receipt.offset, "stored": True}
        self.note("ok", "put", message=message, **told, duplicate=receipt.duplicate)

    def _expect_hearers(self, message: str) -> None:
        """A strict put came to a good end: somebody must be there."""
        if not (self._has_tried or self.world.restores):
            raise NotHeard(message)

    def _call_in_between(self, client: Client) -> None:
        """A call among puts that are taken, all on their way at once. The first that is refused is told."""
        for _ in range(self.random.randrange(1, self.batch_max)):
            client.put(self._other, self._invoke().encode(), wait=False)
        message = self._invoke()
        client.put(self._topics[0], message.encode(), strict=True, wait=False)
        client.put(self._other, self._invoke().encode(), wait=False)
        while True:
            try:
                with self.asking.call():
                    client.flush()
            except NoSubscribers:
                self.note("fail", "put", message=message)
            except (PutPending, Uncertain):  # The latter is of a transaction before it: they have no numbers until that is known.
                continue
            else:
                self._expect_hearers(message)
            return

    def _call_in_a_transaction(self, client: Client) -> None:
        """What is put with a call that is refused is refused as well."""
        messages: list[str] = []
        try:
            with self.asking.call(), client.transaction() as transaction:
                messages = [self._invoke(), self._invoke()]
                transaction.put(self._other, messages[0].encode())
                transaction.put(self._topics[0], messages[1].encode(), strict=True)
        except NotCommitted:  # Before there are messages: an earlier one was refused, whose outcome was not known.
            for message in messages:
                self.note("fail", "put", message=message)
        except Uncertain:
            self.world.clock.pause(200)
        else:
            self._heard(messages[1], transaction.receipts[1])

# SPDX-License-Identifier: Apache-2.0
"""An application with a database: every message becomes a row, in the transaction that also holds its place.

May not: remember anything from one life to the next but what its database committed.
The idea: the database is a real SQLite one in memory, behind the shipped adapter: a commit is durable, and whatever was open when
somebody died is rolled back, as a server would. In the end the rows are noted down: sim/checkers.py, `effects`.
Next: sim/relay.py, whose effects are messages.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from oncemq.client.client import Client
from oncemq.errors import Gap, NotCommitted, Uncertain
from oncemq.sim.actors import AWAY
from oncemq.sim.relay import Relay


class Ledger(Relay):
    """Writes every message of one topic into its database, a few in each transaction."""

    OPERATION = "booking"

    def __init__(self, *place: Any, topic: str, batch_max: int) -> None:
        super().__init__(*place, topic=topic, batch_max=batch_max)
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute("CREATE TABLE effects (number INTEGER PRIMARY KEY, value TEXT)")

    def _live(self) -> None:
        self.connection.rollback()
        super()._live()
        for (value,) in self.connection.execute("SELECT value FROM effects ORDER BY number").fetchall():
            self.note("ok", "effect", message=value)

    def _is_over(self, client: Client) -> bool:
        is_last = self.may_end
        try:
            found = self._book(client)
        except (NotCommitted, Gap):
            return False
        except (Uncertain, *AWAY):
            self.world.clock.pause(200)
            return False
        return is_last and not found

    def _book(self, client: Client) -> int:
        with client.transaction(self.connection, durable=False) as transaction:
            found = transaction.get_many(self._topics[0], self.random.randrange(1, self.batch_max + 1), timeout=0.2)
            for message in found:
                self.connection.execute("INSERT INTO effects (value) VALUES (?)", (message.value.decode(),))
        return len(found)

# SPDX-License-Identifier: Apache-2.0
"""An application with a database: every message becomes a row, in the transaction that also holds its place.

May not: remember anything from one life to the next but what its database committed.
The idea: the database is a real SQLite one in memory, behind the shipped adapter: a commit is durable, and whatever was open when
somebody died is rolled back, as a server would. It may come back from a backup: then rows and place are older together. Who is
told that the broker went back begins anew with an empty database. In the end the rows are noted down: sim/once.py, `effects`.
Next: sim/relay.py, whose effects are messages.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from oncemq.client.client import Client
from oncemq.client.effects import TABLE
from oncemq.core.packets import SubscriptionInfo
from oncemq.errors import Diverged, OnceMQError
from oncemq.sim.relay import Relay


class Ledger(Relay):
    """Writes every message of one topic into its database, a few in each transaction."""

    OPERATION = "booking"

    def __init__(self, *place: Any, topic: str, batch_max: int) -> None:
        super().__init__(*place, topic=topic, batch_max=batch_max)
        self.connection = sqlite3.connect(":memory:")
        self._create()

    def _create(self) -> None:
        self.connection.execute("CREATE TABLE effects (number INTEGER PRIMARY KEY, place INTEGER, value TEXT)")

    def _live(self) -> None:
        self.connection.rollback()
        super()._live()
        topic_id = str(self._ids[self._topics[0]])
        for place, value in self.connection.execute("SELECT place, value FROM effects ORDER BY number").fetchall():
            self.note("ok", "effect", topic_id=topic_id, offset=place, message=value)

    def _do_some(self, client: Client) -> int:
        with client.transaction(self.connection, durable=False) as transaction:
            found = self._get_some(transaction)
            rows = [(message.offset, message.value.decode()) for message in found]
            self.connection.executemany("INSERT INTO effects (place, value) VALUES (?, ?)", rows)
            self._change_its_mind_at_times()
        self._go_on(*self._topics)  # Not before the commit: what the database has not got is not done.
        return len(found)

    def _begin(self, info: SubscriptionInfo) -> None:
        """What was committed is done, even if nobody lived to say so."""
        super()._begin(info)
        ((last,),) = self.connection.execute("SELECT max(place) FROM effects").fetchall()
        if last is not None:
            self.note("ok", "done", subscription=self.name, topic_id=str(info.topic_id), end=last + 1)

    def _on_told(self, told: OnceMQError) -> None:
        if isinstance(told, Diverged):
            self.connection.rollback()
            self.connection.executescript(f"DROP TABLE effects; DROP TABLE IF EXISTS {TABLE};")
            self._create()
        super()._on_told(told)

    # --- backups ---------------------------------------------------------------------------------------

    def copy(self) -> sqlite3.Connection | None:
        """A backup of the database; None while a transaction is open."""
        if self.connection.in_transaction:
            return None
        other = sqlite3.connect(":memory:")
        self.connection.backup(other)
        return other

    def set_back(self, older: sqlite3.Connection) -> None:
        """Become an older copy. Whoever used the database is dead."""
        self.connection.rollback()
        older.backup(self.connection)

# SPDX-License-Identifier: Apache-2.0
"""The clients of `oncemq demo`: publishers, and three subscribers that take messages each in another way.

May not: remember anything from one life to the next but what it wrote down, or what its database committed.
The idea: the clients of `oncemq torture` with one thing to do each. `plain` uses get_many and settles what is in doubt by its own
notes; `live` is pushed to; `ledger` keeps its place inside its own SQLite transactions and is never in doubt.
Run as `python -m oncemq.cli.demonstrating.roles PART`, a Part as JSON.
Next: stage.py, which starts them.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from oncemq import Client, InDoubt, NotCommitted, Uncertain, connect
from oncemq.adapters.starter import end_with_starter
from oncemq.cli.torturing.roles import AWAY, BATCH_MAX, MAY_END, Application, Librarian, Part, Publisher, Subscriber

TOPIC = "orders"
_WAIT_S = 0.2
_PUT_TOGETHER = 50
_LEDGER_TOGETHER = 200
"""Messages of one SQLite transaction at most: each costs a sync of its own."""
_VALUE_BYTES = 100


class Steady(Publisher):
    """Puts a few messages at a time, again and again."""

    def act(self, client: Client) -> None:
        self._put_many(client, self._new(_PUT_TOGETHER))

    def _value(self, name: str) -> bytes:
        return name.encode().ljust(_VALUE_BYTES, b".")


class Plain(Subscriber):
    """Asks for messages."""

    def _act(self, client: Client) -> None:
        self._deliver([*client.get_many(TOPIC, BATCH_MAX, timeout=_WAIT_S)])


class Live(Subscriber):
    """Has messages pushed."""

    def _act(self, client: Client) -> None:
        self._hear(client)


class Ledger(Application):
    """Makes every message a row of its own database, in the transaction that also holds its place."""

    def live(self) -> None:
        connection = open_ledger(ledger_of(self.directory))
        client = self.connect()
        info = None
        while info is None:
            with suppress(*AWAY):
                info = client.subscribe(TOPIC, "earliest")
        self.recorder.note("ok", "booking", topic_id=str(info.topic_id), start=info.start)
        print("ready", flush=True)
        while not self._is_over(client, connection):
            pass
        rows = connection.execute("SELECT value FROM effects ORDER BY number").fetchall()
        self.recorder.note_all("ok", "effect", [{"message": value} for (value,) in rows])
        client.close()

    def _is_over(self, client: Client, connection: sqlite3.Connection) -> bool:
        """Book some messages; whether no more will come."""
        is_last = self.is_told(MAY_END)  # Asked first: whatever was stored by then is found below.
        try:
            found = self._book(client, connection)
        except NotCommitted:
            return False
        except (Uncertain, InDoubt, *AWAY):
            time.sleep(self.random.random() * _WAIT_S)
            return False
        return is_last and not found

    def _book(self, client: Client, connection: sqlite3.Connection) -> int:
        with client.transaction(connection) as transaction:
            found = transaction.get_many(TOPIC, _LEDGER_TOGETHER, timeout=_WAIT_S)
            rows = [(message.value.rstrip(b".").decode(),) for message in found]
            connection.executemany("INSERT INTO effects (value) VALUES (?)", rows)
        return len(rows)


def ledger_of(directory: Path) -> Path:
    """Where the ledger's database is."""
    return directory / "ledger.sqlite"


def open_ledger(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")  # So that the display may count while rows are written.
    connection.execute("CREATE TABLE IF NOT EXISTS effects (number INTEGER PRIMARY KEY, value TEXT)")
    connection.commit()
    return connection


class Keeper(Librarian):
    """Has the topic made before anybody comes: it keeps everything, so that the audit can read it all."""

    def prepare(self) -> None:
        with connect(self.part.address) as client:
            client.admin.create_topic(TOPIC, retain="forever")


def main() -> None:
    end_with_starter()
    part = msgspec.json.decode(sys.argv[1], type=Part)
    match part.role:
        case "publish":
            Steady(part).live()
        case "plain":
            Plain(part).live()
        case "live":
            Live(part).live()
        case "ledger":
            Ledger(part).live()
        case "prepare":
            Keeper(part).prepare()
        case _:
            Keeper(part).read()


if __name__ == "__main__":
    main()

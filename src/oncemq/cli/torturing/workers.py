# SPDX-License-Identifier: Apache-2.0
"""The workers of `oncemq torture --transactions`: every message becomes one effect, in transactions, whatever dies.

May not: remember anything from one life to the next: what was done is what was committed. Keep an effect from happening twice:
the table has no key that would.
The idea: a few messages per transaction, each a row of the worker's database, or a message on another topic. What the application
does with an exception is what any would: try again.
Run as `python -m oncemq.cli.torturing.workers PART`, a Part as JSON.
Next: transactions.py, which starts and judges them.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from oncemq import Client, DatabaseBusy, NotCommitted, Uncertain
from oncemq.adapters.crash_hook import install_from_environment
from oncemq.adapters.starter import end_with_starter
from oncemq.cli.torturing.recorder import Recorder, history_of
from oncemq.cli.torturing.roles import AWAY, BATCH_MAX, MAY_END, Application, Part
from oncemq.core.packets import SubscriptionInfo

SOURCE, TARGET = "orders", "relayed"
WORKER = "worker"
SQLITE = "sqlite:"
_CREATE = {
    True: "CREATE TABLE IF NOT EXISTS effects (number INTEGER PRIMARY KEY, value TEXT)",
    False: "CREATE TABLE IF NOT EXISTS effects (number BIGSERIAL PRIMARY KEY, value TEXT)",
}
_INSERT = {True: "INSERT INTO effects (value) VALUES (?)", False: "INSERT INTO effects (value) VALUES (%s)"}
_GET_S = 0.2
_PAUSE_S = 0.05
_TROUBLE = (NotCommitted, Uncertain, DatabaseBusy, *AWAY)
"""What an application answers by trying again."""


class Books:
    """The worker's own database, SQLite or PostgreSQL."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._is_sqlite = where.startswith(SQLITE)

    def open(self) -> Any:
        """A new connection; however long the server takes to come back."""
        while True:
            try:
                connection = self._connect()
                connection.execute(_CREATE[self._is_sqlite])
                connection.commit()
            except self.problems():
                time.sleep(_PAUSE_S)
            else:
                return connection

    def _connect(self) -> Any:
        if self._is_sqlite:
            return sqlite3.connect(self._where.removeprefix(SQLITE))
        import psycopg

        return psycopg.connect(self._where)

    def problems(self) -> tuple[type[Exception], ...]:
        """What is raised by, or because of, a connection that is gone."""
        if self._is_sqlite:
            return sqlite3.OperationalError, Uncertain
        import psycopg

        return psycopg.OperationalError, Uncertain

    def add(self, connection: Any, value: str) -> None:
        connection.execute(_INSERT[self._is_sqlite], (value,))

    def values(self) -> list[str]:
        """Every effect, in order."""
        connection = self.open()
        found = [str(row[0]) for row in connection.execute("SELECT value FROM effects ORDER BY number").fetchall()]
        connection.close()
        return found


class Worker(Application):
    """What both kinds do."""

    OPERATION = ""
    """What it says in the history that it does."""

    def live(self) -> None:
        client = self.connect()
        info = self._subscribe(client)
        self.recorder.note("ok", self.OPERATION, topic_id=str(info.topic_id), start=info.start)
        print("ready", flush=True)
        while not self._is_over(client):
            pass
        client.close()

    def _subscribe(self, client: Client) -> SubscriptionInfo:
        while True:
            try:
                return client.subscribe(SOURCE, "earliest")
            except AWAY:
                time.sleep(_PAUSE_S)

    def _is_over(self, client: Client) -> bool:
        """Have some messages done; whether no more will come."""
        is_last = self.is_told(MAY_END)
        try:
            found = self._work(client, self.random.randrange(1, BATCH_MAX))
        except _TROUBLE:
            time.sleep(self.random.random() * _PAUSE_S)
            return False
        return is_last and not found

    def _work(self, client: Client, count: int) -> int:
        raise NotImplementedError


class Bookkeeper(Worker):
    """Writes every message into its database."""

    OPERATION = "booking"

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._books = Books(part.database)
        self._connection = self._books.open()

    def _work(self, client: Client, count: int) -> int:
        try:
            return self._book(client, count)
        except self._books.problems():
            self._connection.close()
            self._connection = self._books.open()
            return 1  # Whether it happened is not known: there may be more.

    def _book(self, client: Client, count: int) -> int:
        with client.transaction(self._connection) as transaction:
            found = transaction.get_many(SOURCE, count, timeout=_GET_S)
            for message in found:
                self._books.add(self._connection, message.value.rstrip(b".").decode())
        return len(found)


class Relay(Worker):
    """Puts every message on another topic."""

    OPERATION = "relaying"

    def _work(self, client: Client, count: int) -> int:
        with client.transaction() as transaction:
            found = transaction.get_many(SOURCE, count, timeout=_GET_S)
            texts = [f"{TARGET} {message.value.rstrip(b'.').decode()}" for message in found]
            self.recorder.note_all("invoke", "put", [{"message": text} for text in texts])
            for text in texts:
                transaction.put(TARGET, text.encode())
        return len(found)


def note_effects(part: Part) -> None:
    """Write down, in the end, what the worker's database holds."""
    recorder = Recorder(history_of(Path(part.directory), "effects"), WORKER, part.life)
    recorder.note_all("ok", "effect", [{"message": value} for value in Books(part.database).values()])


def main() -> None:
    end_with_starter()
    install_from_environment()
    part = msgspec.json.decode(sys.argv[1], type=Part)
    match part.role:
        case "book":
            Bookkeeper(part).live()
        case "relay":
            Relay(part).live()
        case _:
            note_effects(part)


if __name__ == "__main__":
    main()

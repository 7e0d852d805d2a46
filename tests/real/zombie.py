# SPDX-License-Identifier: Apache-2.0
"""A process that is paused in the middle of its work and later goes on as if nothing had happened.

May not: know that it was paused, or decide whether a test passes. It writes down what it did and how it ended.
The idea: the first message is done as usual; with the second in hand it notes "inside" and waits for a file. Whoever stops it
there has a zombie: alive, with a message in its memory and a session that may have a successor by now.
Run as `python zombie.py MODE ADDRESS STATE FACTS GATE DATABASE`.
Next: test_zombies.py.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

import psycopg
from roles import Facts, wait_for  # A program beside it: this is started as one.

import oncemq

PATIENCE_S = 5.0


class Zombie:
    def __init__(self, mode: str, address: str, state: str, facts: str, gate: str, database: str) -> None:
        self._mode = mode
        self._facts = Facts(Path(facts))
        self._gate = Path(gate)
        self._connection: Any = None
        if mode.startswith("sqlite"):
            self._connection = sqlite3.connect(database)
        elif mode.startswith("postgresql"):
            self._connection = psycopg.connect(database)
        self._client = oncemq.connect(address, id="worker", state=state)
        self._count = 0

    def live(self) -> None:
        try:
            while self._work():
                self._count += 1
        except oncemq.OnceMQError as problem:
            self._facts.note(f"told {type(problem).__name__}")
        else:
            self._facts.note("told nothing")

    def _pause(self) -> None:
        if self._count == 1:
            self._facts.note("inside")
            wait_for(self._gate)

    def _work(self) -> bool:
        match self._mode:
            case "get":
                return self._get()
            case "receive":
                return self._receive()
            case "broker":
                return self._relay()
        if self._mode.endswith("outside"):
            self._pause()
        return self._book()

    def _get(self) -> bool:
        message = self._client.get("t", timeout=PATIENCE_S)
        self._pause()
        return message is not None

    def _receive(self) -> bool:
        with self._client.receive("t", timeout=PATIENCE_S) as message:
            self._pause()
        self._facts.note(f"done {message.offset if message else None}")
        return message is not None

    def _relay(self) -> bool:
        with self._client.transaction() as transaction:
            message = transaction.get("t", timeout=PATIENCE_S)
            self._pause()
            if message is not None:
                transaction.put("effects", message.value)
        self._facts.note(f"done {message.offset if message else None}")
        return message is not None

    def _book(self) -> bool:
        with self._client.transaction(self._connection) as transaction:
            message = transaction.get("t", timeout=PATIENCE_S)
            if message is not None:
                self._connection.execute(f"INSERT INTO effects VALUES ('{message.value.decode()}')")  # noqa: S608 - ours
            if self._mode.endswith("inside"):
                self._pause()
        self._facts.note(f"done {message.offset if message else None}")
        return message is not None


if __name__ == "__main__":
    Zombie(*sys.argv[1:]).live()

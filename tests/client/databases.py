# SPDX-License-Identifier: Apache-2.0
"""The databases of the tests: SQLite in a file, and a real PostgreSQL server that the tests start and end themselves.

May not: need anything installed by hand: the server comes with a package that `make setup` installs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest

from oncemq.cli.torturing.transactions import postgresql as server_below


@contextmanager
def postgresql() -> Iterator[str]:
    """Start a server in a directory of its own, on a socket there; yield how to reach it, and end it.

    Not where pytest has its directories: started by root the server is another user, and every other run of pytest that begins
    meanwhile shuts that place to it.
    """
    with TemporaryDirectory(prefix="oncemq-postgresql-") as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", place)  # Else it warns that there is none.
        with server_below(Path(place, "postgresql")) as uri:
            yield uri


class Base:
    """One database with a table of effects; as many connections to it as a test wants."""

    def __init__(self, kind: str, where: str, placeholder: str) -> None:
        self.kind = kind
        self.where = where
        self._placeholder = placeholder
        self._opened: list[Any] = []
        first = self.connect()
        first.execute("CREATE TABLE IF NOT EXISTS effects (value TEXT)")
        first.execute("DELETE FROM effects")
        first.execute("DROP TABLE IF EXISTS oncemq_cursors")
        first.commit()

    def connect(self, *, autocommit: bool = False) -> Any:
        if self.kind == "sqlite":
            connection: Any = sqlite3.connect(self.where, isolation_level=None if autocommit else "", timeout=0.2)
            connection.execute("PRAGMA synchronous = FULL")
        else:
            connection = psycopg.connect(self.where, autocommit=autocommit, options="-c lock_timeout=200")
        self._opened.append(connection)
        return connection

    def add(self, connection: Any, value: bytes) -> None:
        connection.execute("INSERT INTO effects VALUES (" + self._placeholder + ")", (value.decode(),))  # noqa: S608 - ours

    def effects(self) -> list[bytes]:
        """What is committed, in the order of the values."""
        connection = self.connect()
        found = [str(row[0]).encode() for row in connection.execute("SELECT value FROM effects").fetchall()]
        connection.rollback()
        return sorted(found, key=int)

    def close(self) -> None:
        for connection in self._opened:
            connection.close()


def sqlite_base(path: Path) -> Base:
    return Base("sqlite", str(path), "?")


def postgresql_base(uri: str) -> Base:
    return Base("postgresql", uri, "%s")

# SPDX-License-Identifier: Apache-2.0
"""Databases whose transactions may carry a subscription's place: sqlite3 and psycopg 3, and the interface for others.

May not: open, close or configure the application's connection, or use a statement the other database does not know.
The idea: `Database` is all that client/effects.py needs. Anything with these methods will do: pass an object of your own to
`client.transaction(...)` where the two known kinds of connections go. "Any DB-API connection" could not be kept: that
interface has no way to begin, none to ask whether a transaction is open, and five ways to write a parameter.
Next: client/effects.py for the order in which all this is called.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from oncemq.errors import DatabaseBusy, UnsupportedDatabase, UsageError
from oncemq.limits import DATABASE_LOCK_WAIT_MS

SAVEPOINT = "oncemq"
JOURNAL_HEADER_BYTES = 28
"""As much of a rollback journal as changes with its first page, whatever becomes of the file after a commit."""
NO_CONNECTION = object()
"""What transaction() has where no connection was given. Not None: that is a connection which was never opened."""
Row = Sequence[Any]


@runtime_checkable
class Database(Protocol):
    """What a database must be able to do. Statements use `?` for parameters and plain SQL that all of them know."""

    def is_in_transaction(self) -> bool:
        """Whether the connection is inside a transaction already; raise UsageError if it cannot be used at all."""

    def weakness(self) -> str:
        """What makes a commit here less than durable, in words; empty if nothing does."""

    def begin(self) -> None:
        """Begin a transaction that may write; raise DatabaseBusy if another one is in the way for too long."""

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """Run a statement inside the transaction and return its rows."""

    def lock_row(self, statement: str, values: Sequence[object]) -> list[Row]:
        """Run a SELECT and keep others from changing its rows until the end; raise DatabaseBusy as `begin` does."""

    def release(self) -> bool:
        """Release the savepoint named `oncemq`; False if it is gone, because somebody ended the transaction inside."""

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Undo everything since `begin`, or raise; without a transaction do nothing."""

    def let_go(self) -> bool:
        """End the transaction if the application wrote nothing in it, so others need not wait; False if it may have."""

    def reopened(self) -> Database:
        """The same database on a connection of its own, to find out what became of a commit."""

    def close(self) -> None:
        """Close what `reopened` opened."""


def _as_text(rows: Sequence[Row]) -> list[Row]:
    """Rows with text in them where the connection gives bytes: no column of ours has anything else in bytes."""
    return [tuple(cell.decode() if isinstance(cell, bytes) else cell for cell in row) for row in rows]


def database_of(connection: object) -> Database:
    """Return the adapter for a connection; raise UnsupportedDatabase, with the interface, for what is not known."""
    if connection is None:
        raise UsageError(
            "the connection is None: open it before client.transaction(connection), to commit effects and place as one; "
            "client.transaction() without an argument is a transaction of the broker alone"
        )
    if isinstance(connection, sqlite3.Connection):
        return SqliteDatabase(connection)
    of_psycopg = {kind.__name__ for kind in type(connection).__mro__ if kind.__module__.split(".")[0] == "psycopg"}
    if "Connection" in of_psycopg:
        return PostgresDatabase(connection)
    if "AsyncConnection" in of_psycopg:
        raise UsageError(
            "transaction(connection) takes a blocking one, not a psycopg.AsyncConnection: open it with psycopg.connect(...), for "
            "AsyncClient, too"
        )
    if isinstance(connection, Database):
        return connection
    methods = [name for name in vars(Database) if not name.startswith("_")]
    raise UnsupportedDatabase(f"{type(connection).__module__}.{type(connection).__qualname__}", methods)


class SqliteDatabase:
    """A connection of the standard library's sqlite3."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._changes = 0
        self._versions: list[object] = []
        self._journals: list[bytes] = []
        self._is_ours = self._is_written = False

    def is_in_transaction(self) -> bool:
        try:
            self._connection.cursor().close()
        except sqlite3.ProgrammingError as problem:  # It is closed, or of another thread, and says which.
            raise UsageError(f"the connection cannot be used ({problem}): open another one here and keep it open") from problem
        return self._connection.in_transaction

    def weakness(self) -> str:
        """FULL and EXTRA are durable enough: the broker is told one transaction late, which covers what FULL may lose."""
        ((mode,),) = self._rows("PRAGMA journal_mode")
        ((synchronous,),) = self._rows("PRAGMA synchronous")
        if not self._path():
            return "the database is in memory"
        if str(mode).lower() in {"off", "memory"}:
            return f"PRAGMA journal_mode is {mode}"
        if str(mode).lower() == "wal" and sum(bool(path) for _, _, path in self._rows("PRAGMA database_list")) > 1:
            return "another database is attached, and with journal_mode WAL a power cut may keep half of a commit to both"
        return "" if synchronous >= 2 else f"PRAGMA synchronous is {('OFF', 'NORMAL')[synchronous]} (use FULL)"

    def _path(self) -> str:
        (_, _, path), *_ = self._rows("PRAGMA database_list")
        return str(path)

    def _rows(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """Run a statement; its rows are tuples with text in them, whatever kinds the application has its own rows made of."""
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return _as_text(cursor.execute(statement, tuple(values)).fetchall())

    def begin(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as problem:
            if "locked" in str(problem) or "busy" in str(problem):
                raise DatabaseBusy(str(problem)) from problem
            raise
        self._changes, self._versions = self._connection.total_changes, self._read_versions()
        self._journals, self._is_ours, self._is_written = self._read_journals(), False, False
        self._connection.execute(f"SAVEPOINT {SAVEPOINT}")

    def _read_versions(self) -> list[object]:
        """What changes with tables that are made or dropped, and what is kept beside them: `total_changes` counts neither."""
        names = [str(name) for _, name, _ in self._rows("PRAGMA database_list")]
        kinds = ("schema_version", "user_version", "application_id")
        return [self._rows(f'PRAGMA "{name}".{kind}') for name in names for kind in kinds]

    def _read_journals(self) -> list[bytes]:
        """The beginning of each rollback journal: SQLite writes it with the first page that changes, even by a blob's handle.

        With WAL there is none, and no other sign of a page that is not committed.
        """
        paths = [Path(f"{path}-journal") for _, _, path in self._rows("PRAGMA database_list") if path]
        return [_beginning_of(path) for path in paths]

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        before = self._connection.total_changes
        found = self._rows(statement, values)
        made = self._connection.total_changes - before
        self._changes += made  # Ours: let_go() looks for the application's.
        self._is_ours = self._is_ours or made > 0
        return found

    def lock_row(self, statement: str, values: Sequence[object]) -> list[Row]:
        if not self._is_ours:  # From then on the journal is there anyway.
            self._is_written = self._is_written or self._read_journals() != self._journals
        return self.execute(statement, values)  # BEGIN IMMEDIATE has locked everything.

    def release(self) -> bool:
        try:
            self._connection.execute(f"RELEASE {SAVEPOINT}")
        except sqlite3.OperationalError:
            return False
        return self._connection.in_transaction

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def let_go(self) -> bool:
        if self._is_written or self._connection.total_changes != self._changes or self._read_versions() != self._versions:
            return False
        if not self.release():  # It fails while the application has a handle open that writes a blob.
            return False
        self._connection.execute("ROLLBACK")
        return True

    def reopened(self) -> Database:
        return SqliteDatabase(sqlite3.connect(self._path()))

    def close(self) -> None:
        self._connection.close()


def _beginning_of(journal: Path) -> bytes:
    try:
        with journal.open("rb") as file:
            return file.read(JOURNAL_HEADER_BYTES)
    except OSError:
        return b""


class PostgresDatabase:
    """A connection of psycopg 3. The module itself is not imported: whoever has a connection has it loaded."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def is_in_transaction(self) -> bool:
        self._expect_usable()
        return self._status() != "IDLE"

    def _expect_usable(self) -> None:
        if self._connection.broken:
            self._connection.execute("SELECT 1")  # It was lost, which psycopg says in its own words.
        if self._connection.closed:
            raise UsageError("the connection is closed: open another one and keep it open until the block is left")
        if self._connection.info.pipeline_status.name != "OFF":
            raise UsageError(
                "the connection is in pipeline mode, where a statement is answered later: leave its 'with' block before "
                "client.transaction(connection), before get() and before the transaction ends"
            )

    def _status(self) -> str:
        return str(self._connection.info.transaction_status.name)

    def weakness(self) -> str:
        settings = {name: self._show(name) for name in ("synchronous_commit", "fsync")}
        self._connection.rollback()  # Without autocommit a SHOW begins a transaction.
        weak = [f"{name} is off" for name, value in settings.items() if value == "off"]
        return " and ".join(weak)

    def _show(self, name: str) -> str:
        ((value,),) = self._run(f"SHOW {name}")
        return str(value)

    def begin(self) -> None:
        if self._connection.autocommit:
            self._connection.execute("BEGIN")  # Without autocommit the next statement begins by itself.
        self._connection.execute(f"SAVEPOINT {SAVEPOINT}")

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        if statement.startswith("INSERT"):
            return self._patiently(statement, values)  # The one that may meet a row somebody else has not committed yet.
        return self._run(statement, values)

    def _run(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """Run a statement on a plain cursor: the application's own may return other rows and write parameters in another way."""
        self._expect_usable()
        cursor = sys.modules["psycopg"].Cursor(self._connection, row_factory=lambda _cursor: tuple)
        cursor.execute(statement.replace("?", "%s"), tuple(values))
        return _as_text(cursor.fetchall()) if cursor.description else []

    def lock_row(self, statement: str, values: Sequence[object]) -> list[Row]:
        return self._patiently(statement + " FOR UPDATE", values)

    def _patiently(self, statement: str, values: Sequence[object]) -> list[Row]:
        """Run a statement that may have to wait for somebody, but not for ever."""
        before = self._show("lock_timeout")
        if before == "0":
            self._connection.execute(f"SET LOCAL lock_timeout = {DATABASE_LOCK_WAIT_MS}")
        try:
            found = self._run(statement, values)
        except Exception as problem:
            if type(problem).__name__ == "LockNotAvailable":
                raise DatabaseBusy(str(problem).strip()) from problem
            raise
        self._run("SELECT set_config('lock_timeout', ?, true)", (before,))
        return found

    def release(self) -> bool:
        if not self.is_in_transaction():
            return False  # After a statement that failed the database itself says why it refuses.
        try:
            self._connection.execute(f"RELEASE {SAVEPOINT}")
        except Exception as problem:
            if type(problem).__name__ == "InvalidSavepointSpecification":
                return False
            raise
        return True

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def let_go(self) -> bool:
        return False  # A rollback would undo what nobody can see from here: SET LOCAL, advisory locks, cursors.

    def reopened(self) -> Database:
        info = self._connection.info
        known = info.get_parameters() | ({"password": info.password} if info.password else {})
        return PostgresDatabase(type(self._connection).connect(**known))

    def close(self) -> None:
        self._connection.close()

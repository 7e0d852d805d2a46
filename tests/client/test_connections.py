# SPDX-License-Identifier: Apache-2.0
"""transaction(connection) with the connections that applications really have: their own rows, autocommit, pools, few rights."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import oncemq
from oncemq.client.databases import PostgresDatabase
from tests.client.conftest import Connect
from tests.client.databases import Base, sqlite_base


def _dictionaries(cursor: sqlite3.Cursor, row: tuple[object, ...]) -> dict[str, object]:
    return {column[0]: cell for column, cell in zip(cursor.description, row, strict=True)}


def take_two(worker: oncemq.Client, connection: Any, topic: str) -> list[bytes]:
    """Two transactions: the first makes the row, the second reads it back."""
    found: list[bytes] = []
    for _ in range(2):
        with worker.transaction(connection) as transaction:
            message = transaction.get(topic, timeout=5)
            assert message is not None
            found.append(message.value)
    return found


def test_rows_may_be_dictionaries(worker: oncemq.Client, base: Base, topic: str) -> None:
    connection = base.connect()
    connection.row_factory = _dictionaries if base.kind == "sqlite" else dict_row
    assert take_two(worker, connection, topic) == [b"0", b"1"]


def test_text_of_sqlite_may_be_bytes(worker: oncemq.Client, tmp_path: Path, topic: str) -> None:
    base = sqlite_base(tmp_path / "a.db")
    connection = base.connect()
    connection.text_factory = bytes
    assert take_two(worker, connection, topic) == [b"0", b"1"]
    base.close()


@pytest.mark.real
def test_cursors_of_postgresql_may_write_parameters_in_another_way(worker: oncemq.Client, server: str, topic: str) -> None:
    with psycopg.connect(server, cursor_factory=psycopg.RawCursor) as connection:
        assert take_two(worker, connection, topic) == [b"0", b"1"]


@pytest.mark.real
@pytest.mark.parametrize("lock_timeout", ["0", "200"])
def test_text_of_postgresql_may_be_bytes(worker: oncemq.Client, server: str, topic: str, lock_timeout: str) -> None:
    """psycopg gives text as bytes where it does not know its encoding."""
    with psycopg.connect(server, client_encoding="SQL_ASCII", options=f"-c lock_timeout={lock_timeout}") as connection:
        assert take_two(worker, connection, topic) == [b"0", b"1"]
        connection.execute("SET synchronous_commit = off")
        connection.commit()
    weak = psycopg.connect(server, client_encoding="SQL_ASCII", options="-c synchronous_commit=off")
    with weak, pytest.raises(oncemq.NotDurable, match="synchronous_commit"), worker.transaction(weak):
        raise AssertionError


@pytest.mark.parametrize("autocommit", [False, True])
def test_h08_a_get_after_a_commit_inside_moves_nothing(worker: oncemq.Client, base: Base, topic: str, autocommit: bool) -> None:
    """With autocommit the row would be moved and committed at once, and the message's effect never happen."""
    connection = base.connect(autocommit=autocommit)
    with pytest.raises(oncemq.EndedEarly), worker.transaction(connection) as transaction:
        message = transaction.get(topic, timeout=5)
        assert message is not None
        base.add(connection, message.value)
        connection.execute("COMMIT")
        transaction.get(topic, timeout=5)
        raise AssertionError
    with worker.transaction(base.connect()) as transaction:
        message = transaction.get(topic, timeout=5)
        assert message is not None
        assert message.value == b"1"
    assert base.effects() == [b"0"]


@pytest.mark.parametrize(
    "change",
    ["CREATE TABLE made (value TEXT)", "CREATE TEMP TABLE made (value TEXT)", "PRAGMA user_version = 7", "DROP TABLE spare"],
)
def test_what_was_changed_before_the_wait_for_a_message_is_kept(
    worker: oncemq.Client, tmp_path: Path, topic: str, change: str
) -> None:
    """While it waits a transaction of SQLite lets others write, unless the application has changed anything in it."""
    base = sqlite_base(tmp_path / "a.db")
    connection = base.connect()
    connection.execute("CREATE TABLE spare (value TEXT)")
    connection.commit()
    with worker.transaction(connection) as transaction:
        assert len(transaction.get_many(topic, 5, timeout=5)) == 5
    with worker.transaction(connection) as transaction:
        connection.execute(change)
        assert transaction.get(topic, timeout=0) is None
    assert _tables(connection) == _tables_after(change)
    assert connection.execute("PRAGMA user_version").fetchone() == (7 if "user_version" in change else 0,)
    base.close()


@pytest.mark.parametrize(
    ("mode", "held"), [("DELETE", False), ("TRUNCATE", False), ("PERSIST", False), ("DELETE", True), ("WAL", True)]
)
def test_what_was_written_into_a_blob_before_the_wait_for_a_message_is_kept(
    worker: oncemq.Client, tmp_path: Path, topic: str, mode: str, held: bool
) -> None:
    """No counter of SQLite knows of it: the journal file does, and a handle that is still open stands in the way of a release."""
    base, connection = _with_a_blob(tmp_path, mode)
    with worker.transaction(connection) as transaction:
        assert len(transaction.get_many(topic, 5, timeout=5)) == 5
    with worker.transaction(connection) as transaction:
        blob = connection.blobopen("files", "body", 1)
        blob.write(b"new")
        if not held:
            blob.close()
        assert transaction.get(topic, timeout=0) is None
        assert transaction.get(topic, timeout=0) is None
        blob.close()
    assert connection.execute("SELECT body FROM files").fetchall() == [(b"new",)]
    base.close()


def _with_a_blob(tmp_path: Path, mode: str) -> tuple[Base, sqlite3.Connection]:
    base = sqlite_base(tmp_path / "a.db")
    connection: sqlite3.Connection = base.connect()
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("CREATE TABLE files (body BLOB)")
    connection.execute("INSERT INTO files VALUES (?)", (b"old",))
    connection.commit()
    return base, connection


def test_with_wal_a_blob_is_kept_by_a_statement_beside_it(worker: oncemq.Client, tmp_path: Path, topic: str) -> None:
    """WAL shows nothing of a page that is not committed: docs/known-limits.md says what to do."""
    base, connection = _with_a_blob(tmp_path, "WAL")
    with worker.transaction(connection) as transaction:
        assert len(transaction.get_many(topic, 5, timeout=5)) == 5
    with worker.transaction(connection) as transaction:
        connection.execute("UPDATE files SET body = body")
        with connection.blobopen("files", "body", 1) as blob:
            blob.write(b"new")
        assert transaction.get(topic, timeout=0) is None
    assert connection.execute("SELECT body FROM files").fetchall() == [(b"new",)]
    base.close()


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_an_application_id_that_was_set_before_the_wait_for_a_message_is_kept(
    worker: oncemq.Client, tmp_path: Path, topic: str, mode: str
) -> None:
    base, connection = _with_a_blob(tmp_path, mode)
    with worker.transaction(connection) as transaction:
        assert len(transaction.get_many(topic, 5, timeout=5)) == 5
    with worker.transaction(connection) as transaction:
        connection.execute("PRAGMA application_id = 7")
        assert transaction.get(topic, timeout=0) is None
    assert connection.execute("PRAGMA application_id").fetchall() == [(7,)]
    base.close()


@pytest.mark.parametrize("mode", ["DELETE", "TRUNCATE", "PERSIST", "WAL"])
def test_others_may_write_during_the_wait_whatever_the_journal_mode(
    worker: oncemq.Client, tmp_path: Path, topic: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the first time, when the row is made in the very transaction that waits."""
    base, connection = _with_a_blob(tmp_path, mode)
    idle = topic + "-idle"
    worker.subscribe(idle)
    rival = base.connect()
    feed = worker._effects.feed(idle)
    wait = feed.wait

    def meanwhile(timeout_ms: int | None) -> bool:
        base.add(rival, b"9")
        rival.commit()
        return wait(timeout_ms)

    monkeypatch.setattr(feed, "wait", meanwhile)
    for _ in range(2):
        with worker.transaction(connection) as transaction:
            assert transaction.get(idle, timeout=0) is None
    assert base.effects() == [b"9", b"9"]
    base.close()


def _tables(connection: Any) -> set[str]:
    every = "SELECT name FROM sqlite_master WHERE type = 'table' UNION SELECT name FROM sqlite_temp_master WHERE type = 'table'"
    return {row[0] for row in connection.execute(every)} - {"effects", "oncemq_cursors"}


def _tables_after(change: str) -> set[str]:
    return ({"spare"} if "DROP" not in change else set()) | ({"made"} if "made" in change else set())


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_commit_to_two_files_of_sqlite_is_one_only_without_wal(
    worker: oncemq.Client, tmp_path: Path, topic: str, mode: str
) -> None:
    base = sqlite_base(tmp_path / "a.db")
    connection = base.connect()
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("ATTACH DATABASE ? AS other", (str(tmp_path / "b.db"),))
    if mode == "WAL":
        with pytest.raises(oncemq.NotDurable, match="another database is attached"), worker.transaction(connection):
            raise AssertionError
        connection.execute("DETACH DATABASE other")
    assert take_two(worker, connection, topic) == [b"0", b"1"]
    base.close()


@pytest.mark.real
def test_a_statement_that_failed_inside_is_told_by_the_database(worker: oncemq.Client, server: str, topic: str) -> None:
    """Swallowed by the application, it still ends the transaction: nobody committed anything early."""
    with psycopg.connect(server) as connection:
        with pytest.raises(psycopg.errors.InFailedSqlTransaction), worker.transaction(connection) as transaction:
            assert transaction.get(topic, timeout=5) is not None
            with pytest.raises(psycopg.errors.UndefinedColumn):
                connection.execute("SELECT nonsense")
        assert take_two(worker, connection, topic) == [b"0", b"1"]


@pytest.mark.real
def test_a_rollback_that_failed_is_told_beside_what_made_it_necessary(worker: oncemq.Client, server: str, topic: str) -> None:
    connection, killer = psycopg.connect(server), psycopg.connect(server, autocommit=True)
    with pytest.raises(ZeroDivisionError) as told, worker.transaction(connection) as transaction:
        assert transaction.get(topic, timeout=5) is not None
        killer.execute("SELECT pg_terminate_backend(%s, 60000)", (connection.info.backend_pid,))
        raise ZeroDivisionError
    (note,) = told.value.__notes__
    assert "the rollback failed, too" in note
    assert "close the connection" in note
    connection.close()
    killer.close()
    with psycopg.connect(server) as another:
        assert take_two(worker, another, topic) == [b"0", b"1"]


@pytest.mark.parametrize("is_done", [False, True])
def test_a_rollback_that_failed_leaves_the_client_free(
    worker: oncemq.Client, base: Base, topic: str, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a commit there is nothing to roll back: what happened is not told as a failure."""
    connection = base.connect()

    def fail(_self: object) -> None:
        raise OSError("no answer")

    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError) as told:
        with worker.transaction(connection) as transaction:
            assert transaction.get(topic, timeout=5) is not None
            patch.setattr(type(transaction._database), "rollback", fail)
            if not is_done:
                raise ZeroDivisionError
        raise ZeroDivisionError
    assert len(getattr(told.value, "__notes__", [])) == (0 if is_done else 1)
    connection.rollback()
    assert take_two(worker, connection, topic)[0] == (b"1" if is_done else b"0")


def test_a_closed_connection_is_refused(worker: oncemq.Client, base: Base, topic: str) -> None:
    connection, shut = base.connect(), base.connect()
    shut.close()
    with pytest.raises(oncemq.UsageError, match=r"closed.*open another one"), worker.transaction(shut):
        raise AssertionError
    with pytest.raises(oncemq.UsageError, match=r"closed.*open another one"), worker.transaction(shut, durable=False):
        raise AssertionError
    assert take_two(worker, connection, topic) == [b"0", b"1"]


def test_a_connection_that_is_closed_inside_commits_nothing(worker: oncemq.Client, base: Base, topic: str) -> None:
    connection = base.connect()
    with pytest.raises(oncemq.UsageError, match="closed"), worker.transaction(connection) as transaction:
        assert transaction.get(topic, timeout=5) is not None
        connection.close()
    assert take_two(worker, base.connect(), topic) == [b"0", b"1"]


@pytest.mark.real
def test_a_connection_that_was_lost_says_so_itself(worker: oncemq.Client, server: str) -> None:
    """That is no mistake of the application: it catches the database's own error, as everywhere, and connects again."""
    connection, killer = psycopg.connect(server), psycopg.connect(server, autocommit=True)
    killer.execute("SELECT pg_terminate_backend(%s, 60000)", (connection.info.backend_pid,))
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError), worker.transaction(connection):
            raise AssertionError
    connection.close()
    killer.close()


def test_a_connection_of_another_thread_is_refused(worker: oncemq.Client, tmp_path: Path) -> None:
    base = sqlite_base(tmp_path / "a.db")
    with ThreadPoolExecutor(1) as pool:
        connection = pool.submit(base.connect).result()
        with pytest.raises(oncemq.UsageError, match="thread"), worker.transaction(connection):
            raise AssertionError
        pool.submit(connection.close).result()
    base._opened.remove(connection)
    base.close()


@pytest.mark.real
def test_a_connection_in_pipeline_mode_is_refused(worker: oncemq.Client, server: str, topic: str) -> None:
    """There the answer to a statement comes later: neither the row nor the savepoint could be relied on."""
    with psycopg.connect(server) as connection:
        for durable in (True, False):
            refused = pytest.raises(oncemq.UsageError, match="pipeline")
            with connection.pipeline(), refused, worker.transaction(connection, durable=durable):
                raise AssertionError
            connection.rollback()
        refused = pytest.raises(oncemq.UsageError, match="leave its 'with' block")
        with refused, worker.transaction(connection) as transaction, connection.pipeline():
            transaction.get(topic, timeout=5)
        assert take_two(worker, connection, topic) == [b"0", b"1"]
        with worker.transaction(connection) as transaction:
            with connection.pipeline():
                connection.execute("SELECT 1")
            assert transaction.get(topic, timeout=5) is not None


@pytest.mark.real
def test_a_connection_of_asyncio_is_refused(worker: oncemq.Client, server: str) -> None:
    """AsyncClient takes a blocking one as well."""

    async def offer() -> None:
        async with await psycopg.AsyncConnection.connect(server) as connection:
            with pytest.raises(oncemq.UsageError, match=r"blocking one.*psycopg\.connect.*AsyncClient"):
                worker.transaction(connection)
            async with await oncemq.connect_async(worker._session.address) as client:
                with pytest.raises(oncemq.UsageError, match="blocking one"):
                    async with client.transaction(connection):
                        raise AssertionError

    asyncio.run(offer())


@pytest.mark.real
def test_workers_that_begin_at_the_same_time_make_the_table_once(connect: Connect, server: str, topic: str) -> None:
    """CREATE TABLE IF NOT EXISTS is no protection in PostgreSQL: the second of two fails."""
    made: list[bool] = []
    barrier = threading.Barrier(4, timeout=60)

    def begin(client: oncemq.Client) -> None:
        with psycopg.connect(server) as connection:
            barrier.wait()
            with client.transaction(connection, table="places_" + topic[-12:]):
                made.append(True)

    workers = [threading.Thread(target=begin, args=(connect(f"worker{number}"),)) for number in range(4)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join(60)
    assert made == [True] * 4


@pytest.mark.real
def test_a_table_that_is_there_needs_no_right_to_make_one(worker: oncemq.Client, server: str, topic: str) -> None:
    table = "places_" + topic[-12:]
    with psycopg.connect(server, autocommit=True) as owner:
        with worker.transaction(owner, table=table):
            pass
        owner.execute(f"CREATE ROLE clerk_{table}")
        owner.execute("REVOKE CREATE ON SCHEMA public FROM public")
        owner.execute(f"GRANT SELECT, INSERT, UPDATE ON {table} TO clerk_{table}")
    with psycopg.connect(server) as connection:
        connection.execute(f"SET SESSION AUTHORIZATION clerk_{table}")
        connection.commit()
        with worker.transaction(connection, table=table) as transaction:
            assert transaction.get(topic, timeout=5) is not None


@pytest.mark.real
def test_a_commit_without_an_answer_that_is_still_on_its_way_is_waited_for(
    worker: oncemq.Client, server: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it is told as failed although it happens a moment later."""
    connection, watcher = psycopg.connect(server), psycopg.connect(server, autocommit=True)

    def commit_once_somebody_waits(due_s: float) -> None:
        while time.monotonic() < due_s and watcher.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
            pass
        connection.commit()

    late = threading.Thread(target=commit_once_somebody_waits, args=(time.monotonic() + 60,))

    def commit(_self: PostgresDatabase) -> None:
        late.start()
        raise psycopg.OperationalError("the connection is lost")

    with worker.transaction(connection):
        pass  # Makes the table.
    with monkeypatch.context() as patch:
        patch.setattr(PostgresDatabase, "commit", commit)
        patch.setattr(PostgresDatabase, "rollback", lambda _self: None)  # Of no use on a connection that is lost.
        with worker.transaction(connection) as transaction:
            assert transaction.get(topic, timeout=5) is not None
    late.join(60)
    connection.close()
    watcher.close()

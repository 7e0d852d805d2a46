# SPDX-License-Identifier: Apache-2.0
"""transaction(connection): effects and place together, in SQLite and in a real PostgreSQL (R16, H8, H29, H30)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
import pytest

import oncemq
from oncemq.client.databases import Database, SqliteDatabase, database_of
from tests.client.conftest import Connect
from tests.client.databases import Base, postgresql_base, sqlite_base


class Trouble(Exception):
    """What the application runs into."""


def work(client: oncemq.Client, base: Base, connection: Any, topic: str) -> bytes | None:
    with client.transaction(connection) as transaction:
        message = transaction.get(topic, timeout=0)
        if message is None:
            return None
        base.add(connection, message.value)
        return message.value


def work_all(client: oncemq.Client, base: Base, connection: Any, topic: str) -> None:
    while work(client, base, connection, topic) is not None:
        pass


ALL = [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("autocommit", [False, True])
def test_effects_and_place_are_committed_together(worker: oncemq.Client, base: Base, topic: str, autocommit: bool) -> None:
    connection = base.connect(autocommit=autocommit)
    work_all(worker, base, connection, topic)
    assert base.effects() == ALL
    assert connection.execute("SELECT next_offset FROM oncemq_cursors").fetchall() == [(5,)]
    connection.rollback()


def test_get_many(worker: oncemq.Client, base: Base, topic: str) -> None:
    connection = base.connect()
    with worker.transaction(connection) as transaction:
        for message in [*transaction.get_many(topic, 2, timeout=5), *transaction.get_many(topic, 2, timeout=5)]:
            base.add(connection, message.value)
    with worker.transaction(connection) as transaction:
        assert [message.value for message in transaction.get_many(topic, 9, timeout=5)] == [b"4"]
        assert transaction.get_many(topic, 9, timeout=0) == []
    assert base.effects() == ALL[:4]


def test_after_an_exception_nothing_happened(worker: oncemq.Client, base: Base, topic: str) -> None:
    connection = base.connect()
    for _ in range(2):
        with pytest.raises(Trouble), worker.transaction(connection) as transaction:
            message = transaction.get(topic, timeout=5)
            assert message is not None
            assert message.value == b"0"
            base.add(connection, message.value)
            raise Trouble
    assert base.effects() == []
    work_all(worker, base, connection, topic)
    assert base.effects() == ALL


def test_a_crash_between_any_two_transactions_changes_nothing(
    connect: Connect, worker: oncemq.Client, base: Base, topic: str
) -> None:
    """Nothing is kept here that a crash could lose: another process reads the row and goes on."""
    connection = base.connect()
    work(worker, base, connection, topic)
    work(worker, base, connection, topic)
    worker.close()
    work_all(connect("worker"), base, base.connect(), topic)
    assert base.effects() == ALL


@pytest.mark.parametrize("end", ["commit", "rollback", "with", "execute"])
def test_h08_whoever_ends_the_transaction_inside_is_told(worker: oncemq.Client, base: Base, topic: str, end: str) -> None:
    """A commit or rollback inside would leave effect and place apart: the released savepoint shows it."""
    connection = base.connect()
    with pytest.raises(oncemq.EndedEarly), worker.transaction(connection) as transaction:
        message = transaction.get(topic, timeout=5)
        assert message is not None
        base.add(connection, message.value)
        _end(connection, base, end)
        base.add(connection, b"99")
    assert b"99" not in base.effects() or end == "with"
    connection = base.connect()
    work_all(worker, base, connection, topic)
    assert [value for value in base.effects() if value != b"99"] == ALL, "what was committed early was committed with its place"


def _end(connection: Any, base: Base, end: str) -> None:
    match end:
        case "commit":
            connection.commit()
        case "rollback":
            connection.rollback()
        case "execute":
            connection.execute("COMMIT")
        case "with" if base.kind == "sqlite":
            with connection:
                connection.execute("SELECT 1")
        case _:
            connection.commit()


def test_a_transaction_is_used_once(worker: oncemq.Client, base: Base, topic: str) -> None:
    """Used again after an exception it went on behind what was rolled back, and was refused by its row for ever."""
    connection = base.connect()
    transaction = worker.transaction(connection)
    with suppress(Trouble), transaction:
        assert transaction.get(topic, timeout=5) is not None
        raise Trouble
    with pytest.raises(oncemq.UsageError, match="used once"), transaction:
        pass
    assert work(worker, base, connection, topic) == b"0"


def test_h08_a_savepoint_that_takes_the_place_back_is_told(worker: oncemq.Client, base: Base, topic: str) -> None:
    """What is written after it was rolled back would be committed without the place, and done again with the message."""
    connection = base.connect()
    work(worker, base, connection, topic)
    with pytest.raises(oncemq.EndedEarly, match="set savepoints after get"), worker.transaction(connection) as transaction:
        base.add(connection, b"98")
        connection.execute("SAVEPOINT mine")
        assert transaction.get(topic, timeout=5) is not None
        connection.execute("ROLLBACK TO mine")
        base.add(connection, b"99")
    assert base.effects() == [b"0"]
    with worker.transaction(connection) as transaction:
        assert transaction.get(topic, timeout=5) is not None
        connection.execute("SAVEPOINT mine")
        base.add(connection, b"99")
        connection.execute("ROLLBACK TO mine")
        base.add(connection, b"1")
    work_all(worker, base, connection, topic)
    assert base.effects() == ALL


def test_h08_a_connection_that_is_in_a_transaction_is_refused(worker: oncemq.Client, base: Base, topic: str) -> None:
    """Otherwise our block would be a part of the other transaction, and leave without a commit."""
    connection = base.connect()
    base.add(connection, b"7")
    with pytest.raises(oncemq.UsageError, match="inside a transaction already"), worker.transaction(connection):
        raise AssertionError
    connection.rollback()
    work_all(worker, base, connection, topic)
    assert base.effects() == ALL


def test_h08_a_holder_makes_others_wait_and_is_named(connect: Connect, worker: oncemq.Client, base: Base, topic: str) -> None:
    """The price of comparing first: whoever holds the row delays his successor, who is told whom to look for."""
    connection = base.connect()
    work(worker, base, connection, topic)
    with worker.transaction(connection) as transaction:
        assert transaction.get(topic, timeout=5) is not None
        other = connect("other")
        other.subscribe(topic)
        rival = base.connect()
        if base.kind == "postgresql":
            rival.execute("SELECT 1")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                rival.execute("SELECT * FROM oncemq_cursors FOR UPDATE")
            rival.rollback()
        else:
            with pytest.raises(oncemq.DatabaseBusy, match="held by another"), other.transaction(rival):
                raise AssertionError


def test_a_zombie_cannot_commit_an_effect(worker: oncemq.Client, base: Base, topic: str, tmp_path: Any) -> None:
    """Two directories, one id: the earlier one has a message in its memory, and must not count it."""
    zombie_connection, connection = base.connect(), base.connect()
    work(worker, base, zombie_connection, topic)
    broker = worker._session.address
    with oncemq.connect(broker, id=worker.id, state=tmp_path / "second", takeover=True) as successor:
        work(successor, base, connection, topic)
        with pytest.raises(oncemq.Fenced):
            work(worker, base, zombie_connection, topic)
        work_all(successor, base, connection, topic)
    assert base.effects() == ALL


def test_the_row_wins_when_the_database_is_older(worker: oncemq.Client, connect: Connect, base: Base) -> None:
    """A restored database reads on from its cursor, as long as the broker still has the messages."""
    topic = "kept-" + worker.id
    worker.admin.create_topic(topic, retain="forever")
    worker.subscribe(topic, start="earliest")
    connect("another").put_many(topic, ALL)
    connection = base.connect()
    work_all(worker, base, connection, topic)
    connection.execute("DELETE FROM effects WHERE value <> '0'")
    connection.execute("UPDATE oncemq_cursors SET next_offset = 1, start_id = '', append_number = 0")
    connection.commit()
    work_all(worker, base, connection, topic)
    assert base.effects() == ALL


def test_a_missing_row_is_the_start_of_the_subscription_never_its_cursor(
    worker: oncemq.Client, connect: Connect, base: Base
) -> None:
    topic = "kept-" + worker.id
    worker.admin.create_topic(topic, retain="forever")
    worker.subscribe(topic, start="earliest")
    connect("another").put_many(topic, ALL)
    work_all(worker, base, base.connect(), topic)
    connection = base.connect()
    connection.execute("DELETE FROM oncemq_cursors")
    connection.execute("DELETE FROM effects")
    connection.commit()
    work_all(worker, base, connection, topic)
    assert base.effects() == ALL


def test_puts_inside_are_refused(worker: oncemq.Client, base: Base, topic: str) -> None:
    connection = base.connect()
    worker.put(topic, b"5", wait=False)
    with worker.transaction(connection) as transaction:
        for call in (
            lambda: transaction.put(topic, b"x"),
            lambda: worker.put(topic, b"x"),
            lambda: worker.put(topic, b"x", wait=False),
            lambda: worker.put_many(topic, [b"x"]),
            lambda: worker.receive(topic),
            worker.transaction,
        ):
            with pytest.raises(oncemq.UsageError):
                call()
    worker.put(topic, b"6")
    work_all(worker, base, connection, topic)
    assert base.effects() == [*ALL, b"5", b"6"]


def test_several_topics_in_one_transaction(connect: Connect, worker: oncemq.Client, base: Base, topic: str) -> None:
    other = topic + "-too"
    worker.subscribe(other)
    connect("more").put(other, b"5")
    connection = base.connect()
    with worker.transaction(connection, table="places") as transaction:
        for name in (topic, other):
            message = transaction.get(name, timeout=5)
            assert message is not None
            base.add(connection, message.value)
    assert base.effects() == [b"0", b"5"]
    assert sorted(connection.execute("SELECT next_offset FROM places").fetchall()) == [(1,), (1,)]
    connection.execute("DROP TABLE places")
    connection.commit()


def test_waiting_for_a_message_does_not_lock_others_out(worker: oncemq.Client, base: Base, topic: str) -> None:
    connection, other = base.connect(), base.connect()
    work_all(worker, base, connection, topic)
    database = database_of(connection)
    seen: list[int] = []
    feed_wait = worker._effects.feed(topic).wait

    def wait(timeout_ms: int | None) -> bool:
        base.add(other, b"9")  # Somebody else writes to the same database meanwhile.
        other.commit()
        seen.append(1)
        return feed_wait(timeout_ms)

    worker._effects.feed(topic).wait = wait  # type: ignore[method-assign]
    with worker.transaction(connection) as transaction:
        assert transaction.get(topic, timeout=0) is None
    assert seen
    assert isinstance(database, Database)
    assert base.effects() == [*ALL, b"9"]


# --- which connections ------------------------------------------------------------------------------


def test_a_connection_that_is_not_known_is_refused_with_the_interface(worker: oncemq.Client) -> None:
    with pytest.raises(oncemq.UnsupportedDatabase, match=r"builtins\.object.*begin.*release"):
        worker.transaction(object())


def test_a_connection_that_was_never_opened_is_told(worker: oncemq.Client, topic: str) -> None:
    """None was as good as no connection: the transaction was the broker's own, and the effects were not part of it."""
    with pytest.raises(oncemq.UsageError, match=r"connection is None: open it before client\.transaction\(connection\)"):
        worker.transaction(None)
    with worker.transaction() as transaction:
        message = transaction.get(topic, timeout=5)
    assert message is not None and message.value == b"0"


@pytest.mark.parametrize("table", ["", "a b", "x; DROP TABLE y", "1st", "ä"])
def test_a_table_needs_a_plain_name(worker: oncemq.Client, tmp_path: Any, table: str) -> None:
    base = sqlite_base(tmp_path / "a.db")
    with pytest.raises(oncemq.UsageError, match="is not valid: use ASCII letters, digits"):
        worker.transaction(base.connect(), table=table)
    base.close()


@pytest.mark.parametrize("table", ["select", "Table", "order"])
def test_a_table_cannot_have_the_name_of_a_word_of_sql(worker: oncemq.Client, base: Base, topic: str, table: str) -> None:
    connection = base.connect()
    refused = pytest.raises(oncemq.UsageError, match=f"{table!r} .* for example 'oncemq_{table}'")
    with refused, worker.transaction(connection, table=table):
        raise AssertionError
    work_all(worker, base, connection, topic)
    assert base.effects() == ALL


def test_a_name_that_sqlite_keeps_for_itself_is_refused(worker: oncemq.Client, tmp_path: Any) -> None:
    base = sqlite_base(tmp_path / "a.db")
    refused = pytest.raises(oncemq.UsageError, match="for example 'oncemq_sqlite_places'")
    with refused, worker.transaction(base.connect(), table="sqlite_places"):
        raise AssertionError
    base.close()


@pytest.mark.parametrize(
    ("pragma", "reason"),
    [
        ("PRAGMA synchronous = OFF", "OFF"),
        ("PRAGMA synchronous = NORMAL", "NORMAL"),
        ("PRAGMA journal_mode = MEMORY", "journal_mode"),
    ],
)
def test_settings_that_may_lose_a_commit_must_be_said_aloud(
    worker: oncemq.Client, tmp_path: Any, topic: str, pragma: str, reason: str
) -> None:
    base = sqlite_base(tmp_path / "a.db")
    connection = base.connect()
    connection.execute(pragma)
    with pytest.raises(oncemq.NotDurable, match=reason), worker.transaction(connection):
        raise AssertionError
    with worker.transaction(connection, durable=False) as transaction:
        assert transaction.get(topic, timeout=5) is not None
    base.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_said_once_it_does_not_count_for_the_next_transaction(
    worker: oncemq.Client, request: pytest.FixtureRequest, tmp_path: Any, topic: str, kind: str
) -> None:
    """Neither for a table that is there already, nor for a setting that was strong when it was last looked at."""
    base = sqlite_base(tmp_path / "a.db") if kind == "sqlite" else postgresql_base(request.getfixturevalue("server"))
    connection = base.connect(autocommit=True)
    setting = "PRAGMA synchronous =" if kind == "sqlite" else "SET synchronous_commit ="
    assert work(worker, base, connection, topic) == b"0"
    connection.execute(f"{setting} OFF")
    with worker.transaction(connection, durable=False) as transaction:
        assert transaction.get(topic, timeout=5) is not None
    for options in ({}, {"durable": True}, {}):
        with pytest.raises(oncemq.NotDurable), worker.transaction(connection, **options):
            raise AssertionError
    connection.execute(f"{setting} {'FULL' if kind == 'sqlite' else 'ON'}")
    assert work(worker, base, connection, topic) == b"2"
    base.close()


@pytest.mark.real
def test_a_postgresql_without_synchronous_commit_must_be_said_aloud(worker: oncemq.Client, server: str) -> None:
    base = postgresql_base(server)
    connection = base.connect()
    connection.execute("SET synchronous_commit = off")
    connection.commit()
    with pytest.raises(oncemq.NotDurable, match="synchronous_commit"), worker.transaction(connection):
        raise AssertionError
    base.close()


@pytest.mark.real
def test_a_commit_without_an_answer_is_looked_up_on_another_connection(worker: oncemq.Client, server: str, topic: str) -> None:
    """The server ends our connection as we commit: the row says whether it happened."""
    base = postgresql_base(server)
    connection, killer = base.connect(), base.connect(autocommit=True)
    with pytest.raises(psycopg.OperationalError), worker.transaction(connection) as transaction:
        message = transaction.get(topic, timeout=5)
        assert message is not None
        base.add(connection, message.value)
        commit = connection.commit

        def cut() -> None:
            killer.execute("SELECT pg_terminate_backend(%s, 60000)", (connection.info.backend_pid,))
            commit()

        connection.commit = cut
    assert base.effects() == []
    connection = base.connect()
    with worker.transaction(connection) as transaction:
        message = transaction.get(topic, timeout=5)
        assert message is not None
        base.add(connection, message.value)
        really = connection.commit

        def late() -> None:
            really()
            raise psycopg.OperationalError("the answer was lost")

        connection.commit = late
    assert base.effects() == [b"0"], "it had happened"
    work_all(worker, base, base.connect(), topic)
    assert base.effects() == ALL
    base.close()


@pytest.mark.parametrize("step", ["begin", "release", "commit"])
def test_an_interrupt_leaves_no_transaction_open(
    worker: oncemq.Client, tmp_path: Any, topic: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends it, the application's connection is free again, and the message comes again."""
    base = sqlite_base(tmp_path / "a.db")
    connection = base.connect()
    work(worker, base, connection, topic)
    really = getattr(SqliteDatabase, step)

    def interrupted(self: SqliteDatabase) -> None:
        if step == "begin":
            really(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SqliteDatabase, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            work(worker, base, connection, topic)
    assert not connection.in_transaction
    work_all(worker, base, connection, topic)
    assert base.effects() == ALL
    base.close()

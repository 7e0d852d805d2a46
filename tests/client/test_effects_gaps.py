# SPDX-License-Identifier: Apache-2.0
"""transaction(connection) at a gap: told once, accepted by going on, and never passed over in silence (H30)."""

from __future__ import annotations

from typing import Any

import pytest

import oncemq
from oncemq.core.packets import Get
from tests.client.conftest import Connect
from tests.client.databases import Base, sqlite_base
from tests.client.test_effects import work, work_all


def test_what_the_broker_no_longer_has_is_a_gap_that_can_be_accepted(
    worker: oncemq.Client, connect: Connect, base: Base, topic: str
) -> None:
    """H30: under interest retention an old database meets a Gap; going on inside the block accepts it, and so does a next one."""
    connection = base.connect()
    _meet_a_gap(worker, connect("later"), base, connection, topic)
    with worker.transaction(connection) as transaction, pytest.raises(oncemq.Gap) as accepted:
        transaction.get(topic, timeout=0)
    assert _rows(connection) == [(accepted.value.end,)]
    _set_row_back(connection)
    with pytest.raises(oncemq.Gap), worker.transaction(connection) as transaction:
        transaction.get(topic, timeout=0)
    assert _rows(connection) == [(0,)]
    work_all(worker, base, connection, topic)
    assert _rows(connection) == [(8,)]


def test_a_gap_that_a_busy_database_kept_from_the_application_is_told_by_the_next_transaction(
    worker: oncemq.Client, connect: Connect, tmp_path: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = sqlite_base(tmp_path / "application.db")
    connection, other = base.connect(), base.connect(autocommit=True)
    _meet_a_gap(worker, connect("later"), base, connection, topic)
    ask = worker._session.get_blocks

    def while_somebody_writes(packet: Get) -> Any:
        other.execute("BEGIN IMMEDIATE")
        return ask(packet)

    with monkeypatch.context() as patch, pytest.raises(oncemq.DatabaseBusy), worker.transaction(connection) as transaction:
        patch.setattr(worker._session, "get_blocks", while_somebody_writes)
        transaction.get(topic, timeout=0)
    other.execute("ROLLBACK")
    with pytest.raises(oncemq.Gap), worker.transaction(connection) as transaction:
        transaction.get(topic, timeout=0)
    base.close()


def test_going_on_behind_a_gap_locks_nobody_out_and_accepts_it_even_without_a_message(
    worker: oncemq.Client, connect: Connect, tmp_path: Any, topic: str
) -> None:
    base = sqlite_base(tmp_path / "application.db")
    connection, other = base.connect(), base.connect()
    _meet_a_gap(worker, connect("later"), base, connection, topic)
    with pytest.raises(oncemq.Gap) as told, worker.transaction(connection) as transaction:
        transaction.get(topic, timeout=0)

    def wait(_timeout_ms: int | None) -> bool:
        base.add(other, b"9")
        other.commit()
        return False

    worker._effects.feed(topic).wait = wait  # type: ignore[method-assign]
    with worker.transaction(connection) as transaction:
        assert transaction.get(topic, timeout=0) is None
    assert _rows(connection) == [(told.value.end,)]
    base.close()


def _meet_a_gap(worker: oncemq.Client, publisher: oncemq.Client, base: Base, connection: Any, topic: str) -> None:
    """Have a row that stands before what the broker still has."""
    work_all(worker, base, connection, topic)
    for number in range(5, 8):
        publisher.put(topic, b"%d" % number)
        work(worker, base, connection, topic)
    _until_trimmed(worker, topic)
    _set_row_back(connection)


def _set_row_back(connection: Any) -> None:
    connection.execute("UPDATE oncemq_cursors SET next_offset = 0, start_id = '', append_number = 0")
    connection.commit()


def _rows(connection: Any) -> list[tuple[int]]:
    rows: list[tuple[int]] = connection.execute("SELECT next_offset FROM oncemq_cursors").fetchall()
    connection.rollback()
    return rows


def _until_trimmed(client: oncemq.Client, topic: str) -> None:
    for _ in range(1_000):
        if client.admin.topics(topic)[0].low > 0:
            return
        client._session.clock.pause(10)
    raise AssertionError("nothing was trimmed")

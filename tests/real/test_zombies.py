# SPDX-License-Identifier: Apache-2.0
"""A paused process that goes on after its successor took over: it commits no effect, no acknowledgement (H8, H25, R16, R17).

The idea: two state directories, one id. The earlier process is stopped (SIGSTOP) with a message in its hands; the later one takes
over and does the work; then the earlier one is continued (SIGCONT), and what it was about to finish must not count.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import oncemq
from tests.client.databases import Base, postgresql, postgresql_base, sqlite_base
from tests.real.harness import Process, Stage, until

pytestmark = pytest.mark.real

PROGRAM = Path(__file__).with_name("zombie.py")
VALUES = [b"0", b"1", b"2", b"3", b"4"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as uri:
        yield uri


@pytest.fixture(params=["sqlite", "postgresql"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    is_sqlite = request.param == "sqlite"
    found = sqlite_base(tmp_path / "application.db") if is_sqlite else postgresql_base(request.getfixturevalue("server"))
    yield found
    found.close()


class Zombie:
    """The earlier process: stopped with its second message in hand, until it is continued."""

    def __init__(self, stage: Stage, mode: str, database: str = "") -> None:
        self.facts = stage.facts("zombie")
        self._gate = stage.directory / "gate"
        places = [stage.directory / "first.state", self.facts.path, self._gate]
        command = [str(PROGRAM), mode, stage.broker.address, *map(str, places), database]
        self.process = Process(command, stage.directory / "zombie.log")

    def pause(self) -> None:
        until(lambda: self.facts.has("inside") or not self.process.is_alive, "it has its second message")
        assert self.process.is_alive, self.process.log
        self.process.signal(signal.SIGSTOP)

    def go_on(self) -> str:
        """Let it finish what it had begun; return what it was told in the end."""
        self._gate.touch()
        self.process.signal(signal.SIGCONT)
        self.process.wait_for_success()
        ((told,),) = self.facts.rows("told")
        return told

    def done(self) -> list[str]:
        return [row[0] for row in self.facts.rows("done")]


@contextmanager
def paused(stage: Stage, mode: str, database: str = "") -> Iterator[Zombie]:
    with stage.client() as publisher:
        publisher.admin.create_topic("effects", retain="forever")
        with oncemq.connect(stage.broker.address, id="worker", state=stage.directory / "first.state") as first:
            first.subscribe("t")
        publisher.put_many("t", VALUES)
    earlier = Zombie(stage, mode, database)
    try:
        earlier.pause()
        yield earlier
    finally:
        earlier.process.close()


def successor(stage: Stage) -> oncemq.Client:
    return oncemq.connect(stage.broker.address, id="worker", state=stage.directory / "second.state", takeover=True)


def cursor(stage: Stage) -> int:
    with stage.client() as client:
        (row,) = client.admin.subscriptions("t")
        return row.info.cursor


def test_a_zombie_cannot_acknowledge_what_it_got(stage: Stage) -> None:
    with paused(stage, "get") as earlier:
        with successor(stage) as later:
            with pytest.raises(oncemq.InDoubt):
                later.get("t", timeout=5)
            later.settle("t", "repeat")
            got = [later.get("t", timeout=5), later.get("t", timeout=5)]
            before = cursor(stage)
            assert earlier.go_on() == "Fenced"
            assert cursor(stage) == before, "the zombie moved nothing"
            got += later.get_many("t", 9, timeout=5)
        assert [message.value for message in got if message is not None] == VALUES


def test_a_zombie_cannot_acknowledge_what_it_received(stage: Stage) -> None:
    with paused(stage, "receive") as earlier:
        with successor(stage) as later, later.receive("t", timeout=5) as message:
            assert message is not None
            assert message.value == b"1", "the broker had been told of the first"
            assert earlier.go_on() == "Fenced"
            assert cursor(stage) == 1
        assert (cursor(stage), earlier.done()) == (2, ["0"])


def test_a_zombie_cannot_commit_what_it_consumed_and_produced(stage: Stage) -> None:
    with paused(stage, "broker") as earlier, successor(stage) as later:
        with later.transaction() as transaction:
            for message in transaction.get_many("t", 9, timeout=5):
                transaction.put("effects", b"later " + message.value)
        assert earlier.go_on() == "Fenced"
        assert stage.stored("effects") == ["0", "later 1", "later 2", "later 3", "later 4"]


def book(client: oncemq.Client, base: Base, connection: Any) -> None:
    with client.transaction(connection) as transaction:
        for message in transaction.get_many("t", 9, timeout=5):
            base.add(connection, message.value)


def test_a_zombie_cannot_commit_an_effect(stage: Stage, base: Base) -> None:
    """Stopped between two transactions, with messages that were fetched ahead in its memory."""
    with paused(stage, f"{base.kind}-outside", base.where) as earlier, successor(stage) as later:
        book(later, base, base.connect())
        assert base.effects() == VALUES
        assert earlier.go_on() == "Fenced"
        assert (base.effects(), earlier.done()) == (VALUES, ["0"])


def test_h08_a_zombie_that_holds_the_row_makes_its_successor_wait_and_is_named(stage: Stage, base: Base) -> None:
    """Stopped inside a transaction: nobody else can commit meanwhile, so what it then commits counts, once."""
    with paused(stage, f"{base.kind}-inside", base.where) as earlier, successor(stage) as later:
        connection = base.connect()
        with pytest.raises(oncemq.DatabaseBusy, match=f"process {earlier.process.pid} on"):
            book(later, base, connection)
        assert base.effects() == VALUES[:1]
        assert earlier.go_on() == "Fenced", "told when it next asks the broker, with what it had fetched ahead done"
        book(later, base, connection)
        assert base.effects() == VALUES, "the row says what is done, whoever did it"

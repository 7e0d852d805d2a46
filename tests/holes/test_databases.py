# SPDX-License-Identifier: Apache-2.0
"""Holes of a database that keeps the place, and of a client without threads: a lost commit (H30), nobody retries (H31)."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

import pytest

from oncemq.client.client import Client
from oncemq.core.packets import Put
from oncemq.errors import Gap, OutboxFull
from oncemq.journal.journal import JournalSettings
from oncemq.limits import MIB
from oncemq.sim.network import DROP
from oncemq.sim.world import World
from tests.holes.helpers import SECOND_US, meddle, number, started, stored_values

HOUR_MS = 3_600_000


def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE effects (number INTEGER PRIMARY KEY, value BLOB)")
    connection.commit()
    return connection


def book(client: Client, connection: sqlite3.Connection) -> bytes | None:
    with client.transaction(connection, durable=False) as transaction:
        message = transaction.get("t", timeout=0)
        if message is None:
            return None
        connection.execute("INSERT INTO effects (value) VALUES (?)", (message.value,))
        return message.value


def effects(connection: sqlite3.Connection) -> list[bytes]:
    return [value for (value,) in connection.execute("SELECT value FROM effects ORDER BY number").fetchall()]


def filled(world: World, count: int) -> Client:
    """A subscriber, and messages in a block each, so that each can be trimmed."""
    worker = world.connect("worker")
    worker.subscribe("t")
    with world.connect("pub") as pub:
        for value in number(count):
            pub.put("t", value)
    return worker


def low(world: World) -> int:
    with world.connect() as reader:
        return reader.admin.topics("t")[0].low


@pytest.mark.parametrize("lost", [1, 3])
def test_h30_the_broker_is_told_one_transaction_late_so_a_lost_commit_meets_no_gap(lost: int) -> None:
    """R16: a database may come back without its last commit. With more of them gone, what is gone with them is told."""
    world = started()
    connection = database()

    def script() -> None:
        worker = filled(world, 60)
        images = []
        for _ in range(50):
            images.append(connection.serialize())
            book(worker, connection)
        world.crash_client(worker)
        world.clock.pause(20_000)
        with world.connect("worker") as idle:
            idle.subscriptions()
        world.clock.pause(20_000)
        connection.deserialize(images[-lost])
        again = world.connect("worker")
        told = []
        while len(effects(connection)) + len(told) < 60:
            try:
                assert book(again, connection) is not None
            except Gap as gap:
                told += range(gap.first, gap.end)
        assert told == ([] if lost == 1 else list(range(47, low(world))))
        assert effects(connection) == [value for value in number(60) if int(value) not in told]
        again.close()

    world.run(script, limit_us=3_600 * SECOND_US)


def test_h31_between_two_calls_nothing_is_retried_and_the_next_call_makes_up_for_it() -> None:
    world = started()

    def script() -> None:
        world.connect("sub").subscribe("t")
        client = world.connect("pub")
        meddle(world, Put, DROP)
        for value in number(1_000):
            client.put("t", value, wait=False)
        world.clock.pause(HOUR_MS)
        assert stored_values(world, "t") == [], "the only copy was lost, and nobody was there to send another"
        assert client.pending == 1_000
        assert client.flush() == 1_000
        assert stored_values(world, "t") == number(1_000)
        client.close()

    world.run(script, limit_us=8_000 * SECOND_US)


def test_h31_close_tries_for_a_while_and_reports_what_stays() -> None:
    world = started()

    def script() -> None:
        world.connect("sub").subscribe("t")
        client = world.connect("pub")
        client.put("t", b"0", wait=False)
        meddle(world, Put, DROP, times=1_000)
        started_ms = world.clock.now().ticks_ms
        assert client.close() == 1
        assert 1_000 < world.clock.now().ticks_ms - started_ms < 60_000
        world.network.rule = started_rule
        with world.connect("pub") as again:
            assert again.pending == 1
            assert again.flush() == 1
        assert stored_values(world, "t") == [b"0"]

    started_rule = world.network.rule
    world.run(script)


@pytest.mark.parametrize("way", ["flush", "put", "collect"])
def test_a_full_outbox_refuses_and_lets_go_of_what_it_has_once_the_broker_is_back(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: the message that is refused was not taken; everything before it is sent later, in order, once."""
    monkeypatch.setattr("oncemq.client.state.OUTBOX_BYTES_MAX", 9 * MIB)
    monkeypatch.setattr("oncemq.core.publisher.PUT_WINDOW_BLOCKS", 4)
    world = started(settings=JournalSettings(segment_bytes=32 * MIB))

    def script() -> None:
        world.connect("sub").subscribe("t")
        client = world.connect("pub")
        meddle(world, Put, DROP, times=100_000)
        taken = put_until_full(client, 0)
        assert taken > 4_000
        world.network.rule = rule  # From now on everything arrives.
        match way:
            case "flush":
                assert client.flush() == taken
            case "put":
                assert client.put("t", value_of(taken)).offset == taken
                taken += 1
            case _:
                while True:
                    with suppress(OutboxFull):
                        client.put("t", value_of(taken), wait=False)
                        taken += 1
                        break
                    world.clock.pause(1_000)
                client.flush()
        assert [message[:6] for message in stored_values(world, "t")] == [b"%06d" % each for each in range(taken)]
        client.close()

    rule = world.network.rule
    world.run(script, limit_us=600 * SECOND_US)


def test_closing_a_full_outbox_tells_that_what_was_only_collected_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: close() counted it among what stays, and it was gone without a word."""
    monkeypatch.setattr("oncemq.client.state.OUTBOX_BYTES_MAX", 9 * MIB)
    world = started(settings=JournalSettings(segment_bytes=32 * MIB))

    def script() -> None:
        world.connect("sub").subscribe("t")
        client = world.connect("pub")
        meddle(world, Put, DROP, times=100_000)
        taken = put_until_full(client, 0)
        kept = sum(block.messages for block in client.outbox())
        assert 0 < kept < taken
        with pytest.raises(OutboxFull):
            client.close()
        assert client.close() == 0
        world.network.rule = rule
        with world.connect("pub") as again:
            assert again.pending == kept
            assert again.flush() == kept
        assert [message[:6] for message in stored_values(world, "t")] == [b"%06d" % each for each in range(kept)]

    rule = world.network.rule
    world.run(script, limit_us=600 * SECOND_US)


def value_of(index: int) -> bytes:
    return (b"%06d" % index).ljust(1_000, b".")


def put_until_full(client: Client, taken: int) -> int:
    with pytest.raises(OutboxFull, match=r"of 9,437,184 bytes: wait until the broker is back and flush\(\)"):
        while True:
            client.put("t", value_of(taken), wait=False)
            taken += 1
    return taken

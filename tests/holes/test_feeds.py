# SPDX-License-Identifier: Apache-2.0
"""Subscriptions whose place is kept elsewhere: damage is told until it is settled, a gap once, and what is ended is let go."""

from __future__ import annotations

import gc
import sqlite3
import weakref
from collections.abc import Callable

import pytest

from oncemq.client.client import Client
from oncemq.errors import Damaged, Gap
from oncemq.sim.world import World
from tests.holes.helpers import number, started
from tests.holes.test_transactions import flip_value, taken

WAYS = ["receive", "transaction", "database"]


def all_taken(client: Client, way: str, connection: sqlite3.Connection, topic: str = "in") -> list[bytes]:
    """What comes until nothing does, one by one."""
    found = []
    while (value := taken(client, way, connection, topic)) is not None:
        found.append(value)
    return found


def with_damage(*bad: int) -> tuple[World, Client, list[Callable[[], None]]]:
    """Five messages in a block each, some of them damaged on the broker's disk, and who subscribes to them."""
    world = started()

    def script() -> tuple[Client, list[Callable[[], None]]]:
        worker = world.connect("worker")
        worker.subscribe("in")
        with world.connect("pub") as pub:
            for value in range(5):
                pub.put("in", b"message %d" % value)
        return worker, [flip_value(world, b"message %d" % each) for each in bad]

    worker, mended = world.run(script)
    return world, worker, mended


@pytest.mark.parametrize("way", WAYS)
def test_r19_damage_that_is_skipped_is_left_behind(way: str) -> None:
    """R19: its text says so. It was told for ever: whoever keeps the place elsewhere did not hear of it."""
    world, worker, _ = with_damage(0, 2, 4)
    connection = sqlite3.connect(":memory:")

    def script() -> None:
        told, found = [], []
        while len(told) < 4:
            try:
                found += [taken(worker, way, connection)]
            except Damaged as damage:
                told.append((damage.first, damage.end))
                worker.settle("in", "skip")
            if found[-1:] == [None]:
                break
        assert told == [(0, 1), (2, 3), (4, 5)]
        assert found == [b"message 1", b"message 3", None]
        assert taken(worker, way, connection) is None
        worker.close()
        again = world.connect("worker")
        assert taken(again, way, connection) is None
        again.close()

    world.run(script)


@pytest.mark.parametrize("choice", ["repeat", "skip"])
@pytest.mark.parametrize("way", WAYS)
def test_r19_damage_is_told_until_it_is_settled(way: str, choice: str) -> None:
    """R19: nobody goes on behind it by calling again, and "repeat" asks again."""
    world, worker, (put_right,) = with_damage(1)
    connection = sqlite3.connect(":memory:")

    def script() -> None:
        assert taken(worker, way, connection) == b"message 0"
        for _ in range(3):
            with pytest.raises(Damaged):
                taken(worker, way, connection)
        worker.settle("in", "repeat")
        with pytest.raises(Damaged):
            taken(worker, way, connection)
        if choice == "repeat":
            put_right()
        worker.settle("in", choice)
        behind = [b"message 2", b"message 3", b"message 4"]
        assert all_taken(worker, way, connection) == ([b"message 1", *behind] if choice == "repeat" else behind)
        worker.close()

    world.run(script)


@pytest.mark.parametrize("way", WAYS)
def test_r19_what_was_damaged_and_was_read_since_is_not_skipped(way: str) -> None:
    """R19: what settle() is said of is what stands in the way now, and that is nothing."""
    world, worker, (put_right,) = with_damage(0)
    connection = sqlite3.connect(":memory:")

    def script() -> None:
        with pytest.raises(Damaged):
            taken(worker, way, connection)
        put_right()
        with pytest.raises(KeyError):
            given_back(worker, way, connection)
        worker.settle("in", "skip")
        assert taken(worker, way, connection) == b"message 0"
        worker.close()

    world.run(script)


def given_back(client: Client, way: str, connection: sqlite3.Connection) -> None:
    """A message of "in" that the application could not handle."""
    if way == "receive":
        with client.receive("in", timeout=0) as message:
            raise KeyError(message)
    with client.transaction(connection, durable=False) if way == "database" else client.transaction() as transaction:
        raise KeyError(transaction.get("in", timeout=0))


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("way", ["transaction", "database"])
def test_r19_damage_behind_what_a_transaction_read_is_settled_once(way: str, is_inside: bool) -> None:
    """Whoever reads the same again, because the transaction was undone, is not told of the same damage again."""
    world, worker, _ = with_damage(1, 3)
    connection = sqlite3.connect(":memory:")

    def attempt(wanted: int) -> list[bytes]:
        found: list[bytes] = []
        with worker.transaction(connection, durable=False) if way == "database" else worker.transaction() as transaction:
            while len(found) < wanted:
                try:
                    message = transaction.get("in", timeout=0)
                except Damaged:
                    if not is_inside:
                        raise
                    worker.settle("in", "skip")
                else:
                    assert message is not None
                    found.append(message.value)
        return found

    def script() -> None:
        for _ in range(0 if is_inside else 2):
            with pytest.raises(Damaged):
                attempt(3)
            worker.settle("in", "skip")
        assert attempt(3) == [b"message 0", b"message 2", b"message 4"]
        assert taken(worker, way, connection) is None
        worker.close()

    world.run(script)


def cut_off(world: World) -> Client:
    """A subscriber who was away for longer than the limit, and a message behind what is gone. Inside `run`."""
    worker = world.connect("sub")
    with world.connect("pub") as pub:
        pub.admin.create_topic("t", limit="10s")
        worker.subscribe("t")
        pub.put_many("t", number(2000))
        world.clock.pause(100_000)
        pub.put("t", b"behind")
    return worker


@pytest.mark.parametrize("way", WAYS)
def test_r10_a_gap_is_told_once_and_not_again_because_the_block_was_left_with_it(way: str) -> None:
    """R10: a worker that logs it and begins again goes on behind it. It was told for ever in transactions."""
    world = started()
    connection = sqlite3.connect(":memory:")

    def script() -> None:
        worker = cut_off(world)
        with pytest.raises(Gap) as told:
            taken(worker, way, connection, "t")
        assert all_taken(worker, way, connection, "t")[-1:] == [b"behind"]
        assert told.value.first == 0
        worker.close()
        again = world.connect("sub")
        assert taken(again, way, connection, "t") is None
        again.close()

    world.run(script)


def test_r10_a_database_that_goes_back_before_a_gap_is_told_of_it_again() -> None:
    """Once for each time that it is in the way: a restored database has lost what it was told, too."""
    world = started()
    connection = sqlite3.connect(":memory:")

    def script() -> None:
        worker = cut_off(world)
        for _ in range(2):
            with pytest.raises(Gap):
                taken(worker, "database", connection, "t")
            assert all_taken(worker, "database", connection, "t")[-1:] == [b"behind"]
            connection.execute("UPDATE oncemq_cursors SET next_offset = 0, start_id = '', append_number = 0")
            connection.commit()
        worker.close()

    world.run(script)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_kept_of_a_subscription_that_was_ended(way: str) -> None:
    """A process that subscribes for a while, again and again, would keep what it had fetched ahead each time."""
    world = started()
    connection = sqlite3.connect(":memory:")

    def script() -> None:
        with world.connect("worker") as worker, world.connect("pub") as pub:
            feeds = []
            for round_ in range(20):
                topic = f"t{round_ % 2}"
                worker.subscribe(topic)
                pub.put_many(topic, number(10))
                assert taken(worker, way, connection, topic) == b"0"
                feeds.append(weakref.ref(worker._gets.held[topic].feed))  # type: ignore[arg-type]
                worker.unsubscribe(topic)
            gc.collect()
            assert {feed() for feed in feeds} == {None}
            assert (worker._gets.held, worker._gets._by_topic_id) == ({}, {})

    world.run(script)


def test_nothing_is_kept_of_a_subscription_that_ended_while_it_was_listened_to() -> None:
    world = started()

    def script() -> None:
        with world.connect("worker") as worker, world.connect("pub") as pub:
            for round_ in range(20):
                worker.subscribe(f"t{round_}")
                pub.put(f"t{round_}", b"0")
                with worker.listen(f"t{round_}") as listener:
                    assert listener.next(5) is not None
                    worker.unsubscribe(f"t{round_}")
            assert (worker._live._followers, worker._live._listeners) == ({}, {})

    world.run(script)

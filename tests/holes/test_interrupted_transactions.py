# SPDX-License-Identifier: Apache-2.0
"""Exceptions out of nowhere inside receive, transactions, database transactions and listeners: effects stay one per message.

The idea: as in test_interrupted.py: interrupt at the first line, the second, and so on, and go on as an application would. What
an interrupted block had not finished is given again; what it had is not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress

import pytest

from oncemq.client.client import Client
from oncemq.errors import NotCommitted
from oncemq.sim.world import World
from tests.holes.helpers import number, started, stored_values
from tests.holes.test_interrupted import at_every_line, with_subscriber

COUNT = 4000


def filled(world: World) -> Client:
    """A subscriber of a topic with many messages in small blocks."""
    sub = with_subscriber(world)
    with world.connect("pub") as pub:
        for first in range(0, COUNT, 7):
            pub.put_many("t", number(min(7, COUNT - first), first))
    return sub


def test_a_receive_interrupted_at_any_line_gives_again_or_is_done() -> None:
    """G6: a block that was left without an exception is done; a message is never passed over, and none comes out of order."""
    world = started()

    def script() -> None:
        sub = filled(world)
        left: list[bytes] = []
        entered: list[bytes] = []

        def receive() -> None:
            with sub.receive("t", timeout=0) as message:
                assert message is not None
                entered.append(message.value)
            left.append(message.value)

        points = at_every_line(receive, go_on=receive)
        assert points > 60
        assert len(left) == len(set(left)), "what was left in peace is not given again"
        seen = list(dict.fromkeys(entered))
        assert seen == number(len(seen)), "nothing is passed over"
        receive()
        sub.close()

    world.run(script)


def test_a_transaction_interrupted_at_any_line_produces_once_for_each_message() -> None:
    """G6: whatever the interruption leaves unknown is found out before the next."""
    world = started()

    def script() -> None:
        sub = filled(world)
        with world.connect("other") as other:
            other.subscribe("out")

        def relay() -> None:
            with sub.transaction() as transaction:
                for message in transaction.get_many("t", 3, timeout=0):
                    transaction.put("out", message.value)

        def go_on() -> None:
            with suppress(NotCommitted):
                relay()

        assert at_every_line(relay, go_on=go_on) > 100
        relay()
        produced = stored_values(world, "out")
        assert produced == number(len(produced))
        assert len(produced) > 100
        sub.close()

    world.run(script)


def test_a_database_transaction_interrupted_at_any_line_has_one_effect_for_each_message() -> None:
    """G5: effect and place together, and the connection is free for the next transaction."""
    world = started()
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE effects (number INTEGER PRIMARY KEY, value BLOB)")
    connection.commit()

    def script() -> None:
        sub = filled(world)

        def book() -> None:
            with sub.transaction(connection, durable=False) as transaction:
                for message in transaction.get_many("t", 3, timeout=0):
                    connection.execute("INSERT INTO effects (value) VALUES (?)", (message.value,))

        assert at_every_line(book, go_on=book) > 100
        book()
        effects = [value for (value,) in connection.execute("SELECT value FROM effects ORDER BY number").fetchall()]
        assert effects == number(len(effects))
        assert len(effects) > 100
        sub.close()

    world.run(script)


@pytest.mark.parametrize("how", ["messages", "blocks"])
def test_a_listener_interrupted_at_any_line_loses_and_repeats_nothing(how: str) -> None:
    """G3: what an interrupted step had not returned comes next."""
    world = started()

    def script() -> None:
        sub = filled(world)
        got: list[bytes] = []
        listener = sub.listen("t") if how == "messages" else sub.listen_blocks("t")

        def step() -> None:
            taken = listener.next(timeout=0)
            if taken is not None:
                got.extend([taken.value] if how == "messages" else taken.values)

        for _ in range(3 if how == "blocks" else 9):
            assert at_every_line(step, go_on=step) > 20
        drain(step, got)
        assert got == number(COUNT)
        step()  # Finishes the last.
        sub.close()
        with world.connect("sub") as again:
            assert again.get("t", timeout=0) is None

    world.run(script)


def drain(step: Callable[[], None], got: list[bytes]) -> None:
    while len(got) < COUNT:
        before = len(got)
        step()
        assert len(got) > before

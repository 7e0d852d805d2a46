# SPDX-License-Identifier: Apache-2.0
"""Tasks that mix: two on one transaction, one inside another's block, and tasks that a block starts. Told at once, and nothing is
given twice or passed over."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest

import oncemq
from tests.client.test_async import Play, Turn, play
from tests.client.test_async_turns import _books

__all__ = ["play"]


async def _turns() -> None:
    for _ in range(9):
        await Turn()


@pytest.fixture(params=["broker", "database"])
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[oncemq.AsyncClient], Any]:
    """Either kind of transaction."""
    if request.param == "broker":
        return lambda client: client.transaction()
    books: sqlite3.Connection = _books(tmp_path)
    request.addfinalizer(books.close)
    return lambda client: client.transaction(books)


async def _got(client: oncemq.AsyncClient, begin: Callable[[oncemq.AsyncClient], Any], topic: str) -> list[bytes]:
    """What transactions are given, one after the other, until nothing is left."""
    found: list[bytes] = []
    while True:
        async with begin(client) as transaction:
            message = await transaction.get(topic, timeout=0)
        if message is None:
            return found
        found.append(message.value)


def test_two_tasks_do_not_get_from_one_transaction_at_once(play: Play, begin: Callable[[oncemq.AsyncClient], Any]) -> None:
    """The one that was cancelled gave back what the other had been given, and it came again."""

    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            async with begin(client) as transaction:
                slow = asyncio.create_task(transaction.get(topic))
                await _turns()
                with pytest.raises(oncemq.UsageError, match="one after the other"):
                    await transaction.get(topic, timeout=5)
                slow.cancel()
                await asyncio.wait((slow,))
                other = await connect("other")
                await other.put_many(topic, [b"0", b"1", b"2"])
                await other.close()
                assert [(await transaction.get(topic, timeout=5)).value for _ in range(2)] == [b"0", b"1"]
            assert await _got(client, begin, topic) == [b"2"]

    play(script)


@pytest.mark.parametrize("trouble", [None, ZeroDivisionError])
def test_a_block_is_not_left_while_another_task_waits_for_its_messages(
    play: Play, begin: Callable[[oncemq.AsyncClient], Any], trouble: type[Exception] | None
) -> None:
    """Nothing of it happens; and who waits on takes nothing from whoever reads the topic by then."""

    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client, await connect("other") as other:
            await client.subscribe(topic)
            await client.put_many(topic, [b"0", b"1"])
            slow: asyncio.Task[Any] | None = None
            with pytest.raises(trouble or oncemq.UsageError):
                async with begin(client) as transaction:
                    assert len(await transaction.get_many(topic, timeout=5)) == 2
                    slow = asyncio.create_task(transaction.get(topic))
                    await _turns()
                    if trouble is not None:
                        raise trouble
            assert await _got(client, begin, topic) == [b"0", b"1"]
            await other.put_many(topic, [b"2", b"3"])
            with pytest.raises(oncemq.UsageError, match="is over"):
                await slow  # type: ignore[misc]
            assert await _got(client, begin, topic) == [b"2", b"3"]

    play(script)


def test_a_get_that_is_cancelled_after_its_block_was_left_gives_nothing_back(
    play: Play, begin: Callable[[oncemq.AsyncClient], Any]
) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            with pytest.raises(ZeroDivisionError):
                async with begin(client) as transaction:
                    slow = asyncio.create_task(transaction.get(topic))
                    await _turns()
                    raise ZeroDivisionError
            await client.put_many(topic, [b"0", b"1"])
            async with begin(client) as transaction:
                assert (await transaction.get(topic, timeout=5)).value == b"0"
                slow.cancel()
                await asyncio.wait((slow,))
                assert (await transaction.get(topic, timeout=5)).value == b"1"

    play(script)


def test_the_time_of_a_receive_is_over_while_another_task_has_the_turn(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            await client.put_many(topic, [b"0", b"1", b"2"])

            async def receive(timeout: float) -> bytes | None:
                async with client.receive(topic, timeout=timeout) as message:
                    return None if message is None else message.value

            async with client.receive(topic, timeout=5) as message:
                assert message is not None
                other = Context().run(asyncio.create_task, receive(0.05))
                assert await other is None
                assert await Context().run(asyncio.create_task, receive(0)) is None
                patient = Context().run(asyncio.create_task, receive(30))
                await _turns()
                cancelled = Context().run(asyncio.create_task, receive(30))
                await _turns()
                cancelled.cancel()
            assert message.value == b"0"
            assert await patient == b"1"
            assert await receive(0) == b"2"
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            assert await asyncio.gather(*[Context().run(asyncio.create_task, receive(0.2)) for _ in range(300)]) == [None] * 300
            assert loop.time() - started_s < 50, "not one after the other"

    play(script)


@pytest.mark.parametrize("how", ["itself", "wait_for", "gather"])
def test_a_receive_inside_another_of_the_topic_is_refused(play: Play, how: str) -> None:
    """It waited for itself, for ever."""

    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            await client.subscribe(topic + "-2")
            await client.put(topic, b"0")
            await client.put(topic + "-2", b"2")

            async def receive() -> None:
                async with client.receive(topic):
                    raise AssertionError

            async with client.receive(topic, timeout=5) as message:
                with pytest.raises(oncemq.UsageError, match="receiving from that topic"):
                    await _start(how, receive())
                async with client.receive(topic + "-2", timeout=5) as second:
                    assert (message.value, second.value) == (b"0", b"2")
            async with client.receive(topic, timeout=0) as message:
                assert message is None

    play(script)


async def _start(how: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
    match how:
        case "wait_for":
            return await asyncio.wait_for(coroutine, 30)
        case "gather":
            return await asyncio.gather(coroutine)
        case _:
            return await coroutine


@pytest.mark.parametrize("how", ["itself", "wait_for", "gather"])
def test_a_put_in_a_task_that_a_database_transaction_starts_is_refused(play: Play, tmp_path: Path, how: str) -> None:
    """On Python 3.11 wait_for makes a task of what it waits for, and the put was stored whatever became of the transaction."""

    async def script(connect: Any, topic: str) -> None:
        books = _books(tmp_path)
        async with await connect() as client:
            await client.subscribe(topic)
            async with client.transaction(books):
                for refused in (client.put(topic, b"no"), client.put(topic, b"no", wait=False), client.put_many(topic, [b"no"])):
                    with pytest.raises(oncemq.UsageError, match="cannot be part of a database transaction"):
                        await _start(how, refused)
                with pytest.raises(oncemq.UsageError, match="one transaction at a time"):
                    await _start(how, client.transaction().__aenter__())
                has_left = asyncio.Event()
                later = asyncio.create_task(_put_after(has_left, client, topic))
            has_left.set()
            assert (await later).offset == 0
        books.close()

    play(script)


async def _put_after(event: asyncio.Event, client: oncemq.AsyncClient, topic: str) -> Any:
    await event.wait()
    return await client.put(topic, b"after the block")

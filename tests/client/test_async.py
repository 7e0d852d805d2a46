# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: many tasks, cancellation at any point, the same promises (H14). A real broker, real sockets."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import oncemq

Result = TypeVar("Result")
DEADLINE_S = 60.0


@pytest.fixture
def play(broker: oncemq.Broker, tmp_path: Path, topic: str) -> Callable[[Callable[..., Awaitable[Result]]], Result]:
    """Run a coroutine with a function that connects durable clients by a short name, and a topic of its own."""

    def begin(script: Callable[..., Awaitable[Result]]) -> Result:
        async def connect(name: str = "one", **options: Any) -> oncemq.AsyncClient:
            return await oncemq.connect_async(broker.address, id=f"{name}-{topic}", state=tmp_path / name, **options)

        async def timed() -> Result:
            async with asyncio.timeout(DEADLINE_S):
                return await script(connect, topic)

        return asyncio.run(timed())

    return begin


class Turn:
    """Let the event loop go round once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


Play = Callable[[Callable[..., Awaitable[Any]]], Any]


def test_put_and_get(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            receipt = await client.put(topic, b"one", key=b"k", headers={"a": "b"})
            assert receipt.offset == 0
            assert len(await client.put_many(topic, [b"two", b"three"])) == 2
            await client.put(topic, b"four", wait=False)
            assert await client.flush() == 4
            message = await client.get(topic, timeout=5)
            assert (message.value, message.key, message.headers) == (b"one", b"k", {"a": "b"})
            assert [message.value for message in await client.get_many(topic, 9, timeout=5)] == [b"two", b"three", b"four"]
            await client.ack(topic)
            assert await client.get(topic, timeout=0) is None
            assert await client.subscriptions() == [topic]
            assert topic in {info.topic for info in await client.topics()}
            assert "AsyncClient" in repr(client)
            await client.unsubscribe(topic)
            assert client.pending == 0

    play(script)


def test_tasks_put_and_get_at_the_same_time(play: Play) -> None:
    """A get that waits does not keep a put of another task waiting, nor a get of another topic."""

    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            names = [f"{topic}-{number}" for number in range(5)]
            for name in names:
                await client.subscribe(name)
            waiting = [asyncio.create_task(client.get(name)) for name in names]
            await Turn()
            loop = asyncio.get_running_loop()
            started = loop.time()
            for name in reversed(names):
                await client.put(name, name.encode())
            assert [message.value.decode() for message in await asyncio.gather(*waiting)] == names
            assert loop.time() - started < DEADLINE_S / 10

    play(script)


def test_many_tasks_get_every_message_once(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            got: list[bytes] = []

            is_done = asyncio.Event()

            async def take() -> None:
                while (message := await client.get(topic, timeout=60)) is not None:
                    got.append(message.value)
                    if len(got) >= 200:
                        is_done.set()

            tasks = [asyncio.create_task(take()) for _ in range(4)]
            await asyncio.gather(*(client.put(topic, b"%d" % number) for number in range(200)))
            await asyncio.wait_for(is_done.wait(), 60)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert await client.get(topic, timeout=0) is None
            assert sorted(got, key=int) == [b"%d" % number for number in range(200)]

    play(script)


def test_a_short_get_is_answered_in_time_beside_one_that_waits(play: Play) -> None:
    """The broker keeps a Get for up to two seconds; a call that waits for less must not wait for that one's answer."""

    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            patient = asyncio.create_task(client.get(topic, timeout=60))
            while not client._client._gets.request:
                await Turn()
            assert await client.get(topic, timeout=0) is None
            await client.put(topic, b"late")
            assert (await patient).value == b"late"

    play(script)


def test_h14_a_cancelled_get_takes_nothing(play: Play) -> None:
    """Whenever the cancellation falls, before, while or after a message arrives, nothing is lost and nothing comes twice."""

    async def script(connect: Any, topic: str) -> None:
        random.seed(14)
        async with await connect("getter") as client, await connect("putter") as putter:
            await client.subscribe(topic)
            got: list[bytes] = []
            sent = 0
            while len(got) < 300:
                if sent < 300:
                    await putter.put(topic, b"%d" % sent, wait=sent % 7 == 0)
                    sent += 1
                task = asyncio.create_task(client.get(topic, timeout=5))
                for _ in range(random.randrange(6)):
                    await Turn()
                if random.random() < 0.7:
                    task.cancel()
                try:
                    message = await task
                except asyncio.CancelledError:
                    continue
                if message is not None:
                    got.append(message.value)
                if sent == 300:
                    await putter.flush()
            assert got == [b"%d" % number for number in range(300)]
            assert await client.get(topic, timeout=0) is None

    play(script)


def test_a_cancelled_put_is_stored_once_or_not_at_all(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        random.seed(15)
        async with await connect("getter") as client, await connect("putter") as putter:
            await client.subscribe(topic)
            confirmed: set[int] = set()
            for number in range(200):
                task = asyncio.create_task(putter.put(topic, b"%d" % number))
                for _ in range(random.randrange(4)):
                    await Turn()
                if random.random() < 0.5:
                    task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    continue
                confirmed.add(number)
            await putter.flush()
            found = [int(message.value) for message in await client.get_many(topic, 1000, timeout=5)]
            assert len(found) == len(set(found))
            assert confirmed <= set(found)
            assert found == sorted(found)

    play(script)


def test_async_for(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            await client.put_many(topic, [b"a", b"b", b"c"])
            got = []
            async for message in client.messages(topic):
                got.append(message.value)
                if len(got) == 3:
                    break
            assert got == [b"a", b"b", b"c"]

    play(script)


def test_receive_and_transactions(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client, await connect("reader") as reader:
            out = topic + "-out"
            await reader.subscribe(out)
            await client.subscribe(topic)
            await client.put_many(topic, [b"0", b"1", b"2"])
            async with client.receive(topic, timeout=5) as message:
                assert message.value == b"0"
            others = [asyncio.create_task(client.put(out, b"x%d" % number)) for number in range(20)]
            async with client.transaction() as transaction:
                message = await transaction.get(topic, timeout=5)
                transaction.put(out, b"did " + message.value)
            assert [receipt.stored for receipt in transaction.receipts] == [True]
            await asyncio.gather(*others)
            with pytest.raises(ZeroDivisionError):
                async with client.transaction() as transaction:
                    assert len(await transaction.get_many(topic, 2, timeout=5)) == 1
                    raise ZeroDivisionError
            async with client.receive(topic, timeout=5) as message:
                assert (message.value, message.attempt) == (b"2", 2)
            values = [message.value for message in await reader.get_many(out, 100, timeout=5)]
            assert len(values) == 21
            assert values.count(b"did 1") == 1

    play(script)


def test_effects_in_a_database(play: Play, tmp_path: Path) -> None:
    async def script(connect: Any, topic: str) -> None:
        connection = sqlite3.connect(tmp_path / "a.db")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE effects (value TEXT)")
        async with await connect() as client:
            await client.subscribe(topic)
            await client.put_many(topic, [b"0", b"1"])
            for _ in range(2):
                async with client.transaction(connection) as transaction:
                    message = await transaction.get(topic, timeout=5)
                    connection.execute("INSERT INTO effects VALUES (?)", (message.value.decode(),))
        assert connection.execute("SELECT value FROM effects").fetchall() == [("0",), ("1",)]
        connection.close()

    play(script)


def test_commands_of_many_tasks(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await asyncio.gather(*[client.subscribe(f"{topic}-{number}") for number in range(30)])
            assert len(await client.subscriptions()) == 30
            await asyncio.gather(*[client.unsubscribe(f"{topic}-{number}") for number in range(30)])
            assert await client.subscriptions() == []

    play(script)


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    async def script() -> None:
        address = "tcp://127.0.0.1:9"
        with pytest.raises(oncemq.BrokerUnreachable):
            await oncemq.connect_async(address, id="a", state=tmp_path / "a")
        client = await oncemq.connect_async(address, id="a", state=tmp_path / "a", offline=True)
        with pytest.raises(oncemq.PutPending):
            await client.put("t", b"kept")
        assert client.pending == 1
        assert await client.close() == 1

    asyncio.run(script())


def test_what_is_in_doubt_is_told(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        client = await connect()
        await client.subscribe(topic)
        await client.put_many(topic, [b"0", b"1"])
        await client.get(topic, timeout=5)
        await client.close()
        client = await connect()
        with pytest.raises(oncemq.InDoubt):
            await client.get(topic, timeout=5)
        assert [message.value for message in await client.in_doubt(topic)] == [b"0"]
        await client.settle(topic, "repeat")
        assert (await client.get(topic, timeout=5)).value == b"0"
        await client.close()

    play(script)


def test_tasks_that_receive_from_one_topic_take_turns_and_lose_nothing(play: Play) -> None:
    """A fast task that finishes 1 must not finish the 0 that a slow one still holds, and then fails on."""

    async def script(connect: Any, topic: str) -> None:
        client = await connect()
        await client.subscribe(topic)
        await client.put_many(topic, [b"%d" % number for number in range(4)])
        done: list[bytes] = []

        async def work(fails: int) -> None:
            async with client.receive(topic, timeout=5) as message:
                for _ in range(3):
                    await Turn()
                if message.attempt <= fails:
                    raise ZeroDivisionError
                done.append(message.value)

        found = await asyncio.gather(*[work(1 if number == 0 else 0) for number in range(4)], return_exceptions=True)
        assert [type(problem) for problem in found if problem] == [ZeroDivisionError]
        await client.close()
        client = await connect()
        while True:
            async with client.receive(topic, timeout=0) as message:
                if message is None:
                    break
                done.append(message.value)
        assert sorted(done) == [b"0", b"1", b"2", b"3"]
        await client.close()

    play(script)


def test_transactions_that_are_cancelled_while_others_put(play: Play) -> None:
    """Whatever is cancelled, the numbers of the stream are taken once: no put is refused, lost or doubled."""

    async def script(connect: Any, topic: str) -> None:
        random.seed(16)
        async with await connect() as client, await connect("reader") as reader:
            out = topic + "-out"
            await reader.subscribe(out)
            await client.subscribe(topic)
            await client.put_many(topic, [b"%d" % number for number in range(40)])

            async def transact() -> bool:
                async with client.transaction() as transaction:
                    message = await transaction.get(topic, timeout=1)
                    if message is not None:
                        transaction.put(out, b"t" + message.value)
                return message is not None

            count, goes_on = 0, True
            while goes_on:
                task = asyncio.create_task(transact())
                others = [asyncio.create_task(client.put(out, b"p%d" % (count + number))) for number in range(3)]
                count += 3
                for _ in range(random.randrange(12)):
                    await Turn()
                if random.random() < 0.5:
                    task.cancel()
                goes_on = await asyncio.gather(task, return_exceptions=True) != [False]
                assert all(receipt.stored for receipt in await asyncio.gather(*others))
            values = [message.value for message in await reader.get_many(out, 10_000, timeout=5)]
            assert sorted(value for value in values if value[:1] == b"t") == sorted(b"t%d" % number for number in range(40))
            assert sorted(value for value in values if value[:1] == b"p") == sorted(b"p%d" % number for number in range(count))

    play(script)

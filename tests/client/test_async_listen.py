# SPDX-License-Identifier: Apache-2.0
"""Listening on asyncio: pushed messages with `async for`, several listeners and gets at once, cancellation at any point (H14)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import oncemq
from tests.client.test_async import Play, Turn, play

__all__ = ["play"]


def test_messages_are_pushed_to_an_async_for(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client, await connect("putter") as putter:
            await client.subscribe(topic)
            listener = client.listen(topic, timeout=10)
            assert await listener.next(timeout=0) is None
            task = asyncio.create_task(putter.put_many(topic, [b"a", b"b", b"c"]))
            got = []
            async for message in listener:
                got.append(message.value)
                if len(got) == 3:
                    break
            await task
            assert got == [b"a", b"b", b"c"]
            listener.finish()
            listener.close()
            assert [message async for message in listener] == [], "a closed listener has ended"
            assert await client.get(topic, timeout=0) is None, "they were finished"

    play(script)


def test_a_listener_ends_after_its_time_and_gives_blocks_whole(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            await client.put_many(topic, [b"a", b"b"])
            async with client.listen_blocks(topic, timeout=0.05) as listener:
                assert [list(block.values) async for block in listener] == [[b"a", b"b"]]

    play(script)


def test_h14_a_cancelled_step_takes_nothing(play: Play) -> None:
    """Whenever the cancellation falls, nothing is lost and nothing comes twice; the same listener goes on."""

    async def script(connect: Any, topic: str) -> None:
        random.seed(14)
        async with await connect("listener") as client, await connect("putter") as putter:
            await client.subscribe(topic)
            listener = client.listen(topic)
            got: list[bytes] = []
            sent = 0
            while len(got) < 200:
                if sent < 200:
                    await putter.put(topic, b"%d" % sent, wait=sent % 5 == 0)
                    sent += 1
                elif sent == 200:
                    await putter.flush()
                    sent += 1
                task = asyncio.create_task(listener.next(timeout=5))
                for _ in range(random.randrange(8)):
                    await Turn()
                if random.random() < 0.7:
                    task.cancel()
                try:
                    message = await task
                except asyncio.CancelledError:
                    continue
                got += [message.value] if message is not None else []
            assert got == [b"%d" % number for number in range(200)]

    play(script)


def test_listeners_and_gets_of_many_tasks_at_once(play: Play) -> None:
    """Whoever takes a packet off a socket takes it for all: a listener hears what another's wait brought in."""

    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client, await connect("putter") as putter:
            names = [f"{topic}-{number}" for number in range(4)]
            for name in names:
                await client.subscribe(name)

            async def hear(name: str) -> list[bytes]:
                return [message.value async for message in _first(client.listen(name), 50)]

            async def fetch(name: str) -> list[bytes]:
                found = [await client.get(name) for _ in range(50)]
                return [message.value for message in found if message is not None]

            tasks = [asyncio.create_task(way(name)) for way, name in zip((hear, hear, hear, fetch), names, strict=True)]
            for number in range(50):
                await asyncio.gather(*(putter.put(name, b"%d" % number) for name in names))
            assert await asyncio.gather(*tasks) == [[b"%d" % number for number in range(50)]] * 4

    play(script)


def test_a_listener_does_not_wait_for_a_get_of_another_topic(play: Play) -> None:
    """A get that waits at the broker for something else brings nothing that a live packet would continue."""

    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client, await connect("putter") as putter:
            names = [f"{topic}-{number}" for number in range(3)]
            for name in names:
                await client.subscribe(name)
            listener = client.listen(names[0])
            await putter.put(names[0], b"first")
            assert await listener.next(5) is not None
            waiting = [asyncio.create_task(client.get(name, timeout=30)) for name in names[1:]]
            for number in range(30):
                heard = asyncio.create_task(listener.next())
                receipt = await putter.put(names[0], b"%d" % number)
                message = await asyncio.wait_for(heard, 1.5)
                assert message is not None
                assert message.offset == receipt.offset
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    play(script)


async def _first(listener: oncemq.AsyncListener[oncemq.Message], count: int) -> Any:
    """The first so many of an endless listener."""
    async with listener:
        for _ in range(count):
            yield await anext(listener)


def test_an_async_listener_goes_on_after_a_restart_of_the_broker(tmp_path: Any) -> None:
    async def script() -> list[bytes]:
        broker = oncemq.Broker(tmp_path / "data")
        async with await oncemq.connect_async(broker.address, id="a", state=tmp_path / "a") as client:
            await client.subscribe("t")
            listener = client.listen("t")
            await client.put("t", b"before")
            got = [await anext(listener)]
            address = broker.address
            broker.stop()
            broker = oncemq.Broker(tmp_path / "data", address)
            await client.put("t", b"after")
            got.append(await anext(listener))
        broker.stop()
        return [message.value for message in got]

    assert asyncio.run(script()) == [b"before", b"after"]


def test_what_listen_is_told_is_raised_where_it_is_awaited(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            with pytest.raises(oncemq.NoSuchTopic):
                await client.listen(topic).next(timeout=0)

    play(script)

# SPDX-License-Identifier: Apache-2.0
"""Commits whose outcome is not known while many tasks go on: found out once, told once, and never mistaken for a newer one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import oncemq
from oncemq.client.bridge import wait
from oncemq.client.transactions import Commit
from oncemq.core.packets import TransactDone
from oncemq.errors import Uncertain
from oncemq.limits import BLOCK_CUT_BYTES
from tests.client.test_async import Play, Turn, play

__all__ = ["play"]


class Answers:
    """Stands between a client and the answers to its commits: loses them, or keeps them back."""

    def __init__(self, client: oncemq.AsyncClient) -> None:
        self._really: Callable[[Commit], TransactDone] = client._client._transactions._ask
        self.asked: list[int] = []
        """The number of every commit that was asked for, in order."""
        self.losses = 0
        """How many of the next answers do not come."""
        self.may_come = asyncio.Event()
        self.may_come.set()
        client._client._transactions._ask = self._ask  # type: ignore[method-assign]

    def _ask(self, commit: Commit) -> TransactDone:
        self.asked.append(commit.packet.number)
        done = self._really(commit)
        if self.losses:
            self.losses -= 1
            wait(Turn())
            raise Uncertain("no answer")
        wait(self.may_come.wait())
        return done


async def _commit(client: oncemq.AsyncClient, topic: str, value: bytes) -> None:
    async with client.transaction() as transaction:
        transaction.put(topic, value)


async def _leave_unknown(client: oncemq.AsyncClient, topic: str, value: bytes) -> Answers:
    answers = Answers(client)
    answers.losses = 1
    with pytest.raises(Uncertain):
        await _commit(client, topic, value)
    return answers


async def _stored(client: oncemq.AsyncClient, topic: str) -> list[bytes]:
    (info,) = await client.admin.topics(topic)
    return [message.value async for message in client.read(topic, 0, info.end)]


def test_what_was_collected_is_put_once_by_tasks_that_wait_for_an_outcome(play: Play) -> None:
    """Each of them found the same block open, and each had to find out about a commit before it could close it."""

    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            await client.subscribe(topic + "-2")
            answers = await _leave_unknown(client, topic, b"unknown")
            await client.put(topic, b"collected", wait=False)
            await client.put(topic + "-2", b"collected", wait=False)
            answers.may_come.clear()
            tasks = [asyncio.create_task(client.put(topic, b"%d" % number)) for number in range(4)]
            for _ in range(9):
                await Turn()
            answers.may_come.set()
            await asyncio.gather(*tasks)
            assert sorted(await _stored(client, topic)) == [b"0", b"1", b"2", b"3", b"collected", b"unknown"]
            assert await _stored(client, topic + "-2") == [b"collected"]

    play(script)


def test_a_message_that_is_refused_takes_no_other_tasks_message_with_it(play: Play) -> None:
    """The one told to have been refused was stored, and the other, whose put returned, was not."""

    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            answers = await _leave_unknown(client, topic, b"unknown")
            answers.losses = 1
            values = [b"a" * BLOCK_CUT_BYTES, b"b" * BLOCK_CUT_BYTES]
            found = await asyncio.gather(*[client.put(topic, value, wait=False) for value in values], return_exceptions=True)
            assert [type(problem) for problem in found] == [Uncertain, type(None)]
            await client.flush()
            assert [value[:1] for value in await _stored(client, topic)] == [b"u", b"b"]

    play(script)

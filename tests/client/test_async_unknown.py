# SPDX-License-Identifier: Apache-2.0
"""Commits whose outcome is not known while many tasks go on: found out once, told once, and never mistaken for a newer one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oncemq
from oncemq.client.bridge import run, wait
from oncemq.client.transactions import Commit
from oncemq.core.packets import TransactDone
from oncemq.errors import Uncertain
from oncemq.limits import BLOCK_CUT_BYTES
from tests.client.test_async import Play, Turn, play

__all__ = ["play"]


class Answers:
    """Stands between a client and the answers to its commits: loses them, or keeps them back."""

    def __init__(self, client: oncemq.AsyncClient) -> None:
        self._really: Callable[[Commit, int | None], TransactDone] = client._client._transactions._ask
        self.losses = 0
        """How many of the next answers do not come."""
        self.is_deaf = False
        """Whether the broker does not even hear of a commit."""
        self.may_come = asyncio.Event()
        """When answers that were not lost come."""
        self.may_come.set()
        self.slow: dict[str, asyncio.Event] = {}
        """When they come to some tasks, by name."""
        client._client._transactions._ask = self._ask  # type: ignore[method-assign]

    def _ask(self, commit: Commit, timeout_ms: int | None) -> TransactDone:
        if self.is_deaf:
            wait(Turn())
            raise Uncertain("nobody is there")
        done = self._really(commit, timeout_ms)
        if self.losses:
            self.losses -= 1
            wait(Turn())
            raise Uncertain("no answer")
        task = asyncio.current_task()
        wait(self.slow.get(task.get_name() if task is not None else "", self.may_come).wait())
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


async def _turns() -> None:
    for _ in range(9):
        await Turn()


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
            await _turns()
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


def test_who_found_out_late_about_one_commit_does_not_forget_a_newer_one(play: Play) -> None:
    """The newer one was neither finished nor told, and its number was given to a put, which the broker takes for a repeat."""

    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            answers = await _leave_unknown(client, topic, b"older")
            answers.slow["slow"] = asyncio.Event()
            fast, slow = (asyncio.create_task(client.put(topic, name.encode()), name=name) for name in ("fast", "slow"))
            await fast
            answers.is_deaf = True
            with pytest.raises(Uncertain):
                await _commit(client, topic, b"newer")
            answers.is_deaf = False
            answers.slow["slow"].set()
            await slow
            await client.put(topic, b"last")
            stored = await _stored(client, topic)
            assert sorted(stored) == [b"fast", b"last", b"newer", b"older", b"slow"]
            assert stored[-1] == b"last"

    play(script)


def test_a_refused_commit_is_told_to_whoever_made_it_and_to_nobody_else(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic + "-in")
            await client.put_many(topic + "-in", [b"0"])
            answers = Answers(client)
            answers.may_come.clear()
            task = asyncio.create_task(_commit_strictly(client, topic))
            await _turns()
            resolving = asyncio.create_task(run(client._client._transactions.resolve))
            await _turns()
            answers.may_come.set()
            with pytest.raises(oncemq.NotCommitted):
                await task
            await resolving
            async with client.receive(topic + "-in", timeout=5) as message:
                assert message is not None

    play(script)


def test_a_refused_commit_whose_task_was_cancelled_is_told_once_to_the_next(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            answers = Answers(client)
            answers.may_come.clear()
            task = asyncio.create_task(_commit_strictly(client, topic))
            await _turns()
            task.cancel()
            await asyncio.wait((task,))
            answers.may_come.set()
            await client.subscribe(topic)
            assert (await client.put(topic, b"no news of a put")).stored
            with pytest.raises(oncemq.NotCommitted):
                await _commit(client, topic, b"1")
            await _commit(client, topic, b"2")
            assert await _stored(client, topic) == [b"no news of a put", b"2"]

    play(script)


async def _commit_strictly(client: oncemq.AsyncClient, topic: str) -> None:
    """Refused, since nobody has subscribed."""
    async with client.transaction() as transaction:
        transaction.put(topic, b"strict", strict=True)


def test_an_outcome_that_cannot_be_found_out_is_told_to_all_who_wait_for_it(play: Play) -> None:
    """Not to one after the other, each after all the patience there is."""

    async def script(connect: Any, topic: str) -> None:
        client = await connect()
        answers = await _leave_unknown(client, topic, b"unknown")
        tries: list[Commit] = []

        def ask(commit: Commit, timeout_ms: int | None) -> TransactDone:
            tries.append(commit)
            return answers._ask(commit, timeout_ms)

        client._client._transactions._ask = ask
        answers.is_deaf = True
        found = await asyncio.gather(*[client.put(topic, b"x") for _ in range(20)], return_exceptions=True)
        assert {type(problem) for problem in found} == {Uncertain}
        assert len(tries) == 1
        client._client._abandon()

    play(script)


# --- how long it takes to be told -------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_the_time_of_a_flush_includes_waiting_for_another_tasks_put_many(timeout: float, tmp_path: Path, topic: str) -> None:
    """It began to count when the other task was through: the time of a put_many to a broker that is away came on top."""

    async def script() -> None:
        client = await oncemq.connect_async("tcp://127.0.0.1:9", id="alone", state=tmp_path / "alone", offline=True)
        assert await client.flush(timeout) == 0
        await client.put(topic, b"collected", wait=False)
        many = asyncio.create_task(client.put_many(topic, [b"0", b"1"]))
        await _turns()
        for _ in range(2):
            with pytest.raises(oncemq.PutPending) as told:
                await client.flush(timeout)
            assert (told.value.number, told.value.pending) == (1, 1)
            assert [block.number for block in client.outbox()] == [1], "what was collected is not kept, though that was told"
            assert not many.done(), "it did not wait for the other task"
        many.cancel()
        await asyncio.wait((many,))
        with pytest.raises(oncemq.PutPending):
            await client.flush(timeout)
        client._client._abandon()

    asyncio.run(asyncio.wait_for(script(), 120))


def test_the_time_of_a_flush_includes_waiting_for_a_task_that_asks_for_an_outcome(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            answers = await _leave_unknown(client, topic, b"unknown")
            answers.may_come.clear()
            other = asyncio.create_task(client.put(topic, b"other"))
            await _turns()
            await client.put(topic, b"collected", wait=False)
            for timeout in (0, 0.05):
                with pytest.raises(Uncertain, match="another task still asks"):
                    await client.flush(timeout)
            assert not other.done()
            answers.may_come.set()
            await other
            assert await client.flush(60) >= 1
            assert sorted(await _stored(client, topic)) == [b"collected", b"other", b"unknown"]

    play(script)

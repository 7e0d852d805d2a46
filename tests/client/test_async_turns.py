# SPDX-License-Identifier: Apache-2.0
"""Tasks that share one AsyncClient: what must not mix takes turns, what may goes on beside it, a cancelled one leaves nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import oncemq
from oncemq.client.admin import Admin
from oncemq.client.async_admin import AsyncAdmin
from oncemq.client.bridge import wait
from oncemq.client.turns import Floor, _inside
from tests.client.test_async import Play, Turn, play

__all__ = ["play"]


def _books(tmp_path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(tmp_path / "books.db", isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS effects (value TEXT)")
    return connection


async def _take(client: oncemq.AsyncClient, books: sqlite3.Connection, topic: str) -> bytes | None:
    async with client.transaction(books) as transaction:
        message = await transaction.get(topic, timeout=0)
        if message is not None:
            books.execute("INSERT INTO effects VALUES (?)", (message.value.decode(),))
        return None if message is None else message.value


def test_tasks_that_begin_offline_open_one_session(play: Play) -> None:
    """A second Welcome would take every subscription up anew, and put in doubt what a task has just been given."""

    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            await client.put_many(topic, [b"0", b"1"])
        client = await connect(offline=True)
        session, welcomes = client._client._session, []
        taken_up = session.on_welcome
        session.on_welcome = lambda welcome: (welcomes.append(welcome), taken_up(welcome))
        found = await asyncio.gather(
            client.get(topic, timeout=5), client.put(topic, b"2"), client.topics(), client.subscriptions()
        )
        assert found[0].value == b"0"
        assert len(welcomes) == 1
        await client.close()

    play(script)


def test_a_connection_that_was_never_opened_is_told_and_the_turn_goes_on(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            with pytest.raises(oncemq.UsageError, match="the connection is None"):
                async with client.transaction(None):
                    raise AssertionError
            async with asyncio.timeout(5), client.transaction() as transaction:
                transaction.put(topic, b"0")

    play(script)


def test_a_transaction_is_used_inside_its_block(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            transaction = client.transaction()
            with pytest.raises(oncemq.UsageError, match="async with"):
                await transaction.get(topic, timeout=0)
            with pytest.raises(oncemq.UsageError, match="async with"):
                transaction.put(topic, b"0")
            async with transaction:
                transaction.put(topic, b"1")
            with pytest.raises(oncemq.UsageError, match="over"):
                transaction.put(topic, b"2")

    play(script)


@pytest.mark.parametrize(("blocking", "shared"), [(oncemq.Client, oncemq.AsyncClient), (Admin, AsyncAdmin)])
def test_the_async_client_has_every_call_of_the_blocking_one(blocking: type, shared: type) -> None:
    def calls(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert calls(blocking) - calls(shared) == set()


def test_topics_are_made_looked_at_read_and_deleted(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client, await connect("other") as other:
            names = [f"{topic}-{number}" for number in range(5)]
            await asyncio.gather(*[client.admin.create_topic(name, retain="forever") for name in names])
            await client.put_many(names[0], [b"0", b"1", b"2", b"3"])
            assert [message.value async for message in client.read(names[0], 1, 3)] == [b"1", b"2"]
            assert [info.end for info in await client.admin.topics(names[0])] == [4]
            await other.subscribe(names[1])
            (row,) = await client.admin.subscriptions(names[1])
            await client.admin.delete_subscription(row.info.subscription_id)
            await client.admin.forget_client(other.id)
            assert other.id not in [row.client for row in await client.admin.clients()]
            await asyncio.gather(*[client.admin.delete_topic(name) for name in names])
            assert not {info.topic for info in await client.topics()} & set(names)
            assert (await client.admin.stats()).start_id
            with pytest.raises(oncemq.Refused, match="not_a_node"):
                await client.admin.mesh_status()
            assert (client.outbox(), client.leftovers.unknown) == ([], 0)
            other._client._abandon()

    play(script)


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_is_away_is_told_to_all_who_wait_for_it(tmp_path: Path) -> None:
    """Not to one after the other: a hundred handlers would wait a hundred times as long."""

    async def script() -> None:
        client = await oncemq.connect_async("tcp://127.0.0.1:9", id="a", state=tmp_path / "a", offline=True)
        tries: list[object] = []
        really = client._client._session.exchange
        client._client._session.exchange = lambda *arguments, **named: (tries.append(1), really(*arguments, **named))[1]
        found = await asyncio.gather(*[client.get("t", timeout=5) for _ in range(20)], return_exceptions=True)
        assert {type(problem) for problem in found} == {oncemq.BrokerUnreachable}
        assert len(tries) == 1
        with pytest.raises(oncemq.PutPending):
            await client.put("t", b"kept")
        assert await client.close() == 1

    asyncio.run(script())


@pytest.mark.usefixtures("impatient")
def test_a_lost_answer_to_a_put_is_missed_however_much_else_arrives(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        client = await connect()
        await client.subscribe(topic)
        session, answers = client._client._session, []
        heard = session.on_put_done
        session.on_put_done = lambda *answer: (answers.append(answer), len(answers) > 1 and heard(*answer))
        others = asyncio.create_task(_ask_on(client))
        receipt = await asyncio.wait_for(client.put(topic, b"0"), 5)
        assert (receipt.offset, receipt.duplicate) == (0, True)
        others.cancel()
        await asyncio.gather(others, return_exceptions=True)
        await client.close()

    play(script)


async def _ask_on(client: oncemq.AsyncClient) -> None:
    while True:
        await client.topics()


def test_a_gap_told_to_two_tasks_is_passed_over_once(play: Play) -> None:
    """The slower of them must not lead back to where the gap ended: what the faster has got since came again."""

    async def script(connect: Any, topic: str) -> None:
        client = await connect()
        await client.admin.create_topic(topic, retain="forever")
        await client.subscribe(topic)
        held, has_gone_on = client._client._gets.held[topic], asyncio.Event()
        await client.put_many(topic, [b"%d" % number for number in range(5)])
        marks = []

        def mark(entry: object, *_: int) -> None:
            marks.append(entry)
            if len(marks) == 1:
                wait(has_gone_on.wait())  # Its answer was lost, say.

        client._client._gets._mark_near = mark  # type: ignore[method-assign]
        held.subscriber.on_part(2, 5, 0, None)
        tasks = [asyncio.create_task(client.get(topic, timeout=5)) for _ in range(2)]
        done, (slow,) = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [type(task.exception()) for task in done] == [oncemq.Gap]
        assert [(await client.get(topic, timeout=5)).value for _ in range(2)] == [b"2", b"3"]
        has_gone_on.set()
        with pytest.raises(oncemq.Gap):
            await slow
        assert (await client.get(topic, timeout=5)).value == b"4"
        await client.close()

    play(script)


def test_who_waits_while_another_task_closes_the_client_is_told_at_once(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        client = await connect()
        names = [f"{topic}-{number}" for number in range(3)]
        for name in names:
            await client.subscribe(name, cursor="broker" if name == names[2] else "local")
        waiting = [client.get(names[0]), client.listen(names[0]).next(), client.listen_blocks(names[1]).next()]
        tasks = [asyncio.create_task(each) for each in (*waiting, client.receive(names[2]).__aenter__())]
        while client._client._session._waiting == ():
            await Turn()
        await client.close()
        done, _ = await asyncio.wait(tasks, timeout=1)
        assert [type(task.exception()) for task in done] == [oncemq.ClientClosed] * 4

    play(script)


def test_tasks_that_close_a_client_at_the_same_time_close_it_once(play: Play) -> None:
    """The slower ones went on with their goodbyes after the fastest had let go of socket and directory."""

    async def script(connect: Any, topic: str) -> None:
        client = await connect()
        await client.put(topic, b"collected", wait=False)
        assert await asyncio.gather(*[client.close() for _ in range(3)]) == [0, 0, 0]

    play(script)


def test_whoever_waits_for_a_session_has_its_own_patience(tmp_path: Path) -> None:
    async def script() -> None:
        client = await oncemq.connect_async("tcp://127.0.0.1:9", id="a", state=tmp_path / "a", offline=True)
        patient = asyncio.create_task(client.get("t"))
        await Turn()
        with pytest.raises(oncemq.PutPending):
            await client.put("t", b"kept", wait=False)
            await client.flush(timeout=0.05)
        assert not patient.done()
        patient.cancel()
        await asyncio.gather(patient, return_exceptions=True)
        client._client._abandon()

    asyncio.run(script())


def test_transactions_of_several_tasks_take_turns(play: Play) -> None:
    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client, await connect("reader") as reader:
            out, topics = topic + "-out", [topic + "-a", topic + "-b"]
            await reader.subscribe(out)
            for name in topics:
                await client.subscribe(name)
                await client.put_many(name, [b"%d" % number for number in range(5)])

            async def work(name: str) -> None:
                for _ in range(5):
                    async with client.transaction() as transaction:
                        message = await transaction.get(name, timeout=5)
                        await Turn()
                        transaction.put(out, message.value)

            await asyncio.gather(*map(work, topics))
            assert len(await reader.get_many(out, 100, timeout=5)) == 10
            with pytest.raises(oncemq.UsageError, match="one transaction at a time"):
                async with client.transaction(), client.transaction():
                    raise AssertionError

    play(script)


def test_others_put_and_receive_beside_a_transaction_of_a_database(play: Play, tmp_path: Path) -> None:
    """A handler of a web service knows nothing of the task that works on another topic."""

    async def script(connect: Any, topic: str) -> None:
        books = _books(tmp_path)
        async with await connect() as client:
            await client.subscribe(topic)
            await client.subscribe(topic + "-other")

            async def work() -> bytes:
                async with client.transaction(books) as transaction:
                    for refused in (client.put(topic, b"no"), client.put_many(topic, [b"no"])):
                        with pytest.raises(oncemq.UsageError, match="cannot be part of a database transaction"):
                            await refused
                    with pytest.raises(oncemq.UsageError, match="use its own get"):
                        client.receive(topic + "-other")
                    return (await transaction.get(topic, timeout=30)).value  # type: ignore[union-attr]

            async def handle() -> bytes:
                await client.put(topic + "-other", b"beside")
                async with client.receive(topic + "-other", timeout=5) as message:
                    await client.put(topic, b"from a handler")
                    return message.value

            assert await asyncio.gather(work(), handle()) == [b"from a handler", b"beside"]
        books.close()

    play(script)


def test_h14_a_transaction_that_is_cancelled_before_its_commit_leaves_nothing_open(play: Play, tmp_path: Path) -> None:
    async def script(connect: Any, topic: str) -> None:
        books = _books(tmp_path)
        async with await connect() as client:
            await client.subscribe(topic)
            await client.put_many(topic, [b"0", b"1"])

            async def work(is_read: asyncio.Event) -> None:
                async with client.transaction(books) as transaction:
                    assert await transaction.get(topic, timeout=5) is not None
                    books.execute("INSERT INTO effects VALUES ('half')")
                    await client._numbers.acquire()  # Somebody else's put_many is under way.
                    is_read.set()

            is_read = asyncio.Event()
            task = asyncio.create_task(work(is_read))
            await is_read.wait()
            await Turn()
            task.cancel()
            assert [type(problem) for problem in await asyncio.gather(task, return_exceptions=True)] == [asyncio.CancelledError]
            client._numbers.release()
            assert [await _take(client, books, topic) for _ in range(3)] == [b"0", b"1", None]
        assert books.execute("SELECT value FROM effects").fetchall() == [("0",), ("1",)]
        books.close()

    play(script)


def test_tasks_that_start_each_other_inside_their_turns_do_not_carry_all_of_them_on() -> None:
    carried: list[int] = []

    async def work(floor: Floor, left: int) -> None:
        await floor.take("never")
        carried.append(len(_inside.get()))
        successor = asyncio.create_task(work(floor, left - 1)) if left else None
        floor.leave()
        if successor is not None:
            await successor

    asyncio.run(work(Floor(), 5))
    assert carried == [1] * 6


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_generator_that_yields_inside_a_receive_loses_nothing_when_its_loop_is_left(play: Play, *, is_closed: bool) -> None:
    """Closed it lets go of the topic at once; forgotten it keeps its turn, says so, and its message comes in the next life."""

    async def script(connect: Any, topic: str) -> None:
        async with await connect() as client:
            await client.subscribe(topic)
            await client.put_many(topic, [b"0", b"1", b"2"])

            async def jobs() -> AsyncIterator[bytes]:
                while True:
                    async with client.receive(topic, timeout=60) as message:
                        assert message is not None
                        yield message.value

            each = jobs()
            async for job in each:
                if job == b"1":
                    break
            if is_closed:
                await each.aclose()  # type: ignore[attr-defined]  # What contextlib.aclosing does.
                async with client.receive(topic, timeout=60) as message:
                    assert (message.value, message.attempt) == (b"1", 2)
            else:
                with pytest.raises(oncemq.UsageError, match="is receiving from that topic"):
                    await client.receive(topic, timeout=60).__aenter__()
        async with await connect() as again, again.receive(topic, timeout=60) as message:
            assert (message.value, message.attempt) == ((b"2", 1) if is_closed else (b"1", 2))

    play(script)

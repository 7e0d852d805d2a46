# SPDX-License-Identifier: Apache-2.0
"""Threads at one client: one call at a time. Who calls while another thread is inside is told, and nothing is spoilt by that."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import oncemq
from tests.client.conftest import Connect

INSIDE = "another thread is inside a call of this client"


@contextmanager
def switching_often() -> Iterator[None]:
    """Have Python change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def until_inside(client: oncemq.Client) -> None:
    """Return once a call that waits is underway there."""
    limit = threading.Event()
    for _ in range(6_000):
        if client._alone.inside > 0:
            return
        limit.wait(0.01)
    pytest.fail("nobody came in")


@contextmanager
def waiting(connect: Connect, client: oncemq.Client, topic: str) -> Iterator[Future[Any]]:
    """Another thread is inside a get() that waits for ever; what it gets in the end is the result."""
    client.subscribe(topic)
    with ThreadPoolExecutor(1) as pool:
        getting = pool.submit(client.get, topic)
        until_inside(client)
        try:
            yield getting
        finally:
            connect("waker").put(topic, b"at last")
            getting.result(timeout=60)


def database(client: oncemq.Client) -> oncemq.client.effects.DatabaseTransaction:
    return client.transaction(sqlite3.connect(":memory:"), durable=False)


CALLS: dict[str, Callable[[oncemq.Client, str], object]] = {
    "put": lambda client, topic: client.put(topic, b"x"),
    "collect": lambda client, topic: client.put(topic, b"x", wait=False),
    "put_many": lambda client, topic: client.put_many(topic, [b"x"]),
    "flush": lambda client, _: client.flush(),
    "get": lambda client, topic: client.get(topic, timeout=0),
    "get of all": lambda client, _: client.get(timeout=0),
    "get_many": lambda client, topic: client.get_many(topic, timeout=0),
    "ack": lambda client, topic: client.ack(topic),
    "listen": lambda client, topic: client.listen(topic, timeout=0),
    "listen_blocks": lambda client, topic: client.listen_blocks(topic, timeout=0),
    "receive": lambda client, topic: client.receive(topic, timeout=0).__enter__(),
    "transaction": lambda client, _: client.transaction().__enter__(),
    "transaction of a database": lambda client, _: database(client).__enter__(),
    "subscribe": lambda client, _: client.subscribe("another"),
    "unsubscribe": lambda client, topic: client.unsubscribe(topic),
    "subscriptions": lambda client, _: client.subscriptions(),
    "topics": lambda client, _: client.topics(),
    "in_doubt": lambda client, topic: client.in_doubt(topic),
    "settle": lambda client, topic: client.settle(topic, "skip"),
    "read": lambda client, topic: next(client.read(topic, 0, 1)),
    "stats": lambda client, _: client.admin.stats(),
    "shutdown": lambda client, _: client.admin.shutdown(),
    "close": lambda client, _: client.close(),
    "leave": lambda client, _: client.__exit__(None, None, None),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_while_another_thread_is_inside_is_refused_and_changes_nothing(connect: Connect, topic: str, name: str) -> None:
    """It hung, or spoilt what the other thread was doing."""
    client = connect()
    with waiting(connect, client, topic) as getting:
        with pytest.raises(oncemq.UsageError, match=INSIDE):
            CALLS[name](client, topic)
        assert (client.pending, client.outbox()) == (0, [])
    assert getting.result().value == b"at last"
    assert client.put(topic, b"and on").offset == 1
    message = client.get(topic, timeout=60)
    assert message is not None
    assert message.value == b"and on"


def test_a_listener_and_a_transaction_know_other_threads_too(connect: Connect, topic: str) -> None:
    """What was begun before belongs to the client all the same; a block that cannot be left as it should is undone."""
    client, other = connect(), topic + "-other"
    client.subscribe(other)
    connect("publisher").put_many(other, [b"0", b"1"])
    client.subscribe(topic)
    transaction = client.transaction()
    transaction.__enter__()
    assert transaction.get(other, timeout=60) is not None
    listener = client.listen(topic)
    with waiting(connect, client, topic):
        for call in (listener.next, lambda: next(listener), listener.finish, listener.close):
            with pytest.raises(oncemq.UsageError, match=INSIDE):
                call()
        for call in (lambda: transaction.get(other), lambda: transaction.get_many(other), lambda: transaction.put(topic, b"x")):
            with pytest.raises(oncemq.UsageError, match=INSIDE):
                call()
        with pytest.raises(oncemq.UsageError, match=INSIDE):
            transaction.__exit__(None, None, None)
    with client.receive(other, timeout=60) as message:
        assert message is not None
        assert (message.offset, message.attempt) == (0, 2)


def test_threads_that_collect_at_the_same_time_spoil_nothing(connect: Connect, topic: str) -> None:
    """Blocks had columns of different lengths, and numbers had gaps. What was not refused is stored, and nothing else."""
    client, reader = connect(), connect("reader")
    reader.subscribe(topic)
    taken: list[list[bytes]] = [[], []]
    refused, together = [0, 0], threading.Barrier(2, timeout=60)

    def collect(who: int) -> None:
        together.wait()
        for number in range(20_000):
            value = b"%d %d" % (who, number)
            try:
                client.put(topic, value, key=value, wait=False)
            except oncemq.UsageError as told:
                assert INSIDE in str(told)
                refused[who] += 1
            else:
                taken[who].append(value)

    with switching_often(), ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(collect, who) for who in range(2)]:
            done.result(timeout=300)
    assert sum(refused) > 0
    assert client.flush() == sum(map(len, taken))
    stored = [message for _ in range(60) for message in reader.get_many(topic, timeout=0)]
    assert all(message.key == message.value for message in stored)
    assert [[m.value for m in stored if m.value.startswith(b"%d " % who)] for who in range(2)] == taken


def test_threads_that_take_turns_share_a_client(connect: Connect, topic: str) -> None:
    client, turn = connect(), threading.Lock()
    client.subscribe(topic)

    def work() -> None:
        for _ in range(50):
            with turn:
                client.put(topic, b"x", wait=False)
            with turn:
                client.put(topic, b"x")
            with turn, client.receive(topic, timeout=60) as message:
                assert message is not None

    with switching_often(), ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work) for _ in range(3)]:
            done.result(timeout=300)
    assert client.close() == 0


def test_a_call_from_inside_a_call_of_the_same_thread_goes_through(connect: Connect, topic: str) -> None:
    client, other = connect(), topic + "-other"
    client.subscribe(topic)
    client.subscribe(other)
    client.put_many(topic, [b"a", b"b"])

    def found() -> Iterator[bytes]:
        for _ in range(2):
            message = client.get(topic, timeout=60)
            assert message is not None
            client.put(other, b"seen " + message.value, wait=False)
            yield message.value

    assert len(client.put_many(other, found())) == 2
    client.flush()
    assert [message.value for message in client.get_many(other, timeout=60)] == [b"a", b"b", b"seen a", b"seen b"]
    assert client._alone.inside == 0


def test_a_call_that_was_interrupted_leaves_the_client_to_other_threads(connect: Connect, topic: str) -> None:
    """Ctrl-C inside a call ends the call: nobody is inside any more."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    client = connect()
    client.subscribe(topic)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with ThreadPoolExecutor(1) as pool:
            main = threading.main_thread().ident
            assert main is not None
            pool.submit(lambda: (until_inside(client), signal.pthread_kill(main, signal.SIGUSR1)))
            with pytest.raises(KeyboardInterrupt):
                client.get(topic)
            assert pool.submit(client.put, topic, b"x").result(timeout=60).offset == 0
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_async_client_belongs_to_the_thread_of_its_loop(broker: oncemq.Broker, tmp_path: Path, topic: str) -> None:
    async def script() -> None:
        async with await oncemq.connect_async(broker.address, id="loop", state=tmp_path / "loop") as client:
            await client.subscribe(topic)
            getting = asyncio.create_task(client.get(topic))
            for call in (client.put, lambda *given: client.put(*given, wait=False)):
                with pytest.raises(oncemq.UsageError, match="run_coroutine_threadsafe"):
                    await asyncio.to_thread(lambda call=call: asyncio.run(call(topic, b"x")))
            loop = asyncio.get_running_loop()
            sent = await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(client.put(topic, b"y"), loop).result(60))
            assert isinstance(sent, oncemq.Receipt)
            message = await getting
            assert message is not None
            assert message.value == b"y"

    asyncio.run(script())


def test_who_is_refused_while_another_thread_receives_is_told_that_and_nothing_else(connect: Connect, topic: str) -> None:
    """He looked through all topics that are received from, while the other thread took one up or gave it back: RuntimeError."""
    client, together = connect(), threading.Barrier(2, timeout=60)
    client.subscribe(topic)
    client._receiving._claimed |= {f"topic {number}": client for number in range(1_000)}

    def receive() -> int:
        refused = 0
        together.wait()
        for _ in range(10_000):
            try:
                with client.receive(topic, timeout=0):
                    pass
            except oncemq.UsageError:
                refused += 1
        return refused

    with switching_often(), ThreadPoolExecutor(2) as pool:
        assert sum([done.result(timeout=300) for done in [pool.submit(receive) for _ in range(2)]]) > 0
    assert len(client._receiving._claimed) == 1_000

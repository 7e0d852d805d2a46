# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: the same calls with `await`, from any number of tasks. `oncemq.connect_async(...)` makes one.

May not: hold a rule. Every call is the blocking client's own code, run by client/bridge.py.
The idea: tasks may put and get at the same time; what must not mix (commands, transactions, messages that are received from one
topic) takes turns. A call that is cancelled has happened or not: a cancelled get takes nothing, a cancelled put may be stored,
once. As with the blocking client the next get of a topic finishes the message before, whichever task had it.
Writing to the state directory is short and is not awaited.
Next: client/client.py, which says what each call does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self

from oncemq.client.arguments import milliseconds
from oncemq.client.async_admin import AsyncAdmin
from oncemq.client.bridge import run, take_in_time
from oncemq.client.client import Client
from oncemq.client.databases import NO_CONNECTION
from oncemq.client.effects import NO_PUTS, TABLE, DatabaseTransaction
from oncemq.client.listening import Listener, Taken
from oncemq.client.puts import Waiting
from oncemq.client.receiving import Receive
from oncemq.client.transactions import Transaction
from oncemq.client.turns import Floor
from oncemq.core.identity import Leftovers
from oncemq.core.packets import SubscriptionInfo, TopicInfo
from oncemq.core.topics import UNDECIDED
from oncemq.errors import UsageError
from oncemq.model.message import Headers, Message, Receipt, Receipts
from oncemq.model.names import check_topic
from oncemq.model.view import Block

Topics = str | list[str] | tuple[str, ...]
IN_A_TRANSACTION = "a task has one transaction at a time, and so have the tasks it starts inside: leave the other one first"
IN_A_RECEIVE = (
    "this task, or the one that started it, is receiving from that topic: leave that block first; "
    "to handle several messages at a time get them in one transaction"
)


class AsyncClient:
    """A connection to one broker under one id, for one event loop. Use it with `async with`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = asyncio.Lock()
        """Held by what takes many put numbers in a row: blocks of put_many, and transactions."""
        self._turns: dict[str, Floor] = {}
        """One per topic that is received from: a message is acknowledged together with all before it."""
        self._commands = asyncio.Lock()
        """Held by commands: a session has one in flight."""
        self._floor = Floor()
        self._end = asyncio.Lock()
        """Held by who closes: another who does so finds it closed, and leaves alone what may be somebody else's by then."""
        self.admin = AsyncAdmin(client.admin, self._commands)
        client._alone.stay_here()
        client._effects.is_shared = True  # Tasks beside a database transaction put what they like: here its own one is stopped.

    def __repr__(self) -> str:
        return repr(self._client).replace("oncemq.Client", "oncemq.AsyncClient", 1)

    @property
    def id(self) -> str:
        """The client id this process speaks for."""
        return self._client.id

    @property
    def pending(self) -> int:
        """How many messages are kept but not confirmed yet."""
        return self._client.pending

    @property
    def leftovers(self) -> Leftovers:
        """What became of puts that earlier runs had kept; see Client.leftovers."""
        return self._client.leftovers

    def outbox(self) -> list[Waiting]:
        """What is cut and kept but not confirmed yet, in order; nothing to await."""
        return self._client.outbox()

    # --- put -------------------------------------------------------------------------------------------

    async def put(
        self,
        topic: Topics,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        strict: bool = False,
        wait: bool = True,
    ) -> Receipt | list[Receipt] | None:
        """Store one message; see Client.put."""
        self._floor.expect_puts_allowed()
        options: dict[str, Any] = {"key": key, "headers": headers, "strict": strict, "wait": wait}
        found: Receipt | list[Receipt] | None = None
        async with self._numbers:  # Not in the middle of a transaction's numbers.
            if not wait:  # What is refused is taken back out of its block, where it must be the last.
                await run(self._client.put, topic, value, **options)
        if wait:  # These need no order among themselves.
            found = await run(self._client.put, topic, value, **options)
        return found

    async def put_many(
        self, topic: Topics, values: Iterable[bytes], *, keys: Sequence[bytes | None] | None = None, strict: bool = False
    ) -> Receipts:
        """Store many messages, in order; see Client.put_many."""
        self._floor.expect_puts_allowed()
        async with self._numbers:
            return await run(self._client.put_many, topic, values, keys=keys, strict=strict)

    async def flush(self, timeout: float | None = None) -> int:
        """Have every put confirmed; see Client.flush. The time is the whole call's: another task's put_many counts."""
        left_ms = self._client._session.patience(milliseconds(timeout))
        has_turn = await take_in_time(self._numbers, left_ms())
        try:
            if not has_turn and self.pending:
                raise await run(self._client._puts.told_pending)
            left = left_ms()
            return await run(self._client.flush, None if left is None else left / 1000)
        finally:
            if has_turn:
                self._numbers.release()

    # --- subscribe and get -----------------------------------------------------------------------------

    async def subscribe(
        self, topic: str, start: str | int | datetime = "new", *, cursor: str = UNDECIDED, exist_ok: bool = True
    ) -> SubscriptionInfo:
        """Subscribe durably; see Client.subscribe."""
        async with self._commands:
            return await run(self._client.subscribe, topic, start, cursor=cursor, exist_ok=exist_ok)

    async def unsubscribe(self, topic: str) -> None:
        """End the subscription; see Client.unsubscribe."""
        async with self._commands:
            await run(self._client.unsubscribe, topic)

    async def get(self, topic: str | None = None, timeout: float | None = None) -> Message | None:
        """Return the next message; see Client.get. Cancelled, it has taken nothing."""
        return await run(self._client.get, topic, timeout)

    async def get_many(self, topic: str, count: int = 1000, timeout: float | None = None) -> list[Message]:
        """Return up to `count` messages as soon as there is one; see Client.get_many."""
        return await run(self._client.get_many, topic, count, timeout)

    async def messages(self, topic: str | None = None) -> AsyncIterator[Message]:
        """Iterate over messages as they come, for ever. Each step finishes the message before, as get does."""
        while True:
            message = await self.get(topic)
            if message is not None:
                yield message

    def listen(self, *topics: str, timeout: float | None = None) -> AsyncListener[Message]:
        """Iterate with `async for` over messages as they are stored, pushed by the broker; see Client.listen."""
        return AsyncListener(lambda: self._client.listen(*topics), timeout)

    def listen_blocks(self, *topics: str, timeout: float | None = None) -> AsyncListener[Block]:
        """The same for whole blocks; see Client.listen_blocks."""
        return AsyncListener(lambda: self._client.listen_blocks(*topics), timeout)

    async def ack(self, topic: str) -> None:
        """Everything handed out on this topic is finished; see Client.ack."""
        await run(self._client.ack, topic)

    async def in_doubt(self, topic: str | None = None) -> list[Message]:
        """What was handed out before a crash; see Client.in_doubt."""
        return await run(self._client.in_doubt, topic)

    async def settle(self, topic: str, choice: str) -> None:
        """Resolve what is in doubt or damaged; see Client.settle."""
        await run(self._client.settle, topic, choice)

    async def read(self, topic: str, offset: int, end: int) -> AsyncIterator[Message]:
        """Read messages [offset, end) of any topic with `async for`; see Client.read."""
        messages = self._client.read(topic, offset, end)
        while (message := await run(next, messages, None)) is not None:
            yield message

    async def subscriptions(self) -> list[str]:
        """The topics this client subscribes to."""
        return await run(self._client.subscriptions)

    async def topics(self) -> list[TopicInfo]:
        """All topics of the broker."""
        return await run(self._client.topics)

    # --- receive and transactions ----------------------------------------------------------------------

    def receive(self, topic: str, timeout: float | None = None) -> AsyncReceive:
        """Give the next message inside `async with`; see Client.receive. Tasks that receive from one topic take turns.

        The message is None if the time was over before it was this task's turn. A generator that yields inside the block has the
        turn until it is closed, also after `break`: use `async with contextlib.aclosing(jobs()) as each: async for job in each:`.
        """
        client = self._client
        client._check_open()
        self._floor.expect_outside("inside a transaction use its own get()")
        topic = check_topic(topic)
        inner = Receive(client._receiving, topic, milliseconds(timeout), client._transactions.resolve)
        return AsyncReceive(inner, self._turns.setdefault(topic, Floor()))

    def transaction(self, connection: object = NO_CONNECTION, *, table: str = TABLE, durable: bool = True) -> AsyncTransaction:
        """Consume, process and produce as one, inside `async with`; see Client.transaction. The connection is a blocking one.

        Tasks with a transaction take turns: others put, get and listen meanwhile.
        """
        begin = partial(self._client.transaction, connection, table=table, durable=durable)
        return AsyncTransaction(begin, self._floor, self._numbers, has_effects=connection is not NO_CONNECTION)

    # --- life ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        async with self._end:
            await run(self._client.__exit__, kind, error, trace)

    async def close(self) -> int:
        """Send what is pending for up to five seconds and say goodbye; see Client.close."""
        async with self._end:
            return await run(self._client.close)


class AsyncListener(Generic[Taken]):
    """What AsyncClient.listen returns, for one task at a time. A step that is cancelled has taken nothing; the next goes on."""

    def __init__(self, begin: Callable[[], Listener[Taken]], timeout: float | None) -> None:
        self._begin = begin
        self._timeout = timeout
        self._inner: Listener[Taken] | None = None
        self._is_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Taken:
        taken = None if self._is_ended else await self.next(self._timeout)
        if taken is None:
            self.close()
            raise StopAsyncIteration
        return taken

    async def next(self, timeout: float | None = None) -> Taken | None:
        """Wait for one more, up to `timeout` seconds; None if none came."""
        if self._inner is None:
            self._inner = await run(self._begin)
        return await run(self._inner.next, timeout)

    def finish(self) -> None:
        """Say that what was handed out is finished, without waiting for the next."""
        if self._inner is not None:
            self._inner.finish()

    def close(self) -> None:
        """Stop listening. The subscriptions stay, and so does the last thing handed out."""
        self._is_ended = True
        if self._inner is not None:
            self._inner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class AsyncReceive:
    """What AsyncClient.receive returns."""

    def __init__(self, inner: Receive, turn: Floor) -> None:
        self._inner = inner
        self._turn = turn
        self._has_turn = False

    async def __aenter__(self) -> Message | None:
        inner, loop = self._inner, asyncio.get_running_loop()
        timeout, started_s = inner.timeout_ms, loop.time()
        if not await self._turn.take(IN_A_RECEIVE, timeout):
            return None
        self._has_turn = True
        if timeout is not None:
            inner.timeout_ms = max(0, timeout - int((loop.time() - started_s) * 1000))
        try:
            return await run(inner.__enter__)
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._has_turn:
            return  # The time was over before.
        try:
            await run(self._inner.__exit__, kind, error, trace)
        finally:
            self._leave()

    def _leave(self) -> None:
        self._has_turn = False
        self._turn.leave()


class AsyncTransaction:
    """What AsyncClient.transaction returns; entered when those of other tasks are over."""

    def __init__(
        self, begin: Callable[[], Transaction | DatabaseTransaction], floor: Floor, numbers: asyncio.Lock, *, has_effects: bool
    ) -> None:
        self._begin = begin
        self._begun: Transaction | DatabaseTransaction | None = None
        self._floor = floor
        self._numbers = numbers
        self._has_effects = has_effects
        self._is_getting = False

    async def __aenter__(self) -> Self:
        await self._floor.take(IN_A_TRANSACTION, why_not_put=NO_PUTS if self._has_effects else "")
        try:
            self._begun = self._begin()
            async with self._numbers:  # It may have to find out what became of the one before.
                await run(self._inner.__enter__)
        except BaseException:
            self._floor.leave()
            raise
        return self

    @property
    def _inner(self) -> Transaction | DatabaseTransaction:
        if self._begun is None:
            raise UsageError("this transaction has not begun: use it inside its `async with` block")
        return self._begun

    async def get(self, topic: str, timeout: float | None = None) -> Message | None:
        """The next message of a topic; finished by the commit. One get of a transaction at a time."""
        with self._only_one():
            return await run(self._inner.get, topic, timeout)

    async def get_many(self, topic: str, count: int = 1000, timeout: float | None = None) -> list[Message]:
        """Up to `count` messages as soon as there is one."""
        with self._only_one():
            return await run(self._inner.get_many, topic, count, timeout)

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        """What a get did not return is given back by going back to where it began: two at once would give back each other's."""
        if self._is_getting:
            raise UsageError("another task waits for a message of this transaction: get one after the other, or use get_many()")
        self._is_getting = True
        try:
            yield
        finally:
            self._is_getting = False

    def put(self, topic: Topics, value: bytes, **options: Any) -> None:
        """Have a message stored by the commit; nothing to await."""
        self._inner.put(topic, value, **options)

    @property
    def receipts(self) -> Receipts:
        """What became of the puts, after the commit."""
        return self._inner.receipts if isinstance(self._inner, Transaction) else Receipts(())

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                await self._commit()
            else:
                await run(self._inner.__exit__, kind, error, trace)
        finally:
            self._floor.leave()

    def _expect_no_get(self) -> None:
        if self._is_getting:
            raise UsageError(
                "another task still waits for a message of this transaction: await or cancel it before leaving the block. "
                "Nothing of the transaction happened"
            )

    async def _commit(self) -> None:
        try:
            self._expect_no_get()
            await self._numbers.acquire()
        except BaseException as problem:  # Before the commit began: nothing of it happens.
            await run(self._inner.__exit__, type(problem), problem, None)
            raise
        try:
            await run(self._inner.__exit__, None, None, None)
        finally:
            self._numbers.release()

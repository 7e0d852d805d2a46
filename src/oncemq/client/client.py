# SPDX-License-Identifier: Apache-2.0
"""The blocking client: put, get, subscribe, unsubscribe, exactly once. `oncemq.connect(...)` makes one.

May not: hold a rule or start a thread. The caller's thread sends and polls; between two calls nothing happens.
The idea: three runners share one session: Puts (outbox and window), Gets (slots and prefetch), Admin (everything else).
A Client belongs to one thread at a time (client/alone.py).
Next: client/puts.py, client/gets.py, client/admin.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from threading import get_ident
from types import TracebackType
from typing import Literal, Self, TypeVar, overload

from oncemq.client.admin import Admin
from oncemq.client.alone import IN_PASSING, alone, handing_out
from oncemq.client.arguments import as_bytes, as_topics, flags, milliseconds, start_of, whole, with_keys
from oncemq.client.closing import say_goodbye
from oncemq.client.databases import NO_CONNECTION, database_of
from oncemq.client.effects import TABLE, DatabaseTransaction, Effects
from oncemq.client.gets import Gets
from oncemq.client.listening import BlockListener, Ears, Listener, MessageListener
from oncemq.client.live import Live
from oncemq.client.puts import Puts, Waiting
from oncemq.client.reader import read_range
from oncemq.client.receiving import Receive, Receiving
from oncemq.client.session import Session
from oncemq.client.transactions import Transaction, Transactions
from oncemq.core.identity import Leftovers
from oncemq.core.packets import (
    CommandDone,
    Packet,
    Subscribe,
    SubscribeDone,
    SubscriptionInfo,
    TopicInfo,
    Unsubscribe,
    Welcome,
)
from oncemq.core.publisher import OpenBlock
from oncemq.core.subscriber import Subscriber
from oncemq.core.topics import AUTHORITIES, UNDECIDED
from oncemq.errors import AlreadySubscribed, ClientClosed, Gap, OnceMQError, Refused, UsageError, invariant
from oncemq.limits import GET_MANY_MAX, OFFSET_MAX
from oncemq.model.message import Headers, Message, Receipt, Receipts
from oncemq.model.names import check_topic
from oncemq.model.view import Block

Answer = TypeVar("Answer", bound=Packet)


class Client:
    """A connection to one broker under one id. Use it as a context manager: leaving it without an exception finishes
    the last message handed out; leaving it with one leaves that message in doubt."""

    def __init__(self, session: Session, puts: Puts, gets: Gets) -> None:
        self._session = session
        self._alone = session.alone
        self._puts = puts
        self._gets = gets
        self._held = gets.held
        self._clock = session.clock
        self._wall_us = session.clock.wall_us
        self._open_blocks = puts.open_blocks
        self._command = 0
        self._is_closed = False
        self._receiving = Receiving(session, gets)
        self._transactions = Transactions(session, puts, self._receiving)
        self._effects = Effects(session, puts, gets)
        self._live = Live(session, gets)
        self.admin = Admin(session, self._next_command)
        session.on_reset = self._on_reset
        session.on_welcome = self._on_welcome

    def __repr__(self) -> str:
        return f"<oncemq.Client {self.id!r} at {self._session.address}{' closed' if self._is_closed else ''}>"

    @property
    def id(self) -> str:
        """The client id this process speaks for."""
        return self._session.state.identity.client

    @property
    def pending(self) -> int:
        """How many messages are cut and kept but not confirmed yet, those of earlier runs included."""
        return self._puts.pending

    @property
    def leftovers(self) -> Leftovers:
        """What became of puts that earlier runs had kept for a broker that was set back or is another (see `takeover`)."""
        return self._session.state.identity.leftovers

    def outbox(self) -> list[Waiting]:
        """What is cut and kept but not confirmed yet, in order: one entry per block."""
        return self._puts.waiting()

    # --- put -------------------------------------------------------------------------------------------

    @overload
    def put(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        strict: bool = False,
        wait: Literal[True] = True,
    ) -> Receipt: ...
    @overload
    def put(
        self,
        topic: list[str] | tuple[str, ...],
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        strict: bool = False,
        wait: Literal[True] = True,
    ) -> list[Receipt]: ...
    @overload
    def put(
        self,
        topic: str | list[str] | tuple[str, ...],
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        strict: bool = False,
        wait: Literal[False],
    ) -> None: ...
    def put(
        self,
        topic: str | list[str] | tuple[str, ...],
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        strict: bool = False,
        wait: bool = True,
    ) -> Receipt | list[Receipt] | None:
        """Store one message, in one topic or in several at once, and return once it is on the broker's disk.

        `wait=False` only collects it (1,000 messages or 1 MiB make a block) and returns None: flush() confirms.
        `strict` makes it an error if nobody subscribes to the topic. Raises PutPending if the broker does not
        answer: the message is kept and will be sent, do not put it again.
        """
        if type(value) is not bytes:
            value = as_bytes(value)
        if not ((wait is False or wait is True) and (strict is False or strict is True)):  # type: ignore[redundant-expr]
            flags(strict=strict, wait=wait)  # type: ignore[unreachable]  # Not everybody's types are checked.
        topics = (topic,) if type(topic) is str else as_topics(topic)
        if wait:
            receipts = self._put_one(topics, value, key, headers, strict)
            return receipts[0] if isinstance(topic, str) else receipts
        alone = self._alone
        before = alone.inside
        if before:
            alone.expect_mine()
        else:
            alone.inside = IN_PASSING
        try:
            block = self._open_blocks.get((topics, strict)) or self._open_block(topics, strict=strict)
            block.add(value, self._wall_us(), key, headers)
            if block.is_full:
                alone.inside = get_ident()
                self._hand_over(block)
        finally:
            alone.inside = before
        return None

    @alone
    def _put_one(
        self, topics: tuple[str, ...], value: bytes, key: bytes | None, headers: Headers | None, strict: bool
    ) -> list[Receipt]:
        self._check_open()
        entry = self._puts.put_one(topics, value, key, headers, strict)
        return [outcome.receipt(0) for outcome in entry.outcomes()]

    @alone
    def put_many(
        self,
        topic: str | list[str] | tuple[str, ...],
        values: Iterable[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        strict: bool = False,
    ) -> Receipts:
        """Store many messages, in order, and return once all are on the broker's disk."""
        self._check_open()
        flags(strict=strict)
        topics = as_topics(topic)
        return self._puts.put_many(topics, *with_keys(values, keys), strict=strict)

    @alone
    def flush(self, timeout: float | None = None) -> int:
        """Have every put confirmed; return how many messages were since the last flush. Raises PutPending if not all are."""
        self._check_open()
        return self._puts.flush(milliseconds(timeout))

    def _open_block(self, topics: tuple[str, ...], *, strict: bool) -> OpenBlock:
        self._check_open()
        return self._puts.open_block(topics, strict=strict)

    def _hand_over(self, block: OpenBlock) -> None:
        try:
            self._puts.hand_over(block)
        except OnceMQError:
            if self._open_blocks.get((block.topics, block.strict)) is block:
                block.drop_last()  # This message was not taken, and the caller is told so; the others stay.
            raise

    # --- subscribe -------------------------------------------------------------------------------------

    @alone
    def subscribe(
        self,
        topic: str,
        start: str | int | datetime = "new",
        *,
        cursor: str = UNDECIDED,
        exist_ok: bool = True,
    ) -> SubscriptionInfo:
        """Subscribe durably: from now on every message put there is kept until this client has it.

        `start` is "new", "earliest", an offset, or a datetime (the time the broker stored the message). The topic is
        created if it does not exist. `cursor` fixes how the subscription is consumed: local, broker or database.
        Subscribing again changes nothing; with exist_ok=False it raises AlreadySubscribed.
        """
        self._check_open()
        flags(exist_ok=exist_ok)
        topic = check_topic(topic)
        if cursor not in (*AUTHORITIES, UNDECIDED):
            raise UsageError(f"cursor must be one of {', '.join(sorted(AUTHORITIES))}, not {cursor!r}")
        self._session.ensure()
        kind, at = start_of(start)
        try:
            packet = Subscribe(self._session.id, self._next_command(), topic, kind, at, str.__str__(cursor))
            info = self._ask(packet, SubscribeDone).subscription
        except AlreadySubscribed:
            if not exist_ok:
                raise
            return self._info(topic)
        self._gets.add(info)
        return info

    def _info(self, topic: str) -> SubscriptionInfo:
        rows = self.admin.subscriptions(topic)
        info = next((row.info for row in rows if row.client == self.id), None)
        if info is None:
            raise Refused("not_subscribed", "the subscription went away meanwhile: subscribe again")
        if topic not in self._held or self._held[topic].subscriber.slot.subscription_id != info.subscription_id:
            self._gets.add(info)
        return info

    @alone
    def unsubscribe(self, topic: str) -> None:
        """End the subscription. Raises NoSuchTopic or NotSubscribed if there is none."""
        self._check_open()
        topic = check_topic(topic)
        self._session.ensure()
        held = self._held.get(topic)
        subscription_id = held.subscriber.slot.subscription_id if held is not None else 0
        self._ask(Unsubscribe(self._session.id, self._next_command(), topic, subscription_id), CommandDone)
        if held is not None:
            self._live.forget(held.subscriber.slot.topic_id)
        self._gets.remove(topic)

    # --- get -------------------------------------------------------------------------------------------

    def get(self, topic: str | None = None, timeout: float | None = None) -> Message | None:
        """Return the next message of a topic (or the oldest over all), waiting up to `timeout` seconds (None: for ever).

        Returns None if none came. The call finishes the message the last call handed out. After a crash it raises
        InDoubt until settle() has said what to do with what was handed out then. Over all topics: up to 1,024 subscriptions.
        """
        alone = self._alone
        before = alone.inside
        if before:
            alone.expect_mine()
        else:
            alone.inside = IN_PASSING
        try:
            held = self._held.get(topic) if type(topic) is str else None
            if held is not None:
                subscriber = held.subscriber
                message = subscriber.take_ready()
                if message is not None:
                    held.place.write(subscriber.slot)
                    subscriber.given += 1
                    return message
        finally:
            alone.inside = before
        return self._get(topic, timeout)

    @handing_out
    def _get(self, topic: str | None, timeout: float | None) -> tuple[Subscriber, int, Message] | None:
        self._check_open()
        timeout_ms = milliseconds(timeout)
        try:
            taken = self._gets.get_any(timeout_ms) if topic is None else self._gets.get(check_topic(topic), timeout_ms)
        except Gap as gap:
            self._gets.pass_over(gap)
            raise
        return None if taken is None else (taken[0], 1, taken[1])

    def get_many(self, topic: str, count: int = 1000, timeout: float | None = None) -> list[Message]:
        """Return up to `count` messages as soon as there is one; [] if none came in time. Finishes all handed out before."""
        return self._get_many(topic, whole(count, "the count of get_many", 1), timeout) or []

    @handing_out
    def _get_many(self, topic: str, count: int, timeout: float | None) -> tuple[Subscriber, int, list[Message]] | None:
        self._check_open()
        try:
            taken = self._gets.get_many(check_topic(topic), min(count, GET_MANY_MAX), milliseconds(timeout))
        except Gap as gap:
            self._gets.pass_over(gap)
            raise
        return None if taken is None else (taken[0], len(taken[1]), taken[1])

    @alone
    def ack(self, topic: str) -> None:
        """Say that everything get() or listen() handed out on this topic is finished, without getting the next message."""
        self._check_open()
        self._gets.ack(check_topic(topic))

    def listen(self, *topics: str, timeout: float | None = None) -> Listener[Message]:
        """Iterate over the messages of these topics (none named: of all subscriptions) as they are stored, pushed by the broker.

            for message in client.listen("orders"): ...

        Each comes once and in its topic's order, as with get(), and finishes the one before. Ends when none came for `timeout`
        seconds (None: never) or nothing is subscribed to any more. Raises what get() raises, and can go on after that.
        """
        return MessageListener(self._listen(topics, timeout))

    def listen_blocks(self, *topics: str, timeout: float | None = None) -> Listener[Block]:
        """The same for whole blocks, as they were stored: `block.values`, or iterate over a block for its messages.

        What is handed out at once is in doubt at once: up to a whole block after a crash.
        """
        return BlockListener(self._listen(topics, timeout))

    @alone
    def _listen(self, topics: tuple[str, ...], timeout: float | None) -> Ears:
        self._check_open()
        self._session.ensure()
        names = [check_topic(topic) for topic in topics] or self._gets.local_topics()
        return Ears(self._live, self._gets, [self._gets.find(name) for name in names], milliseconds(timeout), self._check_open)

    def receive(self, topic: str, timeout: float | None = None) -> Receive:
        """Give the next message inside a with block: acknowledged when it is left, given again after an exception or a crash.

            with client.receive("orders", timeout=5) as message: ...

        The message is None if none came in time. `message.attempt` counts how often it was given. A subscription that is
        consumed this way is not consumed by get().
        """
        self._check_open()
        if self._transactions.is_open or self._effects.is_open:
            raise UsageError("inside a transaction use its own get()")
        return Receive(self._receiving, check_topic(topic), milliseconds(timeout), self._transactions.resolve)

    @overload
    def transaction(self) -> Transaction: ...
    @overload
    def transaction(self, connection: object, *, table: str = TABLE, durable: bool = True) -> DatabaseTransaction: ...
    def transaction(
        self, connection: object = NO_CONNECTION, *, table: str = TABLE, durable: bool = True
    ) -> Transaction | DatabaseTransaction:
        """Consume, process and produce as one: what it gets is finished and what it puts is stored together, or not at all.

            with client.transaction() as tx:
                order = tx.get("orders")
                tx.put("invoices", b"...")

        With a connection (sqlite3 or psycopg 3) the place moves inside the application's own database transaction: the effects
        of a message and the fact that it is done are committed together. The row lies in `table`, made on first use.

            with client.transaction(connection) as tx:
                order = tx.get("orders")
                connection.execute("INSERT INTO ...")

        An exception in the body: nothing happened. NotCommitted: the broker refused all of it. Uncertain: there was no
        answer, and the next call of this client finds out first.
        """
        self._check_open()
        if self._transactions.is_open or self._effects.is_open:
            raise UsageError("a client has one transaction at a time: leave the other one first")
        if connection is NO_CONNECTION:
            return Transaction(self._transactions)
        return DatabaseTransaction(self._effects, database_of(connection), connection, table, durable=durable)

    @alone
    def in_doubt(self, topic: str | None = None) -> list[Message]:
        """Return the messages that were handed out before a crash and may or may not have been handled."""
        self._check_open()
        self._session.ensure()
        topics = [check_topic(topic)] if topic is not None else list(self._held)
        return [message for name in topics for message in self._gets.in_doubt(name)]

    @alone
    def settle(self, topic: str, choice: str) -> None:
        """Resolve what is in doubt or damaged: "repeat" hands it out again, "skip" counts it as finished."""
        self._check_open()
        self._session.ensure()
        self._gets.settle(check_topic(topic), choice)

    def read(self, topic: str, offset: int, end: int) -> Iterator[Message]:
        """Read messages [offset, end) of any topic: no subscription, nothing finished."""
        self._check_open()
        first, behind = whole(offset, "an offset", 0), min(whole(end, "an end offset", 0), OFFSET_MAX)
        return read_range(self._session, check_topic(topic), first, behind)

    @alone
    def subscriptions(self) -> list[str]:
        """The topics this client subscribes to."""
        self._check_open()
        self._session.ensure()
        return sorted(self._held)

    def topics(self) -> list[TopicInfo]:
        """All topics of the broker, with their first and end offsets."""
        self._check_open()
        return self.admin.topics()

    # --- life ------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    @alone
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None and not self._is_closed:
                self._gets.finish_all()
        finally:
            self.close()

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    @alone
    def close(self) -> int:
        """Send what is pending for up to five seconds, or once if the broker was just found away; return how many stay.

        Raises OutboxFull, with everything released, if some were only collected and there is no room to keep them.
        """
        if self._is_closed:
            return 0
        try:
            problem = self._transactions.flush_at_close() if self.pending or self._puts.has_news else None
            say_goodbye(self._session, self._puts, self._gets, self.pending)
        finally:
            self._abandon()
        if problem is not None:
            raise problem
        return self.pending

    def _abandon(self) -> None:
        """Let go of everything without a word to anybody, as a crash would; only locks and sockets are released."""
        self._is_closed = True
        try:
            self._session.state.close()
        finally:
            self._session.close()

    def _forget(self) -> None:
        """As after kill -9: nothing is released, because there is nobody left to do it."""
        self._is_closed = True
        self._session.close()

    # --- inside ----------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed()

    def _next_command(self) -> int:
        self._command += 1
        return self._command

    def _ask(self, packet: Packet, kind: type[Answer]) -> Answer:
        reply = self._session.ask(packet)
        invariant(isinstance(reply, kind), "the broker answered with another packet", got=type(reply).__name__)
        return reply  # type: ignore[return-value]

    def _on_reset(self) -> None:
        self._puts.on_reset()
        self._gets.on_reset()

    def _on_welcome(self, welcome: Welcome) -> None:
        self._puts.on_welcome(welcome)
        self._gets.on_welcome(welcome)

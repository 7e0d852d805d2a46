# SPDX-License-Identifier: Apache-2.0
"""transaction(): consume, process and produce as one. Acknowledgements and puts are committed together, or nothing is.

May not: send anything before the body has ended, or begin a transaction while the outcome of another is unknown (R17).
The idea: the body only collects. Leaving it without an exception sends one Transact and waits for its one durable outcome;
without an answer it is Uncertain, and whatever this client does next asks for the outcome first, with the same packet under the
same number. A crash needs no memory of it: the broker's cursor says whether it happened, and the messages come again if not.
Next: core/transactions.py for the broker's side.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from oncemq.client.alone import alone
from oncemq.client.arguments import as_bytes, as_topics, flags, milliseconds, whole
from oncemq.client.feeds import Bookmark, Feed
from oncemq.client.puts import Puts, checked_topics
from oncemq.client.receiving import Receiving
from oncemq.client.session import Session
from oncemq.core.packets import Transact, TransactAck, TransactDone, TransactPut
from oncemq.core.publisher import OpenBlock
from oncemq.crashpoints import reach
from oncemq.errors import (
    BrokerUnreachable,
    Diverged,
    Gap,
    InvariantViolated,
    MessageTooLarge,
    NotCommitted,
    OnceMQError,
    Refused,
    Uncertain,
    UsageError,
    invariant,
)
from oncemq.limits import BLOCK_BYTES_MAX, REQUEST_TRIES, TRANSACT_ACKS_MAX, TRANSACT_PUTS_MAX
from oncemq.model.message import Headers, Message, Outcome, Receipts
from oncemq.model.names import check_topic
from oncemq.model.refusals import TEXTS, TRANSIENT_FOR_PUTS, Code

log = logging.getLogger("oncemq.client")
Touched = tuple[Feed, int, Bookmark]
"""A feed, and where it stood when the transaction first read from it."""


_NEVER = frozenset(
    {Code.BAD_VERSION, Code.UNKNOWN_PACKET, Code.MALFORMED, Code.TOO_LARGE, Code.CORRUPT_BLOCK, Code.CONFLICTING_PUT}
)
"""Refusals that depend on nothing but the packet: no copy of it was taken, and none will be."""


class Commit:
    """A transaction on its way to the broker."""

    def __init__(self, packet: Transact, body: bytes, reads: list[Touched]) -> None:
        self.packet = packet
        self.body = body
        self.reads = reads
        self.done: TransactDone | None = None
        self.refusal: NotCommitted | None = None
        self.is_awaited = True
        """Whether the call that commits it is still there to be told the outcome."""
        self.failures: list[str] = []
        """Why its outcome could not be found out, every time that was tried."""

    def set_back(self) -> None:
        """What it read is read again."""
        for feed, begin, bookmark in self.reads:
            feed.set_back(begin, bookmark)


class Transactions:
    """The transactions of one client; one at a time."""

    def __init__(self, session: Session, puts: Puts, receiving: Receiving) -> None:
        self.session = session
        self.receiving = receiving
        self._puts = puts
        self._unknown: Commit | None = None
        self.current: Transaction | None = None
        """The transaction that was entered and not left."""
        self._refusal: NotCommitted | None = None
        self._turn = session.new_turn()
        puts.resolve = self.resolve_for_a_put

    @property
    def is_open(self) -> bool:
        return self.current is not None

    @property
    def is_unknown(self) -> bool:
        """Whether a commit was sent whose outcome is not known."""
        return self._unknown is not None

    def resolve(self, timeout_ms: int | None = None) -> None:
        """Find out what became of a commit that was not answered; raise Uncertain if that is still not known, NotCommitted if
        nothing of it happened and nobody was told yet."""
        if self._unknown is not None:
            self._find_out(self._unknown, timeout_ms)
        else:
            self._puts.publisher.is_held = False  # An interruption may have left it so, and then nothing could be put any more.
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def resolve_for_a_put(self, timeout_ms: int | None) -> None:
        """The same, but a refusal waits for the next transaction or receive: it is no news of the put."""
        try:
            self.resolve(timeout_ms)
        except NotCommitted as refusal:
            self._refusal = refusal

    def flush_at_close(self) -> OnceMQError | None:
        """Have what is pending confirmed, or else kept; return what stands in the way of that, if anything does."""
        try:
            self._puts.flush_at_close()
        except OnceMQError as problem:
            log.warning("while closing: %s", "; ".join([str(problem), *getattr(problem, "__notes__", ())]))
            try:
                self._keep_what_follows()
            except OnceMQError as trouble:
                return trouble
        return None

    def _keep_what_follows(self) -> None:
        """Have all that was collected in the outbox, also behind a commit whose outcome will not be known here.

        If the broker never took it, what follows begins beyond the next number. So the broker never had that either, and
        whoever goes on puts it anew; and a commit that arrives only then is of a session that is over.
        """
        unknown, self._unknown = self._unknown, None
        if unknown is not None:
            self._puts.publisher.skip(unknown.packet.numbers)
        self._puts.cut_all()

    def commit(self, reads: list[Touched], blocks: list[OpenBlock]) -> Receipts:
        """Commit; raise NotCommitted if the broker refused all of it, Uncertain if it did not answer."""
        cut = [(block, bytes(block.cut())) for block in blocks]
        body = b"".join(content for _, content in cut)
        if len(body) > BLOCK_BYTES_MAX:
            raise MessageTooLarge("transaction", len(body), BLOCK_BYTES_MAX)
        entries = tuple(TransactPut(block.topics, len(block.values), len(content), block.strict) for block, content in cut)
        moves = tuple(_move(feed, begin) for feed, begin, _ in reads)
        self._puts.flush(None)  # They are numbered before it, and a stream is taken in order.
        packet = Transact(self.session.id, self._puts.publisher.next_number, moves, entries)
        commit = Commit(packet, body, reads)
        self._puts.publisher.is_held = True
        self._unknown = commit
        try:
            self._find_out(commit, None)
        except BaseException:
            commit.is_awaited = False
            self._keep_refusal(commit)
            raise
        return _receipts(commit)

    def _find_out(self, commit: Commit, timeout_ms: int | None) -> None:
        """Have the outcome of a commit. On an event loop one call asks, and the others wait for what it hears."""
        failures, left_ms = len(commit.failures), self.session.patience(timeout_ms)
        with self._turn(timeout_ms) as has_turn:
            if self._unknown is not commit:
                return  # Known by now; what is unknown may be a newer one.
            if not has_turn:
                raise Uncertain("another task still asks for it")
            if len(commit.failures) > failures:
                raise Uncertain(commit.failures[-1])  # Asked just now, with all patience: not by one call after the other.
            try:
                self._finish(commit, left_ms())
            except Uncertain as problem:
                if timeout_ms is None:
                    commit.failures.append(problem.reason)
                raise

    def _finish(self, commit: Commit, timeout_ms: int | None) -> None:
        """Send a commit until its outcome is known. What was sent once may arrive late, so only an outcome ends it."""
        reach("client.before_commit")
        try:
            done = self._ask(commit, timeout_ms)
        except NotCommitted as refusal:
            self._give_up(commit, refusal)
            return
        reach("client.after_commit")
        # In this order: whatever interrupts it, asking again under the same number repeats it and changes nothing.
        self._puts.took(commit.packet.number, commit.packet.numbers)
        self._puts.publisher.is_held = False
        self._apply(commit, done)
        self._unknown = None
        self._keep_refusal(commit)

    def _keep_refusal(self, commit: Commit) -> None:
        """Nobody waits for it any more: the next transaction or receive is told that nothing of it happened."""
        if commit.refusal is not None and not commit.is_awaited:
            self._refusal = commit.refusal

    def _ask(self, commit: Commit, timeout_ms: int | None) -> TransactDone:
        left_ms = self.session.patience(timeout_ms)
        for attempt in range(1, REQUEST_TRIES + 1):
            try:
                reply = self.session.ask(commit.packet, commit.body if commit.packet.puts else None, left_ms())
            except BrokerUnreachable as problem:
                self._puts.note_away(timeout_ms)
                raise Uncertain(str(problem)) from problem
            except Refused as problem:
                self._on_refused(problem, attempt, is_last=attempt == REQUEST_TRIES or left_ms() == 0)
            else:
                invariant(isinstance(reply, TransactDone), "the broker answered with another packet", got=type(reply).__name__)
                return reply  # type: ignore[return-value]
        raise Uncertain("no answer")  # Not reached: the last attempt raises.

    def _on_refused(self, problem: Refused, attempt: int, *, is_last: bool) -> None:
        """No outcome yet. A full disk or a stopping broker may pass; a gap means that the broker forgot what it had confirmed.

        What the broker will never take is as good as an outcome, except that it has used up no number.
        """
        if problem.code == Code.GAP_IN_STREAM:
            self.session.fail(Diverged("it has forgotten puts that it had confirmed"))
            self.session.raise_failure()
        if problem.code in _NEVER:
            raise NotCommitted(problem.code, problem.text) from problem
        if problem.code not in TRANSIENT_FOR_PUTS:
            raise problem
        if is_last or problem.code == Code.JOINING:  # Of a node that joins `ask` has waited for long already.
            raise Uncertain(str(problem)) from problem
        self.session.restart(attempt)

    def _give_up(self, commit: Commit, refusal: NotCommitted) -> None:
        """Nothing of it happened, nor will it: its messages come again, and its numbers are the next ones'."""
        commit.set_back()
        commit.refusal = refusal
        self._unknown = None
        self._puts.publisher.is_held = False
        self._keep_refusal(commit)

    @staticmethod
    def _apply(commit: Commit, done: TransactDone) -> None:
        """Have the feeds stand where the outcome says."""
        commit.done = done
        if done.code:
            commit.refusal = NotCommitted(done.code, TEXTS[Code(done.code)])
            commit.set_back()
            return
        for (feed, _, _), ack in zip(commit.reads, commit.packet.acks, strict=True):
            feed.done = feed.confirmed = ack.end


def _receipts(commit: Commit) -> Receipts:
    """Tell the outcome, which is known by now, to whoever made the commit."""
    if commit.refusal is not None:
        raise commit.refusal
    if commit.done is None:
        raise InvariantViolated("the outcome of a commit was found out and is not there")
    return Receipts(_outcomes(commit.packet, commit.done))


def _move(feed: Feed, begin: int) -> TransactAck:
    """What one feed has read in this transaction."""
    return TransactAck(feed.info.subscription_id, feed.info.topic_id, begin, feed.place, *feed.bookmark)


def _outcomes(packet: Transact, done: TransactDone) -> list[Outcome]:
    """Match the outcomes of the answer, one per put and topic, with the numbers they have."""
    found: list[Outcome] = []
    number, told = packet.number + 1, iter(done.outcomes)
    for put in packet.puts:
        for topic in put.topics:
            outcome = next(told, None)
            stored, offset = (outcome.stored, outcome.first_offset) if outcome is not None else (True, None)
            topic_id = outcome.topic_id if outcome is not None else 0
            found.append(Outcome(topic, topic_id, number, put.count, stored, offset, done.duplicate))
            number += put.count
    return found


class Transaction:
    """What `client.transaction()` returns. Leaving it without an exception commits; with one, nothing happened."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._alone = transactions.session.alone
        self._touched: dict[str, Touched] = {}
        self._blocks: dict[tuple[tuple[str, ...], bool], OpenBlock] = {}
        self._is_open = self._is_used = False
        self.receipts = Receipts(())
        """What became of the puts, after the commit: one receipt per message and topic."""

    def __enter__(self) -> Self:
        try:
            self._enter()
        except BaseException:
            self._end()
            raise
        return self

    @alone
    def _enter(self) -> None:
        if self._transactions.is_open:
            raise UsageError("a client has one transaction at a time: leave the other one first")
        if self._is_used:
            raise UsageError("a transaction is used once: ask the client for another one")
        self._is_used = True
        self._transactions.resolve()
        self._transactions.current = self
        self._is_open = True

    @alone
    def get(self, topic: str, timeout: float | None = None) -> Message | None:
        """Return the next message of a topic; it is finished by the commit. None if none came in `timeout` seconds."""
        topic = check_topic(topic)
        feed = self._touch(topic)
        before = feed.place, feed.bookmark
        try:
            is_there = feed.wait(milliseconds(timeout))
            self._check_open()  # On an event loop the block may have been left meanwhile, and the feed be somebody else's.
            return self._transactions.receiving.give(topic, feed, feed.take()) if is_there else None
        except Gap:
            raise  # Told: whoever goes on inside the block goes on behind it.
        except BaseException:
            self._take_back(feed, before)
            raise

    def _take_back(self, feed: Feed, before: tuple[int, Bookmark]) -> None:
        """What a get did not return this transaction does not finish. One that is over has given it back."""
        if self._is_open:
            feed.set_back(*before)

    @alone
    def get_many(self, topic: str, count: int = 1000, timeout: float | None = None) -> list[Message]:
        """Return up to `count` messages as soon as there is one; [] if none came in time."""
        whole(count, "the count of get_many", 1)
        topic = check_topic(topic)
        feed = self._touch(topic)
        before = feed.place, feed.bookmark
        try:
            first = self.get(topic, timeout)
            found = [] if first is None else [first]
            while found and len(found) < count and feed.has_message():
                found.append(self._transactions.receiving.give(topic, feed, feed.take()))
        except Gap:
            raise
        except BaseException:
            self._take_back(feed, before)
            raise
        return found

    @alone
    def put(
        self,
        topic: str | list[str] | tuple[str, ...],
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        strict: bool = False,
    ) -> None:
        """Have a message stored by the commit, in one topic or in several."""
        self._check_open()
        flags(strict=strict)
        topics = checked_topics(as_topics(topic))
        block = self._blocks.get((topics, strict))
        if block is None:
            if len(self._blocks) >= TRANSACT_PUTS_MAX:
                raise UsageError(f"a transaction puts to at most {TRANSACT_PUTS_MAX} different topics or sets of them")
            block = self._blocks[topics, strict] = OpenBlock(topics, strict=strict)
        block.add(as_bytes(value), self._transactions.session.clock.wall_us(), key, headers)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._leave(is_done=kind is None)
        except BaseException:
            self._end()
            raise

    @alone
    def _leave(self, *, is_done: bool) -> None:
        self._is_open = False
        if is_done:
            reads = [read for read in self._touched.values() if read[0].place > read[1]]
            blocks = [block for block in self._blocks.values() if block.values]
            if reads or blocks:
                self.receipts = self._transactions.commit(reads, blocks)
        self._end()

    def _end(self) -> None:
        """Leave the client free for the next one, and give again what was not committed."""
        self._is_open = False
        if self._transactions.current is self:
            self._transactions.current = None
        for feed, begin, bookmark in self._touched.values():
            # A commit that was not answered may have happened: the places stay until that is known.
            if feed.done <= begin and not self._transactions.is_unknown:
                feed.set_back(begin, bookmark)
        self._transactions.receiving.let_go(self)

    def _touch(self, topic: str) -> Feed:
        self._check_open()
        if topic not in self._touched:
            if len(self._touched) >= TRANSACT_ACKS_MAX:
                raise UsageError(f"a transaction gets from at most {TRANSACT_ACKS_MAX} topics")
            feed = self._transactions.receiving.claim(topic, self)
            if not self._is_open:
                self._transactions.receiving.let_go(self)  # Left while the claim had to wait.
            self._check_open()
            self._touched[topic] = feed, feed.place, feed.bookmark
        return self._touched[topic][0]

    def _check_open(self) -> None:
        if not self._is_open:
            raise UsageError("this transaction is over: use it inside its with block")

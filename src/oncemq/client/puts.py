# SPDX-License-Identifier: Apache-2.0
"""The runner of core/publisher.py: blocks go into the outbox, then onto the wire, then out of both.

May not: send what is not in the outbox, or let an entry go without its outcome.
The idea: put(wait=False) fills an open block per topic; a full block is cut, kept and sent while the window has room.
Waiting means sending and receiving until the entry is settled; without progress the connection is renewed, and after
REQUEST_TRIES the outbox is synced and PutPending raised: the put is kept and will be sent.
Next: core/publisher.py for the rules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from oncemq.client.bulk import blocks_of
from oncemq.client.outcomes import final_error, outcomes_of
from oncemq.client.session import Session
from oncemq.core.identity import Leftovers
from oncemq.core.packets import PutDone, Refused, Welcome
from oncemq.core.publisher import Entry, OpenBlock, Publisher
from oncemq.errors import BrokerUnreachable, Diverged, OnceMQError, OutboxFull, PutPending, UsageError
from oncemq.limits import BACKOFF_MS_MAX, CLOSE_TIMEOUT_MS, PUT_TOPICS_MAX, REQUEST_TIMEOUT_MS, REQUEST_TRIES
from oncemq.model.message import Headers, Receipts
from oncemq.model.names import check_topic
from oncemq.model.refusals import TRANSIENT_FOR_PUTS, Code

log = logging.getLogger("oncemq.client")


@dataclass(slots=True)
class _Closing:
    """A block that is being closed, with its entry once it is cut."""

    block: OpenBlock
    entry: Entry | None = None


class Waiting(msgspec.Struct, frozen=True):
    """A block that waits for its outcome."""

    topics: tuple[str, ...]
    messages: int
    size_bytes: int
    number: int


class Puts:
    def __init__(self, session: Session, publisher: Publisher) -> None:
        self._session = session
        self._state = session.state
        self.publisher = publisher
        self.open_blocks: dict[tuple[tuple[str, ...], bool], OpenBlock] = {}
        self.flushed_messages = 0
        self._requests: dict[int, tuple[Entry, int]] = {}
        """What was sent, and the floor of its stream then: a refusal may be older than what was confirmed since."""
        self._rewound_at = 0
        self._away_ms: int | None = None
        """When a broker that does not answer was last tried, while blocks without anyone waiting only pile up."""
        self._to_retire: dict[bytes, int] = {}
        self._problem: Refused | None = None
        self._refused: list[Entry] = []
        """Puts whose outcome is a refusal that nobody was told yet."""
        self.forbidden = ""
        """Why nothing may be put now, if so: inside a transaction of a database."""
        self.resolve: Callable[[int | None], None] = lambda _timeout_ms: None
        """Finds out, within that time, what became of a transaction whose commit was not answered (client/transactions.py)."""
        self._closing: _Closing | None = None
        """A block on its way into the outbox and the queue. Still here at the next call: something interrupted that."""
        for entry in session.state.entries():
            publisher.adopt(entry)
        session.on_put_done = self._on_put_done
        session.on_put_refused = self._on_refused
        session.pending = publisher.streams

    # --- filling blocks --------------------------------------------------------------------------------

    def open_block(self, topics: tuple[str, ...], *, strict: bool) -> OpenBlock:
        """Return the block that collects messages for these topics, opening one after checking the names."""
        self._check_allowed()
        block = self.open_blocks.get((topics, strict))
        if block is None:
            block = self.open_blocks[topics, strict] = OpenBlock(checked_topics(topics), strict=strict)
        return block

    @property
    def pending(self) -> int:
        """How many messages are kept or collected but not confirmed yet."""
        collected = sum(len(block.values) for block in list(self.open_blocks.values()))  # At once: any thread may look.
        closing = self._closing
        is_apart = closing is not None and (closing.entry is None or self.publisher.next_number == closing.entry.first_number)
        half_way = len(closing.block.values) if closing is not None and is_apart else 0
        return self.publisher.messages + collected + half_way

    def _check_allowed(self) -> None:
        if self.forbidden:
            raise UsageError(self.forbidden)

    def cut(self, block: OpenBlock, timeout_ms: int | None = None) -> Entry:
        """Close a block: number it, keep it in the outbox, queue it. A full outbox leaves everything as it was."""
        self._until_free(timeout_ms)
        key = block.topics, block.strict
        was_open = self.open_blocks.get(key) is block
        self._closing = _Closing(block)
        try:
            return self._close(self._closing)
        except OnceMQError:
            if was_open:
                self.open_blocks.setdefault(key, block)
            self._closing = None
            raise

    def _until_free(self, timeout_ms: int | None = None) -> None:
        """Have the next number be free. All the waiting there is before a block is closed: on an event loop other calls may
        close every open block meanwhile, so whoever closes one looks for it after this."""
        left_ms = self._session.patience(timeout_ms)
        while self.publisher.is_held:
            self.resolve(left_ms())
        self.make_up()

    def _cut_if_open(self, block: OpenBlock) -> None:
        """Close an open block, unless another call has done so by now: nothing is put under two numbers."""
        self._until_free()
        if self.open_blocks.get((block.topics, block.strict)) is block:
            self.cut(block)

    def make_up(self) -> None:
        """Finish closing a block that an exception out of nowhere (Ctrl-C, a signal's time-out) has left half-way.

        Its number may be in the outbox already, so it can never be another message's: it is put, whatever its caller was told.
        """
        if self._closing is not None:
            self._close(self._closing)

    def _close(self, closing: _Closing) -> Entry:
        """Every step may be the last one for now, and may be done again."""
        block = closing.block
        if self.open_blocks.get((block.topics, block.strict)) is block:
            del self.open_blocks[block.topics, block.strict]  # First: nothing may be added once the block is cut.
        if closing.entry is None:
            closing.entry = self.publisher.cut(block)
        entry = closing.entry
        self._session.write_down()
        self._state.keep(entry)
        self.publisher.add(entry)
        self._closing = None
        return entry

    def cut_all(self, timeout_ms: int | None = None) -> None:
        left_ms = self._session.patience(timeout_ms)
        if any(block.values for block in self.open_blocks.values()):
            self._until_free(left_ms())
        self.make_up()
        for key, block in list(self.open_blocks.items()):
            if block.values:
                self.cut(block, left_ms())
            else:
                del self.open_blocks[key]  # Its only message was refused: there is nothing to put.

    def _cut_all_with_room(self, timeout_ms: int | None = None) -> None:
        """Cut every open block; if the outbox is full, have what is in it confirmed first."""
        left_ms = self._session.patience(timeout_ms)
        try:
            self.cut_all(left_ms())
        except OutboxFull as full:
            self._make_room(full, left_ms())
            self.cut_all(left_ms())

    def _cut_with_room(self, block: OpenBlock) -> Entry:
        try:
            return self.cut(block)
        except OutboxFull as full:
            self._make_room(full, None)
            return self.cut(block)

    def _make_room(self, full: OutboxFull, timeout_ms: int | None) -> None:
        """Have everything in the outbox confirmed; a broker that is away leaves it full."""
        try:
            self._pump(lambda: len(self.publisher) == 0, timeout_ms)
        except BrokerUnreachable as problem:
            raise full from problem

    def hand_over(self, block: OpenBlock) -> None:
        """Cut a full block without waiting for its outcome; wait only while the window is full.

        A broker that is away is no error here: the outbox keeps the block, and refuses by itself when it is full.
        """
        try:
            self._cut_if_open(block)
        except OutboxFull:
            self._try_push()  # The broker may be back by now: what it takes makes room.
            self._cut_if_open(block)
        self._try_push()

    def _push(self) -> None:
        """Send what the window allows and take what has arrived, without waiting."""
        if self._session.welcome is None:
            return
        self._session.raise_failure()
        self._send()
        while self._session.receive(0):
            pass
        if self.publisher.is_window_full and self._away_ms is None:
            settled = self.publisher.settled  # A renewed connection empties the window too, but that is no answer.
            self._pump(lambda: self.publisher.settled != settled and not self.publisher.is_window_full)
        elif self._away_ms is not None and self._session.clock.now().ticks_ms - self._away_ms >= BACKOFF_MS_MAX:
            self._away_ms = self._session.clock.now().ticks_ms
            self._session.restart(0)
        self._send()
        self.retire()

    # --- waiting ---------------------------------------------------------------------------------------

    def put_one(self, topics: tuple[str, ...], value: bytes, key: bytes | None, headers: Headers | None, strict: bool) -> Entry:
        """Put one message as a block of its own and wait for its outcome."""
        self._check_allowed()
        self._cut_all_with_room()
        block = OpenBlock(checked_topics(topics), strict=strict)
        block.add(value, self._session.clock.wall_us(), key, headers)
        entry = self._cut_with_room(block)
        self.wait_for([entry])
        return entry

    def put_many(
        self, topics: tuple[str, ...], values: Iterable[bytes], keys: list[bytes | None] | None, *, strict: bool
    ) -> Receipts:
        """Put many messages in blocks and wait for all of them."""
        self._check_allowed()
        is_away = not self._is_reached()
        self.cut_all()
        entries: list[Entry] = []
        for block in blocks_of(checked_topics(topics), values, keys, strict=strict, wall_us=self._session.clock.wall_us):
            entries.append(self._cut_of_many(block, entries))
            is_away = is_away or not self._try_push()
        if is_away and entries:
            raise self._pending(entries[-1])  # All of it is kept and will be sent: nothing to put again.
        self.wait_for(entries)
        return Receipts(outcomes_of(entries))

    def _cut_of_many(self, block: OpenBlock, before: list[Entry]) -> Entry:
        try:
            return self.cut(block)
        except OutboxFull as problem:
            problem.taken = sum(entry.count for entry in before)
            raise

    def _is_reached(self) -> bool:
        """Have a session; False if the broker is away. Then everything is kept, as it is when the broker goes away later."""
        try:
            self._session.ensure()
        except BrokerUnreachable:
            self.note_away(None)
            return False
        return True

    def _try_push(self) -> bool:
        """Push; False if the broker is away. It is then not waited for again before it has said something."""
        try:
            self._push()
        except BrokerUnreachable:
            self.note_away(None)
            return False
        return True

    def wait_for(self, entries: list[Entry], timeout_ms: int | None = None) -> None:
        """Return once these are settled; raise PutPending if they are not, after making them durable here.

        They are once they have left, so everything before them is settled too. A receipt told ahead of an older put would be void
        in silence at a broker that was set back: it asks for that older one, gets all of them again, and gives them other places.
        """
        if not entries:
            return
        last = entries[-1]
        try:
            self._pump(lambda: self.publisher.has_left(last), timeout_ms)
        except BrokerUnreachable as problem:
            self.note_away(timeout_ms)
            raise self._pending(last, problem) from problem.__cause__ or problem
        refused = [entry for entry in entries if entry.done is not None and entry.done.code]
        if refused:
            news = final_error(refused)
            self._refused = [entry for entry in self._refused if entry not in refused]  # Told here, so flush() need not.
            raise news

    def flush(self, timeout_ms: int | None) -> int:
        """Have every put confirmed; return how many messages were since the last flush."""
        left_ms = self._session.patience(timeout_ms)
        self._cut_all_with_room(left_ms())
        try:
            self._pump(lambda: len(self.publisher) == 0, left_ms())
        except BrokerUnreachable as problem:
            self.note_away(timeout_ms)
            raise self._pending(None, problem) from problem.__cause__ or problem
        if self._refused:
            news = final_error(self._refused)
            self.flushed_messages, self._refused = 0, []  # Last: whatever interrupts us before this line, the next flush tells.
            raise news
        flushed, self.flushed_messages = self.flushed_messages, 0
        return flushed

    @property
    def has_news(self) -> bool:
        """Whether a put was refused for good and nobody was told."""
        return bool(self._refused)

    def flush_at_close(self) -> None:
        """Have every put confirmed, in a short time. A broker that was found away just now is not waited for once more."""
        is_away = self._away_ms is not None and self._session.clock.now().ticks_ms - self._away_ms < CLOSE_TIMEOUT_MS
        self.flush(0 if is_away else CLOSE_TIMEOUT_MS)

    def note_away(self, timeout_ms: int | None) -> None:
        """Remember that nobody answered, if the caller gave the broker all the time that it is given by itself."""
        if timeout_ms is None:
            self._away_ms = self._session.clock.now().ticks_ms

    def told_pending(self) -> PutPending:
        """What tells that nothing was heard of puts in time. They are kept, as it says: what was only collected is by now."""
        self.cut_all(0)
        return self._pending(None)

    def _pending(self, entry: Entry | None, problem: BrokerUnreachable | None = None) -> PutPending:
        self._state.sync()
        waiting = [entry] if entry is not None else self.publisher.entries()
        number = waiting[0].first_number if waiting else self.publisher.next_number - 1
        reason = str(problem.__cause__ or "") if problem is not None else ""
        return PutPending(number, self.publisher.messages, is_durable=self._state.is_durable, reason=reason)

    def _pump(self, is_done: Callable[[], bool], timeout_ms: int | None = None) -> None:
        """Send and receive until `is_done`; raise BrokerUnreachable after tries without progress, or when time is over."""
        session = self._session
        started_ms = session.clock.now().ticks_ms
        tries, settled = 0, self.publisher.settled
        while not is_done():
            left_ms = None if timeout_ms is None else max(0, timeout_ms - (session.clock.now().ticks_ms - started_ms))
            session.ensure(left_ms)
            self._send()
            self.retire()
            if left_ms == 0:
                raise session.unreachable(started_ms)
            is_heard = self._hear_of_puts(REQUEST_TIMEOUT_MS << tries)
            if self.publisher.settled != settled:
                tries, settled = 0, self.publisher.settled
            elif not is_heard or self._problem is not None:
                tries += 1
                self._retry(tries, started_ms)
        self.retire()  # Before it is told, so that the next write to the outbox says so.

    def _hear_of_puts(self, timeout_ms: int) -> bool:
        """Receive until something is said of a put; False if nothing is. On an event loop others have answers all the time."""
        session, settled = self._session, self.publisher.settled
        due_ms = session.clock.now().ticks_ms + timeout_ms
        left_ms = timeout_ms
        while left_ms > 0:
            session.receive(left_ms)
            session.raise_failure()
            if self.publisher.settled != settled or self._problem is not None:
                return True
            self._send()  # A refusal, or another call that renewed the connection, may have set everything back.
            left_ms = due_ms - session.clock.now().ticks_ms
        return False

    def _retry(self, tries: int, started_ms: int) -> None:
        problem, self._problem = self._problem, None
        if tries >= REQUEST_TRIES:
            refused = self._session.to_error(problem) if problem is not None else None
            if problem is not None and refused is not None and problem.code not in TRANSIENT_FOR_PUTS:
                raise refused
            raise self._session.unreachable(started_ms) from refused
        self._session.restart(tries)

    def _send(self) -> None:
        try:
            for entry in self.publisher.to_send():
                request = self._session.send(entry.packet(self._session.id), entry.block)
                self._requests[request] = entry, self.publisher.floor(entry.stream)
        except BaseException:
            self.publisher.rewind()  # Some of them count as sent and are not.
            raise

    # --- what arrives ----------------------------------------------------------------------------------

    def _on_put_done(self, request: int, done: PutDone) -> None:
        self._requests.pop(request, None)
        self._away_ms = None
        left = self.publisher.on_put_done(done)
        for entry in left:
            self.flushed_messages += entry.count
            if entry.done is not None and entry.done.code:
                self._refused.append(entry)
            self._to_retire[entry.stream] = entry.last_number

    def took(self, first_number: int, numbers: int) -> None:
        """A transaction has used up these numbers of the stream. Saying so again changes nothing."""
        self.publisher.took(first_number, numbers)
        stream, last = self.publisher.stream, first_number + numbers - 1
        self._to_retire[stream] = max(last, self._to_retire.get(stream, 0))

    def waiting(self) -> list[Waiting]:
        """Every block that is kept and not confirmed, oldest first."""
        entries = self.publisher.entries()
        return [Waiting(entry.topics, entry.count, len(entry.block), entry.first_number) for entry in entries]

    def retire(self) -> None:
        """Let the outbox forget what is settled. Done while answers are on their way: nobody waits for it."""
        for stream, number in self._to_retire.items():
            self._state.retire(stream, number)
        self._to_retire.clear()

    def _on_refused(self, request: int, packet: Refused) -> bool:
        """A put was refused without an outcome: send again from the expected number, or wait and try again."""
        entry, floor = self._requests.pop(request, (None, 0))
        if entry is None:
            return False
        if packet.code == Code.GAP_IN_STREAM and packet.expected <= floor:
            self._session.fail(Diverged(f"put {floor} was confirmed, but the broker now expects put {packet.expected}"))
        elif packet.code == Code.GAP_IN_STREAM:
            # One lost block makes a window of refusals; only the first of them may rewind.
            if packet.expected != self._rewound_at:
                self._rewound_at = packet.expected
                self.publisher.rewind()
        else:
            about = (
                f"put {entry.first_number} to {', '.join(entry.topics)} is not taken, nor is what waits behind it: {packet.text}"
            )
            self._problem = msgspec.structs.replace(packet, text=about)
        return True

    def on_welcome(self, welcome: Welcome) -> None:
        """Compare with the broker. What cannot be sent under its number is put anew if it provably never arrived, else told.

        Who takes over has accepted that the broker may have less than what was confirmed here.
        """
        confirmed = {} if self._session.takeover else self._state.confirmed()
        stuck = self.publisher.on_welcome(welcome.streams, welcome.previous, confirmed)
        waiting = self.publisher.streams()
        # Behind entries that can still be sent the outbox could not let them go one by one: the next run finds them alone.
        stuck = [entry for entry in stuck if entry.stream not in waiting]
        if stuck:
            listed = {info.stream for info in welcome.streams}
            absent = {entry.stream for entry in stuck if entry.stream in listed or self._is_absent(entry.stream, welcome)}
            anew = [entry for entry in stuck if entry.stream in absent]
            unknown = [entry for entry in stuck if entry.stream not in absent]
            self._tell_leftovers(anew, unknown)
            self._put_anew(anew)
            for entry in unknown:
                self._state.retire(entry.stream, entry.last_number)

    def _is_absent(self, stream: bytes, welcome: Welcome) -> bool:
        """Whether a stream this broker does not know was never sent to it: it began after the last session it knows."""
        identity = self._state.identity
        return stream.hex() in identity.absent or identity.is_later(stream, welcome.previous.stream)

    def _tell_leftovers(self, anew: list[Entry], unknown: list[Entry]) -> None:
        """Write down what is about to happen, and the proof: half-way through it could not be made again."""
        told = Leftovers(sum(entry.count for entry in anew), sum(entry.count for entry in unknown))
        absent = tuple(dict.fromkeys(entry.stream.hex() for entry in anew))
        self._state.save(msgspec.structs.replace(self._state.identity, absent=absent, leftovers=told))
        if told.renumbered:
            log.warning("%d message(s) of earlier runs never reached this broker: they are put anew", told.renumbered)
        if told.unknown:
            log.warning("%d message(s) of earlier runs may or may not have been stored: they are not sent again", told.unknown)

    def _put_anew(self, entries: list[Entry]) -> None:
        """Move entries into our own stream."""
        for old in entries:
            new = self.publisher.renumbered(old)
            self._state.replace(old, new)
            self.publisher.add(new)
            self._state.sync()  # Before the next, and before it is sent: a power cut leaves the one or the other.

    def on_reset(self) -> None:
        self._rewound_at = 0
        self._requests.clear()
        self.publisher.rewind()


@lru_cache(maxsize=1024)
def checked_topics(topics: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names if a put may go to them, else raise UsageError."""
    if not topics or len(topics) > PUT_TOPICS_MAX or len(set(topics)) != len(topics):
        raise UsageError(f"put to one to {PUT_TOPICS_MAX} different topics at a time")
    return tuple(map(check_topic, topics))

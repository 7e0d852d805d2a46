# SPDX-License-Identifier: Apache-2.0
"""The publishing half of a client: blocks in order, a window of them in flight, each kept until it has its outcome.

May not: renumber, re-cut or drop a block; send one before the runner has put it into the outbox.
The idea: entries stand in one queue, oldest first, those of older sessions' streams before our own. The first `sent` of them
are in flight. An answer settles an entry wherever it stands; entries leave at the head only. After a lost
connection everything unsettled is sent again: the broker takes each number once.
Next: client/client.py, which moves the packets; journal/outbox.py, where entries survive.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence

import msgspec

from oncemq.core.packets import Put, PutDone, StreamInfo
from oncemq.errors import Diverged, MessageTooLarge, UsageError, invariant
from oncemq.limits import (
    BLOCK_CUT_BYTES,
    BLOCK_CUT_MESSAGES,
    HEADERS_BYTES_MAX,
    KEY_BYTES_MAX,
    PUT_WINDOW_BLOCKS,
    PUT_WINDOW_BYTES,
    VALUE_BYTES_MAX,
)
from oncemq.model.block import cut_block
from oncemq.model.message import Headers, Outcome


class Entry:
    """One cut block on its way: its numbers, its bytes, and its outcome once there is one."""

    __slots__ = ("block", "count", "done", "first_number", "numbers", "stream", "strict", "topics")

    def __init__(
        self, stream: bytes, first_number: int, count: int, topics: tuple[str, ...], *, strict: bool, block: bytes | bytearray
    ) -> None:
        self.stream = stream
        self.first_number = first_number
        self.count = count
        self.numbers = count * len(topics)
        self.topics = topics
        self.strict = strict
        self.block = block
        self.done: PutDone | None = None

    @property
    def last_number(self) -> int:
        return self.first_number + self.numbers - 1

    def packet(self, session: bytes) -> Put:
        return Put(session, self.stream, self.first_number, self.count, self.topics, self.strict)

    def outcomes(self) -> list[Outcome]:
        """One outcome per topic; of a repeat too old to be kept in full only that it was taken is known."""
        done = self.done
        invariant(done is not None, "asked for the outcome of an unsettled block")
        told = dict(enumerate(done.outcomes)) if done else {}
        duplicate = bool(done and done.duplicate)
        return [
            Outcome(
                topic,
                told[index].topic_id if index in told else 0,
                self.first_number + index * self.count,
                self.count,
                told[index].stored if index in told else True,
                told[index].first_offset if index in told else None,
                duplicate,
            )
            for index, topic in enumerate(self.topics)
        ]


class OpenBlock:
    """Messages for the same topics that wait to be cut. Columns nobody uses are not kept."""

    __slots__ = ("headers", "keys", "size_bytes", "strict", "times_us", "topics", "values")

    def __init__(self, topics: tuple[str, ...], *, strict: bool) -> None:
        self.topics = topics
        self.strict = strict
        self.values: list[bytes] = []
        self.times_us: array[int] = array("q")
        self.keys: list[bytes | None] | None = None
        self.headers: list[bytes | None] | None = None
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.values) >= BLOCK_CUT_MESSAGES or self.size_bytes >= BLOCK_CUT_BYTES

    def add(self, value: bytes, time_us: int, key: bytes | None = None, headers: Headers | None = None) -> None:
        """Add a message, or raise MessageTooLarge and add nothing. `values` grows last: until then the message is not there."""
        if len(value) > VALUE_BYTES_MAX:
            raise MessageTooLarge("value", len(value), VALUE_BYTES_MAX)
        if len(self.times_us) != len(self.values):
            self._trim()
        if key is not None or headers is not None or self.keys is not None or self.headers is not None:
            self._add_columns(key, headers)
        self.times_us.append(time_us)
        self.size_bytes += len(value)
        self.values.append(value)

    def _trim(self) -> None:
        """Cut off what an interrupted `add` left in some columns; without it keys would belong to other messages' values."""
        count = len(self.values)
        for column in (self.keys, self.headers, self.times_us):
            if column is not None:
                del column[count:]

    def _add_columns(self, key: bytes | None, headers: Headers | None) -> None:
        if key is not None and not isinstance(key, bytes):
            raise UsageError(f"a key must be bytes, not {type(key).__name__}: encode it first")
        encoded = None if headers is None else _encode_headers(headers)
        for part, content, limit in (("key", key, KEY_BYTES_MAX), ("headers", encoded, HEADERS_BYTES_MAX)):
            if content is not None and len(content) > limit:
                raise MessageTooLarge(part, len(content), limit)
        self._trim()
        if self.keys is None and key is not None:
            self.keys = [None] * len(self.values)
        if self.headers is None and encoded is not None:
            self.headers = [None] * len(self.values)
        if self.keys is not None:
            self.keys.append(key)
        if self.headers is not None:
            self.headers.append(encoded)
        self.size_bytes += len(key or b"") + len(encoded or b"")

    def drop_last(self) -> None:
        """Take back the message added last."""
        self.size_bytes -= len(self.values.pop())
        self.times_us.pop()
        for column in (self.keys, self.headers):
            if column is not None:
                self.size_bytes -= len(column.pop() or b"")

    def cut(self) -> bytearray:
        self._trim()
        return cut_block(self.values, self.times_us, self.keys, self.headers)


def _encode_headers(headers: object) -> bytes:
    """Headers as they are stored; refused here if a reader could not read them."""
    if not isinstance(headers, dict) or not all(
        isinstance(name, str) and isinstance(value, str | bytes) for name, value in headers.items()
    ):
        raise UsageError("headers must be a dictionary from text to text or bytes")
    try:
        return msgspec.msgpack.encode({_plain(name): _plain(value) for name, value in headers.items()})
    except UnicodeEncodeError as problem:
        raise UsageError(f"headers must be text that can be written as UTF-8 ({problem.reason}), or bytes") from problem


def _plain(part: str | bytes) -> str | bytes:
    """The same text or bytes, of no class of the application's: those cannot be encoded."""
    return str.__str__(part) if isinstance(part, str) else bytes(part)


def expect_confirmed(streams: Sequence[StreamInfo], confirmed: dict[bytes, int]) -> None:
    """Raise Diverged if the broker has less of a stream than what was confirmed here."""
    for info in streams:
        if info.last_number < confirmed.get(info.stream, 0):
            raise Diverged(f"put {confirmed[info.stream]} was confirmed, but the broker now ends at {info.last_number}")


class Publisher:
    """The queue of entries of one client process."""

    def __init__(self, stream: bytes) -> None:
        self.stream = stream
        self.next_number = 1
        self.confirmed: dict[bytes, int] = {}
        """The highest number of each stream whose outcome is known here."""
        self._floors: dict[bytes, int] = {}
        self.settled = 0
        """How many entries have had their outcome in this process: what progress means."""
        self._entries: deque[Entry] = deque()
        self._by_number: dict[tuple[bytes, int], Entry] = {}
        self._sent = 0
        self._sent_bytes = 0
        self.is_held = False
        """Whether a transaction has taken the next numbers and its outcome is not known: nothing may be numbered before it is."""

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Entry]:
        """What waits for its outcome, in order; as it is at one instant, whichever thread asks."""
        return list(self._entries)

    @property
    def messages(self) -> int:
        """How many messages wait for their outcome."""
        return sum(entry.count for entry in self.entries())

    @property
    def is_window_full(self) -> bool:
        return self._sent >= PUT_WINDOW_BLOCKS or self._sent_bytes >= PUT_WINDOW_BYTES

    def adopt(self, entry: Entry) -> None:
        """Take over an entry an earlier process left in the outbox. Before any of our own."""
        invariant(self.next_number == 1, "entries of older streams come first")
        if (entry.stream, entry.first_number) not in self._by_number:  # An interrupted put may have been kept twice.
            self._append(entry)

    def cut(self, block: OpenBlock) -> Entry:
        """Give a block its numbers. They count only once the entry is kept and comes back through `add`."""
        return Entry(self.stream, self.next_number, len(block.values), block.topics, strict=block.strict, block=block.cut())

    def renumbered(self, entry: Entry) -> Entry:
        """The same block under the next numbers of our own stream; it counts once it comes back through `add`."""
        return Entry(self.stream, self.next_number, entry.count, entry.topics, strict=entry.strict, block=entry.block)

    def add(self, entry: Entry) -> None:
        """Queue an entry that is in the outbox now. From here on it is never changed.

        May be called again for the last one, after something interrupted it: the second time only does what is left to do.
        """
        is_next = entry.first_number == self.next_number
        invariant(is_next or entry.last_number + 1 == self.next_number, "put numbers have no gaps", number=entry.first_number)
        if is_next and not (self._entries and self._entries[-1] is entry):
            self._append(entry)
        self.next_number = entry.last_number + 1

    def took(self, first_number: int, numbers: int) -> None:
        """A transaction has used up these numbers, and its outcome is known. Saying so again changes nothing."""
        if first_number < self.next_number:
            return
        invariant(not self._entries, "a transaction was numbered before what waits was settled")
        self.next_number = first_number + numbers
        self.confirmed[self.stream] = self._floors[self.stream] = self.next_number - 1

    def skip(self, numbers: int) -> None:
        """Leave room for a transaction whose outcome will not be known in this process."""
        self.next_number += numbers
        self.is_held = False

    def _append(self, entry: Entry) -> None:
        self._floors.setdefault(entry.stream, entry.first_number - 1)
        self._by_number[entry.stream, entry.first_number] = entry
        self._entries.append(entry)

    def streams(self) -> tuple[bytes, ...]:
        """Older streams that still have entries, in order."""
        return tuple(dict.fromkeys(entry.stream for entry in self._entries if entry.stream != self.stream))

    def to_send(self) -> list[Entry]:
        """Return what the window lets go now, and count it as in flight."""
        out: list[Entry] = []
        while self._sent < len(self._entries) and not self.is_window_full:
            entry = self._entries[self._sent]
            self._sent += 1
            self._sent_bytes += len(entry.block)
            out.append(entry)
        return out

    def on_put_done(self, done: PutDone) -> list[Entry]:
        """Settle an entry; return those that leave the queue, in order."""
        entry = self._by_number.get((done.stream, done.first_number))
        if entry is None:
            return []
        if entry.done is None:
            entry.done = done
            self.settled += 1
        left: list[Entry] = []
        while self._entries and self._entries[0].done is not None:
            left.append(self._leave())
        return left

    def _leave(self) -> Entry:
        """Let the head go; it is taken out last, so that an interrupted call is made up for by the next answer."""
        entry = self._entries[0]
        self.confirmed[entry.stream] = self._floors[entry.stream] = entry.last_number
        if self._sent:
            self._sent -= 1
            self._sent_bytes -= len(entry.block)
        self._entries.popleft()
        self._by_number.pop((entry.stream, entry.first_number), None)
        entry.block = b""  # Receipts may be kept for long; the bytes need not be.
        return entry

    def has_left(self, entry: Entry) -> bool:
        """Whether an entry has its outcome, and so has every one before it."""
        return entry.done is not None and (entry.stream, entry.first_number) not in self._by_number

    def floor(self, stream: bytes) -> int:
        """The last number of a stream that is no longer here: a broker that asks for it or an older one went back."""
        return self._floors.get(stream, 0)

    def rewind(self) -> None:
        """Everything that is here has to be sent again: the connection, or an earlier block, was lost.

        Also what has an outcome that nobody was told yet: a broker that was set back meanwhile will give it another place.
        """
        self._sent = 0
        self._sent_bytes = 0
        for entry in self._entries:
            entry.done = None

    def on_welcome(self, streams: Sequence[StreamInfo], previous: StreamInfo, confirmed: dict[bytes, int]) -> list[Entry]:
        """Compare with what the broker has; return the entries that can never be sent under their numbers.

        Raises Diverged if the broker has less than what was confirmed here: then it went back, not we. A stream that went back,
        or an outbox that came back from a power cut with a hole, leaves entries beyond the next number the broker takes: it
        never had them. A stream that the broker leaves out it does not know.
        """
        expect_confirmed((*streams, previous), confirmed)
        expected = {info.stream: info.last_number + 1 for info in streams}
        lost: list[Entry] = []
        for entry in list(self._entries):
            if entry.first_number > expected.get(entry.stream, 0):
                lost.append(entry)
                self._entries.remove(entry)
                del self._by_number[entry.stream, entry.first_number]
            else:
                expected[entry.stream] = max(expected[entry.stream], entry.last_number + 1)
        return lost

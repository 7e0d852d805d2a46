# SPDX-License-Identifier: Apache-2.0
"""What applications hold: Message and Receipt, and the one way to say where a message came from.

May not: be changed after birth.
The idea: a Message is made two million times a second, so it is a msgspec Struct (frozen, without garbage-collector
tracking) and shares everything that is the same for its whole block through `source`.
Next: model/block.py, where messages are cut from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import msgspec

from oncemq.errors import Damaged

Headers = dict[str, str | bytes]


class Source(msgspec.Struct, frozen=True, gc=False):
    """What all messages of one block share: who put it, and where the broker stored it."""

    topic: str
    topic_id: int
    publisher: str
    stream: bytes
    first_number: int
    first_offset: int
    append_number: int
    append_time_us: int
    start_id: bytes


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message as an application gets it."""

    topic: str
    offset: int
    value: bytes
    key: bytes | None
    raw_headers: bytes | None
    publish_time_us: int
    source: Source
    attempt: int = 1
    """How often it was given, this time included: receive() and transactions give again what was not finished."""

    @property
    def headers(self) -> Headers:
        """The headers given at put, decoded on demand; raises Damaged if the publisher sent something else."""
        if self.raw_headers is None:
            return {}
        try:
            return msgspec.msgpack.decode(self.raw_headers, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise Damaged(self.topic, self.offset, self.offset + 1, f"its headers cannot be read: {problem}") from problem

    @property
    def publisher(self) -> str:
        """The client id that put it."""
        return self.source.publisher

    @property
    def put_number(self) -> int:
        """Its number in its publisher's put stream; with `source.stream` unique for ever."""
        return self.source.first_number + self.offset - self.source.first_offset

    @property
    def append_time_us(self) -> int:
        """When the broker stored it, microseconds since 1970."""
        return self.source.append_time_us


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The broker's durable answer to one put."""

    topic: str
    number: int
    stored: bool
    offset: int | None
    duplicate: bool
    topic_id: int = 0


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The answer to one block on one topic: `first_offset` is None if not stored or no longer known."""

    topic: str
    topic_id: int
    first_number: int
    count: int
    stored: bool
    first_offset: int | None
    duplicate: bool

    def receipt(self, index: int) -> Receipt:
        """Return the receipt of message `index` of the block."""
        offset = None if self.first_offset is None else self.first_offset + index
        return Receipt(self.topic, self.first_number + index, self.stored, offset, self.duplicate, self.topic_id)


class Receipts(Sequence[Receipt]):
    """Receipts of many puts, kept as one outcome per block and made on demand."""

    __slots__ = ("_count", "outcomes")

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = tuple(outcomes)
        self._count = sum(outcome.count for outcome in self.outcomes)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Receipt]:
        for outcome in self.outcomes:
            for index in range(outcome.count):
                yield outcome.receipt(index)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return list(self)[index]
        wanted = index + self._count if index < 0 else index
        for outcome in self.outcomes:
            if 0 <= wanted < outcome.count:
                return outcome.receipt(wanted)
            wanted -= outcome.count
        raise IndexError(index)

    @property
    def stored(self) -> int:
        """How many messages were stored."""
        return sum(outcome.count for outcome in self.outcomes if outcome.stored)

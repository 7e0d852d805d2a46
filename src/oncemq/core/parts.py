# SPDX-License-Identifier: Apache-2.0
"""Parts and splices: blocks that lie in the journal before they have offsets, and how they get them without being written again.

May not: hold blocks. A part is numbers; where its blocks lie is the journal's business, under the part's storage id.
The idea: a part is stored like a topic of its own that nobody can name, rows 0, 1, 2 …. A commit splices it into a real topic:
offsets [first, end) of the topic are rows [0, end - first) of the storage id. Retention trims both by the same number.
Next: core/staging.py, which decides; core/gets.py, which reads through splices.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right

import msgspec

from oncemq.core.packets import CommittedRange
from oncemq.limits import NAME_BYTES_MAX

PUBLISHER_PREFIX = "spark."
NO_ROWS = 0
"""The storage id of a splice that stands for lost messages: there is nothing to read, whoever comes to it is told a gap."""


class Part(msgspec.Struct):
    """A part that is being staged. `crc` is over the checksums of its blocks; `last_crc` tells a repeated chunk from another."""

    storage_id: int
    query: str
    batch: int
    chunks: int = 0
    rows: int = 0
    size_bytes: int = 0
    crc: int = 0
    last_crc: int = 0


class Query(msgspec.Struct, frozen=True):
    """What is remembered of a query: its last committed batch, so that the same one is recognised and an older one refused."""

    batch: int
    next_number: int
    is_once: bool
    ranges: tuple[CommittedRange, ...]


class Storage(msgspec.Struct, frozen=True):
    """What must be stored of a storage id: rows [low, end). `name` is for people."""

    name: str
    low: int
    end: int


class Splice(msgspec.Struct, frozen=True, array_like=True):
    """Offsets [first, end) of a topic are rows [0, end - first) of a storage id, or lost (NO_ROWS)."""

    first: int
    end: int
    storage_id: int
    append_number: int
    append_time_us: int
    start_id: bytes
    stream: bytes
    first_number: int
    publisher: str


class Piece(msgspec.Struct, frozen=True):
    """A run of offsets [first, end) that is read in one way: from the topic itself, or through a splice."""

    first: int
    end: int
    splice: Splice | None
    """None where the messages are the topic's own."""
    next_splice: Splice | None
    """The splice that ends a run of the topic's own, if one does."""


def piece_at(splices: list[Splice], offset: int, end: int) -> Piece:
    """Return the run that begins at `offset` and ends at `end` or before."""
    index = bisect_right(splices, offset, key=_end)
    if index == len(splices) or splices[index].first >= end:
        return Piece(offset, end, None, None)
    found = splices[index]
    if found.first > offset:
        return Piece(offset, found.first, None, found)
    return Piece(offset, min(end, found.end), found, None)


def splices_below(splices: list[Splice], low: int) -> int:
    """How many of them end at `low` or before: nobody can see their rows any more."""
    return bisect_right(splices, low, key=_end)


def _end(splice: Splice) -> int:
    return splice.end


def publisher_of(query: str) -> str:
    """Who put the rows of a query, in the eyes of subscribers."""
    return (PUBLISHER_PREFIX + query)[:NAME_BYTES_MAX]


def stream_of(query: str) -> bytes:
    """The put stream of a query: the same for ever, and no session's."""
    return hashlib.blake2b(query.encode(), digest_size=16, person=b"oncemq.staging").digest()


# --- snapshots --------------------------------------------------------------------------------------


class PartDump(msgspec.Struct, frozen=True, array_like=True):
    part: bytes
    storage_id: int
    query: str
    batch: int
    chunks: int
    rows: int
    size_bytes: int
    crc: int
    last_crc: int


class QueryDump(msgspec.Struct, frozen=True, array_like=True):
    query: str
    batch: int
    next_number: int
    is_once: bool
    ranges: tuple[CommittedRange, ...]


def dump_part(name: bytes, part: Part) -> PartDump:
    return PartDump(name, *msgspec.structs.astuple(part))


def restore_part(dump: PartDump) -> Part:
    return Part(*msgspec.structs.astuple(dump)[1:])


def dump_query(name: str, query: Query) -> QueryDump:
    return QueryDump(name, *msgspec.structs.astuple(query))


def restore_query(dump: QueryDump) -> Query:
    return Query(dump.batch, dump.next_number, dump.is_once, dump.ranges)

# SPDX-License-Identifier: Apache-2.0
"""Where the blocks of one segment lie, topic by topic: 16 bytes per block, in memory while the segment grows, then in a file.

May not: be needed. A missing or damaged index is made again by walking through its segment; it holds no fact of its own.
The idea: per topic three columns of equal length, in append order: first offset u64, position u32, record size u32.
A block reaches from its first offset to the next one, because offsets have no gaps.

    index file:  magic 8 · format u32 · head crc u32 · log id 16 · segment number u64 · segment end u64
                 · topics u32 · records u32 · body crc u32 · reserved u32
                 totals, one per topic: topic id u64 · first i64 · end i64 · bytes u64 · last append time i64 · entries u64
                 body: the three columns of each topic, in the same order

The head with the totals is read at every start; the body only when somebody reads from that segment.
Next: shelf.py, which keeps the totals of all segments and the bodies of a few.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from oncemq.core.records import Staged, StagedCommitted, Stored
from oncemq.errors import invariant
from oncemq.journal.codec import held_in
from oncemq.journal.segment import FORMAT
from oncemq.ports import File

Bytes = bytes | bytearray | memoryview

ENTRY_BYTES = 16
_MAGIC = b"ONCEMQIX"
_HEAD = struct.Struct("<8sII16sQQIIII")
_TOTALS = struct.Struct("<QqqQqQ")


Held = Stored | Staged | StagedCommitted
"""Records that an index knows."""
HELD = (Stored, Staged, StagedCommitted)


class BadIndex(Exception):
    """These bytes are not an index. Internal: it is then made again from its segment."""


class Totals(msgspec.Struct):
    """What one segment holds of one topic. The one of the active segment grows."""

    topic_id: int
    segment: int
    first: int
    end: int
    size_bytes: int
    last_append_time_us: int


class Columns(msgspec.Struct, frozen=True):
    """The blocks of one topic in one segment."""

    firsts: array[int]
    positions: array[int]
    sizes: array[int]

    def overlapping(self, first: int, end: int) -> range:
        """Return which entries overlap the offsets [first, end); the last entry counts as endless."""
        start = max(0, bisect_right(self.firsts, first) - 1)
        return range(start, bisect_left(self.firsts, end, start))


def _empty_columns() -> Columns:
    return Columns(array("Q"), array("I"), array("I"))


class SegmentIndex:
    """All topics of one segment."""

    __slots__ = ("columns", "end", "records", "segment", "totals")

    def __init__(self, segment: int) -> None:
        self.segment = segment
        self.end = 0
        self.records = 0
        self.columns: dict[int, Columns] = {}
        self.totals: dict[int, Totals] = {}

    @property
    def size_bytes(self) -> int:
        return sum(len(columns.firsts) for columns in self.columns.values()) * ENTRY_BYTES

    def add(self, record: Held, position: int, size_bytes: int) -> list[Totals]:
        """Note where a stored block lies, a staged one, or a commit; return the totals of topics that are new in this segment.

        A commit has an entry in each of its topics, so that offsets have no gap; the rows themselves are found by their splice.
        """
        fresh: list[Totals] = []
        for topic_id, first, count, bytes_elsewhere in held_in(record):
            totals = self.totals.get(topic_id)
            if totals is None:
                totals = self._open(topic_id, first)
                fresh.append(totals)
            invariant(totals.end == first, "offsets of a topic have a gap", totals=totals, record=record)
            columns = self.columns[topic_id]
            columns.firsts.append(first)
            columns.positions.append(position)
            columns.sizes.append(size_bytes)
            totals.end += count
            totals.size_bytes += size_bytes + bytes_elsewhere
            totals.last_append_time_us = max(totals.last_append_time_us, record.append_time_us)
        return fresh

    def _open(self, topic_id: int, first: int) -> Totals:
        self.columns[topic_id] = _empty_columns()
        self.totals[topic_id] = totals = Totals(topic_id, self.segment, first, first, 0, 0)
        return totals


# --- files ------------------------------------------------------------------------------------------


def encode_index(index: SegmentIndex, log_id: bytes) -> bytes:
    body = b"".join(_columns_bytes(index))
    table = b"".join(
        _TOTALS.pack(
            totals.topic_id,
            totals.first,
            totals.end,
            totals.size_bytes,
            totals.last_append_time_us,
            len(index.columns[totals.topic_id].firsts),
        )
        for totals in index.totals.values()
    )
    fields = (log_id, index.segment, index.end, len(index.totals), index.records, crc32c(body), 0)
    bare = _HEAD.pack(_MAGIC, FORMAT, 0, *fields)
    return _HEAD.pack(_MAGIC, FORMAT, crc32c(table, crc32c(bare)), *fields) + table + body


def _columns_bytes(index: SegmentIndex) -> Iterator[bytes]:
    for topic_id in index.totals:
        columns = index.columns[topic_id]
        yield columns.firsts.tobytes()
        yield columns.positions.tobytes()
        yield columns.sizes.tobytes()


class IndexHead(msgspec.Struct, frozen=True):
    """An index without its body: enough to know what a segment holds."""

    end: int
    records: int
    body_crc: int
    totals: list[Totals]
    entries: list[int]

    @property
    def size_bytes(self) -> int:
        return _HEAD.size + len(self.totals) * _TOTALS.size


def read_head(file: File, log_id: bytes, segment: int) -> IndexHead:
    """Return the head of an index file or raise BadIndex."""
    head = file.read(0, _HEAD.size)
    if len(head) < _HEAD.size:
        raise BadIndex("cut short")
    magic, version, crc, their_log, number, end, topics, records, body_crc, reserved = _HEAD.unpack(head)
    if magic != _MAGIC or version != FORMAT or their_log != log_id or number != segment or reserved:
        raise BadIndex("not the index of this segment")
    if topics * _TOTALS.size > file.size():
        raise BadIndex("cut short")
    table = file.read(_HEAD.size, topics * _TOTALS.size)
    bare = _HEAD.pack(magic, version, 0, their_log, number, end, topics, records, body_crc, 0)
    if len(table) != topics * _TOTALS.size or crc32c(table, crc32c(bare)) != crc:
        raise BadIndex("checksum of the head")
    rows = list(_TOTALS.iter_unpack(table))
    totals = [Totals(row[0], segment, row[1], row[2], row[3], row[4]) for row in rows]
    return IndexHead(end, records, body_crc, totals, [row[5] for row in rows])


def read_index(file: File, log_id: bytes, segment: int) -> SegmentIndex:
    """Return a whole index or raise BadIndex."""
    head = read_head(file, log_id, segment)
    size = sum(head.entries) * ENTRY_BYTES
    if head.size_bytes + size != file.size():
        raise BadIndex("another size than its head says")
    body = file.read(head.size_bytes, size)
    if len(body) != size or crc32c(body) != head.body_crc:
        raise BadIndex("checksum of the body")
    index = SegmentIndex(segment)
    index.end, index.records = head.end, head.records
    view, at = memoryview(body), 0
    for totals, entries in zip(head.totals, head.entries, strict=True):
        index.totals[totals.topic_id] = totals
        index.columns[totals.topic_id] = _read_columns(view[at : at + entries * ENTRY_BYTES], entries)
        at += entries * ENTRY_BYTES
    return index


def _read_columns(view: memoryview, entries: int) -> Columns:
    columns = _empty_columns()
    columns.firsts.frombytes(view[: 8 * entries])
    columns.positions.frombytes(view[8 * entries : 12 * entries])
    columns.sizes.frombytes(view[12 * entries :])
    return columns

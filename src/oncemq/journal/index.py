# SPDX-License-Identifier: Apache-2.0
"""Where the blocks of one segment lie, topic by topic: 24 bytes per block, in memory while the segment grows, then in a file.

May not: be needed. A missing or damaged index is made again by walking through its segment; it holds no fact of its own.
The idea: blocks lie in runs. A run is blocks of one topic whose offsets have no gap, so that a block reaches from its first
offset to the next one. What is stored here is one run per topic; what was moved here has runs of its own, with the segment they
came from. Per run four columns of equal length: first offset u64, append number u64, position u32, record size u32.

    index file:  magic 8 · format u32 · head crc u32 · log id 16 · segment number u64 · segment end u64
                 · runs u32 · records u32 · body crc u32 · reserved u32
                 totals, one per run: topic id u64 · first i64 · end i64 · bytes u64 · last append time i64 · entries u64
                                      · source u64 (0: stored here)
                 body: the four columns of each run, in the same order

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

from oncemq.core.origins import LOG_BIT
from oncemq.core.records import HELD, Moved, Record
from oncemq.errors import invariant
from oncemq.journal.codec import held_in
from oncemq.journal.segment import FORMAT
from oncemq.ports import File

Bytes = bytes | bytearray | memoryview
INDEXED = (*HELD, Moved)

ENTRY_BYTES = 24
_MAGIC = b"ONCEMQIX"
_HEAD = struct.Struct("<8sII16sQQIIII")
_TOTALS = struct.Struct("<QqqQqQQ")


class BadIndex(Exception):
    """These bytes are not an index. Internal: it is then made again from its segment."""


class Totals(msgspec.Struct, eq=False):
    """One run: what a segment holds of one topic without a gap. The one of the active segment grows.

    `run` is its place in the index of its segment. A run with a `source` counts only once that segment is gone.
    """

    topic_id: int
    segment: int
    first: int
    end: int
    size_bytes: int
    last_append_time_us: int
    source: int = 0
    run: int = 0


class Columns(msgspec.Struct, frozen=True):
    """The blocks of one run."""

    firsts: array[int]
    appends: array[int]
    positions: array[int]
    sizes: array[int]

    def overlapping(self, first: int, end: int) -> range:
        """Return which entries overlap the offsets [first, end); the last entry counts as endless."""
        start = max(0, bisect_right(self.firsts, first) - 1)
        return range(start, bisect_left(self.firsts, end, start))


def _empty_columns() -> Columns:
    return Columns(array("Q"), array("Q"), array("I"), array("I"))


class SegmentIndex:
    """All runs of one segment."""

    __slots__ = ("_open", "columns", "end", "records", "segment", "totals")

    def __init__(self, segment: int) -> None:
        self.segment = segment
        self.end = 0
        self.records = 0
        self.columns: list[Columns] = []
        self.totals: list[Totals] = []
        self._open: dict[tuple[int, int], tuple[Totals, Columns]] = {}
        """The run that may go on, by topic id and source."""

    @property
    def size_bytes(self) -> int:
        return sum(len(columns.firsts) for columns in self.columns) * ENTRY_BYTES

    def add(self, record: Record, position: int, size_bytes: int) -> list[Totals]:
        """Note where messages lie, staged rows, or a commit; return the runs that began with it. Other records change nothing.

        A commit has an entry in each of its topics, so that offsets have no gap; the rows themselves are found by their splice.
        """
        source, held = (record.source, record.held) if type(record) is Moved else (0, record)
        if not isinstance(held, HELD):
            return []
        fresh: list[Totals] = []
        for topic_id, first, count, bytes_elsewhere in held_in(held):
            run = self._open.get((topic_id, source))
            if run is None or run[0].end != first:
                run = self._begin(topic_id, first, source)
                fresh.append(run[0])
            totals, columns = run
            columns.firsts.append(first)
            columns.appends.append(held.append_number)
            columns.positions.append(position)
            columns.sizes.append(size_bytes)
            totals.end += count
            totals.size_bytes += size_bytes + bytes_elsewhere
            totals.last_append_time_us = max(totals.last_append_time_us, held.append_time_us)
        return fresh

    def _begin(self, topic_id: int, first: int, source: int) -> tuple[Totals, Columns]:
        """Begin a run. What is stored here has one run per topic: its offsets have no gap. An origin's may: it was told."""
        has_gap = source == 0 and (topic_id, 0) in self._open and not topic_id & LOG_BIT
        invariant(not has_gap, "offsets of a topic have a gap", topic_id=topic_id, first=first)
        run = Totals(topic_id, self.segment, first, first, 0, 0, source, len(self.totals)), _empty_columns()
        self.totals.append(run[0])
        self.columns.append(run[1])
        self._open[topic_id, source] = run
        return run


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
            len(index.columns[totals.run].firsts),
            totals.source,
        )
        for totals in index.totals
    )
    fields = (log_id, index.segment, index.end, len(index.totals), index.records, crc32c(body), 0)
    bare = _HEAD.pack(_MAGIC, FORMAT, 0, *fields)
    return _HEAD.pack(_MAGIC, FORMAT, crc32c(table, crc32c(bare)), *fields) + table + body


def _columns_bytes(index: SegmentIndex) -> Iterator[bytes]:
    for columns in index.columns:
        yield columns.firsts.tobytes()
        yield columns.appends.tobytes()
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
    magic, version, crc, their_log, number, end, runs, records, body_crc, reserved = _HEAD.unpack(head)
    if magic != _MAGIC or version != FORMAT or their_log != log_id or number != segment or reserved:
        raise BadIndex("not the index of this segment")
    if runs * _TOTALS.size > file.size():
        raise BadIndex("cut short")
    table = file.read(_HEAD.size, runs * _TOTALS.size)
    bare = _HEAD.pack(magic, version, 0, their_log, number, end, runs, records, body_crc, 0)
    if len(table) != runs * _TOTALS.size or crc32c(table, crc32c(bare)) != crc:
        raise BadIndex("checksum of the head")
    rows = list(_TOTALS.iter_unpack(table))
    totals = [
        Totals(row[0], segment, row[1], row[2], row[3], row[4], row[6], run)  # Without the entries.
        for run, row in enumerate(rows)
    ]
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
        index.totals.append(totals)
        index.columns.append(_read_columns(view[at : at + entries * ENTRY_BYTES], entries))
        at += entries * ENTRY_BYTES
    return index


def _read_columns(view: memoryview, entries: int) -> Columns:
    columns = _empty_columns()
    columns.firsts.frombytes(view[: 8 * entries])
    columns.appends.frombytes(view[8 * entries : 16 * entries])
    columns.positions.frombytes(view[16 * entries : 20 * entries])
    columns.sizes.frombytes(view[20 * entries :])
    return columns

# SPDX-License-Identifier: Apache-2.0
"""Reading stored blocks back, for subscribers: by ranges of offsets, in append order, in few reads.

May not: touch a block's bytes; return anything else than what was asked for: every record is compared with the index.
The idea: of each wanted topic the runs follow one another by offset, wherever they lie; several topics are merged by append
number. Small neighbours are fetched with one read, and each record is checked (frame, header, topic, offset) before it is handed
on. Its block is checked by whoever slices it.
Next: codec.py for what a delivery is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import merge
from operator import attrgetter

import msgspec

from oncemq.journal.codec import BadRecord, delivery, is_delivery_of, placed_offset, unmoved
from oncemq.journal.index import Columns, Totals
from oncemq.journal.shelf import NO_INDEX, Shelf

SPAN_BYTES_MAX = 256 * 1024  # Small records are fetched together up to this size. guess: one read-ahead window.
_GAP_BYTES_MAX = 4096  # Bytes of others that are cheaper to read over than to ask again. guess: one page.

Range = tuple[int, int, int]
"""(topic id, first offset, end offset)"""


class DamagedRead(Exception):
    """Blocks [first, end) of a topic are stored but cannot be read. Internal: whoever asked is told Damaged."""

    def __init__(self, topic_id: int, first: int, end: int, reason: str) -> None:
        self.topic_id, self.first, self.end, self.reason = topic_id, first, end, reason
        super().__init__(f"topic {topic_id}, offsets {first} to {end - 1}: {reason}")


class RefusedRead(DamagedRead):
    """The disk did not give them. That says nothing of the bytes: they may be right, and be read another time."""


class Found(msgspec.Struct, frozen=True, gc=False):
    """One block the index knows of."""

    append_number: int
    segment: int
    position: int
    topic_id: int
    size_bytes: int
    first: int
    end: int


def read(shelf: Shelf, ranges: Sequence[Range], bytes_max: int) -> list[bytes]:
    """Return the deliveries of all blocks that overlap these ranges, oldest first, until `bytes_max` is reached.

    At least one block is returned if there is any, however large. Damage raises DamagedRead, but only when nothing
    before it can be returned: so a reader gets everything up to it. A place where a range begins is not before the others.
    """
    streams = [_entries(shelf, each) for each in ranges if each[1] < each[2]]
    deliveries: list[bytes] = []
    try:
        # A merge takes no more from any stream than it is asked for.
        entries = streams[0] if len(streams) == 1 else merge(*streams, key=attrgetter("append_number"))
        for span in _spans(_bounded(entries, bytes_max)):
            _fetch(shelf, span, deliveries)
    except DamagedRead:
        if not deliveries:
            raise
    return deliveries


def _entries(shelf: Shelf, wanted: Range) -> Iterator[Found]:
    """Yield the blocks of one range by offset; DamagedRead where they cannot be found."""
    topic_id, first, end = wanted
    for totals in _holders(shelf, wanted):
        columns = _columns(shelf, first, totals)
        firsts, appends, positions, sizes = columns.firsts, columns.appends, columns.positions, columns.sizes
        segment, last = totals.segment, len(firsts) - 1
        for entry in columns.overlapping(first, end):
            entry_end = firsts[entry + 1] if entry < last else totals.end
            yield Found(appends[entry], segment, positions[entry], topic_id, sizes[entry], firsts[entry], entry_end)


def _holders(shelf: Shelf, wanted: Range) -> Iterator[Totals]:
    """Yield what holds this range, in order; DamagedRead where a hole begins: a segment is missing."""
    topic_id, at, end = wanted
    for totals in shelf.totals_from(topic_id, at):
        if totals.first > at:
            raise DamagedRead(topic_id, at, min(totals.first, end), "they are missing")
        yield totals
        at = totals.end
        if at >= end:
            return
    raise DamagedRead(topic_id, at, end, "they are missing")


def _columns(shelf: Shelf, first: int, totals: Totals) -> Columns:
    try:
        return shelf.index(totals.segment).columns[totals.run]
    except NO_INDEX as error:
        place = totals.topic_id, max(first, totals.first), totals.end
        raise _refused(*place, error) if isinstance(error, OSError) else DamagedRead(*place, str(error)) from error


def _bounded(entries: Iterator[Found], bytes_max: int) -> Iterator[Found]:
    """Yield entries as long as they fit, and one in any case."""
    left, is_first = bytes_max, True
    for found in entries:
        if found.size_bytes > left and not is_first:
            return
        left, is_first = left - found.size_bytes, False
        yield found


# --- fetching ---------------------------------------------------------------------------------------


def _fetch(shelf: Shelf, span: list[Found], deliveries: list[bytes]) -> None:
    """Read a run of blocks at once. If the disk refuses, one by one: only a block that it refuses alone cannot be read."""
    start = span[0].position
    size = span[-1].position + span[-1].size_bytes - start
    try:
        content = shelf.file(span[0].segment).read(start, size)
    except OSError as error:
        if len(span) == 1:
            raise _refused(span[0].topic_id, span[0].first, span[0].end, error) from error
        for each in span:
            _fetch(shelf, [each], deliveries)
        return
    for each in span:
        at = each.position - start
        record = content if len(content) == each.size_bytes else content[at : at + each.size_bytes]
        deliveries.append(_checked(record, each))


def _spans(found: Iterator[Found]) -> Iterator[list[Found]]:
    """Cut the entries into runs that are worth one read. Large records stay alone: then their bytes are not copied again.

    Damage in the middle of the entries is told once those before it were fetched.
    """
    span: list[Found] = []
    damage: DamagedRead | None = None
    try:
        for each in found:
            if span and not _joins(span, each):
                yield span
                span = []
            span.append(each)
    except DamagedRead as problem:
        damage = problem
    if span:
        yield span
    if damage is not None:
        raise damage


def _joins(span: list[Found], following: Found) -> bool:
    behind = following.position - span[-1].position - span[-1].size_bytes
    size = following.position + following.size_bytes - span[0].position
    return following.segment == span[0].segment and 0 <= behind <= _GAP_BYTES_MAX and size <= SPAN_BYTES_MAX


def _checked(record: bytes, each: Found) -> bytes:
    if is_delivery_of(record, each.topic_id, each.first, each.end - each.first):
        return record
    try:
        record = unmoved(record)
        first, count, _ = placed_offset(record, 0, len(record), each.topic_id)
        if first != each.first or first + count != each.end:
            raise BadRecord("other offsets than the index says")
        return delivery(record, each.topic_id)
    except BadRecord as bad:
        raise DamagedRead(each.topic_id, each.first, each.end, str(bad)) from bad


def _refused(topic_id: int, first: int, end: int, error: OSError) -> RefusedRead:
    return RefusedRead(topic_id, first, end, f"the disk did not give them ({error.strerror or error})")


# --- by time ----------------------------------------------------------------------------------------


def offset_at_time(shelf: Shelf, topic_id: int, time_us: int) -> int | None:
    """Return the first stored offset that was appended at or after that time; None if there is none.

    What cannot be read may be of that time, and then it counts as such: rather a message too many than one too few.
    """
    for totals in shelf.totals_from(topic_id, -1):
        if totals.last_append_time_us >= time_us:
            return _search_time(shelf, totals, time_us)
    return None


def _search_time(shelf: Shelf, totals: Totals, time_us: int) -> int:
    """Halve the segment's blocks: append times never go back."""
    try:
        columns = _columns(shelf, 0, totals)
    except DamagedRead:
        return totals.first
    low, high = 0, len(columns.firsts) - 1
    while low < high:
        middle = (low + high) // 2
        if _time_at(shelf, totals, columns, middle) >= time_us:
            high = middle
        else:
            low = middle + 1
    return columns.firsts[low]


def _time_at(shelf: Shelf, totals: Totals, columns: Columns, entry: int) -> int:
    """When a block was appended; of one that cannot be read, when the next one was that can."""
    for each in range(entry, len(columns.firsts)):
        with suppress(BadRecord, OSError):
            content = unmoved(shelf.file(totals.segment).read(columns.positions[each], columns.sizes[each]))
            return placed_offset(content, 0, len(content), totals.topic_id)[2]
    return totals.last_append_time_us

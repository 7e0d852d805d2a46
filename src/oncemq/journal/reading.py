# SPDX-License-Identifier: Apache-2.0
"""Reading stored blocks back, for subscribers: by ranges of offsets, in append order, in few reads.

May not: touch a block's bytes; return anything else than what was asked for: every record is compared with the index.
The idea: within a segment the wanted topics' entries are merged by position (= append order), small neighbours are
fetched with one read, and each record is checked (frame, header, topic, offset) before it is handed on. Its block is
checked by whoever slices it.
Next: codec.py for what a delivery is.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence

import msgspec

from oncemq.errors import InvariantViolated, JournalDamaged
from oncemq.journal.codec import BadRecord, delivery, is_delivery_of, placed_offset
from oncemq.journal.index import Columns, Totals
from oncemq.journal.shelf import Shelf

SPAN_BYTES_MAX = 256 * 1024  # Small records are fetched together up to this size. guess: one read-ahead window.
_GAP_BYTES_MAX = 4096  # Bytes of others that are cheaper to read over than to ask again. guess: one page.

Range = tuple[int, int, int]
"""(topic id, first offset, end offset)"""


class DamagedRead(Exception):
    """Blocks [first, end) of a topic are stored but cannot be read. Internal: whoever asked is told Damaged."""

    def __init__(self, topic_id: int, first: int, end: int, reason: str) -> None:
        self.topic_id, self.first, self.end, self.reason = topic_id, first, end, reason
        super().__init__(f"topic {topic_id}, offsets {first} to {end - 1}: {reason}")


class Found(msgspec.Struct, frozen=True, gc=False):
    """One block the index knows of. Ordered by position, because that is the order of its fields."""

    position: int
    topic_id: int
    size_bytes: int
    first: int
    end: int


def read(shelf: Shelf, ranges: Sequence[Range], bytes_max: int) -> list[bytes]:
    """Return the deliveries of all blocks that overlap these ranges, oldest first, until `bytes_max` is reached.

    At least one block is returned if there is any, however large. Damage raises DamagedRead, but only when nothing
    before it can be returned: so a reader gets everything up to it.
    """
    deliveries: list[bytes] = []
    left = bytes_max
    filled = [each for each in ranges if each[1] < each[2]]
    try:
        for segment, wanted in _by_segment(shelf, filled):
            found, is_full = _take(_in_segment(shelf, wanted), left, is_first=not deliveries)
            _fetch(shelf, segment, found, deliveries)
            left -= sum(each.size_bytes for each in found)
            if is_full:
                break
    except DamagedRead:
        if not deliveries:
            raise
    return deliveries


def _by_segment(shelf: Shelf, ranges: Sequence[Range]) -> Iterator[tuple[int, list[tuple[Range, Totals]]]]:
    """Yield each segment that holds something of these ranges, oldest first, with what it holds."""
    if len(ranges) == 1:
        for totals in _holders(shelf, ranges[0]):
            yield totals.segment, [(ranges[0], totals)]
        return
    segments: dict[int, list[tuple[Range, Totals]]] = {}
    for each in ranges:
        for totals in _up_to_a_hole(shelf, each):
            segments.setdefault(totals.segment, []).append((each, totals))
    for segment in sorted(segments):
        yield segment, segments[segment]


def _up_to_a_hole(shelf: Shelf, wanted: Range) -> list[Totals]:
    """A hole where the range begins is told at once: nobody knows its place among the others. One behind it waits."""
    found: list[Totals] = []
    try:
        for totals in _holders(shelf, wanted):
            found.append(totals)
    except DamagedRead:
        if not found:
            raise
    return found


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
    if at < end:
        raise DamagedRead(topic_id, at, end, "they are missing")


def _in_segment(shelf: Shelf, wanted: list[tuple[Range, Totals]]) -> Iterator[Found]:
    """Yield the wanted blocks of one segment by position."""
    streams = [_entries(_columns(shelf, each[1], totals), each, totals) for each, totals in wanted]
    return streams[0] if len(streams) == 1 else _merge(streams)


def _columns(shelf: Shelf, first: int, totals: Totals) -> Columns:
    try:
        return shelf.index(totals.segment).columns[totals.topic_id]
    except (JournalDamaged, InvariantViolated, OSError, KeyError) as error:
        raise DamagedRead(totals.topic_id, max(first, totals.first), totals.end, str(error)) from error


def _entries(columns: Columns, wanted: Range, totals: Totals) -> Iterator[Found]:
    topic_id, first, end = wanted
    firsts, positions, sizes = columns.firsts, columns.positions, columns.sizes
    last = len(firsts) - 1
    for entry in columns.overlapping(first, end):
        entry_end = firsts[entry + 1] if entry < last else totals.end
        yield Found(positions[entry], topic_id, sizes[entry], firsts[entry], entry_end)


def _merge(streams: list[Iterator[Found]]) -> Iterator[Found]:
    """Merge by position without taking more from any stream than is asked for."""
    heads: list[tuple[int, int, Found]] = []
    for number, stream in enumerate(streams):
        for found in stream:
            insort(heads, (-found.position, -number, found))
            break
    while heads:
        _, number, found = heads.pop()
        yield found
        for following in streams[-number]:
            insort(heads, (-following.position, number, following))
            break


def _take(entries: Iterator[Found], bytes_max: int, *, is_first: bool) -> tuple[list[Found], bool]:
    """Take entries as long as they fit, and one in any case if nothing was taken before; say whether one did not fit."""
    taken: list[Found] = []
    left = bytes_max
    for found in entries:
        if found.size_bytes > left and (taken or not is_first):
            return taken, True
        taken.append(found)
        left -= found.size_bytes
    return taken, False


# --- fetching ---------------------------------------------------------------------------------------


def _fetch(shelf: Shelf, segment: int, found: list[Found], deliveries: list[bytes]) -> None:
    for span in _spans(found):
        start = span[0].position
        size = span[-1].position + span[-1].size_bytes - start
        try:
            content = shelf.file(segment).read(start, size)
        except OSError as error:
            raise _damaged(span[0], str(error)) from error
        for each in span:
            at = each.position - start
            record = content if len(content) == each.size_bytes else content[at : at + each.size_bytes]
            deliveries.append(_checked(record, each))


def _spans(found: list[Found]) -> Iterator[list[Found]]:
    """Cut the entries into runs that are worth one read. Large records stay alone: then their bytes are not copied again."""
    span: list[Found] = []
    for each in found:
        if span and not _joins(span, each):
            yield span
            span = []
        span.append(each)
    if span:
        yield span


def _joins(span: list[Found], following: Found) -> bool:
    behind = following.position - span[-1].position - span[-1].size_bytes
    size = following.position + following.size_bytes - span[0].position
    return behind <= _GAP_BYTES_MAX and size <= SPAN_BYTES_MAX


def _checked(record: bytes, each: Found) -> bytes:
    if is_delivery_of(record, each.topic_id, each.first, each.end - each.first):
        return record
    try:
        first, count, _ = placed_offset(record, 0, each.size_bytes, each.topic_id)
        if first != each.first or first + count != each.end:
            raise BadRecord("other offsets than the index says")
        return delivery(record, each.topic_id)
    except BadRecord as bad:
        raise _damaged(each, str(bad)) from bad


def _damaged(each: Found, reason: str) -> DamagedRead:
    return DamagedRead(each.topic_id, each.first, each.end, reason)


# --- by time ----------------------------------------------------------------------------------------


def offset_at_time(shelf: Shelf, topic_id: int, time_us: int) -> int | None:
    """Return the first stored offset that was appended at or after that time; None if there is none."""
    for totals in shelf.totals_from(topic_id, -1):
        if totals.last_append_time_us >= time_us:
            return _search_time(shelf, totals, time_us)
    return None


def _search_time(shelf: Shelf, totals: Totals, time_us: int) -> int:
    """Halve the segment's blocks: append times never go back."""
    columns = _columns(shelf, 0, totals)
    low, high = 0, len(columns.firsts) - 1
    while low < high:
        middle = (low + high) // 2
        if _time_at(shelf, totals, columns, middle) >= time_us:
            high = middle
        else:
            low = middle + 1
    return columns.firsts[low]


def _time_at(shelf: Shelf, totals: Totals, columns: Columns, entry: int) -> int:
    first = columns.firsts[entry]
    try:
        content = shelf.file(totals.segment).read(columns.positions[entry], columns.sizes[entry])
        return placed_offset(content, 0, columns.sizes[entry], totals.topic_id)[2]
    except (BadRecord, OSError) as bad:
        raise DamagedRead(totals.topic_id, first, first + 1, str(bad)) from bad

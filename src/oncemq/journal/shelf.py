# SPDX-License-Identifier: Apache-2.0
"""The shelf: all segments of a journal, what each holds, and how to get at it.

May not: write a record; decide what is dead.
The idea: the totals of every segment stay in memory (a few numbers per segment and topic), indexes and open files of
sealed segments only as many as the bounds allow, the longest unused leaving first. So memory grows with the number of
segments, not with the number of messages. What was moved out of a segment waits aside until that segment is removed: then,
at once, the copies are where the messages lie.
Next: reading.py, which reads through it; journal.py, which puts segments on it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from oncemq.core.records import Record
from oncemq.errors import InvariantViolated, JournalDamaged, invariant
from oncemq.journal.codec import check_record
from oncemq.journal.index import BadIndex, SegmentIndex, Totals, read_index
from oncemq.journal.segment import INDEXES, SEGMENTS, SegmentHeader, Walk, file_name, read_segment_header
from oncemq.ports import Disk, File

NO_INDEX = (JournalDamaged, InvariantViolated, OSError, LookupError)
"""What `Shelf.index` and a look into its runs may raise where bytes are wrong or the disk does not give them."""


class Holding(msgspec.Struct, frozen=True, gc=False):
    """What one segment holds of one topic, for whoever decides what may go."""

    first_offset: int
    end_offset: int
    size_bytes: int
    last_append_time_us: int


class _Active(msgspec.Struct, frozen=True):
    """The segment that is being written."""

    index: SegmentIndex
    file: File


class Shelf:
    """Segments by number, oldest first; the last one is active and its index grows."""

    def __init__(self, disk: Disk, log_id: bytes, *, index_bytes_max: int, files_max: int) -> None:
        self._disk = disk
        self._log_id = log_id
        self._index_bytes_max = index_bytes_max
        self._files_max = files_max
        self._ends: dict[int, int] = {}
        self._topics: dict[int, list[Totals]] = {}
        self._totals: dict[int, list[Totals]] = {}
        self._copies: dict[int, list[Totals]] = {}
        """Copies of what a segment holds that is still there, by that segment."""
        self._indexes: OrderedDict[int, SegmentIndex] = OrderedDict()
        self._index_bytes = 0
        self._files: OrderedDict[int, File] = OrderedDict()
        self._active: _Active | None = None

    # --- putting segments on the shelf --------------------------------------------------------------

    def add_sealed(self, number: int, end: int, totals: list[Totals]) -> None:
        """Put a sealed segment there; segments come oldest first."""
        self._ends[number] = end
        self._totals[number] = totals
        for each in totals:
            self._place(each)

    def _place(self, totals: Totals) -> None:
        """A run counts, in the order of offsets, unless what it was copied from is still there."""
        if totals.source in self._ends:
            self._copies.setdefault(totals.source, []).append(totals)
        else:
            insort(self._topics.setdefault(totals.topic_id, []), totals, key=_end_of)

    def open_active(self, index: SegmentIndex, file: File) -> None:
        """Make this segment the active one. The one before must have been sealed."""
        invariant(self._active is None, "two active segments")
        self._active = _Active(index, file)
        self.add_sealed(index.segment, 0, list(index.totals))

    def seal_active(self, end: int, records: int) -> SegmentIndex:
        """Close the active segment's file and keep its index like any other."""
        active = self._opened()
        active.file.close()
        active.index.end = self._ends[active.index.segment] = end
        active.index.records = records
        self._active = None
        self._remember(active.index)
        return active.index

    def note(self, record: Record, position: int, size_bytes: int) -> None:
        """A block lies in the active segment."""
        for totals in self._opened().index.add(record, position, size_bytes):
            self._place(totals)
            self._totals[totals.segment].append(totals)

    def _opened(self) -> _Active:
        if self._active is None:
            raise InvariantViolated("no segment is active")
        return self._active

    def remove(self, number: int) -> None:
        """Forget a segment; its files are unlinked by whoever calls. What was copied from it counts from now on."""
        self._forget_file(number)
        self._drop_index(number)
        for gone in self._totals.pop(number):
            if gone.source in self._ends:
                _take_out(self._copies, gone.source, gone)
            else:
                _take_out(self._topics, gone.topic_id, gone)
        del self._ends[number]
        for totals in self._copies.pop(number, ()):
            self._place(totals)

    # --- what is there ------------------------------------------------------------------------------

    def sealed(self) -> list[tuple[int, int]]:
        """Return (number, end) of every sealed segment, oldest first."""
        return [(number, end) for number, end in self._ends.items() if end]

    def totals_of(self, number: int) -> list[Totals]:
        return self._totals[number]

    def copies_of(self, number: int) -> list[Totals]:
        """Return the runs that hold copies of what this segment holds."""
        return self._copies.get(number, [])

    def being_copied(self) -> list[int]:
        """Return the segments that copies were made of and that are still there, oldest first."""
        return sorted(self._copies)

    def has_copies(self, number: int) -> bool:
        """Whether this segment holds copies of one that is still there."""
        return any(totals.source in self._ends for totals in self._totals[number])

    def holdings(self, topic_id: int) -> list[Holding]:
        found = self._topics.get(topic_id, [])
        return [Holding(totals.first, totals.end, totals.size_bytes, totals.last_append_time_us) for totals in found]

    def totals_from(self, topic_id: int, offset: int) -> list[Totals]:
        """Return the totals of the segments that hold this topic at or behind `offset`, oldest first."""
        found = self._topics.get(topic_id, [])
        return found[bisect_right(found, offset, key=_end_of) :]

    @property
    def index_bytes(self) -> int:
        return self._index_bytes

    # --- getting at it ------------------------------------------------------------------------------

    def file(self, number: int) -> File:
        """Return an open file of that segment; it stays open until the bound on open files pushes it out."""
        if self._active is not None and number == self._active.index.segment:
            return self._active.file
        file = self._files.get(number)
        if file is None:
            file = self._files[number] = self._disk.open(file_name(SEGMENTS, number))
            if len(self._files) > self._files_max:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(number)
        return file

    def index(self, number: int) -> SegmentIndex:
        """Return the index of that segment: from memory, from its file, or by walking through the segment."""
        if self._active is not None and number == self._active.index.segment:
            return self._active.index
        if number in self._indexes:
            self._indexes.move_to_end(number)
            return self._indexes[number]
        index = self._load(number)
        self._remember(index)
        return index

    def _load(self, number: int) -> SegmentIndex:
        """An index that is gone, damaged or refused by the disk is made again: it holds no fact of its own."""
        try:
            file = self._disk.open(file_name(INDEXES, number))
            try:
                return read_index(file, self._log_id, number)
            finally:
                file.close()
        except (BadIndex, OSError):
            return build_index(self.file(number), number, self._ends[number])

    def _remember(self, index: SegmentIndex) -> None:
        self._indexes[index.segment] = index
        self._index_bytes += index.size_bytes
        while self._index_bytes > self._index_bytes_max and len(self._indexes) > 1:
            self._drop_index(next(iter(self._indexes)))

    def _drop_index(self, number: int) -> None:
        index = self._indexes.pop(number, None)
        if index is not None:
            self._index_bytes -= index.size_bytes

    def _forget_file(self, number: int) -> None:
        file = self._files.pop(number, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close every file."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        if self._active is not None:
            self._active.file.close()


def _end_of(totals: Totals) -> int:
    return totals.end


def _take_out(lists: dict[int, list[Totals]], key: int, gone: Totals) -> None:
    kept = [totals for totals in lists[key] if totals is not gone]
    if kept:
        lists[key] = kept
    else:
        del lists[key]


def build_index(file: File, number: int, end: int) -> SegmentIndex:
    """Walk through a sealed segment, all of whose bytes below `end` were synced; raise JournalDamaged if they are not right."""
    name = file_name(SEGMENTS, number)
    header = read_segment_header(file, name, number)
    index = SegmentIndex(number)
    for record, position, size_bytes in walk_sealed(file, header, end):
        index.records += 1
        add_to(index, record, position, size_bytes)
    index.end = end
    return index


def add_to(index: SegmentIndex, record: Record, position: int, size_bytes: int) -> None:
    """Note a record that was read back in the index of its segment; raise JournalDamaged if it does not fit those before it."""
    try:
        index.add(record, position, size_bytes)
    except InvariantViolated as problem:
        raise JournalDamaged(file_name(SEGMENTS, index.segment), position, str(problem)) from problem


def walk_sealed(file: File, header: SegmentHeader, end: int) -> Iterator[tuple[Record, int, int]]:
    """Yield every record of a segment up to `end` with position and size; raise JournalDamaged if one is not right."""
    walk: Walk[Record] = Walk(file, header, end, check_record)
    for group in walk:
        yield from group.items
    if walk.position != end:
        raise JournalDamaged(file_name(SEGMENTS, header.number), walk.position, walk.reason or "it is shorter than it was")

# SPDX-License-Identifier: Apache-2.0
"""The journal: append · sync · read · trim, with a snapshot at the start of every segment.

May not: confirm anything: what was appended is durable when `sync` has returned, not before. After a failed write or
sync it does nothing any more: only a restart finds out what the disk has.
The idea: one active segment, written group by group; when it is full the next one is made ready under a temporary name
and renamed into place, so that a crash leaves the old state or the new one. Every start begins a segment of its own.

    prepare(bytes, records)  before anything is decided: is there room? rolls to the next segment if need be
    append(records)          one group, one write
    sync()                   one sync, then everything so far is durable
    trim(lows)               dead segments go
    clean(lows, bytes)       the living blocks of sparse segments are moved together, a slice at a time, and then those go too

The caller's law: between `sync` and the next `prepare` the state holds exactly the records appended so far, because
`prepare` may dump it as a snapshot (R12).
Next: recovery.py for what a start reads, reading.py for how blocks are read back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

from oncemq.core.records import Record
from oncemq.crashpoints import reach
from oncemq.errors import DiskFull, SyncFailed, invariant
from oncemq.journal import reading
from oncemq.journal.cleaner import Block, Cleaner, Work, copy_of, take_slice
from oncemq.journal.codec import MOVED_BYTES, BadRecord, encode
from oncemq.journal.ending import Ending, forget_ending, write_ending
from oncemq.journal.index import INDEXED, SegmentIndex, encode_index
from oncemq.journal.recovery import Recovered, State, leftovers, read_identity, recover, write_identity
from oncemq.journal.segment import (
    CLEAN,
    GROUP_BYTES,
    HEADER_BYTES,
    INDEXES,
    NEW,
    SEGMENT_BYTES_MAX,
    SEGMENTS,
    SNAPSHOTS,
    Bytes,
    file_name,
    is_full,
    numbers_of,
    pack_group_header,
    write_new,
)
from oncemq.journal.shelf import Holding, Shelf
from oncemq.journal.snapshots import prune, write_snapshot
from oncemq.journal.space import NewSegment, Plan, cut, ensure_reserve, make_segment, roomy, size_needed, take_reserve
from oncemq.journal.statistics import JournalStatistics
from oncemq.journal.whole import Missing
from oncemq.limits import (
    CONTROL_ROOM_BYTES,
    INDEX_CACHE_BYTES,
    OPEN_SEGMENTS_MAX,
    RESERVE_BYTES,
    SEGMENT_BYTES,
    SEGMENT_RECORDS_MAX,
)
from oncemq.ports import Disk, File


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """Bounds of one journal; every default is in limits.py."""

    segment_bytes: int = SEGMENT_BYTES
    segment_records_max: int = SEGMENT_RECORDS_MAX
    reserve_bytes: int = RESERVE_BYTES
    index_cache_bytes: int = INDEX_CACHE_BYTES
    open_segments_max: int = OPEN_SEGMENTS_MAX
    clean_slack_bytes: int | None = None
    """So many dead bytes are no reason to clean; half a segment unless said otherwise."""
    accept_loss: bool = False
    """Start although stored messages are missing; whoever reads them is told."""


class Journal:
    """One journal in one directory, open for writing by one process."""

    def __init__(self, disk: Disk, log_id: bytes, start_id: bytes, state: State, settings: JournalSettings) -> None:
        """Use `Journal.open`."""
        self.log_id = log_id
        self.start_id = start_id
        self.missing: list[Missing] = []
        """What this start found missing, and accepted."""
        self._disk = disk
        self._state = state
        self._settings = settings
        self._shelf = Shelf(disk, log_id, index_bytes_max=settings.index_cache_bytes, files_max=settings.open_segments_max)
        self._snapshots: list[int] = []
        self._reserve_bytes = 0
        self._group_number = 0
        self._failure: SyncFailed | None = None
        slack_bytes = settings.clean_slack_bytes
        self._cleaner = Cleaner(self._shelf, settings.segment_bytes // 2 if slack_bytes is None else slack_bytes)
        self._groups_appended = self._bytes_appended = self._syncs = self._rolls = self._rewritten = 0
        self._moved_bytes = self._cleaned = 0
        # The active segment; set by _activate before anything else can be called.
        self._file: File
        self._number = self._capacity = self._end = self._synced = self._records = 0
        self._is_reserve = self._is_full = False

    # --- opening ------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls, disk: Disk, *, start_id: bytes, new_log_id: bytes, state: State, settings: JournalSettings | None = None
    ) -> Journal:
        """Lock the directory, bring `state` up to date and make everything that was found durable.

        Raises DirectoryLocked, DirectoryUnusable, DirectoryTooNew and JournalDamaged with nothing changed on the disk.
        """
        settings = settings or JournalSettings()
        invariant(settings.segment_bytes <= SEGMENT_BYTES_MAX, "segments are limited to 2 GiB")
        with _opening(disk), ExitStack() as undo:
            read_identity(disk)  # Once before the lock, so that a stranger's directory does not even get a lock file.
            disk.lock()
            undo.callback(disk.unlock)
            identity = read_identity(disk)
            log_id = bytes.fromhex(identity.log) if identity else new_log_id
            journal = cls(disk, log_id, start_id, state, settings)
            undo.callback(journal._shelf.close)
            found = recover(disk, log_id, state, accept_loss=settings.accept_loss) if identity else None
            journal.missing = found.missing if found else []
            if identity is None:
                write_identity(disk, log_id)
            journal._begin(found or Recovered([], 0, state.dump(), [], 0))
            undo.pop_all()
        return journal

    def _begin(self, found: Recovered) -> None:
        """Start this start's own segment: the tail goes there, the one before is sealed where it was proven."""
        for name in leftovers(self._disk, found.sealed):
            self._disk.unlink(name)
        number = found.last_number + 1
        plan = Plan(self.log_id, self.start_id, number, found.last_end, found.group_number, found.tail)
        new = self._make_first(plan)
        self._rename(new)
        forget_ending(self._disk)  # From here on the new segment says where the one before ends.
        for sealed in found.sealed:
            self._shelf.add_sealed(sealed.number, sealed.end, sealed.totals)
        self._activate(new, found)
        # Those newer than the one that could be used are bad, and older ones may still be needed.
        self._snapshots = [each for each in numbers_of(self._disk.names(), SNAPSHOTS) if each <= found.snapshot_number]
        self._write_snapshot(found.state)
        for sealed in found.sealed:
            if sealed.index is not None:
                cut(self._disk, sealed.number, sealed.end)
                self._write_index(sealed.index)
        self._reserve_bytes = ensure_reserve(self._disk, self._settings.reserve_bytes)

    def _make_first(self, plan: Plan) -> NewSegment:
        """A start needs a segment in any case: a usual one, the reserve, or at least one that is large enough."""
        needed = size_needed(plan, 0)
        new = make_segment(self._disk, plan, max(self._settings.segment_bytes, needed))
        new = new or take_reserve(self._disk, plan, needed) or make_segment(self._disk, plan, needed)
        if new is None:
            raise DiskFull("a new segment of the journal")
        return new

    def _activate(self, new: NewSegment, found: Recovered | None = None) -> None:
        """From here on this segment is the one that is written."""
        self._file, self._number = new.file, new.number
        self._capacity, self._is_reserve = new.capacity_bytes, new.is_reserve
        self._end = self._synced = new.end
        self._records = 0
        self._shelf.open_active(SegmentIndex(new.number), new.file)
        if found is not None:
            self._group_number = found.group_number + len(found.tail)
            self._note_tail(found)

    def _note_tail(self, found: Recovered) -> None:
        position = HEADER_BYTES
        for group in found.tail:
            moved = position - group.position
            for record, at, size_bytes in group.items:
                self._records += 1
                self._shelf.note(record, at + moved, size_bytes)
            position += group.end - group.position
        self._rewritten = self._records

    # --- space --------------------------------------------------------------------------------------

    def prepare(self, size_bytes: int, records: int, *, control: bool = False) -> int:
        """Make room for one group of so many record bytes; return how many bytes fit, which may be fewer.

        Call it before anything of the group is applied: it may dump the state as a snapshot. On a full disk nothing
        changes; `control` then takes the reserve. What the reserve holds is never given to puts.
        """
        self._check_usable()
        room, records_max = self._room(control=control), self._settings.segment_records_max
        # What is needed may be much more than what is written (space.py, `roomy`): that is no reason for short segments.
        is_long = self._records + min(records, records_max // 2) > records_max
        if size_bytes <= room and not is_long:
            return room
        with self._failing(file_name(SEGMENTS, self._number + 1)):
            self._roll(size_bytes, may_take_reserve=control and size_bytes > room)
        return self._room(control=control)

    def _room(self, *, control: bool) -> int:
        if self._is_reserve and not control:
            return 0
        return max(0, self._capacity - self._end - 2 * GROUP_BYTES)

    def _roll(self, size_bytes: int, *, may_take_reserve: bool) -> None:
        """Go on in a new segment, if there is space for one."""
        self.sync()
        plan = Plan(self.log_id, self.start_id, self._number + 1, self._end, self._group_number, [])
        needed = size_needed(plan, size_bytes)
        invariant(needed <= SEGMENT_BYTES_MAX, "a group is larger than a segment can be", size_bytes=size_bytes)
        new = make_segment(self._disk, plan, roomy(needed, self._settings.segment_bytes))
        self._is_full = new is None
        if new is None and may_take_reserve:
            new = take_reserve(self._disk, plan, needed)
        if new is None:
            return
        self._rename(new)
        self._rolls += 1
        self._file.truncate(self._end)
        self._file.sync()
        index = self._shelf.seal_active(self._end, self._records)
        self._activate(new)
        self._write_snapshot(self._state.dump())
        self._write_index(index)
        self._reserve_bytes = ensure_reserve(self._disk, self._settings.reserve_bytes)

    def _rename(self, new: NewSegment) -> None:
        """Give a segment its name: the instant at which the journal goes on in it."""
        reach("journal.before_segment_rename")
        self._disk.rename(new.name, file_name(SEGMENTS, new.number))
        self._disk.sync_names()
        reach("journal.after_segment_rename")

    def _write_snapshot(self, state: bytes) -> None:
        """Cut a snapshot for the active segment. Without space there is none: a start then replays one segment more."""
        try:
            write_snapshot(self._disk, self.log_id, self._number, state)
        except OSError as error:
            if not is_full(error) or not self._snapshots:
                raise
            return
        self._snapshots = prune(self._disk, [*self._snapshots, self._number])

    def _write_index(self, index: SegmentIndex) -> None:
        """Keep an index beside its segment. Without space there is none: it is made again when it is needed."""
        name = file_name(INDEXES, index.segment)
        try:
            write_new(self._disk, name, [encode_index(index, self.log_id)])
        except OSError as error:
            if not is_full(error):
                raise
            return
        self._disk.rename(name + NEW, name)

    # --- writing ------------------------------------------------------------------------------------

    def append(self, records: Sequence[Record]) -> None:
        """Write one group. It is durable after the next `sync`; SyncFailed if the disk refuses, and then for ever."""
        self._check_usable()
        if records:
            self._append([(record, encode(record)) for record in records])

    def _append(self, encoded: Sequence[tuple[Record, list[Bytes]]]) -> None:
        parts: list[Bytes] = [b""]
        places: list[tuple[Record, int, int]] = []
        position = self._end + GROUP_BYTES
        for record, pieces in encoded:
            size_bytes = sum(map(len, pieces))
            if isinstance(record, INDEXED):
                places.append((record, position, size_bytes))
            parts += pieces
            position += size_bytes
        self._write_group(parts, position, len(encoded))
        for place in places:
            self._shelf.note(*place)

    def _write_group(self, parts: list[Bytes], end: int, records: int) -> None:
        invariant(end + GROUP_BYTES <= self._capacity or not records, "a group was appended without room", end=end)
        number, start = self._number, self._end
        length = end - start - GROUP_BYTES
        parts[0] = pack_group_header(length, self._group_number + 1, number, number, self._synced, self.start_id, records)
        try:
            self._file.write(start, parts)
        except OSError as error:
            self._fail(file_name(SEGMENTS, number), error)
        self._end = end
        self._group_number += 1
        self._records += records
        self._groups_appended += 1
        self._bytes_appended += end - start

    def sync(self) -> None:
        """Make everything appended so far durable, or raise SyncFailed."""
        self._check_usable()
        if self._synced == self._end:
            return
        try:
            self._file.sync()
        except OSError as error:
            self._fail(file_name(SEGMENTS, self._number), error)
        self._synced = self._end
        self._syncs += 1

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, name: str, error: OSError) -> NoReturn:
        self._failure = SyncFailed(name, str(error))
        raise self._failure from error

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        """Whatever the disk refuses in here ends this journal's writing."""
        try:
            yield
        except OSError as error:
            self._fail(name, error)

    # --- reading ------------------------------------------------------------------------------------

    def read(self, ranges: Sequence[reading.Range], bytes_max: int) -> list[bytes]:
        """Return deliveries of the blocks that overlap (topic id, first, end), oldest first; DamagedRead if one is bad."""
        return reading.read(self._shelf, ranges, bytes_max)

    def offset_at_time(self, topic_id: int, time_us: int) -> int | None:
        """Return the first stored offset appended at or after that time; None if there is none."""
        return reading.offset_at_time(self._shelf, topic_id, time_us)

    def holdings(self, topic_id: int) -> list[Holding]:
        """Return what each segment holds of a topic, oldest first."""
        return self._shelf.holdings(topic_id)

    # --- trimming -----------------------------------------------------------------------------------

    def trim(self, lows: Mapping[int, int]) -> int:
        """Unlink segments without a living block; return how many. `lows`: the low offset of every living topic.

        The caller has synced the records that say so (R10), and calls this between groups, like `prepare`. Segments
        that a kept snapshot needs stay (R12); on a full disk the reserve is given for a newer snapshot, if that helps.
        """
        self._check_usable()
        dead = {number: end for number, end in self._shelf.sealed() if self._is_dead(number, lows)}
        with self._failing("a dead segment"):
            if self._is_full and self._is_worth_the_reserve(dead):
                self._roll(0, may_take_reserve=True)
            unneeded = [number for number in dead if number < min(self._snapshots)]
            for number in unneeded:
                self._unlink(number)
            if unneeded or not self._reserve_bytes:
                self._reserve_bytes = ensure_reserve(self._disk, self._settings.reserve_bytes)
        return len(unneeded)

    def _is_worth_the_reserve(self, dead: Mapping[int, int]) -> bool:
        """All that is dead is pinned by snapshots, and is more than the reserve that a newer snapshot costs."""
        return bool(dead) and min(dead) >= min(self._snapshots) and sum(dead.values()) > self._settings.reserve_bytes

    def _is_dead(self, number: int, lows: Mapping[int, int]) -> bool:
        """A block of a topic that lives no more counts as dead."""
        return not any(self._cleaner.is_alive(totals, lows) for totals in self._shelf.totals_of(number))

    def _unlink(self, number: int) -> None:
        reach("journal.before_unlink")
        self._shelf.remove(number)
        with suppress(FileNotFoundError):
            self._disk.unlink(file_name(INDEXES, number))
        self._disk.unlink(file_name(SEGMENTS, number))

    # --- cleaning -----------------------------------------------------------------------------------

    def clean(self, lows: Mapping[int, int], bytes_max: int) -> bool:
        """Move up to so many bytes out of sparse segments, and unlink at most one that is empty; say whether to come again.

        The caller's law is that of `trim`. On a full disk copies go into the reserve, if all that is left to copy fits.
        """
        self._check_usable()
        left, is_unlinked = bytes_max, False
        while left > 0:
            work = self._cleaner.work(lows, min(self._snapshots))
            if work is None:
                return self._cleaner.is_counting
            if work.blocks:
                moved = self._move(work, min(left, self._settings.segment_bytes // 4))
                if moved is None:
                    return False
                left -= moved
            elif is_unlinked:
                break
            else:
                self._finish_cleaning(work.segment)
                is_unlinked = True
        return True

    def _move(self, work: Work, bytes_max: int) -> int | None:
        """Append one group of copies; return how many bytes they have, None if there is no room for them."""
        blocks = take_slice(work.blocks, bytes_max)
        try:
            copies = [copy_of(self._shelf, work.segment, block) for block in blocks]
        except (BadRecord, OSError):
            self._cleaner.give_up(work)
            return 0
        if not self._has_room_for(copies, work.blocks):
            work.blocks += reversed(blocks)
            return None
        size_bytes = sum(block.size_bytes for block in blocks)
        self._moved_bytes += size_bytes
        self._append(copies)
        reach("journal.after_move")
        return size_bytes

    def _has_room_for(self, copies: Sequence[tuple[Record, list[Bytes]]], left: Sequence[Block]) -> bool:
        """Copies come after puts; the reserve is for them only if the segment can then be unlinked for sure."""
        size = sum(sum(map(len, parts)) for _, parts in copies)
        if self.prepare(size, len(copies)) >= size:
            return True
        rest = sum(block.size_bytes + MOVED_BYTES for block in left)
        kept_back = min(CONTROL_ROOM_BYTES, self._settings.reserve_bytes // 2)
        needed = size + rest + GROUP_BYTES * len(left) + kept_back
        return self.prepare(needed, len(copies) + len(left), control=True) >= needed

    def _finish_cleaning(self, number: int) -> None:
        """Unlink a segment all of whose living blocks have a synced copy; from here on the copies are what is read."""
        self.sync()
        reach("journal.before_clean_unlink")
        with self._failing(file_name(SEGMENTS, number)):
            self._unlink(number)
            # Before the copies can be moved on: a segment that came back would be a second source of the same messages, where
            # the file system keeps no order of removals (POSIX asks for none; tests/journal/test_removals.py has such a disk).
            self._disk.sync_names()
            reach("journal.after_clean_unlink")
            self._reserve_bytes = ensure_reserve(self._disk, self._settings.reserve_bytes)
        self._cleaner.finish()
        self._cleaned += 1

    # --- the rest -----------------------------------------------------------------------------------

    @property
    def bytes_put(self) -> int:
        """Bytes written since this start, without those that were only moved."""
        return self._bytes_appended - self._moved_bytes

    def size_bytes(self) -> int:
        """Bytes of all segments and the reserve on the disk."""
        return sum(end for _, end in self._shelf.sealed()) + self._capacity + self._reserve_bytes

    def statistics(self) -> JournalStatistics:
        return JournalStatistics(
            segments=len(self._shelf.sealed()) + 1,
            active_segment=self._number,
            active_records=self._records,
            size_bytes=self.size_bytes(),
            index_bytes=self._shelf.index_bytes,
            reserve_bytes=self._reserve_bytes,
            snapshots=tuple(self._snapshots),
            groups_appended=self._groups_appended,
            bytes_appended=self._bytes_appended,
            syncs=self._syncs,
            rolls=self._rolls,
            tail_records_rewritten=self._rewritten,
            bytes_moved=self._moved_bytes,
            segments_cleaned=self._cleaned,
        )

    def close(self, *, clean: bool = True) -> None:
        """Let go of the directory. A clean stop syncs and leaves a mark that proves it, so that nothing is in question."""
        try:
            if clean and self._failure is None:
                self._mark_clean()
        finally:
            self._shelf.close()
            self._disk.unlock()

    def _mark_clean(self) -> None:
        """Write a group without records: it names everything before it as synced. A file says so too, if the group is lost."""
        self.sync()
        ending = Ending(self.start_id, self._number, self._end)
        self._write_group([b""], self._end + GROUP_BYTES, 0)
        self.sync()
        with self._failing(file_name(SEGMENTS, self._number)):
            self._file.truncate(self._end)
        with self._failing(CLEAN):
            write_ending(self._disk, self.log_id, ending)


@contextmanager
def _opening(disk: Disk) -> Iterator[None]:
    """Say in our words what the disk refused while a journal was opened; the next try starts from what is there."""
    try:
        yield
    except OSError as error:
        raise (DiskFull(str(disk)) if is_full(error) else SyncFailed(str(disk), str(error))) from error

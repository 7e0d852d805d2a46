# SPDX-License-Identifier: Apache-2.0
"""The client's outbox: every block is written down before it is sent, and forgotten when the broker has confirmed it.

May not: sync by itself; take the lock of the directory (the client does); number anything.
The idea: the journal's segments and groups, one group per block, not synced: that survives kill -9 at the price of one
write, and `sync` makes it survive a power cut where a promise needs it (PutPending); behind what it synced it leaves a group
without records, which proves it: wrong bytes before that are damage and not a torn write. Numbers of a stream are confirmed
in order, so a segment is done when the last block in it is; it is then renamed to the next number and written over.
What was confirmed is noted in passing, with a later block: forgetting it costs a repeat, which the broker recognises.

    record 64, entry:      msgpack [stream, first number, numbers, topics, strict, block length, block crc, segment] · block
    record 65, confirmed:  msgpack [{stream: number}, segment]: all at the start of a segment, later those that have changed

Next: segment.py for the bytes around them, core/ for the machine that decides what is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import msgspec

from oncemq.errors import DiskFull, JournalDamaged, OutboxDamaged, SyncFailed
from oncemq.journal.codec import BadRecord, check_block_bytes, open_frame, seal_parts
from oncemq.journal.segment import (
    GROUP_BYTES,
    HEADER_BYTES,
    OUTBOXES,
    Bytes,
    SegmentHeader,
    Walk,
    decode_segment_header,
    encode_segment_header,
    file_name,
    is_full,
    numbers_of,
    pack_group_header,
)
from oncemq.limits import OUTBOX_SEGMENT_BYTES, PENDING_STREAMS_MAX
from oncemq.ports import Disk, File

_ENTRY_CODE, _CONFIRMED_CODE = 64, 65
_SPARES_MAX = 1  # Done segments kept for reuse; one is what steady putting needs.
_NO_LOG = bytes(16)  # An outbox belongs to a directory, not to a log.


class OutboxEntry(msgspec.Struct, frozen=True):
    """One block on its way, with the put numbers it takes: `numbers` of them, for all its topics together."""

    stream: bytes
    first_number: int
    numbers: int
    topics: tuple[str, ...]
    strict: bool
    block: bytes | bytearray

    @property
    def last_number(self) -> int:
        return self.first_number + self.numbers - 1


class _Head(msgspec.Struct, frozen=True, array_like=True):
    stream: bytes
    first_number: int
    numbers: int
    topics: tuple[str, ...]
    strict: bool
    block_length: int
    block_crc: int
    segment: int = 0
    """Where it was written: a power cut may leave the head of a new group before what lay there in the file's earlier life."""


class _Confirmed(msgspec.Struct, frozen=True, array_like=True):
    numbers: dict[bytes, int]
    segment: int = 0


class _Segment(msgspec.Struct):
    """One file: how far it is written, and how many of its blocks are not confirmed yet."""

    number: int
    file: File
    capacity: int
    end: int
    synced: int
    start_id: bytes
    group_number: int = 0
    waiting: int = 0


class _Before(msgspec.Struct, frozen=True):
    """Where the outbox stood before a group was written."""

    active: _Segment | None
    end: int
    group_number: int
    last_segment: int
    newest: int
    news: dict[bytes, int]


_ENCODER = msgspec.msgpack.Encoder()
_HEADS = msgspec.msgpack.Decoder(_Head)
_CONFIRMEDS = msgspec.msgpack.Decoder(_Confirmed)


class Outbox:
    """The blocks of one client that no broker has confirmed. `entries` are those an earlier process left, in order."""

    def __init__(self, disk: Disk, start_id: bytes, segment_bytes: int) -> None:
        """Use `Outbox.open`."""
        self.entries: list[OutboxEntry] = []
        self.confirmed: dict[bytes, int] = {}
        self._disk = disk
        self._start_id = start_id
        self._segment_bytes = segment_bytes
        self._segments: dict[int, _Segment] = {}
        self._spares: list[_Segment] = []
        self._waiting: dict[bytes, deque[tuple[int, int]]] = {}
        self._active: _Segment | None = None
        self._last_segment = self._newest = 0
        self._group_number = 0
        self._news: dict[bytes, int] = {}
        self._has_new_names = False
        self._failure: SyncFailed | None = None
        self._before: _Before | None = None

    # --- opening ------------------------------------------------------------------------------------

    @classmethod
    def open(cls, disk: Disk, *, start_id: bytes, segment_bytes: int = OUTBOX_SEGMENT_BYTES) -> Outbox:
        """Find what was left. Torn bytes behind the last sync are cut; wrong bytes before it raise OutboxDamaged."""
        outbox = cls(disk, start_id, segment_bytes)
        damage: JournalDamaged | None = None
        for number in numbers_of(disk.names(), OUTBOXES):
            outbox._last_segment = number
            try:
                outbox._read_segment(number)
            except JournalDamaged as problem:
                damage = damage or problem
        outbox.entries = [entry for entry in outbox.entries if entry.last_number > outbox.confirmed.get(entry.stream, 0)]
        if damage is not None:
            outbox.close(clean=False)
            raise OutboxDamaged(damage.name, damage.position, damage.reason, messages_of(outbox.entries)) from damage
        for stream, number in list(outbox.confirmed.items()):
            outbox._retire_waiting(stream, number)
        outbox._drop_done()
        return outbox

    def _read_segment(self, number: int) -> None:
        name = file_name(OUTBOXES, number)
        file = self._disk.open(name)
        head = file.read(0, HEADER_BYTES)
        header = decode_segment_header(head)
        if header is None and any(head):
            file.close()
            raise JournalDamaged(name, 0, "the header of the segment is wrong")
        if header is None or header.number != number:
            # A new or reused file that got its name but not yet its header: nothing in it is waiting.
            file.close()
            self._disk.unlink(name)
            return
        segment = self._segments[number] = _Segment(number, file, file.size(), 0, 0, header.start_id)
        self._newest = number
        walk = walk_outbox(file, header)
        last = HEADER_BYTES
        for group in walk:
            for item, _, _ in group.items:
                self._found(segment, item)
                last = group.end
        check_claims(walk, name)
        segment.end, segment.group_number = walk.position, walk.group_number
        if last <= walk.synced:
            segment.synced = segment.end  # Nothing in it waits for a sync, and what proves that needs none.

    def _found(self, segment: _Segment, item: OutboxEntry | _Confirmed) -> None:
        if isinstance(item, _Confirmed):
            for stream, number in item.numbers.items():
                self.confirmed[stream] = max(number, self.confirmed.get(stream, 0))
        else:
            self.entries.append(item)
            self._wait_for(segment, item.stream, item.last_number)

    def _wait_for(self, segment: _Segment, stream: bytes, last_number: int) -> None:
        waiting = self._waiting.get(stream)
        if waiting is None:
            waiting = self._waiting[stream] = deque()
        waiting.append((last_number, segment.number))
        segment.waiting += 1

    # --- writing ------------------------------------------------------------------------------------

    def append(self, entry: OutboxEntry) -> None:
        """Write one block down. It survives the death of this process; a power cut only after `sync`.

        Raises DiskFull with nothing changed, SyncFailed if the disk refuses (and then for ever).
        """
        segment = self._write(entry)
        self._wait_for(segment, entry.stream, entry.first_number + entry.numbers - 1)

    def _write(self, entry: OutboxEntry | None) -> _Segment:
        """Write one group, with the news of what was confirmed if there is any."""
        self._go_back()
        segment = self._active
        end = segment.end if segment is not None else 0
        self._before = _Before(segment, end, self._group_number, self._last_segment, self._newest, self._news)
        if segment is not None:
            parts, records = _parts_of(self._news, entry, segment.number)
            size = sum(map(len, parts))
            if segment.end + 2 * GROUP_BYTES + size <= segment.capacity:  # The second one for the proof of a sync.
                self._write_group(segment, parts, size, records)
                return segment
        return self._write_to_next(entry)

    def _write_to_next(self, entry: OutboxEntry | None) -> _Segment:
        """Go on in another segment; it starts with all that is known as confirmed, so that older ones may go."""
        parts, records = _parts_of(self.confirmed, entry, self._last_segment + 1)
        size = sum(map(len, parts))
        segment = self._next_segment(HEADER_BYTES + 2 * GROUP_BYTES + size)
        self._write_group(segment, parts, size, records)
        self._drop_done()
        return segment

    def _write_group(self, segment: _Segment, parts: list[Bytes], size: int, records: int) -> None:
        number = segment.number
        head = pack_group_header(size, self._group_number + 1, number, number, segment.synced, self._start_id, records)
        self._checked_write(segment, segment.end, [head, *parts])
        segment.end += GROUP_BYTES + size
        self._group_number = segment.group_number = self._group_number + 1
        self._news = {}
        self._before = None

    def _go_back(self) -> None:
        """An exception out of nowhere may have ended the last write between any two lines: begin where that began."""
        before = self._before
        if before is None:
            return
        self._active, self._group_number = before.active, before.group_number
        if before.active is not None:
            before.active.end, before.active.group_number = before.end, before.group_number
        self._last_segment, self._newest = before.last_segment, before.newest
        for number in [number for number in self._segments if number > before.last_segment]:
            self._segments.pop(number).file.close()  # The next one gets its number, and writes over it.
        self._news = {**before.news, **self._news}
        self._before = None

    def _checked_write(self, segment: _Segment, position: int, parts: list[Bytes]) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            segment.file.write(position, parts)
        except OSError as error:
            self._failure = SyncFailed(file_name(OUTBOXES, segment.number), str(error))
            raise self._failure from error

    def _next_segment(self, needed_bytes: int) -> _Segment:
        number = self._last_segment + 1
        segment = self._reuse(number, needed_bytes) or self._create(number, max(self._segment_bytes, needed_bytes))
        header = SegmentHeader(_NO_LOG, self._start_id, number, 0, HEADER_BYTES)
        segment.end = HEADER_BYTES
        segment.synced = HEADER_BYTES
        segment.start_id = self._start_id
        self._checked_write(segment, 0, [encode_segment_header(header)])
        self._segments[number] = self._active = segment
        self._last_segment = self._newest = number
        self._group_number = 0
        self._has_new_names = True
        return segment

    def _reuse(self, number: int, needed_bytes: int) -> _Segment | None:
        if not self._spares or self._spares[-1].capacity < needed_bytes:
            return None
        spare = self._spares.pop()
        self._disk.rename(file_name(OUTBOXES, spare.number), file_name(OUTBOXES, number))
        with _refusing():
            # Before anything is written over: under its old name a half-overwritten segment would be damage, and with it
            # would go what it alone knows as confirmed, while older segments come back.
            self._disk.sync_names()
        spare.number = number
        return spare

    def _create(self, number: int, capacity_bytes: int) -> _Segment:
        name = file_name(OUTBOXES, number)
        with _refusing():
            file = self._disk.open(name, create=True)
        try:
            with _refusing():
                file.allocate(capacity_bytes)
        except (DiskFull, SyncFailed):
            file.close()
            self._disk.unlink(name)
            raise
        return _Segment(number, file, capacity_bytes, 0, 0, self._start_id)

    def sync(self) -> None:
        """Make everything in the outbox durable, with the proof that it was, or raise SyncFailed."""
        self._go_back()
        unsynced = [segment for segment in self._segments.values() if segment.synced < segment.end]
        for segment in unsynced:
            self._sync_segment(segment)
        for segment in unsynced:
            self._prove(segment)
        if self._has_new_names:
            with _refusing():
                self._disk.sync_names()
            self._has_new_names = False
        self._drop_done()

    def _sync_segment(self, segment: _Segment) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            segment.file.sync()
        except OSError as error:
            self._failure = SyncFailed(file_name(OUTBOXES, segment.number), str(error))
            raise self._failure from error
        segment.synced = segment.end

    def _prove(self, segment: _Segment) -> None:
        """Write a group without records, which names what was synced, and sync that too."""
        if segment.end + GROUP_BYTES > segment.capacity:
            return  # Earlier proofs were interrupted, and have used up the room that was left for this one.
        number = segment.number
        if segment is self._active:
            self._before = _Before(segment, segment.end, self._group_number, self._last_segment, self._newest, self._news)
        head = pack_group_header(0, segment.group_number + 1, number, number, segment.synced, segment.start_id, 0)
        self._checked_write(segment, segment.end, [head])
        segment.end += GROUP_BYTES
        segment.group_number += 1
        if segment is self._active:
            self._group_number = segment.group_number
            self._before = None
        self._sync_segment(segment)

    # --- retiring -----------------------------------------------------------------------------------

    def retire(self, stream: bytes, through_number: int) -> None:
        """The broker has confirmed this stream up to that number."""
        if through_number <= self.confirmed.get(stream, 0):
            return
        self.confirmed.pop(stream, None)  # The order of the dictionary is the order of the last news.
        self.confirmed[stream] = through_number
        self._news[stream] = through_number
        if self._retire_waiting(stream, through_number):
            self._drop_done()
        if len(self.confirmed) > PENDING_STREAMS_MAX:
            self._forget_oldest()

    def replace(self, stream: bytes, through_number: int, entry: OutboxEntry) -> None:
        """Write `entry` in place of what waits in another stream up to that number: in one group, so both or neither.

        `sync` must follow each one: until then a power cut may take the group, so the file of the old entry stays, and a later
        group could be all that is left, which notes that number as done, too.
        """
        before = self.confirmed.get(stream, 0)
        self.confirmed[stream] = self._news[stream] = through_number
        try:
            self.append(entry)
        except BaseException:
            self.confirmed[stream] = before
            self._news.pop(stream, None)
            raise
        self._retire_waiting(stream, through_number)

    def _retire_waiting(self, stream: bytes, through_number: int) -> bool:
        """Take blocks off the waiting list; say whether a segment is done by that."""
        waiting = self._waiting.get(stream)
        is_done = False
        while waiting and waiting[0][0] <= through_number:
            segment = self._segments[waiting.popleft()[1]]
            segment.waiting -= 1
            is_done = is_done or segment.waiting == 0
        if waiting is not None and not waiting:
            del self._waiting[stream]
        return is_done

    def _forget_oldest(self) -> None:
        """Streams that were finished long ago need not be known for ever."""
        for stream in list(self.confirmed):
            if stream not in self._waiting:
                del self.confirmed[stream]
                return

    def _drop_done(self) -> None:
        """Keep one segment without waiting blocks for reuse and unlink the others.

        Never the newest: it alone knows all that was confirmed.
        """
        for segment in list(self._segments.values()):
            if segment.waiting or segment.number == self._newest:
                continue
            del self._segments[segment.number]
            if len(self._spares) < _SPARES_MAX and segment.capacity >= self._segment_bytes:
                self._spares.append(segment)
            else:
                segment.file.close()
                self._disk.unlink(file_name(OUTBOXES, segment.number))

    # --- the rest -----------------------------------------------------------------------------------

    @property
    def pending_count(self) -> int:
        """Blocks that are written down and not confirmed."""
        return sum(segment.waiting for segment in self._segments.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments that still hold a block, up to where they are written."""
        return sum(segment.end for segment in self._segments.values())

    def close(self, *, clean: bool = True) -> None:
        """Close the files. A clean stop notes what was confirmed last, so that the next start need not ask again."""
        if clean and self._failure is None and self._news:
            with suppress(DiskFull):
                self._write(None)
        for segment in [*self._segments.values(), *self._spares]:
            segment.file.close()


def walk_outbox(file: File, header: SegmentHeader) -> Walk[OutboxEntry | _Confirmed]:
    """Walk through one file of an outbox."""
    return Walk(file, header, file.size(), partial(_check, segment=header.number))


def check_claims(walk: Walk[OutboxEntry | _Confirmed], name: str) -> None:
    """Raise JournalDamaged if the walk ended before what was synced."""
    walk.search_claims()
    if walk.position < walk.synced:
        raise JournalDamaged(name, walk.position, walk.reason or "it is shorter than it was")


def messages_of(entries: list[OutboxEntry]) -> int:
    """How many messages these blocks hold: each takes a number per topic."""
    return sum(entry.numbers // max(1, len(entry.topics)) for entry in entries)


def _parts_of(confirmed: dict[bytes, int], entry: OutboxEntry | None, segment: int) -> tuple[list[Bytes], int]:
    """The records of a group in that segment, and how many: what is to be told as confirmed, if anything, and the entry."""
    parts = seal_parts(_CONFIRMED_CODE, _ENCODER.encode(_Confirmed(confirmed, segment))) if confirmed else []
    if entry is None:
        return parts, bool(confirmed)
    block = entry.block
    crc = int.from_bytes(block[12:16], "little")
    head = _Head(entry.stream, entry.first_number, entry.numbers, entry.topics, entry.strict, len(block), crc, segment)
    return parts + seal_parts(_ENTRY_CODE, _ENCODER.encode(head), block), 1 + bool(confirmed)


@contextmanager
def _refusing() -> Iterator[None]:
    """Say in our words what the disk refused before anything was written."""
    try:
        yield
    except OSError as error:
        raise (DiskFull("the outbox") if is_full(error) else SyncFailed("the outbox", str(error))) from error


def _check(buffer: Bytes, position: int, segment: int = 0) -> tuple[OutboxEntry | _Confirmed, int]:
    """Decode one record of that segment of an outbox or raise BadRecord."""
    frame = open_frame(buffer, position)
    view = memoryview(buffer)
    header = view[frame.header_start : frame.block_start]
    block = view[frame.block_start : frame.block_end]
    try:
        if frame.code not in (_CONFIRMED_CODE, _ENTRY_CODE):
            raise BadRecord(f"record type {frame.code}")
        head = _CONFIRMEDS.decode(header) if frame.code == _CONFIRMED_CODE else _HEADS.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRecord(str(error)) from error
    if head.segment not in (0, segment):  # Older outboxes do not say it.
        raise BadRecord("a record of the file's earlier life")
    if isinstance(head, _Confirmed):
        return head, frame.next_position
    if head.block_length != len(block):
        raise BadRecord("a block of another size")
    check_block_bytes(block, head.block_crc)
    return OutboxEntry(head.stream, head.first_number, head.numbers, head.topics, head.strict, bytes(block)), frame.next_position

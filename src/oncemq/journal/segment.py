# SPDX-License-Identifier: Apache-2.0
"""Segments and groups: the outer bytes of the journal, and the walk that finds out which of them can be believed.

May not: know what a record means; change a file it walks through.
The idea: a segment is a header and then groups, one behind the other; a group is one write.

    segment header 64:  magic 8 · format u32 · crc u32 · log id 16 · start id 16
                        number u64 · previous end u32 · synced end u32
    group header 64:    magic u32 · body length u32 · group number u64 · segment number u64
                        · synced segment u64 · synced position u64 · start id 16 · record count u32 · crc u32

A segment is written by one start only, so a group counts only if it names the segment's number and its start: stale
bytes in a reused file never match. Each group names what was synced before it was written: bad bytes below that are
damage, bad bytes above it may be a write that was torn (R11).
Next: recovery.py for the rule, index.py for finding blocks again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

import msgspec
from crc32c import crc32c

from oncemq.errors import JournalDamaged
from oncemq.journal.codec import BadRecord
from oncemq.ports import Disk, File

Bytes = bytes | bytearray | memoryview
Item = TypeVar("Item")

FORMAT: Final = 1
HEADER_BYTES: Final = 64
GROUP_BYTES: Final = 64
SEGMENT_BYTES_MAX: Final = 2**31  # Positions are u32 in the index and in headers.
NO_SPACE: Final = 28  # ENOSPC, the same number everywhere; adapters turn a used-up quota into it.
NEW: Final = ".new"  # A file under this ending is not there yet: the next start removes it.

SEGMENTS, INDEXES, SNAPSHOTS, OUTBOXES = "segment-", "index-", "snapshot-", "outbox-"
IDENTITY, RESERVE, LOCK, CLEAN = "identity", "reserve", "lock", "clean"

_SEGMENT_MAGIC = b"ONCEMQSG"
_SEGMENT = struct.Struct("<8sII16s16sQII")
_GROUP_MAGIC = 0x70726731
_GROUP_MAGIC_BYTES = struct.pack("<I", _GROUP_MAGIC)
_GROUP = struct.Struct("<IIQQQQ16sI")  # Without its checksum.
_CRC = struct.Struct("<I")
_CHUNK_BYTES = 1024 * 1024
_ZEROS = bytes(_CHUNK_BYTES)


class SegmentHeader(msgspec.Struct, frozen=True):
    """`previous_end`: bytes above it in the segment before count for nothing. `synced_end`: what was synced before this
    file got its name."""

    log_id: bytes
    start_id: bytes
    number: int
    previous_end: int
    synced_end: int


class GroupHeader(msgspec.Struct, frozen=True, gc=False):
    """`synced_segment` and `synced_position`: everything before that place was synced before this group was written."""

    body_length: int
    group_number: int
    segment_number: int
    synced_segment: int
    synced_position: int
    start_id: bytes
    record_count: int


# --- names ------------------------------------------------------------------------------------------


def file_name(prefix: str, number: int) -> str:
    return f"{prefix}{number:016d}"


def numbers_of(names: Sequence[str], prefix: str) -> list[int]:
    """Return the numbers of all files with that prefix, oldest first; temporary ones are none."""
    tails = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(tail) for tail in tails if len(tail) == 16 and tail.isascii() and tail.isdigit())


def is_full(error: OSError) -> bool:
    return error.errno == NO_SPACE


def write_new(disk: Disk, name: str, parts: Sequence[Bytes]) -> None:
    """Write and sync a file under its temporary name; whoever calls renames it. On failure nothing is left."""
    file = disk.open(name + NEW, create=True)
    try:
        file.write(0, parts)
        file.sync()
    except OSError:
        file.close()
        disk.unlink(name + NEW)
        raise
    file.close()


# --- headers ----------------------------------------------------------------------------------------


def encode_segment_header(header: SegmentHeader) -> bytes:
    fields = (header.log_id, header.start_id, header.number, header.previous_end, header.synced_end)
    bare = _SEGMENT.pack(_SEGMENT_MAGIC, FORMAT, 0, *fields)
    return _SEGMENT.pack(_SEGMENT_MAGIC, FORMAT, crc32c(bare), *fields)


def decode_segment_header(head: Bytes) -> SegmentHeader | None:
    """Return the header, or None if these bytes are none."""
    if len(head) < HEADER_BYTES:
        return None
    header = SegmentHeader(*_SEGMENT.unpack_from(head, 0)[3:])
    # Magic, format and checksum are right if the same fields make the same bytes.
    return header if encode_segment_header(header) == head[:HEADER_BYTES] else None


def encode_group_header(header: GroupHeader) -> bytes:
    return pack_group_header(
        header.body_length,
        header.group_number,
        header.segment_number,
        header.synced_segment,
        header.synced_position,
        header.start_id,
        header.record_count,
    )


def pack_group_header(*fields: int | bytes) -> bytes:
    """The same without making a GroupHeader first, for the busy path."""
    bare = _GROUP.pack(_GROUP_MAGIC, *fields)
    return bare + _CRC.pack(crc32c(bare))


def decode_group_header(head: Bytes) -> GroupHeader | None:
    """Return the header, or None if these bytes are none."""
    if len(head) < GROUP_BYTES:
        return None
    magic, *fields = _GROUP.unpack_from(head, 0)
    if magic != _GROUP_MAGIC or crc32c(memoryview(head)[: _GROUP.size]) != _CRC.unpack_from(head, _GROUP.size)[0]:
        return None
    return GroupHeader(*fields)


def read_segment_header(file: File, name: str, number: int) -> SegmentHeader:
    """Return the header of a segment that has its final name; it was synced before it got that, so it must be right."""
    header = decode_segment_header(file.read(0, HEADER_BYTES))
    if header is None or header.number != number:
        raise JournalDamaged(name, 0, "the header of the segment is wrong")
    return header


# --- walking ----------------------------------------------------------------------------------------


class Window:
    """A file read in large pieces, so that a walk over small groups does not ask the disk for each."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._start = 0
        self._content = b""

    def view(self, position: int, size_bytes: int) -> memoryview:
        """Return up to `size_bytes` from `position`; fewer only at the end of the file."""
        at = position - self._start
        if at < 0 or at + size_bytes > len(self._content):
            self._content = self._file.read(position, max(size_bytes, _CHUNK_BYTES))
            self._start, at = position, 0
        return memoryview(self._content)[at : at + size_bytes]


class Group(msgspec.Struct, Generic[Item], frozen=True):
    """One valid group: `items` are what its records decoded to, with start (in the file) and size of each."""

    position: int
    header: GroupHeader
    body: memoryview
    items: list[tuple[Item, int, int]]

    @property
    def end(self) -> int:
        return self.position + GROUP_BYTES + len(self.body)


class Walk(Generic[Item]):
    """The valid groups of one segment in order, up to `end`; then it knows where and why it stopped.

    `position` is where the next group would be, `reason` is "" if that is `end`, and `synced` the highest place that
    any header met so far claims to be synced, or is known to be when the walk begins.
    """

    def __init__(
        self, file: File, header: SegmentHeader, end: int, check: Callable[[Bytes, int], tuple[Item, int]], synced: int = 0
    ) -> None:
        self.position = HEADER_BYTES
        self.synced = max(HEADER_BYTES, header.synced_end, synced)
        self.reason = ""
        self.group_number = 0
        self._window = Window(file)
        self._header = header
        self._end = end
        self._check = check
        self._search_from = HEADER_BYTES

    def __iter__(self) -> Iterator[Group[Item]]:
        while self.position < self._end:
            try:
                group = self._group()
            except BadRecord as bad:
                self.reason = str(bad)
                return
            self.position = self._search_from = group.end
            self.group_number = group.header.group_number
            yield group

    def _group(self) -> Group[Item]:
        self._search_from = self.position + 8
        header = decode_group_header(self._window.view(self.position, GROUP_BYTES))
        if header is None:
            raise BadRecord("no group header")
        if not self._is_ours(header) or (self.group_number and header.group_number != self.group_number + 1):
            raise BadRecord("a group of another segment or start")
        self._claim(header)
        # Inside a group whose header is right nothing is searched: a client's bytes could look like anything.
        self._search_from = min(self._end, self.position + GROUP_BYTES + header.body_length)
        if self._search_from != self.position + GROUP_BYTES + header.body_length:
            raise BadRecord("cut short in a group")
        body = self._window.view(self.position + GROUP_BYTES, header.body_length)
        if len(body) != header.body_length:
            raise BadRecord("cut short in a group")
        return Group(self.position, header, body, self._items(body, header.record_count))

    def _items(self, body: memoryview, record_count: int) -> list[tuple[Item, int, int]]:
        base = self.position + GROUP_BYTES
        items: list[tuple[Item, int, int]] = []
        at = 0
        while at < len(body):
            item, after = self._check(body, at)
            items.append((item, base + at, after - at))
            at = after
        if len(items) != record_count:
            raise BadRecord("a group with another number of records")
        return items

    def _is_ours(self, header: GroupHeader) -> bool:
        return header.segment_number == self._header.number and header.start_id == self._header.start_id

    def _claim(self, header: GroupHeader) -> None:
        if header.synced_segment == self._header.number:
            self.synced = max(self.synced, header.synced_position)

    def search_claims(self) -> None:
        """Look behind the place where the walk stopped for headers that know more of what was synced."""
        at = self._search_from
        while at < self._end:
            chunk = bytes(self._window.view(at, min(_CHUNK_BYTES, self._end - at)))
            # The unused end of a segment is zeros; comparing is ten times faster than searching.
            found = -1 if chunk == _ZEROS else chunk.find(_GROUP_MAGIC_BYTES)
            while found >= 0:
                self._claim_at(at + found)
                found = chunk.find(_GROUP_MAGIC_BYTES, found + 1)
            if len(chunk) < _CHUNK_BYTES:
                return
            at += len(chunk) - len(_GROUP_MAGIC_BYTES) + 1

    def _claim_at(self, position: int) -> None:
        header = decode_group_header(self._window.view(position, GROUP_BYTES)) if position % 8 == 0 else None
        # A group cannot know of a sync beyond its own start, and there are only so many groups before it.
        if header is not None and self._is_ours(header) and header.synced_position <= position:
            groups_between = header.group_number - self.group_number
            if not self.group_number or 0 < groups_between <= (position - self.position) // GROUP_BYTES + 1:
                self._claim(header)

# SPDX-License-Identifier: Apache-2.0
"""Room on the disk: new segments with all their space taken beforehand, and one reserve for when there is none left.

May not: rename anything: a file made here is not there until the journal gives it its name.
The idea (R14): bytes are admitted only into space that is already allocated, so a full disk is met before anything was
decided and not in the middle of a group. The reserve becomes the next segment when nothing else can: cursors, commands
and trims then go on, and trims are what frees space again.
Next: journal.py, which decides when.
"""

from __future__ import annotations

import msgspec

from oncemq.core.records import Record
from oncemq.journal.segment import (
    GROUP_BYTES,
    HEADER_BYTES,
    NEW,
    RESERVE,
    SEGMENT_BYTES_MAX,
    SEGMENTS,
    Bytes,
    Group,
    SegmentHeader,
    encode_segment_header,
    file_name,
    is_full,
    pack_group_header,
)
from oncemq.ports import Disk, File


class NewSegment(msgspec.Struct, frozen=True):
    """A segment file that is written and synced, but still has another name."""

    file: File
    name: str
    number: int
    capacity_bytes: int
    end: int
    is_reserve: bool


class Plan(msgspec.Struct, frozen=True):
    """What a new segment begins with. `tail`: groups of the segment before that nothing proved synced."""

    log_id: bytes
    start_id: bytes
    number: int
    previous_end: int
    group_number: int
    tail: list[Group[Record]]

    @property
    def end(self) -> int:
        return HEADER_BYTES + sum(group.end - group.position for group in self.tail)

    def parts(self) -> list[Bytes]:
        header = SegmentHeader(self.log_id, self.start_id, self.number, self.previous_end, self.end)
        parts: list[Bytes] = [encode_segment_header(header)]
        for index, group in enumerate(self.tail):
            number = self.group_number + 1 + index
            fields = (len(group.body), number, self.number, self.number, HEADER_BYTES, self.start_id, len(group.items))
            parts += (pack_group_header(*fields), group.body)
        return parts


def size_needed(plan: Plan, size_bytes: int) -> int:
    """How large a segment must be for one group of `size_bytes` record bytes, and for the mark of a clean stop."""
    return plan.end + GROUP_BYTES + size_bytes + GROUP_BYTES


def roomy(needed_bytes: int, usual_bytes: int) -> int:
    """How large a segment is made: half a usual one fits besides what is needed.

    A drain may need much and write little, again and again (a node of a mesh, while much waits for a hole): each such drain
    would find its segment too small for the next one, and leave one behind that is almost empty.
    """
    return min(max(usual_bytes, needed_bytes + usual_bytes // 2), SEGMENT_BYTES_MAX)


def make_segment(disk: Disk, plan: Plan, capacity_bytes: int) -> NewSegment | None:
    """Allocate, write and sync a segment under a temporary name; None if there is no space (then nothing is left of it)."""
    name = file_name(SEGMENTS, plan.number) + NEW
    try:
        file = disk.open(name, create=True)
    except OSError as error:
        if is_full(error):
            return None
        raise
    try:
        file.allocate(capacity_bytes)
        file.write(0, plan.parts())
        file.sync()
    except OSError as error:
        file.close()
        disk.unlink(name)
        if is_full(error):
            return None
        raise
    return NewSegment(file, name, plan.number, capacity_bytes, plan.end, is_reserve=False)


def take_reserve(disk: Disk, plan: Plan, needed_bytes: int) -> NewSegment | None:
    """Write a segment into the reserve's space; None if there is no reserve or it is too small.

    What an earlier start may have left in it names another start, so it counts for nothing.
    """
    try:
        file = disk.open(RESERVE)
    except FileNotFoundError:
        return None
    capacity = file.size()
    if capacity < needed_bytes:
        file.close()
        return None
    file.write(0, plan.parts())
    file.sync()
    return NewSegment(file, RESERVE, plan.number, capacity, plan.end, is_reserve=True)


def cut(disk: Disk, number: int, end: int) -> None:
    """Take from a sealed segment what counts for nothing, durably: its successor may be trimmed before it."""
    file = disk.open(file_name(SEGMENTS, number))
    try:
        file.truncate(end)
        file.sync()
    finally:
        file.close()


def ensure_reserve(disk: Disk, size_bytes: int) -> int:
    """Make the reserve if it is not there and there is space; return its size, 0 if there is none."""
    if not size_bytes:
        return 0
    try:
        return _size_of(disk, RESERVE)
    except FileNotFoundError:
        pass
    try:
        _allocate_reserve(disk, size_bytes)
    except OSError as error:
        if not is_full(error):
            raise
        return 0
    disk.rename(RESERVE + NEW, RESERVE)
    return size_bytes


def _size_of(disk: Disk, name: str) -> int:
    file = disk.open(name)
    try:
        return file.size()
    finally:
        file.close()


def _allocate_reserve(disk: Disk, size_bytes: int) -> None:
    file = disk.open(RESERVE + NEW, create=True)
    try:
        file.allocate(size_bytes)
        # Synced, because after a power cut a reserve without blocks would be none.
        file.sync()
    except OSError:
        disk.unlink(RESERVE + NEW)
        raise
    finally:
        file.close()

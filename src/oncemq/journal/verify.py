# SPDX-License-Identifier: Apache-2.0
"""Check every checksum of a journal or a client's state and say what is wrong, without changing a byte: `oncemq verify`.

May not: write; stop at the first problem; hold more than one group in memory.
The idea: the same walk as a start, but through everything, and problems are reported instead of raised. A torn tail of
the newest segment is no problem: that is what a crash leaves, and the next start cuts it. Then it is read once more as a start
would, which shows what is missing.
Next: recovery.py, which decides the same for a start.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from oncemq.core.records import Record
from oncemq.errors import DirectoryTooNew, DirectoryUnusable, JournalDamaged, JournalIncomplete
from oncemq.journal.codec import check_record
from oncemq.journal.ending import ENDING_BYTES, NOWHERE, BadEnding, Ending, read_ending
from oncemq.journal.finding import Finding
from oncemq.journal.index import BadIndex, SegmentIndex, encode_index, read_index
from oncemq.journal.recovery import State, read_identity, recover
from oncemq.journal.segment import (
    CLEAN,
    IDENTITY,
    INDEXES,
    SEGMENTS,
    SNAPSHOTS,
    SegmentHeader,
    Walk,
    decode_segment_header,
    file_name,
    numbers_of,
)
from oncemq.journal.shelf import add_to
from oncemq.journal.snapshots import BadSnapshot, read_snapshot
from oncemq.journal.verify_state import is_state_directory, verify_state
from oncemq.limits import SNAPSHOTS_KEPT
from oncemq.ports import Disk, File


def verify(disk: Disk, state: State) -> Iterator[Finding]:
    """Yield one finding per file, problems included, then one per missing file or range. `state` is filled meanwhile.

    A client's state directory is checked as well as a journal.
    """
    if is_state_directory(disk.names()):
        yield from verify_state(disk)
        return
    try:
        identity = read_identity(disk)
    except (JournalDamaged, DirectoryTooNew, DirectoryUnusable) as error:
        yield Finding(IDENTITY, 0, str(error))
        return
    if identity is None:
        yield Finding(IDENTITY, 0, "there is no journal in this directory")
        return
    log_id = bytes.fromhex(identity.log)
    yield Finding(IDENTITY, len(identity.log))
    said, ending = _verify_ending(disk, log_id)
    yield from said
    problems = 0
    for finding in chain(_verify_snapshots(disk, log_id), _verify_segments(disk, log_id, ending)):
        problems += bool(finding.problem)
        yield finding
    yield from _verify_whole(disk, log_id, state, is_sound=not problems)


def _verify_whole(disk: Disk, log_id: bytes, state: State, *, is_sound: bool) -> Iterator[Finding]:
    """Find out what is missing. In a damaged journal only a missing file is news: the rest was said before."""
    try:
        found = recover(disk, log_id, state, accept_loss=True)
    except JournalIncomplete as missing:
        yield Finding(missing.name, 0, missing.reason)
    except JournalDamaged as damage:
        if is_sound:
            yield Finding(damage.name, 0, damage.reason, damage.position)
    else:
        for each in found.missing if found is not None else ():
            yield Finding(each.file, 0, f"it is missing, and with it {each}")


def _verify_snapshots(disk: Disk, log_id: bytes) -> Iterator[Finding]:
    numbers = numbers_of(disk.names(), SNAPSHOTS)
    if not numbers:
        yield Finding(SNAPSHOTS.rstrip("-"), 0, "no snapshot is left")
    if len(numbers) == 1 and numbers != [1]:
        yield Finding(
            SNAPSHOTS.rstrip("-"), 0, remark=f"one is there where {SNAPSHOTS_KEPT} are kept; the next start makes another"
        )
    for number in numbers:
        name = file_name(SNAPSHOTS, number)
        try:
            yield Finding(name, len(read_snapshot(disk, log_id, number)))
        except BadSnapshot as bad:
            yield Finding(name, 0, str(bad))


def _verify_ending(disk: Disk, log_id: bytes) -> tuple[list[Finding], Ending]:
    """Check what a clean stop left. Damaged it is a problem of its own, not one of the messages."""
    try:
        ending = read_ending(disk, log_id)
    except BadEnding as bad:
        return [Finding(CLEAN, 0, f"{bad}; the next start does without it")], NOWHERE
    return [Finding(CLEAN, ENDING_BYTES)] if ending is not NOWHERE else [], ending


def _verify_segments(disk: Disk, log_id: bytes, ending: Ending) -> Iterator[Finding]:
    numbers = numbers_of(disk.names(), SEGMENTS)
    headers = {number: _header(disk, number) for number in numbers}
    for number in numbers:
        name = file_name(SEGMENTS, number)
        header = headers[number]
        if header is None or header.number != number or header.log_id != log_id:
            yield Finding(name, 0, "the header of the segment is wrong")
            continue
        file = disk.open(name)
        try:
            end = _end_of(file, headers, number)
            finding, index = _verify_segment(file, header, end, ending.synced_end(header), is_last=number == numbers[-1])
        finally:
            file.close()
        yield finding
        if not finding.problem:
            yield from _verify_index(disk, log_id, number, index, is_last=number == numbers[-1])


def _header(disk: Disk, number: int) -> SegmentHeader | None:
    file = disk.open(file_name(SEGMENTS, number))
    try:
        return decode_segment_header(file.read(0, 64))
    finally:
        file.close()


def _end_of(file: File, headers: dict[int, SegmentHeader | None], number: int) -> int:
    following = headers.get(number + 1)
    return file.size() if following is None else following.previous_end


def _verify_segment(file: File, header: SegmentHeader, end: int, synced: int, *, is_last: bool) -> tuple[Finding, SegmentIndex]:
    index = SegmentIndex(header.number)
    name = file_name(SEGMENTS, header.number)
    walk: Walk[Record] = Walk(file, header, end, check_record, synced)
    try:
        for group in walk:
            _note(index, group.items)
    except JournalDamaged as damage:
        return Finding(name, walk.position, damage.reason, damage.position), index
    index.end = end
    if is_last:
        walk.search_claims()
    is_wrong = walk.position < walk.synced if is_last else walk.position != end
    problem = (walk.reason or "it is shorter than it was") if is_wrong else ""
    return Finding(name, walk.position, problem, walk.position if is_wrong else 0), index


def _note(index: SegmentIndex, items: list[tuple[Record, int, int]]) -> None:
    for record, position, size_bytes in items:
        index.records += 1
        add_to(index, record, position, size_bytes)


def _verify_index(disk: Disk, log_id: bytes, number: int, expected: SegmentIndex, *, is_last: bool) -> Iterator[Finding]:
    """Compare an index file with what its segment really holds."""
    name = file_name(INDEXES, number)
    if name not in disk.names():
        if not is_last:
            yield Finding(name, 0, remark="it is not there; the next start makes it again")
        return
    file = disk.open(name)
    try:
        found = read_index(file, log_id, number)
    except BadIndex as bad:
        yield Finding(name, file.size(), f"{bad}; the next start makes it again")
    else:
        same = encode_index(found, log_id) == encode_index(expected, log_id)
        yield Finding(name, file.size(), "" if same else "it says something else than its segment")
    finally:
        file.close()

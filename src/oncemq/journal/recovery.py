# SPDX-License-Identifier: Apache-2.0
"""What a start finds: the newest usable snapshot, the records after it, and where belief ends.

May not: change a byte. A journal that turns out damaged is left exactly as it was found; journal.py writes afterwards.
The idea (R11, R12):

    snapshot-N ─▶ restore ─▶ segment-N … segment-(L-1), each up to the next one's `previous end`: synced, must be right
                              segment-L: groups below the highest place claimed as synced: proven, must be right
                                         (a clean stop claims it in a file of its own, ending.py)
                                         valid groups above it: the tail, perhaps only in the page cache
                                         the first bad byte above it: torn, everything from there on counts for nothing

The state is dumped between the proven part and the tail. The tail is then written again into the next segment and
synced before anybody is served, because after kill -9 or a failed sync what can be read need not be on the disk.
Next: journal.py, `Journal.open`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Protocol

import msgspec

from oncemq.core.records import Moved, Record
from oncemq.errors import (
    DirectoryTooNew,
    DirectoryUnusable,
    InvariantViolated,
    JournalDamaged,
    JournalIncomplete,
    UsageError,
)
from oncemq.journal.codec import check_record
from oncemq.journal.ending import Ending, known_ending
from oncemq.journal.index import BadIndex, SegmentIndex, Totals, read_head
from oncemq.journal.segment import (
    CLEAN,
    FORMAT,
    IDENTITY,
    INDEXES,
    LOCK,
    NEW,
    RESERVE,
    SEGMENTS,
    SNAPSHOTS,
    Group,
    SegmentHeader,
    Walk,
    file_name,
    numbers_of,
    read_segment_header,
    write_new,
)
from oncemq.journal.shelf import add_to, build_index, walk_sealed
from oncemq.journal.snapshots import newest_usable
from oncemq.journal.whole import Extent, Missing, find_missing, incomplete
from oncemq.ports import Disk


class State(Protocol):
    """What the journal keeps durable: it is restored from bytes, changed by records only, and dumped to bytes."""

    def restore(self, state: bytes) -> None: ...

    def apply(self, record: Record) -> None: ...

    def dump(self) -> bytes: ...

    @property
    def topics(self) -> Mapping[int, Extent]:
        """Which messages must be there, by topic id."""

    @property
    def storages(self) -> Mapping[int, Extent]:
        """Which rows must be there that are staged, or spliced into a topic, by storage id."""


class Identity(msgspec.Struct, frozen=True):
    """The file that says whose directory this is, and in which format."""

    format: int
    log: str


class Sealed(msgspec.Struct, frozen=True):
    """A segment that will not grow any more. `index` is there if its index file is missing or wrong."""

    number: int
    end: int
    totals: list[Totals]
    index: SegmentIndex | None


class Recovered(msgspec.Struct):
    """What was found, and what has to be written before anybody is served."""

    sealed: list[Sealed]
    snapshot_number: int
    state: bytes
    tail: list[Group[Record]]
    group_number: int
    missing: list[Missing] = msgspec.field(default_factory=list)

    @property
    def last_number(self) -> int:
        return self.sealed[-1].number if self.sealed else 0

    @property
    def last_end(self) -> int:
        return self.sealed[-1].end if self.sealed else 0


# --- whose directory --------------------------------------------------------------------------------


def read_identity(disk: Disk) -> Identity | None:
    """Return the directory's identity, None for an empty directory; refuse what is not ours or too new, untouched."""
    names = disk.names()
    if IDENTITY not in names:
        strangers = [name for name in names if name not in (LOCK, IDENTITY + NEW)]
        if strangers:
            advice = "name a data directory, or an empty or a new one"
            raise DirectoryUnusable(str(disk), f"it holds other files ({strangers[0]}): {advice}")
        return None
    file = disk.open(IDENTITY)
    try:
        content = file.read(0, 4096)
    finally:
        file.close()
    return _checked_identity(disk, content)


def _checked_identity(disk: Disk, content: bytes) -> Identity:
    try:
        identity = msgspec.json.decode(content, type=Identity)
        is_right = identity.format > FORMAT or len(bytes.fromhex(identity.log)) == 16
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise JournalDamaged(IDENTITY, 0, str(error)) from error
    if identity.format > FORMAT:
        raise DirectoryTooNew(str(disk), identity.format, FORMAT)
    if not is_right or identity.format != FORMAT:
        raise JournalDamaged(IDENTITY, 0, "not an identity")
    return identity


def write_identity(disk: Disk, log_id: bytes) -> None:
    """Make an empty directory ours, durably, before anything else is in it."""
    write_new(disk, IDENTITY, [msgspec.json.encode(Identity(FORMAT, log_id.hex()))])
    disk.rename(IDENTITY + NEW, IDENTITY)
    disk.sync_names()


# --- what it holds ----------------------------------------------------------------------------------


def recover(disk: Disk, log_id: bytes, state: State, *, accept_loss: bool = False) -> Recovered | None:
    """Bring `state` up to everything valid in the journal; None if its creation was never finished.

    JournalIncomplete if messages are missing that the state says are stored, unless that loss is accepted: then they are only
    named, and whoever reads them is told. A loss of state is never accepted.
    """
    numbers = numbers_of(disk.names(), SEGMENTS)
    if _is_unfinished(disk, numbers):
        return None
    snapshot = newest_usable(disk, log_id)
    if snapshot is None:
        raise JournalDamaged(file_name(SNAPSHOTS, max(numbers, default=1)), 0, "no usable snapshot is left")
    ending = known_ending(disk, log_id)
    _check_complete(disk, numbers, snapshot[0], ending)
    headers = _headers(disk, log_id, numbers, snapshot[0])
    state.restore(snapshot[1])
    sealed = [_known(disk, headers, number) for number in numbers if number < snapshot[0]]
    for number in range(snapshot[0], numbers[-1]):
        sealed.append(_replay_sealed(disk, headers[number], headers[number + 1].previous_end, state))
    found = _replay_last(disk, headers[numbers[-1]], state, sealed, snapshot[0], ending)
    found.missing = find_missing(disk, log_id, {**state.topics, **state.storages}, _held(found))
    if found.missing and not accept_loss:
        raise incomplete(found.missing)
    return found


def _held(found: Recovered) -> Iterator[Totals]:
    """What all segments hold, the tail that will be written again included. A copy counts once its source is gone."""
    there = {sealed.number for sealed in found.sealed}
    tail = SegmentIndex(found.last_number + 1)
    for group in found.tail:
        for item in group.items:
            tail.add(*item)
    for totals in chain(*(sealed.totals for sealed in found.sealed), tail.totals):
        if totals.source not in there:
            yield totals


def _is_unfinished(disk: Disk, numbers: list[int]) -> bool:
    """A directory that was never served: its first snapshot is written before its first record, an index or a reserve."""
    names = disk.names()
    proofs = numbers_of(names, SNAPSHOTS) + numbers_of(names, INDEXES)
    if proofs or RESERVE in names or CLEAN in names or len(numbers) > 1:
        return False
    if not numbers:
        return True
    file = disk.open(file_name(SEGMENTS, numbers[0]))
    try:
        header = read_segment_header(file, file_name(SEGMENTS, numbers[0]), numbers[0])
        walk: Walk[Record] = Walk(file, header, file.size(), check_record)
        return numbers == [1] and next(iter(walk), None) is None
    finally:
        file.close()


def _headers(disk: Disk, log_id: bytes, numbers: list[int], snapshot: int) -> dict[int, SegmentHeader]:
    """Read what every segment says of itself. One older than the snapshot holds messages only: it can be done without."""
    found: dict[int, SegmentHeader] = {}
    for number in numbers:
        name = file_name(SEGMENTS, number)
        file = disk.open(name)
        try:
            found[number] = read_segment_header(file, name, number)
        except JournalDamaged as damage:
            raise JournalDamaged(name, damage.position, damage.reason, may_be_moved=number < snapshot) from damage
        finally:
            file.close()
        if found[number].log_id != log_id:
            raise JournalDamaged(name, 0, "it belongs to another journal")
    return found


def _check_complete(disk: Disk, numbers: list[int], snapshot: int, ending: Ending) -> None:
    """From the snapshot on no segment may be missing; older ones may have been trimmed in any order.

    An index is written once the segment behind its own has its name, so the newest index proves that there was one. A clean
    stop names the newest.
    """
    sealed = max(numbers_of(disk.names(), INDEXES), default=0)
    needed = range(snapshot, max([snapshot, sealed + 1, ending.segment, *numbers]) + 1)
    missing = sorted(set(needed) - set(numbers))
    if missing:
        lost = "what was stored, acknowledged and subscribed while it was written"
        raise JournalIncomplete(file_name(SEGMENTS, missing[0]), lost, len(missing) - 1, may_go_on=False)


def _known(disk: Disk, headers: dict[int, SegmentHeader], number: int) -> Sealed:
    """A segment older than the snapshot: its index says what it holds, or it is walked through to make one."""
    following = headers.get(number + 1)
    try:
        file = disk.open(file_name(INDEXES, number))
        try:
            head = read_head(file, headers[number].log_id, number)
        finally:
            file.close()
    except (BadIndex, OSError):  # Also if the disk does not give it: nobody needs an index to start.
        return _indexed(disk, number, following)
    if following is not None and following.previous_end != head.end:
        return _indexed(disk, number, following)
    _check_length(disk, number, head.end)
    return Sealed(number, head.end, head.totals, None)


def _check_length(disk: Disk, number: int, end: int) -> None:
    """Its blocks are not read here, but that they are there can be seen from outside."""
    file = disk.open(file_name(SEGMENTS, number))
    try:
        if file.size() < end:
            raise JournalDamaged(file_name(SEGMENTS, number), file.size(), "it is shorter than it was")
    finally:
        file.close()


def _indexed(disk: Disk, number: int, following: SegmentHeader | None) -> Sealed:
    file = disk.open(file_name(SEGMENTS, number))
    try:
        # A segment is cut to its end, and that is synced, before the one behind it may go.
        end = file.size() if following is None else following.previous_end
        index = build_index(file, number, end)
    finally:
        file.close()
    return Sealed(number, end, list(index.totals), index)


def _replay_sealed(disk: Disk, header: SegmentHeader, end: int, state: State) -> Sealed:
    file = disk.open(file_name(SEGMENTS, header.number))
    index = SegmentIndex(header.number)
    try:
        for item in walk_sealed(file, header, end):
            _apply(item, index, state)
    finally:
        file.close()
    index.end = end
    return Sealed(header.number, end, list(index.totals), index)


def _apply(item: tuple[Record, int, int], index: SegmentIndex, state: State) -> None:
    index.records += 1
    add_to(index, *item)
    _tell(state, item, index.segment)


def _tell(state: State, item: tuple[Record, int, int], segment: int) -> None:
    """A block that was moved is the journal's business alone: for the state it is where it was.

    A checksum does not say that a record fits those before it: that is found out here, and is damage like any other.
    """
    record, position, _ = item
    if type(record) is Moved:
        return
    try:
        state.apply(record)
    except (LookupError, ValueError, InvariantViolated, UsageError) as problem:
        detail = f"nothing is known of {problem}" if isinstance(problem, LookupError) else str(problem)
        reason = f"a record of type {type(record).__name__} does not fit what came before it ({detail})"
        raise JournalDamaged(file_name(SEGMENTS, segment), position, reason) from problem


def _replay_last(
    disk: Disk, header: SegmentHeader, state: State, sealed: list[Sealed], snapshot: int, ending: Ending
) -> Recovered:
    """Apply the proven part of the newest segment, dump the state, then apply the tail."""
    index = SegmentIndex(header.number)
    file = disk.open(file_name(SEGMENTS, header.number))
    try:
        walk: Walk[Record] = Walk(file, header, file.size(), check_record, ending.synced_end(header))
        waiting: deque[Group[Record]] = deque()
        for group in walk:
            waiting.append(group)
            _apply_proven(waiting, walk.synced, index, state)
        walk.search_claims()
    finally:
        file.close()
    if walk.position < walk.synced:
        raise JournalDamaged(file_name(SEGMENTS, header.number), walk.position, walk.reason or "it is shorter than it was")
    _apply_proven(waiting, walk.synced, index, state)
    index.end = waiting[0].position if waiting else walk.position
    sealed.append(Sealed(header.number, index.end, list(index.totals), index))
    found = Recovered(sealed, snapshot, state.dump(), [group for group in waiting if group.items], walk.group_number)
    for group in found.tail:
        for item in group.items:
            _tell(state, item, header.number)
    return found


def _apply_proven(waiting: deque[Group[Record]], synced: int, index: SegmentIndex, state: State) -> None:
    """Apply the groups that something behind them proves synced, and keep the others waiting."""
    while waiting and waiting[0].end <= synced:
        for item in waiting.popleft().items:
            _apply(item, index, state)


def leftovers(disk: Disk, sealed: list[Sealed]) -> list[str]:
    """Names that a crash left behind: temporary files, and indexes whose segment is gone."""
    names = disk.names()
    numbers = {each.number for each in sealed}
    strays = [file_name(INDEXES, number) for number in numbers_of(names, INDEXES) if number not in numbers]
    return [name for name in names if name.endswith(NEW)] + strays

# SPDX-License-Identifier: Apache-2.0
"""Blocks and indexes that cannot be read: nobody gets something else in their place, and nothing but them stands still."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest

from oncemq.errors import InvariantViolated
from oncemq.journal.codec import encode, encoded_size
from oncemq.journal.index import encode_index, read_index
from oncemq.journal.journal import Journal
from oncemq.journal.reading import DamagedRead, RefusedRead
from oncemq.journal.shelf import Shelf
from oncemq.sim.disk import SimDisk, SimFile
from tests.journal.helpers import LOG_ID, Ledger, cursor, delivered, numbers_read, open_journal, put, stored
from tests.journal.test_cleaner import BUSY, SETTINGS, SMALL, Life, _offset, _segments, _sparse
from tests.journal.test_corners import Refusing, filled
from tests.journal.test_missing import _problems, _written

FIRST = "segment-0000000000000001"
FIRST_INDEX = "index-0000000000000001"
NO_CACHE = replace(SETTINGS, index_cache_bytes=0)


def bytes_of(number: int, offset: int, **more: int) -> bytes:
    return b"".join(encode(stored(number, offset, **more)))


def position_of(disk: SimDisk, content: bytes, name: str = FIRST) -> int:
    return disk.open(name).read(0, 1 << 20).index(content)


# --- reading --------------------------------------------------------------------------------------------


def test_a_block_that_lies_where_another_belongs_is_not_delivered_in_its_place() -> None:
    disk = SimDisk()
    journal, ledger = open_journal(disk)
    for number in (1, 2, 3):
        put(journal, ledger, stored(number, number - 1))
    disk.open(FIRST).write(position_of(disk, bytes_of(1, 0)), [bytes_of(2, 1)])

    with pytest.raises(DamagedRead, match="other offsets"):
        journal.read([(1, 0, 3)], 1 << 20)
    assert [delivered(each) for each in journal.read([(1, 1, 3)], 1 << 20)] == [2, 3]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_start_by_time_leaves_out_nothing_that_may_be_of_that_time(is_sealed: bool) -> None:
    """Whichever neighbours cannot be read: the offset that is found is the right one, or that of the first of them."""
    disk, count = SimDisk(), 9
    journal, ledger = open_journal(disk)
    for number in range(1, count + 1):
        put(journal, ledger, stored(number, number - 1))
    if is_sealed:
        journal.close()
        journal, _ = open_journal(disk, 2)
    places = [position_of(disk, bytes_of(number, number - 1)) for number in range(1, count + 1)]
    for first in range(count):
        for end in range(first, count + 1):
            put_right = [disk.flip(FIRST, place + 20) for place in places[first:end]]
            for offset in range(count):
                found = journal.offset_at_time(1, (offset + 1) * 10)
                assert found in ({offset} if not first < offset <= end else {first, offset})
            for again in put_right:
                again()


def test_a_start_by_time_in_a_segment_nobody_can_find_anything_in_is_where_that_begins() -> None:
    disk = SimDisk()
    filled(disk)
    disk.flip(FIRST_INDEX, disk.size_of(FIRST_INDEX) - 1)
    disk.flip(FIRST, position_of(disk, bytes_of(3, 2, size=200)) + 20)
    journal, _ = open_journal(disk, 2)
    assert journal.offset_at_time(1, 50) == 0
    later = journal.holdings(1)[1].first_offset
    assert journal.offset_at_time(1, (later + 2) * 10) == later + 1


def test_a_place_that_the_disk_refuses_takes_none_of_its_neighbours_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks are read together; if one of them cannot be, the others still can."""
    disk = SimDisk()
    journal, ledger = open_journal(disk)
    for number in range(1, 6):
        put(journal, ledger, stored(number, number - 1))
    bad, read = position_of(disk, bytes_of(4, 3)), SimFile.read

    def refuse(self: SimFile, position: int, size: int) -> bytes:
        if position <= bad < position + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(self, position, size)

    monkeypatch.setattr(SimFile, "read", refuse)
    assert [delivered(each) for each in journal.read([(1, 0, 5)], 1 << 20)] == [1, 2, 3]
    with pytest.raises(RefusedRead, match="offsets 3 to 3"):
        journal.read([(1, 3, 5)], 1 << 20)
    assert [delivered(each) for each in journal.read([(1, 4, 5)], 1 << 20)] == [5]


def test_blocks_that_the_disk_gives_one_by_one_are_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    journal, ledger = open_journal(SimDisk())
    for number in range(1, 6):
        put(journal, ledger, stored(number, number - 1))
    read, one = SimFile.read, encoded_size(stored(1, 0))

    def refuse(self: SimFile, position: int, size: int) -> bytes:
        if size > one:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(self, position, size)

    monkeypatch.setattr(SimFile, "read", refuse)
    assert [delivered(each) for each in journal.read([(1, 0, 5)], 1 << 20)] == [1, 2, 3, 4, 5]


def test_an_index_that_the_disk_refuses_is_made_again_from_its_segment() -> None:
    """While a broker runs, and when it starts: then the new one takes the place of the old."""
    disk = Refusing()
    filled(disk)
    journal, _ = open_journal(disk, 2, NO_CACHE)
    disk.refused, disk.is_readable = FIRST_INDEX, False
    assert numbers_read(journal) == list(range(1, 40))
    journal.close()
    disk.is_writable = True
    journal, _ = open_journal(disk, 3, NO_CACHE)
    disk.refused = ""
    assert numbers_read(journal) == list(range(1, 40))
    assert _problems(disk) == []


# --- starting -------------------------------------------------------------------------------------------


def test_an_index_that_ends_where_its_segment_does_not_is_made_again() -> None:
    disk = _written()
    index = read_index(disk.open(FIRST_INDEX), LOG_ID, 1)
    index.end -= 8
    disk.open(FIRST_INDEX, create=True).write(0, [encode_index(index, LOG_ID)])
    assert [finding.name for finding in _problems(disk)] == [FIRST_INDEX]
    open_journal(disk, 2)[0].close()

    assert _problems(disk) == []


def test_nothing_can_be_noted_where_no_segment_is_active() -> None:
    with pytest.raises(InvariantViolated, match="no segment is active"):
        Shelf(SimDisk(), LOG_ID, index_bytes_max=0, files_max=1).note(stored(1, 0), 64, 200)


# --- cleaning -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [b"".join(encode(cursor(1))), bytes_of(14, _offset(14), topic=SMALL, size=100)])
def test_a_block_that_lies_where_another_belongs_is_never_copied(other: bytes) -> None:
    life = _sparse()
    position = position_of(life.disk, bytes_of(7, _offset(7), topic=SMALL, size=100))
    life.disk.open(FIRST).write(position, [other])
    life.clean()

    assert FIRST in _segments(life.disk)
    assert life.journal.statistics().segments_cleaned > 10
    assert len(life.journal.read([(SMALL, 1, life.books.ends()[SMALL])], 1 << 20)) == life.books.ends()[SMALL] - 1


def test_a_segment_with_neither_index_nor_right_bytes_is_left_alone_and_the_others_are_cleaned() -> None:
    life = Life(SimDisk(), NO_CACHE)
    life.put(700)
    life.trim()
    life.disk.flip(FIRST_INDEX, life.disk.size_of(FIRST_INDEX) - 1)
    life.disk.flip(FIRST, position_of(life.disk, bytes_of(1, 0, topic=BUSY, size=100)) + 20)
    life.clean()

    assert FIRST in _segments(life.disk)
    assert life.journal.statistics().segments_cleaned > 10


def test_a_disk_that_gives_neither_indexes_nor_segments_does_not_end_the_cleaner() -> None:
    life = Life(Refusing(), NO_CACHE)
    life.put(700)
    life.trim()
    life.disk.refused, life.disk.is_readable = ("index-", "segment-"), False  # type: ignore[attr-defined]
    before = _segments(life.disk)
    life.clean()
    assert _segments(life.disk) == before
    life.disk.refused = ""  # type: ignore[attr-defined]
    life.journal.close()
    life.start()
    life.clean()

    assert life.journal.statistics().segments_cleaned > 10


def test_without_room_for_copies_nothing_is_moved_until_there_is() -> None:
    life = Life(SimDisk(), replace(SETTINGS, reserve_bytes=0))
    life.put(600)
    life.disk.capacity_bytes = life.disk.used_bytes()
    while life.journal.prepare(400, 1) >= 400:
        life.put(1)
    life.lows[BUSY] = life.books.ends()[BUSY]
    life.clean()
    assert life.journal.statistics().bytes_moved == 0
    life.check()
    life.disk.capacity_bytes = None
    life.clean()
    life.check()

    assert life.journal.statistics().segments_cleaned > 10


def test_copies_that_nobody_needs_any_more_go_before_what_they_were_copied_from() -> None:
    """Of a segment that is being emptied one topic is copied, and done with before the other one's turn comes."""
    disk = SimDisk()
    journal, ledger = open_journal(disk, settings=replace(SETTINGS, clean_slack_bytes=0))
    fill(journal, ledger, 4, topic=1)
    fill(journal, ledger, 4, topic=2)
    fill(journal, ledger, 100, topic=3)
    lows = {1: 0, 2: 0, 3: 100}
    journal.trim(lows)
    journal.clean(lows, 4 * encoded_size(stored(1, 0, size=100)))
    copies = journal.statistics().active_segment
    fill(journal, ledger, 100, topic=3)
    assert journal._shelf.being_copied() == [1]
    lows = {1: 4, 2: 0, 3: 200}
    journal.trim(lows)
    assert [f"segment-{number:016d}" in _segments(disk) for number in (1, copies)] == [True, False]
    assert journal._shelf.being_copied() == []
    while journal.clean(lows, 1 << 20):
        pass

    assert FIRST not in _segments(disk)
    assert [delivered(each) for each in journal.read([(2, 0, 4)], 1 << 20)] == [5, 6, 7, 8]


def fill(journal: Journal, ledger: Ledger, count: int, *, topic: int) -> None:
    """Put so many messages at the end of a topic."""
    offset = max((each.end_offset for each in journal.holdings(topic)), default=0)
    for each in range(offset, offset + count):
        record = stored(len(ledger.records) + 1, each, topic=topic, size=100)
        assert journal.prepare(encoded_size(record), 1)
        put(journal, ledger, record)

# SPDX-License-Identifier: Apache-2.0
"""Corners of the journal that ordinary runs do not reach: bytes that lie about themselves, and disks that refuse."""

from __future__ import annotations

import errno
import os

import pytest
from msgspec.structs import replace

from oncemq.core.records import Placement, Staged
from oncemq.errors import SyncFailed
from oncemq.journal import codec
from oncemq.journal.codec import BadRecord, check_record, decode, delivery, encode, held_in, placed_offset, seal_parts
from oncemq.journal.index import BadIndex, read_head
from oncemq.journal.journal import JournalSettings
from oncemq.journal.recovery import IDENTITY
from oncemq.journal.segment import INDEXES, SEGMENTS, SNAPSHOTS
from oncemq.journal.space import RESERVE, ensure_reserve
from oncemq.model.block import checksum
from oncemq.sim.disk import SimDisk, SimFile
from tests.journal.helpers import LOG_ID, SMALL, block_of, cursor, numbers_read, open_journal, put, stored, stored_in

# --- records that lie ----------------------------------------------------------------------------------------


def joined(parts: list[bytes | bytearray | memoryview]) -> bytes:
    return b"".join(parts)


def staged() -> Staged:
    block = block_of(b"one", b"two")
    return Staged(1, 10, b"p" * 16, 0, "query", 1, 7, 0, 2, checksum(block), len(block), block)


def lying_stored(**changes: int) -> bytes:
    """A Stored whose header says something else than is there."""
    record = stored(1, 0)
    header = bytearray(codec._stored_header(record, len(record.block) + changes.get("more_block", 0)))
    if "flags" in changes:
        header[codec._STORED.size - 2] = changes["flags"]
    if "publisher" in changes:
        at = codec._STORED.size + codec._PLACEMENT.size
        header[at] = changes["publisher"]
    return joined(seal_parts(codec.STORED_CODE, bytes(header), record.block))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (joined(seal_parts(codec.STORED_CODE, bytes(8))), "cut short"),
        (lying_stored(more_block=8), "block of another size"),
        (lying_stored(flags=2), "header of another size"),
        (lying_stored(publisher=0xFF), "not UTF-8"),
        (joined(seal_parts(codec.STAGED_CODE, b"\xc1")), "Staged"),
        (joined(encode(replace(staged(), block_bytes=8))), "block of another size"),
        (joined(seal_parts(250, b"")), "record type 250"),
        (joined(seal_parts(codec._CODE_OF[type(cursor(1))], b"\xc1")), "record type"),
    ],
)
def test_a_record_that_lies_about_itself_is_no_record(content: bytes, reason: str) -> None:
    with pytest.raises(BadRecord, match=reason):
        decode(content)


def test_the_block_of_a_staged_record_is_checked_like_any_other() -> None:
    content = bytearray(joined(encode(staged())))
    assert check_record(content, 0)[0] == replace(staged(), block=b"")
    content[-20] ^= 1
    with pytest.raises(BadRecord, match="checksum of a block"):
        check_record(content, 0)


def test_only_what_holds_messages_of_the_topic_is_delivered() -> None:
    several = joined(encode(stored_in(1, (Placement(1, 0), Placement(2, 0)))))
    assert decode(delivery(several, 2))[0].placements == (Placement(2, 0),)  # type: ignore[union-attr]
    with pytest.raises(BadRecord, match="not in topic 3"):
        delivery(several, 3)
    with pytest.raises(BadRecord, match="another topic"):
        placed_offset(several, 0, len(several), 3)
    with pytest.raises(BadRecord, match="not the record"):
        placed_offset(several, 0, len(several) + 8, 1)
    other = joined(encode(cursor(1)))
    with pytest.raises(BadRecord, match="another topic"):
        placed_offset(other, 0, len(other), 1)
    assert held_in(cursor(1)) == []


# --- disks that refuse ---------------------------------------------------------------------------------------


class Refusing(SimDisk):
    """A disk on which some names cannot be opened for writing, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = ""
        self.number = errno.EIO
        self.is_readable = True

    def open(self, name: str, *, create: bool = False) -> SimFile:
        if (create or not self.is_readable) and self.refused and name.startswith(self.refused):
            raise OSError(self.number, os.strerror(self.number), name)
        return super().open(name, create=create)


def filled(disk: SimDisk) -> None:
    """Put until a segment is sealed and another begun."""
    journal, ledger = open_journal(disk, settings=JournalSettings(segment_bytes=4096, segment_records_max=1000, reserve_bytes=0))
    for number in range(1, 40):
        put(journal, ledger, stored(number, number - 1, size=200))
    journal.close()


@pytest.mark.parametrize("refused", [SNAPSHOTS, INDEXES, SEGMENTS])
def test_an_error_that_is_not_a_full_disk_ends_the_writing(refused: str) -> None:
    disk = Refusing()
    journal, ledger = open_journal(disk, settings=JournalSettings(segment_bytes=4096, segment_records_max=1000, reserve_bytes=0))
    disk.refused = refused
    with pytest.raises((SyncFailed, OSError)):
        for number in range(1, 60):
            put(journal, ledger, stored(number, number - 1, size=200))


@pytest.mark.parametrize("refused", [IDENTITY, SNAPSHOTS, SEGMENTS])
def test_a_disk_that_cannot_be_read_is_told_in_our_words_and_left_alone(refused: str) -> None:
    disk = Refusing()
    filled(disk)
    disk.refused, disk.is_readable = refused, False
    with pytest.raises(SyncFailed, match=os.strerror(errno.EIO)):
        open_journal(disk, 2)
    disk.refused = ""
    journal, _ = open_journal(disk, 3)

    assert numbers_read(journal) == list(range(1, 40))


def test_an_index_cut_short_is_no_index() -> None:
    disk = SimDisk()
    file = disk.open("index", create=True)
    file.write(0, [b"short"])
    with pytest.raises(BadIndex, match="cut short"):
        read_head(file, LOG_ID, 1)


@pytest.mark.parametrize(("number", "is_told"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_reserve_that_does_not_fit_is_none_and_a_broken_disk_is_told(number: int, *, is_told: bool) -> None:
    disk = Refusing()
    disk.refused, disk.number = RESERVE, number
    if is_told:
        with pytest.raises(OSError, match=os.strerror(number)):
            ensure_reserve(disk, 4096)
    else:
        assert ensure_reserve(disk, 4096) == 0
        assert disk.names() == []


def test_the_disk_of_these_tests_works_where_nothing_is_refused() -> None:
    disk = Refusing()
    filled(disk)
    journal, _ = open_journal(disk, 2, SMALL)

    assert numbers_read(journal) == list(range(1, 40))

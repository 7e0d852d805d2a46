# SPDX-License-Identifier: Apache-2.0
"""Corners of the journal that ordinary runs do not reach: bytes that lie about themselves, and disks that refuse."""

from __future__ import annotations

import errno
import os

import pytest
from msgspec.structs import replace

from oncemq.core.parts import Splice
from oncemq.core.records import Lost, Origin, Placement, Staged
from oncemq.errors import SyncFailed
from oncemq.journal import codec
from oncemq.journal.codec import (
    BadRecord,
    check_record,
    decode,
    decode_delivery,
    delivery,
    encode,
    held_in,
    is_delivery_of,
    placed_offset,
    seal_parts,
    spliced_delivery,
)
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


def moved(code: int, header: bytes, padding: bytes = bytes(7)) -> bytes:
    """A record of that type that was moved here from segment 1."""
    return joined(seal_parts(codec.MOVED_CODE, bytes([1, *bytes(7), code]) + padding + header))


def lying_names() -> bytes:
    """A Stored of a mesh whose topics have no names."""
    record = replace(stored(1, 0), topics=("orders",))
    header = codec._stored_header(record, len(record.block))
    return joined(seal_parts(codec.STORED_CODE, header.replace(b"\x91\xa6orders", b"\xc1\xa6orders"), record.block))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (joined(seal_parts(codec.STORED_CODE, bytes(8))), "cut short"),
        (lying_names(), "names of topics"),
        (moved(codec.LOST_CODE, b"\xc1"), "a moved record"),
        (moved(codec.LOST_CODE, b"\xc1", b"\0\0\0odd\0"), "header of another kind"),
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


def test_a_gap_lies_in_the_topics_that_have_it() -> None:
    gap = Lost(3, 30, b"s" * 16, Origin(b"n" * 16, b"z" * 16, 7), 9, (Placement(1, 4), Placement(2, 0)))
    content = joined(encode(gap))
    assert held_in(gap) == [(1, 4, 1, 0), (2, 0, 1, 0)]
    assert placed_offset(content, 0, len(content), 1) == (4, 1, 30)
    with pytest.raises(BadRecord, match="through their splice"):
        delivery(content, 1)


def test_only_staged_rows_are_spliced() -> None:
    splice = Splice(0, 2, 7, 1, 10, b"s" * 16, b"t" * 16, 1, "query")
    found, *_ = decode_delivery(spliced_delivery(joined(encode(staged())), splice, 5), 0)
    assert (found.topic_id, found.count, found.publisher) == (5, 2, "query")
    with pytest.raises(BadRecord, match="only staged"):
        spliced_delivery(joined(encode(stored(1, 0))), splice, 5)


def test_a_delivery_cut_anywhere_is_none() -> None:
    content = joined(encode(stored(1, 0)))
    assert is_delivery_of(content, 1, 0, 1)
    for end in range(len(content)):
        assert not is_delivery_of(content[:end], 1, 0, 1)
        with pytest.raises(BadRecord, match="cut short"):
            decode_delivery(content[:end], 0)


# --- disks that refuse ---------------------------------------------------------------------------------------


class Refusing(SimDisk):
    """A disk on which some names cannot be opened for writing, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = ""
        self.number = errno.EIO
        self.is_readable = True
        self.is_writable = False

    def open(self, name: str, *, create: bool = False) -> SimFile:
        is_refused = not self.is_writable if create else not self.is_readable
        if is_refused and self.refused and name.startswith(self.refused):
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

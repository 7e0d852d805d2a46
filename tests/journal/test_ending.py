# SPDX-License-Identifier: Apache-2.0
"""What a clean stop leaves: the newest segment cannot lose its end in silence, and nothing but a loss is ever refused."""

from __future__ import annotations

import errno

import pytest

from oncemq.errors import JournalDamaged, JournalIncomplete, SyncFailed
from oncemq.journal.backup import copy_to
from oncemq.journal.ending import ENDING_BYTES, Ending, encode_ending, read_ending
from oncemq.journal.finding import Finding
from oncemq.journal.segment import GROUP_BYTES, HEADER_BYTES
from oncemq.journal.verify import verify
from oncemq.sim.disk import SimDisk
from tests.journal.helpers import LOG_ID, Ledger, cursor, open_journal, put
from tests.journal.test_corners import Refusing

FIRST, SECOND = "segment-0000000000000001", "segment-0000000000000002"
START = (1).to_bytes(16, "big")
GOLDEN = (
    "4f4e43454d51434c0100000046287f7a4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c"
    "5353535353535353535353535353535307000000000000006712000000000000"
)


def _written(count: int = 5, disk: SimDisk | None = None, start: int = 1, *, clean: bool = True) -> SimDisk:
    """A journal with so many records more, in a segment of this start."""
    disk = disk or SimDisk(1)
    journal, ledger = open_journal(disk, start)
    for number in range(len(ledger.records) + 1, len(ledger.records) + count + 1):
        put(journal, ledger, cursor(number))
    journal.close(clean=clean)
    disk.kill()
    return disk


def _content(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.open(name).read(0, 1 << 20) for name in disk.names()}


def _problems(disk: SimDisk) -> list[Finding]:
    return [finding for finding in verify(disk, Ledger()) if finding.problem]


def _end(disk: SimDisk) -> int:
    """Where the last record ends: behind it is the mark of the clean stop alone."""
    return disk.size_of(FIRST) - GROUP_BYTES


# --- what is found ----------------------------------------------------------------------------------------


def test_whatever_is_cut_off_behind_a_clean_stop_is_found_and_nothing_is_changed() -> None:
    whole = _written()
    for size in range(HEADER_BYTES, _end(whole), 8):
        disk = whole.copy()
        disk.open(FIRST).truncate(size)
        before = _content(disk)
        with pytest.raises(JournalDamaged, match="Nothing was changed") as told:
            open_journal(disk, 2)
        assert told.value.name == FIRST
        assert [finding.name for finding in _problems(disk)] == [FIRST]
        assert _content(disk) == before
    assert open_journal(whole, 2)[1].numbers == [1, 2, 3, 4, 5]


def test_an_end_that_was_overwritten_with_zeros_is_found_as_well() -> None:
    disk = _written()
    size = disk.size_of(FIRST)
    disk.open(FIRST).truncate(_end(disk) - 8)
    disk.open(FIRST).allocate(size)
    with pytest.raises(JournalDamaged):
        open_journal(disk, 2)
    assert [finding.name for finding in _problems(disk)] == [FIRST]


def test_the_mark_behind_the_last_record_may_be_lost() -> None:
    whole = _written()
    for size in range(_end(whole), whole.size_of(FIRST), 8):
        disk = whole.copy()
        disk.open(FIRST).truncate(size)
        assert _problems(disk) == []
        assert open_journal(disk, 2)[1].numbers == [1, 2, 3, 4, 5]


def test_a_newest_segment_that_is_gone_with_all_that_could_prove_it_is_missed() -> None:
    disk = _written(disk=_written(), start=2)
    for name in (SECOND, SECOND.replace("segment", "snapshot"), FIRST.replace("segment", "index")):
        disk.unlink(name)
    with pytest.raises(JournalIncomplete) as told:
        open_journal(disk, 3)
    assert (told.value.name, told.value.may_go_on) == (SECOND, False)
    assert [finding.name for finding in _problems(disk)] == [SECOND]


def test_a_directory_in_which_nothing_else_is_left_does_not_begin_anew() -> None:
    disk = _written()
    for name in disk.names():
        if name not in ("identity", "clean"):
            disk.unlink(name)
    with pytest.raises(JournalDamaged, match="snapshot"):
        open_journal(disk, 2)


def test_a_copy_brings_it_along() -> None:
    source, target = _written(), SimDisk(2)
    copy_to(source, target)
    assert _problems(target) == []
    target.open(FIRST).truncate(_end(target) - 8)
    assert [finding.name for finding in _problems(target)] == [FIRST]


# --- what is not ------------------------------------------------------------------------------------------


def test_after_an_unclean_stop_nobody_knows_where_the_end_was() -> None:
    """docs/known-limits.md; the last record is proven by nothing behind it."""
    group_bytes = (_end(_written()) - HEADER_BYTES) // 5
    disk = _written(clean=False)
    disk.open(FIRST).truncate(HEADER_BYTES + 3 * group_bytes)
    assert _problems(disk) == []
    assert open_journal(disk, 2)[1].numbers == [1, 2, 3]


def test_verify_leaves_it_and_a_start_takes_it_away_durably() -> None:
    disk = _written()
    assert _problems(disk) == []
    assert "clean" in disk.names()
    open_journal(disk, 2)
    assert "clean" not in disk.names()
    disk.power_cut()
    assert "clean" not in disk.names()
    assert open_journal(disk, 3)[1].numbers == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("clean", [True, False])
def test_one_of_an_older_copy_next_to_a_longer_journal_says_nothing(clean: bool) -> None:
    disk = _written()
    old = _content(disk)["clean"]
    _written(disk=disk, start=2, clean=clean)
    disk.open("clean", create=True).write(0, [old])
    assert _problems(disk) == []
    assert len(open_journal(disk, 3)[1].numbers) == 10


def test_one_that_speaks_of_another_start_with_the_same_number_says_nothing() -> None:
    disk = _written(9)
    theirs = _content(disk)["clean"]
    disk = _written(2, start=7, clean=False)
    disk.open("clean", create=True).write(0, [theirs])
    assert _problems(disk) == []
    assert open_journal(disk, 8)[1].numbers == [1, 2]


@pytest.mark.parametrize("wrong", [b"", b"x" * ENDING_BYTES, b"x" * 100])
def test_a_damaged_one_is_told_by_verify_and_stops_nobody(wrong: bytes) -> None:
    disk = _written()
    disk.open("clean", create=True).write(0, [wrong])
    assert [(finding.name, "does without" in finding.problem) for finding in _problems(disk)] == [("clean", True)]
    assert open_journal(disk, 2)[1].numbers == [1, 2, 3, 4, 5]


def test_one_of_another_journal_says_nothing() -> None:
    disk = _written()
    disk.open("clean", create=True).write(0, [encode_ending(b"M" * 16, Ending(START, 9, 999))])
    assert open_journal(disk, 2)[1].numbers == [1, 2, 3, 4, 5]


# --- stops that do not go well ----------------------------------------------------------------------------


def test_every_power_cut_in_a_clean_stop_and_the_start_after_it_leaves_all_that_was_synced() -> None:
    for seed in range(60):
        disk = SimDisk(seed)
        journal, ledger = open_journal(disk)
        for number in (1, 2, 3):
            put(journal, ledger, cursor(number))
        journal.close()
        if seed % 2:
            open_journal(disk, 2)
        disk.power_cut()
        assert open_journal(disk, 3)[1].numbers == [1, 2, 3]


def test_a_full_disk_has_none_and_stops_cleanly_all_the_same() -> None:
    disk = Refusing()
    journal, ledger = open_journal(disk)
    put(journal, ledger, cursor(1))
    disk.refused, disk.number = "clean", errno.ENOSPC
    journal.close()
    disk.refused = ""
    assert not {"clean", "clean.new"} & set(disk.names())
    assert open_journal(disk, 2)[1].numbers == [1]


def test_a_disk_that_refuses_it_is_told_and_nothing_is_lost() -> None:
    disk = Refusing()
    journal, ledger = open_journal(disk)
    put(journal, ledger, cursor(1))
    disk.refused = "clean"
    with pytest.raises(SyncFailed, match="clean"):
        journal.close()
    disk.refused = ""
    assert open_journal(disk, 2)[1].numbers == [1]


def test_one_that_the_disk_does_not_give_stops_nobody() -> None:
    disk = Refusing()
    _written(disk=disk)
    disk.refused, disk.is_readable = "clean", False
    assert open_journal(disk, 2)[1].numbers == [1, 2, 3, 4, 5]


def test_the_bytes_never_change() -> None:
    ending = Ending(b"S" * 16, 7, 4711)
    assert encode_ending(LOG_ID, ending).hex() == GOLDEN
    disk = SimDisk()
    disk.open("clean", create=True).write(0, [bytes.fromhex(GOLDEN)])
    assert read_ending(disk, LOG_ID) == ending

# SPDX-License-Identifier: Apache-2.0
"""Checking a journal without changing it, and copying one so that the copy can be opened."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from oncemq.adapters.os_disk import OsDisk
from oncemq.core.packets import NOBODY
from oncemq.core.records import ELSEWHERE, ClientForgotten, Origin, Placement, Record, Started, Subscribed, TopicCreated
from oncemq.core.state import BrokerState
from oncemq.errors import DirectoryLocked, DirectoryUnusable, JournalDamaged
from oncemq.journal.backup import copy_to
from oncemq.journal.codec import encode
from oncemq.journal.finding import Finding
from oncemq.journal.journal import Journal
from oncemq.journal.reading import DamagedRead
from oncemq.journal.verify import verify
from oncemq.sim.disk import SimDisk
from tests.journal.helpers import LOG_ID, Ledger, numbers_read, open_journal, put, stored, stored_in

FIRST = "segment-0000000000000001"
FIRST_INDEX = "index-0000000000000001"


def _written(count: int = 120, *, clean: bool = True) -> tuple[SimDisk, Ledger]:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    for number in range(1, count + 1):
        put(journal, ledger, stored(number, number - 1))
    if clean:
        journal.close()
    disk.kill()
    return disk, ledger


def _problems(disk: SimDisk) -> list[Finding]:
    return [finding for finding in verify(disk, Ledger()) if finding.problem]


@pytest.mark.parametrize("clean", [True, False])
def test_a_sound_journal_has_no_problem_and_every_file_is_looked_at(clean: bool) -> None:
    disk, _ = _written(clean=clean)
    findings = list(verify(disk, Ledger()))
    assert [finding for finding in findings if finding.problem] == []
    assert {finding.name for finding in findings} == set(disk.names()) - {"reserve"}
    assert sum(finding.bytes_checked for finding in findings) > 120 * 200


def test_a_torn_tail_is_no_problem() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, stored(1, 0))
    put(journal, ledger, stored(2, 1), sync=False)
    disk.kill()
    disk.flip("segment-0000000000000001", 500)
    assert _problems(disk) == []


def test_every_byte_that_rots_is_found_and_nothing_is_changed() -> None:
    disk, _ = _written(70)
    found = 0
    for name in disk.names():
        if name == "reserve":
            continue
        for position in range(0, disk.open(name).size(), 61):
            copy = disk.copy()
            copy.flip(name, position, 8)
            before = {each: copy.open(each).read(0, 1 << 20) for each in copy.names()}
            found += any(name in (finding.name, "identity") for finding in _problems(copy))
            assert {each: copy.open(each).read(0, 1 << 20) for each in copy.names()} == before
    total = sum(len(range(0, disk.open(name).size(), 61)) for name in disk.names() if name != "reserve")
    # Padding behind a record is covered by no checksum, because it means nothing.
    assert found >= total * 0.95


def test_what_is_not_a_journal_is_said() -> None:
    assert [finding.problem for finding in verify(SimDisk(1), Ledger())] == ["there is no journal in this directory"]
    disk = SimDisk(1)
    disk.open("identity", create=True).write(0, [b'{"format": 7, "log": ""}'])
    assert "newer" in next(iter(verify(disk, Ledger()))).problem


def test_a_segment_that_got_shorter_is_said_with_the_place() -> None:
    disk, _ = _written()
    name = "segment-0000000000000001"
    end = disk.size_of(name)
    disk.open(name).truncate(end - 1)
    (problem,) = _problems(disk)
    assert (problem.name, problem.problem) == (name, "cut short in a group")
    assert end - 400 < problem.position < end


def test_right_bytes_in_a_wrong_place_are_said() -> None:
    """Every checksum is right, and yet a message lies where another one belongs."""
    disk, _ = _written()
    name = "segment-0000000000000001"
    second, third = (b"".join(encode(stored(number, number - 1))) for number in (2, 3))
    position = disk.open(name).read(0, 1 << 20).index(second)
    disk.open(name).write(position, [third])
    assert any(finding.name == name and "gap" in finding.problem for finding in _problems(disk))


def test_a_record_that_its_state_cannot_take_is_said() -> None:
    """Bytes, indexes and snapshots are right: only the records contradict each other."""
    disk = SimDisk(1)
    journal = Journal.open(disk, start_id=b"s" * 16, new_log_id=LOG_ID, state=BrokerState())
    fifth = stored_in(1, (Placement(0, ELSEWHERE),))
    journal.append([replace(fifth, stream=NOBODY, origin=Origin(b"n" * 16, b"z" * 16, 5))])
    journal.close()
    found = [finding for finding in verify(disk, BrokerState()) if finding.problem]
    assert [(finding.name, finding.position, "order" in finding.problem) for finding in found] == [(FIRST, 128, True)]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Subscribed(5, 77, "billing", "", 0, 0), "nothing is known of 77"),
        (ClientForgotten("billing"), "nothing is known of 'billing'"),
        (TopicCreated(7, "t", True, "long", "", 0), "'long' is not a retention"),
    ],
)
@pytest.mark.parametrize("is_proven", [False, True])
def test_a_record_that_does_not_fit_those_before_it_is_said_with_its_place(record: Record, reason: str, is_proven: bool) -> None:
    """Its checksum is right, and yet a start must neither go on without it nor fail in words that nobody understands."""
    disk = SimDisk(1)
    journal = Journal.open(disk, start_id=b"s" * 16, new_log_id=LOG_ID, state=BrokerState())
    for each in (Started(b"s" * 16, 1, 0, ""), record):
        journal.append([each])
        journal.sync()
    position = disk.open(FIRST).read(0, 4096).index(b"".join(encode(record)))
    journal.close(clean=is_proven)
    (found,) = [finding for finding in verify(disk, BrokerState()) if finding.problem]
    assert (found.name, found.position) == (FIRST, position)
    assert reason in found.problem
    with pytest.raises(JournalDamaged, match=rf"{FIRST} is damaged at byte {position}: .*{reason}"):
        Journal.open(disk, start_id=b"z" * 16, new_log_id=LOG_ID, state=BrokerState())


@pytest.mark.parametrize("count", [5, 120])
def test_right_bytes_in_a_wrong_place_are_damage_for_a_start_as_well(count: int) -> None:
    disk, _ = _written(count)
    second, third = (b"".join(encode(stored(number, number - 1))) for number in (2, 3))
    position = disk.open(FIRST).read(0, 1 << 20).index(second)
    disk.open(FIRST).write(position, [third])
    with suppress(FileNotFoundError):
        disk.unlink(FIRST_INDEX)
    with pytest.raises(JournalDamaged, match=rf"{FIRST} is damaged at byte {position}: .*gap"):
        open_journal(disk, 2)


def test_missing_snapshots_and_segments_are_said() -> None:
    disk, _ = _written()
    for name in disk.names():
        if name.startswith("snapshot-"):
            disk.unlink(name)
    assert any("snapshot" in finding.problem for finding in _problems(disk))


def test_a_backup_can_be_opened_like_the_original() -> None:
    disk, ledger = _written(clean=False)
    target = SimDisk(2)
    assert copy_to(disk, target) > 10_000
    target.power_cut()
    assert _problems(target) == []
    journal, again = open_journal(target, 9)
    assert again.records == ledger.records
    assert numbers_read(journal) == list(range(1, 121))
    assert open_journal(disk, 8)[1].records == ledger.records


def test_a_backup_between_real_directories(tmp_path: Path) -> None:
    journal, ledger = open_journal(OsDisk(tmp_path / "a"))
    put(journal, ledger, stored(1, 0))
    with pytest.raises(DirectoryLocked):
        copy_to(OsDisk(tmp_path / "a"), OsDisk(tmp_path / "b"))
    journal.close()
    copy_to(OsDisk(tmp_path / "a"), OsDisk(tmp_path / "b"))
    journal, again = open_journal(OsDisk(tmp_path / "b"), 2)
    assert again.records == ledger.records
    journal.close()


def test_a_backup_goes_only_from_a_journal_into_an_empty_directory() -> None:
    disk, _ = _written()
    with pytest.raises(DirectoryUnusable, match="empty"):
        copy_to(disk, disk.copy())
    with pytest.raises(DirectoryUnusable, match="no journal"):
        copy_to(SimDisk(1), SimDisk(2))


def test_an_interrupted_backup_is_never_taken_for_a_whole_one() -> None:
    disk, _ = _written()
    target = SimDisk(2, capacity_bytes=3000)
    with pytest.raises(OSError, match="space"):
        copy_to(disk, target)
    with pytest.raises(DirectoryUnusable):
        open_journal(target, 3)


# --- hostile bytes ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_hostile_files_are_refused_or_read_but_never_break_a_start(data: st.DataObject) -> None:
    """Any bytes anywhere: a start is refused with JournalDamaged, or it works and reads tell what is damaged."""
    disk, _ = _written(40)
    name = data.draw(st.sampled_from([name for name in disk.names() if name != "identity"]))
    size = disk.open(name).size()
    position = data.draw(st.integers(0, size))
    disk.open(name).write(position, [data.draw(st.binary(min_size=1, max_size=80))])
    if data.draw(st.booleans()):
        disk.open(name).truncate(data.draw(st.integers(0, size)))
    list(verify(disk, Ledger()))
    with suppress(JournalDamaged, DamagedRead):
        journal, _ = open_journal(disk, 5)
        journal.read([(1, 0, 99)], 1 << 20)

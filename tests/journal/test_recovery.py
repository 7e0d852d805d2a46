# SPDX-License-Identifier: Apache-2.0
"""What a start makes of what it finds: torn or damaged, proven or not, complete or refused (rules R11, R12, R14)."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from oncemq.adapters.os_disk import OsDisk
from oncemq.core.records import CursorMoved
from oncemq.errors import DirectoryLocked, DirectoryTooNew, DirectoryUnusable, DiskFull, JournalDamaged, SyncFailed
from oncemq.journal.journal import Journal, JournalSettings
from oncemq.journal.segment import GROUP_BYTES, HEADER_BYTES, pack_group_header
from oncemq.model.block import checksum
from oncemq.sim.disk import SimDisk
from tests.journal.helpers import SMALL, Ledger, crash_at, cursor, newest, numbers_read, open_journal, put, stored


def _files(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.open(name).read(0, disk.open(name).size()) for name in disk.names() if name != "lock"}


def _written(seed: int = 1, groups: int = 5) -> SimDisk:
    """A journal with synced groups of one cursor each, whose process was killed. Group n holds the number n."""
    disk = SimDisk(seed)
    journal, ledger = open_journal(disk)
    for number in range(1, groups + 1):
        put(journal, ledger, cursor(number))
    disk.kill()
    return disk


GROUP_SIZE = GROUP_BYTES + 16 + 8
"""A group with one small cursor record."""


def _group(number: int) -> int:
    """Where group `number` of `_written` starts."""
    return HEADER_BYTES + (number - 1) * GROUP_SIZE


# --- there and back ---------------------------------------------------------------------------------


def test_everything_is_there_after_a_clean_stop() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, stored(1, 0), cursor(2))
    put(journal, ledger, stored(3, 1))
    journal.close()
    journal, again = open_journal(disk, 2)
    assert again.records == ledger.records
    assert numbers_read(journal) == [1, 3]
    assert journal.statistics().tail_records_rewritten == 0


def test_a_real_directory_behaves_the_same(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    journal, ledger = open_journal(disk)
    for number in range(1, 300):
        put(journal, ledger, stored(number, number - 1))
    journal.close(clean=False)
    journal, again = open_journal(OsDisk(tmp_path), 2)
    assert again.records == ledger.records
    assert numbers_read(journal) == list(range(1, 300))
    journal.close()


def test_many_restarts_lose_and_repeat_nothing() -> None:
    disk = SimDisk(3)
    for start in range(1, 30):
        journal, ledger = open_journal(disk, start)
        assert ledger.numbers == list(range(1, start))
        put(journal, ledger, stored(start, start - 1), sync=bool(start % 3))
        if start % 2:
            journal.close()
        disk.kill()
    journal, ledger = open_journal(disk, 99)
    assert numbers_read(journal) == list(range(1, 30))


def test_a_second_process_is_locked_out_and_changes_nothing() -> None:
    disk = SimDisk(1)
    open_journal(disk)
    before = _files(disk)
    with pytest.raises(DirectoryLocked):
        open_journal(disk, 2)
    assert _files(disk) == before


def test_a_second_real_process_is_locked_out(tmp_path: Path) -> None:
    journal, _ = open_journal(OsDisk(tmp_path))
    code = (
        "import sys; from oncemq.adapters.os_disk import OsDisk; from oncemq.errors import DirectoryLocked\n"
        "try: OsDisk(sys.argv[1]).lock()\nexcept DirectoryLocked as told: print(told.pid)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert int(found.stdout) == os.getpid()
    journal.close()


# --- whose directory --------------------------------------------------------------------------------


def _write(disk: SimDisk, name: str, content: bytes) -> None:
    disk.open(name, create=True).write(0, [content])


def test_a_newer_format_is_refused_untouched() -> None:
    disk = SimDisk(1)
    _write(disk, "identity", msgspec.json.encode({"format": 2, "log": "whatever", "more": True}))
    before = _files(disk)
    with pytest.raises(DirectoryTooNew) as told:
        open_journal(disk)
    assert (told.value.found, told.value.known) == (2, 1)
    assert _files(disk) == before
    assert "lock" not in disk.names()


def test_a_strangers_directory_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_bytes(b"years of work")
    with pytest.raises(DirectoryUnusable, match="thesis"):
        open_journal(OsDisk(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 1}', b'{"format": 1, "log": "xy"}', b'{"format": 0, "log": ""}'])
def test_a_damaged_identity_is_told(content: bytes) -> None:
    disk = SimDisk(1)
    _write(disk, "identity", content)
    with pytest.raises(JournalDamaged):
        open_journal(disk)


def test_a_new_journal_takes_the_id_it_is_given_and_keeps_it() -> None:
    disk = SimDisk(1)
    journal, _ = open_journal(disk)
    journal.close()
    journal, _ = open_journal(disk, 2)
    assert journal.log_id == b"L" * 16


# --- torn or damaged (H10) --------------------------------------------------------------------------


def test_case_1_a_torn_group_with_a_valid_one_behind_it_is_an_ordinary_power_cut() -> None:
    """Of two unsynced groups the second reached the disk and the first did not."""
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, cursor(1))
    put(journal, ledger, cursor(2), sync=False)
    put(journal, ledger, cursor(3), sync=False)
    disk.kill()
    disk.flip("segment-0000000000000001", _group(2) + GROUP_BYTES + 17)
    journal, again = open_journal(disk, 2)
    assert again.numbers == [1]


def test_case_1_within_one_group() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, cursor(1))
    put(journal, ledger, cursor(2), cursor(3), sync=False)
    disk.kill()
    disk.flip("segment-0000000000000001", _group(2) + GROUP_BYTES + 17)
    _, again = open_journal(disk, 2)
    assert again.numbers == [1]


@pytest.mark.parametrize("group", [1, 2, 3, 4])
@pytest.mark.parametrize("inside", [0, 10, 60, GROUP_BYTES, GROUP_BYTES + 12, GROUP_BYTES + 17])
def test_case_2_a_flipped_bit_below_what_was_synced_refuses_the_start_and_changes_nothing(group: int, inside: int) -> None:
    disk = _written(groups=5)
    disk.flip("segment-0000000000000001", _group(group) + inside, 1)
    before = _files(disk)
    with pytest.raises(JournalDamaged) as told:
        open_journal(disk, 2)
    assert (told.value.name, told.value.position) == ("segment-0000000000000001", _group(group))
    assert _files(disk) == before
    disk.flip("segment-0000000000000001", _group(group) + inside, 1)
    assert open_journal(disk, 2)[1].numbers == [1, 2, 3, 4, 5]


def test_case_2_after_a_clean_stop_not_even_the_last_group_can_rot_unseen() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, cursor(1))
    journal.close()
    disk.flip("segment-0000000000000001", _group(1) + GROUP_BYTES + 17)
    with pytest.raises(JournalDamaged):
        open_journal(disk, 2)


def test_a_group_that_was_written_again_at_a_start_cannot_rot_unseen() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, cursor(1), sync=False)
    disk.kill()
    open_journal(disk, 2)
    disk.kill()
    disk.flip("segment-0000000000000002", HEADER_BYTES + GROUP_BYTES + 17)
    with pytest.raises(JournalDamaged):
        open_journal(disk, 3)


def test_case_3_a_later_group_does_not_prove_an_earlier_one_unless_it_says_so() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    for number in (1, 2, 3):
        put(journal, ledger, cursor(number), sync=False)
    disk.kill()
    disk.flip("segment-0000000000000001", _group(1) + GROUP_BYTES + 17)
    _, again = open_journal(disk, 2)
    assert again.numbers == []


def test_case_4_an_unconfirmed_record_does_not_rise_from_the_dead() -> None:
    """Cut at group 2; its stale successor 3 stays behind a shorter new group and must never count."""
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, cursor(1))
    put(journal, ledger, cursor(2), sync=False)
    put(journal, ledger, cursor(3), sync=False)
    disk.kill()
    disk.flip("segment-0000000000000001", _group(2) + GROUP_BYTES + 17)
    journal, ledger = open_journal(disk, 2)
    put(journal, ledger, cursor(4))
    disk.kill()
    journal, again = open_journal(disk, 3)
    assert again.numbers == [1, 4]
    assert disk.open("segment-0000000000000001").size() == _group(2)


def test_bytes_of_a_client_that_look_like_a_group_are_not_believed() -> None:
    """A block holds the very bytes of a group header that claims much; the group around it is torn."""
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, cursor(1))
    fake = pack_group_header(0, 9, 1, 1, 400, (1).to_bytes(16, "big"), 0)
    record = stored(2, 0, size=200)
    forged = bytearray(record.block)
    forged[56 : 56 + len(fake)] = fake
    forged[12:16] = checksum(forged).to_bytes(4, "little")
    record = msgspec.structs.replace(record, block=bytes(forged), block_crc=checksum(forged))
    put(journal, ledger, record, sync=False)
    disk.kill()
    disk.flip("segment-0000000000000001", _group(2) + GROUP_BYTES + 200)
    _, again = open_journal(disk, 2)
    assert again.numbers == [1]


# --- two-stage crashes (H4) -------------------------------------------------------------------------


def test_what_a_restart_read_from_the_cache_survives_the_power_cut_that_follows() -> None:
    """kill before the sync, restart (serves the group), power cut: the group must still be there."""
    for seed in range(60):
        disk = SimDisk(seed)
        journal, ledger = open_journal(disk)
        put(journal, ledger, stored(1, 0))
        put(journal, ledger, stored(2, 1), sync=False)
        disk.kill()
        journal, served = open_journal(disk, 2)
        assert served.numbers == [1, 2]
        assert numbers_read(journal) == [1, 2]
        disk.power_cut()
        journal, again = open_journal(disk, 3)
        assert again.numbers == [1, 2]
        assert numbers_read(journal) == [1, 2]


def test_what_a_failed_sync_left_in_the_cache_is_written_again_before_it_is_served() -> None:
    for seed in range(60):
        disk = SimDisk(seed)
        journal, ledger = open_journal(disk)
        put(journal, ledger, stored(1, 0))
        disk.fail_next_sync(errno.EIO)
        with pytest.raises(SyncFailed):
            put(journal, ledger, stored(2, 1))
        with pytest.raises(SyncFailed):
            journal.append([cursor(3)])
        with pytest.raises(SyncFailed):
            journal.sync()
        journal.close()
        disk.kill()
        journal, served = open_journal(disk, 2)
        assert served.numbers == [1, 2]
        disk.power_cut()
        journal, again = open_journal(disk, 3)
        assert again.numbers == [1, 2]
        assert numbers_read(journal) == [1, 2]


def test_a_write_that_fails_half_way_stops_the_journal_and_is_cut() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, cursor(1))
    disk.fail_next_write(errno.ENOSPC)
    with pytest.raises(SyncFailed):
        put(journal, ledger, cursor(2))
    with pytest.raises(SyncFailed):
        journal.prepare(10, 1)
    disk.kill()
    assert open_journal(disk, 2)[1].numbers == [1]


# --- snapshots (H5, H34) ----------------------------------------------------------------------------


def test_a_snapshot_never_holds_what_was_not_synced() -> None:
    """H5: whatever a snapshot file says, the records it stands on must be on the disk."""
    for seed in range(40):
        disk = SimDisk(seed)
        journal, ledger = open_journal(disk)
        for number in range(1, 120):
            put(journal, ledger, stored(number, number - 1), sync=bool(number % 4))
        synced = 119
        disk.power_cut()
        journal, again = open_journal(disk, 2)
        assert again.numbers == list(range(1, len(again.numbers) + 1))
        assert len(again.numbers) >= synced - 1
        assert numbers_read(journal) == again.numbers


def test_a_damaged_newest_snapshot_falls_back_to_the_older_one() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    for number in range(1, 200):
        put(journal, ledger, stored(number, number - 1))
    disk.kill()
    disk.flip(newest(disk, "snapshot-"), 60)
    journal, again = open_journal(disk, 2)
    assert again.numbers == list(range(1, 200))
    assert numbers_read(journal) == list(range(1, 200))
    kept = journal.statistics().snapshots
    assert len(kept) == 2
    disk.kill()
    assert open_journal(disk, 3)[1].numbers == list(range(1, 200))


def test_without_a_usable_snapshot_the_start_is_refused_untouched() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    for number in range(1, 200):
        put(journal, ledger, stored(number, number - 1))
    disk.kill()
    for name in disk.names():
        if name.startswith("snapshot-"):
            disk.flip(name, 60)
    before = _files(disk)
    with pytest.raises(JournalDamaged, match="snapshot"):
        open_journal(disk, 2)
    assert _files(disk) == before
    for name in disk.names():
        if name.startswith("snapshot-"):
            disk.unlink(name)
    with pytest.raises(JournalDamaged, match="snapshot"):
        open_journal(disk, 2)


def test_a_missing_segment_is_told() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    for number in range(1, 200):
        put(journal, ledger, stored(number, number - 1))
    disk.kill()
    missing = newest(disk, "segment-")
    disk.unlink(missing)
    with pytest.raises(JournalDamaged, match="missing") as told:
        open_journal(disk, 2)
    assert told.value.name == missing


def test_a_damaged_segment_header_is_told() -> None:
    disk = _written()
    disk.flip("segment-0000000000000001", 20)
    with pytest.raises(JournalDamaged, match="header"):
        open_journal(disk, 2)


def test_a_segment_of_another_journal_is_told() -> None:
    disk, other = _written(1), SimDisk(2)
    Journal.open(other, start_id=b"1" * 16, new_log_id=b"X" * 16, state=Ledger(), settings=SMALL)
    content = other.open("segment-0000000000000001").read(0, 8192)
    disk.open("segment-0000000000000001", create=True).write(0, [content])
    with pytest.raises(JournalDamaged, match="another journal"):
        open_journal(disk, 2)


# --- creation and indexes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point",
    [
        "journal.before_segment_rename",
        "journal.after_segment_rename",
        "journal.before_snapshot_rename",
        "journal.after_snapshot_rename",
    ],
)
@pytest.mark.parametrize("power", [False, True])
def test_a_journal_whose_creation_was_interrupted_can_be_created_again(point: str, power: bool) -> None:
    for seed in range(20):
        disk = SimDisk(seed)
        with crash_at(point):
            open_journal(disk)
        disk.power_cut() if power else disk.kill()
        journal, ledger = open_journal(disk, 2)
        put(journal, ledger, cursor(1))
        disk.power_cut()
        assert open_journal(disk, 3)[1].numbers == [1]


def test_a_new_journal_on_a_full_disk_says_so() -> None:
    with pytest.raises(DiskFull):
        open_journal(SimDisk(1, capacity_bytes=100))
    with pytest.raises(DiskFull):
        open_journal(SimDisk(1, capacity_bytes=10))


@pytest.mark.parametrize("loss", ["missing", "head", "body", "cut"])
def test_an_index_that_is_missing_or_wrong_is_made_again(loss: str) -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    for number in range(1, 200):
        put(journal, ledger, stored(number, number - 1))
    disk.kill()
    for name in [name for name in disk.names() if name.startswith("index-")]:
        if loss == "missing":
            disk.unlink(name)
        elif loss == "cut":
            disk.open(name).truncate(90)
        else:
            disk.flip(name, 70 if loss == "head" else disk.open(name).size() - 1)
    journal, _ = open_journal(disk, 2)
    assert numbers_read(journal) == list(range(1, 200))
    assert journal.offset_at_time(1, 500) == 49


def test_indexes_of_old_segments_may_leave_memory_and_come_back() -> None:
    disk = SimDisk(1)
    settings = JournalSettings(segment_bytes=4096, reserve_bytes=0, index_cache_bytes=400, open_segments_max=2)
    journal, ledger = open_journal(disk, 1, settings)
    for number in range(1, 300):
        put(journal, ledger, stored(number, number - 1))
    assert journal.statistics().index_bytes <= 400
    assert numbers_read(journal) == list(range(1, 300))
    assert numbers_read(journal, first=5, end=6) == [6]
    assert journal.statistics().index_bytes <= 400


def test_records_of_every_kind_are_replayed() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, CursorMoved(1, 1), CursorMoved(2, 2), stored(3, 0))
    disk.kill()
    assert open_journal(disk, 2)[1].records == ledger.records

# SPDX-License-Identifier: Apache-2.0
"""One suite over both disks, so that the simulated one cannot drift from the real one; then what only a simulation can do."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from oncemq.adapters.os_disk import OsDisk
from oncemq.errors import DirectoryLocked, DirectoryUnusable
from oncemq.ports import Disk
from oncemq.sim.disk import SimDisk

Again = Callable[[], Disk]


@pytest.fixture(params=["os", "sim"])
def again(request: pytest.FixtureRequest, tmp_path: Path) -> Again:
    """A function that returns the same directory as another process would see it."""
    if request.param == "os":
        return lambda: OsDisk(tmp_path / "directory")
    disk = SimDisk(1)
    return lambda: disk


@pytest.fixture
def disk(again: Again) -> Disk:
    return again()


# --- both -------------------------------------------------------------------------------------------


def test_what_is_written_in_parts_is_read_as_one(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, [b"one", bytearray(b"two"), memoryview(b"three")])
    file.write(3, [b"TWO"])
    assert file.read(0, 100) == b"oneTWOthree"
    assert file.read(3, 3) == b"TWO"
    assert file.read(50, 3) == b""
    assert file.size() == 11
    file.close()


def test_more_parts_than_one_system_call_takes_are_written(disk: Disk) -> None:
    file = disk.open("a", create=True)
    parts = [number.to_bytes(2, "big") for number in range(3000)]
    file.write(5, parts)
    assert file.read(5, 10_000) == b"".join(parts)
    file.close()


def test_a_hole_reads_as_zeros(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(4, [b"x"])
    assert file.read(0, 5) == b"\0\0\0\0x"
    file.close()


def test_allocating_makes_a_file_longer_and_never_shorter(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.allocate(1000)
    assert file.size() == 1000
    assert file.read(0, 2000) == bytes(1000)
    file.allocate(10)
    assert file.size() == 1000
    file.allocate(0)
    file.close()


def test_truncating_cuts_and_extends(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, [b"abcdef"])
    file.truncate(3)
    assert file.read(0, 10) == b"abc"
    file.truncate(5)
    assert file.read(0, 10) == b"abc\0\0"
    file.sync()
    file.close()


def test_create_empties_a_file_that_is_there(disk: Disk) -> None:
    disk.open("a", create=True).write(0, [b"old"])
    file = disk.open("a", create=True)
    assert file.size() == 0
    file.close()


def test_a_file_that_is_not_there_cannot_be_opened_renamed_or_removed(disk: Disk) -> None:
    for action in (lambda: disk.open("a"), lambda: disk.rename("a", "b"), lambda: disk.unlink("a")):
        with pytest.raises(FileNotFoundError):
            action()


def test_names_are_sorted_and_follow_renames(disk: Disk) -> None:
    for name in ("c", "a", "b"):
        disk.open(name, create=True).close()
    disk.rename("c", "b")
    disk.unlink("a")
    disk.sync_names()
    assert disk.names() == ["b"]


def test_a_rename_replaces_and_keeps_open_files(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, [b"kept"])
    disk.open("b", create=True).write(0, [b"replaced"])
    disk.rename("a", "b")
    assert disk.open("b").read(0, 10) == b"kept"
    assert file.read(0, 10) == b"kept"


def test_a_removed_file_can_still_be_read_by_who_has_it_open(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.write(0, [b"still here"])
    disk.unlink("a")
    assert file.read(0, 10) == b"still here"
    file.close()


def test_a_mapped_file_has_its_size_at_once_and_keeps_its_bytes(disk: Disk) -> None:
    mapped = disk.map("slot", 8192)
    assert mapped.read(0, 4) == bytes(4)
    mapped.write(4096, b"slot")
    mapped.sync()
    mapped.close()
    again = disk.map("slot", 8192)
    assert again.read(4096, 4) == b"slot"
    assert disk.open("slot").size() == 8192
    with pytest.raises(IndexError):
        again.write(8190, b"beyond")
    again.close()


def test_a_second_process_is_locked_out_until_the_first_lets_go(again: Again) -> None:
    first, second = again(), again()
    first.lock()
    with pytest.raises(DirectoryLocked):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_the_boot_id_stays_the_same_while_the_machine_runs(disk: Disk) -> None:
    assert disk.boot_id() == disk.boot_id()


# --- the real one -----------------------------------------------------------------------------------


def test_directory_and_files_are_private(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path / "a" / "b")
    disk.open("file", create=True).close()
    disk.map("slot", 4096).close()
    disk.lock()
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a" / "b").iterdir()} == {0o600}
    disk.unlock()


def test_a_directory_that_is_a_file_or_missing_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for path, words in ((tmp_path / "file", "a file"), (tmp_path / "missing", "not exist")):
        with pytest.raises(DirectoryUnusable, match=words):
            OsDisk(path, create=False)
    with pytest.raises(DirectoryUnusable):
        OsDisk(tmp_path / "file" / "below")


def test_who_holds_the_lock_is_named(tmp_path: Path) -> None:
    holder = OsDisk(tmp_path)
    holder.lock()
    with pytest.raises(DirectoryLocked) as told:
        OsDisk(tmp_path).lock()
    assert told.value.pid == os.getpid()
    holder.unlock()


def test_lost_and_found_is_nobodys_file(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    assert OsDisk(tmp_path).names() == []


# --- the simulated one ------------------------------------------------------------------------------


def _synced(disk: SimDisk, name: str, content: bytes) -> None:
    file = disk.open(name, create=True)
    file.write(0, [content])
    file.sync()
    disk.sync_names()


def test_what_was_synced_survives_every_power_cut() -> None:
    for seed in range(50):
        disk = SimDisk(seed)
        _synced(disk, "a", b"x" * 2000)
        disk.open("a").write(2000, [b"y" * 2000])
        disk.power_cut()
        assert disk.open("a").read(0, 2000) == b"x" * 2000


def test_power_cuts_tear_unsynced_writes_at_sectors_in_many_ways() -> None:
    outcomes = set()
    for seed in range(600):
        disk = SimDisk(seed)
        _synced(disk, "a", bytes(2048))
        disk.open("a").write(0, [b"y" * 2048])
        disk.power_cut()
        outcomes.add(disk.open("a").read(0, 2048)[::512])
    assert len(outcomes) == 2**4


def test_a_sector_never_shows_a_later_write_without_the_earlier_one() -> None:
    for seed in range(200):
        disk = SimDisk(seed)
        _synced(disk, "a", bytes(10))
        file = disk.open("a")
        file.write(0, [b"1"])
        file.write(1, [b"2"])
        disk.power_cut()
        assert disk.open("a").read(0, 2) in (b"\0\0", b"1\0", b"12")


def test_names_survive_as_a_prefix_of_what_was_done() -> None:
    found = set()
    for seed in range(100):
        disk = SimDisk(seed)
        _synced(disk, "a", b"x")
        disk.rename("a", "b")
        disk.open("c", create=True)
        disk.unlink("b")
        disk.power_cut()
        found.add(tuple(disk.names()))
    assert found == {("a",), ("b",), ("b", "c"), ("c",)}


def test_a_synced_file_without_a_synced_name_may_be_gone() -> None:
    gone = 0
    for seed in range(30):
        disk = SimDisk(seed)
        file = disk.open("a", create=True)
        file.write(0, [b"x"])
        file.sync()
        disk.power_cut()
        gone += disk.names() == []
    assert 0 < gone < 30


def test_kill_keeps_the_cache_frees_the_lock_and_ends_handles() -> None:
    disk = SimDisk(1)
    disk.lock()
    file = disk.open("a", create=True)
    file.write(0, [b"x"])
    boot = disk.boot_id()
    disk.kill()
    with pytest.raises(OSError, match="died"):
        file.read(0, 1)
    assert disk.open("a").read(0, 1) == b"x"
    assert disk.boot_id() == boot
    disk.lock()


def test_a_power_cut_is_another_boot() -> None:
    disk = SimDisk(1)
    boot = disk.boot_id()
    disk.power_cut()
    assert disk.boot_id() != boot


def test_after_a_failed_sync_the_cache_shows_what_the_disk_never_gets() -> None:
    disk = SimDisk(1)
    _synced(disk, "a", b"old")
    file = disk.open("a")
    file.write(0, [b"new"])
    disk.fail_next_sync(errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.sync()
    assert file.read(0, 3) == b"new"
    file.sync()
    disk.power_cut()
    assert disk.open("a").read(0, 3) == b"old"


def test_mapped_bytes_survive_a_kill_but_not_surely_a_power_cut() -> None:
    found = set()
    for seed in range(40):
        disk = SimDisk(seed)
        mapped = disk.map("slot", 1024)
        mapped.sync()
        disk.sync_names()
        mapped.write(0, b"x")
        mapped.write(600, b"y")
        disk.kill()
        assert disk.map("slot", 1024).read(0, 1) == b"x"
        disk.power_cut()
        mapped = disk.map("slot", 1024)
        found.add(mapped.read(0, 1) + mapped.read(600, 1))
    assert found == {b"\0\0", b"x\0", b"\0y", b"xy"}


def test_a_full_disk_refuses_space_but_not_writes_into_space_it_gave() -> None:
    disk = SimDisk(1, capacity_bytes=1000)
    file = disk.open("a", create=True)
    file.allocate(900)
    other = disk.open("b", create=True)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        other.allocate(200)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        other.write(0, [bytes(200)])
    file.write(0, [b"x" * 900])
    disk.unlink("b")
    file.truncate(100)
    disk.open("c", create=True).allocate(900)
    assert disk.used_bytes() == 1000


def test_a_copy_is_independent_and_a_directory_can_be_set_back() -> None:
    disk = SimDisk(1)
    _synced(disk, "a", b"old")
    older = disk.copy()
    _synced(disk, "a", b"new")
    assert older.open("a").read(0, 3) == b"old"
    handle = disk.open("a")
    disk.set_back(older)
    assert disk.open("a").read(0, 3) == b"old"
    with pytest.raises(OSError, match="died"):
        handle.read(0, 1)


def test_the_same_seed_loses_the_same_bytes() -> None:
    def run() -> bytes:
        disk = SimDisk(42)
        _synced(disk, "a", bytes(8192))
        disk.open("a").write(0, [bytes(range(256)) * 32])
        disk.power_cut()
        return disk.open("a").read(0, 8192)

    assert run() == run()

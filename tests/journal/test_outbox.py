# SPDX-License-Identifier: Apache-2.0
"""The outbox: what was written is there after a kill, what was synced also after a power cut, what was confirmed is not."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from oncemq.adapters.os_disk import OsDisk
from oncemq.core.identity import Identity, encode_identity
from oncemq.core.slot import Slot
from oncemq.errors import DiskFull, JournalDamaged, OutboxDamaged, SyncFailed
from oncemq.journal import outbox as outboxes
from oncemq.journal.outbox import Outbox, OutboxEntry
from oncemq.journal.segment import GROUP_BYTES, HEADER_BYTES
from oncemq.journal.verify import verify
from oncemq.limits import OUTBOX_SEGMENT_BYTES, PENDING_STREAMS_MAX
from oncemq.ports import Disk
from oncemq.sim.disk import SimDisk
from tests.journal.helpers import Ledger, block_of

A, B = b"a" * 16, b"b" * 16
_HEAD_END = HEADER_BYTES + GROUP_BYTES
"""Of the first group of a segment."""


def _open(disk: Disk, start: int = 1, segment_bytes: int = 4096) -> Outbox:
    return Outbox.open(disk, start_id=start.to_bytes(16, "big"), segment_bytes=segment_bytes)


def _entry(number: int, stream: bytes = A, *, size: int = 30, numbers: int = 1) -> OutboxEntry:
    return OutboxEntry(stream, number, numbers, ("orders",), number % 2 == 0, block_of(bytes(size)))


def _numbers(outbox: Outbox, stream: bytes = A) -> list[int]:
    return [entry.first_number for entry in outbox.entries if entry.stream == stream]


def _files(disk: Disk) -> list[str]:
    return [name for name in disk.names() if name.startswith("outbox-")]


def test_entries_come_back_as_they_were_after_a_kill() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    assert outbox.entries == []
    written = [
        OutboxEntry(A, 1, 3, ("orders",), False, block_of(b"1", b"2", b"3")),
        OutboxEntry(A, 4, 4, ("orders", "audit"), True, block_of(b"4", b"5")),
        OutboxEntry(B, 1, 1, ("orders",), False, block_of(bytes(10_000))),
    ]
    for entry in written:
        outbox.append(entry)
    assert outbox.pending_count == 3
    disk.kill()
    outbox = _open(disk, 2)
    assert outbox.entries == written
    assert outbox.pending_count == 3
    assert outbox.confirmed == {}


def test_a_real_directory_behaves_the_same(tmp_path: Path) -> None:
    outbox = _open(OsDisk(tmp_path))
    for number in range(1, 300):
        outbox.append(_entry(number))
        outbox.retire(A, number - 10)
    outbox.sync()
    outbox.close(clean=False)
    outbox = _open(OsDisk(tmp_path), 2)
    assert _numbers(outbox)[-10:] == list(range(290, 300))
    outbox.close()


def test_confirmed_entries_are_not_found_again() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    for number in range(1, 6):
        outbox.append(_entry(number))
        outbox.append(_entry(number, B))
    outbox.retire(A, 3)
    outbox.append(_entry(6))
    assert outbox.pending_count == 8
    disk.kill()
    outbox = _open(disk, 2)
    assert _numbers(outbox) == [4, 5, 6]
    assert _numbers(outbox, B) == [1, 2, 3, 4, 5]
    assert outbox.confirmed == {A: 3}


def test_what_was_confirmed_last_is_only_known_after_a_clean_stop() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    for number in range(1, 4):
        outbox.append(_entry(number))
    outbox.retire(A, 2)
    killed = disk.copy()
    outbox.close()
    assert _numbers(_open(killed, 2)) == [1, 2, 3]
    outbox = _open(disk, 2)
    assert (_numbers(outbox), outbox.confirmed) == ([3], {A: 2})


def test_a_leftover_that_is_confirmed_without_a_new_put_stays_confirmed() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    outbox.append(_entry(1))
    disk.kill()
    outbox = _open(disk, 2)
    outbox.retire(A, 1)
    outbox.close()
    disk.kill()
    outbox = _open(disk, 3)
    assert (outbox.entries, outbox.confirmed) == ([], {A: 1})
    outbox.close()
    disk.kill()
    outbox = _open(disk, 4)
    assert (outbox.entries, outbox.confirmed) == ([], {A: 1})


def test_a_block_of_several_numbers_is_done_with_its_last() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    outbox.append(_entry(1, numbers=10))
    outbox.retire(A, 9)
    assert outbox.pending_count == 1
    outbox.retire(A, 10)
    assert outbox.pending_count == 0
    outbox.retire(A, 5)
    assert outbox.confirmed == {A: 10}


def test_done_segments_are_used_again_so_that_the_disk_stays_small() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    for number in range(1, 500):
        outbox.append(_entry(number, size=300))
        outbox.retire(A, number)
        assert len(_files(disk)) <= 3
    assert outbox.pending_count == 0
    assert outbox.size_bytes <= 2 * 4096
    disk.kill()
    assert _open(disk, 2).confirmed[A] >= 498


def test_old_bytes_in_a_reused_segment_never_count() -> None:
    """Reused segments are full of valid old groups behind the new ones."""
    disk = SimDisk(1)
    outbox = _open(disk)
    for number in range(1, 200):
        outbox.append(_entry(number, size=300))
        if number % 7:
            outbox.retire(A, number)
        disk_now = disk.copy()
        disk_now.kill()
        found = _numbers(_open(disk_now, 2))
        assert found == sorted(set(found))
        assert found[-1:] == [number]
        assert all(each > number - 9 for each in found)


def test_one_stream_that_waits_keeps_its_segment_while_others_go() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    outbox.append(_entry(1, B))
    for number in range(1, 200):
        outbox.append(_entry(number, size=300))
        outbox.retire(A, number)
    disk.kill()
    outbox = _open(disk, 2)
    assert _numbers(outbox, B) == [1]
    assert outbox.confirmed[A] >= 198


def test_a_large_block_gets_a_segment_of_its_size() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    outbox.append(_entry(1, size=100_000))
    outbox.append(_entry(2))
    disk.kill()
    assert _numbers(_open(disk, 2)) == [1, 2]


def test_what_was_synced_survives_power_cuts_and_the_rest_is_a_prefix() -> None:
    for seed in range(100):
        chance = Random(seed)
        disk = SimDisk(seed)
        outbox = _open(disk)
        synced = 0
        for number in range(1, 40):
            outbox.append(_entry(number, size=chance.choice([10, 300, 2000])))
            if chance.random() < 0.1:
                outbox.sync()
                synced = number
        disk.power_cut()
        found = _numbers(_open(disk, 2))
        assert found[:synced] == list(range(1, synced + 1))
        assert found == sorted(set(found))


def test_what_was_synced_and_not_confirmed_survives_while_segments_are_reused() -> None:
    for seed in range(100):
        chance = Random(seed)
        disk = SimDisk(seed)
        outbox = _open(disk)
        synced = confirmed = 0
        for number in range(1, 120):
            outbox.append(_entry(number, size=chance.choice([10, 300, 2000])))
            if chance.random() < 0.2:
                outbox.sync()
                synced = number
            if chance.random() < 0.5:
                confirmed = chance.randint(confirmed, number)
                outbox.retire(A, confirmed)
        disk.power_cut()
        found = set(_numbers(_open(disk, 2)))
        assert set(range(confirmed + 1, synced + 1)) <= found


def test_rot_below_what_was_synced_is_told() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    outbox.append(_entry(1))
    outbox.sync()
    outbox.append(_entry(2))
    disk.kill()
    disk.flip(_files(disk)[0], 200)
    with pytest.raises(JournalDamaged):
        _open(disk, 2)


def test_a_torn_tail_is_cut() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    outbox.append(_entry(1))
    outbox.append(_entry(2))
    disk.kill()
    disk.flip(_files(disk)[0], int(outbox._segments[1].end) - 9)
    outbox = _open(disk, 2)
    assert _numbers(outbox) == [1]
    outbox.append(_entry(2))
    disk.kill()
    assert _numbers(_open(disk, 3)) == [1, 2]


def test_a_full_disk_refuses_and_changes_nothing() -> None:
    disk = SimDisk(1, capacity_bytes=10_000)
    outbox = _open(disk)
    number = 1
    with pytest.raises(DiskFull):
        while True:
            outbox.append(_entry(number, size=500))
            number += 1
    assert outbox.pending_count == number - 1
    outbox.retire(A, number - 1)
    outbox.append(_entry(number, size=500))
    disk.kill()
    assert _numbers(_open(disk, 2)) == [number]


@pytest.mark.parametrize("what", ["write", "sync"])
def test_a_failing_disk_is_told_for_ever(what: str) -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    outbox.append(_entry(1))
    disk.fail_next_write(errno.EIO) if what == "write" else disk.fail_next_sync(errno.EIO)
    with pytest.raises(SyncFailed):
        outbox.append(_entry(2)) if what == "write" else outbox.sync()
    with pytest.raises(SyncFailed):
        outbox.append(_entry(3))
    outbox.close()


def test_streams_that_ended_long_ago_are_forgotten() -> None:
    outbox = _open(SimDisk(1))
    for number in range(PENDING_STREAMS_MAX + 100):
        outbox.retire(number.to_bytes(16, "big"), 5)
    assert len(outbox.confirmed) == PENDING_STREAMS_MAX
    assert (PENDING_STREAMS_MAX + 99).to_bytes(16, "big") in outbox.confirmed


def test_other_files_of_the_directory_are_left_alone() -> None:
    disk = SimDisk(1)
    disk.open("slot", create=True)
    outbox = _open(disk, 1, OUTBOX_SEGMENT_BYTES)
    outbox.append(_entry(1))
    assert [name for name in disk.names() if not name.startswith("outbox-")] == ["slot"]


# --- what was synced is proved ----------------------------------------------------------------------


def _bytes_of(disk: SimDisk, name: str) -> bytes:
    return disk.open(name).read(0, disk.open(name).size())


def test_after_a_sync_no_single_bit_can_take_an_entry_away_in_silence() -> None:
    """PutPending promises that these entries are kept: whatever bit rots, all are there or it is told."""
    disk = SimDisk(1)
    outbox = _open(disk)
    for number in range(1, 5):
        outbox.append(_entry(number))
    outbox.sync()
    end = outbox._segments[1].end
    disk.power_cut()
    told = 0
    for position in range(end):
        copy = disk.copy()
        copy.flip(_files(copy)[0], position, 1 << position % 8)
        before = _bytes_of(copy, _files(copy)[0])
        try:
            found = _numbers(_open(copy, 2))
        except OutboxDamaged as damage:
            told += 1
            assert damage.readable < 4
            assert _bytes_of(copy, _files(copy)[0]) == before
        else:
            assert found == [1, 2, 3, 4], position
    assert told > end * 0.7


def test_the_damage_is_told_with_what_can_still_be_read_also_in_other_files() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    for number in range(1, 30):
        outbox.append(_entry(number, size=300))
    outbox.sync()
    disk.kill()
    files = _files(disk)
    disk.flip(files[1], 300)
    with pytest.raises(OutboxDamaged, match="move it away") as told:
        _open(disk, 2)
    assert told.value.name == files[1]
    held = 0
    for name in files:
        alone = SimDisk(2)
        alone.open(name, create=True).write(0, [_bytes_of(disk, name)])
        if name != files[1]:
            held += len(_open(alone, 3).entries)
    assert held <= told.value.readable < 29


def test_what_an_earlier_process_left_is_proved_once_by_the_next_that_syncs() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    outbox.append(_entry(1))
    disk.kill()
    sizes = []
    for start in range(2, 6):
        outbox = _open(disk, start)
        outbox.sync()
        sizes.append(outbox._segments[1].end)
        assert _numbers(outbox) == [1]
        disk.kill()
    assert len(set(sizes)) == 1
    disk.flip(_files(disk)[0], 150)
    with pytest.raises(OutboxDamaged):
        _open(disk, 9)


def test_a_sync_of_what_is_synced_writes_nothing() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    outbox.append(_entry(1))
    outbox.sync()
    before = disk.syncs
    outbox.sync()
    assert disk.syncs == before


def test_there_is_always_room_for_the_proof() -> None:
    for size in range(3000, 4200, 8):
        disk = SimDisk(size)
        outbox = _open(disk)
        outbox.append(_entry(1, size=size))
        outbox.sync()
        outbox.append(_entry(2, size=size))
        outbox.sync()
        disk.power_cut()
        assert all(segment.synced == segment.end for segment in _open(disk, 2)._segments.values())


def test_a_state_directory_is_verified_too() -> None:
    disk = SimDisk(1)
    outbox = _open(disk)
    for number in range(1, 20):
        outbox.append(_entry(number, size=300))
    outbox.sync()
    disk.kill()
    disk.open("client.json", create=True).write(0, [encode_identity(Identity("billing"))])
    slot = Slot(1, 1, 0, 0, 0)
    slot.freeze()
    position, body = slot.encode()
    disk.open("slot-1", create=True).write(position, [body])
    findings = list(verify(disk, Ledger()))
    assert {finding.name for finding in findings} == set(disk.names())
    assert [finding for finding in findings if finding.problem] == []
    for name, position in (("client.json", 0), ("slot-1", 4100), (_files(disk)[1], 300)):
        copy = disk.copy()
        copy.flip(name, position)
        assert [finding.name for finding in verify(copy, Ledger()) if finding.problem] == [name]


# --- files that are written over ----------------------------------------------------------------------------


def test_the_head_of_a_new_group_before_the_body_of_an_older_one_counts_for_nothing() -> None:
    """A power cut leaves that: groups of one size lie at the same places in a reused file, and a head may end its sector."""
    disk, random, fitting = SimDisk(1), Random(1), 0
    outbox = _open(disk, segment_bytes=1024)
    for number in range(1, 400):
        before = {name: disk.open(name).read(0, 1 << 20) for name in _files(disk)}
        outbox.append(_entry(number))
        gone, new = set(before) - set(_files(disk)), set(_files(disk)) - set(before)
        if gone:
            (old,), (name,) = gone, new
            head, body = disk.open(name).read(0, _HEAD_END), before[old][_HEAD_END:]
            fitting += head[-60:-56] == before[old][_HEAD_END - 60 : _HEAD_END - 56]  # Their bodies are of one length.
            assert _found_with(disk, name, head + body) == _found_with(disk, name, head + bytes(len(body)))
        if random.random() < 0.15:
            outbox.retire(A, number)
    assert fitting > 3


def test_what_an_earlier_life_of_the_file_confirmed_does_not_stand_in_a_new_group() -> None:
    """Or the block that was put anew would be there, and beside it the one whose place it takes: a message twice."""
    disk = SimDisk(1)
    outbox = _open(disk, segment_bytes=1024)
    outbox.append(_entry(1, B))
    for number in range(1, 39):
        outbox.append(_entry(number))
        outbox.retire(A, number)
    outbox._news.clear()
    name, begins = _files(disk)[-1], outbox._segments[outbox._newest].end + GROUP_BYTES
    image, before = disk.copy(), disk.open(name).read(0, 1024)
    outbox.replace(B, 1, _entry(39))
    after = disk.open(name).read(0, 1024)
    told = slice(begins, begins + sum(map(len, outboxes._parts_of({B: 1}, None, 1)[0])))
    assert (A in before[told], B in after[told]) == (True, True)
    image.open(name).write(0, [after[: told.start] + before[told] + after[told.stop :]])
    found = _open(image, 2)
    assert (_numbers(found), _numbers(found, B)) == ([38], [1])
    found = _open(disk, 2)
    assert (_numbers(found), _numbers(found, B)) == ([38, 39], [])


def _found_with(disk: SimDisk, name: str, content: bytes) -> list[int]:
    image = disk.copy()
    image.open(name).write(0, [content])
    return _numbers(_open(image, 2))


def test_an_older_outbox_that_does_not_name_segments_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, parts_of = SimDisk(1), outboxes._parts_of
    monkeypatch.setattr(outboxes, "_parts_of", lambda confirmed, entry, _segment: parts_of(confirmed, entry, 0))
    _open(disk).append(_entry(1))
    disk.kill()
    assert _numbers(_open(disk, 2)) == [1]

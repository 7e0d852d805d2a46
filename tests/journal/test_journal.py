# SPDX-License-Identifier: Apache-2.0
"""Rolling, reading, trimming and a full disk, while a journal is open."""

from __future__ import annotations

import random

import pytest

from oncemq.core.records import NOT_STORED, Placement, Record, Stored
from oncemq.errors import DiskFull, InvariantViolated
from oncemq.journal.codec import decode_delivery, encoded_size
from oncemq.journal.journal import Journal, JournalSettings
from oncemq.journal.reading import DamagedRead
from oncemq.ports import File
from oncemq.sim.disk import SimDisk
from tests.journal.helpers import (
    SMALL,
    Ledger,
    crash_at,
    cursor,
    delivered,
    newest,
    numbers_read,
    open_journal,
    put,
    stored,
    stored_in,
)

# --- rolling ----------------------------------------------------------------------------------------


def _filled(disk: SimDisk, count: int = 199, settings: JournalSettings = SMALL) -> tuple[Journal, Ledger]:
    journal, ledger = open_journal(disk, 1, settings)
    for number in range(1, count + 1):
        put(journal, ledger, stored(number, number - 1))
    return journal, ledger


def test_full_segments_are_sealed_cut_and_indexed() -> None:
    disk = SimDisk(1)
    journal, _ = _filled(disk)
    statistics = journal.statistics()
    assert statistics.rolls == statistics.active_segment - 1 > 3
    assert len([name for name in disk.names() if name.startswith("index-")]) == statistics.rolls
    assert all(disk.open(name).size() <= 8192 for name in disk.names() if name.startswith("segment-"))
    assert disk.open("segment-0000000000000001").size() < 8192
    assert statistics.snapshots == (statistics.active_segment - 1, statistics.active_segment)


def test_a_segment_also_ends_after_so_many_records() -> None:
    disk = SimDisk(1)
    journal, _ = _filled(disk, 20, JournalSettings(segment_bytes=1 << 20, segment_records_max=8, reserve_bytes=0))
    assert journal.statistics().active_segment == 3
    assert numbers_read(journal) == list(range(1, 21))


def test_a_group_larger_than_a_segment_gets_a_larger_segment() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, stored(1, 0, size=50_000), stored(2, 1))
    put(journal, ledger, stored(3, 2))
    assert numbers_read(journal) == [1, 2, 3]
    disk.kill()
    journal, again = open_journal(disk, 2)
    assert again.records == ledger.records
    assert numbers_read(journal) == [1, 2, 3]


def test_unsynced_groups_are_synced_before_a_snapshot_is_cut() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, cursor(1), sync=False)
    assert journal.prepare(8000, 1) >= 8000
    assert journal.statistics().active_segment == 2
    disk.power_cut()
    assert open_journal(disk, 2)[1].numbers == [1]


def test_a_group_without_room_is_our_bug_and_not_written() -> None:
    journal, _ = open_journal(SimDisk(1))
    with pytest.raises(InvariantViolated):
        journal.append([stored(1, 0, size=9000)])


def test_appending_nothing_writes_nothing() -> None:
    journal, _ = open_journal(SimDisk(1))
    journal.append([])
    assert journal.statistics().groups_appended == 0


# --- reading ----------------------------------------------------------------------------------------


def test_a_range_finds_exactly_the_blocks_that_overlap_it() -> None:
    journal, ledger = open_journal(SimDisk(1))
    offset = 0
    blocks = []
    for number in range(1, 60):
        count = number % 5 + 1
        put(journal, ledger, stored(number, offset, count=count))
        blocks.append((number, offset, offset + count))
        offset += count
    for first in range(0, offset, 7):
        for end in range(first + 1, offset + 3, 11):
            expected = [number for number, start, stop in blocks if start < end and stop > first]
            assert numbers_read(journal, first=first, end=end) == expected
    assert numbers_read(journal, first=offset) == []
    assert numbers_read(journal, topic=2) == []


def test_several_topics_come_in_append_order() -> None:
    chance = random.Random(5)
    journal, ledger = open_journal(SimDisk(1))
    ends = {1: 0, 2: 0, 3: 0}
    order = []
    for number in range(1, 150):
        topic = chance.choice([1, 2, 3])
        put(journal, ledger, stored(number, ends[topic], topic=topic))
        order.append((number, topic))
        ends[topic] += 1
    found = [delivered(each) for each in journal.read([(topic, 0, ends[topic]) for topic in (1, 3, 2)], 1 << 20)]
    assert found == [number for number, _ in order]
    found = [delivered(each) for each in journal.read([(3, 4, 9), (1, 2, 5)], 1 << 20)]
    inside = {1: range(2, 5), 3: range(4, 9)}
    seen = dict.fromkeys(ends, -1)
    expected = []
    for number, topic in order:
        seen[topic] += 1
        if seen[topic] in inside.get(topic, ()):
            expected.append(number)
    assert found == expected


def test_a_block_in_several_topics_is_delivered_to_each_with_its_own_offset() -> None:
    journal, ledger = open_journal(SimDisk(1))
    put(journal, ledger, stored_in(1, (Placement(1, 0), Placement(2, NOT_STORED), Placement(3, 40)), count=2))
    found = [decode_delivery(each, 0)[0] for each in journal.read([(3, 40, 42), (1, 0, 2), (2, 0, 0)], 1 << 20)]
    assert sorted((each.topic_id, each.first_offset, each.first_number) for each in found) == [(1, 0, 1), (3, 40, 5)]


def test_a_read_stops_before_its_bound_but_returns_one_block_in_any_case() -> None:
    journal, ledger = open_journal(SimDisk(1), 1, JournalSettings(segment_bytes=100_000, reserve_bytes=0))
    for number in range(1, 31):
        put(journal, ledger, stored(number, number - 1, size=1000))
    size = encoded_size(stored(1, 0, size=1000))
    assert len(journal.read([(1, 0, 99)], 1)) == 1
    assert len(journal.read([(1, 0, 99)], 5 * size)) == 5
    assert len(journal.read([(1, 0, 99)], 5 * size - 1)) == 4
    assert len(journal.read([(1, 10, 99)], 1 << 20)) == 20


def test_a_bound_holds_across_segments() -> None:
    disk = SimDisk(1)
    journal, _ = _filled(disk)
    size = encoded_size(stored(1, 0))
    for count in (1, 2, 30, 150):
        assert [delivered(each) for each in journal.read([(1, 10, 999)], count * size)] == list(range(11, 11 + count))


def test_small_neighbours_are_fetched_with_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk(1)
    settings = JournalSettings(segment_bytes=1 << 20, reserve_bytes=0)
    journal, _ = _filled(disk, 100, settings)
    reads = []
    kind = type(disk.open(newest(disk, "segment-")))
    original = kind.read

    def read(self: File, position: int, size_bytes: int) -> bytes:
        reads.append(size_bytes)
        return original(self, position, size_bytes)  # type: ignore[arg-type]

    monkeypatch.setattr(kind, "read", read)
    assert len(numbers_read(journal)) == 100
    assert len(reads) == 1


def test_a_damaged_record_is_told_when_it_is_the_first_and_delivered_up_to_otherwise() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk, 1, JournalSettings(segment_bytes=1 << 20, reserve_bytes=0))
    put(journal, ledger, *[stored(number, (number - 1) * 3, count=3) for number in range(1, 6)])
    at = 64 + 64 + 2 * encoded_size(stored(1, 0, count=3)) + 30
    disk.flip("segment-0000000000000001", at)
    assert numbers_read(journal) == [1, 2]
    with pytest.raises(DamagedRead) as told:
        numbers_read(journal, first=7)
    assert (told.value.topic_id, told.value.first, told.value.end) == (1, 6, 9)
    assert numbers_read(journal, first=9) == [4, 5]


def test_a_segment_that_cannot_be_read_is_told_for_its_offsets() -> None:
    disk = SimDisk(1)
    settings = JournalSettings(segment_bytes=8192, reserve_bytes=0, index_cache_bytes=0)
    journal, _ = _filled(disk, 199, settings)
    disk.unlink("index-0000000000000002")
    disk.flip("segment-0000000000000002", 300)
    first = journal.holdings(1)[0].end_offset
    end = journal.holdings(1)[1].end_offset
    assert len(numbers_read(journal)) == first
    with pytest.raises(DamagedRead) as told:
        numbers_read(journal, first=first + 1)
    assert (told.value.first, told.value.end) == (first + 1, end)
    assert numbers_read(journal, first=end)[0] == end + 1


def test_offsets_are_found_by_append_time() -> None:
    journal, ledger = open_journal(SimDisk(1))
    for number in range(1, 200):
        put(journal, ledger, stored(number, (number - 1) * 2, count=2, time_us=1000 + 10 * number))
    assert journal.offset_at_time(1, 0) == 0
    for number in (1, 2, 50, 123, 199):
        assert journal.offset_at_time(1, 1000 + 10 * number) == (number - 1) * 2
        assert journal.offset_at_time(1, 1000 + 10 * number - 9) == (number - 1) * 2
    assert journal.offset_at_time(1, 1000 + 10 * 199 + 1) is None
    assert journal.offset_at_time(2, 0) is None


def test_holdings_say_what_each_segment_has_of_a_topic() -> None:
    journal, _ = _filled(SimDisk(1))
    found = journal.holdings(1)
    assert len(found) == journal.statistics().segments
    assert found[-1].end_offset == 199
    assert found[-1].last_append_time_us == 1990
    assert [each.end_offset for each in found] == sorted(each.end_offset for each in found)
    assert sum(each.size_bytes for each in found) == 199 * encoded_size(stored(1, 0))
    assert journal.holdings(2) == []


# --- trimming (H15) ---------------------------------------------------------------------------------


def test_only_wholly_dead_segments_older_than_both_snapshots_are_unlinked() -> None:
    disk = SimDisk(1)
    journal, _ = _filled(disk)
    ends = [each.end_offset for each in journal.holdings(1)]
    assert journal.trim({1: ends[1] - 1}) == 1
    assert "segment-0000000000000001" not in disk.names()
    assert "index-0000000000000001" not in disk.names()
    assert numbers_read(journal, first=ends[0]) == list(range(ends[0] + 1, 200))
    assert journal.trim({1: 199}) == len(ends) - 3
    left = [name for name in disk.names() if name.startswith("segment-")]
    assert len(left) == 2
    assert journal.trim({1: 199}) == 0


def test_blocks_of_deleted_topics_are_dead_and_of_living_ones_not() -> None:
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    put(journal, ledger, stored(1, 0, topic=2))
    for number in range(2, 200):
        put(journal, ledger, stored(number, number - 2))
    assert journal.trim({2: 0}) > 0
    assert numbers_read(journal, topic=2) == [1]
    assert journal.trim({}) == 1
    assert numbers_read(journal, topic=2) == []


def test_what_was_trimmed_may_come_back_after_a_power_cut_and_harms_nobody() -> None:
    came_back = 0
    for seed in range(40):
        disk = SimDisk(seed)
        journal, _ = _filled(disk)
        journal.trim({1: 150})
        before = journal.statistics().segments
        alive = numbers_read(journal, first=150)
        disk.power_cut()
        journal, ledger = open_journal(disk, 2)
        assert ledger.numbers == list(range(1, 200))
        assert numbers_read(journal, first=150) == alive
        came_back += journal.statistics().segments > before + 1
        journal.trim({1: 150})
        assert numbers_read(journal, first=150) == alive
    assert came_back


def test_an_older_snapshot_can_still_be_used_after_trimming() -> None:
    disk = SimDisk(1)
    journal, ledger = _filled(disk)
    journal.trim({1: 199})
    disk.kill()
    disk.flip(newest(disk, "snapshot-"), 50)
    _, again = open_journal(disk, 2)
    assert again.records == ledger.records


@pytest.mark.parametrize(("size_bytes", "records"), [(8_000, 2), (100_000, 2), (1_000, 5_000)], ids=["near", "large", "many"])
def test_what_may_be_needed_and_is_not_written_leaves_no_empty_segments(size_bytes: int, records: int) -> None:
    """A node asks for room for all that waits for a hole, drain after drain, and writes what clients put meanwhile."""
    disk = SimDisk(1)
    journal, ledger = open_journal(disk)
    before = journal.statistics().bytes_appended
    for number in range(1, 101):
        assert journal.prepare(size_bytes, records) >= size_bytes
        ledger.apply(record := stored(number, number - 1, size=200))
        journal.append([record])
        journal.sync()
    written = journal.statistics().bytes_appended - before
    assert journal.statistics().rolls <= 1 + written // (SMALL.segment_bytes // 2)
    disk.kill()
    assert open_journal(disk, 2)[1].records == ledger.records


# --- a full disk (H9, R14) --------------------------------------------------------------------------


def _fill_the_disk(capacity_bytes: int = 60_000, seed: int = 1) -> tuple[SimDisk, Journal, Ledger, int]:
    """Put until a put is refused; return also the next number."""
    disk = SimDisk(seed, capacity_bytes=capacity_bytes)
    journal, ledger = open_journal(disk)
    number = 1
    while True:
        record = stored(number, number - 1, size=500)
        if journal.prepare(encoded_size(record), 1) < encoded_size(record):
            return disk, journal, ledger, number
        put(journal, ledger, record)
        number += 1


def _control(journal: Journal, ledger: Ledger, record: Record) -> bool:
    size = encoded_size(record)
    if journal.prepare(size, 1, control=True) < size:
        return False
    ledger.apply(record)
    journal.append([record])
    journal.sync()
    return True


def test_a_refused_put_changes_nothing() -> None:
    disk, journal, _, number = _fill_the_disk()
    before = {name: disk.open(name).size() for name in disk.names()}
    room = journal.prepare(1 << 20, 1)
    assert 0 <= room < 700
    assert {name: disk.open(name).size() for name in disk.names()} == before
    disk.kill()
    assert open_journal(disk, 2)[1].numbers == list(range(1, number))


def test_control_records_go_on_from_the_reserve_and_puts_do_not() -> None:
    disk, journal, ledger, number = _fill_the_disk()
    controls = 0
    while journal.statistics().reserve_bytes:
        assert _control(journal, ledger, cursor(10_000 + controls))
        controls += 1
    assert "reserve" not in disk.names()
    assert _control(journal, ledger, cursor(10_000 + controls))
    assert journal.prepare(10, 1) == 0
    disk.kill()
    journal, again = open_journal(disk, 2)
    assert again.records == ledger.records
    assert numbers_read(journal) == list(range(1, number))


def test_what_was_synced_into_the_reserve_survives_power_cuts_even_without_a_snapshot() -> None:
    for seed in range(20):
        disk, journal, ledger, number = _fill_the_disk(seed=seed)
        disk.capacity_bytes = disk.used_bytes()
        controls = 0
        while journal.statistics().reserve_bytes:
            assert _control(journal, ledger, cursor(10_000 + controls))
            controls += 1
        assert journal.statistics().active_segment not in journal.statistics().snapshots
        disk.power_cut()
        disk.capacity_bytes = None
        journal, again = open_journal(disk, 2)
        assert again.records == ledger.records
        assert numbers_read(journal) == list(range(1, number))


def test_when_the_reserve_is_used_up_control_records_are_refused_too() -> None:
    disk, journal, ledger, _ = _fill_the_disk()
    controls = 0
    while _control(journal, ledger, cursor(10_000 + controls)):
        controls += 1
        assert controls < 1000
    disk.kill()
    disk.capacity_bytes = None
    assert open_journal(disk, 2)[1].records == ledger.records


def test_space_that_comes_back_is_used_for_the_reserve_and_then_for_puts() -> None:
    disk, journal, ledger, number = _fill_the_disk()
    for control in range(30):
        assert _control(journal, ledger, cursor(10_000 + control))
    assert journal.trim({1: number - 1}) > 0
    assert journal.statistics().reserve_bytes == SMALL.reserve_bytes
    record = stored(number, number - 1, size=500)
    put(journal, ledger, record)
    assert numbers_read(journal, first=number - 1) == [number]
    disk.kill()
    assert open_journal(disk, 2)[1].records == ledger.records


class Brief(Ledger):
    """A state that stays small, as a broker's does: the last record only."""

    def apply(self, record: Record) -> None:
        self.records = []
        super().apply(record)


def test_a_small_disk_full_of_dead_segments_frees_itself() -> None:
    """Both snapshots pin segments, and nothing is appended any more; but everything was consumed."""
    disk, brief, number = SimDisk(1, capacity_bytes=22_000), Brief(), 1
    journal = Journal.open(disk, start_id=b"1" * 16, new_log_id=b"2" * 16, state=brief, settings=SMALL)
    for _ in range(5):
        record = stored(number, number - 1, size=500)
        while journal.prepare(encoded_size(record), 1) >= encoded_size(record):
            put(journal, brief, record)
            number += 1
            record = stored(number, number - 1, size=500)
        while journal.trim({1: number - 1}):
            pass
    assert number > 50
    disk.kill()
    again = Brief()
    Journal.open(disk, start_id=b"3" * 16, new_log_id=b"2" * 16, state=again, settings=SMALL)
    assert again.records == brief.records


def test_a_start_on_a_full_disk_uses_the_reserve() -> None:
    disk, journal, _, number = _fill_the_disk()
    disk.kill()
    disk.capacity_bytes = disk.used_bytes()
    # The newest segment is given back its unused end only after the new one is there.
    for start in range(2, 4):
        journal, again = open_journal(disk, start)
        assert again.numbers == list(range(1, number))
        assert numbers_read(journal) == list(range(1, number))
        disk.kill()


def test_a_start_without_any_space_says_so_and_leaves_everything() -> None:
    disk = SimDisk(1, capacity_bytes=60_000)
    journal, ledger = open_journal(disk, 1, JournalSettings(segment_bytes=8192, reserve_bytes=0))
    put(journal, ledger, stored(1, 0))
    disk.kill()
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(DiskFull):
        open_journal(disk, 2)
    disk.capacity_bytes = None
    assert open_journal(disk, 3)[1].records == ledger.records


def test_stale_bytes_in_a_reserve_never_count() -> None:
    """A start wrote its tail into the reserve and died before the rename; the next start writes a shorter tail."""
    disk = SimDisk(1, capacity_bytes=20_000)
    journal, ledger = open_journal(disk)
    put(journal, ledger, cursor(1))
    put(journal, ledger, cursor(2), sync=False)
    put(journal, ledger, cursor(3), sync=False)
    disk.kill()
    disk.capacity_bytes = disk.used_bytes()
    with crash_at("journal.before_segment_rename"):
        open_journal(disk, 2)
    disk.kill()
    disk.flip("segment-0000000000000001", 64 + 2 * 88 + 64 + 17)  # Group 3 is torn for the second start.
    journal, again = open_journal(disk, 3)
    assert again.numbers == [1, 2]
    assert disk.open("segment-0000000000000002").size() == SMALL.reserve_bytes
    disk.kill()
    assert open_journal(disk, 4)[1].numbers == [1, 2]


# --- against a model --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_a_long_random_life_agrees_with_a_list(seed: int) -> None:
    """Puts on three topics, trims, restarts and kills; reads compared with a plain list."""
    chance = random.Random(seed)
    disk = SimDisk(seed)
    journal, ledger = open_journal(disk)
    model: list[Stored] = []
    ends, lows = {1: 0, 2: 0, 3: 0}, {1: 0, 2: 0, 3: 0}
    for number in range(1, 400):
        topics = chance.sample([1, 2, 3], chance.choice([1, 1, 1, 2]))
        count = chance.randint(1, 4)
        record = stored_in(
            number, tuple(Placement(topic, ends[topic]) for topic in topics), count=count, size=chance.choice([9, 90])
        )
        put(journal, ledger, record)
        model.append(record)
        for topic in topics:
            ends[topic] += count
        if number % 37 == 0:
            lows = {topic: chance.randint(lows[topic], ends[topic]) for topic in ends}
            journal.trim(lows)
        if number % 53 == 0:
            journal.close() if chance.random() < 0.5 else disk.kill()
            journal, again = open_journal(disk, number)
            assert again.records == ledger.records
            ledger = again
        if number % 11 == 0:
            topic = chance.choice([1, 2, 3])
            first = chance.randint(lows[topic], ends[topic])
            end = chance.randint(first, ends[topic])
            expected = [
                record.append_number
                for record in model
                for each in record.placements
                if each.topic_id == topic and each.first_offset < end and each.first_offset + record.count > first
            ]
            assert numbers_read(journal, topic, first, end) == (expected if end > first else [])

# SPDX-License-Identifier: Apache-2.0
"""The cleaner: sparse segments are emptied without moving an offset, losing a block or showing one twice (R15, H34, H35)."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from oncemq.core.records import Placement, Record, Stored
from oncemq.errors import SyncFailed
from oncemq.journal.codec import decode_delivery, encoded_size
from oncemq.journal.finding import Finding
from oncemq.journal.journal import Journal, JournalSettings
from oncemq.journal.verify import verify
from oncemq.sim.disk import SimDisk
from tests.journal.helpers import LOG_ID, Claim, Crash, crash_at, delivered, stored, stored_in
from tests.journal.test_crashes import CLEANING, BrittleDisk

SETTINGS = JournalSettings(segment_bytes=8192, segment_records_max=1000, reserve_bytes=2048)
SMALL, BUSY = 1, 2
"""A topic that somebody is stuck on, and one whose messages go as they come."""
MORE = int(os.environ.get("ONCEMQ_MORE_SEEDS", "1"))
CLEAN_POINTS = (*CLEANING, "journal.before_unlink")


class Books:
    """A state that counts records and knows what must be there of both topics. Record n is number n, nothing else."""

    def __init__(self, lows: dict[int, int]) -> None:
        self.count = 0
        self.lows = lows

    def restore(self, state: bytes) -> None:
        self.count = int.from_bytes(state, "big")

    def dump(self) -> bytes:
        return self.count.to_bytes(8, "big")

    def apply(self, record: Record) -> None:
        assert isinstance(record, Stored)
        assert record.append_number == self.count + 1
        self.count += 1

    def ends(self) -> dict[int, int]:
        """Every seventh record is for the small topic; of both no offset is left out."""
        return {SMALL: self.count // 7, BUSY: self.count - self.count // 7}

    @property
    def storages(self) -> dict[int, Claim]:
        return {}

    @property
    def topics(self) -> dict[int, Claim]:
        return {topic: Claim(f"topic-{topic}", self.lows.get(topic, 0), end) for topic, end in self.ends().items()}


def _topic(number: int) -> int:
    return SMALL if number % 7 == 0 else BUSY


def _offset(number: int) -> int:
    return number // 7 - 1 if _topic(number) == SMALL else number - 1 - number // 7


class Life:
    """A journal over many starts: puts go on, the busy topic is trimmed to its end, nothing of the small one ever."""

    def __init__(self, disk: SimDisk, settings: JournalSettings = SETTINGS) -> None:
        self.disk = disk
        self.settings = settings
        self.starts = 0
        self.lows = {SMALL: 0, BUSY: 0}
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.books = Books(self.lows)
        start_id = self.starts.to_bytes(16, "big")
        self.journal = Journal.open(self.disk, start_id=start_id, new_log_id=LOG_ID, state=self.books, settings=self.settings)
        self.check()

    def put(self, count: int) -> None:
        for number in range(self.books.count + 1, self.books.count + count + 1):
            self.write(stored(number, _offset(number), topic=_topic(number), size=100))

    def write(self, record: Stored) -> None:
        size = encoded_size(record)
        assert self.journal.prepare(size, 1) >= size
        self.books.apply(record)
        self.journal.append([record])
        self.journal.sync()

    def trim(self) -> None:
        self.lows[BUSY] = self.books.ends()[BUSY]
        self.journal.trim(self.lows)

    def clean(self, bytes_max: int = 1 << 20) -> int:
        slices = 0
        while self.journal.clean(self.lows, bytes_max):
            slices += 1
        return slices

    def check(self) -> None:
        """Everything alive is delivered once, in order, under its own offset."""
        ends = self.books.ends()
        for topic in (SMALL, BUSY):
            expected = [number for number in self._numbers(topic) if _offset(number) >= self.lows[topic]]
            found = [decode_delivery(each, 0)[0] for each in self.journal.read([(topic, self.lows[topic], ends[topic])], 1 << 30)]
            assert [each.append_number for each in found] == expected
            assert [each.first_offset for each in found] == [_offset(number) for number in expected]
        both = [(topic, self.lows[topic], ends[topic]) for topic in (BUSY, SMALL)]
        merged = [delivered(each) for each in self.journal.read(both, 1 << 30)]
        assert merged == sorted(merged)

    def _numbers(self, topic: int) -> list[int]:
        return [number for number in range(1, self.books.count + 1) if _topic(number) == topic]

    def living_bytes(self) -> int:
        ends = self.books.ends()
        ranges = [(topic, self.lows[topic], ends[topic]) for topic in (SMALL, BUSY)]
        return sum(len(each) for each in self.journal.read(ranges, 1 << 30))

    def problems(self) -> list[Finding]:
        return [finding for finding in verify(self.disk, Books(self.lows)) if finding.problem]


def _sparse(count: int = 700, seed: int = 1) -> Life:
    life = Life(SimDisk(seed))
    life.put(count)
    life.trim()
    return life


def _segments(disk: SimDisk) -> list[str]:
    return [name for name in disk.names() if name.startswith("segment-")]


# --- what it is for ---------------------------------------------------------------------------------


def test_a_stuck_subscription_does_not_keep_what_lies_around_its_messages() -> None:
    life = _sparse()
    before = len(_segments(life.disk))
    assert before > 15
    life.clean()
    life.check()
    assert life.journal.statistics().segments_cleaned > 10
    assert life.journal.size_bytes() <= 2 * life.living_bytes() + 4 * SETTINGS.segment_bytes
    assert life.problems() == []


def test_the_disk_stays_within_twice_what_lives_and_four_segments_all_the_time() -> None:
    life = Life(SimDisk(1))
    for _ in range(200):
        before = life.journal.bytes_put
        life.put(10)
        life.trim()
        life.journal.clean(life.lows, 2 * (life.journal.bytes_put - before))
        assert life.journal.size_bytes() <= 2 * life.living_bytes() + 4 * SETTINGS.segment_bytes
    life.check()
    assert life.journal.statistics().segments_cleaned > 10


def test_blocks_are_moved_again_and_again_and_stay_what_they_are() -> None:
    life = Life(SimDisk(1))
    for _ in range(12):
        life.put(300)
        life.trim()
        life.clean()
        life.check()
        life.disk.kill()
        life.start()
    index = {each.first_offset for each in life.journal.holdings(SMALL)}
    assert len(index) > 1
    life.lows[SMALL] = life.books.ends()[SMALL] - 1
    life.journal.trim(life.lows)
    life.clean()
    life.check()
    assert life.journal.size_bytes() <= 4 * SETTINGS.segment_bytes


def test_where_everything_lives_nothing_is_moved() -> None:
    life = Life(SimDisk(1))
    life.put(700)
    life.clean()
    assert life.journal.statistics().bytes_moved == 0


def test_a_journal_with_nothing_sparse_is_left_alone_for_ever() -> None:
    life = _sparse()
    life.clean()
    moved = life.journal.statistics().bytes_moved
    for _ in range(5):
        life.clean()
    assert life.journal.statistics().bytes_moved == moved


def test_a_slice_is_bounded() -> None:
    life = _sparse()
    steps, is_more = 0, True
    while is_more:
        before = life.journal.statistics()
        is_more = life.journal.clean(life.lows, 600)
        after = life.journal.statistics()
        assert after.bytes_moved - before.bytes_moved < 600 + 300  # The last block may reach over it.
        assert after.segments_cleaned - before.segments_cleaned <= 1
        steps += 1
    assert steps > 20
    life.check()


def test_a_block_of_several_topics_is_moved_once_and_read_in_each() -> None:
    life = Life(SimDisk(1))
    life.write(stored_in(1, (Placement(5, 0), Placement(6, 40), Placement(7, 3)), count=2, size=100))
    for number in range(2, 400):
        topic, offset = (9, number // 20 - 1) if number % 20 == 0 else (8, number - 2 - number // 20)
        life.write(stored(number, offset, topic=topic, size=100))
    lows = {5: 0, 6: 42, 7: 3, 8: 378, 9: 0}
    journal = life.journal
    journal.trim(lows)
    while journal.clean(lows, 1 << 20):
        pass
    assert journal.statistics().segments_cleaned > 5
    assert "segment-0000000000000001" not in _segments(life.disk)
    for topic, first, number in ((5, 0, 1), (7, 3, 5)):
        found, *_ = decode_delivery(journal.read([(topic, first, first + 2)], 1 << 20)[0], 0)
        assert (found.topic_id, found.first_offset, found.first_number) == (topic, first, number)
    assert [delivered(each) for each in journal.read([(9, 0, 19), (5, 0, 2)], 1 << 20)] == [1, *range(20, 400, 20)]


def test_offsets_are_found_by_time_among_moved_blocks() -> None:
    life = _sparse()
    life.clean()
    for number in (7, 70, 350, 693):
        assert life.journal.offset_at_time(SMALL, number * 10) == _offset(number)


def test_an_index_of_moved_blocks_is_made_again_like_any_other() -> None:
    life = _sparse()
    life.clean()
    life.put(300)
    life.journal.close()
    life.disk.kill()
    for name in life.disk.names():
        if name.startswith("index-"):
            life.disk.unlink(name)
    life.start()
    assert life.problems() == []


def test_a_damaged_block_is_never_moved_so_that_it_can_be_told() -> None:
    life = _sparse()
    victim = _segments(life.disk)[0]
    position = next(position for position in range(64, 8192, 8) if life.disk.open(victim).read(position + 12, 4) == b"\x01\0\0\0")
    for at in range(position, 8000, 97):
        life.disk.flip(victim, at)
    life.clean()
    assert victim in _segments(life.disk)
    assert len(_segments(life.disk)) < 10


# --- crashes (H35) ----------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("point", CLEAN_POINTS)
def test_h35_nothing_is_lost_or_doubled_wherever_a_cleaning_ends(point: str, power: bool) -> None:
    met = 0
    for after in range(0, 12, 3):
        life = _sparse(seed=after)
        for _ in range(3):
            with crash_at(point, after=after):
                life.clean(600)
                continue
            met += 1
            life.disk.power_cut() if power else life.disk.kill()
            life.start()
            assert life.problems() == []
        life.clean()
        life.check()
        assert life.journal.size_bytes() <= 2 * life.living_bytes() + 4 * SETTINGS.segment_bytes
    assert met > 3


def test_h35_a_life_of_cleanings_and_crashes() -> None:
    for seed in range(8 * MORE):
        chance = Random(seed)
        life = Life(SimDisk(seed))
        for _ in range(8):
            try:
                with crash_at(chance.choice(CLEAN_POINTS), after=chance.randrange(6)):
                    for _ in range(chance.randrange(1, 5)):
                        life.put(chance.randrange(1, 150))
                        if chance.random() < 0.8:
                            life.trim()
                        if chance.random() < 0.2:
                            life.lows[SMALL] = chance.randint(life.lows[SMALL], life.books.ends()[SMALL])
                        for _ in range(chance.randrange(8)):
                            life.journal.clean(life.lows, chance.choice([300, 2000, 100_000]))
            except Crash:
                pass
            life.disk.power_cut() if chance.random() < 0.5 else life.disk.kill()
            life.start()
            assert life.problems() == []


def test_a_failed_sync_of_copies_keeps_the_source() -> None:
    life = _sparse()
    before = _segments(life.disk)
    life.disk.fail_next_sync(errno.EIO)
    with pytest.raises(SyncFailed):
        life.clean()
    assert _segments(life.disk)[: len(before) - 1] == before[:-1]
    life.disk.power_cut()
    life.start()


def test_copies_that_nobody_finished_are_used_and_not_made_again() -> None:
    life = _sparse()
    while not life.journal._shelf.being_copied():
        life.journal.clean(life.lows, 500)
    life.journal.sync()
    life.disk.kill()
    life.start()
    moved = sum(each.size_bytes for each in life.journal._shelf.copies_of(life.journal._shelf.being_copied()[0]))
    assert moved > 0
    one = life.journal._shelf.being_copied()[0]
    while life.journal._shelf.being_copied()[:1] == [one]:
        life.journal.clean(life.lows, 1 << 20)
    life.check()
    offsets = [each.first_offset for each in life.journal.holdings(SMALL)]
    assert offsets == sorted(set(offsets))


@pytest.mark.parametrize("power", [False, True])
def test_h35_nothing_is_lost_whatever_change_of_the_disk_is_the_last(power: bool) -> None:
    """One cleaning, ended at its first change of the disk, its second, its third ..."""
    for change in range(1, 1000, 3):
        life = Life(BrittleDisk(change))
        life.put(250)
        life.trim()
        life.disk.countdown = change  # type: ignore[attr-defined]
        with suppress(Crash):
            life.clean(1000)
            break
        life.disk.power_cut() if power else life.disk.kill()
        life.start()
        life.clean(1000)
        life.check()
    assert change > 30


# --- a full disk (R14) ------------------------------------------------------------------------------


def test_on_a_full_disk_copies_go_into_the_reserve_and_space_comes_back() -> None:
    settings = JournalSettings(segment_bytes=8192, segment_records_max=1000, reserve_bytes=8192)
    life = Life(SimDisk(1), settings)
    life.put(600)
    life.disk.capacity_bytes = life.disk.used_bytes()
    while life.journal.prepare(400, 1) >= 400:
        life.put(1)
    life.trim()
    for _ in range(6):
        life.clean()
        life.trim()
    assert life.journal.prepare(400, 1) >= 400
    life.check()
    life.disk.kill()
    life.start()
    assert life.problems() == []


# --- snapshots (H34) --------------------------------------------------------------------------------


def test_h34_after_a_cleaning_the_older_snapshot_still_finds_everything() -> None:
    life = _sparse()
    life.clean()
    life.put(40)
    life.disk.kill()
    newest = max(name for name in life.disk.names() if name.startswith("snapshot-"))
    life.disk.flip(newest, 50)
    life.start()
    life.trim()
    life.clean()
    life.check()


@pytest.mark.parametrize("is_dead", [False, True])
def test_h34_the_segment_that_the_older_snapshot_begins_with_stays(is_dead: bool) -> None:
    """However sparse, even without any living block: the newer snapshot may turn out damaged."""
    life = Life(SimDisk(), replace(SETTINGS, clean_slack_bytes=0))
    while max(life.journal.statistics().snapshots) < 3:
        life.put(1)
    life.lows[SMALL] = life.books.ends()[SMALL] - (0 if is_dead else 2)
    life.trim()
    life.clean()
    assert [int(name[-1]) for name in _segments(life.disk)] == [2, 3]
    count = life.books.count
    life.disk.kill()
    life.disk.flip(max(name for name in life.disk.names() if name.startswith("snapshot-")), 50)
    life.start()

    assert life.books.count == count

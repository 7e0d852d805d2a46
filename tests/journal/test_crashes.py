# SPDX-License-Identifier: Apache-2.0
"""A crash at every crash point of the journal, over many seeds: nothing synced is missing, and recovery is repeatable."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from oncemq.crashpoints import POINTS
from oncemq.errors import JournalDamaged
from oncemq.journal.journal import JournalSettings
from oncemq.sim.disk import SimDisk
from tests.journal.helpers import Crash, Ledger, crash_at, cursor, numbers_read, open_journal, put, stored

SETTINGS = JournalSettings(segment_bytes=2048, segment_records_max=30, reserve_bytes=1024)
MORE = int(os.environ.get("ONCEMQ_MORE_SEEDS", "1"))
"""Set this variable to run so many times as many seeds."""
CLEANING = ("journal.after_move", "journal.before_clean_unlink", "journal.after_clean_unlink")
"""Crash points of the cleaner, see test_cleaner.py."""
JOURNAL_POINTS = [point for point in POINTS if point.startswith("journal.") and point not in CLEANING]


class BrittleDisk(SimDisk):
    """Dies at the n-th change that is asked of it; a write is then half done."""

    countdown = -1

    def _step(self) -> bool:
        self.countdown -= 1
        return self.countdown == 0

    def write(self, inode: Any, position: int, content: bytes) -> None:
        if self._step():
            super().write(inode, position, content[: len(content) // 2])
            raise Crash
        super().write(inode, position, content)

    def sync(self, inode: Any) -> None:
        self._crash_or(super().sync, inode)

    def take_space(self, inode: Any, size_bytes: int) -> None:
        self._crash_or(super().take_space, inode, size_bytes)

    def rename(self, source: str, target: str) -> None:
        self._crash_or(super().rename, source, target)

    def unlink(self, name: str) -> None:
        self._crash_or(super().unlink, name)

    def sync_names(self) -> None:
        self._crash_or(super().sync_names)

    def _crash_or(self, action: Callable[..., None], *arguments: object) -> None:
        if self._step():
            raise Crash
        action(*arguments)


class Life:
    """Puts numbered records over many starts, and knows which of them were synced."""

    def __init__(self, seed: int) -> None:
        self.disk = BrittleDisk(seed)
        self.chance = Random(seed)
        self.starts = 0
        self.synced = 0
        self.appended = 0
        self.low = 0

    def start(self) -> None:
        """Open the journal and check that everything synced is there, in order, and readable."""
        self.starts += 1
        self.journal, self.ledger = open_journal(self.disk, self.starts, SETTINGS)
        found = self.ledger.numbers
        assert found == list(range(1, len(found) + 1))
        assert self.synced <= len(found) <= self.appended
        expected = [number for number in found if number % 3 and number > self.low]
        assert [number for number in numbers_read(self.journal) if number > self.low] == expected
        # Whatever a start has found is durable from then on: it may be told to anybody.
        self.synced = self.appended = len(found)

    def work(self, groups: int) -> None:
        for _ in range(groups):
            records = []
            for _ in range(self.chance.randint(1, 4)):
                number = self.appended + len(records) + 1
                records.append(stored(number, self._offset(number)) if number % 3 else cursor(number))
            size = 400 * len(records)
            assert self.journal.prepare(size, len(records)) >= size
            self.appended += len(records)
            put(self.journal, self.ledger, *records, sync=False)
            if self.chance.random() < 0.7:
                self.journal.sync()
                self.synced = self.appended
            if self.chance.random() < 0.2:
                self.journal.sync()
                self.synced = self.low = self.appended
                self.journal.trim({1: self._offset(self.low + 1)})

    @staticmethod
    def _offset(number: int) -> int:
        """Every third number is a cursor and takes no offset."""
        return number - 1 - (number - 1) // 3

    def die(self) -> None:
        if self.chance.random() < 0.5:
            self.disk.kill()
        else:
            self.disk.power_cut()


def _live(life: Life, point: str, after: int, groups: int) -> None:
    with crash_at(point, after=after):
        life.start()
        life.work(groups)
    life.die()


@pytest.mark.parametrize("point", JOURNAL_POINTS)
@pytest.mark.parametrize("seed", range(12 * MORE))
def test_nothing_synced_is_lost_whatever_the_crash_point(point: str, seed: int) -> None:
    life = Life(seed * 1000 + JOURNAL_POINTS.index(point))
    for _ in range(6):
        _live(life, point, life.chance.randint(0, 4), 25)
    life.start()


@pytest.mark.parametrize("power", [False, True])
def test_nothing_synced_is_lost_whatever_change_of_the_disk_is_the_last(power: bool) -> None:
    """One life with rolls, trims and a restart, ended at its first change of the disk, its second, its third ..."""
    for change in range(1, 1000):
        life = Life(change)
        life.disk.countdown = change
        with suppress(Crash):
            life.start()
            life.work(12)
            life.disk.kill()
            life.start()
            life.work(6)
            life.journal.close()
            break
        life.disk.power_cut() if power else life.disk.kill()
        life.start()
        life.work(3)
        life.disk.power_cut()
        life.start()
    assert change > 60


@pytest.mark.parametrize("seed", range(60 * MORE))
def test_nothing_synced_is_lost_in_power_cuts_between_any_two_groups(seed: int) -> None:
    life = Life(seed)
    for _ in range(5):
        life.start()
        life.work(life.chance.randint(0, 30))
        life.die()
    life.start()


@pytest.mark.parametrize("point", JOURNAL_POINTS)
def test_recovering_a_recovery_gives_the_same_state(point: str) -> None:
    """Crash at every point of a start, cut the power, start again: the states are equal."""
    for seed in range(20):
        life = Life(seed)
        life.start()
        life.work(20)
        life.disk.kill()
        reference, expected = open_journal(life.disk.copy(), 90, SETTINGS)
        before = life.disk.copy()
        with crash_at(point):
            open_journal(life.disk, 91, SETTINGS)
        life.disk.kill()
        _, again = open_journal(life.disk, 92, SETTINGS)
        assert again.records == expected.records
        # The tail was only in the cache of the first start: after a power cut it is there or not, but never half.
        with crash_at(point):
            open_journal(before, 93, SETTINGS)
        before.power_cut()
        _, cut = open_journal(before, 94, SETTINGS)
        assert cut.records == expected.records[: len(cut.records)]
        assert len(cut.records) >= life.synced
        del reference


def test_a_crash_is_really_met_at_every_point() -> None:
    """The tests above would prove nothing if no crash point was reached."""
    met = set()
    for point in JOURNAL_POINTS:
        life = Life(7)
        life.start()
        with crash_at(point):
            life.work(60)
            continue
        met.add(point)
    assert met == set(JOURNAL_POINTS)


def test_every_single_sector_of_an_unsynced_group_may_be_missing() -> None:
    """All subsets of the sectors of one unsynced group: recovered whole or not at all, never damaged."""
    whole = 0
    for seed in range(200):
        disk = SimDisk(seed)
        journal, ledger = open_journal(disk, 1, JournalSettings(segment_bytes=16384, reserve_bytes=0))
        put(journal, ledger, stored(1, 0))
        put(journal, ledger, stored(2, 1, size=700), stored(3, 2, size=700), sync=False)
        disk.power_cut()
        _, again = open_journal(disk, 2)
        assert again.numbers in ([1], [1, 2, 3])
        whole += len(again.numbers) == 3
    assert 0 < whole < 200


def test_flipping_any_byte_of_a_synced_journal_is_told_or_harmless() -> None:
    """Rot anywhere below what was synced: either the start is refused or the state is exactly right."""
    disk = SimDisk(1)
    journal, ledger = open_journal(disk, 1, SETTINGS)
    for number in range(1, 12):
        put(journal, ledger, stored(number, number - 1))
    journal.close()
    refused = 0
    for name in disk.names():
        for position in range(0, disk.open(name).size(), 7):
            copy = disk.copy()
            copy.flip(name, position, 16)
            try:
                _, again = open_journal(copy, 2, SETTINGS)
            except JournalDamaged:
                refused += 1
            else:
                assert again.records == ledger.records, (name, position)
    assert refused > 100


def test_ledgers_are_restored_as_they_were_dumped() -> None:
    ledger, again = Ledger(), Ledger()
    for record in (stored(1, 0), cursor(2)):
        ledger.apply(record)
    again.restore(ledger.dump())
    assert again.records == ledger.records

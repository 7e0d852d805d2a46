# SPDX-License-Identifier: Apache-2.0
"""Files that were removed and come back after a power cut, in whatever order the file system likes: none is believed wrongly."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import pytest

from oncemq.journal.journal import Journal
from oncemq.journal.reading import DamagedRead
from oncemq.sim.bugs import Without
from oncemq.sim.disk import SimDisk
from tests.journal.test_cleaner import SETTINGS, Life


class Unordered(SimDisk):
    """A disk that knows what was removed since names were synced last: any of it may be there again after a power cut.

    SimDisk itself loses the newest changes of names only, as file systems with a journal do. Nothing says that all must.
    """

    def __init__(self) -> None:
        super().__init__(1)
        self.removed: dict[str, bytes] = {}

    def unlink(self, name: str) -> None:
        if name.startswith("segment-"):
            self.removed[name] = self.open(name).read(0, self.size_of(name))
        super().unlink(name)

    def sync_names(self) -> None:
        super().sync_names()
        self.removed.clear()

    def after_power_cuts(self) -> list[SimDisk]:
        """One disk for each choice of the last removals that come back."""
        names = list(self.removed)[-3:]
        choices = chain.from_iterable(combinations(names, count) for count in range(1, len(names) + 1))
        return [self._with(chosen) for chosen in choices]

    def _with(self, names: tuple[str, ...]) -> SimDisk:
        disk = self.copy()
        for name in names:
            disk.open(name, create=True).write(0, [self.removed[name]])
        return disk


class Next(Life):
    """The life that begins on such a disk, with what the one before knew."""

    def __init__(self, before: Life, disk: SimDisk) -> None:
        self.disk, self.settings = disk, before.settings
        self.starts, self.lows = before.starts + 50, dict(before.lows)
        self.start()


def _go_on_from_every_power_cut(life: Life, disk: Unordered) -> int:
    """Return how many there were; each must find everything, clean up, and find it again."""
    disks = disk.after_power_cuts()
    for each in disks:
        after = Next(life, each)
        after.clean()
        after.check()
        assert after.problems() == []
    return len(disks)


def _cleaned(turns: int) -> int:
    """Empty a segment so slowly that its copies lie in several, then those at once. Return how often one was brought back."""
    disk, cuts = Unordered(), 0
    life = Life(disk, replace(SETTINGS, clean_slack_bytes=0))
    for _ in range(turns):
        cleaned = life.journal.statistics().segments_cleaned
        for _ in range(60):
            life.put(20)
            life.trim()
            life.journal.clean(life.lows, 1)
            if life.journal.statistics().segments_cleaned > cleaned:
                break
        while life.journal.clean(life.lows, 700):
            cuts += _go_on_from_every_power_cut(life, disk)
    assert life.journal.statistics().segments_cleaned > turns
    return cuts


def test_of_what_the_cleaner_removes_nothing_comes_back() -> None:
    assert _cleaned(4) == 0


def test_a_source_that_came_back_beside_copies_of_its_copies_would_be_two_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why its removal is synced: without that, this is what a start would find."""
    finish = Journal._finish_cleaning

    def without_sync(self: Journal, number: int) -> None:
        disk, self._disk = self._disk, Without(self._disk, "sync_names")  # type: ignore[assignment]
        try:
            finish(self, number)
        finally:
            self._disk = disk

    monkeypatch.setattr(Journal, "_finish_cleaning", without_sync)
    with pytest.raises((DamagedRead, AssertionError)):
        _cleaned(4)


def test_dead_segments_that_come_back_are_no_harm_and_go_again() -> None:
    """What a trim removes is not synced: nobody needs anything of it, wherever it lies."""
    disk = Unordered()
    life, cuts = Life(disk, SETTINGS), 0
    for _ in range(8):
        life.put(150)
        life.lows[1] = max(0, life.books.ends()[1] - 10)
        life.trim()
        cuts += _go_on_from_every_power_cut(life, disk)
    assert cuts > 20

# SPDX-License-Identifier: Apache-2.0
"""A broker's disk that refuses a read: what passes is no damage, and what lasts is told."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from oncemq.core.records import Stored
from oncemq.errors import Damaged
from oncemq.sim.disk import SimFile
from oncemq.sim.rot import damaged_by, records_of
from oncemq.sim.world import World
from tests.holes.helpers import number, started, stored_values, values


class Refusals:
    """Makes the broker's disk refuse so many reads."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.left = 0


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Iterator[Refusals]:
    drawn, read = Refusals(), SimFile.read

    def refuse(self: SimFile, position: int, size: int) -> bytes:
        if drawn.left and drawn.world is not None and self._disk is drawn.world.disk:
            drawn.left -= 1
            raise OSError(errno.EIO, "Input/output error")
        return read(self, position, size)

    monkeypatch.setattr(SimFile, "read", refuse)
    yield drawn
    drawn.left = 0


def with_three_messages(refusals: Refusals, left: int) -> World:
    world = started()

    def script() -> None:
        with world.connect("sub") as sub:
            sub.subscribe("t")
            sub.put_many("t", number(3))

    world.run(script)
    refusals.world, refusals.left = world, left
    return world


def test_a_read_that_the_disk_refuses_once_is_asked_for_again(refusals: Refusals) -> None:
    """Told as damaged it could be skipped for ever, though nothing is wrong with it."""
    world = with_three_messages(refusals, 2)

    def script() -> list[bytes]:
        with world.connect("sub") as sub:
            first = sub.get("t", timeout=30)
            assert first is not None
            return [first.value, *values(sub, "t")]

    assert world.run(script) == number(3)
    assert refusals.left == 0


def test_refused_reads_that_passed_long_ago_do_not_count(refusals: Refusals) -> None:
    """A disk that refuses the same place once an hour would have it told as damaged at the third time."""
    world = with_three_messages(refusals, 0)

    for _ in range(4):
        refusals.left = 1
        assert world.run(lambda: stored_values(world, "t")) == number(3)
        world.pass_time(3_600_000)


def test_reading_a_range_is_not_cut_short_by_a_read_that_the_disk_refuses_once(refusals: Refusals) -> None:
    world = with_three_messages(refusals, 1)
    assert world.run(lambda: stored_values(world, "t")) == number(3)


def test_what_the_disk_keeps_refusing_is_told_as_damaged_and_can_be_asked_for_again(refusals: Refusals) -> None:
    world = with_three_messages(refusals, 10**9)

    def script() -> list[bytes]:
        with world.connect("sub") as sub:
            with pytest.raises(Damaged) as told:
                sub.get("t", timeout=60)
            assert (told.value.first, told.value.end) == (0, 3)
            refusals.left = 0
            sub.settle("t", "repeat")
            return values(sub, "t")

    assert world.run(script) == number(3)


def test_of_several_blocks_only_the_damaged_one_is_told_and_the_others_are_handed_out() -> None:
    world, name = started(), "segment-0000000000000001"

    def put() -> None:
        with world.connect("sub") as sub:
            sub.subscribe("t")
            for first in (0, 3, 6):
                sub.put_many("t", number(3, first))

    world.run(put)
    places = [at for record, at, _ in records_of(world.disk, name) if isinstance(record, Stored)]
    assert [damaged_by(world.disk.copy(), name, at) for at in places] == [number(9)] * 3, "there is no index yet"
    world.disk.flip(name, places[1])

    def script() -> list[bytes]:
        with world.connect("sub") as sub:
            before = [message.value for message in sub.get_many("t", 9, timeout=10)]
            with pytest.raises(Damaged) as told:
                sub.get("t", timeout=10)
            assert (told.value.first, told.value.end) == (3, 6)
            sub.settle("t", "skip")
            return before + values(sub, "t")

    assert world.run(script) == [*number(3), *number(3, 6)]

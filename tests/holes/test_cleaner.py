# SPDX-License-Identifier: Apache-2.0
"""Holes of moved blocks and damaged snapshots (H34, H35), at the level of the broker; tests/journal has the bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncemq.core.packets import Get, PutDone
from oncemq.journal.journal import JournalSettings, JournalStatistics
from oncemq.sim.network import Verdict
from oncemq.sim.world import World
from tests.holes.helpers import SECOND_US, Raw, crash_at, meddle, started, until_broker_dies, values

SMALL = JournalSettings(segment_bytes=16 * 1024, reserve_bytes=24 * 1024, segment_records_max=20, clean_slack_bytes=1024)
COUNT = 40
EXPECTED = [b"%d" % number for number in range(COUNT)]


def statistics(world: World) -> JournalStatistics:
    assert world.loop is not None
    return world.loop.journal.statistics()


def fill(world: World, pub: Raw) -> None:
    """Forty messages for somebody who is stuck, among many that are gone as they come. Inside `run`."""
    with world.connect("stuck") as stuck, world.connect("busy") as busy:
        stuck.subscribe("t")
        busy.subscribe("u")
        pub.hello()
        for number in range(COUNT):
            assert isinstance(pub.put(1 + 8 * number, "t", b"%d" % number), PutDone)
            for each in range(7):
                pub.put(2 + 8 * number + each, "u", bytes(100))
            assert len(values(busy, "u")) == 7
            busy.ack("u")


def cleaned(world: World) -> Raw:
    """A world in which those messages were moved out of most segments, and the publisher that put them."""
    pub = Raw(world, "pub")
    world.run(lambda: fill(world, pub))
    world.pass_time(6_000)
    assert statistics(world).segments_cleaned > 3
    return pub


def got_by_stuck(world: World) -> list[bytes]:
    def script() -> list[bytes]:
        with world.connect("stuck") as stuck:
            return values(stuck, "t")

    return world.run(script)


@pytest.mark.parametrize("power_cut", [False, True])
def test_h35_moved_blocks_keep_their_offsets_and_their_numbers(power_cut: bool) -> None:
    """R15: replayed as ordinary puts they would get new offsets and run into the high-water mark of their stream."""
    world = started(settings=SMALL)
    pub = cleaned(world)
    world.restart_broker(power_cut=power_cut)

    def again() -> None:
        with world.connect() as reader:
            assert [message.offset for message in reader.read("t", 0, COUNT)] == list(range(COUNT))
        done = pub.put(1 + 8 * (COUNT - 1), "t", EXPECTED[-1])
        assert isinstance(done, PutDone)
        assert done.duplicate
        done = pub.put(1 + 8 * COUNT, "t", b"new")
        assert isinstance(done, PutDone)
        assert (done.duplicate, done.outcomes[0].first_offset) == (False, COUNT)

    world.run(again)
    assert got_by_stuck(world) == [*EXPECTED, b"new"]


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("point", ["journal.after_move", "journal.before_clean_unlink", "journal.after_clean_unlink"])
def test_h35_a_broker_that_dies_while_it_moves_blocks_loses_and_doubles_nothing(point: str, power_cut: bool) -> None:
    for after in (0, 2):
        world = started(settings=SMALL)
        with crash_at(point, after=after):
            world.spawn("script", lambda world=world: fill(world, Raw(world, "pub")))  # type: ignore[misc]
            until_broker_dies(world)
        before = statistics(world).bytes_moved
        assert before > 0
        if power_cut:
            world.cut_power()
        world.launch_broker()
        world.pass_time(120_000)
        assert got_by_stuck(world) == EXPECTED


def test_h35_a_get_on_its_way_while_its_segment_goes_is_answered_from_the_copy() -> None:
    """The place of a block is looked up when it is read, between two slices of the cleaner, never before."""
    world = started(settings=SMALL)

    def script() -> None:
        fill(world, Raw(world, "pub"))
        with world.connect("stuck") as stuck:
            before = statistics(world).segments_cleaned
            meddle(world, Get, Verdict(delay_us=2 * SECOND_US))
            first = stuck.get("t", timeout=10)
            assert first is not None
            assert statistics(world).segments_cleaned > before
            assert [first.value, *values(stuck, "t")] == EXPECTED

    world.run(script)


def test_h34_a_damaged_snapshot_after_a_cleaning_forgets_no_put_and_no_message() -> None:
    """R12: the older snapshot and the segments it needs are still there, so de-duplication is what it was."""
    world = started(settings=SMALL)
    pub = cleaned(world)
    world.kill_broker()
    newest = max(name for name in world.disk.names() if name.startswith("snapshot-"))
    world.disk.flip(newest, 70)
    world.start_broker()

    def again() -> None:
        done = pub.put(1 + 8 * (COUNT - 1), "t", EXPECTED[-1])
        assert isinstance(done, PutDone)
        assert done.duplicate

    world.run(again)
    assert got_by_stuck(world) == EXPECTED


def test_h34_without_any_snapshot_the_start_is_refused() -> None:
    """Rebuilding from what is left would forget which puts were taken: their records went with emptied segments."""
    world = started(settings=SMALL)
    cleaned(world)
    world.kill_broker()
    for name in world.disk.names():
        if name.startswith("snapshot-"):
            world.disk.flip(name, 70)
    refused: Callable[[], None] = world.start_broker
    with pytest.raises(Exception, match="snapshot"):
        refused()

# SPDX-License-Identifier: Apache-2.0
"""Everything at once, from seeds: a small disk that fills up, failing syncs, kills, power cuts, trims and restarts."""

from __future__ import annotations

import os
from random import Random

import msgspec
import pytest

from oncemq.core.records import CursorMoved, Record, Stored, Trimmed
from oncemq.errors import DiskFull, SyncFailed
from oncemq.journal.codec import encoded_size
from oncemq.journal.journal import Journal, JournalSettings
from oncemq.journal.verify import verify
from oncemq.sim.disk import SimDisk
from tests.journal.helpers import Claim, delivered, stored

SETTINGS = JournalSettings(segment_bytes=4096, segment_records_max=40, reserve_bytes=2048)
MORE = int(os.environ.get("ONCEMQ_MORE_SEEDS", "1"))
TOPIC = 1


class Tally:
    """A state as small as a broker's: how far it got, what is stored, what was trimmed."""

    def __init__(self) -> None:
        self.steps: int = 0
        self.end: int = 0
        self.low: int = 0

    @property
    def topics(self) -> dict[int, Claim]:
        return {TOPIC: Claim("orders", self.low, self.end)}

    @property
    def storages(self) -> dict[int, Claim]:
        return {}

    def restore(self, state: bytes) -> None:
        self.steps, self.end, self.low = msgspec.msgpack.decode(state, type=tuple[int, int, int])

    def dump(self) -> bytes:
        return msgspec.msgpack.encode((self.steps, self.end, self.low))

    def apply(self, record: Record) -> None:
        """Every record carries the number of its step, so one that is missing, doubled or late is seen at once."""
        match record:
            case Stored():
                assert record.append_number == self.steps
                assert record.placements[0].first_offset == self.end
                self.end += record.count
            case CursorMoved():
                assert record.cursor == self.steps
            case Trimmed():
                assert self.low <= record.low <= self.end
                self.low = record.low
        self.steps += 1


class World:
    """One small disk over many starts. What was confirmed must be there after every one of them."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.disk = SimDisk(seed, capacity_bytes=self.chance.choice([None, 30_000, 60_000]))
        self.starts = 0
        self.refused = 0
        self.confirmed = (0, 0, 0)
        self.appended = 0

    def run(self) -> None:
        self.starts += 1
        self.tally = Tally()
        start_id = self.starts.to_bytes(16, "big")
        self.journal = Journal.open(self.disk, start_id=start_id, new_log_id=b"L" * 16, state=self.tally, settings=SETTINGS)
        tally = self.tally
        assert self.confirmed <= (tally.steps, tally.end, tally.low)
        assert tally.steps <= self.appended
        # Whatever a start has found is durable from then on: it may be told to anybody.
        self.confirmed, self.appended = (tally.steps, tally.end, tally.low), tally.steps
        self.check()
        for _ in range(self.chance.randint(0, 60)):
            self.step()
        self.check()
        if self.chance.random() < 0.3:
            self.journal.close()

    def check(self) -> None:
        """Everything from the low offset to the end can be read, once and in order."""
        found = [delivered(each) for each in self.journal.read([(TOPIC, self.tally.low, self.tally.end)], 1 << 30)]
        assert len(found) == self._blocks()
        assert found == sorted(set(found))

    def _blocks(self) -> int:
        """Every block holds two messages; one may reach over the low offset."""
        return (self.tally.end + 1) // 2 - self.tally.low // 2

    def step(self) -> None:
        tally = self.tally
        kind = self.chance.choice(["put", "put", "put", "cursor", "trim"])
        record: Record
        if kind == "put":
            record = stored(tally.steps, tally.end, topic=TOPIC, count=2, size=self.chance.choice([20, 200, 900]))
        elif kind == "cursor":
            record = CursorMoved(1, tally.steps)
        else:
            record = Trimmed(TOPIC, self.chance.randint(tally.low, tally.end))
        size = encoded_size(record)
        if self.journal.prepare(size, 1, control=kind != "put") < size:
            self.refused += 1
            return
        tally.apply(record)
        self.appended = tally.steps
        if self.chance.random() < 0.01:
            self.disk.fail_next_sync()
        self.journal.append([record])
        if self.chance.random() < 0.6:
            self.journal.sync()
            self.confirmed = (tally.steps, tally.end, tally.low)
        if kind == "trim" and self.confirmed[0] == tally.steps:
            self.journal.trim({TOPIC: tally.low})

    def end(self) -> None:
        if self.chance.random() < 0.5:
            self.disk.kill()
        else:
            self.disk.power_cut()
        assert [finding for finding in verify(self.disk, Tally()) if finding.problem] == []


def _live(seed: int) -> World:
    world = World(seed)
    for _ in range(12):
        try:
            world.run()
        except SyncFailed:
            pass
        except DiskFull:
            # Nothing could be opened; somebody makes space.
            world.disk.capacity_bytes = None
        world.end()
    return world


@pytest.mark.parametrize("seed", range(40 * MORE))
def test_a_life_of_mishaps_loses_nothing_that_was_confirmed(seed: int) -> None:
    _live(seed)


def test_the_mishaps_really_happen() -> None:
    worlds = [_live(seed) for seed in range(20)]
    assert sum(world.refused for world in worlds) > 20
    assert any(world.disk.boots > 1 for world in worlds)
    assert sum(world.tally.low for world in worlds) > 100

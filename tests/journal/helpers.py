# SPDX-License-Identifier: Apache-2.0
"""A tiny broker state and ready-made records, so that tests of the journal need no broker.

May not: test anything.
The idea: `Ledger` is a state whose dump is the list of all records it was given, so that two states can be compared.
Next: test_recovery.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from oncemq import crashpoints
from oncemq.core.records import NOT_STORED, CursorMoved, Placement, Record, Stored
from oncemq.journal.codec import decode, decode_delivery, encode
from oncemq.journal.journal import Journal, JournalSettings
from oncemq.model.block import checksum, cut_block
from oncemq.ports import Disk
from oncemq.sim.disk import SimDisk

LOG_ID = b"L" * 16
SMALL = JournalSettings(segment_bytes=8192, segment_records_max=1000, reserve_bytes=4096)


class Crash(BaseException):
    """The process died at a crash point."""


class Claim(NamedTuple):
    """What must be there of a topic."""

    name: str
    low: int
    end: int


class Ledger:
    """A state that remembers every record it was given, without blocks. It claims only what a test says in `topics`."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.topics: dict[int, Claim] = {}

    def restore(self, state: bytes) -> None:
        pieces = msgspec.msgpack.decode(state, type=list[bytes])
        self.records = [decode(piece)[0] for piece in pieces]

    def apply(self, record: Record) -> None:
        self.records.append(bare(record))

    @property
    def storages(self) -> dict[int, Claim]:
        return {}

    def dump(self) -> bytes:
        return msgspec.msgpack.encode([b"".join(encode(_dumpable(record))) for record in self.records])

    @property
    def numbers(self) -> list[int]:
        """What the ledger holds, as the numbers the records were made with."""
        return [
            record.append_number if isinstance(record, Stored) else record.cursor  # type: ignore[union-attr]
            for record in self.records
        ]


def _dumpable(record: Record) -> Record:
    if isinstance(record, Stored):
        placements = tuple(Placement(each.topic_id, NOT_STORED) for each in record.placements)
        return msgspec.structs.replace(record, placements=placements, block_bytes=0)
    return record


def bare(record: Record) -> Record:
    """What a ledger remembers of a record."""
    return _dumpable(msgspec.structs.replace(record, block=b"") if isinstance(record, Stored) else record)


def block_of(*values: bytes) -> bytes:
    return bytes(cut_block(values, array("q", range(len(values)))))


def stored(number: int, offset: int, *, topic: int = 1, count: int = 1, size: int = 20, time_us: int | None = None) -> Stored:
    """A block of `count` messages in one topic."""
    return stored_in(number, (Placement(topic, offset),), count=count, size=size, time_us=time_us)


def stored_in(
    number: int, placements: tuple[Placement, ...], *, count: int = 1, size: int = 20, time_us: int | None = None
) -> Stored:
    block = block_of(*[number.to_bytes(8, "big") + bytes(max(0, size - 8)) for _ in range(count)])
    return Stored(
        append_number=number,
        append_time_us=number * 10 if time_us is None else time_us,
        start_id=b"s" * 16,
        stream=b"t" * 16,
        first_number=number,
        count=count,
        block_crc=checksum(block),
        block_bytes=len(block),
        placements=placements,
        publisher="billing",
        block=block,
    )


def cursor(number: int) -> CursorMoved:
    return CursorMoved(7, number)


def open_journal(disk: Disk, start: int = 1, settings: JournalSettings = SMALL) -> tuple[Journal, Ledger]:
    ledger = Ledger()
    start_id = start.to_bytes(16, "big")
    return Journal.open(disk, start_id=start_id, new_log_id=LOG_ID, state=ledger, settings=settings), ledger


def put(journal: Journal, ledger: Ledger, *records: Record, sync: bool = True) -> None:
    """What the engine does: room, apply, append, sync."""
    size = sum(sum(map(len, encode(record))) for record in records)
    assert journal.prepare(size, len(records)) >= size
    for record in records:
        ledger.apply(record)
    journal.append(records)
    if sync:
        journal.sync()


def numbers_read(journal: Journal, topic: int = 1, first: int = 0, end: int = 1 << 40) -> list[int]:
    """Append numbers of the blocks that a read of this range returns, as far as there is something."""
    held = journal.holdings(topic)
    first, end = max([first, *(each.first_offset for each in held[:1])]), min(end, held[-1].end_offset if held else 0)
    return [delivered(each) for each in journal.read([(topic, first, end)], 1 << 30)]


def delivered(content: bytes) -> int:
    found, start, end, after = decode_delivery(content, 0)
    assert after == len(content)
    assert checksum(content[start:end]) == found.block_crc
    return found.append_number


@contextmanager
def crash_at(point: str, *, after: int = 0) -> Iterator[None]:
    """Die when `point` is reached for the (after+1)-th time; the with-block ends there."""
    left = after

    def hook(name: str) -> None:
        nonlocal left
        if name == point:
            if left == 0:
                raise Crash(name)
            left -= 1

    crashpoints.install(hook)
    try:
        yield
    except Crash:
        pass
    finally:
        crashpoints.install(None)


def newest(disk: SimDisk, prefix: str) -> str:
    return max(name for name in disk.names() if name.startswith(prefix) and not name.endswith(".new"))

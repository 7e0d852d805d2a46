# SPDX-License-Identifier: Apache-2.0
"""Bits that flip at rest on the broker's disk, and an operator who puts them right when somebody complains.

May not: touch the newest segment: damage behind the last proof of a sync cannot be told from a tear (docs/guarantees.md).
The idea: one flipped bit at a time, and it is known whose: the messages of that record, or of the whole segment where there is
no index to find the others by. The broker may refuse to start, or tell Damaged for what it cannot read; it must never hand
out other bytes or forget anything. Whoever is told asks the operator, who restores the byte from a good copy.
Next: sim/swarm.py, which calls; journal/recovery.py and journal/reading.py, which must notice.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from oncemq.core.records import Moved, Record, Staged, Stored
from oncemq.journal.codec import check_record, decode
from oncemq.journal.segment import INDEXES, SEGMENTS, Walk, file_name, numbers_of, read_segment_header
from oncemq.model.block import values_of
from oncemq.sim.disk import SimDisk


class Rot:
    """What is rotten on one disk."""

    def __init__(self, disk: SimDisk, random: Random) -> None:
        self._disk = disk
        self._random = random
        self._undo: list[Callable[[], None]] = []
        self.has_struck = False

    def strike(self) -> tuple[str, list[bytes]]:
        """Flip one bit of a file that is not being written; return the file's name, or "" if there is none yet, and the
        messages that it damages."""
        names = [name for name in self._disk.names() if self._disk.size_of(name)]
        newest = max((name for name in names if name.startswith(SEGMENTS)), default="")
        names = [name for name in names if name != newest]
        if self._undo or not names:
            return "", []
        self.has_struck = True
        name = self._random.choice(names)
        position = self._random.randrange(self._disk.size_of(name))
        damaged = damaged_by(self._disk.copy(), name, position)
        self._undo.append(self._disk.flip(name, position, 1 << self._random.randrange(8)))
        return name, damaged

    def repair(self) -> bool:
        """Put right what is rotten; say whether anything was."""
        was_rotten = bool(self._undo)
        while self._undo:
            self._undo.pop()()
        return was_rotten


def damaged_by(disk: SimDisk, name: str, position: int) -> list[bytes]:
    """The messages that nobody can read any more if that byte of a whole file is another."""
    if not name.startswith(SEGMENTS):
        return []
    (number,) = numbers_of([name], SEGMENTS)
    has_index = file_name(INDEXES, number) in disk.names()
    found = [(at, size) for _, at, size in records_of(disk, name) if not has_index or at <= position < at + size]
    return [value for at, size in found for value in _values_at(disk, name, at, size)]


def records_of(disk: SimDisk, name: str) -> list[tuple[Record, int, int]]:
    """Every record of a segment, with position and size."""
    (number,) = numbers_of([name], SEGMENTS)
    file = disk.open(name)
    try:
        walk: Walk[Record] = Walk(file, read_segment_header(file, name, number), file.size(), check_record)
        return [item for group in walk for item in group.items]
    finally:
        file.close()


def _values_at(disk: SimDisk, name: str, position: int, size: int) -> list[bytes]:
    file = disk.open(name)
    try:
        record, _ = decode(file.read(position, size), with_block=True)
    finally:
        file.close()
    held = record.held if isinstance(record, Moved) else record
    return values_of(bytes(held.block)) if isinstance(held, Stored | Staged) else []

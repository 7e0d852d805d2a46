# SPDX-License-Identifier: Apache-2.0
"""Is everything there? What the state says is stored, compared with what the segments hold.

May not: read a block, or change a byte: totals and index files are enough, so that a start stays short.
The idea: a topic's messages from `low` to `end` must lie in segments without a hole. A file that was removed leaves one, and
its index, if that is still there, says which file it was. What nobody can see any more is no loss: below `low` anything may go.
Next: recovery.py, which refuses a start, and verify.py, which reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from oncemq.errors import JournalIncomplete, invariant
from oncemq.journal.index import BadIndex, Totals, read_head
from oncemq.journal.segment import INDEXES, SEGMENTS, file_name, numbers_of
from oncemq.ports import Disk


class Extent(Protocol):
    """What a state knows of a topic: its messages from `low` to `end` are stored."""

    @property
    def name(self) -> str: ...

    @property
    def low(self) -> int: ...

    @property
    def end(self) -> int: ...


class Missing(msgspec.Struct, frozen=True):
    """Messages [first, end) of a topic that no segment holds. `segment` is the file that held them, 0 if nobody knows."""

    topic: str
    first: int
    end: int
    segment: int = 0

    def __str__(self) -> str:
        return f"messages {self.first} to {self.end - 1} of topic {self.topic!r}"

    @property
    def file(self) -> str:
        return file_name(SEGMENTS, self.segment) if self.segment else "a segment"


def find_missing(disk: Disk, log_id: bytes, topics: Mapping[int, Extent], held: Iterable[Totals]) -> list[Missing]:
    """Return every range that should be there and is not, topic by topic."""
    holdings: dict[int, list[Totals]] = {}
    for totals in held:
        holdings.setdefault(totals.topic_id, []).append(totals)
    holes = {
        topic_id: found
        for topic_id, extent in topics.items()
        if (found := holes_between(extent.low, extent.end, holdings.get(topic_id, ())))
    }
    if not holes:
        return []
    gone = _held_by_lost_segments(disk, log_id)
    return [
        Missing(topics[topic_id].name, first, end, _holder(gone, topic_id, first))
        for topic_id, found in holes.items()
        for first, end in found
    ]


def holes_between(low: int, end: int, held: Iterable[Totals]) -> list[tuple[int, int]]:
    """Return the ranges of [low, end) that none of these covers."""
    holes: list[tuple[int, int]] = []
    at = low
    for totals in sorted(held, key=_first):
        if at >= end:
            break
        if totals.first > at:
            holes.append((at, min(totals.first, end)))
        at = max(at, totals.end)
    return [*holes, (at, end)] if at < end else holes


def _first(totals: Totals) -> int:
    return totals.first


def _held_by_lost_segments(disk: Disk, log_id: bytes) -> list[Totals]:
    """What segments held that are no longer there, from the indexes they left behind."""
    names = disk.names()
    found: list[Totals] = []
    for number in sorted(set(numbers_of(names, INDEXES)) - set(numbers_of(names, SEGMENTS))):
        file = disk.open(file_name(INDEXES, number))
        try:
            found += read_head(file, log_id, number).totals
        except BadIndex:
            continue
        finally:
            file.close()
    return found


def _holder(gone: list[Totals], topic_id: int, offset: int) -> int:
    holders = (totals.segment for totals in gone if totals.topic_id == topic_id and totals.first <= offset < totals.end)
    return next(holders, 0)


def incomplete(missing: list[Missing]) -> JournalIncomplete:
    """Say what is missing as an error."""
    invariant(bool(missing), "nothing is missing")
    return JournalIncomplete(missing[0].file, str(missing[0]), len(missing) - 1)

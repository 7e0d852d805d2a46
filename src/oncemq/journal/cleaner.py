# SPDX-License-Identifier: Apache-2.0
"""The cleaner's choice: which segment is worth emptying, and which of its blocks have to be moved.

May not: write, unlink, or move a block that nobody needs.
The idea: a segment goes as a whole, so one stuck subscription of a small topic would keep everything that was stored around its
messages. Once segments hold more dead bytes than living ones, the sparsest is chosen; its living blocks are copied to the
active segment (`Moved`), slice by slice, and it is unlinked when all copies are synced. Until then it is where they are read, and
a copy counts for nothing: a crash at any instant leaves the one or the other. Living bytes only get fewer, so an old count is
an upper bound, and a few segments are counted anew at a time.
Next: journal.py, which appends the copies and unlinks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from oncemq.core.records import HELD, Moved, Record
from oncemq.journal.codec import BadRecord, Bytes, check_record, held_in, moved_parts
from oncemq.journal.index import SegmentIndex, Totals
from oncemq.journal.shelf import NO_INDEX, Shelf
from oncemq.limits import CLEAN_LOOKS_MAX, CLEAN_SIZE_EIGHTHS

Lows = Mapping[int, int]
"""The low offset of every living topic."""


class Counted(msgspec.Struct, frozen=True):
    """How many bytes lived in a segment when the lows of its runs were these."""

    lows: tuple[int, ...]
    living_bytes: int


class Block(msgspec.Struct, frozen=True, gc=False):
    """One record that has to be moved, and one of the places that it must turn out to hold."""

    position: int
    size_bytes: int
    topic_id: int
    first: int


class Work(msgspec.Struct):
    """A segment that is being emptied, and the records that were not looked at yet, the last one first."""

    segment: int
    blocks: list[Block]


class Cleaner:
    def __init__(self, shelf: Shelf, slack_bytes: int) -> None:
        """`slack_bytes`: so many dead bytes are no reason to begin."""
        self._shelf = shelf
        self._slack_bytes = slack_bytes
        self._counted: dict[int, Counted] = {}
        self._spoilt: set[int] = set()
        """Segments with a damaged block among the living, or without an index: they stay, so that the damage can be told."""
        self._work: Work | None = None
        self.is_counting = False
        """Whether the next look at the segments would know more than the last one."""

    def work(self, lows: Lows, below: int) -> Work | None:
        """Return what is being emptied, or choose a segment below that number; None if none is worth it."""
        work = self._work
        if work is None or work.segment not in dict(self._shelf.sealed()):
            chosen = self._begun(below) or self._sparsest(lows, below)
            self._work = work = self._work_in(chosen, lows) if chosen else None
        return work

    def give_up(self, work: Work) -> None:
        """Leave this segment as it is: one of its living blocks cannot be read."""
        self._spoilt.add(work.segment)
        self._work = None

    def finish(self) -> None:
        """What was being emptied is done."""
        self._work = None

    def is_alive(self, totals: Totals, lows: Lows) -> bool:
        return totals.end > lows.get(totals.topic_id, totals.end)

    # --- choosing -----------------------------------------------------------------------------------

    def _candidates(self, lows: Lows, below: int) -> list[tuple[int, int]]:
        """Segments that may be emptied, with their size: none that a snapshot needs, none that holds waiting copies.

        What is wholly dead is trimmed without us.
        """
        return [
            (number, end)
            for number, end in self._shelf.sealed()
            if number < below and number not in self._spoilt and not self._shelf.has_copies(number) and self._lives(number, lows)
        ]

    def _lives(self, number: int, lows: Lows) -> bool:
        return any(self.is_alive(totals, lows) for totals in self._shelf.totals_of(number))

    def _begun(self, below: int) -> int:
        """A segment that was begun to be emptied, in this life or the one before: finish that first."""
        begun = (number for number in self._shelf.being_copied() if number < below and number not in self._spoilt)
        return next(begun, 0)

    def _sparsest(self, lows: Lows, below: int) -> int:
        candidates = self._candidates(lows, below)
        size = sum(end for _, end in candidates)
        self.is_counting = False
        if size <= self._slack_bytes:
            return 0
        self._count_some(candidates, lows)
        living = {number: self._living(number, end) for number, end in candidates}
        if size <= sum(living.values()) * CLEAN_SIZE_EIGHTHS // 8 + self._slack_bytes:
            return 0
        return min(candidates, key=lambda each: living[each[0]] / each[1])[0]

    def _living(self, number: int, size_bytes: int) -> int:
        counted = self._counted.get(number)
        return size_bytes if counted is None else counted.living_bytes

    def _count_some(self, candidates: list[tuple[int, int]], lows: Lows) -> None:
        """Count anew where a low moved since the last count; those first whose count was the highest."""
        self._counted = {number: self._counted[number] for number, _ in candidates if number in self._counted}
        stale = [
            (number, end)
            for number, end in candidates
            if number not in self._counted or self._counted[number].lows != self._lows_of(number, lows)
        ]
        stale.sort(key=lambda each: -self._living(*each))
        self.is_counting = len(stale) > CLEAN_LOOKS_MAX
        for number, _ in stale[:CLEAN_LOOKS_MAX]:
            work = self._work_in(number, lows)
            if work is not None:
                self._counted[number] = Counted(self._lows_of(number, lows), sum(block.size_bytes for block in work.blocks))

    def _lows_of(self, number: int, lows: Lows) -> tuple[int, ...]:
        """How far each run of a segment is dead."""
        return tuple(
            min(max(totals.first, lows.get(totals.topic_id, totals.end)), totals.end) for totals in self._shelf.totals_of(number)
        )

    # --- blocks -------------------------------------------------------------------------------------

    def _work_in(self, number: int, lows: Lows) -> Work | None:
        """Return what there is to do in a segment; None if nobody can say where its blocks are: then it stays as it is."""
        try:
            copied = _offsets_of(self._shelf, self._shelf.copies_of(number))
            return Work(number, self._living_blocks(number, lows, copied)[::-1])
        except NO_INDEX:
            self._spoilt.add(number)
            return None

    def _living_blocks(self, number: int, lows: Lows, copied: frozenset[tuple[int, int]]) -> list[Block]:
        """The records of a segment that somebody may still need and that have no copy yet, by position, each once."""
        index = self._shelf.index(number)
        found: dict[int, Block] = {}
        done: set[int] = set()
        for totals, columns in zip(index.totals, index.columns, strict=True):
            low = lows.get(totals.topic_id, totals.end)
            if totals.end <= low:
                continue
            for entry in columns.overlapping(max(low, totals.first), totals.end):
                position, place = columns.positions[entry], (totals.topic_id, columns.firsts[entry])
                found[position] = Block(position, columns.sizes[entry], *place)
                if place in copied:
                    done.add(position)
        return [found[position] for position in sorted(found) if position not in done]


def take_slice(blocks: list[Block], bytes_max: int) -> list[Block]:
    """Take blocks off the end of the list up to so many bytes, at least one if there is any."""
    taken: list[Block] = []
    left = bytes_max
    while blocks and (not taken or blocks[-1].size_bytes <= left):
        taken.append(blocks.pop())
        left -= taken[-1].size_bytes
    return taken


def copy_of(shelf: Shelf, segment: int, block: Block) -> tuple[Record, list[Bytes]]:
    """Read a record, check every byte of it, and return it as one that was moved from that segment; BadRecord if it is bad."""
    content = shelf.file(segment).read(block.position, block.size_bytes)
    record, end = check_record(content, 0)
    held = record.held if type(record) is Moved else record
    places = [(topic_id, first) for topic_id, first, _, _ in held_in(held)]
    if not isinstance(held, HELD) or end != block.size_bytes or (block.topic_id, block.first) not in places:
        raise BadRecord("not the record that was expected")
    return Moved(segment, held), moved_parts(content, segment)


def _offsets_of(shelf: Shelf, copies: Sequence[Totals]) -> frozenset[tuple[int, int]]:
    """(topic id, first offset) of every block in these runs."""
    return frozenset((totals.topic_id, first) for totals in copies for first in _run(shelf.index(totals.segment), totals))


def _run(index: SegmentIndex, totals: Totals) -> Iterable[int]:
    return index.columns[totals.run].firsts

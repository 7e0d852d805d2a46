# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs of the cleaner: ways to lose, double or misplace what is moved from one segment to another (R15, H34, H35).

May not: be imported by anything but sim/bugs.py.
The idea: as in bugs_broker.py; each is caught only by worlds in which somebody is stuck and segments are small.
Next: journal/cleaner.py, which they break.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oncemq.core.records import Moved, Placement, Stored
from oncemq.journal import cleaner, index, journal, shelf
from oncemq.journal.codec import decode, encode, unmoved
from oncemq.sim.bugs import Patch, bug


@bug
def moves_blocks_to_other_offsets(patch: Patch) -> None:
    """A moved block is placed one offset further, as if it were appended anew (H35)."""
    copy_of: Any = cleaner.copy_of

    def displaced(*place: Any) -> Any:
        record, _ = copy_of(*place)
        whole = replace(record.held, block=_block_of(*place)) if isinstance(record.held, Stored) else record.held
        if isinstance(whole, Stored):
            placements = tuple(Placement(each.topic_id, each.first_offset + 1) for each in whole.placements)
            record = Moved(record.source, replace(whole, placements=placements))
        return record, encode(record)

    patch.set(journal, "copy_of", displaced)


def _block_of(held: shelf.Shelf, segment: int, block: cleaner.Block) -> bytes:
    record, _ = decode(unmoved(held.file(segment).read(block.position, block.size_bytes)), with_block=True)
    return bytes(getattr(record, "block", b""))


@bug
def reads_from_segments_that_are_gone(patch: Patch) -> None:
    """The places of an emptied segment are not forgotten when it is unlinked."""
    place = shelf.Shelf._place

    def never(self: shelf.Shelf, totals: index.Totals) -> None:
        if not totals.source:
            place(self, totals)

    patch.set(shelf.Shelf, "_place", never)


@bug
def forgets_a_moved_block_in_the_index(patch: Patch) -> None:
    """The last block of every slice is copied, but nobody notes where."""
    move = journal.Journal._append

    def forgetful(self: journal.Journal, encoded: Any) -> None:
        last = encoded[-1][0]
        if not isinstance(last, Moved):
            move(self, encoded)
            return
        note = shelf.Shelf.note
        with Patch() as inner:
            inner.set(shelf.Shelf, "note", lambda held, record, *at: None if record is last else note(held, record, *at))
            move(self, encoded)

    patch.set(journal.Journal, "_append", forgetful)


@bug
def unlinks_a_segment_after_its_first_slice(patch: Patch) -> None:
    """What does not fit into one slice is taken for moved."""
    take = cleaner.take_slice

    def one_slice(blocks: list[cleaner.Block], bytes_max: int) -> list[cleaner.Block]:
        taken = take(blocks, min(bytes_max, 300))
        blocks.clear()
        return taken

    patch.set(journal, "take_slice", one_slice)

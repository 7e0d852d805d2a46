# SPDX-License-Identifier: Apache-2.0
"""Where a query is, as Spark keeps it: one bookmark per topic, as JSON whose text never differs for the same place (R20).

May not: change its form: checkpoints outlive releases, and Spark compares offsets as text.
The idea: an offset alone could mean another message after a broker was set back to a copy. A bookmark also names the log, the
topic's id, and start and append number of the last message before it, which the broker can check (R1).

    {"log": "…", "topics": {"orders": {"append": 17, "id": 4711, "next": 5000, "start": "…"}}, "v": 1}

Next: subscription.py, which makes and checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from oncemq.core.packets import NOBODY
from oncemq.errors import Diverged, UsageError

VERSION = 1


class Bookmark(msgspec.Struct, frozen=True):
    """A place in one topic: everything below `next_offset` is before it. `append_number` is 0 where nothing is."""

    topic_id: int
    next_offset: int
    start_id: bytes = NOBODY
    append_number: int = 0


class Offsets(msgspec.Struct, frozen=True):
    """A place in every topic of a query."""

    log_id: bytes
    topics: dict[str, Bookmark]

    def to_json(self) -> dict[str, Any]:
        topics = {
            name: {"append": mark.append_number, "id": mark.topic_id, "next": mark.next_offset, "start": mark.start_id.hex()}
            for name, mark in sorted(self.topics.items())
        }
        return {"log": self.log_id.hex(), "topics": topics, "v": VERSION}


class _Mark(msgspec.Struct):
    append: int
    id: int
    next: int
    start: str


class _Document(msgspec.Struct):
    log: str
    topics: dict[str, _Mark]
    v: int


def from_json(document: Mapping[str, Any]) -> Offsets:
    """Read what `to_json` wrote, perhaps by another release; raise UsageError if it is something else."""
    try:
        found = msgspec.convert(dict(document), type=_Document)
        log_id = bytes.fromhex(found.log)
        topics = {
            name: Bookmark(mark.id, mark.next, bytes.fromhex(mark.start), mark.append) for name, mark in found.topics.items()
        }
    except (msgspec.ValidationError, ValueError) as problem:
        raise UsageError(f"this checkpoint holds no offsets of format 'oncemq' ({problem}): use the right one") from problem
    if found.v != VERSION:
        raise UsageError(f"this checkpoint was written by another release (offsets of version {found.v}): use that release")
    return Offsets(log_id, topics)


def check_log(offsets: Offsets, log_id: bytes) -> None:
    if offsets.log_id != log_id:
        raise Diverged("this checkpoint belongs to another broker's log: use the broker it was made with, or a new checkpoint")

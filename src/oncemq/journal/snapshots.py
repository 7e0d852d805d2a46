# SPDX-License-Identifier: Apache-2.0
"""Snapshots: the whole state at the start of a segment, so that a start replays only what came after.

May not: hold anything that was not synced when it was cut (R12); know what the state's bytes mean.
The idea: `snapshot-N` is the state before the first record of `segment-N`. Two are kept: if the newest turns out bad,
the older one and the segments since then give the same state. None at all means refusing to start, because a state
rebuilt from what is left of the journal would have forgotten which puts it has taken.

    snapshot file:  magic 8 · format u32 · crc u32 · log id 16 · segment number u64 · state length u64 · state

Next: recovery.py, which starts from one.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from oncemq.crashpoints import reach
from oncemq.journal.segment import FORMAT, NEW, SNAPSHOTS, file_name, numbers_of, write_new
from oncemq.limits import SNAPSHOTS_KEPT
from oncemq.ports import Disk

_MAGIC = b"ONCEMQSN"
_HEAD = struct.Struct("<8sII16sQQ")


class BadSnapshot(Exception):
    """These bytes are not a snapshot. Internal: the older one is tried."""


def encode_snapshot(log_id: bytes, number: int, state: bytes) -> list[bytes]:
    bare = _HEAD.pack(_MAGIC, FORMAT, 0, log_id, number, len(state))
    return [_HEAD.pack(_MAGIC, FORMAT, crc32c(state, crc32c(bare)), log_id, number, len(state)), state]


def read_snapshot(disk: Disk, log_id: bytes, number: int) -> bytes:
    """Return the state in that snapshot or raise BadSnapshot."""
    file = disk.open(file_name(SNAPSHOTS, number))
    try:
        content = file.read(0, file.size())
    finally:
        file.close()
    state = content[_HEAD.size :]
    if b"".join(encode_snapshot(log_id, number, state)) != content:
        raise BadSnapshot("checksum, or the snapshot of another journal")
    return state


def newest_usable(disk: Disk, log_id: bytes) -> tuple[int, bytes] | None:
    """Return number and state of the newest snapshot that can be believed."""
    for number in reversed(numbers_of(disk.names(), SNAPSHOTS)):
        try:
            return number, read_snapshot(disk, log_id, number)
        except BadSnapshot:
            continue
    return None


def write_snapshot(disk: Disk, log_id: bytes, number: int, state: bytes) -> None:
    """Make a snapshot durable. OSError leaves the directory as it was."""
    name = file_name(SNAPSHOTS, number)
    write_new(disk, name, encode_snapshot(log_id, number, state))
    reach("journal.before_snapshot_rename")
    disk.rename(name + NEW, name)
    disk.sync_names()
    reach("journal.after_snapshot_rename")


def prune(disk: Disk, kept: list[int]) -> list[int]:
    """Remove all snapshots but the newest of `kept`; return those that stay, oldest first."""
    staying = sorted(kept)[-SNAPSHOTS_KEPT:]
    for number in numbers_of(disk.names(), SNAPSHOTS):
        if number not in staying:
            disk.unlink(file_name(SNAPSHOTS, number))
    return staying

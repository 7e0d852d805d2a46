# SPDX-License-Identifier: Apache-2.0
"""Where the journal ended when it was stopped cleanly: the file `clean`.

May not: be needed: a journal without it is one that was not stopped cleanly, or is older than this file.
The idea: what is missing at the end of the newest segment looks like a write that a crash has torn, because nothing behind
it says that more was there. After a clean stop this file does: it names start, segment and end of the last record, all synced
before. It only ever proves that something is missing. Next to a longer journal (an older copy of it, or one that a start had
no time to remove) it says nothing, because a start writes a segment of its own.

    clean file 64:  magic 8 · format u32 · crc u32 · log id 16 · start id 16 · segment number u64 · end u64

Next: recovery.py, which compares.
"""

from __future__ import annotations

import struct
from contextlib import suppress

import msgspec
from crc32c import crc32c

from oncemq.journal.segment import CLEAN, FORMAT, NEW, SegmentHeader, is_full, write_new
from oncemq.ports import Disk

_MAGIC = b"ONCEMQCL"
_ENDING = struct.Struct("<8sII16s16sQQ")
ENDING_BYTES = _ENDING.size


class BadEnding(Exception):
    """These bytes do not say where this journal ended. Internal: a start then goes by the segments alone."""


class Ending(msgspec.Struct, frozen=True):
    """The last record of a clean stop ends at `end` of `segment`, which `start_id` wrote."""

    start_id: bytes
    segment: int
    end: int

    def synced_end(self, header: SegmentHeader) -> int:
        """Return what of the segment with this header is proven: nothing of one that another start wrote."""
        return self.end if (header.number, header.start_id) == (self.segment, self.start_id) else 0


NOWHERE = Ending(bytes(16), 0, 0)
"""What is known if there was no clean stop."""


def encode_ending(log_id: bytes, ending: Ending) -> bytes:
    fields = (log_id, ending.start_id, ending.segment, ending.end)
    return _ENDING.pack(_MAGIC, FORMAT, crc32c(_ENDING.pack(_MAGIC, FORMAT, 0, *fields)), *fields)


def write_ending(disk: Disk, log_id: bytes, ending: Ending) -> None:
    """Make it durable, after all it speaks of. Without space there is none: then nothing but the segments is known."""
    try:
        write_new(disk, CLEAN, [encode_ending(log_id, ending)])
        disk.rename(CLEAN + NEW, CLEAN)
        disk.sync_names()
    except OSError as error:
        if not is_full(error):
            raise


def read_ending(disk: Disk, log_id: bytes) -> Ending:
    """Return where the journal ended, NOWHERE without that file; BadEnding if it is damaged."""
    if CLEAN not in disk.names():
        return NOWHERE
    file = disk.open(CLEAN)
    try:
        content = file.read(0, ENDING_BYTES + 1)
    finally:
        file.close()
    if len(content) == ENDING_BYTES:
        ending = Ending(*_ENDING.unpack(content)[4:])
        # Magic, format, log and checksum are right if the same fields make the same bytes.
        if encode_ending(log_id, ending) == content:
            return ending
    raise BadEnding("checksum, or the file of another journal")


def known_ending(disk: Disk, log_id: bytes) -> Ending:
    """What a start goes by: a damaged file proves nothing, and nobody needs it to start. `oncemq verify` tells of it."""
    try:
        return read_ending(disk, log_id)
    except (BadEnding, OSError):
        return NOWHERE


def forget_ending(disk: Disk) -> None:
    """Remove it, once it says nothing any more. A crash may bring it back: it says nothing then either."""
    with suppress(FileNotFoundError):
        disk.unlink(CLEAN)

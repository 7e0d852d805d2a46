# SPDX-License-Identifier: Apache-2.0
"""Copy a journal to another directory, so that the copy can be opened like the original.

May not: copy a directory that a broker is writing (a copy of moving files is torn); leave a half copy that looks whole.
The idea: the source is locked, every file is copied and synced, and `identity` comes last: a directory without it is
refused by every start, so a backup that was interrupted can never be mistaken for one.
Next: verify.py, to check the copy.
"""

from __future__ import annotations

from oncemq.errors import DirectoryUnusable
from oncemq.journal.recovery import read_identity
from oncemq.journal.segment import IDENTITY, LOCK, NEW, RESERVE
from oncemq.ports import Disk, File

_CHUNK_BYTES = 1024 * 1024


def copy_to(source: Disk, target: Disk) -> int:
    """Copy a stopped broker's journal into an empty directory; return the bytes copied, durable when this returns."""
    if read_identity(source) is None:
        raise DirectoryUnusable(str(source), "there is no journal in it")
    if set(target.names()) - {LOCK}:
        raise DirectoryUnusable(str(target), "a backup needs an empty directory")
    source.lock()
    try:
        names = [name for name in source.names() if name not in (IDENTITY, LOCK, RESERVE) and not name.endswith(NEW)]
        copied = sum(_copy_file(source, target, name) for name in names)
        target.sync_names()
        copied += _copy_file(source, target, IDENTITY)
        target.sync_names()
    finally:
        source.unlock()
    return copied


def _copy_file(source: Disk, target: Disk, name: str) -> int:
    theirs, ours = source.open(name), target.open(name, create=True)
    try:
        size = theirs.size()
        _copy_bytes(theirs, ours, size)
        ours.truncate(size)
        ours.sync()
    finally:
        theirs.close()
        ours.close()
    return size


def _copy_bytes(theirs: File, ours: File, size: int) -> None:
    for position in range(0, size, _CHUNK_BYTES):
        chunk = theirs.read(position, _CHUNK_BYTES)
        # The unused end of a segment is zeros: left out, it takes no space in the copy.
        if chunk.count(0) != len(chunk):
            ours.write(position, [chunk])

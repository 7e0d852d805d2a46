# SPDX-License-Identifier: Apache-2.0
"""Check a client's state directory as verify.py checks a journal: who it is, its outbox, its slots.

May not: write; lock; send anything.
The idea: an outbox is walked as the client does it when it starts; a slot is right if one of its two copies is, because
a torn write leaves the other.
Next: outbox.py and core/slot.py for the formats.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncemq.core.identity import read_identity_file
from oncemq.core.slot import SLOT_BYTES, decode_slot
from oncemq.errors import DirectoryUnusable, JournalDamaged
from oncemq.journal.finding import Finding
from oncemq.journal.outbox import OutboxEntry, check_claims, walk_outbox
from oncemq.journal.segment import HEADER_BYTES, OUTBOXES, decode_segment_header, file_name, numbers_of
from oncemq.model.block import BadBlock, outline_of
from oncemq.ports import Disk, File

IDENTITY, SLOTS = "client.json", "slot-"


def is_state_directory(names: list[str]) -> bool:
    return IDENTITY in names or bool(numbers_of(names, OUTBOXES))


def verify_state(disk: Disk) -> Iterator[Finding]:
    """Yield one finding per file."""
    names = disk.names()
    if IDENTITY in names:
        yield _checked_identity(disk)
    for name in (each for each in names if each.startswith(SLOTS)):
        content = _content(disk, name, SLOT_BYTES)
        is_right = not any(content) or decode_slot(content) is not None
        yield Finding(name, len(content), "" if is_right else "neither of its two copies is right")
    for number in numbers_of(names, OUTBOXES):
        yield _checked_outbox(disk, number)


def _content(disk: Disk, name: str, size_bytes: int) -> bytes:
    file = disk.open(name)
    try:
        return file.read(0, size_bytes)
    finally:
        file.close()


def _checked_identity(disk: Disk) -> Finding:
    content = _content(disk, IDENTITY, 1 << 24)
    try:
        read_identity_file(content, str(disk))
    except DirectoryUnusable as problem:
        return Finding(IDENTITY, len(content), problem.reason)
    return Finding(IDENTITY, len(content))


def _checked_outbox(disk: Disk, number: int) -> Finding:
    name = file_name(OUTBOXES, number)
    file = disk.open(name)
    try:
        return _walked(file, name, number)
    except JournalDamaged as damage:
        return Finding(name, damage.position, damage.reason, damage.position)
    finally:
        file.close()


def _walked(file: File, name: str, number: int) -> Finding:
    head = file.read(0, HEADER_BYTES)
    header = decode_segment_header(head)
    if header is None or header.number != number:
        # A new or reused file gets its name first; a client takes zeros and another number for that, and nothing else.
        return Finding(name, 0, "the header of the segment is wrong" if header is None and any(head) else "")
    walk = walk_outbox(file, header)
    for group in walk:
        for item, position, _ in group.items:
            if isinstance(item, OutboxEntry) and (problem := _problem_of(item)):
                return Finding(name, position, problem, position)
    check_claims(walk, name)
    return Finding(name, walk.position)


def _problem_of(entry: OutboxEntry) -> str:
    try:
        outline_of(entry.block)
    except BadBlock as problem:
        return f"put {entry.first_number} is not a block ({problem})"
    return ""

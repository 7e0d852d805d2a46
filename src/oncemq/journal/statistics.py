# SPDX-License-Identifier: Apache-2.0
"""Numbers of one journal, for people, dashboards and tests.

May not: count anything.
Next: journal.py, which does.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JournalStatistics:
    """Counts since this start, and sizes as they are."""

    segments: int
    active_segment: int
    active_records: int
    size_bytes: int
    index_bytes: int
    reserve_bytes: int
    snapshots: tuple[int, ...]
    groups_appended: int
    bytes_appended: int
    syncs: int
    rolls: int
    tail_records_rewritten: int
    bytes_moved: int
    segments_cleaned: int

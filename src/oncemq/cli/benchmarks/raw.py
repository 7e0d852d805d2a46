# SPDX-License-Identifier: Apache-2.0
"""The floor under `bench put`: the same bytes in the same groups, written and synced with nothing around them.

May not: be kinder to itself than the journal can be: the file's space is allocated beforehand as a segment's is, and each
group is one gathering write and one fdatasync.
The idea: each pass has a new file, kept until the end. Writing over an old one would be cheaper than what a journal does, and
removing one would give the disk work to do during the next measurement.
Next: puts.py, which takes turns with it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from oncemq.adapters.os_disk import OsDisk
from oncemq.journal.segment import GROUP_BYTES


class RawPasses:
    """Timed passes of bare appending in one directory."""

    def __init__(self, directory: Path) -> None:
        self._disk = OsDisk(directory)
        self._passes = 0

    def run(self, size_bytes: int, groups: int) -> float:
        """Append so many bytes in so many groups of the same size, each synced; return the seconds it took."""
        self._passes += 1
        file = self._disk.open(f"pass-{self._passes}", create=True)
        try:
            file.allocate(size_bytes + groups)
            file.sync()
            group = os.urandom(max(size_bytes // groups, GROUP_BYTES + 1))
            parts = [group[:GROUP_BYTES], group[GROUP_BYTES:]]
            started = time.perf_counter()
            for index in range(groups):
                file.write(index * len(group), parts)
                file.sync()
            return time.perf_counter() - started
        finally:
            file.close()

# SPDX-License-Identifier: Apache-2.0
"""Bits that flip at rest on the broker's disk, and an operator who puts them right when somebody complains.

May not: touch the newest segment: damage behind the last proof of a sync cannot be told from a tear (docs/guarantees.md).
The idea: one flipped bit at a time. The broker may refuse to start, or tell Damaged for what it cannot read; it must never hand
out other bytes or forget anything. Whoever is told asks the operator, who restores the byte from a good copy.
Next: sim/swarm.py, which calls; journal/recovery.py and journal/reading.py, which must notice.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from oncemq.journal.segment import SEGMENTS
from oncemq.sim.disk import SimDisk


class Rot:
    """What is rotten on one disk."""

    def __init__(self, disk: SimDisk, random: Random) -> None:
        self._disk = disk
        self._random = random
        self._undo: list[Callable[[], None]] = []
        self.has_struck = False

    def strike(self) -> str:
        """Flip one bit of a file that is not being written; return the file's name, or "" if there is none yet."""
        names = [name for name in self._disk.names() if self._disk.size_of(name)]
        newest = max((name for name in names if name.startswith(SEGMENTS)), default="")
        names = [name for name in names if name != newest]
        if self._undo or not names:
            return ""
        self.has_struck = True
        name = self._random.choice(names)
        position = self._random.randrange(self._disk.size_of(name))
        self._undo.append(self._disk.flip(name, position, 1 << self._random.randrange(8)))
        return name

    def repair(self) -> None:
        """Put right what is rotten."""
        while self._undo:
            self._undo.pop()()

# SPDX-License-Identifier: Apache-2.0
"""What can be recorded for crash images: somebody who works on a tape and knows what was promised when.

May not: excuse a loss, or write to a disk but through the production code that owns it.
The idea: a subject works on a tape and marks what it could promise by then; afterwards it is asked whether what recovery finds on
an image keeps that promise.
Next: sim/subject_journal.py and sim/subject_client.py for the three there are; sim/images.py, which takes the images.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from random import Random
from typing import Protocol

from oncemq.model.block import cut_block
from oncemq.sim.tape import Tape

LOG_ID = b"L" * 16
RECOVERIES = 100
"""Starts of a recorded run are counted from 1, those after it from here."""


class Subject(Protocol):
    """Somebody who works on a tape and can tell whether an image keeps what was promised."""

    tells_at_once: bool
    """What a start has found may be told to anybody, so no power cut may take it away any more."""

    def work(self, tape: Tape) -> None:
        """Do something on an empty tape, and mark promises."""

    def recover(self, tape: Tape, life: int) -> Hashable:
        """Open what is there with the production code, as after a crash, and return all that was found.

        The same disk and the same life after the run give the same.
        """

    def judge(self, found: Hashable, promise: int, *, is_cache: bool) -> None:
        """Raise Broken unless that keeps the promise; `is_cache`: nothing was lost but the process."""

    def go_on(self) -> Hashable:
        """Do one more thing durably with what was recovered last, and return what must be found from then on."""


class Broken(Exception):
    """A promise was not kept."""


def draw_block(random: Random, text: bytes) -> bytes:
    """A block of one message, of a size that fits into a sector, or not, or not into a page of three."""
    size = random.choice((0, 0, 40, 40, 300, 300, 700, 1500))
    return bytes(cut_block([text + random.randbytes(size)], array("q", [1])))

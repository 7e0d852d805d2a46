# SPDX-License-Identifier: Apache-2.0
"""Which island of the overlay a node belongs to, so that two nodes that meet can tell whether there is a split.

May not: be asked for more than that: for a moment after a node died, its island has several names.
The idea: every node draws a number at its start; the smallest one that heartbeats carry around is the name of the island. Its
node counts beats, which tell that it lives: a name whose beat stands still is dropped, and never believed again. Views alone
cannot tell: two halves whose places are all taken look healthy, each for itself.
Next: hyparview.py, which compares the names when a probe is answered.
"""

from __future__ import annotations

from oncemq.mesh.dice import link_number
from oncemq.ports import Dice

SILENT_HEARTBEATS = 30
"""A name is dropped after so many heartbeats without a new beat: more than any way through an overlay of any size."""

SETTLED_HEARTBEATS = 10
"""A name that is younger is not compared: while names change, every two nodes seem to be of different islands."""
UNSETTLED = 0


class Island:
    def __init__(self, heartbeat_ms: int, dice: Dice) -> None:
        self.number = self._own = link_number(dice) + 1  # Never UNSETTLED.
        self.beat = 0
        self._own_beat = 0
        self._timeout_ms = SILENT_HEARTBEATS * heartbeat_ms
        self._settled_ms = SETTLED_HEARTBEATS * heartbeat_ms
        self._since_ms = 0
        self._heard_ms = 0
        self._dropped = (-1, 0)

    def tick(self, now_ms: int) -> None:
        """Once per heartbeat."""
        self._own_beat += 1
        if self.number == self._own:
            self.beat, self._heard_ms = self._own_beat, now_ms
        elif now_ms - self._heard_ms >= self._timeout_ms:
            self._dropped = (self.number, self.beat)
            self._rename(now_ms, self._own, self._own_beat)

    def hear(self, now_ms: int, number: int, beat: int) -> None:
        """A neighbour names its island."""
        is_old = number == self._dropped[0] and beat <= self._dropped[1]
        is_news = number < self.number or (number == self.number and beat > self.beat)
        if is_news and not is_old and number != self._own:
            self._rename(now_ms, number, beat)

    def _rename(self, now_ms: int, number: int, beat: int) -> None:
        if number != self.number:
            self._since_ms = now_ms
        self.number, self.beat, self._heard_ms = number, beat, now_ms

    def name(self, now_ms: int) -> int:
        """The name of our island, as told to others; UNSETTLED while it may still change."""
        return self.number if now_ms - self._since_ms >= self._settled_ms else UNSETTLED

    def differs(self, now_ms: int, name: int) -> bool:
        """Whether somebody is surely of another island."""
        return UNSETTLED not in (name, self.name(now_ms)) and name != self.number

# SPDX-License-Identifier: Apache-2.0
"""The search for neighbours: whom to ask next, how often, and when to pause.

May not: ask anybody itself.
The idea: a search is a row of asks in which nobody is asked twice: hints first, then the passive view, then the cold list when
the reserve is used up. It ends when all places are filled, when nobody is left, or after a few refusals: then everybody is full,
and asking on would be spinning (n x 5 odd leaves one place empty for ever). It begins again after a pause, doubled each time:
the second search offers a swap where two places are free, the third does not mind triangles (small meshes need them).
Next: hyparview.py, which asks.
"""

from __future__ import annotations

from collections import deque

from oncemq.mesh.dice import jittered, pick
from oncemq.mesh.packets import Address
from oncemq.mesh.reserve import Reserve
from oncemq.mesh.settings import MeshSettings
from oncemq.ports import Dice

HINTS_MAX = 16
"""Hints kept in one search."""


class Search:
    def __init__(self, settings: MeshSettings, dice: Dice) -> None:
        self.paused_until_ms: int | None = None
        self.fruitless = 0
        """Searches in a row that ended without filling all places."""
        self._settings = settings
        self._dice = dice
        self._hints: deque[Address] = deque(maxlen=HINTS_MAX)
        self._tried: dict[Address, None] = {}
        self._refusals = 0
        self._is_waiting = False
        self.is_urgent = False

    @property
    def is_strict(self) -> bool:
        return self.fruitless < 2

    def hint(self, address: Address) -> None:
        """Somebody may have a place. Added to the search, instead of replacing it."""
        if address:
            self._hints.appendleft(address)

    def begin(self, *, excluding: Address = "", is_urgent: bool = False) -> None:
        """A neighbour went: whoever refused before may have a place now. Whoever dropped us is not asked at once.

        It is urgent if the neighbour died: in a crash wave those who refuse do not know yet that they are not full.
        """
        if not (is_urgent and self.is_urgent):  # Of one crash wave: whoever refused a moment ago would do so again.
            self._tried.clear()
            self._refusals, self.fruitless = 0, 0
        self.is_urgent = is_urgent
        self.paused_until_ms, self._is_waiting = None, False
        if excluding:
            self._tried[excluding] = None

    def end(self) -> None:
        """All places are filled."""
        self.begin()
        self._hints.clear()

    def resume(self) -> None:
        """The pause is over."""
        self._tried.clear()
        self._refusals, self.paused_until_ms, self._is_waiting = 0, None, False

    def wait(self, now_ms: int) -> None:
        """Others are looking for us: give them a moment."""
        self.paused_until_ms = now_ms + self._settings.ask_timeout_ms
        self._is_waiting = True

    def wake(self, reserve: Reserve) -> None:
        """Ids that are news end a pause that began because there was nobody left to ask."""
        is_starved = self._refusals < self._settings.refusals_max and not self._is_waiting
        if is_starved and any(each not in self._tried for each in reserve.passive.ids):
            self.paused_until_ms = None

    def refused(self) -> None:
        self._refusals += 1

    def is_tried(self, address: Address) -> bool:
        return address in self._tried

    def tries(self, address: Address) -> None:
        self._tried[address] = None

    def next_hint(self) -> Address | None:
        """Hints are better than guesses, but every refusal brings one: they come to an end too."""
        while self._hints and self._refusals < 2 * self._settings.refusals_max:
            address = self._hints.popleft()
            if address not in self._tried:
                return address
        return None

    def next_known(self, reserve: Reserve) -> Address | None:
        """A random one of those not tried yet; None when the search is fruitless."""
        if self._refusals >= self._settings.refusals_max:
            return None
        tried = self._tried
        fit = [each for each in reserve.passive.ids if each not in tried]
        return pick(self._dice, fit) if fit else reserve.cold.spare(tried, reserve.quarantine)

    def escalates(self, missing: int) -> bool:
        """All refused us in a crash wave, and one neighbour is left: offer a swap at once. Whom they drop may well be dead."""
        is_nearly_alone = missing >= self._settings.active - 1
        if not (self.is_urgent and is_nearly_alone and self._tried and not self.fruitless):
            return False
        self.resume()
        self.fruitless, self.is_urgent = 1, False
        return True

    def pause(self, now_ms: int) -> None:
        """Nobody is left to ask. A search in which nobody could be asked says nothing about the others."""
        self.fruitless += bool(self._tried)
        pause_ms = min(self._settings.backoff_ms << min(max(self.fruitless - 1, 0), 20), self._settings.backoff_ms_max)
        self.paused_until_ms = now_ms + jittered(self._dice, pause_ms)

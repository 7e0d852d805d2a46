# SPDX-License-Identifier: Apache-2.0
"""The space of sim/explore.py: its bounds, its values as small numbers, and which of its states cannot reach a goal.

May not: know the product.
Next: sim/explore.py, which searches it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may go wrong in one history, and what is put."""

    messages: tuple[tuple[str, ...], tuple[str, ...]] = (("a1", "a2"), ("b1",))
    crashes: int = 2
    drops: int = 1
    copies: int = 0
    drain_packets: int = 1

    @property
    def total(self) -> int:
        return sum(map(len, self.messages))

    def __str__(self) -> str:
        faults = f"{self.crashes} crashes, {self.drops} losses, {self.copies} late copies"
        return f"{self.total} messages, {faults}, {self.drain_packets} packets in a drain"


DEFAULT = (Bounds(), Bounds(crashes=1, drops=0, copies=1, drain_packets=2))
"""What `oncemq sim --explore` searches, in less than a minute: deaths and losses; a death, copies and shared syncs."""


@dataclass(frozen=True, slots=True)
class Explored:
    """What a search found; `witness` is the way to the first violation, event by event."""

    bounds: Bounds
    states: int
    transitions: int
    violation: str
    witness: list[str]


class Numbers:
    """Gives every value a number, and remembers what was worked out for numbers."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[tuple[Hashable, ...], Any] = {}

    def __call__(self, value: Hashable) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number

    def once(self, function: Callable[..., Any], *arguments: Hashable) -> Any:
        """The same arguments always give the same: ask only the first time."""
        key = (function, *arguments)
        if key not in self._known:
            self._known[key] = function(*arguments)
        return self._known[key]


def cannot_reach(goals: list[int], edges: array[int], count: int) -> list[int]:
    """States from which no goal can be reached over these edges (source, target, source, target ...)."""
    before: list[list[int]] = [[] for _ in range(count)]
    for at in range(0, len(edges), 2):
        before[edges[at + 1]].append(edges[at])
    reached = bytearray(count)
    waiting = list(goals)
    while waiting:
        number = waiting.pop()
        if not reached[number]:
            reached[number] = 1
            waiting.extend(before[number])
    return [number for number in range(count) if not reached[number]]

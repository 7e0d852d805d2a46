# SPDX-License-Identifier: Apache-2.0
"""Random picks out of ports.Dice.

May not: draw from anything but the dice handed in: a seed must replay to the byte.
Next: views.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from oncemq.ports import Dice

Item = TypeVar("Item")


def pick(dice: Dice, items: Sequence[Item]) -> Item:
    """Return one of the items, of which there must be one."""
    return items[int(dice.random() * len(items))]


def sample(dice: Dice, items: Iterable[Item], count: int) -> list[Item]:
    """Return up to `count` of the items, in random order."""
    pool = list(items)
    size, draw = len(pool), dice.random
    for index in range(min(count, size)):
        other = index + int(draw() * (size - index))
        pool[index], pool[other] = pool[other], pool[index]
    del pool[count:]
    return pool


def jittered(dice: Dice, duration_ms: int) -> int:
    """The duration, up to a fifth more or less: timers that fire together make bursts."""
    return max(1, int(duration_ms * (0.8 + 0.4 * dice.random())))


def link_number(dice: Dice) -> int:
    """A number for a new link that nobody else has drawn."""
    return int(dice.random() * 2**53)

# SPDX-License-Identifier: Apache-2.0
"""A smaller world of the same seed: fewer people, fewer messages, fewer faults. What shrinking tries, and what people type.

May not: add anything that the seed did not draw.
The idea: a cut says which numbers of the plan are lowered, which faults of the line are off, and which strikes are left.

    publishers=1,messages=6,off=loss+late,strikes=2+5

Next: sim/shrink.py, which looks for the smallest cut; sim/swarm.py, which lives with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncemq.sim.plan import Plan

LOWEST = {
    "messages": 1,
    "publishers": 1,
    "subscribers": 1,
    "wanderers": 0,
    "stagers": 0,
    "listeners": 0,
    "relays": 0,
    "ledgers": 0,
    "receivers": 0,
    "keepers": 0,
    "callers": 0,
    "topics": 1,
    "batch_max": 2,
    "sync_us_max": 0,
}
"""What can be lowered, and how far."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What is left of a world. Nothing said: all of it."""

    numbers: tuple[tuple[str, int], ...] = ()
    off: tuple[str, ...] = ()
    strikes: tuple[int, ...] | None = None
    """Which of the drawn faults strike, by their number; None: all."""

    def keeps(self, strike: int) -> bool:
        return self.strikes is None or strike in self.strikes

    def of(self, plan: Plan) -> Plan:
        """The plan, cut down."""
        numbers = dict(self.numbers)
        topics = plan.topics[: numbers.pop("topics", len(plan.topics))]
        lowered = {name: min(number, getattr(plan, name)) for name, number in numbers.items()}
        rates = {name: 0.0 if name in self.off else rate for name, rate in plan.rates.items()}
        return replace(plan, topics=topics, rates=rates, **lowered)

    def with_number(self, name: str, number: int) -> Cut:
        return replace(self, numbers=tuple(sorted((dict(self.numbers) | {name: number}).items())))

    def __str__(self) -> str:
        pieces = [f"{name}={number}" for name, number in self.numbers]
        if self.off:
            pieces.append(f"off={'+'.join(self.off)}")
        if self.strikes is not None:
            pieces.append(f"strikes={'+'.join(map(str, self.strikes)) or 'none'}")
        return ",".join(pieces)


def read_cut(text: str) -> Cut:
    """Read what `str` makes of a cut; ValueError if it is something else."""
    cut = Cut()
    for piece in filter(None, text.split(",")):
        name, _, value = piece.partition("=")
        if name == "off":
            cut = replace(cut, off=tuple(value.split("+")))
        elif name == "strikes":
            cut = replace(cut, strikes=() if value == "none" else tuple(map(int, value.split("+"))))
        elif name in LOWEST and int(value) >= LOWEST[name]:
            cut = cut.with_number(name, int(value))
        else:
            raise ValueError(piece)
    return cut

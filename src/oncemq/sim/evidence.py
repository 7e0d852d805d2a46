# SPDX-License-Identifier: Apache-2.0
"""A history as judges want it: events by what they say, in order, each with its number; read once for all judges.

May not: import the product, or judge.
Next: sim/checkers.py and sim/once.py, who ask; docs/history.md for the events.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from itertools import chain
from operator import itemgetter

from oncemq.sim.forks import Event, Forks

Place = tuple[str, int]
"""(topic id as text, offset)."""
Step = tuple[int, Event]
"""An event and its number in the history."""

SEEN = ("log", "deliver", "received", "doubted")
"""Events that show a stored message: in the log at the end, handed out, received, or looked at while in doubt."""


def place_of(event: Event) -> Place:
    return event["topic_id"], event["offset"] or 0  # type: ignore[return-value]


class Evidence:
    """One history."""

    def __init__(self, events: list[Event]) -> None:
        self._steps: dict[str, list[Step]] = defaultdict(list)
        steps = self._steps
        for index, event in enumerate(events):
            steps[event["op"]].append((index, event))  # type: ignore[index]

    def steps(self, *operations: str) -> list[Step]:
        """All events of these operations, whatever their kind, in order."""
        found = [self._steps[operation] for operation in operations if operation in self._steps]
        return found[0] if len(found) == 1 else sorted(chain.from_iterable(found), key=itemgetter(0))

    def of(self, operation: str, kind: str = "ok") -> list[Event]:
        """Events of one operation and kind."""
        return [event for _, event in self._steps.get(operation, ()) if event["kind"] == kind]

    @cached_property
    def log(self) -> dict[Place, str]:
        """What is stored at the end."""
        return {place_of(event): str(event["message"]) for event in self.of("log")}

    @cached_property
    def shown(self) -> dict[Place, str]:
        """What is stored at the end, and all that anybody was shown or told to be stored before."""
        told = (event for _, event in self.steps("put", *SEEN) if event["kind"] == "ok" and event["offset"] is not None)
        return self.log | {place_of(event): str(event["message"]) for event in told}

    @cached_property
    def lows(self) -> dict[str, int]:
        """Where each topic begins at the end."""
        return {str(event["topic_id"]): int(event["low"] or 0) for event in self.of("end")}

    @cached_property
    def is_read(self) -> bool:
        """Whether the logs were read at the end: then a topic that does not end anywhere is gone."""
        return bool(self.lows or self.of("topics"))

    @cached_property
    def left(self) -> set[str]:
        """Topics that somebody left, or tried to. One that only subscriptions kept alive goes with the last of them."""
        return {str(event["topic_id"]) for _, event in self.steps("unsubscribe")}

    def has_gone(self, topic: object) -> bool:
        """Whether a topic is gone that had no reason to go."""
        return self.is_read and topic not in self.lows and topic not in self.left

    @cached_property
    def limited(self) -> set[str]:
        """Topics that a limit may cut off."""
        return {str(event["topic_id"]) for event in self.of("end") if event["is_limited"]}

    @cached_property
    def fleeting(self) -> set[str]:
        """Topics of which something may go that nobody has read: a limit may take it, or nobody ever subscribed."""
        heard = {str(event["topic_id"]) for event in self.of("subscribe")}
        unkept = {str(event["topic_id"]) for event in self.of("end") if event.get("is_kept") is False}
        return self.limited | (unkept - heard)

    @cached_property
    def invoked(self) -> dict[str, int]:
        """Every message that was ever put, and when last."""
        return {str(event["message"]): index for index, event in self.steps("put") if event["kind"] == "invoke"}

    @cached_property
    def forks(self) -> Forks:
        return Forks(self.steps(*Forks.OPERATIONS) if "set_back" in self._steps else [])

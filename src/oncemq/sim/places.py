# SPDX-License-Identifier: Apache-2.0
"""Judge of cursors: the broker's is never ahead of what the application has finished, and neither goes back.

May not: import the product, or excuse anything.
The idea: an application finishes what it was handed by calling again, by leaving a block, or by committing; just before that it
says so. Whatever a broker then holds must be within it. What is finished is never in doubt again, unless the machine lost
its power; and even then never below what the broker was told. A directory that was set back takes back what came after its copy.
Next: sim/cursors.py for who sees cursors, sim/checkers.py for the other laws.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter

from oncemq.sim.evidence import Evidence
from oncemq.sim.forks import BROKER, Event

Lane = tuple[str, str]
"""Subscription and topic id."""


@dataclass(slots=True)
class _Lane:
    """What is known of the two places of one subscription."""

    seen: list[tuple[int, str, int]] = field(default_factory=list)
    """When the broker was seen to have which cursor, of which subscription id."""
    most: int = 0
    """Below this all may be acknowledged."""
    called: tuple[int, int] = -1, 0
    """When the application called last, and where it was then: finished as soon as something is handed out."""
    least: int = 0
    """Below this all is finished for good."""

    @property
    def cursor(self) -> int:
        return self.seen[-1][2] if self.seen else 0

    def forget(self) -> None:
        """Nobody knows any more what is finished for good."""
        self.called, self.least = (-1, 0), 0


_OF_PLACES = ("cursor", "done", "leaving", "missed", "in_doubt", "repeat", "crash", "set_back", "told", "start_over")


def cursors(evidence: Evidence) -> Iterator[str]:
    """S13: at each instant the broker's cursor is at most the client's place, and neither goes back."""
    if not evidence.of("cursor"):
        return  # Nobody looked.
    lanes: dict[Lane, _Lane] = defaultdict(_Lane)
    for index, event in evidence.steps(*_OF_PLACES):
        key = str(event.get("subscription")), str(event.get("topic_id"))
        match event["op"]:
            case "cursor":
                yield from _moved(lanes[key], key, index, event)
            case "done":
                _finished(lanes[key], index, int(event["end"] or 0))
            case "leaving":
                lanes[key].most = max(lanes[key].most, int(event["offset"] or 0) + 1)
            case "missed":
                lanes[key].most = max(lanes[key].most, int(event["end"] or 0))
            case "in_doubt":
                yield from _doubted(evidence, lanes[key], key, (index, int(event["first"] or 0)))
            case "repeat":
                lanes[key].forget()
            case _:
                _forget(lanes, event)


def _moved(lane: _Lane, key: Lane, index: int, event: Event) -> Iterator[str]:
    """A cursor is seen for the first time, or at another place."""
    cursor, subscription_id = int(event["cursor"] or 0), str(event["subscription_id"])
    if not lane.seen or lane.seen[-1][1] != subscription_id:  # Another one of the same name: it begins where it was told to.
        lane.most = int(event["start"] or 0)
        lane.forget()
    elif cursor < lane.cursor:
        yield f"the cursor of {key} went back from {lane.cursor} to {cursor}"
    if cursor > lane.most:
        yield f"the cursor of {key} is at {cursor}, and no more than {lane.most} is finished"
    lane.seen.append((index, subscription_id, cursor))


def _finished(lane: _Lane, index: int, end: int) -> None:
    """The application is about to call again. It would not, had its last call not handed something out: that has finished."""
    lane.least = lane.called[1]
    lane.called = index, end
    lane.most = max(lane.most, end)


def _doubted(evidence: Evidence, lane: _Lane, key: Lane, at: tuple[int, int]) -> Iterator[str]:
    """The client is back, at that place: what it was handed from there on may be finished or not."""
    index, first = at
    if not evidence.forks.was_touched(key[0], index):
        least = lane.called[1] if _was_handed_since(evidence, lane.called[0], key, index) else lane.least
        if lane.cursor > first:
            yield f"{key} is at {first} again, and its cursor is at {lane.cursor}"
        if first < least:
            yield f"{key} went back to {first}, and up to {least} was finished"
    lane.most = max(first, lane.cursor)
    lane.called = index, first  # Whatever it had called for, it died in that call.


def _was_handed_since(evidence: Evidence, called: int, key: Lane, index: int) -> bool:
    """Whether the call that began then has handed something out."""
    steps = evidence.steps("deliver")
    since = islice(steps, bisect_left(steps, called, key=itemgetter(0)), bisect_left(steps, index, key=itemgetter(0)))
    return any((event["subscription"], event["topic_id"]) == key for _, event in since)


def _forget(lanes: dict[Lane, _Lane], event: Event) -> None:
    """Somebody lost what he remembered, or a part of it; or goes on in a way that need not remember."""
    if event["op"] == "set_back" and event["name"] == BROKER:
        for lane in lanes.values():
            lane.seen = [entry for entry in lane.seen if entry[0] < int(event["copied"] or 0)]
            lane.most = max(lane.most, lane.cursor)
            lane.forget()
    elif event["op"] != "crash" or event.get("power_cut"):
        for (name, _), lane in lanes.items():
            if name in {event.get("name"), event["process"]}:
                lane.forget()

# SPDX-License-Identifier: Apache-2.0
"""Judges of those who wait: who lost the broker finds it again in time (L2), and every subscription makes progress (L4).

May not: import the product, or take a wait for a crime while something stood in its way.
The idea: calm is a span of time in which nothing stands in somebody's way: the broker is up, its disk has room and is whole, and
no packet from or to that client was lost, repeated or late. A wait is judged by the longest calm in it. Simulated time makes
that exact: nobody is slow there because his machine is.
Next: sim/asking.py, which notes the waits; sim/swarm.py, which notes what stands in the way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from oncemq.sim.evidence import Evidence
from oncemq.sim.forks import BROKER, Event

LONGEST_TRY_US = 6_000_000
"""A Get that waits at the broker (GET_PARK_MS) and is given up after REQUEST_TIMEOUT_MS, doubled with every try. This is also two
heartbeat timeouts of a listener (LIVE_SILENCE_MS)."""
LONGEST_PAUSE_US = 2_000_000
"""Between two tries: BACKOFF_MS_MAX."""
BOUND_US = LONGEST_TRY_US + LONGEST_PAUSE_US
"""What is under way when calm begins may be lost, and is given up after its time; what is asked behind the pause is answered."""

_WORLD = ("up", "down", "fault", "freed", "rot", "repaired")
_BEGINS = {"down": "down", "rot": "rotten"}
_ENDS = {"up": "down", "freed": "full", "repaired": "rotten"}
"""What stands in everybody's way, and the events with which it begins and ends."""


def reconnect(evidence: Evidence) -> Iterator[str]:
    """L2: in calm every call is answered in time, over as many tries as that takes; and nobody is told that nobody answers."""
    weather = _Weather(evidence)
    for event in evidence.of("unanswered"):
        since_us, until_us = int(event["since"] or 0), int(event["t"] or 0)
        calm_us = weather.longest_calm_us(str(event["process"]), since_us, until_us)
        if calm_us > BOUND_US:
            yield f"{_who(event)} had no answer from {since_us} to {until_us}, {calm_us} us of which were calm"
    for event in evidence.of("away", "info"):
        at_us = int(event["t"] or 0)
        calm_us = min(weather.calm_at_us(str(event["process"]), at_us), at_us - int(event.get("active") or 0))
        if calm_us > BOUND_US:
            yield f"{_who(event)} was told at {event['t']} that nobody answers ({event['name']}), after {calm_us} us of calm"


def progress(evidence: Evidence) -> Iterator[str]:
    """L4: in calm whoever asks for a topic in which something is new to him is handed something, or told something, in time."""
    weather = _Weather(evidence)
    for event in evidence.of("in_vain"):
        until_us = int(event["until"] or 0)
        is_short = until_us - int(event["since"] or 0) <= BOUND_US
        there_us = None if is_short else _there_from_us(evidence, event, until_us)
        if there_us is None:
            continue
        since_us = max(there_us, int(event["since"] or 0))
        calm_us = weather.longest_calm_us(str(event["process"]), since_us, until_us)
        if calm_us > BOUND_US:
            lane = f"{event['start']} and behind of topic {event['topic_id']}"
            yield f"{_who(event)} asked in vain for {lane} from {since_us} to {until_us}, {calm_us} us of which were calm"


def _there_from_us(evidence: Evidence, event: Event, until_us: int) -> int | None:
    """Since when a message is confirmed that the asker has not been handed; None if there was none by then.

    At a broker that was set back, only what was confirmed since is sure to be there.
    """
    back = [int(entry["t"] or 0) for entry in evidence.of("set_back") if entry["name"] == BROKER]
    valid_us = max((at_us for at_us in back if at_us <= until_us), default=-1)
    wanted, start = event["topic_id"], int(event["start"] or 0)
    for put in evidence.of("put"):
        is_there = put["stored"] and put["topic_id"] == wanted and put["offset"] is not None and int(put["offset"]) >= start
        if is_there and valid_us < int(put["t"] or 0) <= until_us:
            return int(put["t"] or 0)
    return None


def _who(event: Event) -> str:
    return f"{event['process']} (life {event['life']})"


class _Weather:
    """What stood in whose way when."""

    def __init__(self, evidence: Evidence) -> None:
        self._storms = list(_storms(evidence))
        self._harmed: dict[str, list[int]] = defaultdict(list)
        for event in evidence.of("harmed"):
            self._harmed[str(event["name"])].append(int(event["t"] or 0))

    def calm_at_us(self, process: str, at_us: int) -> int:
        """How long it had been calm for a process by then."""
        for begin_us, end_us in reversed(self._storms):
            if begin_us <= at_us:
                calm_since_us = end_us
                break
        else:
            calm_since_us = 0
        harmed = self._harmed.get(process, [])
        before = bisect_right(harmed, at_us)
        return at_us - max(calm_since_us, harmed[before - 1] if before else 0)

    def longest_calm_us(self, process: str, since_us: int, until_us: int) -> int:
        """The longest calm that a process had within a span."""
        harmed = self._harmed.get(process, [])
        spots = [(at_us, at_us) for at_us in harmed[bisect_right(harmed, since_us) : bisect_right(harmed, until_us)]]
        longest_us, calm_since_us = 0, since_us
        for begin_us, end_us in sorted([*self._storms, *spots, (until_us, until_us)]):
            if begin_us <= until_us:
                longest_us = max(longest_us, begin_us - calm_since_us)
                calm_since_us = max(calm_since_us, end_us)
        return longest_us


def _storms(evidence: Evidence) -> Iterator[tuple[int, int]]:
    """Spans in which something stood in everybody's way. A history begins before any broker is up."""
    reasons, begun_us = {"down"}, 0
    for _, event in evidence.steps(*_WORLD):
        at_us, was_calm = int(event["t"] or 0), not reasons
        _change(reasons, event)
        if was_calm and reasons:
            begun_us = at_us
        elif reasons == set() and not was_calm:
            yield begun_us, at_us
    if reasons:
        yield begun_us, 2**63


def _change(reasons: set[str], event: Event) -> None:
    operation = str(event["op"])
    if operation == "fault" and event["name"] == "disk_full":
        reasons.add("full")
    elif operation in _BEGINS and event.get("name") != "":  # A bit that could not flip has done no harm.
        reasons.add(_BEGINS[operation])
    elif operation in _ENDS:
        reasons.discard(_ENDS[operation])

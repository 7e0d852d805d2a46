# SPDX-License-Identifier: Apache-2.0
"""What a run comes to: the judges of the simulator over the merged history, and the figures people ask for.

May not: look anywhere but into the history; excuse anything.
The idea: the laws are sim/checkers.py's, the same as for simulated worlds. Besides them, messages are simply counted: of every
message known to be stored, did every subscription get it, and how often?
Next: docs/history.md for the events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from oncemq.cli.torturing.roles import DAMAGED
from oncemq.sim.checkers import check
from oncemq.sim.history import Event

_WITNESSES = 5
Lane = tuple[str, str]
"""(subscription, topic id)."""


class Verdict(msgspec.Struct, frozen=True):
    """The figures of one run."""

    put: int
    confirmed: int
    delivered: int
    in_doubt: int
    lost: int
    twice: int
    confirmed_but_missing: int
    told_damaged: int
    violations: dict[str, list[str]]


def judge(events: list[Event]) -> Verdict:
    found = check(events)
    counts = deliveries_of(events).values()
    lost, twice = sum(row["lost"] for row in counts), sum(row["twice"] for row in counts)
    return Verdict(
        put=_count(events, "put", "invoke"),
        confirmed=len({event["message"] for event in events if event["op"] == "put" and event["kind"] == "ok"}),
        delivered=_count(events, "deliver", "ok"),
        in_doubt=sum(end - first for *_, first, end in _doubts(events)),
        lost=lost,
        twice=twice,
        confirmed_but_missing=len([*found.get("lost-write", ()), *found.get("lost-accept", ())]),
        told_damaged=sum(event.get("name") == DAMAGED for event in events),
        violations={law: witnesses[:_WITNESSES] for law, witnesses in found.items()},
    )


def _count(events: Iterable[Event], operation: str, kind: str) -> int:
    return sum(event["op"] == operation and event["kind"] == kind for event in events)


def _doubts(events: list[Event]) -> set[tuple[Lane, int, int, int]]:
    """Every span that was told in doubt, once for each life that was told it."""
    told = (event for event in events if event["op"] == "in_doubt")
    return {(_lane(event), _number(event, "life"), _number(event, "first"), _number(event, "end")) for event in told}


def deliveries_of(events: list[Event]) -> dict[str, dict[str, int]]:
    """Of each subscription: got, in doubt, stored messages it never got, and those it got again without having asked for that."""
    starts: dict[Lane, int] = {}
    got: dict[Lane, set[int]] = defaultdict(set)
    held: dict[Lane, set[int]] = defaultdict(set)
    """Got, and not asked for again since."""
    stored: dict[str, set[int]] = defaultdict(set)
    counts: dict[str, dict[str, int]] = defaultdict(lambda: {"got": 0, "lost": 0, "twice": 0, "in_doubt": 0})
    for event in events:
        match event["op"], event["kind"]:
            case "subscribe", "ok":
                starts.setdefault(_lane(event), _number(event, "start"))
            case "unsubscribe", "ok":
                starts.pop(_lane(event), None)  # Whoever leaves wants nothing more.
            case "repeat", "ok":
                held[_lane(event)] -= set(range(_number(event, "first"), _number(event, "end")))
            case "deliver", "ok":
                lane, offset = _lane(event), _number(event, "offset")
                counts[lane[0]]["got"] += 1
                counts[lane[0]]["twice"] += offset in held[lane]
                held[lane].add(offset)
                got[lane].add(offset)
        if event["op"] in {"put", "log", "deliver"} and event["kind"] == "ok" and event.get("offset") is not None:
            stored[str(event["topic_id"])].add(_number(event, "offset"))
    for lane, start in starts.items():
        counts[lane[0]]["lost"] += sum(offset >= start for offset in stored[lane[1]] - got[lane])
    for (subscription, _), _, first, end in _doubts(events):
        counts[subscription]["in_doubt"] += end - first
    return counts


def _lane(event: Event) -> Lane:
    return str(event["subscription"]), str(event["topic_id"])


def _number(event: Event, name: str) -> int:
    return int(event[name] or 0)

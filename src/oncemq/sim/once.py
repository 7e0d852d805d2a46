# SPDX-License-Identifier: Apache-2.0
"""Judges of applications that work by a place kept elsewhere, at the broker or in their database: every effect once, in order.

May not: import the product, or excuse anything.
The idea: what an application owes is every message of its topic from its start on, but for those it was told are gone. What it
has done must be that: nothing left out, nothing twice, in that order. Where the broker was set back only the log at the end
says what was; whoever had seen more must have been told, and have begun anew.
Next: sim/checkers.py for the other laws; sim/relay.py, sim/ledger.py and sim/receivers.py for who is judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncemq.sim.evidence import Evidence, place_of
from oncemq.sim.forks import Event

Key = tuple[str, str]
"""Subscription and topic id."""
RELAYED = "relayed "


def relayed(evidence: Evidence) -> Iterator[str]:
    """G6: whoever consumes and produces in transactions produces once for each message, in their order."""
    ways = {(str(e["process"]), str(e["topic_id"]), int(e["start"] or 0)) for e in evidence.of("relaying")}
    for process, topic, start in sorted(ways):
        found = [text.removeprefix(RELAYED) for _, text in sorted(evidence.log.items()) if text.startswith(RELAYED)]
        yield from _compared(evidence, f"messages that {process} produced", found, _owed(evidence, process, topic, start))


def effects(evidence: Evidence) -> Iterator[str]:
    """G5: whoever keeps its place in its database has one effect for each message, in their order."""
    booking = {(str(e["process"]), str(e["topic_id"]), int(e["start"] or 0)) for e in evidence.of("booking")}
    for process, topic, start in sorted(booking):
        rows = [event for event in evidence.of("effect") if event["process"] == process]
        found = [str(event["message"]) for event in rows]
        yield from _compared(evidence, f"effects of {process}", found, _owed(evidence, process, topic, start))
        for event in rows:
            if "topic_id" not in event:
                continue  # A table of the application's own need not keep places.
            place = place_of(event)
            if place[1] >= evidence.lows.get(topic, 0) and evidence.log.get(place, event["message"]) != event["message"]:
                yield f"{process} has an effect of {event['message']} at {place}, where the log has {evidence.log[place]}"


def _owed(evidence: Evidence, process: str, topic: str, start: int) -> list[str]:
    """Every message of a topic that this process had to do: shown or told to anybody, and not told to be gone."""
    shown = evidence.log if evidence.forks.broker else evidence.shown
    missed = [(int(e["first"] or 0), int(e["end"] or 0)) for e in evidence.of("missed") if e["process"] == process]
    places = sorted(place for place in shown if place[0] == topic and place[1] >= start)
    return [shown[place] for place in places if not any(first <= place[1] < end for first, end in missed)]


def _compared(evidence: Evidence, what: str, found: list[str], owed: list[str]) -> Iterator[str]:
    """What is found is what is owed; besides it there may be what nobody was shown before it was trimmed, but once."""
    owing = set(owed)
    done = [text for text in found if text in owing]
    if done != owed:
        had = set(done)
        missing = [text for text in owed if text not in had]
        yield f"{what}: {len(done)} of {len(owed)}; missing {missing[:3]}, twice {_twice(done)[:3]}"
    others = [text for text in found if text not in owing]
    invented = [text for text in others if text not in evidence.invoked]
    if invented or len(others) > len(set(others)):
        yield f"{what}: nobody put {invented[:3]}, twice {_twice(others)[:3]}"


def _twice(texts: list[str]) -> list[str]:
    return [text for text in texts if texts.count(text) > 1]


# --- receive ------------------------------------------------------------------------------------------


class _Reception:
    """How far one subscription has received."""

    def __init__(self, start: int) -> None:
        self.finished = self.next = start
        """Below `finished` all is done for good; up to `next` it may be: the block was left, or it was told to be gone."""
        self.attempts: dict[int, int] = {}
        """Of what was given and not finished: for which time, as far as the client may remember."""

    def finish(self) -> None:
        self.finished = self.next
        self.attempts.clear()


_OF_RECEIVERS = ("receiving", "received", "leaving", "finished", "missed", "emptied", "crash", "set_back", "told")


def receptions(evidence: Evidence) -> Iterator[str]:
    """receive(): every message in order; again what was not done, and perhaps what was not answered, with a higher count."""
    known: dict[Key, _Reception] = {}
    restored: set[Key] = set()
    for _, event in evidence.steps(*_OF_RECEIVERS):
        key = str(event.get("subscription")), str(event.get("topic_id"))
        reception = known.get(key)
        match event["op"]:
            case "receiving" if reception is None or key in restored:
                known[key] = _Reception(int(event["cursor" if key in restored else "start"] or 0))
                restored.discard(key)
            case "set_back" if event["name"] == "broker":
                restored |= set(known)
            case "crash" | "set_back" | "told":
                _forget(known, event)
            case "received" if reception is not None:
                yield from _received(reception, key, event)
            case "missed" if reception is not None:
                yield from _missed(reception, key, event)
            case "leaving" if reception is not None:
                reception.next = max(reception.next, int(event["offset"] or 0) + 1)
            case "finished" if reception is not None:
                reception.finish()
            case "emptied" if event["end"] is None:
                yield f"{key} receives from a topic that is gone"
            case "emptied" if reception is not None and reception.next < int(event["end"] or 0):
                yield f"{key} received up to {reception.next} of {event['end']}"


def _forget(known: dict[Key, _Reception], event: Event) -> None:
    """Whoever lost its memory with its power, or its directory, may have lost count."""
    if event["op"] != "crash" or event.get("power_cut"):
        for (name, _), reception in known.items():
            if name in {event.get("name"), event["process"]}:
                reception.attempts.clear()


def _received(reception: _Reception, key: Key, event: Event) -> Iterator[str]:
    offset, attempt = int(event["offset"] or 0), int(event["attempt"] or 0)
    if offset > reception.next:
        yield f"{key} received {offset} where {reception.next} was next"
    elif offset < reception.finished:
        yield f"{key} received {offset} again, which was finished"
    elif attempt <= reception.attempts.get(offset, 0):
        yield f"{key} received {offset} for the {attempt}. time, twice"
    reception.attempts[offset] = attempt


def _missed(reception: _Reception, key: Key, event: Event) -> Iterator[str]:
    first, end = int(event["first"] or 0), int(event["end"] or 0)
    if not reception.finished <= first <= reception.next:
        yield f"{key} was told a gap [{first}, {end}) where {reception.next} was next"
    reception.next = max(reception.next, end)

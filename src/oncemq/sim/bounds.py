# SPDX-License-Identifier: Apache-2.0
"""Judges of how much: what is told as damaged was damaged, what is in doubt lies where it can, what was to be kept is there.

May not: import the product, or excuse anything.
The idea: a loss that is told is no crime by itself. It is one if more is told, or gone, than what was done to the world, or what
was asked for, can account for.
Next: sim/checkers.py for the other laws; sim/rot.py, which knows what it damaged.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncemq.sim.evidence import Evidence
from oncemq.sim.forks import Event

RECORD_BYTES_MAX = 256
"""No message takes more of a journal than this besides its value, headers of its record and of its block included."""
_MOVES = ("subscribe", "deliver", "gap", "skip", "repeat", "in_doubt")


def told_too_much(evidence: Evidence) -> Iterator[str]:
    """What is told as damaged was damaged, as far as anybody ever saw what lies there."""
    if not any(event.get("is_traced") for event in evidence.of("rot")):
        return  # Nobody knows what was damaged.
    rotten: set[str] = set()
    for _, event in evidence.steps("rotten", "damaged"):
        if event["op"] == "rotten":
            rotten.add(str(event["message"]))
            continue
        topic, first, end = str(event["topic_id"]), int(event["first"] or 0), int(event["end"] or 0)
        told = [evidence.shown.get((topic, offset)) for offset in range(first, end)]
        sound = [message for message in told if message is not None and message not in rotten]
        if sound:
            yield f"{event['process']} was told that [{first}, {end}) of {topic} is damaged, and {sound[:3]} were not"


def in_doubt_place(evidence: Evidence) -> Iterator[str]:
    """S23: what is in doubt reaches from what is finished to what may have been handed out, and the next message lies between.

    Where a directory was set back, what a subscription was handed is no measure of what it may remember.
    """
    following: dict[tuple[str, str], int] = {}
    passed: dict[tuple[str, str], int] = {}
    """Where a subscription began to be told gaps, if it was handed nothing since: a client may forget those with its power."""
    for index, event in evidence.steps(*_MOVES):
        if event["kind"] != "ok":
            continue
        lane = str(event["subscription"]), str(event["topic_id"])
        match event["op"]:
            case "subscribe":
                following.setdefault(lane, int(event.get("cursor", event["start"]) or 0))
            case "deliver":
                following[lane] = int(event["offset"] or 0) + 1
                passed.pop(lane, None)
            case "repeat":
                following[lane] = int(event["first"] or 0)
                passed.pop(lane, None)
            case "gap":
                passed.setdefault(lane, int(event["first"] or 0))
                following[lane] = max(int(event["end"] or 0), following.get(lane, 0))
            case "skip":
                passed.pop(lane, None)
                following[lane] = max(int(event["end"] or 0), following.get(lane, 0))
            case _:
                first, end, due = int(event["first"] or 0), int(event["end"] or 0), following.get(lane, 0)
                if not (first <= due and passed.get(lane, due) <= end) and not evidence.forks.was_touched(lane[0], index):
                    yield f"{lane} is in doubt about [{first}, {end}), and {due} was next"


# --- what was to be kept ------------------------------------------------------------------------------


def kept_too_little(evidence: Evidence) -> Iterator[str]:
    """S16: of a topic at least that much is left which it was told to keep, and a limit takes no more than what is above it.

    Messages go in steps: a limit may go below itself by one of them, a retention never. What is left is taken for as large as
    it can be, so whoever is found guilty is.
    """
    for event in evidence.of("created"):
        topic, low = str(event["topic_id"]), evidence.lows.get(str(event["topic_id"]))
        if low is None and evidence.is_read:
            yield f"topic {topic} is gone, and nobody deleted it"
        elif low and not _is_enough(evidence, event):
            kept = f"retain {event['retain'] or 'nothing'}, limit {event['limit'] or 'none'}"
            yield f"topic {topic} ({kept}) begins at {low}, and has {_left_bytes(evidence, topic)} bytes at most"
    yield from _cut_off(evidence)


def _is_enough(evidence: Evidence, created: Event) -> bool:
    """Whether what is left of a topic that has lost something accounts for it."""
    topic, retain = str(created["topic_id"]), str(created["retain"])
    left = _left_bytes(evidence, topic)
    limit, oldest_us = _floor_of(created), _age_us(str(created["limit"]))
    if limit is not None and left >= limit:
        return True  # The limit may have taken what is gone, whatever was to be kept.
    if oldest_us is not None and not _is_young_gone(evidence, topic, oldest_us):
        return True  # Likewise.
    kind, _, number = retain.partition(":")
    if kind == "size":
        return left >= int(number)
    kept_us = _age_us(retain)
    return kind != "forever" and (kept_us is None or not _is_young_gone(evidence, topic, kept_us))


def _age_us(terms: str) -> int | None:
    """How old a message must be before it may go, or None if that is not by age."""
    kind, _, number = terms.partition(":")
    return int(number) * 1_000_000 if kind == "age" else None


def _floor_of(created: Event) -> int | None:
    """How much is left at least of a topic that its limit has cut off, in bytes; None without a limit by size."""
    kind, _, number = str(created["limit"]).partition(":")
    return int(number) - int(created["step_bytes"] or 0) if kind == "size" else None


def _left_bytes(evidence: Evidence, topic: str) -> int:
    sizes = [int(event["size_bytes"] or 0) for event in evidence.of("log") if event["topic_id"] == topic]
    return sum(sizes) + len(sizes) * RECORD_BYTES_MAX


def _is_young_gone(evidence: Evidence, topic: str, age_us: int) -> bool:
    """Whether something is gone that was put so late that nobody could call it old. A broker set back has lost it otherwise."""
    if evidence.forks.broker:
        return False
    (ended,) = [int(event["t"] or 0) for event in evidence.of("end") if event["topic_id"] == topic][-1:]
    young = {str(event["message"]) for event in evidence.of("put", "invoke") if int(event["t"] or 0) >= ended - age_us}
    low = evidence.lows[topic]
    return any(place[0] == topic and place[1] < low and message in young for place, message in evidence.shown.items())


def _cut_off(evidence: Evidence) -> Iterator[str]:
    """Whoever is told a gap is told of what lay above the limit: behind it there is as much as the limit leaves, or was put.

    Or of what was too old: nothing in it was put so late that the limit could not have reached it.
    """
    if evidence.forks.broker:
        return  # Where a topic ended when somebody was told is not known any more.
    yield from _cut_off_young(evidence)
    floors = {str(event["topic_id"]): floor for event in evidence.of("created") if (floor := _floor_of(event)) is not None}
    ends = {str(event["topic_id"]): int(event["end"] or 0) for event in evidence.of("end")}
    longest = RECORD_BYTES_MAX + max((len(message) for message in evidence.invoked), default=0)
    for index, event in evidence.steps("gap", "missed"):
        topic, end = str(event["topic_id"]), int(event["end"] or 0)
        if topic not in floors or topic not in ends or evidence.forks.was_touched(str(event["process"]), index):
            continue
        if (ends[topic] - end) * longest < floors[topic]:
            yield f"{event['process']} was told that {topic} begins at {end}, its limit leaves more than {ends[topic] - end}"


def _cut_off_young(evidence: Evidence) -> Iterator[str]:
    ages = {str(event["topic_id"]): age_us for event in evidence.of("created") if (age_us := _age_us(str(event["limit"])))}
    if not ages:
        return
    put_us: dict[str, int] = {}
    for event in evidence.of("put", "invoke"):
        put_us.setdefault(str(event["message"]), int(event["t"] or 0))
    for index, event in evidence.steps("gap", "missed"):
        topic, told_us = str(event["topic_id"]), int(event["t"] or 0)
        if topic not in ages or evidence.forks.was_touched(str(event["process"]), index):
            continue
        gone = [evidence.shown.get((topic, offset)) for offset in range(int(event["first"] or 0), int(event["end"] or 0))]
        young = [message for message in gone if message and put_us.get(message, 0) >= told_us - ages[topic]]
        if young:
            yield f"{event['process']} was told that {young[:3]} are gone from {topic}, which are younger than its limit"

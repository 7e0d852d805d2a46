# SPDX-License-Identifier: Apache-2.0
"""Judges of how much: what is told as damaged was damaged, and what is in doubt lies where it can.

May not: import the product, or excuse anything.
The idea: a loss that is told is no crime by itself. It is one if more is told, or gone, than what was done to the world, or what
was asked for, can account for.
Next: sim/checkers.py for the other laws; sim/rot.py, which knows what it damaged.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncemq.sim.evidence import Evidence

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
    for index, event in evidence.steps(*_MOVES):
        if event["kind"] != "ok":
            continue
        lane = str(event["subscription"]), str(event["topic_id"])
        match event["op"]:
            case "subscribe":
                following.setdefault(lane, int(event.get("cursor", event["start"]) or 0))
            case "deliver":
                following[lane] = int(event["offset"] or 0) + 1
            case "repeat":
                following[lane] = int(event["first"] or 0)
            case "gap" | "skip":
                following[lane] = max(int(event["end"] or 0), following.get(lane, 0))
            case _:
                first, end, due = int(event["first"] or 0), int(event["end"] or 0), following.get(lane, 0)
                if not first <= due <= end and not evidence.forks.was_touched(lane[0], index):
                    yield f"{lane} is in doubt about [{first}, {end}), and {due} was next"

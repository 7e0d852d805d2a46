# SPDX-License-Identifier: Apache-2.0
"""Judges of how much: what is told as damaged was damaged.

May not: import the product, or excuse anything.
The idea: a loss that is told is no crime by itself. It is one if more is told, or gone, than what was done to the world, or what
was asked for, can account for.
Next: sim/checkers.py for the other laws; sim/rot.py, which knows what it damaged.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncemq.sim.evidence import Evidence


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

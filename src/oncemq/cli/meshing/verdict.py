# SPDX-License-Identifier: Apache-2.0
"""The judges of a real mesh: integrity, at most once, agreement, order, overlay (P1 to P5), from histories alone.

May not: ask a node; trust one. What applications wrote down, and who counts whom as a neighbour, is all that is looked at.
The idea: functions from events to witnesses, as in sim/checkers.py. A message is named node/life/place: that is its order.
Next: docs/history.md for the events, sim/mesh_checkers.py for the same laws in the simulator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from oncemq.sim.history import Event
from oncemq.sim.mesh_checkers import is_connected

Witnesses = dict[str, list[str]]
"""What was broken, law by law."""


def judge(events: Sequence[Event], required: Mapping[str, Iterable[str]]) -> Witnesses:
    """Judge histories; `required` says which applications must have which messages by now."""
    found: Witnesses = {}
    delivered: dict[str, list[str]] = {}
    offered = {str(event["message"]) for event in events if event["op"] == "put"}
    for event in events:
        if event["op"] == "deliver":
            delivered.setdefault(str(event["process"]), []).append(str(event["message"]))
        elif event["op"] == "gap":
            found.setdefault("P3 agreement", []).append(f"{event['process']} was told a gap though nothing is beyond retention")
    for process, messages in delivered.items():
        invented = [message for message in messages if message not in offered]
        twice = [message for message, count in Counter(messages).items() if count > 1]
        _note(found, "P1 integrity", process, "was handed what nobody put", invented)
        _note(found, "P2 at most once", process, "was handed twice", twice)
        _note(found, "P4 order", process, "was handed out of its origin's order", _out_of_order(messages))
    for process, wanted in required.items():
        had = set(delivered.get(process, ()))
        _note(found, "P3 agreement", process, "lacks", [message for message in wanted if message not in had])
    return found


def _note(found: Witnesses, law: str, process: str, what: str, messages: list[str]) -> None:
    if messages:
        found.setdefault(law, []).append(f"{process} {what}: {len(messages)}, first {messages[0]}")


def _out_of_order(messages: Iterable[str]) -> list[str]:
    """Messages that came after a later one of the same life of the same node."""
    last: dict[str, int] = {}
    late: list[str] = []
    for message in messages:
        origin, _, place = message.rpartition("/")
        if int(place) <= last.get(origin, 0):
            late.append(message)
        last[origin] = max(int(place), last.get(origin, 0))
    return late


def judge_overlay(views: Mapping[str, Sequence[str]], active_max: int) -> Witnesses:
    """P5: symmetric, nobody its own neighbour, within bounds, connected."""
    wrong: list[str] = []
    for address, view in views.items():
        strangers = [other for other in view if other == address or address not in views.get(other, ())]
        if strangers:
            wrong.append(f"{address} counts {strangers} as neighbours, who do not know")
        if len(view) > active_max:
            wrong.append(f"{address} has {len(view)} neighbours")
    if not is_connected(views):
        wrong.append("the overlay fell apart")
    return {"P5 overlay": wrong} if wrong else {}

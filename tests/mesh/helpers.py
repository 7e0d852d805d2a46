# SPDX-License-Identifier: Apache-2.0
"""One node's machine by itself, and a few of them wired together without latency.

May not: test anything.
Next: test_hyparview.py, test_messages.py, test_waiting.py.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from typing import Any

from oncemq.mesh import packets as p
from oncemq.mesh.effects import MeshEffects, Send
from oncemq.mesh.hyparview import Membership
from oncemq.mesh.node import MeshNode
from oncemq.mesh.packets import Origin, Priority
from oncemq.mesh.records import Taken
from oncemq.mesh.settings import MeshSettings
from oncemq.mesh.state import NodeState
from oncemq.model.block import cut_block

X, Y = Origin(b"x" * 16, b"1" * 16), Origin(b"y" * 16, b"1" * 16)
ME = b"m" * 16
BLOCK = bytes(cut_block([b"value"], array("q", [0])))
SETTINGS = MeshSettings(heartbeat_ms=0, heal_ms=0, shuffle_ms=0)


def machine(me: str = "m", *, contacts: tuple[str, ...] = (), seed: int = 0, **changes: Any) -> Membership:
    """A membership machine that has joined at time 0."""
    settings = MeshSettings(**{"heartbeat_ms": 0, "heal_ms": 0, "shuffle_ms": 0, **changes})
    node = Membership(me, settings, random.Random(seed), contacts)
    node.join(0)
    return node


def said(node: Membership) -> list[tuple[str, p.MeshPacket]]:
    """What the machine wants to send; taken away."""
    sends = list(node.sends)
    node.sends.clear()
    return sends


def changed(node: Membership) -> list[Any]:
    changes = list(node.changes)
    node.changes.clear()
    return changes


def befriend(node: Membership, *names: str, now_ms: int = 0) -> dict[str, int]:
    """Let others become neighbours by asking for it; return the numbers of the links."""
    numbers = {}
    for index, name in enumerate(names):
        numbers[name] = 1_000 + index
        node.hear(now_ms, name, p.Neighbour(numbers[name], p.Priority.LOW))
    assert set(names) <= set(node.active)
    node.sends.clear()
    node.changes.clear()
    return numbers


class Wired:
    """Machines on a network without latency, loss or death."""

    def __init__(self, *nodes: Membership) -> None:
        self.nodes = {node.me: node for node in nodes}
        self.now_ms = 0

    def settle(self) -> None:
        queue: deque[tuple[str, str, p.MeshPacket]] = deque()
        while True:
            for node in self.nodes.values():
                queue.extend((node.me, to, packet) for to, packet in said(node))
            if not queue:
                return
            source, target, packet = queue.popleft()
            if target in self.nodes:
                self.nodes[target].hear(self.now_ms, source, packet)
            else:
                self.nodes[source].lost(self.now_ms, target)

    def tick(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        for node in self.nodes.values():
            node.tick(self.now_ms)
        self.settle()

    def links(self) -> set[tuple[str, str]]:
        return {(name, other) for name, node in self.nodes.items() for other in node.active}

    def is_symmetric(self) -> bool:
        links = self.links()
        return all((b, a) in links for a, b in links)


class Shelf:
    """A store whose messages below `low` are gone."""

    def __init__(self) -> None:
        self.low = 1
        self.had: Any = None

    def held(self, origin: Origin, first: int, last: int) -> list[tuple[int, int]]:
        first, last = max(first, self.low), min(last, self.had[origin])
        return [(first, last)] if first <= last else []

    def is_expired(self, _origin: Origin, number: int) -> bool:
        return number < self.low


class Alone:
    """One node and a script."""

    def __init__(self, *, contacts: tuple[str, ...] = (), records: tuple[Any, ...] = (), **changes: Any) -> None:
        settings = MeshSettings(**{"shuffle_ms": 0, "heal_ms": 0, **changes})
        self.state, self.shelf = NodeState(), Shelf()
        for record in records:
            self.state.apply(record)
        self.shelf.had = self.state.had
        self.node = MeshNode("m", self.state, self.shelf, settings, random.Random(0), contacts)
        self.records: list[Any] = []
        self.speech: list[Any] = []
        self.now_ms = 0
        self.do(self.node.start(0, ME, b"2" * 16))

    def do(self, effects: MeshEffects) -> list[Any]:
        """Carry effects out, and what follows from them; return what was said."""
        said: list[Any] = []
        for each in (effects, None):
            step = each if each is not None else self.node.settle(self.now_ms)
            for record in step.records:
                self.node.apply(record)
                self.records.append(record)
            said += step.speech
        self.speech += said
        return said

    def hear(self, sender: str, packet: p.MeshPacket, block: bytes = b"") -> list[Any]:
        return self.do(self.node.hear(self.now_ms, sender, packet, block))

    def befriend(self, *names: str) -> None:
        for index, name in enumerate(names):
            self.hear(name, p.Neighbour(100 + index, Priority.LOW))

    def tick(self, passed_ms: int) -> list[Any]:
        self.now_ms += passed_ms
        return self.do(self.node.tick(self.now_ms))

    def beat(self, sender: str, digest: bytes, *, is_urgent: bool = False, leaver: p.Leaver = p.Leaver.NOBODY) -> list[Any]:
        number = self.node.membership.active[sender].number
        return self.hear(sender, p.Heartbeat(number, digest, 2**53, 1, is_urgent, leaver))

    def numbers(self, origin: Origin) -> list[int]:
        return [record.number for record in self.records if isinstance(record, Taken) and record.origin == origin]


def spread(number: int, origin: Origin = X, topics: tuple[str, ...] = ("t",), *, is_copy: bool = False) -> p.Spread:
    return p.Spread(origin, number, topics, "billing", 1, is_copy)


def sent(speech: list[Any], kind: type[p.MeshPacket]) -> list[tuple[str, Any]]:
    return [(each.to, each.packet) for each in speech if isinstance(each, Send) and isinstance(each.packet, kind)]


def tied(number: int) -> p.Spread:
    return p.Spread(X, number, ("t",), "p", 1, has_more=True)

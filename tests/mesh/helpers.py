# SPDX-License-Identifier: Apache-2.0
"""One node's machine by itself, and a few of them wired together without latency.

May not: test anything.
Next: test_hyparview.py.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from oncemq.mesh import packets as p
from oncemq.mesh.hyparview import Membership
from oncemq.mesh.settings import MeshSettings

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

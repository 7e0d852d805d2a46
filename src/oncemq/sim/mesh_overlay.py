# SPDX-License-Identifier: Apache-2.0
"""Thousands of membership machines in one process, driven by cycles as in the papers: between two cycles time stands still.

May not: contain a rule of the protocol: nodes are mesh/hyparview.py as shipped.
The idea: one queue, first in, first out, worked off until nothing is on its way. A packet to a dead node is lost, and the
sender's link layer tells it so at once, as a reset connection does. A cycle is one shuffle of every node.
Next: sim/mesh_graph.py for measures, sim/mesh_paper.py for the papers' experiments.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable

from oncemq.mesh.effects import Down, Up
from oncemq.mesh.hyparview import Membership
from oncemq.mesh.packets import Address, MeshPacket
from oncemq.mesh.settings import MeshSettings

CYCLE_MS = 5_000
CYCLE_SETTINGS = MeshSettings(heartbeat_ms=0, heal_ms=0, shuffle_ms=CYCLE_MS)
"""Detection by being told or by sending, and no probes: what the papers measure. Splits have settings of their own."""


def name_of(index: int) -> Address:
    return f"n{index}"


class Overlay:
    """A mesh of membership machines without latency."""

    def __init__(self, seed: int, settings: MeshSettings = CYCLE_SETTINGS) -> None:
        self.nodes: dict[Address, Membership] = {}
        self.now_ms = 0
        self.sent: Counter[str] = Counter()
        self.dice = random.Random(seed)
        self._settings = settings
        self._queue: deque[tuple[Address, Address, MeshPacket]] = deque()
        self._seed = seed
        self.on_change: list[tuple[Address, Up | Down]] | None = None
        """Collects who came and went, if somebody looks."""
        self._cut: dict[Address, int] = {}

    # --- nodes --------------------------------------------------------------------------------------------

    def add(self, name: Address, contacts: Iterable[Address] = ()) -> Membership:
        node = Membership(name, self._settings, random.Random(f"{self._seed}/{name}"), contacts)
        self.nodes[name] = node
        node.join(self.now_ms)
        self.collect(node)
        return node

    def kill(self, names: Iterable[Address]) -> None:
        for name in names:
            del self.nodes[name]

    def split(self, sides: dict[Address, int]) -> None:
        """Nodes of different sides do not reach each other; an empty split heals."""
        self._cut = sides

    def reaches(self, source: Address, target: Address) -> bool:
        return target in self.nodes and (not self._cut or self._cut.get(source) == self._cut.get(target))

    # --- packets ------------------------------------------------------------------------------------------

    def collect(self, node: Membership) -> None:
        """Take what a machine wants to send."""
        if node.sends:
            source = node.me
            self._queue.extend((source, target, packet) for target, packet in node.sends)
            node.sends.clear()
        if node.changes:
            if self.on_change is not None:
                self.on_change.extend((node.me, change) for change in node.changes)
            node.changes.clear()

    def settle(self) -> None:
        """Work the queue off."""
        queue, nodes, now_ms, sent = self._queue, self.nodes, self.now_ms, self.sent
        while queue:
            source, target, packet = queue.popleft()
            sent[type(packet).__name__] += 1
            if self.reaches(source, target):
                node = nodes[target]
                node.hear(now_ms, source, packet)
            elif source in nodes:
                node = nodes[source]
                node.lost(now_ms, target)
            else:
                continue
            if node.sends or node.changes:
                self.collect(node)

    def tell(self, node: Membership, dead: Address) -> None:
        """The node's link layer found somebody dead."""
        node.lost(self.now_ms, dead)
        self.collect(node)

    # --- time ---------------------------------------------------------------------------------------------

    def cycle(self) -> None:
        """One shuffle of everybody, in random order, each with all that follows from it."""
        self.now_ms += 2 * CYCLE_MS  # Past everybody's jitter.
        order = list(self.nodes)
        self.dice.shuffle(order)
        for name in order:
            node = self.nodes.get(name)
            if node is not None:
                node.tick(self.now_ms)
                self.collect(node)
                self.settle()

    # --- what it is like ----------------------------------------------------------------------------------

    def neighbours(self) -> dict[Address, list[Address]]:
        return {name: list(node.active) for name, node in self.nodes.items()}

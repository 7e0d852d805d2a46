# SPDX-License-Identifier: Apache-2.0
"""One broadcast over an overlay, by the shipped flood of every node: the dead are found, replaced, and their message handed on.

May not: count anything but packets that the machines asked for.
The idea: mesh/broadcast.py of every node, told of neighbours as they come and go. On an overlay at rest a flood costs exactly
2 x links - (nodes - 1) receptions; over a broken one it finds the holes, and crosses them as the repair goes on.
Next: sim/mesh_paper.py, which floods arrays instead where nothing is broken, and checks them against this.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from oncemq.mesh.broadcast import Flood
from oncemq.mesh.effects import Up
from oncemq.mesh.packets import Address, Origin
from oncemq.sim.mesh_overlay import Overlay

KEY = (Origin(bytes(16), bytes(16)), 1)


@dataclass(slots=True)
class Flooded:
    """What became of one broadcast."""

    reached: dict[Address, int]
    """Node: hops of the first copy."""
    receptions: int = 0
    failed_sends: int = 0


class Flooding:
    """One message, and the floods of all nodes. Repair goes on meanwhile, if `holds`: then replacements are told."""

    def __init__(self, overlay: Overlay, *, holds: bool) -> None:
        self._overlay = overlay
        self._holds = holds
        self._floods = {name: Flood(1_000_000, 10) for name in overlay.nodes}
        self._queue: deque[tuple[Address, Address, int]] = deque()
        for name, node in overlay.nodes.items():
            for neighbour in node.active:
                self._floods[name].up(0, neighbour)

    def run(self, source: Address) -> Flooded:
        flooded = Flooded({source: 0})
        self._overlay.on_change = []
        self._tell(source, "", 0)
        while self._queue:
            sender, target, hops = self._queue.popleft()
            if not self._overlay.reaches(sender, target):
                flooded.failed_sends += 1
                self._on_failed(flooded, sender, target)
                continue
            flooded.receptions += 1
            if target not in flooded.reached:
                flooded.reached[target] = hops
                self._tell(target, sender, hops)
        self._overlay.on_change = None
        return flooded

    def _tell(self, name: Address, sender: Address, hops: int) -> None:
        self._queue.extend((name, target, hops + 1) for target in self._floods[name].targets(0, KEY, sender))

    def _on_failed(self, flooded: Flooded, sender: Address, dead: Address) -> None:
        """The sender learns of the death, the overlay mends itself, and whoever holds the message hands it on."""
        node = self._overlay.nodes[sender]
        if not self._holds or dead not in node.active:
            return
        self._overlay.tell(node, dead)
        self._overlay.settle()
        changes, self._overlay.on_change = self._overlay.on_change or [], []
        for name, change in changes:
            if isinstance(change, Up):
                for _ in self._floods[name].up(0, change.address):
                    self._queue.append((name, change.address, flooded.reached.get(name, 0) + 1))
            else:
                self._floods[name].down(0, change.address, change.reason)

# SPDX-License-Identifier: Apache-2.0
"""What a node tells people about its mesh. (What nodes tell each other is in mesh/packets.py.)

May not: change meaning once released (tests/golden holds the bytes of each).
Next: core/packets.py for the registry, engine/mesh.py for who fills it in.
"""

from __future__ import annotations

from oncemq.core.shapes import Id16, Natural, Packet, Short, Text


class MeshStatus(Packet, frozen=True, array_like=True, gc=False):
    """How is your mesh? Needs no session; refused by a broker that is no node."""


class MeshNeighbour(Packet, frozen=True, array_like=True, gc=False):
    """One neighbour: how long it was not heard, and whether it has what we have."""

    address: Text
    silent_ms: Natural
    phase: Short


class MeshOrigin(Packet, frozen=True, array_like=True, gc=False):
    """One entry of the vector: everything up to `had` is had, from `low` on it is stored, up to `seen` somebody has it."""

    node: Id16
    start_id: Id16
    low: Natural
    had: Natural
    seen: Natural


class MeshStatusDone(Packet, frozen=True, array_like=True, gc=False):
    address: Text
    node: Id16
    start_id: Id16
    life: Short
    neighbours: tuple[MeshNeighbour, ...]
    passive: tuple[Text, ...]
    cold: Natural
    origins: tuple[MeshOrigin, ...]
    lost: Natural
    """Messages that were given up, each told as a gap."""
    early: Natural
    """Messages that wait for an earlier one."""
    counters: dict[str, int]

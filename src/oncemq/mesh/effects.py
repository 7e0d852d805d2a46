# SPDX-License-Identifier: Apache-2.0
"""What the machines of the mesh ask their runner to do.

May not: do anything.
The idea: as in core/effects.py, order is a type. Records are applied at once, written and synced; only then is anything
sent or handed over. `Serve` leaves it to the runner to read stored messages, as a broker's Deliver does.
Timers are no effects: a machine says when it wants its next tick (`due_ms`).
Next: node.py.
"""

from __future__ import annotations

import msgspec

from oncemq.mesh.packets import Address, MeshPacket, Origin, Reason
from oncemq.mesh.records import MeshRecord


class Send(msgspec.Struct, frozen=True, gc=False):
    """Say this packet; it may vanish. Large ones have a block as second frame."""

    to: Address
    packet: MeshPacket
    block: bytes | memoryview = b""


class Serve(msgspec.Struct, frozen=True, gc=False):
    """Read these messages where they are stored, and send each as a Spread: a copy that was requested, or one to tell on."""

    to: Address
    origin: Origin
    first: int
    last: int
    is_copy: bool


class Up(msgspec.Struct, frozen=True, gc=False):
    """A neighbour."""

    address: Address


class Down(msgspec.Struct, frozen=True, gc=False):
    """No longer a neighbour, and why."""

    address: Address
    reason: Reason


class HandOver(msgspec.Struct, frozen=True, gc=False):
    """A message for those topics that this node subscribes to; once it is synced."""

    origin: Origin
    number: int
    topics: tuple[str, ...]


class TellGap(msgspec.Struct, frozen=True, gc=False):
    """Messages first to last of an origin are lost: a Gap for every subscription of this node."""

    origin: Origin
    first: int
    last: int


Speech = Send | Serve | Up | Down | HandOver | TellGap


class MeshEffects(msgspec.Struct, frozen=True, gc=False):
    """Records to write, in this order, and what to do once they are synced."""

    records: tuple[MeshRecord, ...] = ()
    speech: tuple[Speech, ...] = ()

# SPDX-License-Identifier: Apache-2.0
"""The facts a node writes down about the mesh. Its durable state is nothing but these, applied in order.

May not: hold a gap: `Taken` is always the next number of its origin.
The idea: message and watermark are one record, so that they cannot contradict each other after a crash (R24, R25).
Next: node.py, which decides and applies them.
"""

from __future__ import annotations

import msgspec

from oncemq.mesh.packets import Had, Origin


class StartedNode(msgspec.Struct, frozen=True, array_like=True):
    """A start of this node: its own messages are numbered from 1 under this origin. Synced before anything is said."""

    origin: Origin


class BaselineTaken(msgspec.Struct, frozen=True, array_like=True):
    """From here on this node takes part: everything up to these numbers counts as had."""

    entries: tuple[Had, ...]


class Taken(msgspec.Struct, frozen=True, array_like=True):
    """The next message of an origin is stored. `wanted` are those of its topics that had subscriptions here."""

    origin: Origin
    number: int
    topics: tuple[str, ...]
    wanted: tuple[str, ...]
    publisher: str
    count: int
    block: bytes | memoryview = b""
    has_more: bool = False
    """The next number belongs to the same transaction: both are stored in one group."""


class GivenUp(msgspec.Struct, frozen=True, array_like=True):
    """Numbers up to `last` of an origin are nowhere to be had: they count as had, and every subscription is told."""

    origin: Origin
    first: int
    last: int


class TopicWanted(msgspec.Struct, frozen=True, array_like=True):
    topic: str


class TopicUnwanted(msgspec.Struct, frozen=True, array_like=True):
    topic: str


MeshRecord = StartedNode | BaselineTaken | Taken | GivenUp | TopicWanted | TopicUnwanted

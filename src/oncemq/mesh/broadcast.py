# SPDX-License-Identifier: Apache-2.0
"""How a message gets from neighbour to neighbour: by flooding, behind an interface that a tree can join.

May not: know contents, or send: it says whom to tell.
The idea: whoever hears a message first tells all neighbours but the one it came from, so that a message costs exactly
2 x links - (nodes - 1) receptions. What was told to a neighbour that turned out dead is held, and told to whoever replaces it:
the first message after a crash wave then crosses the holes as fast as they are mended.
Next: node.py, which asks; antientropy.py for what floods miss.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from oncemq.mesh.packets import Address, Origin, Reason

Key = tuple[Origin, int]


class Broadcast(Protocol):
    """A way to spread messages over the active view."""

    def up(self, now_ms: int, neighbour: Address) -> list[Key]:
        """A neighbour came; return what it must be told at once."""

    def down(self, now_ms: int, neighbour: Address, reason: Reason) -> None: ...

    def targets(self, now_ms: int, key: Key, source: Address) -> list[Address]:
        """Whom to tell of a message that is new here; `source` is "" for our own."""

    def repeated(self, key: Key, source: Address) -> None:
        """A message came once more. A flood does not mind; a tree would prune."""


class Flood:
    def __init__(self, hold_ms: int, hold_messages: int) -> None:
        self.repeats = 0
        self._hold_ms = hold_ms
        self._hold_messages = hold_messages
        self._told: dict[Address, deque[tuple[int, Key]]] = {}
        self._held: dict[Key, int] = {}

    def up(self, now_ms: int, neighbour: Address) -> list[Key]:
        self._told[neighbour] = deque(maxlen=self._hold_messages)
        self._expire(now_ms)
        return list(self._held)

    def down(self, now_ms: int, neighbour: Address, reason: Reason) -> None:
        """What a failed neighbour was told lately may have ended with it. Others have taken theirs, or say what they lack."""
        told = self._told.pop(neighbour, None)
        if told is None or reason is not Reason.FAILED:
            return
        oldest_ms = now_ms - self._hold_ms
        self._held.update((key, told_ms) for told_ms, key in told if told_ms >= oldest_ms)
        while len(self._held) > self._hold_messages:
            del self._held[next(iter(self._held))]

    def targets(self, now_ms: int, key: Key, source: Address) -> list[Address]:
        chosen = [neighbour for neighbour in self._told if neighbour != source]
        for neighbour in chosen:
            self._told[neighbour].append((now_ms, key))
        return chosen

    def repeated(self, key: Key, source: Address) -> None:  # noqa: ARG002 - a tree needs both
        self.repeats += 1

    def _expire(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._hold_ms
        self._held = {key: told_ms for key, told_ms in self._held.items() if told_ms >= oldest_ms}

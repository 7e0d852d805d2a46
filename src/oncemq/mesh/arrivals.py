# SPDX-License-Identifier: Apache-2.0
"""Messages that came before their turn: they wait here, in bounded memory, until the hole before them is closed.

May not: be durable, or be told in a vector: after a crash they are asked for again (R25).
The idea: an origin's messages are stored in its order only. A message that waits is known, so it is told on once and no more;
when memory is full the newest are forgotten, not told on, and come again by anti-entropy.
Next: node.py.
"""

from __future__ import annotations

import msgspec

from oncemq.mesh.packets import Address, Origin, Spread


class Early(msgspec.Struct, frozen=True, gc=False):
    packet: Spread
    block: bytes | memoryview
    sender: Address


class EarlyMessages:
    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._waiting: dict[Origin, dict[int, Early]] = {}
        self.count = 0
        self.size_bytes = 0

    def __contains__(self, key: tuple[Origin, int]) -> bool:
        return key[1] in self._waiting.get(key[0], ())

    def add(self, packet: Spread, block: bytes | memoryview, sender: Address) -> bool:
        """Keep a message that has to wait; False if there is no room."""
        if self.count >= self._messages_max or self.size_bytes + len(block) > self._bytes_max:
            return False
        self._waiting.setdefault(packet.origin, {})[packet.number] = Early(packet, block, sender)
        self.count += 1
        self.size_bytes += len(block)
        return True

    def pop(self, origin: Origin, number: int) -> Early | None:
        waiting = self._waiting.get(origin)
        early = waiting.pop(number, None) if waiting else None
        if early is None:
            return None
        self.count -= 1
        self.size_bytes -= len(early.block)
        if not waiting:
            del self._waiting[origin]
        return early

    def drop_through(self, origin: Origin, number: int) -> None:
        """What is had by now need not wait."""
        for each in [waiting for waiting in self._waiting.get(origin, ()) if waiting <= number]:
            self.pop(origin, each)

    def lowest(self) -> list[tuple[Origin, int, Address]]:
        """Of every origin with a hole: the first message that waits behind it, and who sent that."""
        return [(origin, number := min(waiting), waiting[number].sender) for origin, waiting in self._waiting.items()]

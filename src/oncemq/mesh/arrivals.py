# SPDX-License-Identifier: Apache-2.0
"""Messages that came before their turn: they wait here, in bounded memory, until the hole before them is closed.

May not: be durable, or be told in a vector: after a crash they are asked for again (R25).
The idea: an origin's messages are stored in its order only. A message that waits is known, so it is told on once and no more;
when memory is full the newest are forgotten, not told on, and come again by anti-entropy. What is in line, with nothing
missing before it, waits only for the rest of its transaction: it finds room, or everybody would wait for everybody. Where that
rest is nowhere to be had, what came of it gives way to transactions that can be whole.
Next: node.py.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from oncemq.mesh.packets import Address, Origin, Spread
from oncemq.mesh.vectors import Watermarks


class Early(msgspec.Struct, frozen=True, gc=False):
    packet: Spread
    block: bytes | memoryview
    sender: Address


def weight_of(packet: Spread) -> int:
    """How many bytes the names of a message cost in the journal at most, besides what every record costs."""
    return sum(map(len, packet.topics)) + 32 * len(packet.topics)


class EarlyMessages:
    def __init__(self, messages_max: int, bytes_max: int, is_stuck: Callable[[Origin], bool]) -> None:
        """`is_stuck` knows of which origin what is missing next was denied by all who could have it."""
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._is_stuck = is_stuck
        self._waiting: dict[Origin, dict[int, Early]] = {}
        self.evicted: list[Early] = []
        """What had to make room, until somebody takes note of it."""
        self.count = 0
        self.size_bytes = 0

    def __contains__(self, key: tuple[Origin, int]) -> bool:
        return key[1] in self._waiting.get(key[0], ())

    def add(self, packet: Spread, block: bytes | memoryview, sender: Address, had: Watermarks) -> bool:
        """Keep a message that has to wait; False if there is no room."""
        size_bytes = len(block) + weight_of(packet)
        while self.count >= self._messages_max or self.size_bytes + size_bytes > self._bytes_max:
            if not self.is_in_line(packet.origin, packet.number, had) or not self._make_room(packet.origin, had):
                return False
        self._waiting.setdefault(packet.origin, {})[packet.number] = Early(packet, block, sender)
        self.count += 1
        self.size_bytes += size_bytes
        return True

    def is_in_line(self, origin: Origin, number: int, had: Watermarks) -> bool:
        """Whether nothing is missing before it."""
        waiting = self._waiting.get(origin, {})
        return all(each in waiting for each in range(had[origin] + 1, number))

    def next_missing(self, origin: Origin, had: Watermarks) -> int:
        """The next number that is not here: of a transaction that has begun to come, the first that has not."""
        number, waiting = had[origin] + 1, self._waiting.get(origin, {})
        while number in waiting:
            number += 1
        return number

    def highest(self) -> dict[Origin, int]:
        """The last number of every origin that waits."""
        return {origin: max(waiting) for origin, waiting in self._waiting.items()}

    def _make_room(self, origin: Origin, had: Watermarks) -> bool:
        """Forget one message that is not in line, our own origin's last of all.

        Of two transactions that do not both fit one stays: one that is not stuck, and of two such the smaller origin's.
        """
        rank = self._is_stuck(origin), origin
        for other in sorted(self._waiting, key=lambda each: each == origin):
            last = max(self._waiting[other])
            if (self._is_stuck(other), other) > rank or not self.is_in_line(other, last, had):
                early = self.pop(other, last)
                self.evicted += [early] if early is not None else []
                return True
        return False

    def pop(self, origin: Origin, number: int) -> Early | None:
        waiting = self._waiting.get(origin)
        early = waiting.pop(number, None) if waiting else None
        if early is None:
            return None
        self.count -= 1
        self.size_bytes -= len(early.block) + weight_of(early.packet)
        if not waiting:
            del self._waiting[origin]
        return early

    def pop_whole(self, origin: Origin, number: int) -> list[Early]:
        """Take out the message of that number with all of its transaction behind it; nothing unless all of it is here."""
        last, waiting = number, self._waiting.get(origin, {})
        while last in waiting and waiting[last].packet.has_more:
            last += 1
        if last not in waiting:
            return []
        found = [self.pop(origin, each) for each in range(number, last + 1)]
        return [early for early in found if early is not None]

    def pop_begun(self, origin: Origin, had: Watermarks) -> list[Early]:
        """Take out what came of a transaction whose next part is lost; nothing unless it was whole somewhere.

        Copies come from where all of it was stored. What its own node told while it died was never anywhere as a whole.
        """
        begun = range(had[origin] + 1, self.next_missing(origin, had))
        if not any(self._waiting[origin][number].packet.is_copy for number in begun):
            return []
        found = [self.pop(origin, number) for number in begun]
        return [early for early in found if early is not None]

    def drop_through(self, origin: Origin, number: int) -> None:
        """What is had by now need not wait."""
        for each in [waiting for waiting in self._waiting.get(origin, ()) if waiting <= number]:
            self.pop(origin, each)

    def lowest(self) -> list[tuple[Origin, int, Address]]:
        """Of every origin with a hole: the first number behind it, and who may have it.

        A hole may lie inside a transaction: then even what came of it waits.
        """
        found = []
        for origin, waiting in self._waiting.items():
            first = number = min(waiting)
            while number in waiting and waiting[number].packet.has_more:
                number += 1
            found.append((origin, first if number in waiting else number + 1, waiting[first].sender))
        return found

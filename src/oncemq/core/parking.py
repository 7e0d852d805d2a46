# SPDX-License-Identifier: Apache-2.0
"""Gets that wait at the broker until there is something for them. Volatile: a restart forgets them, clients ask again.

May not: decide what a Get sees; it only remembers who waits for which topics, and until when.
The idea: one entry per waiting Get, filed under each topic it wants; whoever is woken or due is taken out everywhere.
Next: core/broker.py, which wakes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from oncemq.core.gets import Parked

_STRAYS = 64
"""So many who were woken, and as many as there are that wait, may be left behind in the heap."""


class Parking:
    __slots__ = ("_by_topic", "_due", "_entries", "_next")

    def __init__(self) -> None:
        self._entries: dict[int, Parked] = {}
        self._by_topic: dict[int, dict[int, None]] = {}
        self._due: list[tuple[int, int]] = []
        """A heap of (due, number). Who was woken stays in it for a while: the entries know better."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Parked) -> None:
        self._next += 1
        self._entries[self._next] = entry
        heappush(self._due, (entry.due_ms, self._next))
        if len(self._due) > 2 * len(self._entries) + _STRAYS:
            self._due = [(waiting.due_ms, number) for number, waiting in self._entries.items()]
            heapify(self._due)
        for want in entry.packet.wants:
            self._by_topic.setdefault(want.topic_id, {})[self._next] = None

    def waits_for(self, topic_id: int) -> bool:
        return topic_id in self._by_topic

    def take_waiting_for(self, topic_ids: Iterable[int]) -> list[Parked]:
        """Take out everyone who waits for any of these topics, in the order they came."""
        numbers = {number for topic_id in topic_ids for number in self._by_topic.get(topic_id, ())}
        return list(self._take(sorted(numbers)))

    def take_due(self, ticks_ms: int) -> list[Parked]:
        numbers = []
        while self._due and self._due[0][0] <= ticks_ms:
            numbers.append(heappop(self._due)[1])
        return list(self._take(number for number in numbers if number in self._entries))

    def take_all(self) -> list[Parked]:
        return list(self._take(list(self._entries)))

    def next_due_ms(self) -> int | None:
        while self._due and self._due[0][1] not in self._entries:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def _take(self, numbers: Iterable[int]) -> Iterator[Parked]:
        for number in numbers:
            entry = self._entries.pop(number)
            for want in entry.packet.wants:
                waiting = self._by_topic.get(want.topic_id, {})
                waiting.pop(number, None)
                if not waiting:
                    self._by_topic.pop(want.topic_id, None)
            yield entry

# SPDX-License-Identifier: Apache-2.0
"""A subscriber that listens: an application like any other, but what it gets is pushed to it, by messages or by blocks.

May not: know what the live path loses; it records what it was handed, as every actor does.
The idea: one listener for its whole life, as a real program has. Some do nothing else; others get now and then, listen to blocks,
or to some topics only. In the end it drains by that one listener alone: whatever the live path lost must have been noticed.
Next: sim/actors.py for the rest of it, sim/live_link.py for what it listens through.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from oncemq.client.client import Client
from oncemq.client.listening import Listener
from oncemq.limits import LIVE_SILENCE_MS, RESERVE_AHEAD_BLOCKS
from oncemq.model.message import Message
from oncemq.sim.actors import Subscriber

PATIENCE_S = 10 + 2 * LIVE_SILENCE_MS / 1000
"""Longer than the latest packet is late, and than it takes to notice that a channel is silent."""


class Listening(Subscriber):
    """Listens to everything of some topics until the world says that no more will come."""

    RESERVED_CALLS = RESERVE_AHEAD_BLOCKS

    def __init__(self, *place: Any, topics: list[str], batch_max: int) -> None:
        super().__init__(*place, topics=topics, batch_max=batch_max)
        self._listener: Listener[Message] | None = None
        self._does_nothing_else = self.random.random() < 0.5
        self._sloth = self.random.choice([0.0, 0.05, 0.6])
        """How likely it is to pause behind a message: queues run over meanwhile."""

    def _live(self) -> None:
        self._listener = None
        super()._live()

    def _act(self, client: Client) -> None:
        match 3 if self._does_nothing_else else self.random.randrange(8):
            case 0:
                super()._act(client)
            case 1:
                self._listen_to_blocks(client)
            case 2:
                self._listen_to_some(client)
            case _:
                self._listen(client)

    def _pause_at_times(self) -> None:
        if not self.may_end and self.random.random() < self._sloth:
            self.world.clock.pause(self.random.randrange(4_000))

    def _listen(self, client: Client) -> None:
        for _ in range(self.random.randrange(1, 4 * self.batch_max)):
            if not self._next(client, self.random.choice([0, 0.5, 3])):
                return
            self._pause_at_times()

    def _next(self, client: Client, timeout_s: float) -> bool:
        """Take the next message of its one listener; whether there was one."""
        return bool(self._ask_for(self._topics, lambda: [self._kept(client).next(timeout=timeout_s)], timeout_s))

    def _kept(self, client: Client) -> Listener[Message]:
        self._listener = self._listener or client.listen(*self._topics)
        return self._listener

    def _listen_to_some(self, client: Client) -> None:
        topics = self.random.sample(self._topics, self.random.randrange(1, len(self._topics) + 1))
        left = self.random.randrange(1, 4 * self.batch_max)
        timeout_s = self.random.choice([0, 1])
        for _ in self._heard(topics, client.listen(*topics, timeout=timeout_s), timeout_s):
            left -= 1
            if left <= 0:
                break

    def _listen_to_blocks(self, client: Client) -> None:
        left = self.random.randrange(1, 20)
        timeout_s = self.random.choice([0, 1])
        for _ in self._heard(self._topics, client.listen_blocks(timeout=timeout_s), timeout_s):
            self._pause_at_times()
            left -= 1
            if left <= 0:
                break

    def _heard(self, topics: list[str], listener: Listener[Any], timeout_s: float) -> Iterator[list[Message]]:
        """Write down what a `for` loop over a listener gives. Whatever ends it, the listener leaves its channels then."""
        with listener:
            while found := self._ask_for(topics, partial(_step, listener), timeout_s):
                yield found

    def _has_more(self, client: Client, _: str) -> bool:
        return self._next(client, PATIENCE_S)


def _step(listener: Listener[Any]) -> list[Message]:
    """The next message, or all of the next block; nothing at the end."""
    taken = next(listener, None)
    return [] if taken is None else [taken] if isinstance(taken, Message) else list(taken)

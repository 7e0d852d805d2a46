# SPDX-License-Identifier: Apache-2.0
"""An application that receives: what it does with a message counts when the block is left, and is done again if it was not.

May not: remember anything from one life to the next.
The idea: it writes down when it was given a message, for which time, when it had done its work, and when leaving the block was
answered. Before that last word it may be given the same message again, and before the one in the middle it must: sim/once.py.
Next: sim/relay.py for the other ways to work by the broker's place.
"""

from __future__ import annotations

from oncemq.client.client import Client
from oncemq.core.packets import SubscriptionInfo
from oncemq.errors import Gap
from oncemq.sim.actors import AWAY
from oncemq.sim.history import Event
from oncemq.sim.relay import GET_S, Relay


class Receiver(Relay):
    """Receives everything of one topic, one message at a time."""

    def _begin(self, info: SubscriptionInfo) -> None:
        self.note("ok", "receiving", **self._place(), start=info.start, cursor=info.cursor)

    def _place(self) -> Event:
        return {"subscription": self.name, "topic_id": str(self._ids[self._topics[0]])}

    def _do_some(self, client: Client) -> int:
        try:
            return self._receive(client)
        except Gap as gap:
            self._miss(gap)
            return 1

    def _receive(self, client: Client) -> int:
        began_us = self.world.scheduler.time_us
        with client.receive(self._topics[0], timeout=GET_S) as message:
            self._watch([message] if message is not None else [], began_us)
            if message is None:
                return 0
            given: Event = {"offset": message.offset, "message": message.value.decode(), "attempt": message.attempt}
            self.note("ok", "received", **self._place(), **given)
            self._take_time()
            self._change_its_mind_at_times()
            self.note("ok", "leaving", **self._place(), offset=message.offset)
        self.note("ok", "finished", **self._place(), offset=message.offset)
        return 1

    def _take_time(self) -> None:
        """Work on a message for a while, at times: long enough to be killed at it."""
        if not self.may_end and self.random.random() < 0.1:
            self.world.clock.pause(self.random.randrange(500))

    def _is_over(self, client: Client) -> bool:
        return super()._is_over(client) and self._is_empty(client)

    def _is_empty(self, client: Client) -> bool:
        """Whether it could be found out where the topic ends."""
        try:
            with self.asking.call():
                ends = {info.topic_id: info.end for info in client.topics()}
        except AWAY:
            return False
        self.note("ok", "emptied", **self._place(), end=ends.get(self._ids[self._topics[0]]))
        return True

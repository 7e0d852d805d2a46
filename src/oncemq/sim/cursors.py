# SPDX-License-Identifier: Apache-2.0
"""Somebody who looks over the broker's shoulder and writes down where it believes that everybody is.

May not: change anything, or judge.
The idea: a cursor is in no answer that an application sees, so here the world looks at the broker itself, whenever it has done
all that had arrived. What it knows then is synced: a cursor that is written down here must never be lower again.
Next: docs/history.md for the event, sim/places.py for the judge.
"""

from __future__ import annotations

from oncemq.engine.loop import BrokerLoop
from oncemq.sim.history import Event, History
from oncemq.sim.scheduler import Scheduler


class CursorWatch:
    """Writes down each cursor when it is first seen, and whenever it has moved."""

    def __init__(self, history: History, scheduler: Scheduler) -> None:
        self._history = history
        self._scheduler = scheduler
        self._seen: dict[int, int] = {}

    def look(self, loop: BrokerLoop) -> None:
        seen = self._seen
        for subscription_id, entry in loop.machine.state.subscriptions.items():
            if seen.get(subscription_id) != entry.cursor:
                seen[subscription_id] = entry.cursor
                place: Event = {"subscription": entry.client, "topic_id": str(entry.topic_id)}
                place |= {"subscription_id": str(subscription_id), "start": entry.start, "cursor": entry.cursor}
                self._history.add(self._scheduler.time_us, "broker", 1, "ok", "cursor", place)

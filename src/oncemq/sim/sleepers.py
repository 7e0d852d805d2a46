# SPDX-License-Identifier: Apache-2.0
"""A subscriber that is stuck: it gets nothing until the load is over. What it has not read must not keep everybody else's disk.

May not: know that there is a cleaner.
The idea: its topic is one of several, so that segments fill with messages nobody needs but for the few of its own. Then the
broker has to move those together, in small segments, while everything goes wrong.
Next: sim/swarm.py, which lets it live and die.
"""

from __future__ import annotations

from random import Random

from oncemq.client.client import Client
from oncemq.journal.journal import JournalSettings
from oncemq.sim.actors import Subscriber


class Sleeper(Subscriber):
    """Subscribes, sleeps until all publishers are done, then gets everything."""

    def _act(self, client: Client) -> None:
        if not self.may_end:
            self.world.clock.pause(500)
            return
        super()._act(client)


def draw_settings(random: Random, *, is_sparse: bool) -> JournalSettings:
    """How the broker of a world keeps its journal."""
    if not is_sparse or random.random() < 0.5:
        return JournalSettings(segment_bytes=16 * 1024, reserve_bytes=24 * 1024, segment_records_max=60)
    return JournalSettings(
        segment_bytes=16 * 1024,
        reserve_bytes=24 * 1024,
        segment_records_max=random.choice([5, 10, 20]),
        clean_slack_bytes=random.choice([0, 2048]),
    )

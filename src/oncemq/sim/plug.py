# SPDX-License-Identifier: Apache-2.0
"""The plug pulled in another universe: would what a broker is just telling be there after a power cut right now?

May not: touch this universe. It recovers a copy of the disk, and draws from a stream of its own.
The idea: an end that was told before its sync is a lie only if the power goes in that very instant, which happens seldom. So at
some of the instants at which a broker tells a new end, a copy of its disk loses its power and is recovered on the side.
Next: sim/checkers.py, told_too_early, which reads what is noted here; sim/live_link.py for who calls.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from oncemq import crashpoints
from oncemq.core.state import BrokerState
from oncemq.journal.journal import Journal, JournalSettings
from oncemq.sim.disk import SimDisk

LIKELIHOOD_MAX = 0.2
LOOKS = 3
"""The n-th new end of a world is looked into with a likelihood of LOOKS / n, a fifth at most: a dozen in a world of a thousand
ends, spread over all of it. Each costs a recovery; a broker that tells too early does so every time."""

_SMALL = JournalSettings(segment_bytes=16 * 1024, reserve_bytes=0)
_ANY = b"p" * 16


class Plug:
    """Pulled now and then."""

    def __init__(self, disk: Callable[[], SimDisk], random: Random, note: Callable[..., None]) -> None:
        self._disk = disk
        self._random = random
        self._note = note
        self._told = 0

    def on_told(self, topic_id: int, end: int) -> None:
        """A broker tells a new end of a topic."""
        self._told += 1
        if self._random.random() < min(LIKELIHOOD_MAX, LOOKS / self._told):
            self._note("recovered", topic_id=str(topic_id), end=self._end_after_power_cut(topic_id), told=end)

    def _end_after_power_cut(self, topic_id: int) -> int:
        copy, state = self._disk().copy(), BrokerState()
        copy.power_cut()
        copy.capacity_bytes = None
        hook = crashpoints.install(None)  # Nobody dies in the other universe.
        try:
            Journal.open(copy, start_id=_ANY, new_log_id=_ANY, state=state, settings=_SMALL).close(clean=False)
        finally:
            crashpoints.install(hook)
        return state.topics[topic_id].end if topic_id in state.topics else 0

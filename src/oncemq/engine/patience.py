# SPDX-License-Identifier: Apache-2.0
"""How long a disk that refuses a read is given before whoever wants the messages is told that they are damaged.

May not: hold up anybody else: whoever wants what cannot be read now gets no answer, and asks again by itself.
The idea: an I/O error may pass, and a message that is told as damaged may be skipped for ever. So only a place that is refused
to a client's last try counts as damaged. Refusals long ago say nothing of those now: each trouble is given its own time.
Next: loop.py and mesh.py, which ask; journal/reading.py, which reads.
"""

from __future__ import annotations

from oncemq.journal.reading import DamagedRead, RefusedRead
from oncemq.limits import READ_PATIENCE_MS, READ_REFUSAL_MS, READ_REFUSALS_MAX, REQUEST_TRIES


class Patience:
    def __init__(self) -> None:
        self._refused: dict[tuple[int, int], tuple[int, int, int]] = {}
        """Places that were refused: when first, when last, and how often."""

    def may_pass(self, now_ms: int, damage: DamagedRead) -> bool:
        """Whether what could not be read now may be read later. Many may want the same at once, so how often is not enough."""
        if not isinstance(damage, RefusedRead):
            return False
        if len(self._refused) >= READ_REFUSALS_MAX:
            self._refused.clear()
        place = damage.topic_id, damage.first
        since_ms, last_ms, times = self._refused.get(place, (now_ms, now_ms, 0))
        if now_ms - last_ms > READ_REFUSAL_MS:
            since_ms, times = now_ms, 0
        self._refused[place] = since_ms, now_ms, times + 1
        return now_ms - since_ms < READ_PATIENCE_MS or times + 1 < REQUEST_TRIES

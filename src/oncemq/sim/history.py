# SPDX-License-Identifier: Apache-2.0
"""What happened, as the applications saw it: one event per line, the only thing the checkers look at.

May not: know the product. An event is a flat dictionary that becomes one JSON line (docs/history.md).
The idea: `invoke` when an operation starts, then `ok` (it happened), `fail` (it never will) or `info` (nobody knows);
a process that dies leaves its open invokes as `info`.
Next: sim/checkers.py, which judges; sim/swarm.py, which writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

Event = dict[str, str | int | bool | None]

_ENCODER = msgspec.json.Encoder()


class History:
    """Events in the order they happened."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._time_us = 0

    def add(self, time_us: int, process: str, life: int, kind: str, operation: str, fields: Event) -> None:
        """Note what happened after all that was noted before. Its time says so too: the audit sorts by it.

        The clock of a world may go back by the microseconds that a process took by looking at it.
        """
        self._time_us = time_us = max(time_us, self._time_us)
        self.events.append({"t": time_us, "process": process, "life": life, "kind": kind, "op": operation, **fields})

    def lines(self) -> Iterator[bytes]:
        return map(_ENCODER.encode, self.events)

    def digest(self) -> str:
        """A name for this very history: two runs of one seed must agree on it."""
        return hashlib.blake2b(_ENCODER.encode_lines(self.events)[:-1], digest_size=12).hexdigest()


def read_history(lines: Iterator[bytes]) -> History:
    history = History()
    history.events = [msgspec.json.decode(line, type=Event) for line in lines if line.strip()]
    return history

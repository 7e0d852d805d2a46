# SPDX-License-Identifier: Apache-2.0
"""What a node of a mesh has of every origin: one log per (node, start), its messages numbered 1, 2, 3 … without gaps (R24, R25).

May not: hold blocks, or a gap: a log is two numbers, `low` and `had`; where its blocks lie is the journal's business.
The idea: a message of the mesh is one Stored record. It lies in the topics that this node has subscriptions to, and in the log of
its origin, which is stored like a topic that nobody can name: so message and watermark are one record, retention trims the log,
and a neighbour that misses something is served from the journal.
Next: core/puts.py for what is put here, mesh/node.py for what comes from others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from oncemq.core.records import Lost, Origin
from oncemq.core.retention import Store
from oncemq.errors import invariant

LOG_BIT = 1 << 63
"""Ids of logs have it; those of topics and parts have not (core/state.py, `fresh_id`)."""

Key = tuple[bytes, bytes]
"""(node, start id)"""


def log_id_of(start_id: bytes) -> int:
    """Under which id the journal keeps an origin's log: start ids are random, so their first bytes are a name."""
    return int.from_bytes(start_id[:8], "little") | LOG_BIT


class OriginLog(msgspec.Struct):
    """Numbers [low, had] of an origin are stored; everything up to `had` is had.

    Those before `since` never were, or were given up; from there to `low` they were stored, and kept as long as messages are.
    """

    node: bytes
    start_id: bytes
    low: int = 1
    had: int = 0
    since: int = 1

    @property
    def log_id(self) -> int:
        return log_id_of(self.start_id)

    @property
    def end(self) -> int:
        return self.had + 1

    @property
    def name(self) -> str:
        return f"(messages of node {self.node.hex()[:8]}, start {self.start_id.hex()[:8]})"


class OriginDump(msgspec.Struct, frozen=True, array_like=True):
    node: bytes
    start_id: bytes
    low: int
    had: int
    since: int = 0
    """0 in a snapshot that does not know it."""


class OriginsDump(msgspec.Struct, frozen=True, array_like=True):
    """All of it in a snapshot."""

    logs: tuple[OriginDump, ...] = ()
    has_baseline: bool = False
    lost: int = 0


class Origins:
    """Every origin this node has heard of, for ever: a number is never taken twice."""

    def __init__(self) -> None:
        self.logs: dict[Key, OriginLog] = {}
        self.has_baseline = False
        """Whether this node knows from where on it takes part; until then it takes no subscriptions (R27)."""
        self.lost = 0
        """Messages that were given up: each was told as a gap."""
        self._by_id: dict[int, OriginLog] = {}

    def __iter__(self) -> Iterator[OriginLog]:
        return iter(self.logs.values())

    def next_of(self, node: bytes, start_id: bytes, ahead: int = 0) -> Origin:
        """The name of the next message of an origin."""
        log = self.logs.get((node, start_id))
        return Origin(node, start_id, (log.had if log is not None else 0) + 1 + ahead)

    def is_taken(self, node: bytes, start_id: bytes) -> bool:
        """Whether that start is known as another node's: start ids are random, so somebody lies."""
        log = self._by_id.get(log_id_of(start_id))
        return log is not None and (log.node, log.start_id) != (node, start_id)

    # --- apply ----------------------------------------------------------------------------------------

    def took(self, origin: Origin) -> None:
        log = self._log(origin)
        invariant(origin.number == log.had + 1, "a number out of its origin's order", origin=origin)
        log.had = origin.number

    def adopt(self, entries: Iterable[Origin]) -> None:
        """A baseline: everything up to these numbers counts as had."""
        self.has_baseline = True
        for entry in entries:
            self._skip(entry, entry.number)

    def give_up(self, record: Lost) -> None:
        """What is nowhere to be had counts as had; what lies before it is not served any more, so that a log has no hole."""
        self._skip(record.origin, record.last)
        self.lost += record.last - record.origin.number + 1

    def trim(self, log_id: int, low: int) -> None:
        self._by_id[log_id].low = low

    def _skip(self, origin: Origin, last: int) -> None:
        log = self._log(origin)
        if last > log.had:
            log.had, log.low, log.since = last, last + 1, last + 1

    def _log(self, origin: Origin) -> OriginLog:
        key = (origin.node, origin.start_id)
        log = self.logs.get(key)
        if log is None:
            log = self.logs[key] = self._by_id[log_id_of(origin.start_id)] = OriginLog(*key)
        return log

    # --- snapshots --------------------------------------------------------------------------------------

    def dump(self) -> OriginsDump:
        logs = tuple(OriginDump(*msgspec.structs.astuple(log)) for log in self.logs.values())
        return OriginsDump(logs, self.has_baseline, self.lost)

    def restore(self, dump: OriginsDump) -> None:
        self.has_baseline, self.lost = dump.has_baseline, dump.lost
        for entry in dump.logs:
            log = OriginLog(entry.node, entry.start_id, entry.low, entry.had, entry.since or entry.low)
            self.logs[entry.node, entry.start_id] = self._by_id[log.log_id] = log


# --- retention --------------------------------------------------------------------------------------


class MeshRetention(msgspec.Struct, frozen=True):
    """How long messages of the mesh are kept for others: this long, but of more than so many bytes in all only the newest."""

    age_us: int
    size_bytes: int


def new_lows(origins: Origins, store: Store, kept: MeshRetention, *, wall_us: int) -> dict[int, int]:
    """Where logs may be cut, by log id, in steps of segments: what is too old, and then the oldest while the rest is enough.

    So by size never less is kept than was asked for: a segment may be larger than that, and what is newest be just put.
    """
    holdings = [(held.last_append_time_us, log, held) for log in origins for held in store.holdings(log.log_id)]
    holdings.sort(key=lambda each: (each[0], each[2].end_offset))
    total = sum(held.size_bytes for _, _, held in holdings)
    lows: dict[int, int] = {}
    for time_us, log, held in holdings:
        if time_us >= wall_us - kept.age_us and total - held.size_bytes < kept.size_bytes:
            break
        total -= held.size_bytes
        low = min(held.end_offset, log.end)
        if low > max(log.low, lows.get(log.log_id, 0)):
            lows[log.log_id] = low
    return lows

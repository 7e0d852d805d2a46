# SPDX-License-Identifier: Apache-2.0
"""Histories to audit: simulated worlds, sound ones and those with a seeded bug, and small ones written by hand."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from oncemq.sim.bugs import planted
from oncemq.sim.history import Event, History
from oncemq.sim.matrix import PointSwarm, read_case
from oncemq.sim.swarm import Swarm


def simulated(seed: int, bug: str = "") -> list[Event]:
    """The history of one seed; with a bug the world may end early."""
    logging.disable(logging.CRITICAL)
    swarm = Swarm(seed)
    try:
        if bug:
            with planted(bug):
                swarm.run()
        else:
            swarm.run()
    except Exception:  # noqa: S110 - the product stopped itself: what it had done until then is what is judged
        pass
    finally:
        logging.disable(logging.NOTSET)
    return swarm.history.events


def relaying() -> list[Event]:
    """The history of a world in which somebody consumes and produces, and somebody keeps a ledger, in transactions."""
    swarm = PointSwarm(read_case("broker.after_sync:9:kill"))
    swarm.run()
    return swarm.history.events


def _put(message: str, offset: int) -> list[Event]:
    put: Event = {"t": 10 + offset, "process": "p", "life": 1, "op": "put", "message": message}
    place: Event = {"topic_id": "1", "offset": offset, "stored": True, "duplicate": False}
    return [{**put, "kind": "invoke"}, {**put, "kind": "ok", **place}, {**put, "kind": "ok", "op": "kept"}]


def _heard(seconds: int, life: int, operation: str, **fields: str | int) -> Event:
    lane: Event = {"subscription": "s", "topic_id": "1"}
    return {"t": 100 + seconds, "process": "s", "life": life, "kind": "ok", "op": operation, **lane, **fields}


def _ended(low: int, end: int, *, is_limited: bool) -> Event:
    limits: Event = {"topic_id": "1", "low": low, "end": end, "is_limited": is_limited, "is_kept": False}
    return {"t": 200, "process": "harness", "life": 1, "kind": "ok", "op": "end", **limits}


def gap_told_again() -> list[Event]:
    """A gap that a limit made, told to somebody who dies before the next call, and again from its beginning."""
    return [
        _heard(0, 1, "subscribe", start=0),
        *_put("m0", 0),
        *_put("m1", 1),
        _heard(1, 1, "gap", first=0, end=1),
        _heard(2, 2, "gap", first=0, end=2),
        _heard(3, 2, "drained", end=2),
        _ended(2, 2, is_limited=True),
    ]


def damaged_and_trimmed() -> list[Event]:
    """A message that is told as damaged, skipped, and gone with all that everybody has."""
    span = {"first": 0, "end": 1}
    return [
        _heard(0, 1, "subscribe", start=0),
        *_put("m0", 0),
        {"t": 50, "process": "harness", "life": 1, "kind": "ok", "op": "rot"},
        _heard(1, 1, "damaged", **span),
        _heard(2, 1, "skip", **span),
        _heard(3, 1, "drained", end=1),
        _ended(1, 1, is_limited=False),
    ]


def booked_and_damaged(topic: str = "1") -> list[Event]:
    """A message of unknown place that is told as damaged and trimmed; a database has the row of it, from that topic."""
    span = {"first": 0, "end": 1}
    ledger: Event = {"t": 120, "process": "d", "life": 1, "kind": "ok", "topic_id": topic}
    invoked, _, kept = _put("m0", 0)
    return [
        _heard(0, 1, "subscribe", start=0),
        invoked,
        {**kept, "topic_id": "1"},
        {**ledger, "op": "booking", "start": 0},
        {"t": 50, "process": "harness", "life": 1, "kind": "ok", "op": "rot"},
        _heard(1, 1, "damaged", **span),
        _heard(2, 1, "skip", **span),
        _heard(3, 1, "drained", end=1),
        {**ledger, "op": "effect", "message": "m0", "offset": 0},
        _ended(1, 1, is_limited=False),
    ]


def written(directory: Path, events: Iterable[Event], *, as_table: bool = False) -> Path:
    """Write a run into a directory of its own, as JSON lines or as Parquet."""
    directory.mkdir(parents=True)
    history = History()
    history.events = list(events)
    if as_table:
        fields = sorted({name for event in history.events for name in event})
        rows = [{name: event.get(name) for name in fields} for event in history.events]
        pq.write_table(pa.Table.from_pylist(rows), directory / "history.parquet")
        return directory
    (directory / "history.jsonl").write_bytes(b"".join(line + b"\n" for line in history.lines()))
    return directory

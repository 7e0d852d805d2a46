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

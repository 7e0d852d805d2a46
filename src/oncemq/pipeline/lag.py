# SPDX-License-Identifier: Apache-2.0
"""How far behind a query is: a listener that is ready to be added, and the arithmetic behind it.

    spark.streams.addListener(LagListener())        # one log line per batch, and listener.lag for dashboards

May not: keep a query from running: whatever a progress report looks like, nothing here raises.
Next: source.py, whose offsets it reads.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

log = logging.getLogger("oncemq.pipeline")


def lag_of(sources: Iterable[Any]) -> dict[str, int]:
    """Return how many messages of each topic are stored and not read yet, from the sources of a progress report."""
    lag: dict[str, int] = {}
    for source in sources:
        ends, latest = _nexts(source.endOffset), _nexts(source.latestOffset)
        for topic, end in latest.items():
            lag[topic] = lag.get(topic, 0) + max(0, end - ends.get(topic, 0))
    return lag


def _nexts(offset: str | None) -> dict[str, int]:
    """The next offset of each topic in an offset of ours; nothing for those of other sources."""
    try:
        topics = json.loads(offset or "{}")["topics"]
        return {topic: int(mark["next"]) for topic, mark in topics.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


class LagListener(StreamingQueryListener):
    """Logs every batch with its rate and lag, and keeps the lag of each query in `lag` (query name or id → topic → messages)."""

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self.lag: dict[str, dict[str, int]] = {}
        self._tell = tell or log.info

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._tell(f"{event.name or event.id}: started")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        name = progress.name or str(progress.id)
        self.lag[name] = lag = lag_of(progress.sources)
        rate = progress.processedRowsPerSecond or 0.0
        behind = ", ".join(f"{topic} {messages:,}" for topic, messages in sorted(lag.items())) or "unknown"
        self._tell(f"{name}: batch {progress.batchId}, {progress.numInputRows:,} rows, {rate:,.0f} rows/s, lag {behind}")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._tell(f"{event.id}: {'failed' if event.exception else 'ended'}")

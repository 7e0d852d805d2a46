# SPDX-License-Identifier: Apache-2.0
"""Topics as a streaming or batch source: `spark.readStream.format("oncemq")`, `spark.read.format("oncemq")`.

May not: return a place that moves when it is asked for twice; let a task decide what it reads.
The idea: the driver plans half-open ranges of offsets, tasks read exactly those. Spark writes the end of a batch to its
checkpoint before it runs the batch, and runs it again with the same ends if it was not finished: same ranges, same rows.

    driver    initialOffset · latestOffset · partitions · commit     one long-lived process per query, one instance
    executor  read                                                   another process, another instance: only options travel

Next: subscription.py for what is believed, planning.py for how much, reading.py for the rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from oncemq.core.packets import Read, TopicInfo
from oncemq.errors import Gap, NoSuchTopic
from oncemq.journal.codec import decode_delivery
from oncemq.limits import SPARK_SAMPLE_BYTES
from oncemq.model.refusals import Code
from oncemq.pipeline.offsets import Bookmark, Offsets, from_json
from oncemq.pipeline.options import SourceOptions
from oncemq.pipeline.planning import prorate, split
from oncemq.pipeline.reading import OffsetRange, log, read_batches
from oncemq.pipeline.requests import Requests, shared_requests
from oncemq.pipeline.subscription import QuerySubscription, resolve


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    """What a task does: exactly its range, as Arrow batches."""
    wanted: OffsetRange | None = partition.value
    if wanted is not None:
        requests = shared_requests(options.address)
        yield from read_batches(requests, wanted, options.columns, fail_on_data_loss=options.fail_on_data_loss)


def planned(options: SourceOptions, ranges: Sequence[OffsetRange]) -> list[InputPartition]:
    pieces = split(ranges, partitions_min=options.partitions_min, cores=os.cpu_count() or 1)
    return [InputPartition(piece) for piece in pieces]


class TopicReader(DataSourceReader):
    """A batch: places are resolved once, when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        requests = Requests(self.options.address)
        try:
            return planned(self.options, [self._range(requests, topic) for topic in self.options.topics])
        finally:
            requests.close()

    def _range(self, requests: Requests, topic: str) -> OffsetRange:
        info = requests.topics(topic).get(topic)
        if info is None:
            raise NoSuchTopic(Code.NO_SUCH_TOPIC, f"there is no topic {topic!r} at {self.options.address}")
        first = resolve(requests, info, self.options.starting.of(topic))
        end = resolve(requests, info, self.options.ending.of(topic))
        first = above_low(info, first, fail_on_data_loss=self.options.fail_on_data_loss)
        return OffsetRange(topic, info.topic_id, first, max(first, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self.options, partition)


def above_low(info: TopicInfo, first: int, *, fail_on_data_loss: bool) -> int:
    """Return where a range can really begin; what is gone below is an error, or is said and skipped, forward only."""
    if first >= info.low:
        return first
    gap = Gap(info.topic, first, info.low)
    if fail_on_data_loss:
        raise gap
    log.warning("%s; going on behind them, because failOnDataLoss is false", gap)
    return info.low


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's view of its topics."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._requests: Requests | None = None
        self._subscription: QuerySubscription | None = None
        self._began: Offsets | None = None
        self._target: dict[str, int] | None = None
        self._made = Offsets(b"", {})
        self._is_checked = False

    # --- where to start ------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        if self._began is None:
            self._began = self._at_broker().begin()
        return self._began.to_json()

    def _at_broker(self) -> QuerySubscription:
        if self._subscription is None:
            self._requests = Requests(self.options.address)
            self._subscription = QuerySubscription(self.options, self._requests)
        return self._subscription

    # --- how far -------------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.rows_per_trigger is not None:
            return ReadMaxRows(self.options.rows_per_trigger)
        if self.options.bytes_per_trigger is not None:
            return ReadMaxBytes(self.options.bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        subscription = self._at_broker()
        # A topic that a first subscription will create is empty now: it has nothing to catch up with.
        found = subscription.existing()
        self._target = {topic: found[topic].end if topic in found else 0 for topic in self.options.topics}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._check_once(from_json(start))
        begin = self._complete(from_json(start))
        found = self._at_broker().topics()
        waiting = {topic: self._end(found[topic]) - mark.next_offset for topic, mark in begin.topics.items()}
        if all(rows <= 0 for rows in waiting.values()) and len(begin.topics) == len(start["topics"]):
            return start
        rows = self._limited({topic: max(0, rows) for topic, rows in waiting.items()}, begin, limit)
        ends = {topic: self._moved(topic, mark, mark.next_offset + rows[topic]) for topic, mark in begin.topics.items()}
        self._made = Offsets(begin.log_id, ends)
        return self._made.to_json()

    def _check_once(self, start: Offsets) -> None:
        """Tell a wrong checkpoint also where nothing waits: else a query idles for ever at another broker's shorter topic."""
        if not self._is_checked:
            self._at_broker().check(start)
            self._is_checked = True

    def _complete(self, start: Offsets) -> Offsets:
        """A topic that the checkpoint does not have yet begins where its subscription was recorded to begin."""
        missing = [topic for topic in self.options.topics if topic not in start.topics]
        return Offsets(start.log_id, start.topics | {topic: self._at_broker().start_of(topic) for topic in missing})

    def _end(self, info: TopicInfo) -> int:
        return info.end if self._target is None else min(info.end, self._target[info.topic])

    def _limited(self, waiting: dict[str, int], begin: Offsets, limit: ReadLimit) -> dict[str, int]:
        """Bound a batch by what Spark asks for; Trigger.Once and others ask for everything, and get it."""
        rows_max = sum(waiting.values())
        match limit:
            case ReadMaxRows(rows):
                rows_max = min(rows_max, rows)
                if self.options.bytes_per_trigger is not None:
                    rows_max = min(rows_max, self._rows_in(self.options.bytes_per_trigger, waiting, begin))
            case ReadMaxBytes(size_bytes):
                rows_max = min(rows_max, self._rows_in(size_bytes, waiting, begin))
        return prorate(waiting, rows_max)

    def _rows_in(self, size_bytes: int, waiting: Mapping[str, int], begin: Offsets) -> int:
        """About how many of the waiting messages have so many bytes, judged by the next ones of the fullest topic."""
        topic = max(waiting, key=lambda name: waiting[name])
        mark = begin.topics[topic]
        packet = Read(topic, mark.topic_id, mark.next_offset, mark.next_offset + waiting[topic], SPARK_SAMPLE_BYTES)
        body = self._requests.read(packet)[1] if self._requests is not None else b""
        rows, position = 0, 0
        while position < len(body):
            delivered, _, _, position = decode_delivery(body, position)
            rows += delivered.count
        return max(1, size_bytes * rows // len(body)) if rows else 1

    def _moved(self, topic: str, mark: Bookmark, end: int) -> Bookmark:
        if end == mark.next_offset:
            return mark
        made = self._made.topics.get(topic)
        if made is not None and (made.topic_id, made.next_offset) == (mark.topic_id, end):
            return made
        return self._at_broker().bookmark(topic, mark.topic_id, end)

    def reportLatestOffset(self) -> dict[str, Any]:
        """What `sources[].latestOffset` of the progress shows: where every topic ends, for whoever computes the lag."""
        found = self._at_broker().existing()
        topics = {topic: {"next": found[topic].end} for topic in sorted(self.options.topics) if topic in found}
        return {"topics": topics, "v": 1}

    # --- what to read --------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, until = from_json(start), from_json(end)
        subscription = self._at_broker()
        subscription.check(begin)
        found = subscription.topics()
        ranges = [self._range(found[topic], self._complete(begin).topics[topic], mark) for topic, mark in until.topics.items()]
        return planned(self.options, ranges)

    def _range(self, info: TopicInfo, begin: Bookmark, end: Bookmark) -> OffsetRange:
        first = above_low(info, begin.next_offset, fail_on_data_loss=self.options.fail_on_data_loss)
        return OffsetRange(
            info.topic, end.topic_id, min(first, end.next_offset), end.next_offset, end.start_id, end.append_number
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self.options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._at_broker().commit(from_json(end))

    def stop(self) -> None:
        if self._requests is not None:
            self._requests.close()

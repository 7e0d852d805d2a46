# SPDX-License-Identifier: Apache-2.0
"""Tables as messages, exactly once: tasks stage, the driver commits (R22).

May not: publish from a task; undo anything in abort: a commit whose answer was lost may have succeeded.
The idea: a task has sent everything before Spark decides whether it counts, and gets no word when it does not. So it stages
under random part ids and tells the driver which; only what the driver's commit lists is ever seen. The key is (query id, batch
id): Spark runs a batch again with the same number until its own log has it, and the broker recognises the number.

    executor  write    another instance for every task: options, and what Spark's task context says
    driver    commit   yet another instance: options, and what the tasks tell

Next: cutting.py for blocks, core/staging.py for the broker's side.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from oncemq.adapters.system import SystemEntropy
from oncemq.core import packets as p
from oncemq.core.staging import next_crc
from oncemq.errors import OnceMQError
from oncemq.model.block import outline_of
from oncemq.model.names import check_topic
from oncemq.pipeline.cutting import by_topic, cut, slices
from oncemq.pipeline.options import SinkOptions
from oncemq.pipeline.requests import Requests, shared_requests

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Names that Spark gives to what it knows of a streaming task."""


@dataclass(frozen=True)
class StagedParts(WriterCommitMessage):
    """What a task tells the driver: what it staged, and for which batch."""

    query: str
    batch: int
    claims: tuple[p.PartClaim, ...]


class NoBatch(OnceMQError):
    def __init__(self) -> None:
        super().__init__("this task does not know its query and batch: format 'oncemq' needs Spark 4.3's own streaming engine")


class Task:
    """One attempt of one task: a part per topic, chunk by chunk."""

    def __init__(self, requests: Requests, query: str, batch: int, topic: str | None) -> None:
        self._requests = requests
        self._query = query
        self._batch = batch
        self._topic = topic
        self._parts: dict[str, p.PartClaim] = {}
        self._is_committed = False
        """The batch was committed by an earlier run: nothing of it is needed any more."""

    def stage_all(self, batches: Iterator[Any]) -> StagedParts:
        for batch in batches:
            if not self._is_committed:
                self._stage(batch)
        return StagedParts(self._query, self._batch, () if self._is_committed else tuple(self._parts.values()))

    def _stage(self, batch: Any) -> None:
        if self._topic is not None:
            rest = batch.drop_columns(["topic"]) if "topic" in batch.schema.names else batch
            self._stage_rows(self._topic, rest)
            return
        for topic, rows in by_topic(batch):
            self._stage_rows(check_topic(topic), rows)

    def _stage_rows(self, topic: str, rows: Any) -> None:
        for piece in slices(rows):
            part = self._parts.get(topic) or p.PartClaim(SystemEntropy().id16(), topic, 0, 0, 0)
            block = cut(piece, time.time_ns() // 1000)
            packet = p.Stage(self._query, self._batch, part.part, part.chunks + 1, piece.num_rows)
            self._is_committed = self._requests.ask(packet, p.StageDone, block).is_committed
            crc = next_crc(part.crc, outline_of(block).crc)
            self._parts[topic] = p.PartClaim(part.part, topic, part.chunks + 1, part.rows + piece.num_rows, crc)


def commit_parts(requests: Requests, messages: Sequence[StagedParts], *, is_once: bool = False) -> p.CommitStagedDone:
    """What a driver does: all parts of all tasks, or none."""
    query, batch = messages[0].query, messages[0].batch
    claims = [claim for message in messages for claim in message.claims]
    packet = p.CommitStaged(query, batch, len(claims), is_once)
    return requests.ask(packet, p.CommitStagedDone, msgspec.msgpack.encode(claims))


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query that publishes: the query's id and batch number are the key."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> StagedParts:
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(BATCH_ID) if context is not None else None
        if not query or not batch:
            raise NoBatch
        return Task(shared_requests(self.options.address), query, int(batch), self.options.topic).stage_all(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        told = [message for message in messages if message is not None]
        if any(message.batch != batchId for message in told):
            raise NoBatch
        commit_parts(shared_requests(self.options.address), told)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing: a commit may have succeeded although its answer was lost, and what was not committed is released anyway."""


class TopicWriter(DataSourceArrowWriter):
    """One `df.write`. With option transactionId it can be repeated: whoever comes second changes nothing."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.transaction = options.transaction or SystemEntropy().id16().hex()
        """Made once and shared by all tasks and the commit: Spark pickles this very instance."""

    def write(self, iterator: Iterator[Any]) -> StagedParts:
        query = f"write.{self.transaction}"
        return Task(shared_requests(self.options.address), query, 0, self.options.topic).stage_all(iterator)

    def commit(self, messages: list[Any]) -> None:
        told = [message for message in messages if message is not None]
        commit_parts(shared_requests(self.options.address), told, is_once=self.options.transaction is None)

    def abort(self, messages: list[Any]) -> None:
        """Nothing, as above."""

# SPDX-License-Identifier: Apache-2.0
"""Reading a range of offsets as Arrow batches, exactly: first, last, order and count are verified, nothing is skipped in silence.

May not: end early, or go on behind a hole unless it was told to.
The idea: a range is half open and names the topic by its id, so a topic that was deleted and made again is not mistaken for
the old one. Blocks are small; they are gathered up to SPARK_BATCH_ROWS before they become a batch.
Next: arrow.py for one block, source.py for who asks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from oncemq.core.packets import NOBODY, Part, Read
from oncemq.errors import Damaged, Diverged, Gap, OnceMQError
from oncemq.journal.codec import BadRecord, Delivered, decode_delivery
from oncemq.limits import SPARK_BATCH_BYTES, SPARK_BATCH_ROWS, SPARK_READ_BYTES
from oncemq.model.block import BadBlock
from oncemq.pipeline.arrow import COLUMNS, Wrapped, to_batch, wrap
from oncemq.pipeline.requests import Requests

log = logging.getLogger("oncemq.pipeline")


class OffsetRange(msgspec.Struct, frozen=True):
    """Offsets [first, end) of one topic. With an append number: that of the last message, checked when it is read (R1)."""

    topic: str
    topic_id: int
    first: int
    end: int
    start_id: bytes = NOBODY
    append_number: int = 0

    @property
    def rows(self) -> int:
        return self.end - self.first


class RangeBroken(OnceMQError):
    """The broker sent something else than the range that was asked for. Never expected; told rather than believed."""

    def __init__(self, wanted: OffsetRange, at: int, what: str) -> None:
        self.wanted, self.at, self.what = wanted, at, what
        super().__init__(
            f"reading offsets {wanted.first} to {wanted.end - 1} of topic {wanted.topic!r}: at {at}, {what}; "
            "the task can be tried again, and if it stays so run 'oncemq verify' on the broker's directory"
        )


def read_batches(
    requests: Requests, wanted: OffsetRange, columns: Sequence[str] = COLUMNS, *, fail_on_data_loss: bool = True
) -> Iterator[Any]:
    """Yield record batches of exactly [first, end), in offset order.

    What is gone raises Gap and what cannot be read Damaged; with `fail_on_data_loss` false both are logged and skipped.
    """
    waiting: list[Wrapped] = []
    rows = size_bytes = 0
    for block in read_blocks(requests, wanted, fail_on_data_loss=fail_on_data_loss):
        is_apart = waiting and block.first != waiting[-1].first + waiting[-1].count
        if is_apart or rows >= SPARK_BATCH_ROWS or size_bytes + block.values.nbytes > SPARK_BATCH_BYTES:
            if waiting:
                yield to_batch(wanted.topic, waiting, columns)
            waiting, rows, size_bytes = [], 0, 0
        waiting.append(block)
        rows += block.count
        size_bytes += block.values.nbytes
    if waiting:
        yield to_batch(wanted.topic, waiting, columns)


def read_blocks(requests: Requests, wanted: OffsetRange, *, fail_on_data_loss: bool = True) -> Iterator[Wrapped]:
    """Yield the blocks of a range, cut to it and checked to continue one another."""
    at = wanted.first
    while at < wanted.end:
        packet, body = requests.read(Read(wanted.topic, wanted.topic_id, at, wanted.end, SPARK_READ_BYTES))
        started_at = at
        try:
            _check_part(wanted, packet.parts[0], at)
            for block in _blocks(wanted, body, at):
                yield block
                at = block.first + block.count
        except (Gap, Damaged) as told:
            if fail_on_data_loss:
                raise
            log.warning("%s; going on behind them, because failOnDataLoss is false", told)
            at = min(max(told.end, at), wanted.end)
        if at == started_at:
            raise RangeBroken(wanted, at, "the broker sent nothing")


def _check_part(wanted: OffsetRange, part: Part, at: int) -> None:
    if at < part.low:
        raise Gap(wanted.topic, at, min(part.low, wanted.end))
    if part.damaged_end:
        raise Damaged(wanted.topic, max(at, part.damaged_first), part.damaged_end, "the broker cannot read it; its log says why")
    if part.end < wanted.end:
        raise RangeBroken(wanted, at, f"the topic ends at {part.end} now: was the broker set back to an older copy?")


def _blocks(wanted: OffsetRange, body: bytes | memoryview, at: int) -> Iterator[Wrapped]:
    position = 0
    while position < len(body) and at < wanted.end:
        try:
            delivered, start, end, position = decode_delivery(body, position)
        except BadRecord as problem:
            raise RangeBroken(wanted, at, str(problem)) from problem
        block_end = delivered.first_offset + delivered.count
        if delivered.topic_id != wanted.topic_id or not delivered.first_offset <= at < block_end:
            raise RangeBroken(wanted, at, f"offsets {delivered.first_offset} to {block_end - 1} came instead")
        try:
            block = wrap(delivered, body, start, end)
        except BadBlock as problem:
            raise Damaged(wanted.topic, at, min(block_end, wanted.end), str(problem)) from problem
        if block_end >= wanted.end:
            _check_mark(wanted, delivered)
        skip, count = at - delivered.first_offset, min(block_end, wanted.end) - at
        yield block if skip == 0 and count == block.count else block.slice(skip, count)
        at += count


def _check_mark(wanted: OffsetRange, delivered: Delivered) -> None:
    """The last message must be the one that the range was planned with, not another one under its number."""
    if wanted.append_number and (wanted.start_id, wanted.append_number) != (delivered.start_id, delivered.append_number):
        raise Diverged(f"offset {wanted.end - 1} of topic {wanted.topic!r} is another message than when this range was planned")

# SPDX-License-Identifier: Apache-2.0
"""Blocks ⇄ Arrow: a block's columns are Arrow's own buffers, so wrapping them costs no loop over messages.

May not: hand out an array whose offsets were not checked: a checksum proves only what the sender meant, and Arrow reads foreign
memory or dies where an offset lies (R19).
The idea: every buffer of a block starts at a multiple of 8 and looks exactly like an Arrow array's. A `Wrapped` is one block as
arrays over the bytes that came off the wire; several of them in a row are joined into one batch, because Spark pays per batch.
Headers are one msgpack map per message; only *distinct* maps are decoded, one by one.
Next: reading.py, which reads ranges with it; cutting.py for the other direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy
import pyarrow as pa

from oncemq.errors import Damaged
from oncemq.journal.codec import Delivered
from oncemq.limits import BLOCK_BYTES_MAX
from oncemq.model.block import HAS_HEADERS, HAS_KEYS, HEAD_BYTES, BadBlock, check_block

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TYPES: Final[dict[str, Any]] = {
    "topic": pa.string(),
    "offset": pa.int64(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.field("element", HEADER)),
    "publisher": pa.string(),
    "put_number": pa.int64(),
    "timestamp": TIMESTAMP,
    "append_time": TIMESTAMP,
    "stream": pa.binary(),
    "raw_headers": pa.binary(),
}
"""Every column a batch can have. `timestamp` is when the publisher put it, `append_time` when the broker stored it."""

COLUMNS: Final = ("topic", "offset", "key", "value", "headers", "publisher", "put_number", "timestamp")
"""What a topic looks like as a table, unless fewer or others are asked for."""

_HEADERS = msgspec.msgpack.Decoder(dict[str, Any])


class Wrapped(msgspec.Struct, frozen=True):
    """One block as arrays over its own bytes; keys and headers are None where the block has none."""

    delivered: Delivered
    values: Any
    times: Any
    keys: Any
    headers: Any

    @property
    def first(self) -> int:
        return self.delivered.first_offset

    @property
    def count(self) -> int:
        return len(self.values)

    def slice(self, skip: int, count: int) -> Wrapped:
        """Leave out the first `skip` messages and keep `count`, without a copy."""
        moved = msgspec.structs.replace(
            self.delivered,
            first_offset=self.delivered.first_offset + skip,
            first_number=self.delivered.first_number + skip,
            count=count,
        )
        columns = (self.values, self.times, self.keys, self.headers)
        return Wrapped(moved, *(None if column is None else column.slice(skip, count) for column in columns))


# --- wrapping ---------------------------------------------------------------------------------------


def wrap(delivered: Delivered, body: bytes | memoryview, start: int, end: int) -> Wrapped:
    """Return the block at body[start:end] as arrays, every offset checked; raise BadBlock if one is wrong."""
    view = memoryview(body)[start:end]
    outline = check_block(view, value_bytes_max=BLOCK_BYTES_MAX)
    if outline.count != delivered.count or outline.crc != delivered.block_crc:
        raise BadBlock("another block than its record says")
    buffer = pa.py_buffer(view)
    at, count = HEAD_BYTES, outline.count
    times = pa.Array.from_buffers(TIMESTAMP, count, [None, buffer.slice(at, 8 * count)])
    values, at = _column(buffer, outline.values_at, count, outline.value_bytes, nullable=False)
    keys, headers = None, None
    if outline.flags & HAS_KEYS:
        keys, at = _column(buffer, at, count, outline.key_bytes, nullable=True)
    if outline.flags & HAS_HEADERS:
        headers, at = _column(buffer, at, count, outline.headers_bytes, nullable=True)
    return Wrapped(delivered, values, times, keys, headers)


def _column(buffer: Any, at: int, count: int, size_bytes: int, *, nullable: bool) -> tuple[Any, int]:
    """Return the binary array at a place of the block, and where the next column starts."""
    validity = None
    if nullable:
        validity = buffer.slice(at, (count + 7) // 8)
        at += _padded((count + 7) // 8)
    offsets = buffer.slice(at, 4 * (count + 1))
    at += _padded(4 * (count + 1))
    array = pa.Array.from_buffers(pa.binary(), count, [validity, offsets, buffer.slice(at, size_bytes)])
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as problem:
        raise BadBlock(f"offsets of a column: {problem}") from problem
    return array, at + _padded(size_bytes)


def _padded(size_bytes: int) -> int:
    return (size_bytes + 7) & ~7


# --- batches ----------------------------------------------------------------------------------------


def schema_of(columns: Sequence[str] = COLUMNS) -> Any:
    """Return the Arrow schema of a batch with these columns; all of them nullable, because Spark compares that too."""
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])


def to_batch(topic: str, blocks: Sequence[Wrapped], columns: Sequence[str] = COLUMNS) -> Any:
    """Join blocks of one topic, in offset order and without a gap between them, into one record batch."""
    made = [_made(name, topic, blocks) for name in columns]
    return pa.RecordBatch.from_arrays(made, schema=schema_of(columns))


def _made(name: str, topic: str, blocks: Sequence[Wrapped]) -> Any:
    rows = sum(block.count for block in blocks)
    match name:
        case "topic":
            return _constant(topic, rows)
        case "offset":
            return _numbers(blocks[0].first, rows)
        case "value":
            return _joined([block.values for block in blocks])
        case "timestamp":
            return _joined([block.times for block in blocks])
        case "key":
            return _joined([_or_nulls(block.keys, block.count) for block in blocks])
        case "raw_headers":
            return _joined([_or_nulls(block.headers, block.count) for block in blocks])
        case "headers":
            return _joined([_headers(topic, block) for block in blocks])
        case "put_number":
            return _joined([_numbers(block.delivered.first_number, block.count) for block in blocks])
        case "publisher":
            return _joined([_constant(block.delivered.publisher, block.count) for block in blocks])
        case "append_time":
            return _joined([_moment(block.delivered.append_time_us, block.count) for block in blocks])
        case "stream":
            return _joined([_constant(block.delivered.stream, block.count) for block in blocks])
        case _:
            raise KeyError(name)


def _joined(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


@lru_cache(maxsize=256)
def _constant(value: str | bytes, rows: int) -> Any:
    """Most blocks have the same size and publisher: made once."""
    return pa.repeat(pa.scalar(value, pa.string() if isinstance(value, str) else pa.binary()), rows)


def _numbers(first: int, rows: int) -> Any:
    return pa.array(numpy.arange(first, first + rows, dtype=numpy.int64))


def _moment(time_us: int, rows: int) -> Any:
    return pa.array(numpy.full(rows, time_us, dtype=numpy.int64)).view(TIMESTAMP)


def _or_nulls(column: Any, rows: int) -> Any:
    return _nulls("key", rows) if column is None else column


@lru_cache(maxsize=64)
def _nulls(name: str, rows: int) -> Any:
    return pa.nulls(rows, TYPES[name])


# --- headers ----------------------------------------------------------------------------------------


def _headers(topic: str, block: Wrapped) -> Any:
    """Return the headers as lists of (key, value): distinct maps are decoded, and the rest is Arrow's."""
    if block.headers is None:
        return _nulls("headers", block.count)
    try:
        return decode_headers(block.headers)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Damaged(topic, block.first, block.first + block.count, f"headers cannot be read: {problem}") from problem


def decode_headers(packed: Any) -> Any:
    """Turn msgpack maps into lists of (key, value); text values become their UTF-8 bytes, as in Kafka's headers."""
    encoded = packed.dictionary_encode()
    decoded = [_pairs(_HEADERS.decode(one)) for one in encoded.dictionary.to_pylist()]
    return pa.array(decoded, TYPES["headers"]).take(encoded.indices)


def _pairs(headers: dict[str, Any]) -> list[tuple[str, bytes]]:
    pairs = [(key, value.encode() if isinstance(value, str) else value) for key, value in headers.items()]
    if not all(isinstance(value, bytes) for _, value in pairs):
        raise msgspec.ValidationError("a value is neither text nor bytes")
    return pairs

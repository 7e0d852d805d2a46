# SPDX-License-Identifier: Apache-2.0
"""Arrow → blocks: the columns of a batch are put behind one another, and that is a block.

May not: loop over rows, but for headers that are there; accept a row without a value.
The idea: the reverse of arrow.py. Offsets are moved to begin at 0, validity becomes a bitmap, bytes are copied once.
Next: sink.py, which stages what is cut here; model/block.py for the layout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy
import pyarrow as pa
import pyarrow.compute as pc

from oncemq.errors import MessageTooLarge, UsageError
from oncemq.limits import HEADERS_BYTES_MAX, KEY_BYTES_MAX, SPARK_STAGE_BYTES, SPARK_STAGE_ROWS, VALUE_BYTES_MAX
from oncemq.model.block import CODEC_NONE, HAS_HEADERS, HAS_KEYS, HEAD_BYTES, VERSION, checksum

_HEAD = struct.Struct("<BBHIIIIIII")
_CRC_AT = 12
_ENCODER = msgspec.msgpack.Encoder()


def slices(batch: Any) -> Iterator[Any]:
    """Cut a batch so that every piece becomes a block of moderate size."""
    rows = batch.num_rows
    if not rows:
        return
    pieces = max(-(-rows // SPARK_STAGE_ROWS), -(-batch.get_total_buffer_size() // SPARK_STAGE_BYTES))
    step = max(1, -(-rows // pieces))
    for first in range(0, rows, step):
        yield batch.slice(first, step)


def cut(batch: Any, time_us: int) -> bytearray:
    """Encode a batch with a column `value`, and perhaps `key` and `headers`, as one block."""
    rows, columns = batch.num_rows, {name: batch.column(name) for name in batch.schema.names}
    if columns["value"].null_count:
        raise UsageError("column 'value' holds a null: a message has a value, if only an empty one (coalesce(value, ''))")
    parts: list[bytes | memoryview] = [bytes(HEAD_BYTES), numpy.full(rows, time_us, numpy.int64).tobytes()]
    widths = [_append(parts, _binary(columns["value"]), "value", VALUE_BYTES_MAX, nullable=False), 0, 0]
    flags = 0
    key = columns.get("key")
    if key is not None and key.null_count < rows:
        flags |= HAS_KEYS
        widths[1] = _append(parts, _binary(key), "key", KEY_BYTES_MAX, nullable=True)
    headers = columns.get("headers")
    if headers is not None and headers.null_count < rows:
        flags |= HAS_HEADERS
        widths[2] = _append(parts, pack_headers(headers), "headers", HEADERS_BYTES_MAX, nullable=True)
    block = bytearray().join(parts)
    _HEAD.pack_into(block, 0, VERSION, CODEC_NONE, flags, rows, len(block), 0, *widths, 0)
    struct.pack_into("<I", block, _CRC_AT, checksum(block))
    return block


def _binary(column: Any) -> Any:
    """As an Arrow binary array with 32-bit offsets; text is its UTF-8 bytes already."""
    return column if pa.types.is_binary(column.type) or pa.types.is_string(column.type) else column.cast(pa.binary())


def _append(parts: list[bytes | memoryview], column: Any, name: str, bytes_max: int, *, nullable: bool) -> int:
    """Append a column's validity, offsets and bytes, each up to a multiple of 8; return how many bytes the values have."""
    rows = len(column)
    if nullable:
        valid = numpy.asarray(column.is_valid())
        _append_padded(parts, numpy.packbits(valid, bitorder="little").tobytes())
    _, offsets_buffer, data = column.buffers()
    offsets = numpy.frombuffer(offsets_buffer, numpy.int32, rows + 1, 4 * column.offset)
    largest = int(numpy.diff(offsets).max()) if rows else 0
    if largest > bytes_max:
        raise MessageTooLarge(name, largest, bytes_max)
    first, last = int(offsets[0]), int(offsets[-1])
    _append_padded(parts, (offsets - first).astype(numpy.int32, copy=False).tobytes())
    _append_padded(parts, memoryview(data)[first:last] if data is not None else b"")
    return last - first


def _append_padded(parts: list[bytes | memoryview], content: bytes | memoryview) -> None:
    parts.append(content)
    parts.append(bytes(-len(content) % 8))


def pack_headers(column: Any) -> Any:
    """Turn lists of (key, value), or maps, into one msgpack map per row. Text stays text, bytes stay bytes."""
    packed = [None if row is None else _ENCODER.encode(_mapped(row)) for row in column.to_pylist()]
    return pa.array(packed, pa.binary())


def _mapped(row: list[Any]) -> dict[str, Any]:
    """A header's value may not be null; of a key that comes twice the last one counts."""
    pairs = [(entry["key"], entry["value"]) if isinstance(entry, dict) else entry for entry in row]
    if any(key is None or value is None for key, value in pairs):
        raise UsageError("column 'headers' holds a null key or value: leave such headers out")
    return dict(pairs)


def by_topic(batch: Any) -> Iterator[tuple[str, Any]]:
    """Yield (topic, its rows) of a batch with a column `topic`, rows in their order."""
    column = batch.column("topic")
    if column.null_count:
        raise UsageError("column 'topic' holds a null: every row needs a topic, or give all of them option 'topic'")
    rest = batch.drop_columns(["topic"])
    for topic in pc.unique(column).to_pylist():
        yield topic, rest.filter(pc.equal(column, topic))

# SPDX-License-Identifier: Apache-2.0
"""The block: several messages of one publisher for one topic, in Arrow's own layout, cut once and never changed.

May not: know offsets, topics or brokers: a block is the same wherever it lies.
The idea, byte by byte (little-endian, every buffer starts at a multiple of 8; docs/journal-format.md has the same table):

    0  version u8 = 1 · codec u8 = 0 · flags u16 (1 keys, 2 headers) · count u32 · length u32 · crc32c u32
    16 value bytes u32 · key bytes u32 · headers bytes u32 · reserved u32
    32 publish times int64[count]
       value offsets int32[count+1] · value bytes                      = the two buffers of an Arrow binary array
       keys, if any:    validity bitmap · offsets int32[count+1] · bytes
       headers, if any: validity bitmap · offsets int32[count+1] · bytes (one msgpack map per message)

The checksum covers everything but itself. A broker checks it and the outline once, without touching a message;
whoever slices a block validates every offset first, because a checksum proves only what the sender meant.
Next: journal/codec.py, which puts the broker's header before it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise, repeat

import msgspec
from crc32c import crc32c

from oncemq.limits import BLOCK_BYTES_MAX, VALUE_BYTES_MAX
from oncemq.model.message import Message, Source

Bytes = bytes | bytearray | memoryview

VERSION = 1
CODEC_NONE = 0
HAS_KEYS, HAS_HEADERS = 1, 2
_HEAD = struct.Struct("<BBHIII")
_WIDTHS = struct.Struct("<IIII")
HEAD_BYTES = _HEAD.size + _WIDTHS.size
_CRC_AT = 12
_PADDING = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")


class BadBlock(Exception):
    """These bytes are not a block. Internal: the broker refuses, a client tells Damaged."""


class Outline(msgspec.Struct, frozen=True, gc=False):
    """What can be known of a block without looking at a message."""

    flags: int
    count: int
    length: int
    crc: int
    value_bytes: int
    key_bytes: int
    headers_bytes: int

    @property
    def values_at(self) -> int:
        """Where the value column starts."""
        return HEAD_BYTES + 8 * self.count


def _padded(size: int) -> int:
    return (size + 7) & ~7


def _offsets_size(count: int) -> int:
    return _padded(4 * (count + 1))


def _bitmap_size(count: int) -> int:
    return _padded((count + 7) // 8)


# --- cutting ----------------------------------------------------------------------------------------


def cut_block(
    values: Sequence[bytes],
    times_us: array[int],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[bytes | None] | None = None,
) -> bytearray:
    """Encode messages as one block. The four columns have one entry per message; absent columns cost nothing."""
    count = len(values)
    parts: list[Bytes] = [b"\0" * HEAD_BYTES, times_us.tobytes()]
    value_bytes = _append_column(parts, values)
    key_bytes = _append_nullable(parts, keys) if keys else 0
    headers_bytes = _append_nullable(parts, headers) if headers else 0
    flags = (HAS_KEYS if keys else 0) | (HAS_HEADERS if headers else 0)
    block = bytearray().join(parts)
    _HEAD.pack_into(block, 0, VERSION, CODEC_NONE, flags, count, len(block), 0)
    _WIDTHS.pack_into(block, _HEAD.size, value_bytes, key_bytes, headers_bytes, 0)
    struct.pack_into("<I", block, _CRC_AT, checksum(block))
    return block


def _append_column(parts: list[Bytes], values: Sequence[bytes]) -> int:
    """Append an Arrow binary array (offsets, bytes) and return how many bytes the values have."""
    offsets = array("i", accumulate(map(len, values), initial=0))
    total = offsets[-1]
    parts.append(offsets.tobytes())
    parts.append(_PADDING[len(offsets) * 4 % 8])
    parts.extend(values)
    parts.append(_PADDING[total % 8])
    return total


def _append_nullable(parts: list[Bytes], values: Sequence[bytes | None]) -> int:
    bitmap = bytearray(_bitmap_size(len(values)))
    for index, value in enumerate(values):
        if value is not None:
            bitmap[index >> 3] |= 1 << (index & 7)
    parts.append(bitmap)
    return _append_column(parts, [value or b"" for value in values])


def checksum(block: Bytes) -> int:
    """CRC32C of a whole block but for the four bytes that hold it."""
    view = memoryview(block)
    return crc32c(view[_CRC_AT + 4 :], crc32c(view[:_CRC_AT]))


# --- checking ---------------------------------------------------------------------------------------


def outline_of(block: Bytes) -> Outline:
    """Read the outline and check that all lengths agree; raise BadBlock otherwise. Touches no message."""
    if len(block) < HEAD_BYTES:
        raise BadBlock("shorter than a block's head")
    version, codec, flags, count, length, crc = _HEAD.unpack_from(block, 0)
    value_bytes, key_bytes, headers_bytes, reserved = _WIDTHS.unpack_from(block, _HEAD.size)
    if version != VERSION or codec != CODEC_NONE or flags > HAS_KEYS + HAS_HEADERS or reserved:
        raise BadBlock("unknown version, codec or flags")
    if count == 0 or length != len(block) or length > BLOCK_BYTES_MAX:
        raise BadBlock("empty, or not as long as it says")
    outline = Outline(flags, count, length, crc, value_bytes, key_bytes, headers_bytes)
    if _expected_length(outline) != length:
        raise BadBlock("the columns do not fill the block")
    return outline


def _expected_length(outline: Outline) -> int:
    count = outline.count
    size = outline.values_at + _offsets_size(count) + _padded(outline.value_bytes)
    if not outline.flags:
        return size
    nullable = _bitmap_size(count) + _offsets_size(count)
    if outline.flags & HAS_KEYS:
        size += nullable + _padded(outline.key_bytes)
    if outline.flags & HAS_HEADERS:
        size += nullable + _padded(outline.headers_bytes)
    return size


def check_block(block: Bytes, value_bytes_max: int = VALUE_BYTES_MAX) -> Outline:
    """What a broker checks on arrival: outline, checksum, first and last offset of every column, size of values."""
    outline = outline_of(block)
    if checksum(block) != outline.crc:
        raise BadBlock("checksum")
    for at, total in _columns(outline):
        first, last = _ends(block, at, outline.count)
        if first != 0 or last != total:
            raise BadBlock("a column's offsets do not span its bytes")
    if outline.value_bytes > value_bytes_max and _largest_value(block, outline) > value_bytes_max:
        raise ValueTooLarge(f"a value is over {value_bytes_max:,} bytes")
    return outline


class ValueTooLarge(BadBlock):
    """A well-formed block with a value over the limit."""


def _columns(outline: Outline) -> list[tuple[int, int]]:
    """Where each column's offsets start, and how many bytes the column has."""
    count, at = outline.count, outline.values_at
    found = [(at, outline.value_bytes)]
    if not outline.flags:
        return found
    at += _offsets_size(count) + _padded(outline.value_bytes)
    for flag, total in ((HAS_KEYS, outline.key_bytes), (HAS_HEADERS, outline.headers_bytes)):
        if outline.flags & flag:
            found.append((at + _bitmap_size(count), total))
            at += _bitmap_size(count) + _offsets_size(count) + _padded(total)
    return found


def _ends(block: Bytes, at: int, count: int) -> tuple[int, int]:
    return struct.unpack_from("<i", block, at)[0], struct.unpack_from("<i", block, at + 4 * count)[0]


def _largest_value(block: Bytes, outline: Outline) -> int:
    offsets = struct.unpack_from(f"<{outline.count + 1}i", block, outline.values_at)
    return max(int(end - start) for start, end in pairwise(offsets))


# --- slicing ----------------------------------------------------------------------------------------


def messages_of(block: bytes, source: Source, *, skip: int = 0) -> list[Message]:
    """Cut a block into messages, leaving out the first `skip`; raise BadBlock if any offset is wrong."""
    outline = outline_of(block)
    if checksum(block) != outline.crc:
        raise BadBlock("checksum")
    count = outline.count
    columns = iter(_columns(outline))
    values: Sequence[bytes] = _slices(block, *next(columns), count)
    keys = _nullable(block, *next(columns), count) if outline.flags & HAS_KEYS else repeat(None)
    headers = _nullable(block, *next(columns), count) if outline.flags & HAS_HEADERS else repeat(None)
    times = struct.unpack_from(f"<{count}q", block, HEAD_BYTES)
    offsets = range(source.first_offset, source.first_offset + count)
    made = list(map(Message, repeat(source.topic), offsets, values, keys, headers, times, repeat(source)))
    return made[skip:] if skip else made


def validate(block: bytes) -> int:
    """Check everything that slicing relies on, of every column, without slicing; return how many messages there are (R19)."""
    outline = outline_of(block)
    if checksum(block) != outline.crc:
        raise BadBlock("checksum")
    for at, total in _columns(outline):
        _offsets(block, at, total, outline.count)
    return outline.count


def values_of(block: bytes) -> list[bytes]:
    """Cut only the values out of a block that was validated."""
    outline = outline_of(block)
    return _slices(block, outline.values_at, outline.value_bytes, outline.count)


def _offsets(block: bytes, at: int, total: int, count: int) -> tuple[int, ...]:
    """The offsets of a column; raise BadBlock if a slice would reach outside of it."""
    offsets = struct.unpack_from(f"<{count + 1}i", block, at)
    # Sorting a sorted tuple is one pass in C: the cheapest proof that no slice reaches outside its column.
    if offsets[0] != 0 or offsets[-1] != total or list(offsets) != sorted(offsets):
        raise BadBlock("offsets out of order")
    return offsets


def _slices(block: bytes, at: int, total: int, count: int) -> list[bytes]:
    offsets = _offsets(block, at, total, count)
    base = at + _offsets_size(count)
    data = block[base : base + total]
    return [data[start:end] for start, end in pairwise(offsets)]


def _nullable(block: bytes, at: int, total: int, count: int) -> list[bytes | None]:
    bitmap = block[at - _bitmap_size(count) : at]
    values = _slices(block, at, total, count)
    return [value if bitmap[index >> 3] >> (index & 7) & 1 else None for index, value in enumerate(values)]

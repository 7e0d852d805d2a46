# SPDX-License-Identifier: Apache-2.0
"""Blocks: cut and sliced back, laid out as Arrow wants it, and refused or told as damaged when anything is wrong."""

from __future__ import annotations

import struct
from array import array
from contextlib import suppress
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.limits import BLOCK_BYTES_MAX
from oncemq.model.block import (
    HAS_HEADERS,
    HAS_KEYS,
    HEAD_BYTES,
    BadBlock,
    ValueTooLarge,
    check_block,
    checksum,
    cut_block,
    messages_of,
    outline_of,
)
from oncemq.model.message import Message, Source

SOURCE = Source("orders", 3, "billing", b"s" * 16, 41, 100, 7, 1_700_000_000_000_000, b"b" * 16)
VALUES = st.binary(max_size=40)
MAYBE = st.none() | VALUES


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[bytes], array[int], list[bytes | None] | None, list[bytes | None] | None]:
    """Values with publish times, and keys and headers for all, some or none of them."""
    count = draw(st.integers(1, 20))
    times = array("q", draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=count, max_size=count)))
    column = st.none() | st.lists(MAYBE, min_size=count, max_size=count)
    return draw(st.lists(VALUES, min_size=count, max_size=count)), times, draw(column), draw(column)


def block_of(*values: bytes, keys: list[bytes | None] | None = None) -> bytearray:
    return cut_block(values, array("q", range(len(values))), keys)


def resealed(block: bytearray) -> bytes:
    """Make the checksum right again: a sender that means harm does so too."""
    struct.pack_into("<I", block, 12, checksum(block))
    return bytes(block)


# --- there and back -------------------------------------------------------------------------------------


@given(columns())
def test_messages_come_back_as_they_were_cut(
    drawn: tuple[list[bytes], array[int], list[bytes | None] | None, list[bytes | None] | None],
) -> None:
    """Values, times, keys and headers; None stays None and empty stays empty."""
    values, times, keys, headers = drawn
    block = bytes(cut_block(values, times, keys, headers))
    outline = check_block(block)
    assert outline.count == len(values)
    assert outline.length == len(block)
    assert outline.flags == (HAS_KEYS if keys else 0) | (HAS_HEADERS if headers else 0)
    messages = messages_of(block, SOURCE)
    assert [message.value for message in messages] == values
    assert [message.publish_time_us for message in messages] == list(times)
    assert [message.key for message in messages] == (keys or [None] * len(values))
    assert [message.raw_headers for message in messages] == (headers or [None] * len(values))
    assert [message.offset for message in messages] == list(range(100, 100 + len(values)))
    assert [message.put_number for message in messages] == list(range(41, 41 + len(values)))


@given(columns(), st.integers(0, 20))
def test_what_is_skipped_is_left_out(
    drawn: tuple[list[bytes], array[int], list[bytes | None] | None, list[bytes | None] | None], skip: int
) -> None:
    """The rest keeps its offsets."""
    block = bytes(cut_block(*drawn))
    assert messages_of(block, SOURCE, skip=skip) == messages_of(block, SOURCE)[skip:]


@given(columns())
def test_every_buffer_lies_where_arrow_expects_it(
    drawn: tuple[list[bytes], array[int], list[bytes | None] | None, list[bytes | None] | None],
) -> None:
    """Times at 32, then int32 offsets and bytes of the values, each at a multiple of eight; so is the whole block."""
    values, times, keys, headers = drawn
    block = bytes(cut_block(values, times, keys, headers))
    count = len(values)
    assert len(block) % 8 == 0
    assert struct.unpack_from(f"<{count}q", block, HEAD_BYTES) == tuple(times)
    at = HEAD_BYTES + 8 * count
    offsets = struct.unpack_from(f"<{count + 1}i", block, at)
    data = at + (4 * (count + 1) + 7) // 8 * 8
    assert [block[data + start : data + end] for start, end in pairwise(offsets)] == values


def test_a_block_is_the_same_bytes_every_time() -> None:
    """Golden: cut once, stored and sent verbatim, read by others."""
    block = cut_block([b"one", b"three"], array("q", [1, 2]), [b"k", None])
    assert bytes(block).hex() == (
        "010001000200000068000000c0de3b7e08000000010000000000000000000000"
        "01000000000000000200000000000000"
        "000000000300000008000000000000006f6e657468726565"
        "0100000000000000000000000100000001000000000000006b00000000000000"
    )


def test_headers_are_decoded_on_demand() -> None:
    """One msgpack map per message."""
    headers = msgspec.msgpack.encode({"source": "web", "trace": b"\x01"})
    block = bytes(cut_block([b"a", b"b"], array("q", [0, 0]), None, [headers, None]))
    first, second = messages_of(block, SOURCE)
    assert first.headers == {"source": "web", "trace": b"\x01"}
    assert second.headers == {}


def test_a_message_knows_where_it_came_from() -> None:
    """What all messages of a block share is kept once."""
    (message,) = messages_of(bytes(block_of(b"a")), SOURCE)
    assert (message.topic, message.publisher, message.append_time_us) == ("orders", "billing", 1_700_000_000_000_000)
    with pytest.raises(AttributeError):
        message.offset = 5  # type: ignore[misc]
    assert isinstance(message, Message)


# --- checking -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [None, [b"k", None, b""]], ids=["values", "values and keys"])
def test_every_flipped_bit_is_found_on_arrival(keys: list[bytes | None] | None) -> None:
    """By the checksum, or because the outline no longer agrees with itself."""
    block = bytes(block_of(b"one", b"", b"three", keys=keys))
    for position in range(len(block)):
        for bit in (1, 16, 128):
            bad = bytearray(block)
            bad[position] ^= bit
            with pytest.raises(BadBlock):
                check_block(bytes(bad))
            with pytest.raises(BadBlock):
                messages_of(bytes(bad), SOURCE)


def test_a_block_cut_short_or_made_longer_is_found() -> None:
    """At every length."""
    block = bytes(block_of(b"one", b"two"))
    for length in range(len(block)):
        with pytest.raises(BadBlock):
            check_block(block[:length])
    for tail in (b"\0", bytes(8), block):
        with pytest.raises(BadBlock):
            check_block(block + tail)


@pytest.mark.parametrize(
    ("position", "content"),
    [
        (0, b"\2"),  # version
        (1, b"\1"),  # codec
        (2, b"\4"),  # flags
        (3, b"\1"),
        (4, bytes(4)),  # count
        (4, b"\xff\xff\xff\xff"),
        (8, bytes(4)),  # length
        (8, b"\xff\xff\xff\xff"),
        (16, b"\xff\xff\xff\xff"),  # value bytes
        (20, b"\1\0\0\0"),  # key bytes without keys
        (24, b"\1\0\0\0"),
        (28, b"\1\0\0\0"),  # reserved
    ],
)
def test_an_outline_that_cannot_be_is_refused_even_with_the_right_checksum(position: int, content: bytes) -> None:
    """A checksum proves only what the sender meant."""
    block = block_of(b"one", b"two")
    block[position : position + len(content)] = content
    with suppress(struct.error):
        resealed(block)
    if position in (20, 24):
        outline_of(block)  # Widths of columns that are not there say nothing.
    else:
        with pytest.raises(BadBlock):
            check_block(bytes(block))


OFFSETS_AT = HEAD_BYTES + 3 * 8


@pytest.mark.parametrize(
    "offsets",
    [
        (0, 3, 3000, 6),  # H17: a slice that reaches far outside.
        (0, 3, -1, 6),
        (0, 6, 3, 6),
        (0, -3, 3, 6),
        (0, 2**31 - 1, 2**31 - 1, 6),
        (0, -(2**31), 0, 6),
    ],
)
def test_offsets_out_of_order_are_found_by_whoever_slices(offsets: tuple[int, ...]) -> None:
    """The broker checks only the ends, in constant time; a reader checks every offset before it uses one."""
    block = block_of(b"abc", b"", b"def")
    struct.pack_into("<4i", block, OFFSETS_AT, *offsets)
    sealed = resealed(block)
    assert check_block(sealed).count == 3
    with pytest.raises(BadBlock, match="offsets out of order"):
        messages_of(sealed, SOURCE)


@pytest.mark.parametrize(
    "offsets", [(1, 3, 3, 6), (0, 3, 3, 5), (0, 3, 3, 7), (0, 3, 3, 2**31 - 1), (-1, 3, 3, 6), (0, 3, 3, -6)]
)
def test_offsets_that_do_not_span_the_column_are_refused_on_arrival(offsets: tuple[int, ...]) -> None:
    """First offset 0, last offset the length of the bytes."""
    block = block_of(b"abc", b"", b"def")
    struct.pack_into("<4i", block, OFFSETS_AT, *offsets)
    sealed = resealed(block)
    with pytest.raises(BadBlock):
        check_block(sealed)
    with pytest.raises(BadBlock):
        messages_of(sealed, SOURCE)


def test_offsets_of_keys_are_checked_as_those_of_values() -> None:
    """Each column for itself."""
    block = block_of(b"abc", b"def", keys=[b"k1", b"k2"])
    at = bytes(block).rindex(struct.pack("<3i", 0, 2, 4))
    struct.pack_into("<3i", block, at, 0, 2000, 4)
    sealed = resealed(block)
    check_block(sealed)
    with pytest.raises(BadBlock):
        messages_of(sealed, SOURCE)


def test_a_value_over_the_limit_is_told_apart_from_damage() -> None:
    """The block is well-formed; its refusal is an outcome. Many small values of the same size together are fine."""
    assert check_block(bytes(block_of(b"x" * 10)), value_bytes_max=10).count == 1
    assert check_block(bytes(block_of(*[b"x" * 10] * 5)), value_bytes_max=10).count == 5
    with pytest.raises(ValueTooLarge):
        check_block(bytes(block_of(b"x", b"x" * 11, b"x")), value_bytes_max=10)


def test_a_block_over_its_limit_is_refused_by_its_length_alone() -> None:
    """Before anything in it is looked at."""
    block = bytearray(BLOCK_BYTES_MAX + 8)
    block[:16] = struct.pack("<BBHIII", 1, 0, 0, 1, len(block), 0)
    with pytest.raises(BadBlock, match="not as long as it says"):
        outline_of(block)


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_bad_block(content: bytes) -> None:
    """Whoever sends them."""
    for function in (outline_of, check_block, lambda block: messages_of(block, SOURCE)):
        with pytest.raises(BadBlock):
            function(content)


@given(columns(), st.data())
def test_a_block_with_changed_bytes_and_the_right_checksum_raises_nothing_but_bad_block(
    drawn: tuple[list[bytes], array[int], list[bytes | None] | None, list[bytes | None] | None], data: st.DataObject
) -> None:
    """And when nothing is raised, there are as many messages as it says, and none reaches outside."""
    block = cut_block(*drawn)
    for _ in range(data.draw(st.integers(1, 4))):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    sealed = resealed(block)
    with suppress(BadBlock):
        messages = messages_of(sealed, SOURCE)
        assert len(messages) == outline_of(sealed).count
        assert sum(len(message.value) for message in messages) == outline_of(sealed).value_bytes

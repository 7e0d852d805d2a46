# SPDX-License-Identifier: Apache-2.0
"""Blocks as Arrow batches: every message is there, every column says what the client said, and a bad block is told, not read."""

from __future__ import annotations

import struct
import time
from array import array

import msgspec
import pyarrow as pa
import pytest

import oncemq
from oncemq.errors import Damaged, Gap
from oncemq.journal.codec import Delivered
from oncemq.model.block import BadBlock, checksum, cut_block
from oncemq.pipeline.arrow import COLUMNS, TYPES, schema_of, to_batch, wrap
from oncemq.pipeline.reading import OffsetRange, RangeBroken, read_batches
from oncemq.pipeline.requests import Requests


def delivered(block: bytes | bytearray, first: int = 0, number: int = 1) -> Delivered:
    count, crc = struct.unpack_from("<I", block, 4)[0], struct.unpack_from("<I", block, 12)[0]
    return Delivered(7, first, count, 3, 1_000_000, b"s" * 16, b"t" * 16, number, crc, "me", None)


def whole_range(requests: Requests, topic: str) -> OffsetRange:
    info = requests.topics(topic)[topic]
    return OffsetRange(topic, info.topic_id, info.low, info.end)


def table_of(requests: Requests, wanted: OffsetRange, columns: tuple[str, ...] = COLUMNS) -> pa.Table:
    return pa.Table.from_batches(list(read_batches(requests, wanted, columns)), schema=schema_of(columns))


def test_every_column_says_what_the_client_said(client: oncemq.Client, kept: str, requests: Requests) -> None:
    client.put(kept, b"one", key=b"k", headers={"source": "web", "raw": b"\xff"})
    client.put(kept, b"")
    client.put(kept, b"three", headers={"source": "web"})
    stored = list(client.read(kept, 0, 3))

    rows = table_of(requests, whole_range(requests, kept)).to_pylist()

    assert [row["value"] for row in rows] == [b"one", b"", b"three"]
    assert [row["key"] for row in rows] == [b"k", None, None]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert [row["put_number"] for row in rows] == [message.put_number for message in stored]
    assert {row["topic"] for row in rows} == {kept}
    assert {row["publisher"] for row in rows} == {stored[0].publisher}
    assert [int(row["timestamp"].timestamp() * 1_000_000) for row in rows] == [message.publish_time_us for message in stored]
    assert rows[0]["headers"] == [{"key": "source", "value": b"web"}, {"key": "raw", "value": b"\xff"}]
    assert rows[1]["headers"] is None
    assert rows[2]["headers"] == [{"key": "source", "value": b"web"}]


def test_a_range_may_begin_and_end_inside_blocks(client: oncemq.Client, kept: str, requests: Requests) -> None:
    client.put_many(kept, [b"%d" % number for number in range(3_500)])
    info = requests.topics(kept)[kept]

    table = table_of(requests, OffsetRange(kept, info.topic_id, 17, 3_001))

    assert table["value"].to_pylist() == [b"%d" % number for number in range(17, 3_001)]
    assert table["offset"].to_pylist() == list(range(17, 3_001))
    assert table["put_number"].to_pylist() == list(range(18, 3_002))


def test_small_blocks_are_joined_into_one_batch(client: oncemq.Client, kept: str, requests: Requests) -> None:
    for number in range(20):
        client.put(kept, b"%d" % number)

    batches = list(read_batches(requests, whole_range(requests, kept)))

    assert [batch.num_rows for batch in batches] == [20]
    assert batches[0].schema.equals(schema_of())


def test_only_the_columns_that_are_asked_for_are_made(client: oncemq.Client, kept: str, requests: Requests) -> None:
    client.put(kept, b"one")
    columns = ("value", "append_time", "stream", "raw_headers")

    table = table_of(requests, whole_range(requests, kept), columns)

    assert table.column_names == list(columns)
    assert table["stream"].to_pylist() == [next(iter(client.read(kept, 0, 1))).source.stream]


@pytest.mark.parametrize("bad", [3_000, -1, 2_000_000_000])
def test_offsets_that_point_outside_are_found_before_arrow_reads_them(bad: int) -> None:
    block = cut_block([b"abc", b"", b"def"], array("q", [1, 2, 3]))
    struct.pack_into("<i", block, 32 + 24 + 4, bad)
    struct.pack_into("<I", block, 12, checksum(block))

    with pytest.raises(BadBlock):
        wrap(delivered(block), bytes(block), 0, len(block))


def test_a_block_whose_bytes_rotted_is_found() -> None:
    block = cut_block([b"abc"], array("q", [1]))
    record = delivered(block)
    block[-8] ^= 1

    with pytest.raises(BadBlock):
        wrap(record, bytes(block), 0, len(block))


def test_headers_that_are_no_map_are_damaged() -> None:
    block = cut_block([b"v"], array("q", [1]), headers=[msgspec.msgpack.encode([1, 2])])

    with pytest.raises(Damaged, match=r"headers"):
        to_batch("t", [wrap(delivered(block), bytes(block), 0, len(block))])


def test_the_types_are_those_spark_compares_with() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    everything = schema_of(tuple(TYPES))
    assert to_arrow_schema(from_arrow_schema(everything), timezone="UTC").equals(everything)


def test_a_topic_that_ends_before_the_range_is_told(client: oncemq.Client, kept: str, requests: Requests) -> None:
    client.put_many(kept, [b"%d" % number for number in range(10)])
    wanted = whole_range(requests, kept)

    with pytest.raises(RangeBroken, match=r"ends at 10 now"):
        list(read_batches(requests, msgspec.structs.replace(wanted, end=11)))


@pytest.fixture
def trimmed(client: oncemq.Client, topic: str, requests: Requests) -> OffsetRange:
    """A topic whose first messages are gone: they were finished, and nothing else keeps them."""
    client.subscribe(topic)
    client.put_many(topic, [b"%d" % number for number in range(1_000)])
    client.put_many(topic, [b"%d" % number for number in range(1_000, 1_010)])
    assert len(client.get_many(topic, 1_005)) == 1_005
    client.ack(topic)
    due = time.monotonic() + 60
    while (info := requests.topics(topic)[topic]).low == 0:
        assert time.monotonic() < due, "nothing was trimmed"
    return OffsetRange(topic, info.topic_id, 0, 1_010)


def test_what_is_gone_is_a_gap(trimmed: OffsetRange, requests: Requests) -> None:
    with pytest.raises(Gap, match=r"no longer stored"):
        list(read_batches(requests, trimmed))


def test_what_is_gone_is_skipped_if_that_was_asked_for(trimmed: OffsetRange, requests: Requests) -> None:
    low = requests.topics(trimmed.topic)[trimmed.topic].low

    batches = list(read_batches(requests, trimmed, ("offset",), fail_on_data_loss=False))

    assert pa.Table.from_batches(batches)["offset"].to_pylist() == list(range(low, 1_010))


def test_headers_with_values_that_are_neither_text_nor_bytes_are_damaged() -> None:
    block = cut_block([b"v"], array("q", [1]), headers=[msgspec.msgpack.encode({"n": 1})])

    with pytest.raises(Damaged, match=r"neither text nor bytes"):
        to_batch("t", [wrap(delivered(block), bytes(block), 0, len(block))])

# SPDX-License-Identifier: Apache-2.0
"""The sink, called as Spark calls it but without Spark: blocks from Arrow, parts from tasks, one commit per batch."""

from __future__ import annotations

import os
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, MapType, StringType, StructField, StructType

import oncemq
from oncemq.errors import InvalidName, MessageTooLarge, NoSubscribers, Refused, UsageError
from oncemq.model.block import check_block, messages_of
from oncemq.model.message import Source
from oncemq.model.refusals import Code
from oncemq.pipeline.cutting import by_topic, cut, slices
from oncemq.pipeline.datasource import OnceMQDataSource, check_columns
from oncemq.pipeline.options import SinkOptions
from oncemq.pipeline.requests import Requests
from oncemq.pipeline.sink import NoBatch, StagedParts, Task, TopicStreamWriter, TopicWriter, commit_parts

SOURCE = Source("t", 1, "me", b"s" * 16, 1, 0, 1, 1, b"i" * 16)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch_of(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


# --- blocks -----------------------------------------------------------------------------------------


def test_a_batch_becomes_a_block_that_says_the_same() -> None:
    headers = pa.array([[("a", b"1")], None, [("b", b"\xff"), ("c", b"")]], HEADERS)
    batch = batch_of(value=[b"one", b"", b"three"], key=[None, b"k", b""], headers=headers)

    block = cut(batch, 77)

    check_block(block)
    messages = messages_of(bytes(block), SOURCE)
    assert [message.value for message in messages] == [b"one", b"", b"three"]
    assert [message.key for message in messages] == [None, b"k", b""]
    assert [message.headers for message in messages] == [{"a": b"1"}, {}, {"b": b"\xff", "c": b""}]
    assert {message.publish_time_us for message in messages} == {77}


@pytest.mark.parametrize("first", [0, 1, 7, 8, 9])
def test_a_slice_is_cut_as_well_as_the_whole(first: int) -> None:
    values = [b"%d" % number * (number % 5) for number in range(40)]
    keys = [None if number % 3 else b"k%d" % number for number in range(40)]
    batch = batch_of(value=values, key=pa.array(keys, pa.binary())).slice(first, 21)

    messages = messages_of(bytes(cut(batch, 1)), SOURCE)

    assert [message.value for message in messages] == values[first : first + 21]
    assert [message.key for message in messages] == keys[first : first + 21]


def test_text_is_its_bytes_and_maps_are_headers() -> None:
    headers = pa.array([[("a", "text")]], pa.map_(pa.string(), pa.string()))
    (message,) = messages_of(bytes(cut(batch_of(value=["grüße"], key=["k"], headers=headers), 1)), SOURCE)
    assert (message.value, message.key, message.headers) == ("grüße".encode(), b"k", {"a": "text"})


def test_columns_that_hold_nothing_cost_nothing() -> None:
    bare, empty = batch_of(value=[b"a"]), batch_of(value=[b"a"], key=pa.nulls(1, pa.binary()), headers=pa.nulls(1, HEADERS))
    assert cut(bare, 1) == cut(empty, 1)


@pytest.mark.parametrize(
    ("columns", "error", "said"),
    [
        ({"value": [b"a", None]}, UsageError, "column 'value' holds a null"),
        ({"value": [b"x" * (16 * 1024 * 1024 + 1)]}, MessageTooLarge, "value of 16,777,217 bytes"),
        ({"value": [b"a"], "key": [b"x" * 70_000]}, MessageTooLarge, "key of 70,000 bytes"),
        ({"value": [b"a"], "headers": pa.array([[("a", None)]], HEADERS)}, UsageError, "null key or value"),
    ],
)
def test_what_cannot_be_a_message_is_refused(columns: dict[str, object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        cut(batch_of(**columns), 1)


def test_large_batches_are_cut_into_blocks_of_moderate_size() -> None:
    many = batch_of(value=[b"x"] * 25_000)
    assert [piece.num_rows for piece in slices(many)] == [8_334, 8_334, 8_332]
    wide = batch_of(value=[b"x" * 1_000_000] * 20)
    assert all(len(cut(piece, 1)) < 6 * 1024 * 1024 for piece in slices(wide))
    assert list(slices(many.slice(0, 0))) == []


def test_rows_are_split_by_topic_in_their_order() -> None:
    batch = batch_of(topic=["b", "a", "b"], value=[b"1", b"2", b"3"])
    found = {topic: rows.column("value").to_pylist() for topic, rows in by_topic(batch)}
    assert found == {"b": [b"1", b"3"], "a": [b"2"]}
    with pytest.raises(UsageError, match="column 'topic' holds a null"):
        list(by_topic(batch_of(topic=["a", None], value=[b"1", b"2"])))


# --- columns ----------------------------------------------------------------------------------------


def schema(**columns: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])  # type: ignore[arg-type]


PAIRS = ArrayType(schema(key=StringType(), value=BinaryType()))


@pytest.mark.parametrize(
    "columns",
    [
        {"value": BinaryType()},
        {"value": StringType(), "key": BinaryType(), "topic": StringType(), "headers": PAIRS},
        {"value": StringType(), "headers": MapType(StringType(), StringType())},
    ],
)
def test_columns_that_can_be_written_are_accepted(columns: dict[str, object]) -> None:
    check_columns(schema(**columns), SinkOptions("", "t", None), overwrite=False)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": BinaryType()}, "'value' is missing"),
        ({"value": IntegerType()}, "column 'value' is int, but must be binary or string: cast it"),
        ({"value": BinaryType(), "offset": IntegerType()}, "these are not: offset"),
        ({"value": BinaryType(), "headers": StringType()}, "column 'headers' is string, but must be array<struct"),
        ({"value": BinaryType(), "headers": ArrayType(StringType())}, "column 'headers'"),
        ({"value": BinaryType(), "topic": BinaryType()}, "column 'topic' is binary, but must be string"),
    ],
)
def test_columns_that_cannot_be_written_are_named(columns: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_columns(schema(**columns), SinkOptions("", "t", None), overwrite=False)


def test_a_sink_needs_a_topic_and_does_not_overwrite() -> None:
    with pytest.raises(UsageError, match="set option 'topic', or have a column 'topic'"):
        check_columns(schema(value=BinaryType()), SinkOptions("", None, None), overwrite=False)
    with pytest.raises(UsageError, match="cannot be overwritten"):
        OnceMQDataSource({"topic": "t"}).writer(schema(value=BinaryType()), overwrite=True)


# --- tasks and drivers ------------------------------------------------------------------------------


@pytest.fixture
def query() -> str:
    return "query-" + os.urandom(6).hex()


def stage(
    requests: Requests, query: str, batch: int, topic: str | None, *values: bytes, topics: list[str] | None = None
) -> StagedParts:
    columns: dict[str, object] = {"value": list(values)} | ({"topic": topics} if topics else {})
    return Task(requests, query, batch, topic).stage_all(iter([batch_of(**columns)]))


def values_in(client: oncemq.Client, topic: str) -> list[bytes]:
    (info,) = client.admin.topics(topic)
    return [message.value for message in client.read(topic, info.low, info.end)]


def test_only_what_the_driver_commits_is_ever_seen(client: oncemq.Client, kept: str, requests: Requests, query: str) -> None:
    stage(requests, query, 0, kept, b"failed", b"attempt")
    told = [stage(requests, query, 0, kept, b"a", b"b"), stage(requests, query, 0, kept, b"c")]
    assert values_in(client, kept) == []

    commit_parts(requests, told)

    assert values_in(client, kept) == [b"a", b"b", b"c"]


def test_a_batch_that_runs_again_changes_nothing_and_stages_nothing(
    client: oncemq.Client, kept: str, requests: Requests, query: str
) -> None:
    first = commit_parts(requests, [stage(requests, query, 0, kept, b"a", b"b")])
    again = stage(requests, query, 0, kept, b"b", b"a")  # In another order, as after a shuffle.

    assert again.claims == ()
    done = commit_parts(requests, [again])
    assert (done.is_repeat, done.ranges) == (True, first.ranges)
    assert values_in(client, kept) == [b"a", b"b"]


def test_a_rolled_back_checkpoint_is_refused_by_the_first_task(kept: str, requests: Requests, query: str) -> None:
    for batch in range(3):
        commit_parts(requests, [stage(requests, query, batch, kept, b"a")])
    with pytest.raises(Refused, match="its checkpoint was set back") as refused:
        stage(requests, query, 1, kept, b"other")
    assert refused.value.code == Code.BATCH_WENT_BACK


def test_rows_go_to_the_topic_of_their_column(client: oncemq.Client, kept: str, requests: Requests, query: str) -> None:
    other = kept + "-b"
    client.admin.create_topic(other, retain="forever")
    told = stage(requests, query, 0, None, b"1", b"2", b"3", topics=[kept, other, kept])
    assert len(told.claims) == 2
    commit_parts(requests, [told])
    assert (values_in(client, kept), values_in(client, other)) == ([b"1", b"3"], [b"2"])


def test_the_option_wins_over_the_column(client: oncemq.Client, kept: str, requests: Requests, query: str) -> None:
    commit_parts(requests, [stage(requests, query, 0, kept, b"1", topics=["elsewhere"])])
    assert values_in(client, kept) == [b"1"]


def test_a_topic_that_keeps_nothing_refuses_the_batch(topic: str, requests: Requests, query: str) -> None:
    told = stage(requests, query, 0, topic, b"1")
    with pytest.raises(NoSubscribers, match=topic):
        commit_parts(requests, [told])
    with pytest.raises(InvalidName):
        stage(requests, query, 0, None, b"1", topics=["no name"])


def test_what_tasks_tell_survives_pickling(requests: Requests, kept: str, query: str) -> None:
    told = stage(requests, query, 0, kept, b"1")
    assert pickle.loads(pickle.dumps(told)) == told  # noqa: S301 - as Spark does, between its own processes


def test_a_write_can_be_repeated_with_a_transaction_id(broker: oncemq.Broker, client: oncemq.Client, kept: str) -> None:
    def write(transaction: str | None) -> None:
        writer = TopicWriter(SinkOptions(broker.address, kept, transaction))
        writer.commit([writer.write(iter([batch_of(value=[b"row"])])), None])

    for _ in range(3):
        write("load-2026-01-31." + kept)
    assert values_in(client, kept) == [b"row"]
    write(None)
    write(None)
    assert values_in(client, kept) == [b"row"] * 3


def test_a_stream_writer_outside_of_a_query_says_what_is_missing(broker: oncemq.Broker) -> None:
    writer = TopicStreamWriter(SinkOptions(broker.address, "t", None))
    with pytest.raises(NoBatch, match="does not know its query and batch"):
        writer.write(iter(()))
    with pytest.raises(NoBatch):
        writer.commit([StagedParts("q", 1, ())], 2)

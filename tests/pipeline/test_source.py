# SPDX-License-Identifier: Apache-2.0
"""The source, called as Spark calls it but without Spark: places that do not move, checkpoints that are checked, exact ranges."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

import oncemq
from oncemq.errors import Diverged, Fenced, Gap, NoSuchTopic, UsageError
from oncemq.pipeline.lag import lag_of
from oncemq.pipeline.offsets import from_json
from oncemq.pipeline.options import source_options
from oncemq.pipeline.planning import prorate, split
from oncemq.pipeline.reading import OffsetRange
from oncemq.pipeline.source import TopicReader, TopicStreamReader
from oncemq.pipeline.subscription import WrongCheckpoint

ALL = ReadAllAvailable()
Make = Callable[..., TopicStreamReader]


@pytest.fixture
def name() -> str:
    return "query-" + os.urandom(6).hex()


@pytest.fixture
def readers() -> Iterator[ExitStack]:
    """Readers that are stopped behind the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make(broker: oncemq.Broker, kept: str, name: str, readers: ExitStack) -> Make:
    """Make the reader of a driver; each one is another process's, as after a restart."""

    def made(**options: str) -> TopicStreamReader:
        return streaming(readers, **({"address": broker.address, "subscribe": kept, "subscription": name} | options))

    return made


def streaming(readers: ExitStack, **given: str) -> TopicStreamReader:
    reader = TopicStreamReader(source_options({key.lower(): value for key, value in given.items()}, streaming=True))
    readers.callback(reader.stop)
    return reader


def batch(broker: oncemq.Broker, topic: str, **options: str) -> TopicReader:
    given = {"address": broker.address, "subscribe": topic} | options
    return TopicReader(source_options({key.lower(): value for key, value in given.items()}, streaming=False))


def values(reader: TopicReader | TopicStreamReader, partitions: object) -> list[bytes]:
    return [value for part in partitions for rows in reader.read(part) for value in rows.column("value").to_pylist()]


def put(client: oncemq.Client, topic: str, first: int, end: int) -> None:
    client.put_many(topic, [b"%d" % number for number in range(first, end)])


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


# --- where a query begins ---------------------------------------------------------------------------


def test_latest_is_resolved_once_and_does_not_move(client: oncemq.Client, kept: str, make: Make) -> None:
    put(client, kept, 0, 6)
    first = make(startingOffsets="latest").initialOffset()
    put(client, kept, 6, 10)

    reader = make(startingOffsets="latest")  # Batch 0 was not committed: the next driver asks again.

    assert reader.initialOffset() == first
    assert values(reader, reader.partitions(first, reader.latestOffset(first, ALL))) == numbers(6, 10)


@pytest.mark.parametrize("place", ['{"TOPIC": 4}', "2000-01-01T00:00:00Z", "earliest"])
def test_a_query_begins_where_it_was_told_to(client: oncemq.Client, kept: str, make: Make, place: str) -> None:
    put(client, kept, 0, 6)
    began = from_json(make(startingOffsets=place.replace("TOPIC", kept)).initialOffset())
    assert began.topics[kept].next_offset == (4 if "TOPIC" in place else 0)


def test_a_start_beyond_the_end_is_refused_with_the_option_that_said_it(make: Make, kept: str) -> None:
    with pytest.raises(UsageError, match=r"option 'startingOffsets': offset 5 lies beyond the end"):
        make(startingOffsets=json.dumps({kept: 5})).initialOffset()


def test_the_broker_keeps_messages_for_the_query_until_it_commits(client: oncemq.Client, topic: str, make: Make) -> None:
    """Without a retention: only the query's subscription holds them."""
    reader = make(subscribe=topic)
    began = reader.initialOffset()
    put(client, topic, 0, 3)
    end = reader.latestOffset(began, ALL)
    reader.commit(end)
    (info,) = client.admin.subscriptions(topic)
    assert (info.info.start, info.info.cursor) == (0, 3)


# --- the text of offsets ----------------------------------------------------------------------------


def test_the_same_place_is_the_same_text(client: oncemq.Client, kept: str, make: Make) -> None:
    other = kept + "-b"
    client.admin.create_topic(other, retain="forever")
    put(client, kept, 0, 3)
    put(client, other, 0, 2)
    reader = make(subscribe=f"{other},{kept}")
    began = reader.initialOffset()
    first, second = reader.latestOffset(began, ALL), make(subscribe=f"{kept},{other}").latestOffset(began, ALL)

    assert json.dumps(first) == json.dumps(second)
    assert json.dumps(reader.latestOffset(first, ALL)) == json.dumps(first)
    assert list(first["topics"]) == sorted(first["topics"])
    assert json.dumps(from_json(first).to_json()) == json.dumps(first)


def test_an_offset_has_the_bookmark_of_its_last_message(client: oncemq.Client, kept: str, make: Make) -> None:
    put(client, kept, 0, 3)
    reader = make()
    mark = from_json(reader.latestOffset(reader.initialOffset(), ALL)).topics[kept]
    source = next(iter(client.read(kept, 2, 3))).source
    assert (mark.start_id, mark.append_number, mark.next_offset) == (source.start_id, source.append_number, 3)


def test_offsets_of_another_release_or_source_are_refused() -> None:
    with pytest.raises(UsageError, match=r"version 2"):
        from_json({"log": "", "topics": {}, "v": 2})
    with pytest.raises(UsageError, match=r"no offsets of format 'oncemq'"):
        from_json({"0": 17})


# --- how far ----------------------------------------------------------------------------------------


def next_of(offset: dict, topic: str) -> int:
    return from_json(offset).topics[topic].next_offset


def test_a_rate_limit_bounds_a_batch_and_everything_means_everything(client: oncemq.Client, kept: str, make: Make) -> None:
    put(client, kept, 0, 1_000)
    reader = make(maxOffsetsPerTrigger="300")
    began = reader.initialOffset()
    limit = reader.getDefaultReadLimit()

    assert limit == ReadMaxRows(300)
    assert next_of(reader.latestOffset(began, limit), kept) == 300
    assert next_of(reader.latestOffset(began, ALL), kept) == 1_000


def test_a_limit_in_bytes_is_kept_about(client: oncemq.Client, kept: str, make: Make) -> None:
    client.put_many(kept, [b"x" * 1_000] * 2_000)
    reader = make(maxBytesPerTrigger="500k")
    began = reader.initialOffset()

    assert reader.getDefaultReadLimit() == ReadMaxBytes(500 * 1024)
    assert 400 <= next_of(reader.latestOffset(began, reader.getDefaultReadLimit()), kept) <= 520
    assert next_of(reader.latestOffset(began, ReadMaxBytes(1)), kept) == 1, "a limit below one message must not stand still"


def test_available_now_stops_at_what_was_there(client: oncemq.Client, kept: str, make: Make) -> None:
    put(client, kept, 0, 5)
    reader = make(maxOffsetsPerTrigger="3")
    began = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    put(client, kept, 5, 9)

    first = reader.latestOffset(began, reader.getDefaultReadLimit())
    second = reader.latestOffset(first, reader.getDefaultReadLimit())

    assert (next_of(first, kept), next_of(second, kept)) == (3, 5)
    assert reader.latestOffset(second, reader.getDefaultReadLimit()) == second


def test_topics_share_a_limit_by_what_waits() -> None:
    assert prorate({"a": 900, "b": 100}, 100) == {"a": 90, "b": 10}
    assert prorate({"a": 5, "b": 5}, 100) == {"a": 5, "b": 5}
    assert sum(prorate({"a": 7, "b": 7, "c": 7}, 10).values()) == 10
    assert prorate({"a": 1_000_000, "b": 1}, 1) == {"a": 1, "b": 0}


def test_ranges_are_cut_without_gap_or_overlap() -> None:
    ranges = [OffsetRange("a", 1, 5, 1_005, b"s", 9), OffsetRange("b", 2, 0, 500), OffsetRange("c", 3, 7, 7)]
    pieces = split(ranges, partitions_min=6, cores=2)

    for whole in ranges[:2]:
        mine = [piece for piece in pieces if piece.topic == whole.topic]
        assert [offset for piece in mine for offset in range(piece.first, piece.end)] == list(range(whole.first, whole.end))
    assert len(pieces) == 6
    assert [piece.append_number for piece in pieces if piece.topic == "a"] == [0, 0, 0, 9]
    assert split(ranges[2:], partitions_min=4, cores=2) == []
    assert len(split([OffsetRange("a", 1, 0, 10)], partitions_min=None, cores=8)) == 1, "small ranges are not worth many tasks"


# --- what is believed -------------------------------------------------------------------------------


def test_a_rolled_back_checkpoint_is_refused(client: oncemq.Client, kept: str, make: Make) -> None:
    put(client, kept, 0, 10)
    reader = make(maxOffsetsPerTrigger="5")
    began = reader.initialOffset()
    first = reader.latestOffset(began, ReadMaxRows(5))
    reader.commit(first)

    with pytest.raises(WrongCheckpoint, match=r"at offset 0 .* but 5 was committed.*another query or an older checkpoint"):
        make().partitions(began, first)
    assert values(reader, make().partitions(first, reader.latestOffset(first, ALL))) == numbers(5, 10)


def test_a_new_checkpoint_under_an_old_name_is_refused_with_the_choices(client: oncemq.Client, kept: str, make: Make) -> None:
    put(client, kept, 0, 10)
    running = make()
    end = running.latestOffset(running.initialOffset(), ALL)
    running.commit(end)

    with pytest.raises(WrongCheckpoint, match=r"no checkpoint yet.*another name.*oncemq subscription delete"):
        make().initialOffset()
    put(client, kept, 10, 12)
    running.commit(running.latestOffset(end, ALL))  # The refused one has fenced nobody.


def test_a_second_query_under_the_name_fences_the_first(client: oncemq.Client, kept: str, make: Make) -> None:
    put(client, kept, 0, 10)
    first = make()
    began = first.initialOffset()
    end = first.latestOffset(began, ALL)
    second = make()
    second.partitions(began, end)

    with pytest.raises(Fenced, match=r"another query took over"):
        first.commit(end)
    second.commit(end)


def test_a_checkpoint_of_another_broker_is_refused(make: Make) -> None:
    began = make().initialOffset()
    with pytest.raises(Diverged, match=r"another broker's log"):
        make().partitions(began | {"log": "00" * 16}, began)


def test_a_wrong_checkpoint_is_told_where_nothing_waits(client: oncemq.Client, kept: str, make: Make) -> None:
    """Nothing waits, so no batch would be planned: a query must not idle there for ever."""
    put(client, kept, 0, 10)
    reader = make()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    client.admin.create_topic(kept + "-b", retain="forever")

    with pytest.raises(Diverged, match=r"another broker's log"):
        make().latestOffset(end | {"log": "00" * 16}, ALL)
    with pytest.raises(UsageError, match=r"no longer names"):
        make(subscribe=f"{kept}-b").latestOffset(end, ALL)
    with pytest.raises(WrongCheckpoint, match=r"its subscription to topic .* is gone"):
        make(subscription="another-name").latestOffset(end, ALL)
    assert make().latestOffset(end, ALL) == end
    client.admin.delete_topic(kept)
    client.admin.create_topic(kept, retain="forever")
    with pytest.raises(WrongCheckpoint, match=r"is gone|created again"):
        make().latestOffset(end, ALL)


def test_a_topic_that_was_created_again_is_another_one(client: oncemq.Client, kept: str, make: Make) -> None:
    began = make().initialOffset()
    client.admin.delete_topic(kept)
    client.admin.create_topic(kept, retain="forever")
    with pytest.raises(WrongCheckpoint, match=r"is gone|created again"):
        make().partitions(began, began)


def test_a_broker_set_back_to_a_copy_is_noticed(tmp_path: Path, name: str, readers: ExitStack) -> None:
    """The same offsets, other messages: only the bookmark can tell."""
    directory, copy = tmp_path / "data", tmp_path / "copy"

    def reader(address: str) -> TopicStreamReader:
        return streaming(readers, address=address, subscribe="t", subscription=name)

    with oncemq.Broker(directory) as broker, oncemq.connect(broker.address) as client:
        began = reader(broker.address).initialOffset()
        put(client, "t", 0, 5)
    shutil.copytree(directory, copy)
    with oncemq.Broker(directory) as broker, oncemq.connect(broker.address) as client:
        put(client, "t", 5, 10)
        end = reader(broker.address).latestOffset(began, ALL)
    with oncemq.Broker(copy) as broker, oncemq.connect(broker.address) as client:
        client.put_many("t", [b"other"] * 5)
        again = reader(broker.address)
        with pytest.raises(Diverged):
            again.partitions(end, end)
        planned = again.partitions(began, end)
        with pytest.raises(Diverged, match=r"another message than when this range was planned"):
            values(again, planned)


def test_a_topic_that_joins_later_begins_at_its_recorded_start(client: oncemq.Client, kept: str, make: Make) -> None:
    other = kept + "-later"
    client.admin.create_topic(other, retain="forever")
    put(client, kept, 0, 3)
    put(client, other, 0, 4)
    reader = make()
    end = reader.latestOffset(reader.initialOffset(), ALL)

    grown = make(subscribe=f"{kept},{other}")
    further = grown.latestOffset(end, ALL)

    assert values(grown, grown.partitions(end, further)) == numbers(0, 4)


def test_a_topic_may_not_leave_a_query(client: oncemq.Client, kept: str, make: Make) -> None:
    client.admin.create_topic(kept + "-b", retain="forever")
    began = make(subscribe=f"{kept},{kept}-b").initialOffset()
    with pytest.raises(UsageError, match=r"no longer names"):
        make().partitions(began, began)


def test_lag_is_what_is_stored_and_not_read(client: oncemq.Client, kept: str, make: Make) -> None:
    put(client, kept, 0, 10)
    reader = make()
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(4))

    class Source:
        endOffset = json.dumps(end)  # noqa: N815 - Spark's name
        latestOffset = json.dumps(reader.reportLatestOffset())  # noqa: N815 - Spark's name

    assert lag_of([Source()]) == {kept: 6}


def test_a_broker_that_restarts_is_waited_for(tmp_path: Path, name: str, readers: ExitStack) -> None:
    """An exception in a driver-side call would end the query: what may pass is waited for inside."""
    broker = oncemq.Broker(tmp_path / "data")
    reader = streaming(readers, address=broker.address, subscribe="t", subscription=name)
    began = reader.initialOffset()
    with oncemq.connect(broker.address) as client:
        put(client, "t", 0, 5)
    broker.stop()
    address, back = broker.address, []
    returning = threading.Timer(1.0, lambda: back.append(oncemq.Broker(tmp_path / "data", address)))
    returning.start()

    end = reader.latestOffset(began, ALL)

    returning.join()
    readers.callback(back[0].stop)
    assert values(reader, reader.partitions(began, end)) == numbers(0, 5)


# --- batches ----------------------------------------------------------------------------------------


def test_a_batch_reads_from_place_to_place(broker: oncemq.Broker, client: oncemq.Client, kept: str) -> None:
    put(client, kept, 0, 10)
    middle = oncemq_time(client, kept)
    put(client, kept, 10, 20)

    def read(**options: str) -> list[bytes]:
        reader = batch(broker, kept, **options)
        return values(reader, reader.partitions())

    assert read() == numbers(0, 20)
    assert read(startingOffsets=json.dumps({kept: 3}), endingOffsets=json.dumps({kept: 7})) == numbers(3, 7)
    assert read(startingOffsets=middle) == numbers(10, 20)
    assert read(endingOffsets=middle) == numbers(0, 10)
    assert read(minPartitions="7") == numbers(0, 20)
    assert read(startingOffsets="latest") == []


def oncemq_time(client: oncemq.Client, topic: str) -> str:
    """An instant behind everything stored so far."""
    from datetime import UTC, datetime

    last_us = next(iter(client.read(topic, 9, 10))).append_time_us
    return datetime.fromtimestamp((last_us + 1) / 1_000_000, UTC).isoformat()


def test_a_batch_of_no_topic_is_refused(broker: oncemq.Broker, topic: str) -> None:
    with pytest.raises(NoSuchTopic, match=topic):
        batch(broker, topic).partitions()


def test_a_start_that_is_gone_is_a_gap_or_is_skipped(client: oncemq.Client, topic: str) -> None:
    from oncemq.pipeline.source import above_low

    client.subscribe(topic)
    (info,) = client.admin.topics(topic)
    gone = msgspec.structs.replace(info, low=5, end=9)
    with pytest.raises(Gap):
        above_low(gone, 3, fail_on_data_loss=True)
    assert above_low(gone, 3, fail_on_data_loss=False) == 5
    assert above_low(gone, 7, fail_on_data_loss=False) == 7

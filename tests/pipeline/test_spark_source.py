# SPDX-License-Identifier: Apache-2.0
"""The source inside a real Spark: found by itself, every trigger, exact rows, and a batch that runs again with the same rows."""

from __future__ import annotations

import os
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest

import oncemq
from oncemq.pipeline.lag import LagListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def stream(spark: SparkSession, broker: oncemq.Broker, kept: str) -> Any:
    name = "query-" + os.urandom(6).hex()

    def made(**options: object) -> DataFrame:
        given = {"address": broker.address, "subscribe": kept, "subscription": name, **options}
        return spark.readStream.format("oncemq").options(**given).load()

    return made


def put(client: oncemq.Client, topic: str, first: int, end: int) -> None:
    client.put_many(topic, [b"%d" % number for number in range(first, end)])


def forget_commit(checkpoint: Path, batch: int) -> None:
    """As if the driver had died before it wrote down that this batch is done."""
    (checkpoint / "commits" / f"{batch}").unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink()


def offsets_in(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row.offset for row in spark.read.parquet(str(path)).select("offset").collect())


def test_a_batch_is_found_by_its_format_and_has_every_column(
    spark: SparkSession, broker: oncemq.Broker, client: oncemq.Client, kept: str
) -> None:
    client.put(kept, b"one", key=b"k", headers={"source": "web"})
    put(client, kept, 1, 1_000)

    loaded = spark.read.format("oncemq").option("address", broker.address).option("subscribe", kept)
    table = loaded.option("includeHeaders", "true").option("minPartitions", "3").load()
    rows = table.orderBy("offset").collect()

    assert [row.offset for row in rows] == list(range(1_000))
    assert (bytes(rows[0].value), bytes(rows[0].key), rows[0].topic) == (b"one", b"k", kept)
    assert [(header.key, bytes(header.value)) for header in rows[0].headers] == [("source", b"web")]
    assert [row.put_number for row in rows] == list(range(1, 1_001))
    assert rows[1].key is None
    assert table.rdd.getNumPartitions() == 3


def test_available_now_goes_on_where_it_stopped_and_a_lost_commit_changes_nothing(
    spark: SparkSession, client: oncemq.Client, kept: str, stream: Any, tmp_path: Path
) -> None:
    told: Queue[str] = Queue()
    listener = LagListener(told.put)
    spark.streams.addListener(listener)

    def run() -> list[int]:
        table = stream(maxOffsetsPerTrigger=300)
        writing = table.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.option("path", str(tmp_path / "table")).queryName("lagging").trigger(availableNow=True).start()
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress]

    put(client, kept, 0, 700)
    assert run() == [300, 300, 100]
    put(client, kept, 700, 800)
    assert run() == [100]
    while listener.lag.get("lagging") != {kept: 0}:
        told.get(timeout=60)  # Events come when they come.
    spark.streams.removeListener(listener)
    forget_commit(tmp_path / "checkpoint", 3)
    run()
    assert offsets_in(spark, tmp_path / "table") == list(range(800))


@pytest.mark.parametrize("trigger", [{"once": True}, {"processingTime": "0 seconds"}])
def test_every_trigger_reads_each_message_once(
    spark: SparkSession, client: oncemq.Client, kept: str, stream: Any, tmp_path: Path, trigger: dict[str, Any]
) -> None:
    put(client, kept, 0, 500)
    writing = stream().writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writing.option("path", str(tmp_path / "table")).trigger(**trigger).start()
    query.processAllAvailable()
    query.stop()

    assert offsets_in(spark, tmp_path / "table") == list(range(500))


def test_a_rolled_back_checkpoint_fails_the_query_with_what_to_do(
    client: oncemq.Client, kept: str, stream: Any, tmp_path: Path
) -> None:
    import shutil

    from pyspark.errors import StreamingQueryException

    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"

    def run(place: Path) -> None:
        writing = stream().writeStream.format("noop").option("checkpointLocation", str(place))
        writing.trigger(availableNow=True).start().awaitTermination()

    put(client, kept, 0, 10)
    run(checkpoint)
    shutil.copytree(checkpoint, copy)
    for first in (10, 20):  # The commit of a batch comes with the next one: two more batches finish the first.
        put(client, kept, first, first + 10)
        run(checkpoint)

    with pytest.raises(StreamingQueryException, match=r"was committed: another query or an older checkpoint uses this name"):
        run(copy)

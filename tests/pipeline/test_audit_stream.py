# SPDX-License-Identifier: Apache-2.0
"""The live audit: its rules without Spark, and one real run over a topic that has a fault and one that has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester

import oncemq
from oncemq.cli import main
from oncemq.cli.exits import Exit
from oncemq.pipeline.audit_stream import TopicAuditor, findings, watch_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[int, int, bytes]


def row(offset: int, number: int, stream: bytes = b"one") -> Row:
    return offset, number, stream


def found_in(*batches: list[Row]) -> list[tuple[str, int, int]]:
    tester = TwsTester(TopicAuditor(), timeMode="ProcessingTime")
    frames = [pd.DataFrame(batch, columns=["offset", "put_number", "stream"]).assign(publisher="p") for batch in batches]
    found = [tester.testInPandas("t", frame) for frame in frames]
    return [(one.finding, one.offset, one.expected) for table in found for one in table.itertuples()]


def test_a_topic_in_order_has_no_findings_however_its_batches_are_cut_and_mixed() -> None:
    rows = [row(5 + place, 1 + place) for place in range(10)]
    assert found_in(rows) == []
    assert found_in(rows[:3][::-1], rows[3:]) == []


def test_a_hole_a_repeat_and_a_number_that_goes_back_are_found_across_batches() -> None:
    assert found_in([row(0, 1)], [row(2, 2)]) == [("lost", 2, 1)]
    assert found_in([row(0, 1), row(1, 2)], [row(1, 3)]) == [("duplicated", 1, 2)]
    assert found_in([row(0, 7)], [row(1, 7)]) == [("put twice or reordered", 1, 8)]


def test_within_a_batch_each_fault_is_found_once() -> None:
    assert found_in([row(0, 1), row(1, 2), row(1, 3), row(4, 4), row(5, 5)]) == [("duplicated", 1, 2), ("lost", 4, 2)]
    assert found_in([row(0, 1), row(1, 3), row(2, 2), row(3, 4)]) == [("put twice or reordered", 2, 4)]


def test_put_numbers_are_each_streams_own_and_may_leave_some_out() -> None:
    assert found_in([row(0, 5), row(1, 5, b"two"), row(2, 9)]) == []


@pytest.mark.real
@pytest.mark.slow
def test_the_command_watches_a_topic_goes_on_where_it_was_and_says_what_was_found(
    spark: SparkSession,
    broker: oncemq.Broker,
    client: oncemq.Client,
    kept: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Brokers do not lose rows to show us: the rows with a hole come from a file."""

    def watched(state: Path) -> tuple[int, Any]:
        capfd.readouterr()
        code = main.run(
            ["pipeline", "watch", "--topics", kept, "--state", str(state), "-a", broker.address, "--until-caught-up", "--json"]
        )
        return code, json.loads(capfd.readouterr().out)

    for count in (300, 200):
        client.put_many(kept, [b"x"] * count)
        assert watched(tmp_path / "one") == (Exit.OK, {"rows": count, "findings": []})

    schema = "topic string, offset long, publisher string, put_number long, stream binary"
    holed = [("holed", offset, "p", offset + 1, b"s") for offset in (3, 4, 6)]
    spark.createDataFrame(holed, schema).coalesce(1).write.parquet(str(tmp_path / "holed"))
    found = findings(watch_session(spark, 1).readStream.schema(schema).parquet(str(tmp_path / "holed")))
    writing = found.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writing.option("path", str(tmp_path / "two" / "findings")).trigger(availableNow=True).start().awaitTermination()

    finding = {"topic": "holed", "finding": "lost", "offset": 6, "expected": 5, "publisher": "p", "put_number": 7}
    code, told = watched(tmp_path / "two")
    assert (code, told["findings"]) == (Exit.FAILED, [finding])

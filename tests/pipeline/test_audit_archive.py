# SPDX-License-Identifier: Apache-2.0
"""`oncemq pipeline audit --archive`: a table is held against the log of a history, and against itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import oncemq
from oncemq.cli import main
from oncemq.cli.exits import Exit
from oncemq.pipeline.archive import Archive, here
from oncemq.pipeline.archive_tables import open_table
from oncemq.sim.history import Event
from tests.pipeline.histories import written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("spark")]
ARCHIVED = 20


@pytest.fixture
def lake(broker: oncemq.Broker, client: oncemq.Client, kept: str, tmp_path: Path) -> Path:
    """The first twenty messages of a topic, in a table; five more follow in the topic."""
    client.put_many(kept, [b"m%d" % number for number in range(ARCHIVED)])
    with Archive(broker.address, [kept], open_table(tmp_path / "lake", "delta"), here, subscription=kept) as running:
        running.step()
    client.put_many(kept, [b"m%d" % number for number in range(ARCHIVED, ARCHIVED + 5)])
    return tmp_path / "lake"


def log_of(client: oncemq.Client, topic: str) -> list[Event]:
    """What a harness writes down of a topic at the end."""
    (info,) = client.admin.topics(topic)
    events: list[Event] = [
        {"op": "log", "offset": one.offset, "message": one.value.decode(), "stream": "s", "number": one.put_number}
        for one in client.read(topic, 0, info.end)
    ]
    puts: list[Event] = [{"op": "put", "kind": "invoke", "message": event["message"]} for event in events]
    common: Event = {"t": 1, "process": "harness", "life": 1, "kind": "ok", "topic_id": str(info.topic_id)}
    end: Event = {"op": "end", "low": 0, "end": info.end, "is_limited": False}
    return [common | event for event in (*puts, *events, end)]


def audited(capfd: pytest.CaptureFixture[str], run: Path, lake: Path) -> tuple[int, dict[str, tuple[int, int, str]]]:
    """Exit code, and (checked, violations, witness) of every verdict on the archive."""
    capfd.readouterr()
    code = main.run(["pipeline", "audit", str(run), "--archive", str(lake), "--json"])
    told = json.loads(capfd.readouterr().out)["verdicts"]
    found = {f"{one['law']} {one['verdict']}": (one["checked"], one["violations"], one["witness"]) for one in told}
    return code, {name: verdict for name, verdict in found.items() if name.startswith("archive")}


def test_a_table_that_is_the_topic_is_found_innocent_and_another_message_is_found(
    client: oncemq.Client, kept: str, lake: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    events = log_of(client, kept)
    code, verdicts = audited(capfd, written(tmp_path / "sound", events), lake)
    assert (code, verdicts) == (
        Exit.OK,
        {
            "archive-dense lost": (ARCHIVED, 0, ""),
            "archive-dense duplicated": (ARCHIVED, 0, ""),
            "archive-agrees rolled back": (ARCHIVED, 0, ""),
        },
    )

    other = [event | {"message": "m20"} if event["op"] == "log" and event["offset"] == 7 else event for event in events]
    code, verdicts = audited(capfd, written(tmp_path / "bent", other), lake)
    checked, violations, witness = verdicts["archive-agrees rolled back"]
    assert (code, checked, violations) == (Exit.FAILED, ARCHIVED, 1)
    assert witness == f"offset 7 of topic {events[0]['topic_id']} is m20 in the log and m7 in the archive"


def test_an_archive_belongs_to_one_run(lake: Path, client: oncemq.Client, kept: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path / "runs" / name, log_of(client, kept))
    assert main.run(["pipeline", "audit", str(tmp_path / "runs"), "--archive", str(lake)]) == Exit.USAGE


def test_holes_and_repeats_in_a_table_are_counted(spark: SparkSession) -> None:
    from oncemq.pipeline.audit import counted
    from oncemq.pipeline.audit_archive import dense

    offsets = {"whole": [0, 1, 2], "holed": [3, 4, 7], "again": [0, 1, 1]}
    rows: list[tuple[Any, ...]] = [(0, "l", topic, topic, offset) for topic, found in offsets.items() for offset in found]
    table = spark.createDataFrame(rows, "run int, log string, topic string, topic_id string, offset long")

    found = {row.verdict: (row.checked, row.violations) for row in counted(dense(table)).collect()}

    assert found == {"lost": (8, 2), "duplicated": (9, 1)}

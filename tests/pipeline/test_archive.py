# SPDX-License-Identifier: Apache-2.0
"""Topic → table → topic, with SIGKILL between every pair of steps: rows and offsets are exact."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

import oncemq
from oncemq.cli import main
from oncemq.errors import Diverged, UsageError
from oncemq.pipeline.archive import STEPS, Archive, here
from oncemq.pipeline.archive_files import SCHEMA
from oncemq.pipeline.archive_tables import AnotherWriter, find_table, open_table
from oncemq.pipeline.replay import STEPS as REPLAY_STEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parents[2]
FORMS = ("delta", "parquet")


def play(*words: str) -> int:
    """Run a role in a process of its own; return how it ended."""
    command = [sys.executable, "-m", "tests.pipeline.roles", *words]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=540, check=False)
    assert ended.returncode in {0, -signal.SIGKILL}, ended.stderr
    return ended.returncode


def rows_of(place: Path, topic: str) -> list[dict[str, Any]]:
    """What the table has of a topic, by offset."""
    table = find_table(place)
    hive = ds.partitioning(flavor="hive")
    data = ds.dataset(table.files(), schema=SCHEMA, format="parquet", partitioning=hive, partition_base_dir=str(table.place))
    return data.to_table(filter=ds.field("topic") == topic).sort_by("offset").to_pylist()


def filled(client: oncemq.Client, topic: str, count: int, first: int = 0) -> None:
    client.put_many(topic, [f"{topic}-{number}".encode() for number in range(first, first + count)])


def table_is_topic(place: Path, client: oncemq.Client, topic: str) -> bool:
    messages = list(client.read(topic, 0, 10**9))
    rows = rows_of(place, topic)
    assert [(row["offset"], row["value"]) for row in rows] == [(message.offset, message.value) for message in messages]
    assert [(row["publisher"], row["put_number"]) for row in rows] == [(one.publisher, one.put_number) for one in messages]
    return bool(messages)


# --- archive ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_an_archive_killed_at_every_step_is_the_topic(
    form: str, broker: oncemq.Broker, client: oncemq.Client, kept: str, tmp_path: Path
) -> None:
    """Every step of the first and of a later commit is deadly once; the run after each kill goes on."""
    place, put = tmp_path / "lake", 0
    deaths = [(step, count) for count in ((1, 2) if form == "delta" else (2,)) for step in STEPS]
    for step, count in deaths:
        filled(client, kept, 500, put)
        put += 500
        code = play("archive", broker.address, kept, str(place), form, step, str(count))
        assert code == -signal.SIGKILL, (step, count)
    assert play("archive", broker.address, kept, str(place), form) == 0

    assert table_is_topic(place, client, kept)
    assert len(rows_of(place, kept)) == put


@pytest.mark.parametrize("form", FORMS)
def test_an_archive_that_has_caught_up_adds_nothing(
    form: str, broker: oncemq.Broker, client: oncemq.Client, kept: str, tmp_path: Path
) -> None:
    filled(client, kept, 10)
    for _ in range(2):
        with Archive(broker.address, [kept], open_table(tmp_path / "lake", form), here, subscription=f"again-{form}") as running:
            running.step()
            assert running.step() == 0
    assert [row["offset"] for row in rows_of(tmp_path / "lake", kept)] == list(range(10))


@pytest.mark.parametrize("form", FORMS)
def test_of_two_archives_on_one_table_the_second_to_commit_is_refused(
    form: str, broker: oncemq.Broker, client: oncemq.Client, kept: str, tmp_path: Path
) -> None:
    table = open_table(tmp_path / "lake", form)
    filled(client, kept, 10)
    with Archive(broker.address, [kept], table, here, subscription=f"one-{form}") as one:
        one.step(4)
    with (
        Archive(broker.address, [kept], table, here, subscription=f"one-{form}") as older,
        Archive(broker.address, [kept], table, here, subscription=f"one-{form}") as newer,
    ):
        assert newer.step(3) == 3
        with pytest.raises(AnotherWriter):
            older.step()
        assert newer.step() == 3
    assert table_is_topic(tmp_path / "lake", client, kept)


def test_files_that_another_archive_took_for_leftovers_are_not_committed(
    broker: oncemq.Broker, client: oncemq.Client, kept: str, tmp_path: Path
) -> None:
    """Plain files: whoever begins removes what no manifest names, also what another is about to commit."""
    place, name = tmp_path / "lake", "meanwhile"
    filled(client, kept, 10)

    def begin_another(step: str) -> None:
        if step == "written":
            Archive(broker.address, [kept], open_table(place, "parquet"), here, subscription=name).close()

    with (
        Archive(broker.address, [kept], open_table(place, "parquet"), here, subscription=name, on_step=begin_another) as older,
        pytest.raises(AnotherWriter, match=r"another archive began here"),
    ):
        older.step()
    with Archive(broker.address, [kept], open_table(place, "parquet"), here, subscription=name) as last:
        assert last.step() == 10
    assert table_is_topic(place, client, kept)


def test_a_restored_broker_is_told_and_nothing_is_added(tmp_path: Path) -> None:
    """The table has messages that the restored broker never heard of; it must not go on with others under their numbers."""
    data, place = tmp_path / "data", tmp_path / "lake"
    with oncemq.Broker(data) as broker, oncemq.connect(broker.address, id="p", state=tmp_path / "p") as client:
        client.admin.create_topic("t", retain="forever")
        filled(client, "t", 5)
    shutil.copytree(data, tmp_path / "backup")
    with oncemq.Broker(data) as broker, oncemq.connect(broker.address, id="p", state=tmp_path / "p") as client:
        filled(client, "t", 5, 5)
        with Archive(broker.address, ["t"], open_table(place, "delta"), here, subscription="lake") as running:
            assert running.step() == 10
    with oncemq.Broker(tmp_path / "backup") as broker, oncemq.connect(broker.address, id="q", state=tmp_path / "q") as client:
        filled(client, "t", 20, 100)
        with pytest.raises(Exception, match=r"subscription to topic 't' is gone|history is not the one") as told:
            Archive(broker.address, ["t"], open_table(place, "delta"), here, subscription="lake")
    assert not isinstance(told.value, AssertionError)
    assert [row["value"] for row in rows_of(place, "t")] == [b"t-%d" % number for number in range(10)]


def test_a_restored_broker_that_knows_the_subscription_is_told(tmp_path: Path) -> None:
    data, place = tmp_path / "data", tmp_path / "lake"
    with oncemq.Broker(data) as broker, oncemq.connect(broker.address, id="p", state=tmp_path / "p") as client:
        client.admin.create_topic("t", retain="forever")
        filled(client, "t", 5)
        with Archive(broker.address, ["t"], open_table(place, "delta"), here, subscription="lake") as running:
            running.step()
    shutil.copytree(data, tmp_path / "backup")
    with oncemq.Broker(data) as broker, oncemq.connect(broker.address, id="p", state=tmp_path / "p") as client:
        filled(client, "t", 5, 5)
        with Archive(broker.address, ["t"], open_table(place, "delta"), here, subscription="lake") as running:
            running.step()
    with oncemq.Broker(tmp_path / "backup") as broker, oncemq.connect(broker.address, id="q", state=tmp_path / "q") as client:
        filled(client, "t", 20, 100)
        with pytest.raises(Diverged):
            Archive(broker.address, ["t"], open_table(place, "delta"), here, subscription="lake")


def test_a_table_of_another_broker_is_refused(broker: oncemq.Broker, client: oncemq.Client, kept: str, tmp_path: Path) -> None:
    """Also if none of its topics is asked for: rows of two logs in one table would need two checkpoints."""
    filled(client, kept, 3)
    with Archive(broker.address, [kept], open_table(tmp_path / "lake", "delta"), here, subscription="first") as running:
        running.step()
    with oncemq.Broker(tmp_path / "data") as another, oncemq.connect(another.address) as visitor:
        visitor.admin.create_topic("other", retain="forever")
        with pytest.raises(Diverged):
            Archive(another.address, ["other"], open_table(tmp_path / "lake", "delta"), here, subscription="first")


def test_a_topic_that_was_made_again_begins_anew_under_its_own_id(
    broker: oncemq.Broker, client: oncemq.Client, kept: str, tmp_path: Path
) -> None:
    for _ in range(2):
        filled(client, kept, 3)
        with Archive(broker.address, [kept], open_table(tmp_path / "lake", "delta"), here, subscription="anew") as running:
            running.step()
        client.admin.delete_topic(kept)
        client.admin.create_topic(kept, retain="forever")
    rows = rows_of(tmp_path / "lake", kept)
    assert sorted(row["offset"] for row in rows) == [0, 0, 1, 1, 2, 2]
    assert len({row["topic_id"] for row in rows}) == 2


def test_compaction_keeps_rows_and_place(broker: oncemq.Broker, client: oncemq.Client, kept: str, tmp_path: Path) -> None:
    table = open_table(tmp_path / "lake", "delta")
    for first in range(0, 30, 10):
        filled(client, kept, 10, first)
        with Archive(broker.address, [kept], table, here, subscription="merge") as running:
            running.step()
    assert table.compact() == 2
    filled(client, kept, 5, 30)
    with Archive(broker.address, [kept], table, here, subscription="merge") as running:
        assert running.step() == 5
    assert table_is_topic(tmp_path / "lake", client, kept)


def test_the_other_format_in_the_same_place_is_refused(
    broker: oncemq.Broker, client: oncemq.Client, kept: str, tmp_path: Path
) -> None:
    filled(client, kept, 1)
    with Archive(broker.address, [kept], open_table(tmp_path / "lake", "parquet"), here, subscription="other") as running:
        running.step()
    with pytest.raises(UsageError, match="--format parquet"):
        open_table(tmp_path / "lake", "delta")


# --- replay -------------------------------------------------------------------------------------------


@pytest.fixture
def archived(broker: oncemq.Broker, client: oncemq.Client, kept: str, tmp_path: Path) -> Path:
    """An archive of 1,000 messages, some with key and headers."""
    filled(client, kept, 998)
    client.put(kept, b"with key", key=b"k", headers={"colour": "red"})
    client.put(kept, b"last")
    with Archive(broker.address, [kept], open_table(tmp_path / "lake", "delta"), here, subscription="for-replay") as running:
        assert running.step() == 1000
    return tmp_path / "lake"


def test_a_replay_killed_at_every_step_is_the_table(
    broker: oncemq.Broker, client: oncemq.Client, kept: str, archived: Path, tmp_path: Path
) -> None:
    """Others put into the topic meanwhile: what is counted is the replay's own."""
    target = f"{kept}-again"
    client.admin.create_topic(target, retain="forever")
    words = ("replay", broker.address, str(archived), kept, target, str(tmp_path / "state"))
    deaths = 0
    for step in REPLAY_STEPS:
        deaths += play(*words, step, "1") == -signal.SIGKILL
        client.put(target, b"somebody else's")
    assert deaths == len(REPLAY_STEPS)
    assert play(*words) == 0
    assert play(*words) == 0  # Over is over.

    replayed = [message for message in client.read(target, 0, 10**6) if message.value != b"somebody else's"]
    original = list(client.read(kept, 0, 10**6))
    assert [(one.value, one.key, one.headers) for one in replayed] == [(one.value, one.key, one.headers) for one in original]
    assert client.admin.subscriptions(target) == []


def test_a_replay_into_a_topic_that_keeps_nothing_is_refused(
    broker: oncemq.Broker, client: oncemq.Client, kept: str, archived: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The replay's own subscription would be the only one: with it the rows would go, and nobody would be told."""
    target = f"{kept}-nowhere"
    words = ["pipeline", "replay", "--from", str(archived), "--topic", kept, "--to", target, "--state", str(tmp_path / "state")]
    assert main.run([*words, "-a", broker.address]) != 0
    assert f"oncemq topic create {target} --retain forever" in capfd.readouterr().err.replace("\n", " ")
    assert target not in [info.topic for info in client.admin.topics()]

    client.subscribe(target)
    assert main.run([*words, "-a", broker.address]) == 0
    assert len(client.get_many(target, 2000)) == 1000


# --- the commands, on Spark ---------------------------------------------------------------------------


def test_the_commands_archive_and_replay_on_spark(
    spark: SparkSession,
    broker: oncemq.Broker,
    client: oncemq.Client,
    kept: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert spark is not None
    filled(client, kept, 200_000)
    lake, target = str(tmp_path / "lake"), f"{kept}-back"
    client.admin.create_topic(target, retain="forever")
    capfd.readouterr()

    assert main.run(["pipeline", "archive", "--topics", kept, "--to", lake, "--once", "-a", broker.address, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["rows"], told["commits"], told["waiting"]) == (200_000, 1, 0)
    assert [row["offset"] for row in rows_of(Path(lake), kept)] == list(range(200_000))

    words = ["pipeline", "replay", "--from", lake, "--topic", kept, "--to", target, "-a", broker.address, "--json"]
    chosen = [*words, "--offsets", "10:1000", "--where", "offset % 100 = 7", "--state", str(tmp_path / "state")]
    for put_now in (9, 0):
        assert main.run(chosen) == 0
        assert json.loads(capfd.readouterr().out)["put_now"] == put_now
    values = [message.value.decode() for message in client.read(target, 0, 10**6)]
    assert values == [f"{kept}-{number}" for number in range(107, 1000, 100)]

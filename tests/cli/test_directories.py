# SPDX-License-Identifier: Apache-2.0
"""inspect, verify and backup: a data directory looked at, checked and copied.

May not: find a byte changed by a command that only looks.
Next: test_serve.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import oncemq
from tests.cli.harness import Shell


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a stopped broker with some history."""
    directory = tmp_path / "data"
    for life in range(2):
        with (
            oncemq.Broker(directory, segment_bytes=1 << 20) as broker,
            oncemq.connect(broker.address, id="billing", state=tmp_path / "billing") as billing,
            oncemq.connect(broker.address, id="shop", state=tmp_path / "shop") as shop,
        ):
            billing.subscribe("orders")
            if life == 0:
                shop.admin.create_topic("kept", retain="forever")
            shop.put_many("orders", [b"order %d" % number for number in range(10)])
            shop.put(["orders", "kept"], b"both")
            assert [billing.get("orders", timeout=5) is not None for _ in range(4)] == [True] * 4
    return directory


def files_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def bend(path: Path, position: int) -> None:
    """Change one byte."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


# --- inspect --------------------------------------------------------------------------------------


def test_inspect_shows_the_whole_state(alone: Shell, data: Path) -> None:
    found = alone("inspect", data, "--json", local=True).json

    topics = {topic["topic"]: topic for topic in found["topics"]}
    clients = {client["client"]: client for client in found["clients"]}
    assert (found["running"], found["format"], len(found["starts"])) == (False, 1, 2)
    assert (topics["orders"]["end"], topics["kept"]["end"], topics["kept"]["retain"]) == (22, 2, "forever")
    assert [(each["client"], each["cursor"]) for each in topics["orders"]["subscriptions"]] == [("billing", 8)]
    assert clients["billing"]["subscribed_to"] == ["orders"]
    assert [stream["last_number"] for stream in clients["shop"]["streams"]] == [12]
    assert clients["shop"]["streams"][0]["last_outcome"]["stored"] == {"orders": 21, "kept": 1}
    assert found["segments"][0]["holds"]["orders"][0] == 0
    assert found["snapshots"]
    assert found["next_append_number"] == 5


def test_inspect_is_readable_and_the_same_without_json(alone: Shell, data: Path) -> None:
    people, programs = alone("inspect", data, local=True), alone("inspect", data, "--json", local=True)

    assert json.loads(people.text) == programs.json
    assert len(people.lines) > 50


def test_looking_changes_nothing(alone: Shell, data: Path) -> None:
    before = files_in(data)

    assert alone("inspect", data, local=True).code == 0
    assert alone("verify", data, local=True).code == 0

    assert files_in(data) == before


def test_a_directory_without_write_permission_can_be_looked_at(alone: Shell, data: Path) -> None:
    for path in data.iterdir():
        path.chmod(0o400)
    data.chmod(0o500)
    try:
        assert alone("inspect", data, local=True).code == 0
        assert alone("verify", data, local=True).code == 0
    finally:
        data.chmod(0o700)


def test_inspect_beside_a_running_broker_sees_what_was_confirmed(shell: Shell, broker: oncemq.Broker, tmp_path: Path) -> None:
    with oncemq.connect(broker.address) as shop:
        shop.admin.create_topic("orders", retain="forever")
        for number in range(40):  # Each of them is a moving target: 40 × 50 KiB go through several segments.
            shop.put("orders", b"x" * 50_000)
            if number % 8 == 0:
                found = shell("inspect", tmp_path / "data", "--json", local=True)
                assert (found.code, found.json["running"]) == (0, True)
                assert found.json["topics"][0]["end"] == number + 1


# --- verify ---------------------------------------------------------------------------------------


def test_verify_finds_nothing_in_a_sound_directory(alone: Shell, data: Path) -> None:
    ended, as_json = alone("verify", data, local=True), alone("verify", data, "--json", local=True)

    assert (ended.code, "nothing is wrong" in ended.text) == (0, True)
    assert (as_json.code, as_json.json["problems"]) == (0, [])
    assert as_json.json["files"] > 3


def test_verify_names_file_and_position_of_every_damage(alone: Shell, data: Path) -> None:
    segment, snapshot = min(data.glob("segment-*")), min(data.glob("snapshot-*"))
    position = segment.read_bytes().index(b"order 3")
    bend(segment, position)
    bend(snapshot, -1)

    ended, as_json = alone("verify", data, local=True), alone("verify", data, "--json", local=True)

    problems = {problem["file"]: problem["position"] for problem in as_json.json["problems"]}
    assert (ended.code, as_json.code, set(problems)) == (7, 7, {segment.name, snapshot.name})
    assert 0 < problems[segment.name] <= position
    assert segment.name in ended.err


def test_a_running_broker_is_mentioned(shell: Shell, tmp_path: Path) -> None:
    ended = shell("verify", tmp_path / "data", local=True)

    assert (ended.code, "a broker is using this directory" in ended.err) == (0, True)


# --- backup ---------------------------------------------------------------------------------------


def test_a_backup_can_be_served_and_holds_the_same(alone: Shell, data: Path, tmp_path: Path) -> None:
    ended = alone("backup", data, tmp_path / "copy", "--json", local=True)

    assert (ended.code, ended.json["bytes"] > 0) == (0, True)
    assert alone("verify", tmp_path / "copy", local=True).code == 0
    for name in ("topics", "clients", "starts"):
        theirs, ours = (alone("inspect", place, "--json", local=True).json[name] for place in (data, tmp_path / "copy"))
        assert theirs == ours
    with oncemq.Broker(tmp_path / "copy") as broker:
        alone.address = broker.address
        assert alone("get", "orders", "--id", "billing", "--state", tmp_path / "billing").text == "order 8\n"


def test_a_backup_needs_a_stopped_broker_and_an_empty_place(alone: Shell, broker: oncemq.Broker, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").write_text("x")

    running = alone("backup", tmp_path / "data", tmp_path / "copy", "--json", local=True)
    broker.stop()
    full = alone("backup", tmp_path / "data", tmp_path / "full", "--json", local=True)

    assert (running.code, running.error["error"]) == (7, "directory_locked")
    assert (full.code, full.error["error"]) == (7, "directory_unusable")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["something"]


# --- directories that are none --------------------------------------------------------------------


@pytest.mark.parametrize("command", ["inspect", "verify", "backup"])
@pytest.mark.parametrize("kind", ["missing", "empty", "file", "strange", "too new", "not an identity"])
def test_a_directory_that_is_none_is_exit_code_7_and_stays_so(alone: Shell, tmp_path: Path, command: str, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("x")
    elif kind != "missing":
        place.mkdir()
    if kind == "strange":
        (place / "holiday.jpg").write_text("x")
    elif kind == "too new":
        (place / "identity").write_text(json.dumps({"format": 99, "log": "00" * 16}))
    elif kind == "not an identity":
        (place / "identity").write_text("x")
    before = files_in(place) if place.is_dir() else None

    ended = alone(command, place, *([tmp_path / "copy"] if command == "backup" else []), local=True)

    assert ended.code == 7
    assert ended.err.startswith("error: ")
    assert "Traceback" not in ended.err
    assert (files_in(place) if place.is_dir() else None) == before
    assert not (tmp_path / "copy").exists()


# --- files that are gone ------------------------------------------------------------------------------


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """The directory of a stopped broker whose journal has many segments, all of them needed."""
    directory = tmp_path / "several"
    with (
        oncemq.Broker(directory, segment_bytes=1 << 16) as broker,
        oncemq.connect(broker.address, id="billing", state=tmp_path / "billing") as billing,
        oncemq.connect(broker.address, id="shop", state=tmp_path / "shop") as shop,
    ):
        billing.subscribe("orders")
        for number in range(20):
            shop.put("orders", b"%d" % number + bytes(20_000))
    return directory


def test_a_segment_that_is_gone_is_found_by_verify_and_refuses_the_start(alone: Shell, several: Path) -> None:
    lost = sorted(several.glob("segment-*"))[1]
    lost.unlink()
    ended = alone("verify", several, "--json", local=True)
    assert ended.code == 7
    assert [problem["file"] for problem in ended.json["problems"]] == [lost.name]
    assert "of topic 'orders'" in ended.json["problems"][0]["problem"]
    assert [each["topic"] for each in alone("inspect", several, "--json", local=True).json["missing"]] == ["orders"]
    refused = alone("serve", several, "--address", "tcp://127.0.0.1:*", local=True)
    assert refused.code == 7
    assert f"{lost.name} is missing" in refused.err


def test_an_accepted_loss_is_told_as_damaged_and_the_rest_is_delivered(several: Path, tmp_path: Path) -> None:
    sorted(several.glob("segment-*"))[1].unlink()
    with pytest.raises(oncemq.JournalIncomplete, match="orders"):
        oncemq.Broker(several)
    got, told = [], []
    with (
        oncemq.Broker(several, accept_loss=True) as broker,
        oncemq.connect(broker.address, id="billing", state=tmp_path / "billing") as billing,
    ):
        while len(got) + sum(end - first for first, end in told) < 20:
            try:
                message = billing.get("orders", timeout=5)
            except oncemq.Damaged as damage:
                told.append((damage.first, damage.end))
                billing.settle("orders", "skip")
            else:
                assert message is not None
                got.append(int(message.value.rstrip(b"\0")))
    assert len(told) == 1
    assert got == [*range(told[0][0]), *range(told[0][1], 20)]

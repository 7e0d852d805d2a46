# SPDX-License-Identifier: Apache-2.0
"""`oncemq serve --mesh`, `oncemq mesh status`, `oncemq mesh local` and `oncemq mesh trial` as people and programs use them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import oncemq
from oncemq.cli.exits import Exit
from oncemq.cli.mesh_settings import read_settings
from oncemq.client.broker import MeshPlace
from oncemq.errors import UsageError
from oncemq.limits import MESH_ACTIVE, MESH_PASSIVE
from tests.cli.harness import Program, Shell, wait_until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[oncemq.Broker]:
    """A node that founds a mesh, alone in it."""
    with oncemq.Broker(tmp_path / "node", segment_bytes=1 << 20, mesh=MeshPlace("tcp://127.0.0.1:*")) as running:
        yield running


def test_a_node_tells_its_views_its_vector_and_its_lag(node: oncemq.Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    shell = Shell(capfdbinary, node.address)
    assert shell("put", "orders", "one", "two").lines == ["orders: stored", "orders: stored"]
    found = shell("mesh", "status", "--json").json
    assert found["life"] == "member" and found["neighbours"] == [] and found["lag"] == found["lost"] == 0
    assert [(each["low"], each["had"]) for each in found["vector"]] == [(1, 2)]
    assert found["vector"][0]["node"] == found["node"]
    people = shell("mesh", "status")
    assert people.code == Exit.OK
    assert "life" in people.text and found["node"] in people.text


def test_a_broker_that_is_no_node_says_so(shell: Shell) -> None:
    ended = shell("mesh", "status", "--json")
    assert ended.code == Exit.REFUSED
    assert "serve --mesh" in ended.err


def test_inspect_shows_what_a_node_has_of_every_origin(tmp_path: Path, alone: Shell) -> None:
    with oncemq.Broker(tmp_path / "node", mesh=MeshPlace("tcp://127.0.0.1:*")) as node, oncemq.connect(node.address) as client:
        client.put("orders", b"one")
    found = alone("inspect", tmp_path / "node", "--json", local=True).json
    assert [(each["low"], each["had"]) for each in found["origins"]] == [(1, 1)]
    assert found["origins"][0]["node"] == found["log_id"]
    assert any("messages of node" in name for segment in found["segments"] for name in segment["holds"])


def test_a_node_that_is_started_as_a_plain_broker_says_what_that_means(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Forgotten in a restart by hand: what is put then is confirmed, and no other node ever hears of it."""
    with oncemq.Broker(tmp_path / "node", mesh=MeshPlace("tcp://127.0.0.1:*")), oncemq.Broker(tmp_path / "plain"):
        pass
    for name in ("node", "plain"):
        with oncemq.Broker(tmp_path / name):
            assert ("without --mesh" in caplog.text) == (name == "node")
        caplog.clear()


@pytest.mark.parametrize("option", ["--address", "--live-address", "--mesh", "--advertise", "--join"])
def test_a_port_that_does_not_exist_is_a_usage_error(tmp_path: Path, alone: Shell, option: str) -> None:
    """ZeroMQ would listen at 34463."""
    usual = {"--address": "tcp://127.0.0.1:*", "--mesh": "tcp://127.0.0.1:*"}
    options = [word for pair in (usual | {option: "tcp://127.0.0.1:99999"}).items() for word in pair]
    ended = alone("serve", tmp_path / "data", *options, local=True)
    assert ended.code == Exit.USAGE
    assert "65535" in ended.err


def test_options_of_a_mesh_without_a_mesh_are_a_usage_error(tmp_path: Path, alone: Shell) -> None:
    ended = alone("serve", tmp_path / "data", "--join", "tcp://127.0.0.1:7000", local=True)
    assert ended.code == Exit.USAGE
    assert "--mesh" in ended.err


@pytest.mark.parametrize("wrong", [["--join", "10.0.0.5:7000"], ["--join", "tcp://10.0.0.5"], ["--advertise", "here"]])
def test_what_is_no_address_of_a_node_is_a_usage_error(tmp_path: Path, alone: Shell, wrong: list[str]) -> None:
    ended = alone("serve", tmp_path / "data", "--mesh", "tcp://127.0.0.1:*", *wrong, local=True)
    assert ended.code == Exit.USAGE
    assert wrong[1] in ended.err and "tcp://10.0.0.5:7000" in ended.err


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (["--join", "tcp://10.0.0.5:7000,tcp://10.0.0.6:7000"], "--join tcp://10.0.0.5:7000 --join tcp://10.0.0.6:7000"),
        (["--join", "tcp://10.0.0.5:7000, 10.0.0.6:7000"], "--join tcp://10.0.0.5:7000 --join"),
        (["--join", "ipc:///a,ipc:///b"], "--join ipc:///a --join ipc:///b"),
        (["--join", "tcp://10.0.0.5:7000,"], "--join tcp://10.0.0.5:7000"),
        (["--join", "tcp://10.0.0.5:*"], "which host and port"),
        (["--join", "tcp://*:7000"], "which host and port"),
        (["--advertise", "tcp://0.0.0.0:7000"], "which host and port"),
    ],
)
def test_where_nobody_can_connect_to_is_a_usage_error_that_says_what_to_write(
    tmp_path: Path, alone: Shell, wrong: list[str], word: str
) -> None:
    """A node would wait there for ever, and say so in its log only."""
    ended = alone("serve", tmp_path / "data", "--address", "tcp://127.0.0.1:*", "--mesh", "tcp://127.0.0.1:*", *wrong, local=True)
    assert ended.code == Exit.USAGE
    assert word in " ".join(ended.err.split())


def test_settings_come_from_a_file_the_environment_and_flags_and_the_later_wins(tmp_path: Path) -> None:
    file = tmp_path / "mesh.toml"
    file.write_text("[mesh]\nactive = 7\npassive = 40\nheartbeat_ms = 300\n")
    environment = {"ONCEMQ_MESH_PASSIVE": "50", "ONCEMQ_MESH_HEARTBEAT_MS": "200", "ONCEMQ_MESH_JOIN": "tcp://x:1"}
    found = read_settings(file, ["heartbeat_ms=100"], environment)
    assert (found.active, found.passive, found.heartbeat_ms) == (7, 50, 100)
    unset = read_settings(None, [], {})
    assert (unset.active, unset.passive) == (MESH_ACTIVE, MESH_PASSIVE)


@pytest.mark.parametrize(
    ("pairs", "content", "word"),
    [
        (["heartbeats=1"], "", "heartbeat_ms"),
        (["active"], "", "NAME=VALUE"),
        (["active=-1"], "", "whole number"),
        (["active=1e20"], "", "from 1 to 64"),
        (["active=65"], "", "from 1 to 64"),
        (["heartbeat_ms=100000000000000000000"], "", "to 1,000,000,000,000,000"),
        ([], "[mesh]\nactive = 'many'", "whole number"),
        ([], "[mesh", "cannot read"),
        ([], "mesh = 1", "no table"),
        ([], "heartbeat_ms = 500", "no table .mesh."),
        (["active=0"], "", "from 1 to 64"),
        (["request_messages=10"], "", "from 64 to"),
        (["heartbeat_ms=0"], "", "from 10 to"),
        (["heartbeat_timeout_ms=0"], "", "from 10 to"),
        (["digest_grace_ms=0"], "", "from 10 to"),
        (["early_bytes=2000000000"], "", "to 1,073,741,824"),
        (["early_messages=1000000"], "", "to 100,000"),
        (["heartbeat_ms=500", "heartbeat_timeout_ms=500"], "", "several times heartbeat_ms"),
    ],
)
def test_a_setting_that_is_none_is_refused_with_what_to_do(tmp_path: Path, pairs: list[str], content: str, word: str) -> None:
    file = tmp_path / "mesh.toml"
    file.write_text(content)
    with pytest.raises(UsageError, match=word):
        read_settings(file, pairs, {})


def test_shares_of_a_trial_are_percentages(alone: Shell) -> None:
    assert alone("mesh", "trial", "--failed", "10,120", local=True).code == Exit.USAGE
    assert alone("mesh", "local", "--set", "speed=9", local=True).code == Exit.USAGE


@pytest.mark.real
def test_a_local_mesh_runs_until_it_is_told_to_stop_and_leaves_nothing_behind(tmp_path: Path) -> None:
    program = Program("mesh", "local", "--nodes", "3", "--directory", tmp_path, "--json", "--set", "heartbeat_ms=200")
    try:
        nodes = json.loads(program.line())["nodes"]
        assert len(nodes) == 3

        def is_whole() -> bool:
            overlay = json.loads(program.line())["overlay"]
            return all(len(row["neighbours"].split()) == 2 for row in overlay)

        wait_until(is_whole, "every node has two neighbours")
        os.kill(nodes[1]["pid"], signal.SIGKILL)
        wait_until(lambda: json.loads(program.line())["overlay"][1]["life"] == "down", "the table shows who is down")
        program.signal(signal.SIGINT)
        assert program.end().code == 0
        assert not any(_is_alive(node["pid"]) for node in nodes)
    finally:
        program.close()


def _is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.mark.real
def test_a_trial_of_three_nodes_is_judged(alone: Shell) -> None:
    ended = alone("mesh", "trial", "--nodes", "3", "--messages", "4", "--failed", "34", "--json", local=True)
    assert ended.code == Exit.OK
    (row,) = ended.json["trials"]
    assert row["is_right"] and (row["killed"], row["put"], row["delivered"]) == (1, 12, 36)

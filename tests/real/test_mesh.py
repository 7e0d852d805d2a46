# SPDX-License-Identifier: Apache-2.0
"""A mesh of real processes: put at one node, get at another, kill -9, restart, and everything is delivered once everywhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import oncemq
from oncemq.cli.meshing.nodes import Node, Nodes
from oncemq.cli.meshing.trial import Plan, run_trial
from oncemq.limits import MESH_LEAVE_MS
from tests.real.harness import DEADLINE_S, until

pytestmark = pytest.mark.real

QUICK = ("--set", "heartbeat_ms=200", "--set", "heartbeat_timeout_ms=1500", "--set", "digest_grace_ms=500", "--log-level", "info")


@contextmanager
def mesh_of(directory: Path, count: int, *options: str) -> Iterator[Nodes]:
    with Nodes(directory, count, (*QUICK, *options)) as nodes:
        nodes.start()
        until(lambda: all(is_member(node) for node in nodes), "every node has joined")
        yield nodes


def is_member(node: Node) -> bool:
    status = node.status()
    return status is not None and status.life == "member" and bool(status.neighbours)


def test_what_is_put_at_one_node_is_got_at_another_through_kill_9(tmp_path: Path) -> None:
    with (
        mesh_of(tmp_path, 2) as (here, there),
        oncemq.connect(here.address, id="writer", state=tmp_path / "writer") as writer,
        oncemq.connect(there.address, id="reader", state=tmp_path / "reader") as reader,
    ):
        reader.subscribe("orders")
        assert writer.put("orders", b"one").stored
        assert reader.get("orders", timeout=DEADLINE_S).value == b"one"
        there.kill()
        writer.put_many("orders", [b"two", b"three"])
        there.start([here.mesh], QUICK)
        there.wait_until_ready()
        assert [reader.get("orders", timeout=DEADLINE_S).value for _ in range(2)] == [b"two", b"three"]
        here.kill()
        here.start([there.mesh], QUICK)
        here.wait_until_ready()
        writer.put("orders", b"four")
        assert reader.get("orders", timeout=DEADLINE_S).value == b"four"
        assert reader.get_many("orders", timeout=1) == []


def test_killed_nodes_come_back_and_every_node_has_delivered_everything_once(tmp_path: Path) -> None:
    result = run_trial(tmp_path, Plan(nodes=6, messages=8, failed=0.5, seed=3, options=QUICK))
    assert result.violations == {}
    assert (result.killed, result.put, result.delivered) == (3, 48, 6 * 48)


def processes_below(directory: Path) -> list[str]:
    """Command lines of processes that were given something in this directory."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(line.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if f"serve {directory}/oncemq-mesh-" in line]


def test_a_trial_that_is_asked_to_end_leaves_no_node_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "oncemq", "mesh", "trial", "--nodes", "3", "--messages", "10000", "--failed", "50"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as trial:
        until(lambda: len(processes_below(tmp_path)) == 3, "all nodes run")
        trial.terminate()
        _, errors = trial.communicate(timeout=DEADLINE_S)

    assert (trial.returncode, "Traceback" in errors) == (130, False)
    assert (processes_below(tmp_path), list(tmp_path.iterdir())) == ([], [])


def test_a_mesh_that_was_wholly_killed_comes_back_without_its_contacts(tmp_path: Path) -> None:
    """Who was known is in a file: the nodes find each other although nobody is told whom to join."""
    with mesh_of(tmp_path, 3) as nodes:
        until(lambda: all((node.directory / "mesh-members.json").exists() for node in nodes), "members are written down")
        with oncemq.connect(nodes[2].address, id="reader", state=tmp_path / "reader") as reader:
            reader.subscribe("orders")
            nodes.kill(nodes)
            for node in nodes:
                node.start([], QUICK)
            for node in nodes:
                node.wait_until_ready()
            with oncemq.connect(nodes[0].address) as writer:
                writer.put("orders", b"after the storm")
            assert reader.get("orders", timeout=DEADLINE_S).value == b"after the storm"


def test_a_node_that_leaves_waits_until_a_neighbour_has_everything(tmp_path: Path) -> None:
    with mesh_of(tmp_path, 3) as nodes, oncemq.connect(nodes[2].address, id="reader", state=tmp_path / "reader") as reader:
        reader.subscribe("orders")
        with oncemq.connect(nodes[1].address) as writer:
            writer.put_many("orders", [b"%d" % number for number in range(500)])
        nodes[1].ask_to_stop()
        assert nodes[1].wait_until_ended() == 0
        got = [message.value for message in _get(reader, 500)]
        assert got == [b"%d" % number for number in range(500)]


def test_a_mesh_that_is_wholly_asked_to_stop_ends_without_waiting_for_somebody_who_stays(tmp_path: Path) -> None:
    with mesh_of(tmp_path, 3) as nodes:
        with oncemq.connect(nodes[1].address) as writer:
            writer.put("orders", b"one")
        asked = time.monotonic()
        for node in nodes:
            node.ask_to_stop()
        assert [node.wait_until_ended() for node in nodes] == [0, 0, 0]
        assert time.monotonic() - asked < MESH_LEAVE_MS / 1000, "each would wait for the others"


def _get(reader: oncemq.Client, count: int) -> list[oncemq.Message]:
    found: list[oncemq.Message] = []
    while len(found) < count:
        more = reader.get_many("orders", count, timeout=DEADLINE_S)
        assert more, f"only {len(found)} of {count} came"
        found += more
    return found


def test_a_client_that_comes_to_another_node_is_told(tmp_path: Path) -> None:
    with mesh_of(tmp_path, 2) as (here, there):
        with oncemq.connect(here.address, id="billing", state=tmp_path / "billing"):
            pass
        with pytest.raises(oncemq.Diverged, match="another"):
            oncemq.connect(there.address, id="billing", state=tmp_path / "billing").close()


def test_what_is_put_at_one_node_is_pushed_to_listeners_at_another(tmp_path: Path) -> None:
    with mesh_of(tmp_path, 2) as (here, there):
        heard: list[bytes] = []

        def listen() -> None:
            with oncemq.connect(there.address, id="ear", state=tmp_path / "ear") as ear:
                ear.subscribe("orders")
                is_listening.set()
                for message in ear.listen("orders"):
                    heard.append(message.value)
                    if message.value == b"end":
                        return

        is_listening = threading.Event()
        thread = threading.Thread(target=listen)
        thread.start()
        assert is_listening.wait(DEADLINE_S)
        with oncemq.connect(here.address) as writer:
            writer.put_many("orders", [b"one", b"two", b"end"])
        thread.join(DEADLINE_S)
        assert heard == [b"one", b"two", b"end"]


def test_a_transaction_reaches_the_other_nodes_as_a_whole(tmp_path: Path) -> None:
    with (
        mesh_of(tmp_path, 2) as (here, there),
        oncemq.connect(here.address, id="worker", state=tmp_path / "worker") as worker,
        oncemq.connect(there.address, id="reader", state=tmp_path / "reader") as reader,
    ):
        for topic in ("a", "b"):
            reader.subscribe(topic)
        with worker.transaction() as transaction:
            transaction.put("a", b"one")
            transaction.put("b", b"one")
        assert {reader.get(timeout=DEADLINE_S).topic for _ in range(2)} == {"a", "b"}


def test_a_neighbour_that_stands_still_is_expelled_and_catches_up(tmp_path: Path) -> None:
    """The others go on at full speed while one takes nothing; when it goes on it has missed nothing."""
    with mesh_of(tmp_path, 3) as nodes:
        still = nodes[2]
        with oncemq.connect(still.address, id="reader", state=tmp_path / "reader") as reader:
            reader.subscribe("orders")
            pid = still.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            try:
                with oncemq.connect(nodes[0].address) as writer:
                    for number in range(300):
                        writer.put("orders", b"%d" % number + bytes(50_000))
                until(lambda: still.mesh not in {each for view in _views(nodes.all[:2]) for each in view}, "nobody counts on it")
            finally:
                os.kill(pid, signal.SIGCONT)
            got = [message.value.rstrip(b"\0") for message in _get(reader, 300)]
            assert got == [b"%d" % number for number in range(300)]


def _views(nodes: list[Node]) -> list[list[str]]:
    found = [node.status() for node in nodes]
    return [[each.address for each in status.neighbours] for status in found if status is not None]

# SPDX-License-Identifier: Apache-2.0
"""The short forms of `oncemq torture --transactions` and `oncemq chaos`: effects are messages, and nothing is left behind.

May not: be called passed if nobody died.
Next: src/oncemq/cli/torturing/transactions.py and chaos.py for what happens in them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import oncemq
from oncemq.cli.torturing.workers import Books
from tests.real.test_torture import is_left, run

pytestmark = pytest.mark.real

KILLS = 5


@pytest.mark.parametrize("kind", ["broker", "sqlite", "postgresql"])
def test_deaths_at_the_crash_points_of_transactions_leave_one_effect_for_each_message(tmp_path: Path, kind: str) -> None:
    found = run(tmp_path, "--transactions", kind, "--kills", str(KILLS), "--seed", "5")

    assert (found["missing"], found["twice"], found["violations"]) == (0, 0, {})
    assert found["effects"] == found["messages"] > 0
    assert found["kills"] >= KILLS
    assert sum(found["killed_at"].values()) + found["database_kills"] == found["kills"]
    # The package that brings PostgreSQL leaves a lock of its own where temporary files go.
    assert [left for left in is_left(tmp_path) if "oncemq" in left or left.startswith("/")] == []


def test_an_unknown_kind_of_transaction_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "oncemq", "torture", "--transactions", "oracle", "--json"]
    ended = subprocess.run(command, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (ended.returncode, "broker, sqlite, postgresql" in ended.stderr) == (2, True)
    assert is_left(tmp_path) == []


def test_an_effect_that_happened_twice_can_be_seen(tmp_path: Path) -> None:
    """The table has nothing that would hide it."""
    books = Books(f"sqlite:{tmp_path / 'a.db'}")
    connection = books.open()
    for value in ("a", "a"):
        books.add(connection, value)
    connection.commit()
    connection.close()
    assert books.values() == ["a", "a"]


# --- chaos ----------------------------------------------------------------------------------------------


def chaos(tmp_path: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "oncemq", "chaos", "--json", "--seed", "3", *options]
    ended = subprocess.run(
        command, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=540, check=False
    )
    assert ended.returncode == 0, ended.stderr + ended.stdout
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


RIGHT = {"lost": 0, "twice": 0, "confirmed_but_missing": 0, "violations": {}}


def test_clients_that_come_go_and_fail_at_random_are_served_right(tmp_path: Path) -> None:
    found = chaos(tmp_path, "--clients", "4", "--seconds", "4")

    assert {name: found[name] for name in RIGHT} == RIGHT
    assert found["kills"] + found["falls"] + found["pauses"] > 0
    assert (found["guests"], found["lives"] >= 4, found["put"] > 0, found["delivered"] > 0) == (4, True, True, True)
    assert is_left(tmp_path) == []


def test_chaos_leaves_a_live_broker_as_it_was(tmp_path: Path) -> None:
    with oncemq.Broker(tmp_path / "data") as broker, oncemq.connect(broker.address) as client:
        client.admin.create_topic("mine", retain="forever")
        client.put("mine", b"kept")
        (tmp_path / "run").mkdir()
        found = chaos(tmp_path / "run", "--clients", "3", "--seconds", "2", "--address", broker.address)
        assert {name: found[name] for name in RIGHT} == RIGHT
        assert [info.topic for info in client.topics()] == ["mine"]
        assert [row.client for row in client.admin.clients() if not row.ephemeral] == []
        assert [message.value for message in client.read("mine", 0, 9)] == [b"kept"]
        assert is_left(tmp_path / "run") == []

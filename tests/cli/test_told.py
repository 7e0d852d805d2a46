# SPDX-License-Identifier: Apache-2.0
"""Everything a command can be told besides "done": in doubt, gap, damaged, state lost, diverged, pending, unreachable.

May not: accept a traceback, or silence.
Next: test_processes.py for kills.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import oncemq
from oncemq.client.client import Client
from tests.cli.harness import Shell, wait_until

Impatience = Callable[[], AbstractContextManager[None]]
NOWHERE = "tcp://127.0.0.1:1"


def leave_in_doubt(address: str, state: Path) -> None:
    """Be handed a message and die."""
    client = oncemq.connect(address, id="billing", state=state)
    assert client.get("orders", timeout=5) is not None
    client._abandon()


def test_what_is_in_doubt_is_told_until_somebody_decides(shell: Shell, broker: oncemq.Broker, tmp_path: Path) -> None:
    billing = ("--id", "billing", "--state", tmp_path / "billing")
    shell("subscribe", "orders", *billing)
    shell("put", "orders", "one", "two")
    leave_in_doubt(broker.address, tmp_path / "billing")

    told, again = shell("get", "orders", *billing), shell("get", "orders", *billing, "--json")
    repeated = shell("get", "orders", *billing, "--in-doubt", "repeat")

    assert (told.code, told.out) == (5, b"")
    assert "--in-doubt repeat" in told.err
    assert [again.error[name] for name in ("error", "topic", "first", "end")] == ["in_doubt", "orders", 0, 1]
    assert (repeated.code, repeated.text) == (0, "one\n")


def test_what_is_in_doubt_can_be_skipped(shell: Shell, broker: oncemq.Broker, tmp_path: Path) -> None:
    billing = ("--id", "billing", "--state", tmp_path / "billing")
    shell("subscribe", "orders", *billing)
    shell("put", "orders", "one", "two")
    leave_in_doubt(broker.address, tmp_path / "billing")

    assert shell("get", "orders", *billing, "--in-doubt", "skip", "--all").text == "two\n"


def test_another_state_directory_is_told_and_taken_over(shell: Shell, tmp_path: Path) -> None:
    shell("subscribe", "orders", "--id", "billing", "--state", tmp_path / "first")
    shell("put", "orders", "one")
    second = ("--id", "billing", "--state", tmp_path / "second")

    lost = shell("get", "orders", *second, "--json")
    doubtful = shell("get", "orders", *second, "--takeover", "--json")
    settled = shell("get", "orders", *second, "--in-doubt", "repeat")

    assert (lost.code, lost.error["error"]) == (5, "state_lost")
    assert "--takeover" in shell("get", "orders", "--id", "billing", "--state", tmp_path / "third").err
    assert (doubtful.code, doubtful.error["error"]) == (5, "in_doubt")
    assert (settled.code, settled.text) == (0, "one\n")


def test_another_broker_in_the_same_place_is_told(shell: Shell, tmp_path: Path) -> None:
    shell("subscribe", "orders", "--id", "billing", "--state", tmp_path / "billing")

    with oncemq.Broker(tmp_path / "other") as other:
        shell.address = other.address
        ended = shell("get", "orders", "--id", "billing", "--state", tmp_path / "billing", "--json")

    assert (ended.code, ended.error["error"]) == (5, "diverged")


def test_puts_kept_for_a_broker_that_was_restored_are_sent_after_a_takeover_and_counted(
    alone: Shell, tmp_path: Path, impatience: Impatience
) -> None:
    pub, data = ("--id", "pub", "--state", tmp_path / "pub"), tmp_path / "data"
    with oncemq.Broker(data) as broker:
        alone.address = broker.address
        alone("subscribe", "orders", "--id", "sub", "--state", tmp_path / "sub")
        alone("put", "orders", "1", *pub)
    shutil.copytree(data, tmp_path / "backup")
    with oncemq.Broker(data, broker.address):
        alone("put", "orders", "2", *pub)
    with impatience():
        assert alone("put", "orders", "3", *pub).code == 6
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "backup", data)
    with oncemq.Broker(data, broker.address):
        told = alone("put", "orders", "4", *pub)
        sent = alone("put", "orders", "5", *pub, "--takeover", "--json")
        got = alone("get", "orders", "--id", "sub", "--state", tmp_path / "sub", "--all")

    assert (told.code, "--takeover" in told.err) == (5, True)
    assert (sent.code, json.loads(sent.err)) == (0, {"leftovers": {"renumbered": 2, "unknown": 0}})
    assert sorted(got.text.split()) == ["1", "3", "4", "5"]


def test_a_gap_is_told_and_what_is_behind_it_is_got(shell: Shell) -> None:
    shell("subscribe", "orders", "--id", "first")
    shell("put", "orders", "0", "1", "2", "3")
    shell("get", "orders", "--id", "first", "--all")
    wait_until(lambda: shell("topics", "--json").json["topics"][0]["low"] > 0, "messages that all have are dropped")
    low = shell("topics", "--json").json["topics"][0]["low"]
    shell("subscribe", "orders", "--id", "late", "--start", "0")

    ended = shell("get", "orders", "--id", "late", "--all", "--json")

    assert (ended.code, [row["offset"] for row in ended.json_lines]) == (5, list(range(low, 4)))
    assert [ended.error[name] for name in ("error", "first", "end")] == ["gap", 0, low]
    assert shell("get", "orders", "--id", "late").code == 1


def test_damaged_messages_are_told_and_can_be_skipped(shell: Shell, tmp_path: Path) -> None:
    shell("subscribe", "orders", "--id", "billing")
    for value in ("before", "bent-out-of-shape", "behind"):
        shell("put", "orders", value)
    segment = next(path for path in (tmp_path / "data").glob("segment-*") if b"bent-out" in path.read_bytes())
    with segment.open("r+b") as file:
        file.seek(segment.read_bytes().index(b"bent-out"))
        file.write(b"B")

    stopped = shell("get", "orders", "--id", "billing", "--all", "--json")
    skipped = shell("get", "orders", "--id", "billing", "--all", "--skip-damaged", "--json")

    assert (stopped.code, stopped.error["error"]) == (5, "damaged")
    got = [json.loads(line)["value"] for line in (stopped.text + skipped.text).splitlines()]
    assert (skipped.code, got) == (5, ["before", "behind"])


@pytest.mark.parametrize(
    "command",
    [
        ("put", "orders", "one"),
        ("put", "orders", "-", "--id", "shop"),
        ("get", "orders", "--id", "billing"),
        ("subscribe", "orders", "--id", "billing"),
        ("unsubscribe", "orders", "--id", "billing"),
        ("topics",),
        ("topic", "create", "orders"),
        ("topic", "show", "orders"),
        ("topic", "delete", "orders"),
        ("subscription", "list"),
        ("subscription", "delete", "1"),
        ("client", "list"),
        ("client", "forget", "billing"),
        ("stats",),
        ("shutdown",),
    ],
    ids=" ".join,
)
def test_no_broker_is_exit_code_3(alone: Shell, command: tuple[str, ...], impatience: Impatience) -> None:
    alone.address = NOWHERE

    with impatience():
        ended, as_json = alone(*command), alone(*command, "--json")

    assert (ended.code, as_json.code, ended.out, as_json.out) == (3, 3, b"", b"")
    assert "oncemq serve" in ended.err
    assert (as_json.error["error"], as_json.error["address"]) == ("broker_unreachable", NOWHERE)


@pytest.mark.parametrize("address", ["nonsense", "", "tcp://127.0.0.1", "tcp://127.0.0.1:notaport", "http://127.0.0.1:5556"])
def test_an_address_that_is_none_is_exit_code_2(alone: Shell, address: str) -> None:
    alone.address = address

    ended = alone("topics")

    assert (ended.code, "Traceback" in ended.err) == (2, False)


def test_a_put_while_the_broker_is_away_is_kept_and_sent_once(alone: Shell, tmp_path: Path, impatience: Impatience) -> None:
    shop = ("--id", "shop", "--state", tmp_path / "shop")
    with oncemq.Broker(tmp_path / "data") as broker:
        alone.address = address = broker.address
        alone("subscribe", "orders", "--id", "billing")
        alone("put", "orders", "before", *shop)

    with impatience():
        away = alone("put", "orders", "kept", *shop, "--json")

    assert (away.code, away.error["error"], away.error["is_durable"]) == (6, "put_pending", True)
    with oncemq.Broker(tmp_path / "data", address):
        assert alone("put", "orders", "after", *shop).code == 0
        assert alone("get", "orders", "--id", "billing", "--all").text == "before\nkept\nafter\n"


def test_all_values_of_one_command_are_kept_while_the_broker_is_away(
    alone: Shell, tmp_path: Path, impatience: Impatience
) -> None:
    """Whoever is told not to put again must not have to put the second and the third again."""
    shop = ("--id", "shop", "--state", tmp_path / "shop")
    with oncemq.Broker(tmp_path / "data") as broker:
        alone.address = address = broker.address
        alone("subscribe", "orders", "--id", "billing")

    with impatience():
        away = alone("put", "orders", "one", "two", "three", *shop, "--json")
        flushed = alone("outbox", *shop, "--flush", "--json")

    assert (away.code, away.error["error"], away.error["pending"]) == (6, "put_pending", 3)
    assert (flushed.code, flushed.error["number"], flushed.error["pending"]) == (6, 1, 3)
    with oncemq.Broker(tmp_path / "data", address):
        assert alone("outbox", *shop, "--flush").text == "3 confirmed\n"
        assert alone("get", "orders", "--id", "billing", "--all").text == "one\ntwo\nthree\n"


def test_values_that_were_not_put_are_told_where_nothing_is_kept(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("subscribe", "orders", "--id", "billing", "--state", tmp_path / "billing")
    really = Client.put

    def put(self: Client, topic: list[str], value: bytes, **options: Any) -> Any:
        if value == b"two":
            raise oncemq.PutPending(2, 1, is_durable=False)
        return really(self, topic, value, **options)

    monkeypatch.setattr(Client, "put", put)
    ended = shell("put", "orders", "one", "two", "three")
    assert (ended.code, ended.lines) == (6, ["orders: stored at offset 0"])
    assert "1 further value(s) were not put" in ended.err


def test_an_id_in_use_is_exit_code_7_and_names_the_process(shell: Shell, broker: oncemq.Broker, tmp_path: Path) -> None:
    with oncemq.connect(broker.address, id="billing", state=tmp_path / "billing"):
        ended = shell("get", "orders", "--id", "billing", "--state", tmp_path / "billing", "--json")

    assert (ended.code, ended.error["error"]) == (7, "directory_locked")
    assert isinstance(ended.error["pid"], int)


def test_a_state_directory_that_cannot_be_is_exit_code_7(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")

    ended = shell("subscribe", "orders", "--id", "billing", "--state", tmp_path / "file", "--json")

    assert (ended.code, ended.error["error"]) == (7, "directory_unusable")

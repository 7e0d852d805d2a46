# SPDX-License-Identifier: Apache-2.0
"""Odd arguments, full disks and damaged files: an error of ours that says what to do, and nothing stored."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import oncemq
from oncemq.adapters.os_disk import OsDisk
from oncemq.client import connect as connecting
from oncemq.client.state import DirectoryState
from oncemq.core.identity import Identity, decode_identity, encode_identity
from oncemq.sim.disk import SimDisk
from tests.client.conftest import Connect

ODD: dict[str, Callable[[Any], object]] = {
    "put to None": lambda client: client.put(None, b"x"),
    "put to 5": lambda client: client.put(5, b"x"),
    "put to bytes": lambda client: client.put(b"t", b"x"),
    "put to a list of numbers": lambda client: client.put([5], b"x"),
    "put to a list of lists": lambda client: client.put([["t"]], b"x"),
    "collect for None": lambda client: client.put(None, b"x", wait=False),
    "collect for bytes": lambda client: client.put(b"t", b"x", wait=False),
    "put many to bytes": lambda client: client.put_many(b"t", [b"x"]),
    "put many of a number": lambda client: client.put_many("t", 5),
    "put many with a number for keys": lambda client: client.put_many("t", [b"x"], keys=5),
    "surrogates in a header's value": lambda client: client.put("t", b"x", headers={"a": "\ud800"}),
    "surrogates in a header's name": lambda client: client.put("t", b"x", headers={"\ud800": "a"}, wait=False),
    "get from a list": lambda client: client.get(["t"]),
    "get from bytes": lambda client: client.get(b"t"),
    "a timeout of text": lambda client: client.get("t", timeout="1"),
    "a timeout that is no number": lambda client: client.get("t", timeout=float("nan")),
    "a flush of text": lambda client: client.flush("1"),
    "2.5 messages": lambda client: client.get_many("t", 2.5),
    "true messages": lambda client: client.get_many("t", True),
    "in doubt of a number": lambda client: client.in_doubt(5),
    "settle with a list": lambda client: client.settle("t", ["skip"]),
    "read from text": lambda client: client.read("t", "0", 1),
    "read to text": lambda client: client.read("t", 0, "1"),
    "a cursor that is a list": lambda client: client.subscribe("u", cursor=["local"]),
    "a start of 2.5": lambda client: client.subscribe("u", 2.5),
    "retain 5": lambda client: client.admin.create_topic("v", retain=5),
    "limit bytes": lambda client: client.admin.create_topic("v", limit=b"1d"),
    "strict as text": lambda client: client.put("t", b"x", strict="yes"),
    "strict as a number": lambda client: client.put("t", b"x", strict=1),
    "strict as a list": lambda client: client.put("t", b"x", strict=[]),
    "collect with strict as text": lambda client: client.put("t", b"x", strict="yes", wait=False),
    "put many with strict as a number": lambda client: client.put_many("t", [b"x"], strict=0),
    "wait for None": lambda client: client.put("t", b"x", wait=None),
    "exist_ok as a number": lambda client: client.subscribe("t", exist_ok=0),
    "durable as text": lambda client: client.transaction(sqlite3.connect(":memory:"), durable="no"),
    "a table that is a number": lambda client: client.transaction(sqlite3.connect(":memory:"), table=5),
    "a timeout of True": lambda client: client.get("t", timeout=True),
    "a receive of True": lambda client: client.receive("t", timeout=True),
    "a listener of True": lambda client: client.listen("t", timeout=True),
    "a count of None": lambda client: client.get_many("t", None),
    "an offset of True": lambda client: client.read("t", True, 1),
    "topics of a number": lambda client: client.admin.topics(5),
    "a subscription id of text": lambda client: client.admin.delete_subscription("5"),
    "forget a number": lambda client: client.admin.forget_client(5),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_arguments_are_usage_errors_and_store_nothing(connect: Connect, odd: str) -> None:
    """Never a TypeError from somewhere inside."""
    client = connect()
    client.subscribe("t")
    end = client.admin.topics("t")[0].end
    with pytest.raises(oncemq.UsageError):
        ODD[odd](client)
    assert (client.pending, client.flush(), client.admin.topics("t")[0].end) == (0, 0, end)
    assert client.admin.topics("v") == []


def test_a_start_at_the_beginning_of_time_is_the_beginning(connect: Connect, topic: str) -> None:
    client = connect()
    client.subscribe(topic, "new")
    client.put(topic, b"x")
    assert connect("other").subscribe(topic, datetime(1, 1, 1)).start == 0


@pytest.mark.parametrize("seconds", [10**400, 1e308, float("inf")])
def test_a_time_longer_than_any_clock_is_for_ever(connect: Connect, topic: str, seconds: float) -> None:
    client = connect()
    client.subscribe(topic)
    client.put(topic, b"x")
    message = client.get(topic, timeout=seconds)
    assert message is not None
    assert client.flush(timeout=seconds) == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"address": 5},
        {"id": 5},
        {"id": "x", "state": 5},
        {"id": "x", "state": "a\0b"},
        {"takeover": "x"},
        {"takeover": None},
        {"offline": 1},
    ],
)
def test_odd_arguments_of_connect_are_usage_errors(odd: dict[str, object]) -> None:
    with pytest.raises(oncemq.UsageError):
        oncemq.connect(**{"offline": True, **odd})  # type: ignore[arg-type]


# --- text and numbers of the application's own kinds ----------------------------------------------------


class Fickle(str):
    """Text that is equal to nothing any more once it was looked at, as a key of ours would be."""

    is_spoilt = False

    def __eq__(self, other: object) -> bool:
        if Fickle.is_spoilt:
            raise RuntimeError("not comparable")
        return super().__eq__(other)

    def __hash__(self) -> int:
        if Fickle.is_spoilt:
            raise RuntimeError("not hashable")
        return super().__hash__()

    def __str__(self) -> str:
        return "something else"


def test_a_topic_of_a_class_of_its_own_is_its_text_and_is_not_kept(
    connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was kept among the names that were checked, and spoilt them for everybody who came later with the same text."""
    client = connect()
    client.subscribe(Fickle(topic))
    assert client.put(Fickle(topic), b"0").offset == 0
    client.put([Fickle(topic)], b"1", wait=False)
    client.put_many(Fickle(topic), [b"2"])
    monkeypatch.setattr(Fickle, "is_spoilt", True)
    assert client.put(topic, b"3").offset == 3
    found = [client.get(Fickle(topic), timeout=5) for _ in range(2)]
    assert [message.value for message in (*found, *client.get_many(Fickle(topic), timeout=5)) if message is not None] == [
        b"%d" % number for number in range(4)
    ]
    client.ack(Fickle(topic))
    client.unsubscribe(Fickle(topic))
    assert client.close() == 0


class Text(str):
    """As frameworks have it for text that is safe, or translated."""


class Number(int):
    """As libraries have it for numbers with a name."""


def test_text_and_numbers_of_classes_of_their_own_are_what_they_stand_for(connect: Connect, topic: str) -> None:
    client = connect(Text("one"))
    client.subscribe(topic, Number(0), cursor=Text("local"))
    client.put(topic, b"x", headers={Text("a"): Text("b")})
    message, *_ = client.get_many(topic, Number(1), timeout=5)
    assert message.headers == {"a": "b"}
    assert [each.value for each in client.read(topic, Number(0), Number(1))] == [b"x"]


# --- files ----------------------------------------------------------------------------------------------


def test_every_flipped_bit_of_client_json_is_told_with_what_to_do() -> None:
    """Never a ValueError, and never another history that looks right."""
    session = "ab" * 16
    content = encode_identity(Identity("billing", log=session, welcomed=session, tried=(session,), confirmed={session: 7}))
    whole = decode_identity(content, "dir", "billing")
    assert (whole.checksum, whole.confirmed) == ("", {session: 7})
    for bit in range(len(content) * 8):
        bent = bytearray(content)
        bent[bit // 8] ^= 1 << bit % 8
        try:
            found = decode_identity(bytes(bent), "dir", "billing")
        except oncemq.DirectoryUnusable as told:
            assert "client.json" in str(told) or "format" in str(told)
        else:
            assert found == whole  # Only white space, which means nothing.


def test_a_client_json_without_a_checksum_of_the_first_format_is_read() -> None:
    content = b'{"client": "billing", "format": 1, "log": "", "welcomed": "", "tried": [], "past": [], "confirmed": {}}'
    assert decode_identity(content, "dir", "billing").client == "billing"


@pytest.mark.parametrize("free_bytes", [0, 100, 5000])
def test_a_full_disk_under_the_state_directory_is_told_as_such(free_bytes: int) -> None:
    """DiskFull, exit code 8; and it goes on when there is space."""
    disk = SimDisk()
    state = DirectoryState(disk, "dir", "billing", b"1" * 16)
    disk.capacity_bytes = disk.used_bytes() + free_bytes
    try:
        for number in range(1000):
            state.save(Identity("billing", past=tuple(["ab" * 16] * number)))
    except oncemq.DiskFull as told:
        assert "dir" in str(told)
    else:
        pytest.fail("the disk was not full")
    disk.capacity_bytes = None
    state.save(Identity("billing"))
    state.close()


def test_a_lock_that_cannot_be_signed_is_a_lock(tmp_path: Path) -> None:
    """Who holds it is told to people only: a full disk must not keep a client from its directory."""
    (tmp_path / "lock").symlink_to("/dev/full")
    disk = OsDisk(tmp_path)
    disk.lock()
    disk.unlock()


def test_directories_we_make_are_private_up_to_the_first_that_was_there(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        OsDisk(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3


def test_a_connect_that_fails_while_it_is_put_together_leaves_no_lock(
    broker: oncemq.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(connecting, "Puts", fail)
        oncemq.connect(broker.address, id="again", state=tmp_path / "again")
    oncemq.connect(broker.address, id="again", state=tmp_path / "again").close()

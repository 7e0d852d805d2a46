# SPDX-License-Identifier: Apache-2.0
"""`oncemq serve` as a process: how it begins, what it says, and every way it ends.

May not: leave a broker running.
Next: test_processes.py.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from oncemq.adapters.service_manager import VARIABLE
from oncemq.cli.serve import segment_bytes
from tests.cli.harness import DEADLINE_S, Program, Shell

pytestmark = pytest.mark.real

Serve = Callable[..., tuple[Program, str]]
Start = Callable[..., Program]
Impatience = Callable[[], AbstractContextManager[None]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(serve: Serve, alone: Shell, tmp_path: Path, number: signal.Signals) -> None:
    program, alone.address = serve()
    alone("subscribe", "orders", "--id", "billing")
    alone("put", "orders", "one")

    program.signal(number)
    ended = program.end()

    assert (ended.code, ended.out) == (0, b"")
    assert "stopped cleanly" in ended.err
    assert alone("inspect", tmp_path / "data", "--json", local=True).json["records_not_proven_synced"] == 0
    assert alone("verify", tmp_path / "data", local=True).code == 0


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_is_told_when_it_listens_and_when_it_stops(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool
) -> None:
    name = f"oncemq-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(DEADLINE_S)
        manager.bind(f"\0{name}" if is_abstract else name)
        monkeypatch.setenv(VARIABLE, f"@{name}" if is_abstract else name)
        program, _ = serve()
        assert manager.recv(100) == b"READY=1"
        program.signal(signal.SIGTERM)
        assert (program.end().code, manager.recv(100)) == (0, b"STOPPING=1")


def test_a_service_manager_that_is_gone_is_no_reason_not_to_serve(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nobody"))
    program, _ = serve()
    program.signal(signal.SIGTERM)
    assert program.end().code == 0


def test_shutdown_stops_it_cleanly_and_a_restart_has_everything(serve: Serve, alone: Shell) -> None:
    program, alone.address = serve()
    alone("subscribe", "orders", "--id", "billing")
    alone("put", "orders", "one")

    asked = alone("shutdown", "--json")
    ended = program.end()
    again, _ = serve(address=alone.address)

    assert (asked.code, asked.json) == (0, {"address": alone.address, "stopping": True})
    assert (ended.code, "stopped cleanly" in ended.err) == (0, True)
    assert alone("get", "orders", "--id", "billing").text == "one\n"
    again.signal(signal.SIGTERM)
    assert again.end().code == 0


def test_kill_9_loses_nothing(serve: Serve, alone: Shell) -> None:
    program, alone.address = serve()
    alone("subscribe", "orders", "--id", "billing")
    alone("put", "orders", "one", "two")

    program.signal(signal.SIGKILL)
    program.end()
    serve(address=alone.address)

    assert alone("get", "orders", "--id", "billing", "--all").text == "one\ntwo\n"


def test_people_read_where_it_listens(start: Start, tmp_path: Path) -> None:
    program = start("serve", tmp_path / "data", "--address", "tcp://127.0.0.1:*")

    assert program.line().startswith("listening at tcp://127.0.0.1:")
    program.signal(signal.SIGTERM)
    assert program.end().code == 0


def test_the_log_as_json(serve: Serve, alone: Shell) -> None:
    program, alone.address = serve("--log-format", "json")
    alone("topic", "create", "orders")

    program.signal(signal.SIGTERM)
    lines = [json.loads(line) for line in program.end().err.splitlines()]

    assert {"time", "level", "text"} == set(lines[0])
    assert "topic 'orders' created" in [line["text"] for line in lines]


def test_a_quiet_log_is_quiet(serve: Serve, alone: Shell) -> None:
    program, alone.address = serve("--log-level", "error")
    alone("topic", "create", "orders")

    program.signal(signal.SIGTERM)

    assert program.end().err == ""


def test_retain_and_limit_are_given_to_new_topics(serve: Serve, alone: Shell) -> None:
    _, alone.address = serve("--retain", "7d", "--limit", "1GiB")

    alone("subscribe", "orders", "--id", "billing")

    topic = alone("topic", "show", "orders", "--json").json
    assert (topic["retain"], topic["limit"]) == ("7d", "1GiB")


def test_an_address_others_can_reach_is_warned_about(serve: Serve) -> None:
    program, _ = serve("--log-level", "error", address="tcp://0.0.0.0:*")

    program.signal(signal.SIGTERM)

    assert "no authentication" in json.loads(program.end().err)["warning"]


def test_a_port_in_use_is_told(serve: Serve, start: Start, tmp_path: Path) -> None:
    _, address = serve()

    ended = start("serve", tmp_path / "other", "--address", address, "--json").end()

    assert (ended.code, ended.error["error"], ended.out) == (2, "usage_error", b"")
    assert "is another broker running there" in ended.error["text"]


def test_a_directory_in_use_is_told_with_the_process(serve: Serve, start: Start, tmp_path: Path) -> None:
    program, _ = serve()

    ended = start("serve", tmp_path / "data", "--address", "tcp://127.0.0.1:*", "--json").end()

    assert (ended.code, ended.error["error"], ended.error["pid"]) == (7, "directory_locked", program.process.pid)


@pytest.mark.parametrize("kind", ["file", "below a file", "strange", "too new"])
def test_a_directory_that_cannot_be_is_told_and_stays_as_it_is(start: Start, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    expected = "directory_too_new" if kind == "too new" else "directory_unusable"
    if kind in {"file", "below a file"}:
        place.write_text("x")
    else:
        place.mkdir()
        content = json.dumps({"format": 99, "log": "00" * 16}) if kind == "too new" else "x"
        (place / ("identity" if kind == "too new" else "holiday.jpg")).write_text(content)
    before = sorted(path.name for path in place.iterdir()) if place.is_dir() else place.read_text()

    served = place / "inside" if kind == "below a file" else place
    ended = start("serve", served, "--address", "tcp://127.0.0.1:*", "--json").end()

    assert (ended.code, ended.error["error"], ended.out) == (7, expected, b"")
    assert before == (sorted(path.name for path in place.iterdir()) if place.is_dir() else place.read_text())


def test_a_damaged_journal_is_not_served(serve: Serve, start: Start, alone: Shell, tmp_path: Path) -> None:
    program, alone.address = serve()
    alone("subscribe", "orders", "--id", "billing")
    alone("put", "orders", "bent-out-of-shape")
    alone("put", "orders", "behind")
    program.signal(signal.SIGTERM)
    program.end()
    segment = max((tmp_path / "data").glob("segment-*"))
    content = segment.read_bytes().replace(b"bent-out", b"BENT-out")
    segment.write_bytes(content)

    ended = start("serve", tmp_path / "data", "--address", "tcp://127.0.0.1:*", "--json").end()

    assert (ended.code, ended.error["error"], ended.error["name"]) == (7, "journal_damaged", segment.name)
    assert segment.read_bytes() == content


def test_a_refused_write_ends_it_with_8_and_nothing_confirmed_is_lost(serve: Serve, alone: Shell, impatience: Impatience) -> None:
    program, alone.address = serve()
    alone("subscribe", "orders", "--id", "billing")
    alone("put", "orders", "one")
    resource.prlimit(program.process.pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))

    with impatience():
        while program.process.poll() is None:  # Again, if patience was over before the broker had heard of it.
            unconfirmed = alone("put", "orders", "never confirmed")
    ended = program.end()
    serve(address=alone.address)

    assert (unconfirmed.code, ended.code, ended.error["error"]) == (3, 8, "sync_failed")
    assert alone("get", "orders", "--id", "billing").text == "one\n"


@pytest.mark.parametrize("size", ["1KiB", "3GiB", "much", "7d", "forever", ""])
def test_a_segment_size_that_cannot_be_is_told(alone: Shell, tmp_path: Path, size: str) -> None:
    ended = alone("serve", tmp_path / "data", "--segment-size", size, local=True)

    assert (ended.code, (tmp_path / "data").exists()) == (2, False)
    assert "use a size from 64KiB to 2GiB" in ended.err


def test_sizes_are_read() -> None:
    assert segment_bytes("64KiB") == 65_536
    assert segment_bytes("2GiB") == 2**31

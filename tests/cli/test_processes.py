# SPDX-License-Identifier: Apache-2.0
"""`oncemq get`, `put` and `demo` as processes: killed, cut off, interrupted.

May not: accept that a message was acknowledged before it was written, or that one is lost without a word.
Next: test_serve.py.
"""

from __future__ import annotations

import array
import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import oncemq
from oncemq.core.slot import decode_slot
from tests.cli.harness import DEADLINE_S, Program, Shell, wait_until

pytestmark = pytest.mark.real

Start = Callable[..., Program]
PIPE_BYTES = 4096
VALUES = [b"%04d" % number + b"." * 996 for number in range(20)]
"""A message with its line end is 1,001 bytes: four of them fit into the smallest pipe, the fifth does not."""
FITTING = 4


@pytest.fixture
def full(shell: Shell, broker: oncemq.Broker) -> Shell:
    shell("subscribe", "orders", "--id", "billing")
    with oncemq.connect(broker.address) as shop:
        shop.put_many("orders", VALUES)
    return shell


def waiting_in(pipe: int) -> int:
    """How many bytes nobody has read yet."""
    found = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]


def begin_get(shell: Shell) -> tuple[subprocess.Popen[bytes], int]:
    """Start a get whose output nobody reads, and wait until it is stuck in the fifth message."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    command = [sys.executable, "-m", "oncemq", "get", "orders", "--id", "billing", "--all", "--address", shell.address]
    process = subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    wait_until(lambda: waiting_in(reading) == FITTING * 1001, "four messages are written")
    return process, reading


def acknowledged(shell: Shell) -> int:
    return int(shell("subscription", "list", "--json").json["subscriptions"][0]["cursor"])


def handed_over(home: Path) -> int:
    """How many messages the state directory says were handed out."""
    (path,) = home.glob("**/slot-*")
    slot = decode_slot(path.read_bytes())
    return slot.handed if slot is not None else 0


def test_what_was_not_written_when_get_is_killed_is_in_doubt_and_nothing_else_is(full: Shell, tmp_path: Path) -> None:
    process, reading = begin_get(full)
    wait_until(lambda: acknowledged(full) == FITTING, "the broker has heard of the four")
    wait_until(lambda: handed_over(tmp_path / "home") == FITTING + 1, "the fifth is in its hands")
    process.kill()
    process.communicate()
    os.close(reading)

    told = full("get", "orders", "--id", "billing", "--json")
    rest = full("get", "orders", "--id", "billing", "--in-doubt", "repeat", "--all")

    assert told.code == 5
    assert [told.error[name] for name in ("error", "first", "end")] == ["in_doubt", FITTING, FITTING + 1]
    assert rest.out.splitlines() == VALUES[FITTING:]


def test_a_reader_that_goes_away_leaves_the_message_at_hand_in_doubt(full: Shell) -> None:
    process, reading = begin_get(full)
    os.close(reading)
    _, said = process.communicate(timeout=DEADLINE_S)

    told = full("get", "orders", "--id", "billing", "--json")
    rest = full("get", "orders", "--id", "billing", "--in-doubt", "repeat", "--all")

    assert (process.returncode, f"message {FITTING} of 'orders' could not be written" in said.decode()) == (1, True)
    assert (b"Traceback" in said, b"Exception ignored" in said) == (False, False)
    assert [told.error[name] for name in ("error", "first", "end")] == ["in_doubt", FITTING, FITTING + 1]
    assert rest.out.splitlines() == VALUES[FITTING:]


def test_a_full_disk_behind_stdout_is_told_and_acknowledges_nothing(full: Shell) -> None:
    command = [sys.executable, "-m", "oncemq", "get", "orders", "--id", "billing", "--all", "--address", full.address]
    with Path("/dev/full").open("wb") as nowhere:
        ended = subprocess.run(command, stdout=nowhere, stderr=subprocess.PIPE, check=False, timeout=DEADLINE_S)

    assert (ended.returncode, b"No space left" in ended.stderr) == (1, True)
    assert full("get", "orders", "--id", "billing", "--in-doubt", "repeat", "--all").out.splitlines() == VALUES


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_follow_ends_by_a_signal_with_nothing_in_doubt(full: Shell, start: Start, number: signal.Signals) -> None:
    program = start("get", "orders", "--id", "billing", "--follow", "--address", full.address)
    got = [program.line() for _ in VALUES]
    full("put", "orders", "later")
    got.append(program.line())
    program.signal(number)

    assert (program.end().code, got[-1]) == (0, "later\n")
    assert full("get", "orders", "--id", "billing").code == 1


def test_follow_goes_on_when_the_broker_comes_back(start: Start, alone: Shell, tmp_path: Path) -> None:
    with oncemq.Broker(tmp_path / "data") as broker:
        alone.address = address = broker.address
        alone("subscribe", "orders", "--id", "billing")
        program = start("get", "orders", "--id", "billing", "--follow", "--address", address)
        alone("put", "orders", "one")
        assert program.line() == "one\n"
    with oncemq.Broker(tmp_path / "data", address):
        alone("put", "orders", "two")
        assert program.line() == "two\n"
        program.signal(signal.SIGTERM)
        assert program.end().code == 0


def test_lines_are_put_as_they_are_typed(shell: Shell, start: Start) -> None:
    shell("subscribe", "orders", "--id", "billing")
    program = start("put", "orders", "-", "--address", shell.address, stdin=subprocess.PIPE)
    assert program.process.stdin is not None
    program.process.stdin.write(b"one\n")
    program.process.stdin.flush()

    wait_until(lambda: shell("get", "orders", "--id", "billing").text == "one\n", "the first line arrives alone")
    ended = program.end(b"two\n")

    assert (ended.code, ended.text) == (0, "orders: 2 stored at offsets 0 to 1\n")


def test_a_crash_point_ends_the_process_there(shell: Shell, start: Start, tmp_path: Path) -> None:
    shop = ("--id", "shop", "--state", str(tmp_path / "shop"), "--address", shell.address)
    shell("subscribe", "orders", "--id", "billing")

    ended = start("put", "orders", "one", *shop, ONCEMQ_CRASH_AT="client.after_outbox").end()

    assert (ended.code, ended.out) == (137, b"")
    assert shell("put", "orders", "two", "--id", "shop", "--state", tmp_path / "shop").code == 0
    assert shell("get", "orders", "--id", "billing", "--all").text == "one\ntwo\n"


def test_the_demo_counts_and_cleans_up(start: Start, tmp_path: Path) -> None:
    program = start("demo", "--seconds", "3", "--no-spark", "--json", TMPDIR=str(tmp_path))
    ended = program.end()

    assert ended.code == 0, ended.err
    assert (ended.json["lost"], ended.json["twice"], ended.json["violations"], ended.json["effects_exact"]) == (0, 0, 0, True)
    assert ended.json["kills"] >= 1
    nodes = [f"mesh node-{number}" for number in range(3)]
    assert [row["subscriber"] for row in ended.json["subscribers"]] == ["plain", "live", "ledger", *nodes]
    for row in ended.json["subscribers"]:
        assert row["put"] == row["got"] > 0
    assert [path for path in tmp_path.iterdir() if path.name.startswith("oncemq-demo")] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    program = start("demo", "--seconds", "600", "--no-spark", TMPDIR=str(tmp_path))
    wait_until(lambda: any(tmp_path.glob("oncemq-demo-*/histories/publisher-1.jsonl")), "messages flow")
    directory = next(tmp_path.glob("oncemq-demo-*"))

    program.signal(number)
    ended = program.end()

    assert (ended.code, "Traceback" in ended.err) == (130, False)
    assert not directory.exists()
    assert _of_place(directory) == []


def test_a_demo_that_is_killed_takes_everybody_with_it(start: Start, tmp_path: Path) -> None:
    """The nodes of its mesh too, which a process of the demo has started."""
    program = start("demo", "--seconds", "600", "--no-spark", TMPDIR=str(tmp_path))
    wait_until(lambda: any(tmp_path.glob("oncemq-demo-*/histories/publisher-1.jsonl")), "messages flow")
    wait_until(lambda: sum("/mesh/node-" in command for _, command in _of_place(tmp_path)) == 3, "its mesh has three nodes")

    program.signal(signal.SIGKILL)
    program.end()

    wait_until(lambda: _of_place(tmp_path) == [], "nobody is left")


def _of_place(place: Path) -> list[tuple[int, str]]:
    """Processes that were given something below this place: their ids and command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(place) in command:
                found.append((int(path.parent.name), command))
    return found

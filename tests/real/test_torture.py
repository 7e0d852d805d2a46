# SPDX-License-Identifier: Apache-2.0
"""The short form of `oncemq torture`: a few kills of each kind, what a machine does not allow, and nothing left behind.

May not: be called passed where a fault was not possible without that being said.
The idea: the command is run as anybody runs it; besides, its counting is shown to be able to fail.
Next: src/oncemq/cli/torturing/performance.py for what happens in it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import oncemq
from oncemq.cli.torturing.recorder import Recorder, events_of, history_of, merged
from oncemq.cli.torturing.roles import Librarian, Part
from oncemq.cli.torturing.store import Ext4
from oncemq.cli.torturing.tools import NotPossible
from oncemq.cli.torturing.verdict import judge
from oncemq.limits import MIB
from oncemq.sim.history import Event
from tests.real.harness import until

pytestmark = pytest.mark.real

RIGHT = {"lost": 0, "twice": 0, "confirmed_but_missing": 0, "violations": {}}


def start(tmp_path: Path, *options: str, path: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(tmp_path)} | ({"PATH": path} if path else {})
    command = [sys.executable, "-m", "oncemq", "torture", "--json", *options]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(tmp_path: Path, *options: str, path: str = "") -> dict[str, Any]:
    process = start(tmp_path, *options, path=path)
    out, errors = process.communicate(timeout=540)
    assert process.returncode == 0, errors + out
    found: dict[str, Any] = json.loads(out)
    return found


def is_left(tmp_path: Path) -> list[str]:
    """Processes, mounts, namespaces and directories that a run in this directory has left."""
    place = str(tmp_path)
    commands = [path for path in Path("/proc").glob("[0-9]*/cmdline") if place in _text(path)]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if place in line]
    return [*map(str, commands), *mounts, *(path.name for path in tmp_path.iterdir())]


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_kills_of_every_kind_lose_and_repeat_nothing(tmp_path: Path) -> None:
    found = run(tmp_path, "--kills", "5", "--seed", "4", "--faults", "broker_kill,client_kill,crash_point,line")

    assert {name: found[name] for name in RIGHT} == RIGHT
    assert (found["kills"] >= 5, found["put"] > 0, found["delivered"] > 0) == (True, True, True)
    assert is_left(tmp_path) == []


def disk_that_can_lose_power(place: Path) -> Ext4:
    place.mkdir()
    try:
        return Ext4(place, 32 * MIB)
    except NotPossible as reason:
        pytest.skip(f"a power cut is not possible here: {reason}")


def test_space_that_was_freed_is_not_gone_again_after_a_power_cut(tmp_path: Path) -> None:
    store = disk_that_can_lose_power(tmp_path / "disk")
    try:
        store.fill()
        os.sync()  # As a kernel does after a while: the ballast is on the disk.
        store.free()
        store.cut_power()
        store.bring_back()
        (store.place / "file").write_bytes(bytes(MIB))
    finally:
        store.close()


def test_the_power_comes_back_although_another_namespace_still_holds_the_disk(tmp_path: Path) -> None:
    """Two runs at once: whoever makes a namespace has a copy of the other's mount."""
    store = disk_that_can_lose_power(tmp_path / "disk")
    with subprocess.Popen(["unshare", "--mount", "cat"], stdin=subprocess.PIPE) as holder:
        try:
            ours = Path("/proc/self/ns/mnt").readlink()
            until(lambda: Path(f"/proc/{holder.pid}/ns/mnt").readlink() != ours, "a namespace of its own")
            store.cut_power()
            store.bring_back()
            (store.place / "file").write_bytes(b"written")
        finally:
            holder.kill()
            store.close()


def test_a_disk_without_power_or_space_and_a_cut_cable_lose_nothing(tmp_path: Path) -> None:
    """Where the machine does not allow them all, the rest runs, and the result says what did not."""
    faults = ("power_cut", "io_error", "disk_full", "partition", "broker_kill")
    found = run(tmp_path, "--kills", "4", "--seconds", "8", "--seed", "6", "--faults", ",".join(faults))

    assert {name: found[name] for name in RIGHT} == RIGHT
    assert set(found["not_possible"]) <= set(faults)
    assert found["disk"] == "ext4 on a loop device" or "power_cut" in found["not_possible"]
    assert is_left(tmp_path) == []


def test_what_a_machine_does_not_allow_is_said(tmp_path: Path) -> None:
    """Without the tools nothing can be mounted, cut or traced: only kills are left."""
    faults = "power_cut,disk_full,partition,io_error,broker_kill"
    found = run(tmp_path, "--kills", "1", "--seed", "1", "--faults", faults, path=str(tmp_path / "no-tools"))

    assert {name: found[name] for name in RIGHT} == RIGHT
    assert {name: "is not installed" in reason for name, reason in found["not_possible"].items()} == dict.fromkeys(
        ("power_cut", "disk_full", "partition", "io_error"), True
    )


def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path) -> None:
    process = start(tmp_path, "--kills", "1000", "--seed", "3")
    until(lambda: any(tmp_path.glob("oncemq-torture-*/histories/pub0.jsonl")), "messages flow")
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=540)

    assert (process.returncode, out, "Traceback" in errors) == (130, "", False)
    assert is_left(tmp_path) == []


# --- the counting can fail ------------------------------------------------------------------------------


def put(time_us: int, message: str, offset: int) -> list[Event]:
    invoke: Event = {"t": time_us, "process": "pub0", "life": 1, "kind": "invoke", "op": "put", "message": message}
    place: Event = {"topic_id": "1", "offset": offset, "stored": True, "duplicate": False}
    return [invoke, {**invoke, "t": time_us + 1, "kind": "ok", **place}]


def at_subscriber(time_us: int, operation: str, **fields: str | int | bool) -> Event:
    who: Event = {"t": time_us, "process": "sub0", "life": 1, "kind": "ok", "op": operation}
    return who | {"subscription": "sub0", "topic_id": "1"} | fields


def log(offset: int, message: str) -> Event:
    who: Event = {"t": 90, "process": "harness", "life": 1, "kind": "ok", "op": "log", "topic_id": "1"}
    return who | {"offset": offset, "message": message, "stream": "s", "number": offset + 1}


STORED = [*put(1, "a", 0), *put(3, "b", 1), at_subscriber(5, "subscribe", start=0), log(0, "a"), log(1, "b")]
END: Event = {"t": 99, "process": "harness", "life": 1, "kind": "ok", "op": "end", "topic_id": "1", "low": 0, "end": 2}
A, B = (at_subscriber(time_us, "deliver", offset=time_us - 6, message=name) for time_us, name in ((6, "a"), (7, "b")))


def figures(*events: Event) -> tuple[int, int, int]:
    found = judge([*STORED, *events, {**END, "is_limited": False}])
    return found.lost, found.twice, found.confirmed_but_missing


def test_what_nobody_got_is_lost_and_what_came_again_is_twice() -> None:
    assert figures(A, B) == (0, 0, 0)
    assert figures(A) == (1, 0, 0)
    assert figures(A, B, B) == (0, 1, 0)


def test_what_was_asked_for_again_while_in_doubt_is_not_twice() -> None:
    span: dict[str, int] = {"first": 1, "end": 2}
    doubt = [at_subscriber(8, "in_doubt", **span, bound=1), at_subscriber(8, "repeat", **span)]
    assert figures(A, B, *doubt, B) == (0, 0, 0)
    assert judge([*STORED, A, B, *doubt, B]).in_doubt == 1


def test_what_was_confirmed_and_is_not_stored_is_missing() -> None:
    assert figures(A, B, *put(9, "c", 2)) == (1, 0, 1)


@pytest.mark.parametrize(("deleted", "laws"), [("", set()), ("orders", {"kept-too-little"})])
def test_a_topic_that_is_gone_although_nobody_deleted_it_is_found(tmp_path: Path, deleted: str, laws: set[str]) -> None:
    with oncemq.Broker(tmp_path / "broker") as broker, oncemq.connect(broker.address) as somebody:
        librarian = Librarian(Part("prepare", "harness", 1, broker.address, str(tmp_path), ("orders", "payments"), "1"))
        librarian.prepare()
        if deleted:
            somebody.admin.delete_topic(deleted)
        librarian.read()

    assert set(judge(merged(history_of(tmp_path, "harness").parent)).violations) == laws


def test_half_a_line_is_no_event_and_histories_are_merged_by_time(tmp_path: Path) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    first = Recorder(one, "one", 1)
    first.note("ok", "welcome")
    second = Recorder(other, "other", 1)
    second.note("ok", "welcome")
    first.note("ok", "kept", message="a")
    with one.open("ab") as file:
        file.write(b'{"t":1,"process":"o')
    Recorder(one, "one", 2).note("ok", "welcome")

    assert [(event["op"], event["life"]) for event in events_of(one)] == [("welcome", 1), ("kept", 1), ("welcome", 2)]
    assert [event["process"] for event in merged(tmp_path)] == ["one", "other", "one", "one"]

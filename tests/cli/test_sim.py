# SPDX-License-Identifier: Apache-2.0
"""`oncemq sim`: what it says, as JSON and by its exit code. What it finds is tested in tests/sim."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from oncemq.cli.output import Output
from oncemq.cli.sim import tell_smallest
from oncemq.cli.torture import Progress
from oncemq.sim.bugs import planted
from tests.cli.harness import DEADLINE_S, Shell, wait_until


@pytest.fixture
def shell(capfdbinary: pytest.CaptureFixture[bytes]) -> Shell:
    """These commands need no broker."""
    return Shell(capfdbinary)


pytestmark = pytest.mark.real


def test_seeds_are_summed_up_in_one_object(shell: Shell) -> None:
    ended = shell("sim", "--seeds", "3", "--json", local=True)

    assert ended.code == 0
    assert ended.json["seeds"] == 3
    assert (ended.json["violations"], ended.json["replay_mismatches"]) == (0, 0)


def test_images_are_summed_up_in_one_object(shell: Shell) -> None:
    ended = shell("sim", "--images", "50", "--first", "5", "--json", local=True)

    assert ended.code == 0
    assert ended.json["images"] >= 50
    assert ended.json["violations"] == 0


def test_a_seed_is_replayed_as_lines_of_its_history(shell: Shell) -> None:
    ended = shell("sim", "--seed", "3", "--cut", "messages=2,strikes=none", local=True)

    assert ended.code == 0
    assert {event["op"] for event in ended.json_lines} > {"put", "log", "end"}
    assert "fault" not in {event["op"] for event in ended.json_lines}


def test_a_replayed_seed_that_breaks_a_promise_says_which(shell: Shell) -> None:
    with planted("drops_the_tail_after_a_restart"):
        ended = shell("sim", "--seed", "0", "--json", local=True)

    assert ended.code == 1
    assert "crashed" in ended.error["error"]


def test_a_seed_that_broke_a_promise_is_told_with_its_smallest_world(capfd: pytest.CaptureFixture[str]) -> None:
    with planted("drops_the_tail_after_a_restart"):
        tell_smallest(Output(is_json=True), [7])
    told = json.loads(capfd.readouterr().err.splitlines()[-1])

    assert "smallest world: messages 1" in told["text"]
    assert "replay: oncemq sim --seed 7 --cut " in told["text"]


def test_a_case_is_replayed_as_lines_of_its_history(shell: Shell) -> None:
    ended = shell("sim", "--case", "broker.after_append:3:power", local=True)

    assert ended.code == 0
    deaths = [event for event in ended.json_lines if event["op"] == "crash"]
    assert [(death["point"], death["power_cut"]) for death in deaths] == [("broker.after_append", True)]


def test_a_case_whose_point_is_never_reached_so_often_did_not_happen(shell: Shell) -> None:
    ended = shell("sim", "--case", "broker.after_append:99999:kill", "--json", local=True)

    assert ended.code == 1
    assert ended.error["error"] == "not_reached"
    assert "broker.after_append was reached only " in str(ended.error["text"])


def _children(process: int) -> int:
    return len(Path(f"/proc/{process}/task/{process}/children").read_text().split())


def _is_at_work(process: int, workers: int) -> bool:
    """It has its workers, and listens to Ctrl-C again: it does not while it starts them."""
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    blocked = next(line for line in status if line.startswith("SigBlk"))
    return _children(process) >= workers and not int(blocked.split()[1], 16) & 1 << signal.SIGINT - 1


@pytest.mark.parametrize("arguments", [("--seeds", "100000"), ("--images", "100000000"), ("--bugs",)])
def test_ctrl_c_is_told_what_was_done_so_far(arguments: tuple[str, ...]) -> None:
    """A terminal sends it to the whole group; workers do not answer for themselves."""
    command = [sys.executable, "-m", "oncemq", "sim", *arguments, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as program:
        try:
            wait_until(lambda: _children(program.pid) > 0, "it starts workers")
            os.killpg(program.pid, signal.SIGINT)
            said, errors = program.communicate(timeout=DEADLINE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)

    assert program.returncode == 130
    assert {"images", "seeds", "caught"} & set(json.loads(said))
    assert [json.loads(line)["error"] for line in errors.splitlines()] == ["interrupted"]


INTERRUPTS_A_POOL_THAT_IS_HALF_MADE = """
import multiprocessing.resource_tracker as tracker, signal
register = tracker.register
def interrupted(name, kind):
    register(name, kind)
    tracker.register = register
    signal.raise_signal(signal.SIGINT)
tracker.register = interrupted
"""


def test_ctrl_c_before_there_are_workers_leaves_no_semaphore_and_no_word_of_one(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS_A_POOL_THAT_IS_HALF_MADE)
    command = [sys.executable, "-m", "oncemq", "sim", "--bugs", "--json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}

    ended = subprocess.run(command, env=environment, capture_output=True, timeout=DEADLINE_S, check=False)

    assert ended.returncode == 130
    assert [json.loads(line)["error"] for line in ended.stderr.splitlines()] == ["interrupted"]


def _group(leader: int) -> set[int]:
    """The processes of a group that still run."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _parent, group = (process / "stat").read_text().rpartition(") ")[2].split()[:3]
            if int(group) == leader and state != "Z":
                found.add(int(process.name))
    return found


@pytest.mark.parametrize(("what", "workers"), [("--seeds", 2), ("--images", 1 + (os.cpu_count() or 1))])
def test_a_command_that_is_killed_leaves_no_worker_and_no_word_of_one(what: str, workers: int) -> None:
    """Once it has all of them, the one that counts semaphores for them included: half a start is not told of."""
    command = [sys.executable, "-m", "oncemq", "sim", what, "100000000", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as program:
        try:
            wait_until(lambda: _is_at_work(program.pid, workers), "workers were started")
            program.kill()
            _, errors = program.communicate(timeout=DEADLINE_S)
            wait_until(lambda: not _group(program.pid), "no worker is left")
            assert b"Traceback" not in errors
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--spark", "--transactions", "sqlite"), "--transactions means nothing with --spark"),
        (("--spark", "--faults", "all"), "--faults means nothing with --spark"),
        (("--transactions", "sqlite", "--faults", "pause"), "--faults means nothing with --transactions"),
    ],
)
def test_torture_refuses_what_it_would_not_look_at(shell: Shell, arguments: tuple[str, ...], hint: str) -> None:
    ended = shell("torture", *arguments, "--json", local=True)

    assert ended.code == 2
    assert hint in json.dumps(ended.error)


def test_a_torture_that_is_interrupted_says_how_far_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), Progress(Output(is_json=True), 20) as progress:
        progress.update(7, "broker_kill")
        raise KeyboardInterrupt

    assert json.loads(capfd.readouterr().err)["interrupted"] == {"done": 7, "asked": 20}


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--case", "nowhere:1:kill"), "POINT:HIT:kill"),
        (("--case", "nonsense"), "'nonsense' is not a case: use POINT:HIT:kill"),
        (("--seed", "1", "--cut", "giraffes=2"), "publishers=N"),
        (("--cut", "messages=2"), "name the seed"),
        (("--bugs", "--explore"), "choose one"),
        (("--images", "3", "--seeds", "5"), "--seeds means nothing with --images"),
        (("--bugs", "--first", "3"), "--first means nothing with --bugs"),
        (("--crash-points", "--history", "kept"), "--history means nothing with --crash-points"),
        (("--seeds", "1", "--history", "/proc/x"), "/proc/x: nothing can be written there"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_could(shell: Shell, arguments: tuple[str, ...], hint: str) -> None:
    ended = shell("sim", *arguments, "--json", local=True)

    assert ended.code == 2
    assert hint in json.dumps(ended.error)

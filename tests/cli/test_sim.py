# SPDX-License-Identifier: Apache-2.0
"""`oncemq sim`: what it says, as JSON and by its exit code. What it finds is tested in tests/sim."""

from __future__ import annotations

import json

import pytest

from oncemq.cli.output import Output
from oncemq.cli.sim import tell_smallest
from oncemq.sim.bugs import planted
from tests.cli.harness import Shell


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


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--case", "nowhere:1:kill"), "POINT:HIT:kill"),
        (("--case", "nonsense"), "'nonsense' is not a case: use POINT:HIT:kill"),
        (("--seed", "1", "--cut", "giraffes=2"), "publishers=N"),
        (("--cut", "messages=2"), "name the seed"),
        (("--bugs", "--explore"), "choose one"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_could(shell: Shell, arguments: tuple[str, ...], hint: str) -> None:
    ended = shell("sim", *arguments, "--json", local=True)

    assert ended.code == 2
    assert hint in json.dumps(ended.error)

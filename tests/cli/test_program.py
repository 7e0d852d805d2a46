# SPDX-License-Identifier: Apache-2.0
"""The program as a whole: help, version, exit codes, and what becomes of an error.

May not: need a broker.
Next: test_messages.py.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import typer

from oncemq import errors
from oncemq.cli import main
from oncemq.cli.exits import MEANINGS, Exit, exit_of, name_of
from oncemq.version import VERSION
from tests.cli.harness import Program, Shell
from tests.tidy.source import page


def commands_of(group: Any, before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        found += commands_of(command, f"{before}{name} ") if inner else [(f"{before}{name}", command)]
    return found


ALL = commands_of(typer.main.get_command(main.app))


def classes_below(kind: type[errors.OnceMQError]) -> list[type[errors.OnceMQError]]:
    return [each for inner in kind.__subclasses__() for each in (inner, *classes_below(inner))]


def test_help_shows_every_command_and_every_exit_code(alone: Shell) -> None:
    ended = alone("--help", local=True)

    assert ended.code == 0
    assert [name for name, _ in ALL if name.split()[0] not in ended.text] == []
    assert [int(code) for code in re.findall(r"^ *(\d+)  \S", ended.text, flags=re.MULTILINE)] == sorted(MEANINGS)


def test_without_a_command_help_is_shown(alone: Shell) -> None:
    ended = alone(local=True)

    assert (ended.code, "Usage: oncemq" in ended.text) == (2, True)


@pytest.mark.parametrize("command", [command for _, command in ALL], ids=[name for name, _ in ALL])
def test_every_command_has_help_with_json_and_explains_every_option(command: Any) -> None:
    assert command.help.strip()
    assert "--json" in [option for parameter in command.params for option in parameter.opts]
    assert [parameter.name for parameter in command.params if not getattr(parameter, "help", None)] == []


@pytest.mark.parametrize(("name", "command"), [pair for pair in ALL if not pair[0].startswith("bench")], ids=str)
def test_every_command_shows_an_example_of_itself(name: str, command: Any) -> None:
    assert re.search(rf"^ *(.* \| )?oncemq {re.escape(name)}\b", command.help, flags=re.MULTILINE)


def test_the_version_is_printed(alone: Shell) -> None:
    assert alone("--version", local=True).text == f"oncemq {VERSION}\n"


def test_the_page_of_commands_has_the_same_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*?) \|$", page("docs/commands.md"), flags=re.MULTILINE)

    assert [(int(code), meaning) for code, meaning in rows] == [(int(code), meaning) for code, meaning in MEANINGS.items()]


def test_every_error_a_user_can_meet_has_an_exit_code_of_its_own_kind() -> None:
    general = {errors.WorldError, errors.MalformedPacket}
    kinds = [kind for kind in classes_below(errors.OnceMQError) if kind not in general and kind.__module__ == errors.__name__]

    def made(kind: type[errors.OnceMQError]) -> errors.OnceMQError:
        return kind.__new__(kind)

    assert [kind.__name__ for kind in kinds if exit_of(made(kind)) is Exit.FAILED] == []
    assert exit_of(made(errors.PutPending)) is Exit.PENDING
    assert exit_of(made(errors.InDoubt)) is Exit.TOLD


def test_errors_have_stable_names() -> None:
    assert name_of(errors.BrokerUnreachable("x", 1, 1)) == "broker_unreachable"
    assert name_of(errors.Refused("topic_exists", "x")) == "topic_exists"


@pytest.mark.parametrize("problem", [errors.InvariantViolated("we contradict ourselves"), ZeroDivisionError()], ids=str)
def test_our_own_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch, problem: BaseException) -> None:
    def broken(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr("oncemq.cli.stats.asking", broken)

    with pytest.raises(type(problem)):
        main.run(["stats"])


def test_a_crash_point_that_does_not_exist_is_told(alone: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEMQ_CRASH_AT", "nowhere")

    ended = alone("topics", local=True)

    assert (ended.code, "ONCEMQ_CRASH_AT" in ended.err) == (2, True)


def test_commands_do_not_load_what_help_does_not_need() -> None:
    """Help must be quick: no command module may pull in Spark, or rich and the engine beyond the front door."""
    source = importlib.import_module("tests.tidy.source")
    heavy = re.compile(r"^(?:from|import) (?:rich|pyspark|oncemq\.(?:client|engine|journal|wire))\b", flags=re.MULTILINE)
    lazily = [each for each in source.sources("src/oncemq/cli") if "benchmarks/" not in each.path]
    assert [each.path for each in lazily if heavy.search(each.text)] == []


@pytest.mark.real
def test_the_module_is_the_program(start: Callable[..., Program]) -> None:
    ended = start("--version").end()

    assert (ended.code, ended.text) == (0, f"oncemq {VERSION}\n")

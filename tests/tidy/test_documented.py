# SPDX-License-Identifier: Apache-2.0
"""Whatever crosses a border is written down: refusal codes, packets, records, commands, crash points.

May not: be satisfied by a mention in passing: names count only between backticks.
The idea: code is the registry, the page is for people, and this compares them.
Next: test_coverage_page.py.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.tidy.source import Source, package, page, snippet

SPAN = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)


# --- rules ----------------------------------------------------------------------------------------


def undocumented(names: Iterable[str], text: str) -> list[str]:
    """Names that stand nowhere between backticks, alone or before a bracket: `Put`, `Put(stream, number)`."""
    spans = {re.split(r"[(\[<]", span)[0].strip() for span in SPAN.findall(FENCE.sub("", text))}
    return [name for name in names if name not in spans]


def undocumented_commands(names: Iterable[str], text: str) -> list[str]:
    """Commands that stand nowhere as `oncemq NAME`, whatever follows."""
    return [name for name in names if not re.search(rf"`oncemq {re.escape(name)}(?=[ `])", text)]


def reached_points(source: Source) -> Iterator[tuple[int, str | None]]:
    """Yield (line, name) of every crash point reached; None where the name is not written out."""
    for call in source.calls():
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if name == "reach":
            first = call.args[0] if call.args else None
            is_written = isinstance(first, ast.Constant) and isinstance(first.value, str)
            yield call.lineno, first.value if is_written else None


def commands_of(group: Any, before: str = "") -> Iterator[str]:
    """Yield every command of a typer group as people type it, without the program's name; hidden ones not."""
    for name, command in group.commands.items():
        if getattr(command, "commands", None):
            yield from commands_of(command, f"{before}{name} ")
        elif not command.hidden:
            yield f"{before}{name}"


# --- the tree as it is ----------------------------------------------------------------------------


def test_every_refusal_code_is_in_the_protocol_page() -> None:
    codes = [str(code) for code in importlib.import_module("oncemq.model.refusals").Code]
    assert undocumented(codes, page("docs/protocol.md")) == []


def test_every_packet_is_in_the_protocol_page() -> None:
    packets = importlib.import_module("oncemq.core.packets").PACKETS
    classes = packets.values() if isinstance(packets, Mapping) else packets
    assert undocumented([packet.__name__ for packet in classes], page("docs/protocol.md")) == []


def test_every_record_is_in_the_journal_page() -> None:
    records = importlib.import_module("oncemq.core.records").CODES.values()
    assert undocumented([record.__name__ for record in records], page("docs/journal-format.md")) == []


def test_every_command_is_in_the_commands_page() -> None:
    main = importlib.import_module("oncemq.cli.main")
    typer = importlib.import_module("typer")
    apps = [value for value in vars(main).values() if isinstance(value, typer.Typer)]
    assert apps, "oncemq.cli.main holds no typer.Typer"
    commands = list(commands_of(typer.main.get_command(apps[0])))
    assert commands
    assert undocumented_commands(commands, page("docs/commands.md")) == []


def _points() -> tuple[str, ...]:
    registry = importlib.import_module("oncemq.crashpoints")
    return (*registry.POINTS, *registry.NODE_POINTS)


def test_every_crash_point_is_reached_somewhere() -> None:
    points = _points()
    reached = {name for source in package() for _, name in reached_points(source)}
    assert sorted(set(points) - reached) == []


def test_every_crash_point_that_is_reached_is_registered() -> None:
    points = _points()
    found = [(f"{source.path}:{line}", name) for source in package() for line, name in reached_points(source)]
    assert [(where, name) for where, name in found if name not in points] == []


# --- the rules can fail ---------------------------------------------------------------------------


def test_a_name_that_is_only_mentioned_in_passing_is_found() -> None:
    text = "Put is a packet.\n\n| `Hello(client)` | … |\n| `Get` | … |\n\n```\n`Ack`\n```\n"
    assert undocumented(["Hello", "Get", "Put", "Ack"], text) == ["Put", "Ack"]


def test_a_command_that_is_not_written_out_is_found() -> None:
    text = "`oncemq put TOPIC` and `oncemq topic create` but not `oncemq getall`"
    assert undocumented_commands(["put", "topic create", "get", "topic delete"], text) == ["get", "topic delete"]


def test_nested_commands_are_read_as_people_type_them() -> None:
    typer = importlib.import_module("typer")
    app, topics = typer.Typer(), typer.Typer()
    app.command("put")(lambda: None)
    app.command("secret", hidden=True)(lambda: None)
    topics.command("create")(lambda: None)
    topics.command("delete")(lambda: None)
    app.add_typer(topics, name="topic")
    assert sorted(commands_of(typer.main.get_command(app))) == ["put", "topic create", "topic delete"]


def test_crash_points_are_read_from_calls() -> None:
    text = 'reach("broker.after_sync")\ncrashpoints.reach("journal.before_unlink")\nreach(name)\nother("x")\n'
    assert [name for _, name in reached_points(snippet("src/oncemq/engine/x.py", text))] == [
        "broker.after_sync",
        "journal.before_unlink",
        None,
    ]


# --- help -----------------------------------------------------------------------------------------

MARKUP = re.compile(r"\[[a-z#/@][^\[\]]*\]")
"""What rich takes for markup: it would vanish from `--help` without a word."""


def texts_of(group: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield (whose, text) of every help text."""
    for name, command in group.commands.items():
        yield f"{before}{name}", command.help or ""
        yield from ((f"{before}{name} {option.name}", getattr(option, "help", None) or "") for option in command.params)
        if getattr(command, "commands", None):
            yield from texts_of(command, f"{before}{name} ")


def test_no_help_text_has_words_that_vanish() -> None:
    typer = importlib.import_module("typer")
    texts = list(texts_of(typer.main.get_command(importlib.import_module("oncemq.cli.main").app)))
    assert len(texts) > 100
    assert [(whose, found.group()) for whose, text in texts if (found := MARKUP.search(text))] == []


def test_words_in_brackets_are_found_in_a_help_text() -> None:
    assert MARKUP.search("A port. [default: 5]") is not None
    assert MARKUP.search("Where Spark runs: local[*].") is None

# SPDX-License-Identifier: Apache-2.0
"""Writes docs/configuration.md: every flag, environment variable, argument of connect() and limit, read from the code.

May not: know a value, a default or a text that the code does not have; what is said here once is how to read the tables.
The idea: commands are asked for their options as typer knows them, limits.py is read with its comments, because they say
where each number comes from. `tests/tidy/test_configuration_page.py` compares the page with what this prints.
Next: `make reference`, which runs it; src/oncemq/limits.py for the numbers.
"""

from __future__ import annotations

import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from oncemq import limits
from oncemq.adapters.crash_hook import VARIABLE as CRASH_VARIABLE
from oncemq.cli.main import app
from oncemq.client.broker import Broker
from oncemq.client.connect import connect

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
ORIGINS = ("rule", "measured", "paper", "peer", "guess")

HEAD = """# Configuration

Every flag, environment variable, argument and limit. **Generated from the code by `make reference`; a test compares.**
There is no configuration file: a broker is told by flags and the environment, and remembers what it must in its data directory.
[commands.md](commands.md) has the commands with examples, [operating.md](operating.md) says which of this matters in service.

A flag wins over its environment variable, and that over the default. `--json` and `--help` exist everywhere and are not repeated.
"""

LIMITS = """## Limits

Fixed in `src/oncemq/limits.py`; none can be set, unless a flag above does. The last column says where a number comes from:
*rule* follows from the design, *measured* names its command, *paper* and *peer* say whose number it is, *guess* is one.
"""

OTHER_VARIABLES = {
    "XDG_STATE_HOME": "below it clients keep their state directories, unless told where (`--state`); default `~/.local/state`",
    "JAVA_HOME": "the Java that Spark runs on; without it `java` on the path, or the one that pip installed",
    "PYSPARK_PYTHON": "the Python of Spark's workers; default: the one that runs the command",
    "NO_COLOR": "no colours on a terminal",
    CRASH_VARIABLE: "for tests: this process dies at a named crash point, `broker.after_sync:3` the third time it comes by",
}
"""What is read by the libraries below us, or by tests; the rest of the table comes from the commands."""


def page_text() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_environment(), *_python(), *_flags(), *_limits()])


# --- flags ------------------------------------------------------------------------------------------


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (what is typed, command) for every command people see."""
    for name, command in group.commands.items():
        if getattr(command, "commands", None):
            yield from _commands(command, f"{before}{name} ")
        elif not command.hidden:
            yield f"{before}{name}", command


def _options(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "option" and not {"--json", "--help"} & set(each.opts)]


def _flags() -> Iterator[str]:
    yield "## Flags\n"
    for name, command in _commands(typer.main.get_command(app)):
        options = [each for each in _options(command) if not getattr(each, "hidden", False)]
        yield f"### `oncemq {name}`\n"
        if not options:
            yield "No flags of its own.\n"
            continue
        yield "| flag | default | environment | meaning |"
        yield "|---|---|---|---|"
        for option in options:
            flags = ", ".join(f"`{flag}`" for flag in sorted(option.opts, key=len, reverse=True))
            yield f"| {flags} | {_default(option)} | {_code(option.envvar)} | {_cell(option.help)}{_choices(option)} |"
        yield ""


def _default(option: Any) -> str:
    if option.required:
        return "needed"
    value = getattr(option.default, "value", option.default)
    if value is None or value is False or value in ("", ()):
        return "–"
    return f"`{value:,}`" if isinstance(value, int) else _code(str(value))


def _choices(option: Any) -> str:
    """Which values it takes, where that is a closed list or a range."""
    if isinstance(option.default, Enum):
        return f" One of {', '.join(f'`{each.value}`' for each in type(option.default))}."
    bounds = [f"{word} {bound:,}" for word, bound in (("at least", option.min), ("at most", option.max)) if bound is not None]
    return f" {', '.join(bounds).capitalize()}." if bounds else ""


def _code(value: object) -> str:
    return f"`{value}`" if value else "–"


def _cell(text: str | None) -> str:
    return re.sub(r"\s+", " ", (text or "").replace("|", "\\|")).strip()


# --- environment and Python -------------------------------------------------------------------------


def _environment() -> Iterator[str]:
    yield "## Environment\n"
    yield "| variable | stands for | of |"
    yield "|---|---|---|"
    found: dict[str, tuple[str, list[str]]] = {}
    for name, command in _commands(typer.main.get_command(app)):
        for option in _options(command):
            if option.envvar:
                found.setdefault(str(option.envvar), (option.opts[0], []))[1].append(name)
    for variable, (flag, names) in sorted(found.items()):
        yield f"| `{variable}` | `{flag}` | {', '.join(f'`{name}`' for name in names)} |"
    for variable, meaning in OTHER_VARIABLES.items():
        yield f"| `{variable}` | {meaning} | – |"
    yield ""


def _python() -> Iterator[str]:
    yield "## From Python\n"
    for title, function in (("oncemq.connect", connect), ("oncemq.Broker", Broker)):
        parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
        yield f"`{title}({', '.join(map(_parameter, parameters))})`\n"
    yield "What each argument of `connect` means:\n"
    yield inspect.cleandoc(connect.__doc__ or "").partition("\n\n")[2]
    yield "\n`Broker` takes what `oncemq serve` takes, below, by the same names.\n"


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    return f"{parameter.name}={parameter.default!r}"


# --- limits -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limit:
    """One line of limits.py: what it bounds, and where the number comes from."""

    section: str
    name: str
    value: int
    meaning: str
    origin: str

    @property
    def kind(self) -> str:
        """Which of ORIGINS it is; "" if the line does not say."""
        return next((each for each in ORIGINS if self.origin.startswith(each)), "")


def limits_of(source: str, values: dict[str, Any]) -> list[Limit]:
    """Read every constant with its comment. A comment ends with where the number comes from."""
    section, name, found = "", "", {}
    comments: dict[str, list[str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and (heading := re.match(r"# --- (.+?) -+$", token.string)):
            section = heading.group(1)
        elif token.type == tokenize.NAME and token.start[1] == 0 and token.string.isupper():
            name = token.string
            found[name], comments[name] = section, []
        elif token.type == tokenize.COMMENT and name and token.start[1] > 0:
            comments[name].append(token.string.lstrip("# "))
    return [_limit(found[each], each, values[each], " ".join(comments[each])) for each in found if found[each]]


def _limit(section: str, name: str, value: int, comment: str) -> Limit:
    match = re.search(rf"(?:^|(?<=\. ))({'|'.join(ORIGINS)})\b", comment)
    at = match.start() if match else len(comment)
    return Limit(section, name, value, comment[:at].strip(), comment[at:].strip())


def _limits() -> Iterator[str]:
    source = Path(limits.__file__).read_text(encoding="utf-8")
    yield LIMITS
    section = None
    for limit in limits_of(source, vars(limits)):
        if limit.section != section:
            section = limit.section
            yield f"### {section}\n" if section == "names" else f"\n### {section}\n"
            yield "| limit | value | why | origin |"
            yield "|---|--:|---|---|"
        yield f"| `{limit.name}` | {value_text(limit.name, limit.value)} | {_cell(limit.meaning)} | {_cell(limit.origin)} |"
    yield ""


def value_text(name: str, value: int) -> str:
    """Say a number in the unit that its name has."""
    if "_BYTES" in name:
        return _scaled(value, (("MiB", limits.MIB), ("KiB", limits.KIB))) or f"{value:,} B"
    if re.search(r"_MS(_|$)", name):
        return _scaled(value, (("h", 3_600_000), ("s", 1_000))) or f"{value:,} ms"
    if re.search(r"_US(_|$)", name):
        return _scaled(value, (("h", 3_600_000_000), ("s", 1_000_000))) or f"{value:,} µs"
    if name.startswith("PORT_"):
        return str(value)
    return f"{value:,}" if value < 10**15 else f"2⁶³ − {2**63 - value}"


def _scaled(value: int, units: tuple[tuple[str, int], ...]) -> str:
    return next((f"{value // size:,} {unit}" for unit, size in units if value and value % size == 0), "")


if __name__ == "__main__":
    PAGE.write_text(page_text(), encoding="utf-8")
    print(f"{PAGE.name} written", file=sys.stderr)

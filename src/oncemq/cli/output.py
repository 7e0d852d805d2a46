# SPDX-License-Identifier: Apache-2.0
"""What commands say: results on stdout, everything else on stderr; for people, or as JSON with --json.

May not: decide anything; mix a hint into stdout, where programs read.
The idea: one Output per run of the program, made in main.py and carried by the command's context. A command hands over
both forms of its result at once; which one is written is decided here.
Next: exits.py for the exit codes, advice.py for the line below an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from oncemq.cli.advice import advice_for
from oncemq.cli.exits import Exit, exit_of, name_of
from oncemq.errors import OnceMQError, Refused

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, object]
_TABLE_COLUMNS = 200
"""A table is never cut to the terminal: half an id is of no use to anybody. Nor is it in a pipe."""


class Output:
    """Where a command's words go."""

    def __init__(self, *, is_json: bool = False) -> None:
        self.is_json = is_json

    # --- stdout ----------------------------------------------------------------------------------------

    def result(self, value: Row, text: str) -> None:
        """Say what came of a command: one JSON object, or one line for people."""
        self.line(json_text(value) if self.is_json else text)

    def line(self, text: str) -> None:
        """Write a line at once, so that whoever waits for it goes on. A file name need not be text; a JSON escape always is."""
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
        sys.stdout.buffer.flush()

    def rows(self, name: str, rows: Sequence[Row], *, empty: str) -> None:
        """Say a list: {name: [...]}, or a table with the rows' keys as columns."""
        if self.is_json:
            self.line(json_text({name: list(rows)}))
        elif not rows:
            self.note(empty)
        else:
            self._table(rows)

    def card(self, row: Row) -> None:
        """Say one thing with many properties: one JSON object, or a line per property."""
        if self.is_json:
            self.line(json_text(row))
            return
        from rich.table import Table

        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold")
        table.add_column(justify="left")
        for key, value in row.items():
            table.add_row(_heading(key), _cell(value))
        self.console().print(table)

    def _table(self, rows: Sequence[Row]) -> None:
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for key, value in rows[0].items():
            table.add_column(_heading(key), justify="right" if _is_number(value) else "left", no_wrap=True)
        for row in rows:
            table.add_row(*map(_cell, row.values()))
        console = self.console()
        console.width = max(console.width, _TABLE_COLUMNS)
        console.print(table, crop=False)

    def console(self, *, stderr: bool = False) -> Console:
        """The terminal, for cards and progress; wide where it is none."""
        from rich.console import Console

        stream = sys.stderr if stderr else sys.stdout
        width = None if stream.isatty() else _TABLE_COLUMNS
        return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False, soft_wrap=not stream.isatty())

    # --- stderr ----------------------------------------------------------------------------------------

    @property
    def has_watcher(self) -> bool:
        """Whether a person is looking, so that progress is worth showing."""
        return not self.is_json and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Say something that is no result; silent with --json."""
        if not self.is_json:
            self._styled("", text, "dim")

    def remark(self, value: Row, text: str) -> None:
        """Say something besides the result that a program may need as well."""
        if self.is_json:
            print(json_text(value), file=sys.stderr, flush=True)
        else:
            self._styled("", text, "yellow")

    def warn(self, text: str) -> None:
        self.remark({"warning": text}, f"warning: {text}")

    def problem(self, error: OnceMQError) -> Exit:
        """Say an error in one line, with what to do below it, and return the exit code it means."""
        if self.is_json:
            print(json_text(_as_json(error)), file=sys.stderr, flush=True)
        else:
            self._styled("error: ", str(error), "red")
            advice = advice_for(error)
            if advice:
                self._styled("", f"  {advice}", "dim")
        return exit_of(error)

    def failure(self, name: str, text: str, code: Exit = Exit.FAILED) -> Exit:
        """Say something that went wrong and is no error of the library."""
        if self.is_json:
            print(json_text({"error": name, "text": text}), file=sys.stderr, flush=True)
        else:
            self._styled("error: ", text, "red")
        return code

    def _styled(self, label: str, text: str, style: str) -> None:
        from rich.text import Text

        self.console(stderr=True).print(Text.assemble((label, f"bold {style}"), (text, style)), soft_wrap=True)


def output_of(context: typer.Context) -> Output:
    """Return the Output of this run."""
    return context.ensure_object(Output)


def json_text(value: object) -> str:
    """One line of JSON, whatever is in it."""
    return json.dumps(value, ensure_ascii=False)


def _as_json(error: OnceMQError) -> Row:
    """An error with its fields, so that nobody has to read its text."""
    text = error.text if isinstance(error, Refused) else str(error)
    fields = {key: value for key, value in vars(error).items() if isinstance(value, str | int | None) and key != "code"}
    return {"error": name_of(error), "text": text} | {key: value for key, value in fields.items() if key != "text"}


def _heading(key: str) -> str:
    return key.replace("_", " ")


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _cell(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case None | "":
            return "–"
        case _:
            return str(value)

# SPDX-License-Identifier: Apache-2.0
"""docs/testing.md: every law of the design has a row, and the judges and tests that the rows name exist.

May not: run them.
The idea: a row is a line of the table whose first cell is S or L and a number; judges are in italics, tests between backticks.
Next: sim/checkers.py for the judges.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable

from tests.tidy.source import page
from tests.tidy.test_coverage_page import names_on_disk

ROW = re.compile(r"^\| ([SL]\d+) \|(.*)\|$", flags=re.MULTILINE)
JUDGE = re.compile(r"\*([a-z-]+)\*")
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
LAWS = [*(f"S{number}" for number in (*range(1, 22), 23)), *(f"L{number}" for number in range(1, 6))]
OTHERS = {"stuck", "isolation", "crash-image"}
"""Said by the simulator and by the images, not by a judge over a history."""


# --- rules ----------------------------------------------------------------------------------------


def strangers(text: str, judges: set[str], names_in: Callable[[str], set[str]]) -> list[str]:
    """Judges and tests that a row names and that are not there; `names_in` returns the tests of a file, none of no file."""
    found = []
    for law, rest in ROW.findall(text):
        found += [f"{law}: judge {name}" for name in JUDGE.findall(rest) if name not in judges]
        for path, name in NAMED.findall(rest):
            there = names_in(path)
            if not there or (name and name not in there):
                found.append(f"{law}: {path}::{name}")
    return found


# --- the tree as it is ----------------------------------------------------------------------------


def test_every_law_has_a_row() -> None:
    assert [law for law, _ in ROW.findall(page("docs/testing.md"))] == LAWS


def test_every_judge_and_test_of_a_law_is_there() -> None:
    judges = set(importlib.import_module("oncemq.sim.checkers").JUDGES) | OTHERS
    assert strangers(page("docs/testing.md"), judges, names_on_disk) == []


# --- the rules can fail ---------------------------------------------------------------------------


def test_a_row_that_names_what_is_not_there_is_found() -> None:
    text = "| S1 | says | *known*, *gone* | `tests/a.py::test_there`, `tests/a.py::test_gone`, `tests/b.py` |"
    there = {"tests/a.py": {"test_there"}}
    found = strangers(text, {"known"}, lambda path: there.get(path, set()))
    assert found == ["S1: judge gone", "S1: tests/a.py::test_gone", "S1: tests/b.py::"]

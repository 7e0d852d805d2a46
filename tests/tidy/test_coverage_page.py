# SPDX-License-Identifier: Apache-2.0
"""docs/coverage.md: every feature of the earlier designs names the tests that show it, and those tests exist.

May not: run them: `make features` does.
The idea: a feature counts when a test shows it. A row is a line of a table whose first cell is an id like D0.4.
Next: docs/coverage.md itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import pytest

from tests.tidy.source import ROOT, page

ROW = re.compile(r"^\|\s*\**(D\d+\.\d+)\**\s*\|(.*)$", flags=re.MULTILINE)
NAMED = re.compile(r"(tests/[\w/.-]+\.py)::([\w:]+)")
PROVEN = ("D0", "D1", "D2", "D4")
"""Designs whose rows must all name tests. Rows of others may still say why they have none."""


# --- rules ----------------------------------------------------------------------------------------


def rows_of(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return the tests, as (file, name), that each row of the page names."""
    return {row: NAMED.findall(rest) for row, rest in ROW.findall(text)}


def rows_without_tests(text: str) -> list[str]:
    return [row for row, tests in rows_of(text).items() if row.split(".")[0] in PROVEN and not tests]


def missing_tests(text: str, names_in: Callable[[str], set[str]]) -> list[str]:
    """Tests that the page names and that no file has; `names_in` returns the tests of a file."""
    found = []
    for row, tests in rows_of(text).items():
        found += [f"{row}: {path}::{name}" for path, name in tests if name not in names_in(path)]
    return found


def names_of_tests(tree: ast.Module) -> set[str]:
    """Return what pytest calls the tests of a module: functions, and Class::function."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if _is_test(inner)}
        elif _is_test(node):
            found.add(node.name)
    return found


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")


def names_on_disk(path: str) -> set[str]:
    file = ROOT / path
    return names_of_tests(ast.parse(file.read_text(encoding="utf-8"))) if file.is_file() else set()


# --- the tree as it is ----------------------------------------------------------------------------


@pytest.mark.parametrize("design", PROVEN)
def test_every_design_that_must_be_proven_has_rows(design: str) -> None:
    assert [row for row in rows_of(page("docs/coverage.md")) if row.startswith(f"{design}.")]


def test_every_row_names_a_test() -> None:
    assert rows_without_tests(page("docs/coverage.md")) == []


def test_every_test_that_the_page_names_exists() -> None:
    assert missing_tests(page("docs/coverage.md"), names_on_disk) == []


# --- the rules can fail ---------------------------------------------------------------------------

PAGE = """
| id | feature | tests |
|---|---|---|
| D0.1 | put is confirmed | `tests/core/test_puts.py::test_a`, `tests/core/test_puts.py::TestPut::test_b` |
| **D0.2** | subscribe | later |
| D3.1 | mesh | later |
| D2.1 | router | `tests/core/test_puts.py::test_gone` |
"""


def test_a_row_that_names_no_test_is_found() -> None:
    assert rows_without_tests(PAGE) == ["D0.2"]


def test_a_test_that_does_not_exist_is_found() -> None:
    tree = ast.parse("def test_a(): ...\nclass TestPut:\n    def test_b(self): ...\n    def helper(self): ...\n")
    assert missing_tests(PAGE, lambda _: names_of_tests(tree)) == ["D2.1: tests/core/test_puts.py::test_gone"]


def test_a_file_that_does_not_exist_has_no_tests() -> None:
    assert names_on_disk("tests/core/test_that_nobody_wrote.py") == set()

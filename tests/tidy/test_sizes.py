# SPDX-License-Identifier: Apache-2.0
"""How long things may be: files, functions, lines, pages.

May not: carry a list of exceptions. If one ever becomes necessary, it may only shrink.
The idea: beauty is lost at the tail, never at the median, so the tail is what is measured.
Next: test_words.py.
"""

from __future__ import annotations

import ast

import pytest

from tests.tidy.source import Source, package, pages, snippet, sources

FILE_LINES_MAX = 500
TEST_FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
LINE_CHARACTERS_MAX = 130
PAGE_LINES_MAX = {
    "README.md": 150,
    "CONTRIBUTING.md": 120,
    "docs/architecture.md": 250,
    "docs/decisions/": 60,
}
"""Longest page, by name or by folder. Pages not named here may be as long as they need."""


# --- rules ----------------------------------------------------------------------------------------


def file_breaches(source: Source, lines_max: int) -> list[str]:
    lines = len(source.text.splitlines())
    return [f"{source.path}: {lines} lines, {lines_max} are allowed"] if lines > lines_max else []


def line_breaches(source: Source) -> list[str]:
    return [
        f"{source.path}:{number}: {len(line)} characters, {LINE_CHARACTERS_MAX} are allowed"
        for number, line in enumerate(source.text.splitlines(), start=1)
        if len(line) > LINE_CHARACTERS_MAX
    ]


def function_breaches(source: Source) -> list[str]:
    """Functions that are too long, docstring not counted, decorators neither."""
    functions = (node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    lengths = ((node, _length(node)) for node in functions)
    return [
        f"{source.path}:{node.lineno}: {node.name} has {length} lines, {FUNCTION_LINES_MAX} are allowed"
        for node, length in lengths
        if length > FUNCTION_LINES_MAX
    ]


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is None:
        return lines
    docstring = node.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def page_breaches(source: Source) -> list[str]:
    bounds = [lines for name, lines in PAGE_LINES_MAX.items() if source.path == name or source.path.startswith(name)]
    return [breach for lines_max in bounds for breach in file_breaches(source, lines_max)]


# --- the tree as it is ----------------------------------------------------------------------------


def test_no_file_of_the_package_is_too_long() -> None:
    assert [breach for source in package() for breach in file_breaches(source, FILE_LINES_MAX)] == []


def test_no_test_file_is_too_long() -> None:
    assert [breach for source in sources("tests") for breach in file_breaches(source, TEST_FILE_LINES_MAX)] == []


def test_no_line_is_too_long() -> None:
    assert [breach for source in sources("src", "tests", "bench", "examples") for breach in line_breaches(source)] == []


def test_no_function_is_too_long() -> None:
    assert [breach for source in sources("src", "tests", "bench", "examples") for breach in function_breaches(source)] == []


def test_no_page_is_too_long() -> None:
    assert [breach for source in pages() for breach in page_breaches(source)] == []


# --- the rules can fail ---------------------------------------------------------------------------


def test_one_line_too_many_in_a_file_is_found() -> None:
    assert file_breaches(snippet("src/oncemq/core/x.py", "x = 1\n" * FILE_LINES_MAX), FILE_LINES_MAX) == []
    assert len(file_breaches(snippet("src/oncemq/core/x.py", "x = 1\n" * (FILE_LINES_MAX + 1)), FILE_LINES_MAX)) == 1


def test_one_character_too_many_in_a_line_is_found() -> None:
    assert line_breaches(snippet("src/oncemq/core/x.py", "#" * LINE_CHARACTERS_MAX)) == []
    assert len(line_breaches(snippet("src/oncemq/core/x.py", "#" * (LINE_CHARACTERS_MAX + 1)))) == 1


@pytest.mark.parametrize("head", ["def f():", "async def f():", "class C:\n  def f():"])
def test_one_line_too_many_in_a_function_is_found(head: str) -> None:
    docstring = "    '''One.\n\n    Two.\n    '''\n"
    body = "    x = 1\n" * (FUNCTION_LINES_MAX - 1)
    assert function_breaches(snippet("src/oncemq/core/x.py", f"{head}\n{docstring}{body}")) == []
    assert len(function_breaches(snippet("src/oncemq/core/x.py", f"{head}\n{docstring}{body}    x = 1\n"))) == 1


@pytest.mark.parametrize("name", ["README.md", "docs/decisions/0001-any.md"])
def test_a_page_over_its_bound_is_found(name: str) -> None:
    assert len(page_breaches(snippet(name, "word\n" * 200))) == 1

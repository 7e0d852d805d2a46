# SPDX-License-Identifier: Apache-2.0
"""What every file says at its top, and what no file says anywhere.

May not: judge style. Only words that are always right or always wrong.
The idea: a file opens with four answers (what it is for, what it may not do, the idea, where to go next), and
nothing unfinished or particular to one machine stays on main.
Next: test_public_names.py.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.tidy.source import DOCS, ROOT, Source, package, page, pages, snippet, sources

SPDX = "# SPDX-License-Identifier: Apache-2.0"
ANSWERS = ("May not:", "Next:")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|home|Users)/")


# --- rules ----------------------------------------------------------------------------------------


def opening_breaches(source: Source) -> list[str]:
    found = [] if source.text.startswith(SPDX + "\n") else [f"{source.path}: the first line is not {SPDX!r}"]
    docstring = ast.get_docstring(source.tree)
    if docstring is None:
        return [*found, f"{source.path}: no docstring at the top"]
    return found + [
        f"{source.path}: the docstring at the top does not say {words!r}" for words in ANSWERS if words not in docstring
    ]


def word_breaches(source: Source) -> list[str]:
    """Words of unfinished work, and paths that exist on one machine only."""
    found = []
    for number, line in enumerate(source.text.splitlines(), start=1):
        if match := UNFINISHED.search(line) or MACHINE_PATH.search(line):
            found.append(f"{source.path}:{number}: {match.group()!r} does not belong here")
    return found


def sleep_breaches(source: Source) -> list[str]:
    """A test that sleeps is slow when it passes and wrong when the machine is slower."""
    names = (
        (call, call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")) for call in source.calls()
    )
    return [f"{source.path}:{call.lineno}: wait for a condition instead of sleeping" for call, name in names if name == "sleep"]


# --- the tree as it is ----------------------------------------------------------------------------


def test_every_file_of_the_package_opens_with_its_four_answers() -> None:
    assert [breach for source in package() for breach in opening_breaches(source)] == []


def test_nothing_unfinished_and_no_path_of_one_machine_is_written_down() -> None:
    here = "tests/tidy/"  # The rules themselves have to name what they forbid.
    read = [source for source in sources("src", "tests", "bench", "examples") if not source.path.startswith(here)]
    assert [breach for source in read + pages() for breach in word_breaches(source)] == []


def test_no_test_sleeps() -> None:
    assert [breach for source in sources("tests") for breach in sleep_breaches(source)] == []


def test_every_table_of_the_glossary_is_in_alphabetical_order() -> None:
    tables = [re.findall(r"^\| \*\*(.+?)\*\* \|", table, flags=re.MULTILINE) for table in page("docs/glossary.md").split("\n\n")]
    assert sum(map(len, tables)) > 20
    assert tables == [sorted(words, key=str.lower) for words in tables]


def test_the_index_of_the_docs_names_every_page() -> None:
    index = page("docs/README.md")
    names = [path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))]
    assert [name for name in names if name != "README.md" and f"({name})" not in index] == []


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for source in pages():
        for target in re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", source.text):
            if not (ROOT / source.path).parent.joinpath(target).exists():
                broken.append(f"{source.path}: {target}")
    assert broken == []


# --- the rules can fail ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '"""A file.\n\nMay not: x.\nNext: y.\n"""\n',
        f'{SPDX}\n"""A file.\n\nNext: y.\n"""\n',
        f'{SPDX}\n"""A file.\n\nMay not: x.\n"""\n',
        f"{SPDX}\nx = 1\n",
    ],
)
def test_an_opening_without_an_answer_is_found(text: str) -> None:
    assert len(opening_breaches(snippet("src/oncemq/core/x.py", text))) == 1


def test_a_complete_opening_is_left_alone() -> None:
    assert opening_breaches(snippet("src/oncemq/core/x.py", f'{SPDX}\n"""A file.\n\nMay not: x.\nNext: y.\n"""\n')) == []


@pytest.mark.parametrize("line", ["x = 1  # TODO later", "# FIXME", "# XXX", "see /home/me/x", 'open("/root/x")', "`/work/x`"])
def test_unfinished_words_and_machine_paths_are_found(line: str) -> None:
    assert len(word_breaches(snippet("src/oncemq/core/x.py", line))) == 1


@pytest.mark.parametrize("line", ["the root of /var/lib/oncemq", "https://example.org/home/x", "src/work/x", "a TODOLIST"])
def test_innocent_words_are_left_alone(line: str) -> None:
    assert word_breaches(snippet("src/oncemq/core/x.py", line)) == []


@pytest.mark.parametrize("line", ["time.sleep(1)", "sleep(0.1)", "await asyncio.sleep(0)"])
def test_a_sleep_in_a_test_is_found(line: str) -> None:
    assert len(sleep_breaches(snippet("tests/core/test_x.py", f"async def f():\n    {line}"))) == 1

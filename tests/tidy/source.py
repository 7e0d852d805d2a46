# SPDX-License-Identifier: Apache-2.0
"""The repository as text and as syntax trees, for rules that read code instead of running it.

May not: import anything of the project: a rule must be able to judge a file that cannot be imported.
The idea: a rule is a function from one `Source` to a list of sentences, one per breach. The same function judges the
tree on disk and a small snippet made to break it, so that every rule is known to be able to fail.
Next: test_imports.py, the rule that keeps the rooms apart.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@dataclass(frozen=True)
class Source:
    """One file: `path` is relative to the repository, with forward slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @property
    def room(self) -> str:
        """The room of src/oncemq this file lives in; a file directly there is a room of its own."""
        parts = Path(self.path).parts
        return parts[2].removesuffix(".py") if parts[:2] == ("src", "oncemq") else parts[1]

    @property
    def module(self) -> str:
        """The dotted name it is imported by."""
        parts = Path(self.path).with_suffix("").parts[1:]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def package(self) -> str:
        """The dotted name relative imports start from."""
        return self.module if self.path.endswith("/__init__.py") else self.module.rpartition(".")[0]

    def calls(self) -> Iterator[ast.Call]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))


def snippet(path: str, text: str) -> Source:
    """Return a file that exists only in a test."""
    return Source(path, text)


def sources(*folders: str, suffix: str = ".py") -> list[Source]:
    """Return every file with that suffix below these folders of the repository, in a fixed order."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob(f"*{suffix}"))
    return [_read(path) for path in paths]


def package() -> list[Source]:
    """Return every Python file that is shipped."""
    return sources("src")


def pages() -> list[Source]:
    """Return every page of documentation, those at the root included."""
    return [_read(path) for path in sorted(ROOT.glob("*.md"))] + sources("docs", suffix=".md")


def page(name: str) -> str:
    """Return the text of a page that must exist."""
    path = ROOT / name
    assert path.is_file(), f"{name} is missing"
    return path.read_text(encoding="utf-8")


@cache
def _read(path: Path) -> Source:
    """Every file is read and parsed once, however many rules look at it."""
    return Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))

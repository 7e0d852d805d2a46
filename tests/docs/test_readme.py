# SPDX-License-Identifier: Apache-2.0
"""The README runs: its Python is executed, its commands are typed, and what they print is what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.console import Console, Typed, agrees, fenced, typed
from tests.tidy.source import page

README = page("README.md")
LINES_MAX = 150


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= LINES_MAX


def run(blocks: list[str], directory: Path) -> tuple[list[str], list[str]]:
    """Run blocks as one program; return what it printed and what the comments behind its prints say."""
    code = "\n".join(blocks)
    promised = [line for block in blocks for line in re.findall(r"^print\(.*\)  # (.*?)(?:[:;] .*)?$", block, flags=re.MULTILINE)]
    words = [sys.executable, "-c", f"{code}\nclient.close()\nbroker.stop()\n"]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout.splitlines(), promised


def test_the_python_of_the_readme_prints_what_its_comments_say(tmp_path: Path) -> None:
    printed, promised = run([block for block in fenced(README, "python") if "spark" not in block], tmp_path)
    assert len(printed) == 3
    assert printed == promised


@pytest.mark.real
@pytest.mark.slow
def test_so_does_its_spark(tmp_path: Path) -> None:
    first, *_, last = fenced(README, "python")
    printed, promised = run([first, last], tmp_path)
    assert printed == promised
    assert printed[-1] == "(1000, 499500)"


@pytest.mark.real
def test_the_demo_ends_with_the_table_of_the_readme(tmp_path: Path) -> None:
    """A short one without Spark: other numbers, the same words."""
    (block,) = (block for block in fenced(README, "console") if "make demo" in block)
    with Console(tmp_path) as console:
        printed = console.type(Typed("oncemq demo --seconds 1 --no-spark 2>&1", []))
    shown, words = [[_words(line) for line in lines] for lines in (typed(block)[0].expected, printed)]
    assert [line for line in shown if line not in (*words, "…")] == []


def _words(line: str) -> str:
    """A line without its numbers and its spaces."""
    return " ".join(re.sub(r"[\d,]+|…(?= s:)", "N", line.replace("─", "")).split())


@pytest.mark.real
def test_the_commands_of_the_readme_print_what_it_says(tmp_path: Path) -> None:
    """All but `make demo`, which a test of its own plays."""
    with Console(tmp_path) as console:
        for step in (step for block in fenced(README, "console") for step in typed(block)):
            if step.command.startswith("make "):
                continue
            printed = console.type(step)
            assert agrees(step.expected, printed), (step, printed)

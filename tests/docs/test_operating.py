# SPDX-License-Identifier: Apache-2.0
"""docs/operating.md is typed, block by block, and prints what it says; the systemd unit is one that systemd would take."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from oncemq.cli.exits import Exit
from tests.docs.console import Console, agrees, fenced, typed
from tests.tidy.source import ROOT, page

PAGE = page("docs/operating.md")
UNIT = ROOT / "contrib" / "oncemq.service"


@pytest.mark.real
def test_the_operating_page_prints_what_it_says(tmp_path: Path) -> None:
    with Console(tmp_path) as console:
        for step in (step for block in fenced(PAGE, "console") for step in typed(block)):
            printed = console.type(step)
            assert agrees(step.expected, printed), (step, printed)


def test_every_exit_code_of_the_symptoms_is_one() -> None:
    found = {int(code) for code in re.findall(r"\((?:exit code )?(\d+)\)", PAGE)}
    assert found
    assert found <= set(Exit)


def test_the_unit_starts_a_broker_that_says_when_it_is_ready() -> None:
    unit = UNIT.read_text(encoding="utf-8")
    assert "Type=notify\n" in unit
    assert re.search(r"^ExecStart=/opt/oncemq/bin/oncemq serve %S/oncemq", unit, flags=re.MULTILINE)
    assert f"RestartPreventExitStatus={Exit.USAGE.value} {Exit.DIRECTORY.value}\n" in unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here to ask")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    """With a program that exists here: whether it is installed is not the question."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/oncemq/bin/oncemq", "/bin/true"), encoding="utf-8")
    asked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60, check=False)
    assert (asked.returncode, asked.stderr) == (0, "")


# --- the rules can fail ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "printed", "is_same"),
    [
        (["a … c"], ["a b c"], True),
        (["a … c"], ["a b d"], False),
        (["a", "…", "z"], ["a", "b", "c", "z"], True),
        (["a", "…"], ["b"], False),
        (["a"], ["a", "b"], False),
        ([], ["a"], False),
        (["a (b) *"], ["a (b) *  "], True),
    ],
)
def test_lines_are_compared_with_what_a_page_leaves_open(expected: list[str], printed: list[str], is_same: bool) -> None:
    assert agrees(expected, printed) is is_same

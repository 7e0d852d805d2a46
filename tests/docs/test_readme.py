# SPDX-License-Identifier: Apache-2.0
"""The README runs: its Python block is executed, its commands are typed, and what they print is what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import oncemq

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    (code,) = blocks("python")
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert run.stderr == ""
    assert run.stdout.splitlines() == ["0 False", "b'one' {'source': 'web'}", "[b'two', b'three', b'four']"]


def commands_of(block: str) -> list[tuple[str, list[str]]]:
    """Return (command, what it prints) of every line that is typed."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


@pytest.mark.real
def test_the_commands_of_the_readme_print_what_it_says(tmp_path: Path) -> None:
    """All but `serve`, whose port and process id are its own: a broker on a free port takes its place."""
    session = next(block for block in blocks("console") if "oncemq subscribe" in block)
    with oncemq.Broker(tmp_path / "data") as broker:
        environment = os.environ | {"ONCEMQ_ADDRESS": broker.address, "XDG_STATE_HOME": str(tmp_path / "state")}
        for command, expected in commands_of(session)[1:]:
            words = [sys.executable, "-m", *command.split()]
            run = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
            assert (command, run.stdout.splitlines()) == (command, expected)

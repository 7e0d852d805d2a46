# SPDX-License-Identifier: Apache-2.0
"""docs/cookbook.md runs: each section is one program, and what it prints is what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import oncemq

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cookbook.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def test_every_block_of_the_page_is_in_a_section_with_a_program_and_its_output() -> None:
    assert [len(BLOCK.findall(text)) for text in SECTIONS.values()] == [2] * len(SECTIONS)
    assert len(BLOCK.findall(PAGE)) == 2 * len(SECTIONS)
    for word in ("Effects once", "Outbox", "Inbox", "Request and reply", "Fan-out", "Replay"):
        assert any(heading.startswith(word) for heading in SECTIONS)


@pytest.mark.parametrize("heading", SECTIONS)
def test_a_section_prints_what_the_page_says(heading: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (language, program), (_, expected) = BLOCK.findall(SECTIONS[heading])
    assert language == "python"
    with oncemq.Broker(tmp_path / "data") as broker:
        exec(compile(program, heading, "exec"), {"address": broker.address, "directory": tmp_path})  # noqa: S102 - our own page
    assert capsys.readouterr().out == expected

# SPDX-License-Identifier: Apache-2.0
"""docs/pipeline.md runs: its Python blocks are executed in order, and what they print is what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import oncemq
from oncemq.pipeline.arrow import TYPES
from oncemq.pipeline.options import SINK, SOURCE

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pipeline.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def test_the_page_names_every_option_and_column() -> None:
    spans = set(re.findall(r"`(\w+)`", PAGE))
    assert sorted({*SOURCE, *SINK, *TYPES} - spans) == []


@pytest.mark.real
@pytest.mark.slow
def test_the_blocks_of_the_page_print_what_it_says(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE)
    code = "\n".join(text for language, text in blocks if language == "python")
    expected = "".join(text for language, text in blocks if language == "text")
    with oncemq.Broker(tmp_path / "data") as broker:
        script = f"address, directory = {broker.address!r}, {str(tmp_path)!r}\n{code}\nspark.stop()\n"
        run = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
        )

    assert run.returncode == 0, run.stderr[-3_000:]
    assert run.stdout == expected

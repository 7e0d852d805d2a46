# SPDX-License-Identifier: Apache-2.0
"""docs/pipeline.md runs: its Python blocks are executed in order, and what they print is what it says."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
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
@pytest.mark.usefixtures("spark")
def test_the_blocks_of_the_page_print_what_it_says(tmp_path: Path) -> None:
    """In this process, because Spark is there already: `spark_session` returns the one that runs."""
    blocks, printed = BLOCK.findall(PAGE), StringIO()
    code = "\n".join(text for language, text in blocks if language == "python")
    expected = "".join(text for language, text in blocks if language == "text")
    with oncemq.Broker(tmp_path / "data") as broker, redirect_stdout(printed):
        exec(code, {"address": broker.address, "directory": str(tmp_path)})  # noqa: S102 - our own page

    assert printed.getvalue() == expected

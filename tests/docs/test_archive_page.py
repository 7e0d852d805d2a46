# SPDX-License-Identifier: Apache-2.0
"""The archive page runs: its commands are typed one after the other, and its Python is executed, in one directory.

They run in this process, because Spark is there already.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import oncemq
from oncemq.cli import main

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "archive.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.real
@pytest.mark.usefixtures("spark")
def test_the_blocks_of_the_archive_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with oncemq.Broker(tmp_path / "data") as broker, oncemq.connect(broker.address) as client:
        monkeypatch.setenv("ONCEMQ_ADDRESS", broker.address)
        for language, block in BLOCK.findall(PAGE):
            if language == "python":
                capfd.readouterr()
                exec(block, {})  # noqa: S102 - our own page
                assert capfd.readouterr().out.splitlines()[-1] == "3 3"
                continue
            for line in block.splitlines():
                assert main.run(shlex.split(line)[1:]) == 0, line
        assert [message.value for message in client.read("orders-again", 0, 10)] == [b"one", b"two", b"three"]
    assert (tmp_path / "page" / "report.html").exists()

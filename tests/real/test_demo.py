# SPDX-License-Identifier: Apache-2.0
"""The whole demo, Spark included: what it counts, and the page it leaves.

May not: assert a speed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real


def test_the_demo_proves_itself_on_spark_and_leaves_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page"
    command = [sys.executable, "-m", "oncemq", "demo", "--seconds", "3", "--seed", "2", "--report", str(page), "--json"]
    place = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(command, env=place, capture_output=True, text=True, timeout=540, check=False)

    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["lost"], told["twice"], told["violations"], told["effects_exact"]) == (0, 0, 0, True)
    rows = {row["subscriber"]: row for row in told["subscribers"]}
    assert all(rows[name]["put"] == rows[name]["got"] > 0 for name in ("plain", "live", "ledger", "lake"))
    assert told["report"] == str(page / "index.html")
    text = (page / "index.html").read_text()
    assert "Every law held." in text
    for name in ("throughput", "latency", "lag", "overlay"):
        assert (page / f"{name}.png").stat().st_size > 10_000
        assert f"alt='{name}'" in text

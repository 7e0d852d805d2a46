# SPDX-License-Identifier: Apache-2.0
"""Each benchmark in its shortest form: it runs, says what is documented, and leaves nothing behind.

May not: expect any speed.
The idea: the keys are a contract with whoever reads the JSON, and docs/performance.md explains each of them.
Next: test_interrupted.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from oncemq.cli import main
from tests.bench.harness import ROOT, figures_of, run

pytestmark = pytest.mark.real

KEYS = {
    "put": "messages_per_second megabytes_per_second raw_megabytes_per_second ratio_to_raw messages groups bytes_per_group",
    "get": "messages_per_second megabytes_per_second messages",
    "latency": "p50_us p99_us floor_us floor_p99_us ratio_to_floor puts bytes_per_group",
    "restart": "seconds seconds_python gigabytes segments messages",
    "spark": "batch_rows_per_second stream_rows_per_second sink_rows_per_second archive_rows_per_second audit_seconds rows",
    "fanout": "deliveries_per_second floor_deliveries_per_second ratio_to_floor blocks_per_packet "
    "subscribers blocks broker_loop_us_per_block broker_loop_us_per_block_of_one bare_send_us bare_send_us_of_one",
    "transaction": "get_messages_per_second broker_transactions_per_second broker_messages_per_second "
    "sqlite_transactions_per_second sqlite_messages_per_second bare_sqlite_transactions_per_second ratio_to_bare_sqlite "
    "transactions batch",
    "memory": "rss_megabytes_before rss_megabytes_after messages",
}
"""What must be a number above zero. Growth of memory may be none."""
SHORT = {
    "put": ["--count", "3000"],
    "put single": ["--single", "--count", "3000"],
    "put large": ["--size", "1024", "--count", "3000"],
    "get": ["--count", "3000"],
    "get single": ["--single", "--count", "3000"],
    "latency": ["--count", "40"],
    "restart": ["--gigabytes", "0.02"],
    "fanout": ["--subscribers", "4", "--blocks", "30"],
    "transaction": ["--transactions", "10", "--batch", "5"],
    "memory": ["--messages", "3000"],
    "memory single": ["--single", "--messages", "300"],
}


@pytest.mark.parametrize("form", SHORT)
def test_a_short_benchmark_prints_the_documented_figures_and_leaves_nothing(form: str, tmp_path: Path) -> None:
    name = form.split(maxsplit=1)[0]
    found = figures_of("-m", "oncemq", "bench", name, *SHORT[form], "--directory", tmp_path, "--json")
    assert not_above_zero(found, KEYS[name].split()) == []
    assert found["file_system"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("spark")
def test_a_short_benchmark_of_spark_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In this process, because Spark is there already."""
    words = ["--count", "3000", "--passes", "1", "--events", "400", "--directory", str(tmp_path), "--json"]
    capfd.readouterr()
    assert main.run(["bench", "spark", *words]) == 0
    found = json.loads(capfd.readouterr().out)
    assert not_above_zero(found, KEYS["spark"].split()) == []
    assert found["file_system"]
    assert list(tmp_path.iterdir()) == []


def test_a_round_of_puts_is_never_too_short_to_mean_something(tmp_path: Path) -> None:
    found = figures_of("-m", "oncemq", "bench", "put", "--count", "50", "--directory", tmp_path, "--json")
    seconds = found["messages"] / 5 / found["messages_per_second"]
    assert len(found["rounds_messages_per_second"]) == 5
    assert found["messages"] > 50
    assert seconds > 0.1  # 0.4 in every round; a mean over a median may be a little less.


def test_growth_is_the_difference_of_the_two_looks(tmp_path: Path) -> None:
    found = figures_of("-m", "oncemq", "bench", "memory", "--messages", "1000", "--directory", tmp_path, "--json")
    difference = found["rss_megabytes_after"] - found["rss_megabytes_before"]
    assert found["growth_megabytes"] == pytest.approx(difference)


def test_without_json_it_is_a_table_for_people(tmp_path: Path) -> None:
    ended = run("-m", "oncemq", "bench", "latency", "--count", "5", "--directory", tmp_path)
    assert ended.returncode == 0
    assert re.search(r"^p50 us +\d", ended.stdout, flags=re.MULTILINE)
    assert ended.stderr == ""  # No progress bar where nobody watches.


def test_a_directory_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    assert run("-m", "oncemq", "bench", "get", "--directory", tmp_path / "gone").returncode == 2


def test_every_figure_is_explained_in_the_performance_page() -> None:
    explained = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")))
    named = {key for keys in KEYS.values() for key in keys.split()} | {
        "growth_megabytes",
        "file_system",
        "put_ratio",
        "get_ratio",
    }
    assert sorted(named - explained) == []


def not_above_zero(found: dict[str, Any], keys: list[str]) -> list[str]:
    return [key for key in keys if not isinstance(found.get(key), int | float) or not found[key] > 0]

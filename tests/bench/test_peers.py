# SPDX-License-Identifier: Apache-2.0
"""bench/peers.py in its shortest form, and what it says where there is no Redis.

May not: expect one side to be faster.
Next: bench/peers.py.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.bench.harness import PEERS, figures_of, run
from tests.bench.test_commands import not_above_zero

pytestmark = pytest.mark.real

HAS_REDIS = shutil.which("redis-server") is not None and importlib.util.find_spec("redis") is not None
needs_redis = pytest.mark.skipif(not HAS_REDIS, reason="apt-get install redis-server; pip install redis")
KEYS = [
    "put_ratio",
    "get_ratio",
    *(f"{side}_{what}_messages_per_second" for side in ("oncemq", "redis") for what in ("put", "get")),
]


@needs_redis
def test_a_short_comparison_prints_ratios_and_rates_and_leaves_nothing(tmp_path: Path) -> None:
    found = figures_of(PEERS, "--messages", "3000", "--rounds", "3", "--directory", tmp_path)
    assert not_above_zero(found, KEYS) == []
    assert len(found["rounds_redis_put_messages_per_second"]) == 3
    assert list(tmp_path.iterdir()) == []


def test_without_redis_it_says_what_to_install(tmp_path: Path) -> None:
    ended = run(PEERS, "--directory", tmp_path, PATH=str(tmp_path))
    assert ended.returncode == 1
    assert "redis-server" in ended.stderr
    assert "apt-get install redis-server; pip install redis" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_count_of_zero_is_a_usage_error(tmp_path: Path) -> None:
    if HAS_REDIS:
        assert run(PEERS, "--messages", "0", "--directory", tmp_path).returncode == 2

# SPDX-License-Identifier: Apache-2.0
"""A benchmark that is interrupted takes its processes and its files away.

May not: guess when: each case waits for a sign on the disk that the benchmark has come that far.
Next: src/oncemq/cli/benchmarks/workplace.py, which cleans up.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.harness import PEERS, Running, is_alive
from tests.bench.test_peers import needs_redis

pytestmark = pytest.mark.real

LONG = {
    "put": ["--count", "50000000"],
    "get": ["--count", "50000000"],
    "latency": ["--count", "50000000"],
    "restart": ["--gigabytes", "50"],
    "memory": ["--messages", "50000000"],
}
INTERRUPTED = 130


def appeared(directory: Path, pattern: str) -> Callable[[Running], bool]:
    return lambda _: any(directory.glob(f"oncemq-bench-*/{pattern}"))


def assert_gone(running: Running, directory: Path) -> None:
    assert running.children, "no process was seen"
    assert [pid for pid in running.children if is_alive(pid)] == []
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("name", LONG)
def test_ctrl_c_in_the_middle_of_it_leaves_no_process_and_no_file(name: str, tmp_path: Path) -> None:
    with Running("-m", "oncemq", "bench", name, *LONG[name], "--directory", tmp_path) as running:
        running.wait_until(appeared(tmp_path, "echo/*" if name == "latency" else "client-2/outbox*"))
        running.process.send_signal(signal.SIGINT)
        code, out, errors = running.end()
    assert (code, out) == (INTERRUPTED, "")
    assert "Traceback" not in errors
    assert_gone(running, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whatever_ends_it_while_its_broker_starts_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    with Running("-m", "oncemq", "bench", "put", "--directory", tmp_path) as running:
        running.wait_until(lambda seen: bool(seen.children))
        running.process.send_signal(number)
        code, _, errors = running.end()
    assert code == INTERRUPTED
    assert "Traceback" not in errors
    assert_gone(running, tmp_path)


def test_a_second_ctrl_c_does_not_stop_the_cleaning_up(tmp_path: Path) -> None:
    with Running("-m", "oncemq", "bench", "put", *LONG["put"], "--directory", tmp_path) as running:
        running.wait_until(appeared(tmp_path, "client-2/outbox*"))
        for _ in range(3):
            running.process.send_signal(signal.SIGINT)
        running.end()
    assert_gone(running, tmp_path)


def test_ctrl_c_under_load_ends_the_publisher_of_the_load_too(tmp_path: Path) -> None:
    with Running("-m", "oncemq", "bench", "restart", "--gigabytes", "0.01", "--directory", tmp_path) as running:
        running.wait_until(appeared(tmp_path, "load-*/outbox*"))
        running.process.send_signal(signal.SIGINT)
        code, _, errors = running.end()
    assert code == INTERRUPTED
    assert "Traceback" not in errors
    assert_gone(running, tmp_path)


@needs_redis
def test_ctrl_c_ends_the_redis_server_of_the_comparison(tmp_path: Path) -> None:
    with Running(PEERS, "--messages", "50000000", "--directory", tmp_path) as running:
        running.wait_until(appeared(tmp_path, "redis/appendonlydir/*"))
        running.process.send_signal(signal.SIGINT)
        code, _, errors = running.end()
    assert (code, errors) == (INTERRUPTED, "")
    assert_gone(running, tmp_path)

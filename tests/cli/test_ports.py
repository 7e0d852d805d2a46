# SPDX-License-Identifier: Apache-2.0
"""Ports for brokers of tests and trials: two runs at the same time never use the same."""

from __future__ import annotations

import gc
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import zmq

from oncemq.cli.torturing.ports import reserve_port

pytestmark = pytest.mark.real

_MANY = 200
"""Of 6,000: two runs that only drew them would have some in common, all but once in a thousand times."""
_TAKE = f"""
import sys
from pathlib import Path
from oncemq.cli.torturing.ports import reserve_port
print(*[reserve_port() for _ in range({_MANY})], flush=True)
sys.stdin.read()
"""


def test_what_one_process_was_given_no_other_is_given_while_it_lives() -> None:
    command = [sys.executable, "-c", _TAKE]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
    ):
        assert one.stdout is not None
        assert other.stdout is not None
        ports = one.stdout.readline().split() + other.stdout.readline().split()
    behind = {int(port) + 1 for port in ports}
    assert len({*map(int, ports), *behind}) == 4 * _MANY


def test_a_port_that_another_run_holds_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever draws a port again that was given out must draw anew, and leave no socket behind."""
    taken = reserve_port()
    chance = random.Random(1)
    drawn = iter([taken] * 50)
    monkeypatch.setattr(random, "randrange", lambda *span: next(drawn, None) or chance.randrange(*span))
    gc.collect()  # Or what earlier tests left to it is closed in between.
    before = open_files()
    assert reserve_port() != taken
    assert open_files() == before + 2, "only the new port and the one behind it"


def test_a_broker_that_comes_back_listens_at_a_reserved_port_and_nobody_else_is_given_it() -> None:
    port = reserve_port()
    for _life in range(2):
        with zmq.Context() as context, context.socket(zmq.ROUTER) as broker:
            broker.setsockopt(zmq.LINGER, 0)
            broker.bind(f"tcp://127.0.0.1:{port}")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))

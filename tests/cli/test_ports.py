# SPDX-License-Identifier: Apache-2.0
"""Ports for brokers of tests and trials: two runs at the same time never use the same."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

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
    """The name of a port that was given out is held; whoever draws it again must draw anew, and leave no socket behind."""
    taken = reserve_port()
    chance = random.Random(1)
    drawn = iter([taken] * 50)
    monkeypatch.setattr(random, "randrange", lambda *span: next(drawn, None) or chance.randrange(*span))
    before = open_files()
    assert reserve_port() != taken
    assert open_files() == before + 1, "only the name of the new port"


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))

# SPDX-License-Identifier: Apache-2.0
"""Ports for brokers of tests and trials: two runs at the same time never use the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.real

_MANY = 200
"""Of 6,000: two runs that only drew them would have some in common, all but once in a thousand times."""
_TAKE = f"""
import sys
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

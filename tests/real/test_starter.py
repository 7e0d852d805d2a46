# SPDX-License-Identifier: Apache-2.0
"""Processes that end with the one that started them, if they were told to: at work, standing still, or too late to ask for it.

Next: tests/cli/test_processes.py, where a whole demo is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from oncemq.adapters.starter import VARIABLE
from tests.bench.harness import is_alive
from tests.real.harness import SOURCES, until

pytestmark = pytest.mark.real

STARTED = """
import os, signal, sys
from oncemq.adapters.starter import VARIABLE, end_with_starter
end_with_starter()
print(os.getpid(), VARIABLE in os.environ, flush=True)
signal.pause()
"""
STARTER = """
import os, signal, subprocess, sys
from oncemq.adapters.starter import ends_with_us
told = ends_with_us() if sys.argv[1] == "told" else {}
subprocess.Popen([sys.executable, "-c", sys.argv[2]], env=os.environ | told)
signal.pause()
"""


@contextmanager
def started(how: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that has started another one, and the id of that."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-c", STARTER, how, STARTED]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid, is_told = starter.stdout.readline().split()
        assert is_told == "False", "what it starts would compare its parent with this one's"
        try:
            yield starter, int(pid)
        finally:
            starter.kill()
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize("is_still", [False, True])
def test_it_goes_with_its_starter_even_if_it_stands_still(is_still: bool) -> None:
    with started("told") as (starter, pid):
        if is_still:
            os.kill(pid, signal.SIGSTOP)
        starter.kill()
        until(lambda: not is_alive(pid), "it is gone, too")


def test_who_was_told_nothing_stays() -> None:
    with started("nothing") as (starter, pid):
        starter.kill()
        starter.wait()
        until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] != str(starter.pid), "it has no parent")
        assert is_alive(pid)


def test_whose_starter_is_gone_before_it_asks_ends_at_once() -> None:
    """As if: the process that it is told is not its parent."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), VARIABLE: str(os.getppid())}
    ended = subprocess.run([sys.executable, "-c", STARTED], env=environment, capture_output=True, check=False, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, b"", b"")

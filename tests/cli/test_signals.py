# SPDX-License-Identifier: Apache-2.0
"""Signals that ask for an end, put off for a few lines, or kept from processes that are started."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from oncemq.cli.signals import StopAsked, deaf_children, uninterrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_until_the_lines_are_done_and_is_then_told_as_ever(number: signal.Signals) -> None:
    steps: list[str] = []
    before = signal.signal(number, lambda *_: steps.append("told"))
    try:
        with uninterrupted():
            signal.raise_signal(number)
            steps.append("done")
        assert steps == ["done", "told"]
        signal.raise_signal(number)
        assert steps == ["done", "told", "told"], "the handler from before is back"
    finally:
        signal.signal(number, before)


def test_whoever_looks_at_a_flag_is_not_interrupted_afterwards_either() -> None:
    with StopAsked() as stop:
        with uninterrupted():
            signal.raise_signal(signal.SIGTERM)
        assert stop.is_set


def test_an_error_inside_is_told_and_the_handlers_are_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(OSError, match="no process"), uninterrupted():
        raise OSError("no process")
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_need_nothing_of_it() -> None:
    steps: list[str] = []

    def work() -> None:
        with uninterrupted():
            steps.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert steps == ["done"]


def test_ctrl_c_while_deaf_processes_are_started_is_told_when_they_are() -> None:
    """Ignored meanwhile, it would be lost, and the command go on as if nobody had asked."""
    steps: list[str] = []
    before = signal.signal(signal.SIGINT, lambda *_: steps.append("told"))
    command = [sys.executable, "-c", "import signal; signal.raise_signal(signal.SIGINT); print('has not heard')"]
    try:
        with deaf_children():
            signal.raise_signal(signal.SIGINT)
            steps += subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        assert steps == ["has not heard", "told"]
    finally:
        signal.signal(signal.SIGINT, before)

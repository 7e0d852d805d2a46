# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the command line's tests: a broker, a shell that talks to it, processes that are gone afterwards.

May not: be clever.
Next: harness.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import oncemq
from tests.cli.harness import Program, Shell


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting and no state directory of whoever runs the tests may matter, or be touched."""
    for name in ("ONCEMQ_ADDRESS", "ONCEMQ_ID", "ONCEMQ_CRASH_AT", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[oncemq.Broker]:
    with oncemq.Broker(tmp_path / "data", segment_bytes=1 << 20) as running:
        yield running


@pytest.fixture
def shell(broker: oncemq.Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> Shell:
    return Shell(capfdbinary, broker.address)


@pytest.fixture
def alone(capfdbinary: pytest.CaptureFixture[bytes]) -> Shell:
    """A shell without a broker."""
    return Shell(capfdbinary)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that give up soon: three tries take a moment instead of seven seconds."""
    monkeypatch.setattr("oncemq.client.session.REQUEST_TIMEOUT_MS", 20)
    monkeypatch.setattr("oncemq.client.puts.REQUEST_TIMEOUT_MS", 20)
    monkeypatch.setattr("oncemq.client.client.CLOSE_TIMEOUT_MS", 20)
    monkeypatch.setattr("oncemq.client.session.BACKOFF_MS", 1)


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Start `oncemq` processes; whatever still runs is ended afterwards."""
    running: list[Program] = []

    def begin(*arguments: str | Path, **more: object) -> Program:
        running.append(Program(*arguments, **more))  # type: ignore[arg-type]
        return running[-1]

    yield begin
    for program in running:
        program.close()


@pytest.fixture
def serve(start: Callable[..., Program], tmp_path: Path) -> Callable[..., tuple[Program, str]]:
    """Start `oncemq serve` and return it with its address once it listens."""

    def begin(*more: str, directory: Path | None = None, address: str = "tcp://127.0.0.1:*") -> tuple[Program, str]:
        program = start("serve", directory or tmp_path / "data", "--address", address, "--json", "--segment-size", "1MiB", *more)
        return program, json.loads(program.line())["address"]

    return begin

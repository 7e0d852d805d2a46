# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the command line's tests: a broker, a shell that talks to it, processes that are gone afterwards.

May not: be clever.
Next: harness.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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
def impatience(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """While it is entered clients give up soon: where nobody answers, three tries take a moment instead of seven seconds."""

    @contextmanager
    def enter() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr("oncemq.client.session.REQUEST_TIMEOUT_MS", 5)
            patch.setattr("oncemq.client.puts.REQUEST_TIMEOUT_MS", 5)
            patch.setattr("oncemq.client.puts.CLOSE_TIMEOUT_MS", 5)
            patch.setattr("oncemq.client.session.BACKOFF_MS", 1)
            yield

    return enter


@pytest.fixture(scope="module")
def idle_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for many tests, none of which may change it."""
    with oncemq.Broker(tmp_path_factory.mktemp("idle") / "data") as running:
        yield running.address


@pytest.fixture
def idle(idle_address: str, capfdbinary: pytest.CaptureFixture[bytes]) -> Shell:
    return Shell(capfdbinary, idle_address)


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

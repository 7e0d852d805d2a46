# SPDX-License-Identifier: Apache-2.0
"""One broker for a whole file of tests, and clients and topics that no other test uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import oncemq

Connect = Callable[..., oncemq.Client]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oncemq.Broker]:
    with oncemq.Broker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def topic() -> str:
    return "topic-" + os.urandom(6).hex()


@pytest.fixture
def connect(broker: oncemq.Broker, tmp_path: Path) -> Iterator[Connect]:
    """Connect durable clients by a short name; a name used again is the same client with the same state."""
    unique = os.urandom(6).hex()
    with ExitStack() as clients:

        def connected(name: str = "one", **options: object) -> oncemq.Client:
            state = tmp_path / name
            client = oncemq.connect(broker.address, id=f"{name}-{unique}", state=state, **options)  # type: ignore[arg-type]
            clients.callback(client.close)
            return client

        yield connected


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that wait for an answer a twentieth of the usual time; tests/real/ has the usual one."""
    for room in ("session", "puts", "gets"):
        monkeypatch.setattr(f"oncemq.client.{room}.REQUEST_TIMEOUT_MS", 50)


@pytest.fixture
def client(connect: Connect) -> oncemq.Client:
    return connect("one")

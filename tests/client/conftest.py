# SPDX-License-Identifier: Apache-2.0
"""One broker for a whole file of tests, and clients and topics that no other test uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import oncemq
from tests.client.databases import Base, postgresql, postgresql_base, sqlite_base

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


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as uri:
        yield uri


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def base(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Base]:
    if request.param == "sqlite":
        found = sqlite_base(tmp_path / "application.db")
    else:
        found = postgresql_base(request.getfixturevalue("server"))
    yield found
    found.close()


@pytest.fixture
def worker(connect: Connect, topic: str) -> oncemq.Client:
    """A client that subscribes to a topic with five messages, 0 to 4."""
    client = connect("worker")
    client.subscribe(topic)
    connect("publisher").put_many(topic, [b"%d" % number for number in range(5)])
    return client

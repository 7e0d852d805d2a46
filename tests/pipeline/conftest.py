# SPDX-License-Identifier: Apache-2.0
"""One broker per file of tests. Spark comes from the conftest.py above: one for all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import oncemq
from oncemq.pipeline.requests import Requests, close_shared


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Tests are tasks too: what they share is closed behind each."""
    yield
    close_shared()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oncemq.Broker]:
    with oncemq.Broker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def topic() -> str:
    return "topic-" + os.urandom(6).hex()


@pytest.fixture
def client(broker: oncemq.Broker, tmp_path: Path) -> Iterator[oncemq.Client]:
    with oncemq.connect(broker.address, id="publisher-" + os.urandom(6).hex(), state=tmp_path / "publisher") as connected:
        yield connected


@pytest.fixture
def kept(client: oncemq.Client, topic: str) -> str:
    """A topic that keeps everything."""
    client.admin.create_topic(topic, retain="forever")
    return topic


@pytest.fixture
def requests(broker: oncemq.Broker) -> Iterator[Requests]:
    asking = Requests(broker.address)
    yield asking
    asking.close()

# SPDX-License-Identifier: Apache-2.0
"""Somebody at a terminal is told what is being waited for, also where a command begins without the broker."""

from __future__ import annotations

from pathlib import Path

import pytest

import oncemq
from oncemq.cli import connecting
from oncemq.cli.output import Output

NOWHERE = "tcp://127.0.0.1:9"


class Watched(Output):
    """As if a person looked at stderr."""

    has_watcher = True  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "_PATIENCE_S", 0.02)
    for room in ("session", "puts"):
        monkeypatch.setattr(f"oncemq.client.{room}.REQUEST_TIMEOUT_MS", 50)
    monkeypatch.setattr("oncemq.client.puts.CLOSE_TIMEOUT_MS", 50)


@pytest.mark.parametrize("offline", [False, True])
def test_a_broker_that_does_not_answer_is_told_while_it_is_waited_for(tmp_path: Path, offline: bool) -> None:
    output = Watched()
    with (
        pytest.raises(oncemq.PutPending if offline else oncemq.BrokerUnreachable),
        connecting.connected(output, NOWHERE, id="shop", state=tmp_path / "shop", offline=offline) as client,
    ):
        client.put("orders", b"one")
    assert output.notes == [f"no answer from {NOWHERE} yet, trying again …"]


def test_a_broker_that_has_answered_is_not_complained_of(tmp_path: Path) -> None:
    output = Watched()
    with oncemq.Broker(tmp_path / "data") as broker, connecting.asking(output, broker.address) as client:
        assert client.topics() == []
    with (
        oncemq.Broker(tmp_path / "data") as broker,
        connecting.connected(output, broker.address, id="shop", state=tmp_path / "shop") as client,
    ):
        output.notes.clear()
        client.subscribe("orders")
        assert client.get("orders", timeout=0.1) is None  # Longer than our patience.
    assert output.notes == []

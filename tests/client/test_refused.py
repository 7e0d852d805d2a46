# SPDX-License-Identifier: Apache-2.0
"""Puts that a broker refuses for ever: what is behind them goes on, and each is told once, by name."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pytest

import oncemq
from oncemq.core.publisher import OpenBlock
from oncemq.model.block import check_block
from tests.client.conftest import Connect

NOWHERE = "tcp://127.0.0.1:9"


def kept_by_an_earlier_life(state: Path, topic: str) -> None:
    """Five blocks that no broker heard of: two strict ones that nobody subscribes to, and one with a value of 2,000 bytes."""
    client = oncemq.connect(NOWHERE, id=f"id-{topic}", state=state, offline=True)
    for number, (place, size, strict) in enumerate(
        [
            (topic, 1, False),
            (f"{topic}-nobody", 1, True),
            (topic, 2_000, False),
            (f"{topic}-nobody-either", 1, True),
            (topic, 1, False),
        ]
    ):
        client.put(place, b"%d" % number * size, strict=strict, wait=False)
        with pytest.raises(oncemq.PutPending):
            client.flush(0)
    client._abandon()


def next_life(broker: oncemq.Broker, state: Path, topic: str, monkeypatch: pytest.MonkeyPatch) -> oncemq.Client:
    """The same client at a broker whose limit is lower than it was when they were put."""
    monkeypatch.setattr("oncemq.core.puts.check_block", partial(check_block, value_bytes_max=1_000))
    return oncemq.connect(broker.address, id=f"id-{topic}", state=state)


def test_what_is_kept_goes_on_behind_puts_that_are_refused_for_ever(
    broker: oncemq.Broker, connect: Connect, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the first were refused in silence, and the one that is too large had no name."""
    reader = connect("reader")
    reader.subscribe(topic)
    kept_by_an_earlier_life(tmp_path / "kept", topic)
    client = next_life(broker, tmp_path / "kept", topic, monkeypatch)
    with pytest.raises(oncemq.NoSubscribers, match=f"put 2 to {topic}-nobody was refused") as told:
        client.flush()
    large, strict = told.value.__notes__
    assert large.startswith(f"and a value in put 3 to {topic} ")
    assert f"put 4 to {topic}-nobody-either was refused" in strict
    assert client.flush() == client.close() == 0
    assert [message.value for message in reader.get_many(topic, timeout=60)] == [b"0", b"4"]


def test_who_never_flushes_is_told_in_the_log(
    broker: oncemq.Broker,
    connect: Connect,
    tmp_path: Path,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing was pending any more when it closed, so nothing was said."""
    connect("reader").subscribe(topic)
    kept_by_an_earlier_life(tmp_path / "kept", topic)
    client = next_life(broker, tmp_path / "kept", topic, monkeypatch)
    assert client.put(topic, b"and on").offset == 2
    assert client.pending == 0
    with caplog.at_level(logging.WARNING, "oncemq.client"):
        assert client.close() == 0
    assert all(f"put {number} to {topic}" in caplog.text for number in (2, 3, 4))


def test_all_blocks_of_a_put_many_that_are_refused_are_told_at_once(connect: Connect, topic: str) -> None:
    client = connect()
    with pytest.raises(oncemq.NoSubscribers, match="put 1 to") as told:
        client.put_many(topic, [b"x"] * 12_000, strict=True)
    assert [note.split(" to ")[0] for note in told.value.__notes__[:2]] == ["and put 1001", "and put 2001"]
    assert told.value.__notes__[-1] == "and 2 more blocks"
    assert client.flush() == 12_000
    assert client.close() == 0


def test_a_block_that_cannot_be_read_is_named_by_whoever_waits_behind_it(
    connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no outcome, so nothing behind it is taken: the error of another put did not say whose fault it was."""
    client = connect()
    client.subscribe(topic)
    cut = OpenBlock.cut
    with monkeypatch.context() as patch:
        patch.setattr(OpenBlock, "cut", lambda block: cut(block)[:-8] + bytes(8))
        with pytest.raises(oncemq.Refused, match=f"put 1 to {topic} is not taken, nor is what waits behind it"):
            client.put(topic, b"x" * 50)
    with pytest.raises(oncemq.Refused, match=f"put 1 to {topic} is not taken"):
        client.put(topic, b"fine")
    assert [block.number for block in client.outbox()] == [1, 2]
    client._abandon()

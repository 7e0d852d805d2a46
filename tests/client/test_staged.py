# SPDX-License-Identifier: Apache-2.0
"""Staged rows through a whole broker: read, got, trimmed and recovered like messages that were put."""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

import oncemq
from oncemq.adapters.system import SystemClock
from oncemq.adapters.zmq_link import ZmqLink
from oncemq.client.session import Session
from oncemq.client.state import NoState
from oncemq.core import packets as p
from oncemq.core.staging import next_crc
from oncemq.model.block import checksum, cut_block


class Writer:
    """What a driver with one task does, packet by packet."""

    def __init__(self, address: str, query: str = "query-1") -> None:
        self.query = query
        self.batch = 0
        self.session = Session(
            ZmqLink(address), SystemClock(), NoState("writer"), session_id=b"w" * 16, address=address, takeover=False
        )

    def stage(self, topic: str, *chunks: list[bytes]) -> p.PartClaim:
        part, crc = os.urandom(16), 0
        for number, values in enumerate(chunks, start=1):
            block = cut_block(values, array("q", [1] * len(values)))
            self.session.exchange(p.Stage(self.query, self.batch, part, number, len(values)), block=block)
            crc = next_crc(crc, checksum(block))
        return p.PartClaim(part, topic, len(chunks), sum(map(len, chunks)), crc)

    def commit(self, *claims: p.PartClaim) -> p.CommitStagedDone:
        body = msgspec.msgpack.encode(claims)
        done = self.session.exchange(p.CommitStaged(self.query, self.batch, len(claims)), block=body)
        assert isinstance(done, p.CommitStagedDone)
        self.batch += 1
        return done


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as closing:
        yield closing


def start(stack: ExitStack, directory: Path, **options: object) -> oncemq.Broker:
    return stack.enter_context(oncemq.Broker(directory, **options))  # type: ignore[arg-type]


def writer_at(stack: ExitStack, address: str) -> Writer:
    writer = Writer(address)
    stack.callback(writer.session.close)
    return writer


def fill(client: oncemq.Client, writer: Writer) -> list[bytes]:
    """Put and commit in turns; return what the topic must hold."""
    client.put("t", b"0")
    lost = writer.stage("t", [b"never"])
    writer.commit(writer.stage("t", [b"1", b"2"], [b"3"]), writer.stage("t", [b"4"]))
    assert lost.rows == 1
    client.put_many("t", [b"5", b"6"])
    writer.commit(writer.stage("t", [b"7"]))
    writer.commit(writer.stage("t", [b"8", b"9"]))
    client.put("t", b"10")
    return [b"%d" % number for number in range(11)]


def test_staged_rows_are_read_and_got_like_messages_that_were_put(stack: ExitStack, tmp_path: Path) -> None:
    broker = start(stack, tmp_path / "data")
    client = stack.enter_context(oncemq.connect(broker.address, id="me", state=tmp_path / "me"))
    client.subscribe("t")
    expected = fill(client, writer_at(stack, broker.address))

    for first in range(12):
        assert [message.value for message in client.read("t", first, 11)] == expected[first:]
    got = [client.get("t", timeout=5) for _ in expected]
    assert [message.value for message in got] == expected
    assert [message.offset for message in got] == list(range(11))
    rows = [message for message in got if message.publisher == "spark.query-1"]
    assert [message.put_number for message in rows] == list(range(1, 8))
    assert len({message.source.stream for message in rows}) == 1
    appended = [message.source.append_number for message in got]
    assert appended == sorted(appended), "append numbers rise with offsets"


def test_the_oldest_over_several_topics_comes_first_also_around_a_commit(stack: ExitStack, tmp_path: Path) -> None:
    broker = start(stack, tmp_path / "data")
    client = stack.enter_context(oncemq.connect(broker.address, id="me", state=tmp_path / "me"))
    writer = writer_at(stack, broker.address)
    client.subscribe("a")
    client.subscribe("b")
    client.put("a", b"1")
    late = writer.stage("a", [b"4"], [b"5"]), writer.stage("b", [b"6"])
    client.put("b", b"2")
    client.put("a", b"3")
    writer.commit(*late)
    client.put("b", b"7")
    client.put("a", b"8")

    assert [client.get(timeout=5).value for _ in range(8)] == [b"%d" % number for number in range(1, 9)]


def test_many_small_parts_need_few_requests(stack: ExitStack, tmp_path: Path) -> None:
    broker = start(stack, tmp_path / "data")
    client = stack.enter_context(oncemq.connect(broker.address))
    client.admin.create_topic("t", retain="forever")
    writer = writer_at(stack, broker.address)
    for number in range(30):
        writer.commit(writer.stage("t", [b"%d" % (3 * number)]), writer.stage("t", [b"%d" % (3 * number + 1)]))
        client.put("t", b"%d" % (3 * number + 2))
    before = client.admin.stats().values["count_packets"]

    values = [message.value for message in client.read("t", 0, 90)]

    assert values == [b"%d" % number for number in range(90)]
    assert client.admin.stats().values["count_packets"] - before <= 3


def test_a_parked_get_is_woken_by_a_commit(stack: ExitStack, tmp_path: Path) -> None:
    broker = start(stack, tmp_path / "data")
    client = stack.enter_context(oncemq.connect(broker.address, id="me", state=tmp_path / "me"))
    client.subscribe("t")
    writer = writer_at(stack, broker.address)
    claim = writer.stage("t", [b"1"])
    committing = threading.Timer(0.2, writer.commit, [claim])
    committing.start()

    message = client.get("t", timeout=30)

    committing.join()
    assert message is not None
    assert message.value == b"1"


def test_a_restart_knows_parts_batches_and_rows(stack: ExitStack, tmp_path: Path) -> None:
    """Small segments: rows, commits and snapshots lie in different ones."""
    with oncemq.Broker(tmp_path / "data", segment_bytes=4_096) as broker, oncemq.connect(broker.address) as client:
        client.admin.create_topic("t", retain="forever")
        writer = writer_at(stack, broker.address)
        expected = fill(client, writer)
        waiting = writer.stage("t", [b"11" * 1_000], [b"12"])
        for _ in range(20):
            client.put("t", b"x" * 1_000)
    with oncemq.Broker(tmp_path / "data", segment_bytes=4_096) as broker, oncemq.connect(broker.address) as client:
        assert [message.value for message in client.read("t", 0, 11)] == expected
        again = writer_at(stack, broker.address)
        again.batch = writer.batch - 1
        assert again.commit().is_repeat
        assert again.commit(waiting).ranges[0].first_offset == 31
        assert [message.value for message in client.read("t", 31, 33)] == [b"11" * 1_000, b"12"]


def test_rows_go_with_their_topic(stack: ExitStack, tmp_path: Path) -> None:
    """What was consumed is trimmed, and the segments with the rows are unlinked."""
    broker = start(stack, tmp_path / "data", segment_bytes=64 * 1_024)
    client = stack.enter_context(oncemq.connect(broker.address, id="me", state=tmp_path / "me"))
    client.subscribe("t")
    writer = writer_at(stack, broker.address)
    for _ in range(20):
        writer.commit(writer.stage("t", [b"x" * 10_000] * 3, [b"y" * 10_000]))
    segments = sorted((tmp_path / "data").glob("segment-*"))
    assert len(client.get_many("t", 80, timeout=5)) == 80
    client.ack("t")
    due = time.monotonic() + 60
    while any(segment.exists() for segment in segments[: len(segments) // 2]):
        assert time.monotonic() < due, "nothing was unlinked"
        client.put("t", b"z" * 1_000)  # A segment goes once two newer snapshots are there.

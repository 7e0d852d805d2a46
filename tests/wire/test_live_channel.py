# SPDX-License-Identifier: Apache-2.0
"""The live path as a plain SUB socket sees it: docs/protocol.md is enough to follow a topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

import oncemq
from oncemq.adapters.zmq_live import as_reached, beside
from oncemq.core import packets as p
from oncemq.errors import UsageError
from oncemq.limits import LIVE_BLOCK_BYTES_MAX, LIVE_PACKET_BYTES
from oncemq.wire.codec import decode
from tests.wire.raw import TIMEOUT_MS, Raw
from tests.wire.test_plain_clients import values_in


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[oncemq.Broker]:
    with oncemq.Broker(tmp_path / "broker", retain="forever") as running:
        yield running


@contextmanager
def following(broker: oncemq.Broker, channel: bytes) -> Iterator[zmq.Socket[bytes]]:
    """A SUB socket that follows one channel at the address the broker tells."""
    with Raw(broker.address) as asking, zmq.Context() as context, context.socket(zmq.SUB) as socket:
        live = asking.ask(p.Heartbeat(), p.HeartbeatDone).live
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(live)
        socket.setsockopt(zmq.SUBSCRIBE, channel)
        yield socket


def heard(socket: zmq.Socket[bytes]) -> tuple[bytes, p.Live, list[tuple[int, bytes]]]:
    """The next packet: its channel, its head, and its messages."""
    assert socket.poll(TIMEOUT_MS), "nothing was published"
    first, *rest = socket.recv_multipart()
    _, packet = decode(first[8:])
    assert isinstance(packet, p.Live)
    return first[:8], packet, [message for body in rest for message in values_in(body)]


def topic_of(client: oncemq.Client, topic: str) -> int:
    return client.admin.create_topic(topic, retain="forever").topic_id


def channel_of(topic_id: int) -> bytes:
    return topic_id.to_bytes(8, "little")


def test_a_follower_is_told_the_end_and_then_every_block_as_it_is_stored(broker: oncemq.Broker) -> None:
    with oncemq.connect(broker.address) as client:
        topic_id, other_id = topic_of(client, "orders"), topic_of(client, "other")
        client.put("orders", b"before")
        with following(broker, channel_of(topic_id)) as socket:
            channel, packet, messages = heard(socket)
            assert (channel, packet.topic_id, packet.end, messages) == (channel_of(topic_id), topic_id, 1, [])
            assert packet.start_id == client.admin.stats().start_id
            client.put("other", b"not for us")
            client.put("orders", b"one")
            client.put(["other", "orders"], b"two")
            client.put_many("orders", [b"three", b"four"])
            found: list[tuple[int, bytes]] = []
            while len(found) < 4:
                channel, packet, messages = heard(socket)
                assert (channel, packet.topic_id) == (channel_of(topic_id), topic_id)
                found += messages
                assert packet.end >= (found[-1][0] + 1 if found else 1)
        assert found == [(1, b"one"), (2, b"two"), (3, b"three"), (4, b"four")]
        assert other_id != topic_id


def test_silence_is_filled_by_heartbeats_with_the_end(broker: oncemq.Broker) -> None:
    with oncemq.connect(broker.address) as client:
        topic_id = topic_of(client, "quiet")
        with following(broker, channel_of(topic_id)) as socket:
            assert [heard(socket)[1].end for _ in range(3)] == [0, 0, 0]


def test_when_everybody_left_nothing_is_published(broker: oncemq.Broker) -> None:
    with oncemq.connect(broker.address) as client:
        topic_id = topic_of(client, "left")
        with following(broker, channel_of(topic_id)) as socket:
            heard(socket)
            assert client.admin.stats().values["channels_followed"] == 1
        due = time.monotonic() + 60
        while client.admin.stats().values["channels_followed"] and time.monotonic() < due:
            pass
        before = client.admin.stats().values
        client.put("left", b"unheard")
        after = client.admin.stats().values
        assert (before["channels_followed"], after["channels_followed"]) == (0, 0)
        assert after["count_live_packets"] == before["count_live_packets"]


def test_a_large_block_is_told_and_many_small_ones_leave_together(broker: oncemq.Broker) -> None:
    with oncemq.connect(broker.address) as client:
        topic_id = topic_of(client, "sizes")
        with following(broker, channel_of(topic_id)) as socket:
            heard(socket)
            client.put("sizes", bytes(LIVE_BLOCK_BYTES_MAX))
            while (told := heard(socket))[1].end < 1:
                pass
            assert told[2] == []
            client.put_many("sizes", [bytes(1_000)] * 5_000)
            count = 0
            while count < 5_000:
                packet = heard(socket)
                count += len(packet[2])
                assert sum(len(value) for _, value in packet[2]) <= LIVE_PACKET_BYTES + 1_001_000
        pushed = client.admin.stats().values
        assert pushed["count_live_blocks"] == 5


def test_the_live_address_lies_beside_unless_it_is_taken_or_named(tmp_path: Path) -> None:
    with oncemq.Broker(tmp_path / "one") as one:
        port = int(one.live_address.rpartition(":")[2])
        assert int(one.address.rpartition(":")[2]) != port
        neighbour = f"tcp://127.0.0.1:{port - 1}"
        if neighbour != one.address:
            with oncemq.Broker(tmp_path / "two", neighbour) as two:  # Its next port is the first one's.
                assert two.live_address not in {one.live_address, f"tcp://127.0.0.1:{port}"}
        with pytest.raises(UsageError, match="cannot publish"):
            oncemq.Broker(tmp_path / "three", live_address=one.live_address)


def test_an_address_bound_everywhere_is_reached_where_the_broker_is() -> None:
    assert beside("tcp://127.0.0.1:5556") == "tcp://127.0.0.1:5557"
    assert beside("tcp://[::]:7000") == "tcp://[::]:7001"
    assert beside("tcp://127.0.0.1:*") == "tcp://127.0.0.1:*"
    assert beside("ipc:///run/oncemq") == "ipc:///run/oncemq-live"
    assert as_reached("tcp://0.0.0.0:5557", "tcp://broker.example:5556") == "tcp://broker.example:5557"
    assert as_reached("tcp://[::]:5557", "tcp://10.0.0.7:5556") == "tcp://10.0.0.7:5557"
    assert as_reached("tcp://10.0.0.7:5557", "tcp://broker.example:5556") == "tcp://10.0.0.7:5557"

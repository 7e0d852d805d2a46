# SPDX-License-Identifier: Apache-2.0
"""Listening over real sockets: pushed as it is stored, once and in order; beside puts and gets of the same client."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import oncemq
from tests.client.conftest import Connect


@contextmanager
def meanwhile(work: object) -> Iterator[None]:
    """Have something done in another thread, by a client of its own."""
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_messages_are_pushed_as_they_are_stored(tmp_path: Path) -> None:
    """At a broker of its own, at which nobody else follows anything."""
    with (
        oncemq.Broker(tmp_path / "data") as broker,
        oncemq.connect(broker.address, id="ear", state=tmp_path / "ear") as listening,
        oncemq.connect(broker.address, id="mouth", state=tmp_path / "mouth") as putting,
    ):
        listening.subscribe("t")
        listener = listening.listen("t", timeout=60)
        due = time.monotonic() + 60
        while (before := putting.admin.stats().values)["channels_followed"] == 0:
            assert time.monotonic() < due, "nobody follows"
            assert listener.next(timeout=0.05) is None

        def put() -> None:
            for number in range(100):
                putting.put("t", b"%d" % number)

        with meanwhile(put):
            found = [next(listener).value for _ in range(100)]
        after = putting.admin.stats().values
    assert found == [b"%d" % number for number in range(100)]
    assert after["count_live_blocks"] - before["count_live_blocks"] == 100
    assert after["parked_gets"] == 0


def test_what_was_stored_before_comes_first_and_in_order(connect: Connect, topic: str) -> None:
    client = connect()
    client.subscribe(topic)
    client.put_many(topic, [b"%d" % number for number in range(5_000)])
    found = [message.offset for message in client.listen(topic, timeout=0.5)]
    assert found == list(range(5_000))


def test_a_listener_ends_after_its_time_and_get_goes_on_where_it_was(connect: Connect, topic: str) -> None:
    client = connect()
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b", b"c"])
    for message in client.listen(topic, timeout=5):
        if message.value == b"b":
            break
    message = client.get(topic, timeout=5)
    assert message is not None
    assert message.value == b"c"
    started = time.monotonic()
    assert list(client.listen(topic, timeout=0.3)) == []
    assert time.monotonic() - started > 0.2
    assert list(client.listen(topic, timeout=0)) == []


def test_listening_to_all_subscriptions_keeps_each_topics_order(connect: Connect, topic: str) -> None:
    client = connect()
    for name in (topic, topic + ".b"):
        client.subscribe(name)
    for number in range(20):
        client.put([topic, topic + ".b"], b"%d" % number)
    found: dict[str, list[bytes]] = {}
    for message in client.listen(timeout=0.5):
        found.setdefault(message.topic, []).append(message.value)
    assert found == {name: [b"%d" % number for number in range(20)] for name in (topic, topic + ".b")}


def test_putting_and_unsubscribing_inside_the_loop(connect: Connect, topic: str) -> None:
    client = connect()
    client.subscribe(topic)
    client.put(topic, b"0")
    found = []
    for message in client.listen(topic, timeout=5):
        found.append(message.value)
        if len(found) == 10:
            client.unsubscribe(topic)
        else:
            client.put(topic, b"%d" % len(found))
    assert found == [b"%d" % number for number in range(10)]


def test_what_listen_is_asked_wrongly_is_told(connect: Connect, topic: str) -> None:
    client = connect()
    with pytest.raises(oncemq.NotSubscribed):
        client.listen()
    with pytest.raises(oncemq.NoSuchTopic):
        client.listen(topic)
    with pytest.raises(oncemq.InvalidName):
        client.listen("not a name")
    client.subscribe(topic)
    with pytest.raises(oncemq.UsageError):
        client.listen(topic, timeout=-1)
    listener = client.listen(topic)
    client.close()
    with pytest.raises(oncemq.ClientClosed):
        next(listener)


def test_a_subscription_that_is_received_from_is_not_listened_to(connect: Connect, topic: str) -> None:
    """R9: one authority per subscription."""
    client = connect()
    client.subscribe(topic, cursor="broker")
    client.put(topic, b"one")
    with pytest.raises(oncemq.WrongAuthority):
        next(client.listen(topic, timeout=5))


def test_leaving_the_with_block_finishes_what_was_heard_last(connect: Connect, topic: str, tmp_path: Path) -> None:
    with connect("one") as client:
        client.subscribe(topic)
        client.put_many(topic, [b"a", b"b"])
        assert next(client.listen(topic, timeout=5)).value == b"a"
    again = connect("one")
    assert [message.value for message in again.listen(topic, timeout=0.5)] == [b"b"]
    assert (tmp_path / "one").exists()


def test_an_ephemeral_client_listens_too(broker: oncemq.Broker, topic: str) -> None:
    with oncemq.connect(broker.address) as client:
        client.subscribe(topic)
        client.put_many(topic, [b"x"] * 2_500)
        blocks = list(client.listen_blocks(topic, timeout=0.5))
    assert [len(block) for block in blocks] == [1_000, 1_000, 500]
    assert all(block.values == [b"x"] * len(block) for block in blocks)
    assert repr(blocks[0]) == f"<oncemq.Block {topic!r} [0, 1000)>"


def test_a_listener_hears_a_broker_that_publishes_elsewhere_after_its_restart(tmp_path: Path) -> None:
    """Both ports of its first life are its own; the live one of the second is another, which clients find out."""
    first = oncemq.Broker(tmp_path / "data")
    address = first.address
    with oncemq.connect(address, id="ear", state=tmp_path / "ear") as client:
        client.subscribe("t")
        listener = client.listen("t", timeout=60)
        client.put("t", b"one")
        assert next(listener).value == b"one"
        first.stop()
        with oncemq.Broker(tmp_path / "data", address, live_address="tcp://127.0.0.1:*") as second:
            assert second.live_address != first.live_address
            client.put("t", b"two")
            assert next(listener).value == b"two"
            due = time.monotonic() + 60
            while client.admin.stats().values["channels_followed"] == 0:
                assert time.monotonic() < due, "the new live address was not found"
                listener.next(timeout=1)
            client.put("t", b"three")
            assert next(listener).value == b"three"
            client.unsubscribe("t")

# SPDX-License-Identifier: Apache-2.0
"""Clients that are not ours: a plain REQ socket, as the earliest design used it, does everything with raw packets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

import oncemq
from oncemq.core import packets as p
from oncemq.journal.codec import decode_delivery
from oncemq.limits import GET_BYTES
from oncemq.model.block import messages_of
from oncemq.model.message import Source
from oncemq.wire.codec import decode, encode
from tests.wire.raw import Raw, block_of

KINDS = [pytest.param(zmq.REQ, id="REQ"), pytest.param(zmq.DEALER, id="DEALER")]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[oncemq.Broker]:
    with oncemq.Broker(tmp_path / "broker") as running:
        yield running


def values_in(body: bytes) -> list[tuple[int, bytes]]:
    """Offset and value of every message in the second frame of Blocks."""
    found, position = [], 0
    while position < len(body):
        delivered, start, end, position = decode_delivery(body, position)
        source = Source("t", 0, "", b"", 0, delivered.first_offset, 0, 0, b"")
        found += [(message.offset, message.value) for message in messages_of(bytes(body[start:end]), source)]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_socket_subscribes_puts_gets_and_unsubscribes(broker: oncemq.Broker, kind: int) -> None:
    """D0 in raw packets. Get in its one-number form: asking for n acknowledges everything below n."""
    with Raw(broker.address, kind) as client:
        assert client.hello().subscriptions == ()
        info = client.ask(p.Subscribe(client.session, 1, "orders"), p.SubscribeDone).subscription
        assert (info.topic, info.start, info.cursor, info.end) == ("orders", 0, 0, 0)
        for number, value in enumerate((b"zero", b"one", b"two"), start=1):
            done = client.put(number, "orders", block=block_of(value))
            assert done.outcomes == (p.PutOutcome(info.topic_id, True, number - 1),)
        want = p.Want(info.subscription_id, info.topic_id, 0)
        _, (body,) = client.say(p.Get(client.session, (want,), GET_BYTES))
        assert values_in(body) == [(0, b"zero"), (1, b"one"), (2, b"two")]
        want = p.Want(info.subscription_id, info.topic_id, 2)
        _, (body,) = client.say(p.Get(client.session, (want,), GET_BYTES))
        assert values_in(body) == [(2, b"two")]
        client.put(4, "orders", block=block_of(b"three"))  # The cursor rides along with the next record.
        rows = client.ask(p.ListSubscriptions("orders"), p.Subscriptions).subscriptions
        assert [row.info.cursor for row in rows] == [2]
        client.ask(p.Unsubscribe(client.session, 2, "orders"), p.CommandDone)
        assert client.ask(p.ListTopics(), p.Topics).topics == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_plain_socket_is_told_every_denial(broker: oncemq.Broker, kind: int) -> None:
    """No such topic, not subscribed, already subscribed, no messages, nobody subscribes: one typed answer each."""
    with Raw(broker.address, kind) as client:
        client.hello()
        session = client.session
        assert client.put(1, "orders", block=block_of(b"x")).outcomes == (p.PutOutcome(0, False, None),)
        assert client.refused(p.Unsubscribe(session, 1, "orders")) == "no_such_topic"
        assert client.refused(p.Get(session, (p.Want(1, 1, 0),), 1000)) == "no_such_topic"
        info = client.ask(p.Subscribe(session, 2, "orders"), p.SubscribeDone).subscription
        assert client.refused(p.Subscribe(session, 3, "orders")) == "already_subscribed"
        assert client.refused(p.Get(session, (p.Want(1, info.topic_id, 0),), 1000)) == "not_subscribed"
        answer, (body,) = client.say(p.Get(session, (p.Want(info.subscription_id, info.topic_id, 0),), 1000))
        assert (type(answer), body) == (p.Blocks, b"")
        client.ask(p.CreateTopic(session, 4, "kept", "forever"), p.TopicDone)
        assert client.refused(p.Unsubscribe(session, 5, "kept")) == "not_subscribed"
        strict = p.Put(session, session, 2, 1, ("nobody",), True)
        assert client.ask(strict, p.PutDone, block_of(b"x")).code == "no_subscribers"


def test_answers_to_a_delimited_packet_are_delimited(broker: oncemq.Broker) -> None:
    """A REQ socket puts an empty frame first and expects one back; a DEALER that does the same is treated the same."""
    with Raw(broker.address) as client:
        client.send(b"", encode(5, p.Heartbeat()))
        empty, answer = client.receive()
        assert (empty, decode(answer)[0]) == (b"", 5)
        client.send(encode(6, p.Heartbeat()))
        (answer,) = client.receive()
        assert decode(answer)[0] == 6


def test_a_request_that_is_said_twice_is_carried_out_once(broker: oncemq.Broker) -> None:
    """Put, command and Hello: the second copy gets the first one's answer."""
    with Raw(broker.address) as client:
        welcome = client.hello()
        again = client.hello()
        assert (again.session, again.log_id, again.start_id) == (welcome.session, welcome.log_id, welcome.start_id)
        subscribe = p.Subscribe(client.session, 1, "orders")
        first, second = client.ask(subscribe, p.SubscribeDone), client.ask(subscribe, p.SubscribeDone)
        assert first == second
        block = block_of(b"once")
        done, repeated = client.put(1, "orders", block=block), client.put(1, "orders", block=block)
        assert (done.duplicate, repeated.duplicate, done.outcomes) == (False, True, repeated.outcomes)
        assert client.ask(p.ListTopics(), p.Topics).topics[0].end == 1


def test_a_get_waits_at_the_broker_until_somebody_puts(broker: oncemq.Broker) -> None:
    """Parked, then woken by another client's put."""
    with Raw(broker.address, zmq.REQ) as waiting, Raw(broker.address, zmq.REQ) as putting:
        waiting.hello("waiting")
        putting.hello("putting")
        info = waiting.ask(p.Subscribe(waiting.session, 1, "orders"), p.SubscribeDone).subscription
        want = p.Want(info.subscription_id, info.topic_id, 0)
        waiting.send(encode(9, p.Get(waiting.session, (want,), GET_BYTES, 20_000)))
        putting.put(1, "orders", block=block_of(b"news"))
        header, body = waiting.receive()
        assert decode(header)[0] == 9
        assert values_in(body) == [(0, b"news")]


def test_a_routing_id_chosen_by_a_peer_is_not_believed(broker: oncemq.Broker) -> None:
    """It could be somebody else's: such a peer is met with silence, everybody else is served."""
    with Raw(broker.address) as good:
        stranger = Raw(broker.address, routing_id=b"mine")
        with stranger:
            stranger.send(encode(1, p.Heartbeat()))
            good.ask(p.Heartbeat(), p.HeartbeatDone)
            good.ask(p.Heartbeat(), p.HeartbeatDone)
            assert stranger.is_silent()

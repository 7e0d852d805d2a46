# SPDX-License-Identifier: Apache-2.0
"""What a live broker does with bad input: a refusal with a code or silence, a counter, nothing stored, everybody else served."""

from __future__ import annotations

import os
import random
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

import oncemq
from oncemq.core import packets as p
from oncemq.limits import BLOCK_BYTES_MAX, HEADER_BYTES_MAX, MIB, VALUE_BYTES_MAX
from oncemq.model.block import checksum
from oncemq.wire.codec import decode, encode
from tests.wire.raw import Raw, block_of

BAD_NAMES = [
    "",
    ".",
    "..",
    "a..b",
    ".a",
    "a.",
    "a/b",
    "../a",
    "a b",
    "nul\0",
    "line\n",
    "a\n",
    "$",
    "$sys.a",
    "ü",
    "x" * 256,
    "x" * 10_000,
]
GOOD_NAMES = ["a", "A.b-c_9", "x" * 255, "0", "a." * 127 + "a"]


class Watched:
    """A running broker, and what must hold for it after every attack."""

    def __init__(self, address: str, honest: oncemq.Client) -> None:
        self.address = address
        self.topic = "t" + os.urandom(8).hex()
        """A topic that no other test uses."""
        self._honest = honest
        self._before = self._stats()
        self._stored_before = self._stored()

    def _stats(self) -> Counter[str]:
        return Counter(self._honest.admin.stats().values)

    def _stored(self) -> int:
        return sum(info.end for info in self._honest.topics() if info.topic != "honest")

    def grown(self, name: str) -> int:
        """By how much a number of the broker's statistics grew since this test began."""
        return self._stats()[name] - self._before[name]

    def count(self, name: str) -> int:
        return self.grown(f"count_{name}")

    def assert_well(self, stored: int = 0) -> None:
        """Nothing but `stored` messages were stored, and an honest client puts and gets as always."""
        assert self._stored() - self._stored_before == stored
        offset = self._honest.put("honest", b"value").offset
        message = self._honest.get("honest", timeout=5)
        assert message is not None
        assert (message.offset, message.value) == (offset, b"value")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, oncemq.Client]]:
    """One broker for all attacks: whoever survives them one by one must survive them all."""
    place = tmp_path_factory.mktemp("attacked")
    with (
        oncemq.Broker(place / "broker") as broker,
        oncemq.connect(broker.address, id="honest", state=place / "honest") as client,
    ):
        client.subscribe("honest")
        yield broker.address, client


@pytest.fixture
def watched(honest: tuple[str, oncemq.Client]) -> Watched:
    return Watched(*honest)


def head(code: int, version: int = 1) -> bytes:
    return struct.pack("<BBHI", version, code, 0, 7)


# --- not a packet ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([head(200) + b"\x90"], "unknown_packet"),
        ([head(19) + b"\x90"], "unknown_packet"),
        ([encode(7, p.CommandDone(1))], "unknown_packet"),
        ([head(16, version=9) + b"\x90"], "bad_version"),
        ([head(16)], "malformed"),
        ([head(3) + b"\xff" * 100, b"block"], "malformed"),
        ([encode(7, p.Stats()), b"", b""], "malformed"),
        ([encode(7, p.Stats())] * 1_000, "malformed"),
        ([encode(7, p.Put(b"s" * 16, b"s" * 16, 1, 1, ("t",)))], "malformed"),
        ([head(16) + bytes(HEADER_BYTES_MAX)], "too_large"),
        ([encode(7, p.Put(b"s" * 16, b"s" * 16, 1, 1, ("t",))), bytes(BLOCK_BYTES_MAX + 1)], "too_large"),
        ([head(13) + b"\x91" * 60_000], "malformed"),
        ([head(1) + b"\x92\xa2\xff\xfe\xc4\x10" + b"s" * 16], "malformed"),
        ([head(7) + msgspec.msgpack.encode(["t", 0, -5, 2**64 - 1, 10])], "malformed"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)}x{value[0][:12].hex()}",
)
@pytest.mark.parametrize("kind", [pytest.param(zmq.DEALER, id="DEALER"), pytest.param(zmq.REQ, id="REQ")])
def test_what_cannot_be_read_is_refused_and_counted(watched: Watched, frames: list[bytes], code: str, kind: int) -> None:
    """The refusal carries the request number, so whoever sent it knows what was wrong."""
    with Raw(watched.address, kind) as client:
        client.send(*frames)
        request, answer = decode(client.receive()[0])
        assert isinstance(answer, p.Refused)
        assert (request, answer.code) == (7, code)
        assert isinstance(client.say(p.Heartbeat())[0], p.HeartbeatDone), "the same connection goes on"
    assert watched.count(f"malformed_{code}") == 1
    watched.assert_well()


@pytest.mark.parametrize("frames", [[b"x"], [b"", b""], [b"", b"", b"", b""], [b"\x01\x10\0\0"], [b"short", b"x" * 1_000]])
def test_what_is_not_even_a_packet_is_met_with_silence(watched: Watched, frames: list[bytes]) -> None:
    """It is counted all the same."""
    with Raw(watched.address) as client:
        client.send(*frames)
        client.send(encode(3, p.Heartbeat()))
        assert decode(client.receive()[0])[0] == 3, "the first thing said is the answer to what came next"
    assert watched.count("malformed_malformed") == 1
    watched.assert_well()


def test_random_frames_harm_nobody(watched: Watched) -> None:
    """Two thousand packets of anything, from a fixed seed."""
    chance = random.Random(4)
    with Raw(watched.address) as client:
        for _ in range(2_000):
            code = chance.choice([*p.PACKETS, chance.randrange(256)])
            body = chance.choice([chance.randbytes(chance.randrange(60)), msgspec.msgpack.encode([chance.randrange(9)] * 5)])
            frames = [head(code) + body, *[chance.randbytes(chance.randrange(40)) for _ in range(chance.randrange(3))]]
            if p.PACKETS.get(code) is not p.Shutdown:
                client.send(*frames)
        client.send(encode(99, p.Heartbeat()))
        while decode(client.receive()[0])[0] != 99:
            pass
    assert sum(watched.count(f"malformed_{code}") for code in ("malformed", "unknown_packet", "bad_version")) > 1_000
    watched.assert_well()


def test_a_flood_of_garbage_does_not_keep_others_waiting(watched: Watched) -> None:
    """Garbage counts towards a drain, so its sender has no more than its turn."""
    with Raw(watched.address) as client:
        for _ in range(8_000):
            client.send(b"garbage" * 20)
        watched.assert_well()
        client.send(encode(5, p.Heartbeat()))
        while decode(client.receive()[0])[0] != 5:
            pass
    assert watched.count("malformed_bad_version") == 8_000


def test_a_frame_beyond_all_limits_ends_the_connection_only(watched: Watched) -> None:
    """ZeroMQ does not even read it; the next connection is as good as new."""
    with Raw(watched.address) as client:
        client.send(head(3), bytes(BLOCK_BYTES_MAX + 2 * MIB))
        watched.assert_well()
    with Raw(watched.address) as client:
        client.ask(p.Heartbeat(), p.HeartbeatDone)


# --- bare TCP -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(64),
        b"\xff" * 5_000,
        b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL".ljust(64, b"\0"),
        b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL".ljust(64, b"\0") + b"\4\xff" * 500,
        random.Random(5).randbytes(10_000),
    ],
    ids=range(8),
)
def test_bytes_on_a_bare_connection_harm_nobody(watched: Watched, said: bytes) -> None:
    """Neither a wrong greeting, nor half of one, nor garbage after a good one."""
    host, port = watched.address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(said)
        watched.assert_well()


def test_many_idle_connections_harm_nobody(watched: Watched) -> None:
    """They hold a place until the handshake times out, no more."""
    host, port = watched.address.removeprefix("tcp://").split(":")
    connections = [socket.create_connection((host, int(port))) for _ in range(90)]
    try:
        watched.assert_well()
    finally:
        for connection in connections:
            connection.close()


# --- names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name)[:20])
def test_a_bad_topic_name_is_refused_wherever_it_comes(watched: Watched, name: str) -> None:
    """Subscribe, create, put, delete, read: no such name ever gets into the journal's topics."""
    with Raw(watched.address) as client:
        client.hello()
        session = client.session
        assert client.refused(p.Subscribe(session, 1, name)) == "invalid_name"
        assert client.refused(p.CreateTopic(session, 2, name, "forever")) == "invalid_name"
        assert client.put(1, name, block=block_of(b"x")).code == "invalid_name"
        assert client.put(2, "good", name, block=block_of(b"x")).code == "invalid_name"
        assert client.refused(p.DeleteTopic(session, 3, name)) == "no_such_topic"
        assert client.refused(p.Unsubscribe(session, 4, name)) == "no_such_topic"
        assert client.refused(p.Read(name, 0, 0, 1, 100)) == "no_such_topic"
    assert watched.count("refused_invalid_name") == 2
    assert watched.grown("topics") == 0
    watched.assert_well()


@pytest.mark.parametrize("name", GOOD_NAMES, ids=lambda name: repr(name)[:20])
def test_a_good_topic_name_is_taken(watched: Watched, name: str) -> None:
    """Up to 255 bytes of letters, digits, '_' and '-', in words."""
    with Raw(watched.address) as client:
        client.hello()
        assert client.ask(p.Subscribe(client.session, 1, name), p.SubscribeDone).subscription.topic == name
        assert client.put(1, name, block=block_of(b"x")).outcomes[0].first_offset == 0
    watched.assert_well(stored=1)


@pytest.mark.parametrize("name", [*BAD_NAMES, "$ephemeral.x", "$ephemeral."], ids=lambda name: repr(name)[:20])
def test_a_bad_client_id_is_refused(watched: Watched, name: str) -> None:
    """A durable client may not call itself ephemeral either."""
    with Raw(watched.address) as client:
        assert client.refused(p.Hello(name, b"s" * 16)) == "invalid_name"
    assert watched.grown("clients") == 0


def test_a_topic_twice_in_one_put_is_refused(watched: Watched) -> None:
    """Once per topic is what atomic means."""
    with Raw(watched.address) as client:
        client.hello()
        client.ask(p.Subscribe(client.session, 1, watched.topic), p.SubscribeDone)
        assert client.put(1, watched.topic, watched.topic, block=block_of(b"x")).code == "invalid_name"
    watched.assert_well()


# --- sessions and numbers -------------------------------------------------------------------------------


def test_nobody_acts_without_a_session(watched: Watched) -> None:
    """Every packet that changes something names one; a made-up one opens nothing."""
    nobody = b"n" * 16
    with Raw(watched.address) as client:
        for packet in (
            p.Subscribe(nobody, 1, watched.topic),
            p.Unsubscribe(nobody, 1, watched.topic),
            p.CreateTopic(nobody, 1, watched.topic),
            p.DeleteTopic(nobody, 1, "honest"),
            p.DeleteSubscription(nobody, 1, 1),
            p.ForgetClient(nobody, 1, "honest"),
            p.Get(nobody, (p.Want(1, 1, 0),), 100),
            p.Ack(nobody, 1, 1, 0),
            p.Goodbye(nobody),
        ):
            assert client.refused(packet) == "no_session"
        assert client.refused(p.Put(nobody, nobody, 1, 1, ("honest",)), block_of(b"x")) == "no_session"
        assert client.refused(p.Hello("h", b"\0" * 16)) == "malformed"
        assert client.refused(p.Shutdown(nobody)) == "wrong_start"
    watched.assert_well()


def test_numbers_that_cannot_be_are_refused_and_move_nothing(watched: Watched) -> None:
    """Put numbers out of turn, offsets beyond the end, streams of others."""
    huge = 2**63 - 1
    with Raw(watched.address) as client:
        client.hello()
        session = client.session
        info = client.ask(p.Subscribe(session, 1, watched.topic), p.SubscribeDone).subscription
        refusal = client.ask(p.Put(session, session, huge, 1, (watched.topic,)), p.Refused, block_of(b"x"))
        assert (refusal.code, refusal.expected) == ("gap_in_stream", 1)
        assert client.refused(p.Put(session, b"o" * 16, 1, 1, (watched.topic,)), block_of(b"x")) == "unknown_stream"
        for want in (p.Want(info.subscription_id, info.topic_id, huge), p.Want(info.subscription_id, info.topic_id, 0, huge)):
            assert client.refused(p.Get(session, (want,), 100)) == "beyond_end"
        assert client.refused(p.Ack(session, info.subscription_id, info.topic_id, huge)) == "beyond_end"
        assert client.refused(p.Read(watched.topic, 0, huge, huge, 100)) == "beyond_end"
        assert client.refused(p.Subscribe(session, 2, watched.topic + "-other", "offset", huge)) == "beyond_end"
        assert client.refused(p.Subscribe(session, 3, watched.topic + "-other", "whenever")) == "malformed"
        assert client.refused(p.Subscribe(session, 4, watched.topic + "-other", "new", 0, "nobody")) == "malformed"
        assert client.refused(p.CreateTopic(session, 5, watched.topic + "-other", "always")) == "malformed"
        rows = client.ask(p.ListSubscriptions(watched.topic), p.Subscriptions).subscriptions
        assert rows[0].info.cursor == 0
    watched.assert_well()


# --- blocks ---------------------------------------------------------------------------------------------


def test_a_corrupt_block_is_refused_and_consumes_no_number(watched: Watched) -> None:
    """Every kind of damage; then the right block is taken under the same number."""
    good = block_of(b"one", b"two")
    flipped = bytearray(good)
    flipped[-1] ^= 1
    with Raw(watched.address) as client:
        client.hello()
        client.ask(p.Subscribe(client.session, 1, watched.topic), p.SubscribeDone)
        put = p.Put(client.session, client.session, 1, 2, (watched.topic,))
        for block in (b"", b"x", good[:-1], good + b"\0", bytes(flipped), bytes(len(good))):
            assert client.refused(put, block) == "corrupt_block"
        assert client.refused(p.Put(client.session, client.session, 1, 3, (watched.topic,)), good) == "malformed"
        assert client.put(1, watched.topic, block=good, count=2).outcomes[0].first_offset == 0
    assert watched.count("refused_corrupt_block") == 6
    watched.assert_well(stored=2)


def test_a_block_whose_offsets_lie_is_told_as_damaged_and_can_be_skipped(watched: Watched, tmp_path: Path) -> None:
    """H17: offsets 0, 3, 3000, 6 pass every check of the outline; a reader is told, skips it, and goes on."""
    block = bytearray(block_of(b"abc", b"", b"def"))
    struct.pack_into("<4i", block, 32 + 3 * 8, 0, 3, 3000, 6)
    struct.pack_into("<I", block, 12, checksum(block))
    with (
        oncemq.connect(watched.address, id="reader", state=tmp_path / "reader") as reader,
        Raw(watched.address) as client,
    ):
        reader.subscribe(watched.topic)
        client.hello()
        client.put(1, watched.topic, block=block_of(b"before"))
        client.put(2, watched.topic, block=bytes(block), count=3)
        client.put(5, watched.topic, block=block_of(b"behind"))
        message = reader.get(watched.topic, timeout=5)
        assert message is not None
        assert message.value == b"before"
        for _ in range(2):
            with pytest.raises(oncemq.Damaged) as damage:
                reader.get(watched.topic, timeout=5)
            assert (damage.value.first, damage.value.end) == (1, 4)
        reader.settle(watched.topic, "skip")
        message = reader.get(watched.topic, timeout=5)
        assert message is not None
        assert (message.offset, message.value) == (4, b"behind")
        with pytest.raises(oncemq.Damaged):
            list(reader.read(watched.topic, 1, 4))
    watched.assert_well(stored=5)


def test_a_value_of_sixteen_mebibytes_is_stored_and_got(watched: Watched, tmp_path: Path) -> None:
    """The limit itself is allowed, at the client and on the wire."""
    value = b"v" * VALUE_BYTES_MAX
    with oncemq.connect(watched.address, id="large", state=tmp_path / "large") as client:
        client.subscribe(watched.topic)
        assert client.put(watched.topic, value).stored
        message = client.get(watched.topic, timeout=20)
        assert message is not None
        assert message.value == value


def test_one_byte_more_is_refused_before_it_is_stored(watched: Watched, tmp_path: Path) -> None:
    """By our client before anything leaves it, by the broker whoever sends it: that is the number's one outcome."""
    value = b"v" * (VALUE_BYTES_MAX + 1)
    with oncemq.connect(watched.address, id="larger", state=tmp_path / "larger") as client:
        client.subscribe(watched.topic)
        for put in (client.put, lambda topic, value: client.put_many(topic, [value])):
            with pytest.raises(oncemq.MessageTooLarge, match="16,777,217 bytes is over the limit of 16,777,216"):
                put(watched.topic, value)
        assert client.pending == 0
        with Raw(watched.address) as hostile:
            hostile.hello()
            assert hostile.put(1, watched.topic, block=block_of(value)).code == "too_large"
            again = hostile.put(1, watched.topic, block=block_of(value))
            assert (again.code, again.duplicate) == ("too_large", True)
            assert hostile.put(2, watched.topic, block=block_of(b"small")).outcomes[0].first_offset == 0
    watched.assert_well(stored=1)

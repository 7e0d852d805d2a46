# SPDX-License-Identifier: Apache-2.0
"""Links between nodes over real sockets: bounded queues, broken ones told at once, and nothing hostile that does harm."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

import oncemq
from oncemq.adapters import zmq_mesh
from oncemq.adapters.zmq_mesh import ZmqLinks
from oncemq.adapters.zmq_network import ZmqNetwork
from oncemq.client.broker import MeshPlace
from oncemq.limits import (
    MESH_LINK_BACKLOG,
    MESH_LINK_BUNDLE_BYTES,
    MESH_LINK_BYTES,
    MESH_LINK_PACKETS,
    MESH_LINK_SPARE_MS,
    MESH_LINKS_MAX,
    MIB,
)
from oncemq.mesh.packets import Baseline, Had, Join, Origin, Spread, Vector
from oncemq.wire.mesh_codec import apart, encode
from tests.cli.harness import wait_until

ANYWHERE = "tcp://127.0.0.1:*"


@contextmanager
def links() -> Iterator[tuple[ZmqNetwork, ZmqLinks]]:
    network = ZmqNetwork(ANYWHERE)
    try:
        yield network, ZmqLinks(network, ANYWHERE)
    finally:
        network.close()


def wait_for(network: ZmqNetwork, is_so: Callable[[], bool], what: str) -> None:
    """Look again whenever a socket has something to say."""

    def look() -> bool:
        network.wait(20)
        return is_so()

    wait_until(look, what)


def test_packets_come_in_order_and_a_waiting_broker_wakes_up() -> None:
    with links() as (_, here), links() as (network, there):
        for number in range(500):
            assert here.send(there.address, [b"%d" % number, b"block"])
        got: list[bytes] = []

        def collect() -> bool:
            here.broken()  # Looks after what waits.
            while (frames := there.receive()) is not None:
                assert sum(map(len, frames)) <= MESH_LINK_BUNDLE_BYTES
                got.extend(map(bytes, frames[::2]))
            return len(got) == 500

        wait_for(network, collect, "all packets")
        assert got == [b"%d" % number for number in range(500)]


def test_who_cannot_be_reached_is_told_at_once() -> None:
    with links() as (network, here):
        with links() as (_, there):
            gone = there.address
        assert here.send(gone, [b"hello"])
        wait_for(network, lambda: here.broken() == [gone], "the connection is refused")


def test_a_node_that_dies_is_told_at_once() -> None:
    with links() as (network, here):
        with links() as (other, there):
            assert here.send(there.address, [b"hello"])
            wait_for(other, lambda: there.receive() is not None, "it was heard")
            gone = there.address
        wait_for(network, lambda: here.broken() == [gone], "the connection broke")


def test_a_node_that_takes_nothing_fills_its_own_queue_only() -> None:
    """Packets to it are dropped once its bounds are met, by count and by bytes; another node hears everything."""
    with links() as (network, here), links() as (_, slow), links() as (other, quick):
        large = bytes(4 * MIB)
        bound = MESH_LINK_BYTES // len(large) + 2 * (MESH_LINK_BACKLOG + 1)
        assert _fill(here, slow.address, [b"packet", large]) <= bound
        assert here.room_bytes(slow.address) < len(large)
        assert here.send(quick.address, [b"still here"])
        wait_for(other, lambda: quick.receive() is not None, "the other one hears")
        with links() as (_, small):
            assert _fill(here, small.address, [bytes(10_000)]) < 20 * MESH_LINK_PACKETS
            assert here.room_bytes(small.address) == 0
        assert network.wait(0) in {True, False}


def test_small_packets_that_wait_go_together_and_are_the_same_packets() -> None:
    """ZeroMQ's short queues count what is sent as one: a thousand packets fit, and a node hears each of them."""
    packets = [
        [encode("tcp://127.0.0.1:9", Spread(Origin(b"n" * 16, b"s" * 16), each, ("t",), "p", 1)), b"block %d" % each]
        if each % 3
        else [encode("tcp://127.0.0.1:9", Join(each))]
        for each in range(1_000)
    ]
    with links() as (network, here), links() as (_, there):
        assert all(here.send(there.address, packet) for packet in packets)
        got: list[list[bytes]] = []
        messages = [0]

        def collect() -> bool:
            here.broken()
            while (frames := there.receive()) is not None:
                messages[0] += 1
                got.extend([*map(bytes, packet)] for packet in apart(frames))
            return len(got) == len(packets)

        wait_for(network, collect, "all packets")
        assert got == packets
        assert messages[0] < len(packets)


def test_what_waits_for_a_node_that_is_dropped_is_forgotten_and_a_new_packet_passes_it() -> None:
    with links() as (_, here), links() as (other, slow):
        sent = _fill(here, slow.address, [b"packet", bytes(4 * MIB)])
        waiting = (MESH_LINK_BYTES - here.room_bytes(slow.address)) // (4 * MIB)
        assert waiting > 0
        here.drop(slow.address)
        assert here.room_bytes(slow.address) == MESH_LINK_BYTES
        assert here.send(slow.address, [b"goodbye"])
        got: list[bytes] = []

        def collect() -> bool:
            while (frames := slow.receive()) is not None:
                got.append(bytes(frames[0]))
            return b"goodbye" in got

        wait_for(other, collect, "the goodbye")
        assert got.count(b"packet") <= sent - waiting, "what ZeroMQ had already"
        assert here.broken() == []


def _fill(here: ZmqLinks, address: str, packet: list[bytes]) -> int:
    """Send until there is no room; return how many went."""
    sent = 0
    while here.send(address, packet):
        sent += 1
        assert sent < 100_000, "no bound"
    return sent


def test_however_many_are_spoken_to_links_are_bounded_and_those_in_use_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes up senders, or a crowd that joins at once, must not use up the descriptors of clients and journal."""
    now_ms = [1_000_000]
    monkeypatch.setattr(zmq_mesh, "_now_ms", lambda: now_ms[0])
    with links() as (_, here), links() as (network, neighbour):
        assert here.send(neighbour.address, [b"first"])
        strangers = [f"tcp://127.0.0.1:{port}" for port in range(1, MESH_LINKS_MAX + 50)]
        taken = [here.send(address, [b"hello"]) for address in strangers]
        assert taken == [True] * (MESH_LINKS_MAX - 1) + [False] * 50, "all of them are in use, as far as one can tell"
        now_ms[0] += MESH_LINK_SPARE_MS
        assert here.send(neighbour.address, [b"second"])
        assert here.send("tcp://127.0.0.1:9999", [b"hello"]), "one that was not used gives way"
        got: list[bytes] = []

        def collect() -> bool:
            while (frames := neighbour.receive()) is not None:
                got.append(bytes(frames[0]))
            return len(got) == 2

        wait_for(network, collect, "the neighbour's link is not the one that went")


@pytest.mark.parametrize("address", ["ipc:///tmp/somewhere", "inproc://here", "no address", "tcp://", ""])
def test_an_address_that_somebody_made_up_is_not_there(address: str) -> None:
    with links() as (_, here):
        assert here.send(address, [b"hello"])
        assert here.broken() == [address]


# --- hostile packets ------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path) -> Iterator[oncemq.Broker]:
    with oncemq.Broker(tmp_path / "node", mesh=MeshPlace(ANYWHERE)) as running:
        yield running


def test_whatever_comes_to_a_node_it_goes_on(node: oncemq.Broker) -> None:
    chance = random.Random(7)
    origin = Origin(b"n" * 16, b"s" * 16)
    bad_block = [encode("tcp://127.0.0.1:9", Spread(origin, 1, ("t",), "p", 1)), b"no block"]
    twice = [encode("tcp://127.0.0.1:9", Spread(origin, 1, ("t", "t"), "p", 1)), b""]
    with oncemq.connect(node.address) as client:
        status = client.admin.mesh_status()
        own = Origin(b"x" * 16, status.start_id)
        forged = [encode("tcp://127.0.0.1:9", Spread(own, 1, ("t",), "p", 1)), b"block"]
        client.put("t", b"before")
        packets: list[list[bytes]] = [bad_block, twice, forged, [b""], [b"", b""], [b"x"] * 9]
        packets += [[encode("inproc://x", Join(1))], [encode("tcp://127.0.0.1:9", Vector((Had(origin, 2**62),)))]]
        packets += [[encode("tcp://127.0.0.1:9", Baseline((Had(origin, 9),)))]]
        packets += [[os.urandom(chance.randrange(200)) for _ in range(chance.randrange(1, 4))] for _ in range(300)]
        context = zmq.Context[zmq.Socket[bytes]]()
        with context.socket(zmq.PUSH) as socket:
            socket.connect(status.address)
            for packet in packets:
                socket.send_multipart(packet)
            wait_until(lambda: client.admin.mesh_status().counters.get("malformed", 0) >= 250, "all of it was heard")
        context.term()
        found = client.admin.mesh_status()
        assert found.counters["forged"] == 1
        assert found.counters["unsound"] == 2
        assert [(each.node, each.had) for each in found.origins] == [(status.node, 1)], "nothing of it was believed"
        assert client.put("t", b"after").stored

# SPDX-License-Identifier: Apache-2.0
"""Whole nodes, simulated: one dies at every instant of taking and telling a message, and all is delivered once everywhere."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence

import msgspec
import pytest

from oncemq.core.effects import Effects
from oncemq.core.records import BaselineTaken, Origin
from oncemq.errors import BrokerUnreachable, Gap, PutPending, Refused
from oncemq.mesh.effects import Serve
from oncemq.mesh.packets import Origin as FarOrigin
from oncemq.mesh.packets import Spread
from oncemq.mesh.settings import MeshSettings
from oncemq.model.block import cut_block
from oncemq.sim.mesh_nodes import NodeWorld, Wires, mesh_of
from oncemq.sim.scheduler import Scheduler
from oncemq.wire.mesh_codec import decode, encode

POINTS = (
    "broker.after_receive",
    "broker.before_append",
    "broker.after_append",
    "broker.after_sync",
    "broker.after_answers",
    "mesh.between_packets",
)
COUNT = 24


def put_all(node: NodeWorld, name: str, count: int = COUNT) -> Callable[[], list[str]]:
    """Put, through whatever deaths; return what was confirmed, or kept to be sent."""

    def body() -> list[str]:
        client = node.connect(name)
        messages = [f"{name}-{number}" for number in range(count)]
        for message in messages:
            try:
                client.put("t", message.encode())
            except PutPending:
                continue
        while client.pending:
            try:
                client.flush()
            except PutPending:
                continue
        return messages

    return body


def subscribe(node: NodeWorld, name: str, topic: str = "t") -> None:
    def body() -> None:
        client = node.connect(name)
        client.subscribe(topic)
        client.close()

    node.run(body)


def get_all(node: NodeWorld, name: str, count: int, topic: str = "t") -> list[str]:
    """Get so many messages, and whatever comes behind them by mistake."""

    def body() -> list[str]:
        client, found = node.connect(name), list[str]()
        while len(found) < count:
            try:
                found += [message.value.decode() for message in client.get_many(topic, timeout=60)]
            except BrokerUnreachable:
                continue
        node.clock.pause(20_000)
        found += [message.value.decode() for message in client.get_many(topic, timeout=1)]
        client.ack(topic)
        client.close()
        return found

    return node.run(body)


@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("who", [0, 1, 2])
def test_a_node_dies_anywhere_and_every_node_delivers_everything_once(who: int, point: str, power_cut: bool) -> None:
    """Node 0 puts, node 1 relays (three in a row), node 2 gets; each of them dies once in the middle of it."""
    nodes = mesh_of(17, 3)
    for node in nodes:
        subscribe(node, f"reader-{node.address}")
    with nodes[who].dying_at(point, 3 if who else 12, power_cut=power_cut) as deaths:
        wanted = nodes[0].run(put_all(nodes[0], "writer"))
        got = [get_all(node, f"reader-{node.address}", COUNT) for node in nodes]
    assert deaths
    assert got[0] == wanted
    assert [sorted(each) for each in got] == [sorted(wanted)] * 3
    assert all(keeps_each_origins_order(each, wanted) for each in got)
    assert_in_step(nodes)


def keeps_each_origins_order(got: list[str], put: list[str]) -> bool:
    """What a node put before it died and what it put afterwards are two origins: each in order, the two perhaps mixed."""
    places = [put.index(message) for message in got]
    cuts = range(len(put) + 1)
    return any(all(part == sorted(part) for part in _split(places, cut)) for cut in cuts)


def _split(places: list[int], cut: int) -> tuple[list[int], list[int]]:
    return [each for each in places if each < cut], [each for each in places if each >= cut]


def assert_in_step(nodes: list[NodeWorld]) -> None:
    """What each has of every origin is on its disk, and the same everywhere."""
    vectors = []
    for node in nodes:
        assert node.loop is not None
        assert node.loop.mesh is not None
        state, mesh = node.loop.machine.state, node.loop.mesh.node.state
        logs = {(log.node, log.start_id): log.had for log in state.origins}
        assert logs == {(origin.node, origin.start_id): mesh.had[origin] for origin in mesh.had}
        vectors.append({key: had for key, had in logs.items() if had})
    assert vectors == [vectors[0]] * len(vectors)


@pytest.mark.parametrize("seed", range(6))
def test_lossy_links_lose_nothing(seed: int) -> None:
    nodes = mesh_of(seed, 3)
    wires = nodes[0].links._wires
    wires.loss, wires.repeat, wires.delay_us_max = 0.2, 0.1, 200_000
    for node in nodes:
        subscribe(node, f"reader-{node.address}")
    wanted = nodes[0].run(put_all(nodes[0], "writer"))
    assert [get_all(node, f"reader-{node.address}", COUNT) for node in nodes] == [wanted] * 3


@pytest.mark.parametrize("seed", range(100, 108))
def test_every_node_puts_and_dies_at_random_and_all_deliver_everything_once(seed: int) -> None:
    nodes = mesh_of(seed, 4)
    chance, wires = random.Random(seed), nodes[0].links._wires
    wires.loss, wires.repeat = chance.choice([0.0, 0.05]), chance.choice([0.0, 0.05])
    for node in nodes:
        subscribe(node, f"reader-{node.address}")
    for _ in range(6):
        when, down = chance.randrange(1_500_000), chance.randrange(50_000, 3_000_000)
        chance.choice(nodes).strike(when, down, power_cut=chance.random() < 0.5)
    put: dict[str, list[str]] = {}
    writers = [node.spawn(f"writer-{node.address}", writing(node, put)) for node in nodes]
    assert nodes[0].scheduler.run(until=lambda: not any(each.is_running for each in writers), limit_us=600_000_000)
    assert [each.error for each in writers] == [None] * 4
    wanted = sorted(message for messages in put.values() for message in messages)
    got = [get_all(node, f"reader-{node.address}", len(wanted)) for node in nodes]
    assert [sorted(each) for each in got] == [wanted] * 4
    for node in nodes:
        node.raise_broker_error()
    assert_in_step(nodes)


def writing(node: NodeWorld, put: dict[str, list[str]]) -> Callable[[], None]:
    def body() -> None:
        put[node.address] = put_all(node, f"writer-{node.address}", 16)()

    return body


def test_the_puts_of_a_transaction_come_together_though_their_node_dies_between_the_packets() -> None:
    """Node 0 tells the first of two tied messages and dies; nobody takes it before the second is there, and then both."""
    waiting = [_transact_and_die(hit) for hit in range(1, 6)]
    assert 1 in waiting, "once the first one waited for the second"


def _transact_and_die(hit: int) -> int:
    """Return how many messages waited at the other node when this one had died."""
    nodes = mesh_of(5, 2)
    for name in ("t", "u"):
        subscribe(nodes[1], f"reader-{name}", name)

    def transact() -> None:
        client = nodes[0].connect("worker")
        with client.transaction() as transaction:
            transaction.put("t", b"first")
            transaction.put("u", b"second")

    with nodes[0].dying_at("mesh.between_packets", hit, power_cut=False) as deaths:
        nodes[0].spawn("worker", transact)
        assert nodes[0].scheduler.run(until=lambda: bool(deaths), limit_us=60_000_000)
        nodes[0].pass_time(100)
        there = nodes[1].loop
        assert there is not None
        assert there.mesh is not None
        ends, waiting = {topic.end for topic in there.machine.state.topics.values()}, there.mesh.node.early.count
        assert len(ends) == 1, "both or neither"
        assert get_all(nodes[1], "reader-t", 1) == ["first"]
        assert get_all(nodes[1], "reader-u", 1, "u") == ["second"]
    return waiting


def test_a_node_whose_disk_is_full_takes_nothing_and_catches_up_when_there_is_space() -> None:
    nodes = mesh_of(13, 3)
    for node in nodes:
        subscribe(node, f"reader-{node.address}")
    full = nodes[2]
    full.disk.capacity_bytes = full.disk.used_bytes()
    nodes[0].run(fill(nodes[0]))
    wanted = nodes[0].run(put_all(nodes[0], "writer", 5))
    assert get_all(nodes[1], "reader-node-1", 5) == wanted
    assert full.loop is not None
    assert full.loop.mesh is not None
    assert full.loop.mesh.counters["no_room"] > 0
    assert full.is_broker_running
    full.disk.capacity_bytes = None
    assert get_all(full, "reader-node-2", 5) == wanted
    assert_in_step(nodes)


def test_a_subscription_waits_for_a_node_that_joins_and_is_refused_if_it_never_does() -> None:
    """Whoever subscribes before the baseline would miss what came between; nobody has to know when that is over."""
    nodes = mesh_of(21, 2)
    wires = nodes[0].links._wires
    late = NodeWorld(wires, 7, ("node-0",), MeshSettings())
    wires.cut = {("node-7", "node-0")}
    late.start_broker()
    with pytest.raises(Refused, match="joining"):
        subscribe(late, "hasty")
    wires.scheduler.after(3_000_000, wires.cut.clear)
    subscribe(late, "reader")
    wanted = nodes[0].run(put_all(nodes[0], "writer", 3))
    assert get_all(late, "reader", 3) == wanted


def test_a_node_that_finds_no_mesh_says_why_and_when_that_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "oncemq.mesh")
    wires = Wires(Scheduler(7))
    one, other = NodeWorld(wires, 0, ("node-1",), MeshSettings()), NodeWorld(wires, 1, ("node-0",), MeshSettings())
    one.start_broker()
    one.pass_time(7_000)
    assert "nobody answers at node-1" in caplog.text
    other.start_broker()
    other.pass_time(20_000)
    assert "started without --join" in caplog.text
    assert "in the mesh" not in caplog.messages
    founder = NodeWorld(wires, 2, (), MeshSettings())
    founder.start_broker()
    third = NodeWorld(wires, 3, ("node-0", "node-2"), MeshSettings())
    third.start_broker()
    third.pass_time(60_000)
    assert caplog.messages.count("in the mesh") == 3


def test_a_baseline_of_thousands_of_origins_is_taken_in_pieces_and_written_as_one() -> None:
    """Its record is larger than a segment usually is; the journal makes room for it."""
    (founder,) = mesh_of(41, 1)
    loop = founder.loop
    assert loop is not None
    entries = tuple(Origin(number.to_bytes(16, "big"), number.to_bytes(16, "little"), 7) for number in range(1, 3_001))
    loop.journal.prepare(300_000, 1)
    loop._take(Effects((BaselineTaken(entries),)))
    loop._write()
    founder.restart_broker()
    joiner = NodeWorld(founder.links._wires, 1, (founder.address,), MeshSettings())
    joiner.start_broker()
    subscribe(joiner, "reader")
    wanted = founder.run(put_all(founder, "writer", 3))
    assert get_all(joiner, "reader", 3) == wanted
    assert_in_step([founder, joiner])


def test_while_much_waits_for_a_hole_segments_are_filled_all_the_same() -> None:
    """Any drain may release what waits, so there is always room for all of it; what clients put meanwhile goes there too."""
    (node,) = mesh_of(43, 1)
    assert node.loop is not None
    assert node.loop.mesh is not None
    block = bytes(cut_block([bytes(10_000)], array("q", [1])))
    for number in range(2, 42):
        early = Spread(FarOrigin(b"f" * 16, b"f" * 16), number, ("t",), "far", 1, is_copy=False)
        node.links.inbox.append([encode("node-9", early), block])
    node.pass_time(1_000)
    assert node.loop.mesh.node.early.count == 40
    before = node.loop.journal.statistics().rolls
    node.run(put_all(node, "writer", 100))
    assert node.loop.journal.statistics().rolls - before <= 2
    node.links.inbox.append([encode("node-9", msgspec.structs.replace(early, number=1)), block])
    node.pass_time(1_000)
    assert node.loop.machine.state.origins.next_of(b"f" * 16, b"f" * 16).number == 42


@pytest.mark.parametrize("is_slow", [True, False], ids=["takes nothing", "says nothing"])
def test_what_waits_for_a_neighbour_that_is_given_up_is_dropped_before_it_is_told(
    monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    """It may be many megabytes, and what it is told goes past them; nothing more is read for it."""
    nodes = mesh_of(19, 3)
    links, far = nodes[0].links, nodes[1].address
    said: list[str] = []
    send, drop = links.send, links.drop
    is_stuck = [is_slow]

    def watched_send(address: str, frames: Sequence[bytes | bytearray | memoryview]) -> bool:
        if address == far and is_stuck[0]:
            return False
        said.extend([type(decode([*frames])[1]).__name__] if address == far else [])
        return send(address, frames)

    def watched_drop(address: str) -> None:
        said.append(f"drop {address}")
        is_stuck[0] = False
        drop(address)

    monkeypatch.setattr(links, "send", watched_send)
    monkeypatch.setattr(links, "drop", watched_drop)
    links._wires.cut = set() if is_slow else {(far, nodes[0].address)}
    assert nodes[0].loop is not None
    assert nodes[0].loop.mesh is not None
    side = nodes[0].loop.mesh
    side._serving.append(Serve(far, FarOrigin(b"f" * 16, b"f" * 16), 1, 9, True))
    monkeypatch.setattr(links, "room_bytes", lambda _: 0)
    nodes[0].pass_time(10_000)
    assert f"drop {far}" in said
    assert not side._serving
    if is_slow:
        assert said[:2] == [f"drop {far}", "Disconnect"]


def test_h37_a_node_set_back_to_an_older_copy_takes_its_own_lost_messages_back_and_reuses_no_number() -> None:
    nodes = mesh_of(31, 3)
    subscribe(nodes[0], "reader")
    subscribe(nodes[2], "witness")
    before = nodes[0].run(put_all(nodes[0], "early", 5))
    copy = nodes[0].disk.copy()
    lost = nodes[0].run(put_all(nodes[0], "lost", 5))
    nodes[0].pass_time(2_000)  # Until the others have heard of them.
    nodes[0].kill_broker()
    nodes[0].disk.set_back(copy)
    nodes[0].start_broker()
    after = nodes[0].run(put_all(nodes[0], "late", 5))
    wanted = sorted([*before, *lost, *after])
    assert sorted(get_all(nodes[0], "reader", 15)) == wanted
    assert sorted(get_all(nodes[2], "witness", 15)) == wanted
    assert_in_step(nodes)


def test_a_split_heals_and_everything_put_on_both_sides_is_delivered_once() -> None:
    nodes = mesh_of(11, 4)
    for node in nodes:
        subscribe(node, f"reader-{node.address}")
    wires, sides = nodes[0].links._wires, (nodes[:2], nodes[2:])
    wires.cut = {(a.address, b.address) for one, other in (sides, sides[::-1]) for a in one for b in other}
    nodes[0].pass_time(20_000)  # Until each side has given the other up.
    wanted = [*nodes[0].run(put_all(nodes[0], "left", 5)), *nodes[3].run(put_all(nodes[3], "right", 5))]
    nodes[0].pass_time(5_000)
    assert get_all(nodes[1], "reader-node-1", 5) == wanted[:5]
    wires.cut = set()
    assert sorted(get_all(nodes[1], "reader-node-1", 5)) == sorted(wanted[5:])
    for node in (nodes[0], nodes[2], nodes[3]):
        assert sorted(get_all(node, f"reader-{node.address}", 10)) == sorted(wanted)


def test_what_is_beyond_retention_is_a_gap_for_every_subscription() -> None:
    """A node is away while the others forget what it missed: it is told, and goes on behind it."""
    settings = MeshSettings(retention_ms=30_000)
    nodes = mesh_of(3, 3, settings)
    for node in nodes:
        subscribe(node, f"reader-{node.address}")
    nodes[2].kill_broker()
    nodes[0].run(put_all(nodes[0], "writer"))
    # Segments go as a whole: others fill them, until the first ones are old and sealed.
    for _ in range(4):
        nodes[0].pass_time(20_000)
        nodes[0].run(fill(nodes[0]))
    for node in nodes[:2]:
        get_rest(node)
    nodes[0].pass_time(40_000)
    nodes[1].restart_broker()  # What it has trimmed is not missed by its own start.
    nodes[2].start_broker()

    def body() -> bool:
        with nodes[2].connect("reader-node-2") as client:
            try:
                client.get("t", timeout=300)
            except Gap:
                return True
            return False

    assert nodes[2].run(body)
    assert nodes[2].loop is not None
    assert nodes[2].loop.machine.state.origins.lost > 0
    wanted = nodes[0].run(put_all(nodes[0], "late", 3))
    assert get_all(nodes[2], "reader-node-2", 3)[-3:] == wanted


def test_h38_what_is_damaged_at_the_only_node_that_has_it_is_a_gap_and_stops_nothing() -> None:
    nodes = mesh_of(5, 2, MeshSettings(retention_ms=120_000))
    subscribe(nodes[1], "reader")
    nodes[1].kill_broker()
    wanted = nodes[0].run(put_all(nodes[0], "writer", 6))
    disk = nodes[0].disk
    segment = max(name for name in disk.names() if name.startswith("segment-"))
    nodes[0].run(fill(nodes[0]))  # What is read lately is in memory.
    nodes[0].pass_time(20_000)
    disk.flip(segment, disk.open(segment).read(0, disk.size_of(segment)).index(b"writer-3"))
    nodes[1].start_broker()
    found: list[str] = []

    def body() -> None:
        with nodes[1].connect("reader") as client:
            while len(found) < 5 or "gap" not in found:
                try:
                    found.extend(message.value.decode() for message in client.get_many("t", timeout=300))
                except Gap:
                    found.append("gap")

    nodes[1].run(body)
    assert found == [*wanted[:3], "gap", *wanted[4:]]


def fill(node: NodeWorld) -> Callable[[], None]:
    def body() -> None:
        with node.connect() as client:
            for _ in range(8):
                client.put("other", bytes(20_000))

    return body


def get_rest(node: NodeWorld) -> None:
    def body() -> None:
        with node.connect(f"reader-{node.address}") as client:
            while client.get_many("t", timeout=1):
                pass

    node.run(body)

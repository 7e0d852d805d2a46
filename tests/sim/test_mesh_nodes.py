# SPDX-License-Identifier: Apache-2.0
"""Whole nodes, simulated: one dies at every instant of taking and telling a message, and all is delivered once everywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncemq.errors import BrokerUnreachable, Gap, PutPending
from oncemq.mesh.settings import MeshSettings
from oncemq.sim.mesh_nodes import NodeWorld, mesh_of

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


def subscribe(node: NodeWorld, name: str) -> None:
    def body() -> None:
        client = node.connect(name)
        client.subscribe("t")
        client.close()

    node.run(body)


def get_all(node: NodeWorld, name: str, count: int) -> list[str]:
    """Get so many messages, and whatever comes behind them by mistake."""

    def body() -> list[str]:
        client, found = node.connect(name), list[str]()
        while len(found) < count:
            try:
                found += [message.value.decode() for message in client.get_many("t", timeout=60)]
            except BrokerUnreachable:
                continue
        node.clock.pause(20_000)
        found += [message.value.decode() for message in client.get_many("t", timeout=1)]
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

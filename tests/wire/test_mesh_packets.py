# SPDX-License-Identifier: Apache-2.0
"""Packets between nodes as bytes: every type there and back, golden bytes, and nothing but MalformedPacket on anything else."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.errors import MalformedPacket
from oncemq.limits import BLOCK_BYTES_MAX, MESH_LINK_PACKETS, MIB
from oncemq.mesh import packets as p
from oncemq.wire.mesh_codec import apart, decode, encode
from tests.wire.samples import drawn

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "mesh_packets.json"
REGENERATE = "ONCEMQ_REGENERATE_GOLDEN"
ME = "tcp://10.0.0.1:7000"
A, B = "tcp://10.0.0.2:7000", "tcp://10.0.0.3:7000"
ORIGIN = p.Origin(b"n" * 16, b"s" * 16)
HAD = p.Had(ORIGIN, 77)

SAMPLES: dict[str, p.MeshPacket] = {
    "Join": p.Join(2**40),
    "ForwardJoin": p.ForwardJoin(A, 6),
    "Neighbour": p.Neighbour(7, p.Priority.BRIDGE, (A, B), A),
    "Neighbour in short": p.Neighbour(7, p.Priority.LOW),
    "NeighbourReply": p.NeighbourReply(7, True, A, (A, B)),
    "Disconnect": p.Disconnect(7, p.Reason.EVICTED, A, (B,)),
    "Shuffle": p.Shuffle(A, (A, B), 5),
    "ShuffleReply": p.ShuffleReply((A, B)),
    "Heartbeat": p.Heartbeat(2**53 - 1, b"digest!!", 2**52, 77),
    "Probe": p.Probe((A,)),
    "ProbeReply": p.ProbeReply(2**52, (B,)),
    "Spread": p.Spread(ORIGIN, 78, ("orders", "invoices"), "billing", 1_000),
    "Spread, tied to the next": p.Spread(ORIGIN, 78, ("orders",), "billing", 1, True, True),
    "Vector": p.Vector((HAD,), None, ORIGIN),
    "Vector, an answer": p.Vector((HAD,), is_answer=True),
    "Request": p.Request((p.Range(ORIGIN, 78, 90),)),
    "Denied": p.Denied(p.Range(ORIGIN, 78, 80), True, False),
    "AskBaseline": p.AskBaseline(),
    "Baseline": p.Baseline((HAD,), 1, True),
}
ANY_PACKET = st.sampled_from(list(p.MESH_PACKETS.values())).flatmap(drawn)


def _frames(packet: p.MeshPacket) -> list[bytes]:
    return [encode(ME, packet), b"block"] if isinstance(packet, p.Spread) else [encode(ME, packet)]


def test_there_is_a_sample_of_every_packet_between_nodes() -> None:
    assert {type(packet) for packet in SAMPLES.values()} == set(p.MESH_PACKETS.values())


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bytes_of_a_packet_between_nodes_never_change(name: str) -> None:
    if os.environ.get(REGENERATE):
        written = {each: encode(ME, SAMPLES[each]).hex() for each in SAMPLES}
        GOLDEN.write_text(json.dumps(written, indent=1) + "\n", encoding="ascii")
    golden = json.loads(GOLDEN.read_text(encoding="ascii"))
    assert set(golden) == set(SAMPLES)
    assert encode(ME, SAMPLES[name]).hex() == golden[name]
    frames = [bytes.fromhex(golden[name]), *_frames(SAMPLES[name])[1:]]
    assert decode(frames)[:2] == (ME, SAMPLES[name])


@given(ANY_PACKET)
def test_any_packet_between_nodes_comes_back_as_it_was(packet: p.MeshPacket) -> None:
    sender, back, block = decode(_frames(packet))
    assert (sender, back) == (ME, packet)
    assert bytes(block) == (b"block" if isinstance(packet, p.Spread) else b"")


def test_the_head_is_version_type_and_length_of_the_address() -> None:
    assert encode("ab", p.AskBaseline()) == bytes([1, 23, 2, 0]) + b"ab" + b"\x90"


def test_a_heartbeat_between_nodes_in_step_costs_less_than_100_bytes() -> None:
    assert len(encode("tcp://255.255.255.255:65535", p.Heartbeat(2**53 - 1, b"\xff" * 8, 2**53 - 1, 2**31, True))) < 100


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"\x01"],
        [encode(ME, p.AskBaseline()) + b"x"],
        [b"\x02" + encode(ME, p.AskBaseline())[1:]],
        [b"\x01\xff" + encode(ME, p.AskBaseline())[2:]],
        [encode("", p.AskBaseline())],
        [encode("x" * 300, p.AskBaseline())],
        [encode(ME, p.AskBaseline()), b"block"],
        [encode(ME, SAMPLES["Spread"])],
        [encode(ME, SAMPLES["Spread"]), b"one", b"two"],
        [bytes([1, 3, 2, 0]) + b"ab" + b"\x92\x07\x63"],
        [bytes([1, 3, 2, 0]) + b"\xff\xfe" + b"\x92\x07\x00"],
        [bytes(70_000)],
    ],
)
def test_what_is_no_packet_between_nodes_is_told_so(frames: list[bytes]) -> None:
    with pytest.raises(MalformedPacket):
        decode(frames)


@given(st.binary(max_size=100), st.sampled_from(list(p.MESH_PACKETS)))
def test_any_bytes_are_a_packet_or_malformed(body: bytes, code: int) -> None:
    with suppress(MalformedPacket):
        decode([bytes([1, code, 2, 0]) + b"ab" + body])


def test_ids_of_a_packet_are_bounded() -> None:
    """One packet of a hostile node must not fill a view."""
    with pytest.raises(MalformedPacket):
        decode([encode(ME, p.ShuffleReply(tuple(f"n{i}" for i in range(65))))])


@pytest.mark.parametrize(
    "most",
    [_frames(SAMPLES["Spread"]) * MESH_LINK_PACKETS, [encode(ME, SAMPLES["Spread"]), bytes(BLOCK_BYTES_MAX)]],
    ids=["packets", "bytes"],
)
def test_as_much_comes_together_as_a_node_ever_sends_together(most: list[bytes]) -> None:
    packets = list(apart(most))
    assert [frame for packet in packets for frame in packet] == most
    assert all(decode(packet)[1] == SAMPLES["Spread"] for packet in packets)


@pytest.mark.parametrize(
    "frames",
    [
        [encode(ME, p.AskBaseline())] * (2 * MESH_LINK_PACKETS + 1),
        [encode(ME, SAMPLES["Spread"]), bytes(MIB)] * (BLOCK_BYTES_MAX // MIB + 1),
        [b""] * 1_000_000,
    ],
    ids=["packets", "bytes", "frames"],
)
def test_more_than_may_come_together_is_one_malformed_packet(frames: list[bytes]) -> None:
    """Or one message could make a drain that no segment holds, or one that takes for ever."""
    (packet,) = apart(frames)
    with pytest.raises(MalformedPacket):
        decode(packet)

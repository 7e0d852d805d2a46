# SPDX-License-Identifier: Apache-2.0
"""Packets as bytes: every type there and back, and golden bytes that other languages may rely on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.core.packets import CODE_OF, PACKETS, CommitStaged, Packet, Put, Stage, Transact
from oncemq.wire.codec import REQUEST_MAX, decode, decode_from_client, encode, request_of
from tests.wire.samples import SAMPLES, drawn

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "packets.json"
REGENERATE = "ONCEMQ_REGENERATE_GOLDEN"
"""Set this variable to write the file anew; only commit the change if the protocol was meant to change."""
REQUEST = 0x01020304
RESERVED = {19}
TO_BROKER = {"Hello", "Goodbye", "Put", "Get", "Read", "Ack", "Stats", "Shutdown", "Heartbeat"}
ANY_PACKET = st.sampled_from(list(PACKETS.values())).flatmap(drawn)


def test_there_is_a_sample_of_every_packet() -> None:
    """A packet that somebody adds needs golden bytes too."""
    assert {type(packet) for packet in SAMPLES.values()} == set(PACKETS.values())


def test_codes_are_unique_and_tell_the_direction() -> None:
    """Below 64 to the broker, from 64 on from it; reserved codes belong to nobody yet."""
    assert len(CODE_OF) == len(PACKETS)
    assert not RESERVED & set(PACKETS)
    assert {kind.__name__ for code, kind in PACKETS.items() if code < 64} >= TO_BROKER
    assert not {kind.__name__ for code, kind in PACKETS.items() if code >= 64} & TO_BROKER


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bytes_of_a_packet_never_change(name: str) -> None:
    """What was written down once is what every later version sends."""
    if os.environ.get(REGENERATE):
        written = {each: encode(REQUEST, SAMPLES[each]).hex() for each in SAMPLES}
        GOLDEN.write_text(json.dumps(written, indent=1) + "\n", encoding="ascii")
    golden = json.loads(GOLDEN.read_text(encoding="ascii"))
    assert set(golden) == set(SAMPLES)
    assert encode(REQUEST, SAMPLES[name]).hex() == golden[name]
    assert decode(bytes.fromhex(golden[name])) == (REQUEST, SAMPLES[name])


def test_the_head_is_version_type_nothing_and_request() -> None:
    """Eight bytes, little-endian, before the msgpack array."""
    frame = encode(REQUEST, SAMPLES["Goodbye"])
    assert frame[:8] == bytes([1, 2, 0, 0, 4, 3, 2, 1])
    assert frame[8:] == b"\x91\xc4\x10" + b"a" * 16


@given(ANY_PACKET, st.integers(0, REQUEST_MAX))
def test_any_packet_comes_back_as_it_was(packet: Packet, request_number: int) -> None:
    """Whatever its fields may hold."""
    frame = encode(request_number, packet)
    assert decode(frame) == (request_number, packet)
    assert decode(memoryview(frame)) == (request_number, packet)
    assert request_of([frame]) == request_number


@given(ANY_PACKET.filter(lambda packet: CODE_OF[type(packet)] < 64), st.binary(max_size=50))
def test_what_a_client_may_send_is_read_with_its_block(packet: Packet, block: bytes) -> None:
    """Only Put has a second frame, and a Transact that puts."""
    has_block = isinstance(packet, Put | Stage | CommitStaged) or (isinstance(packet, Transact) and bool(packet.puts))
    frames = [encode(1, packet), block] if has_block else [encode(1, packet)]
    assert decode_from_client(frames) == (1, packet, block if has_block else b"")

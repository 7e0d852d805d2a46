# SPDX-License-Identifier: Apache-2.0
"""Bytes that nobody of ours wrote: whatever they are, reading them raises MalformedPacket with a code, and nothing else."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncemq.core import packets as p
from oncemq.errors import MalformedPacket
from oncemq.limits import BLOCK_BYTES_MAX, HEADER_BYTES_MAX
from oncemq.model.refusals import Code
from oncemq.wire.codec import decode, decode_from_client, encode, request_of
from tests.wire.samples import SAMPLES, A, B

TO_BROKER = [name for name, packet in SAMPLES.items() if p.CODE_OF[type(packet)] < 64]


def head(code: int, *, version: int = 1, reserved: int = 0) -> bytes:
    return bytes([version, code]) + reserved.to_bytes(2, "little") + (7).to_bytes(4, "little")


def packed(code: int, *fields: object) -> bytes:
    """A packet whose fields may be anything that msgpack can say."""
    return head(code) + msgspec.msgpack.encode(list(fields))


def code_of(frames: list[bytes]) -> str:
    with pytest.raises(MalformedPacket) as caught:
        decode_from_client(frames)
    assert caught.value.code in Code
    assert caught.value.reason
    return caught.value.code


# --- frames -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(8))
def test_a_frame_shorter_than_a_head_is_malformed(length: int) -> None:
    """And has no request number."""
    frames = [head(16)[:length]]
    assert code_of(frames) == Code.MALFORMED
    assert request_of(frames) == 0


@pytest.mark.parametrize("version", [0, 2, 127, 255])
def test_another_version_is_told_as_such(version: int) -> None:
    """So that somebody with another oncemq reads what to do."""
    assert code_of([head(16, version=version) + b"\x90"]) == Code.BAD_VERSION


@pytest.mark.parametrize("code", sorted(set(range(256)) - set(p.PACKETS)))
def test_an_unknown_packet_is_told_as_such(code: int) -> None:
    """The reserved ones included."""
    assert code_of([head(code) + b"\x90"]) == Code.UNKNOWN_PACKET


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in TO_BROKER])
def test_a_packet_that_only_a_broker_sends_is_not_taken_from_a_client(name: str) -> None:
    """It is a packet, but not one a broker is told."""
    assert code_of([encode(1, SAMPLES[name])]) == Code.UNKNOWN_PACKET


def test_reserved_bytes_must_be_zero() -> None:
    """They may mean something one day."""
    assert code_of([head(16, reserved=1) + b"\x90"]) == Code.UNKNOWN_PACKET


@pytest.mark.parametrize("frames", [[], [encode(1, p.Stats())] * 4, [encode(1, p.Stats()), b""], [encode(1, p.Stats())] * 1000])
def test_too_few_and_too_many_frames_are_malformed(frames: list[bytes]) -> None:
    """A question has one frame, and no packet has four."""
    assert code_of(frames) == Code.MALFORMED


def test_a_put_has_exactly_one_block() -> None:
    """Neither none nor two."""
    put = encode(1, SAMPLES["Put"])
    assert code_of([put]) == Code.MALFORMED
    assert code_of([put, b"block", b"block"]) == Code.MALFORMED


def test_oversized_frames_are_refused_before_they_are_parsed() -> None:
    """The first frame and the block, each by one byte."""
    assert code_of([head(16) + b"\x90" * HEADER_BYTES_MAX]) == Code.TOO_LARGE
    assert code_of([encode(1, SAMPLES["Put"]), bytes(BLOCK_BYTES_MAX + 1)]) == Code.TOO_LARGE
    assert decode_from_client([encode(1, SAMPLES["Put"]), bytes(BLOCK_BYTES_MAX)])[0] == 1


# --- contents -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        packed(3, A, B, 0, 1, ["t"]),  # Put numbers begin at 1.
        packed(3, A, B, -1, 1, ["t"]),
        packed(3, A, B, 2**63, 1, ["t"]),
        packed(3, A, B, 2**64 - 1, 1, ["t"]),
        packed(3, A, B, 1, 0, ["t"]),
        packed(3, A, B, 1, 2**31, ["t"]),
        packed(3, A, B, 1, 1, []),
        packed(3, A, B, 1, 1, ["t"] * 65),
        packed(3, A, B, 1.5, 1, ["t"]),
        packed(3, A, B, "1", 1, ["t"]),
        packed(3, A, B, True, 1, ["t"]),
        packed(3, A, B, 1, 1, "t"),
        packed(3, A, B, 1, 1, {"t": 1}),
        packed(3, A, B, 1, 1, [1]),
        packed(3, A, B, 1, 1, [b"t"]),
        packed(3, A, B, 1, 1, [None]),
        packed(3, A, B, 1, 1, ["t"], "yes"),
        packed(3, A[:15], B, 1, 1, ["t"]),
        packed(3, A + b"a", B, 1, 1, ["t"]),
        packed(3, "a" * 16, B, 1, 1, ["t"]),
        packed(3, None, B, 1, 1, ["t"]),
        packed(3, A, B, 1),
        packed(6, A, [], 1000),
        packed(6, A, [[1, 2, 3]] * 1025, 1000),
        packed(6, A, [[1, 2, -3]], 1000),
        packed(6, A, [[1, 2]], 1000),
        packed(6, A, [[1, 2, 3]], 0),
        packed(6, A, [[1, 2, 3]], 32 * 2**20 + 1),
        packed(6, A, [[1, 2, 3]], 1000, 30_001),
        packed(6, A, [[1, 2, 3]], 1000, -1),
        packed(6, A, [[1, 2, 3]], 1000, 0, "x" * 65),
        packed(1, "billing", A, A, [A] * 1001),
        packed(1, "billing", A, A, [], [A] * 501),
        packed(1, "billing", A, A, [], [], [A] * 1001),
        packed(1, 5, A),
        packed(7, "t", 0, -1, 5, 10),
        head(16),
        head(16) + b"\x80",
        head(16) + b"\xc0",
        head(16) + b"\x90\x90",
        head(16) + b"\xc1",
        head(1) + b"\x92\xa2\xff\xfe\xc4\x10" + A,  # Not UTF-8.
        head(1) + b"\x92\xa3\xed\xa0\x80\xc4\x10" + A,  # Half of a surrogate pair.
        head(13) + b"\x91\xdb\xff\xff\xff\xff",  # Text of four gigabytes, it says.
        head(13) + b"\xdd\xff\xff\xff\xff",  # Four billion fields, it says.
        head(6) + b"\x93\xc4\x10" + A + b"\xdd\xff\xff\xff\xff",
        head(3) + b"\x95\xc6\xff\xff\xff\xff",
        head(13) + b"\x91" * 60_000,  # Nested beyond any stack.
        head(13) + b"\x91" + b"\x91" * 60_000 + b"\xc0",
        head(13) + b"\x92\xa0" + b"\x91" * 60_000 + b"\xc0",  # The same in a field that nobody reads.
        head(13) + b"\x92\xa0" + b"\x81\x01" * 30_000 + b"\xc0",
        head(13) + b"\x91\xc7\x05\x01hello",  # An extension type.
        head(13) + b"\x91\xd6\xff\x00\x00\x00\x00",  # A timestamp.
    ],
    ids=lambda frame: frame[:24].hex(),
)
def test_wrong_types_numbers_and_shapes_are_malformed(frame: bytes) -> None:
    """Each is refused while it is read; nothing of it reaches a handler."""
    assert code_of([frame, b"block"] if frame[1] == 3 else [frame]) == Code.MALFORMED
    assert request_of([frame]) == 7


def test_fields_that_a_later_version_adds_are_left_alone() -> None:
    """A packet may grow at its end."""
    assert decode(packed(13, "orders", "something new", 5)) == (7, p.ListTopics("orders"))


def test_names_are_not_judged_here() -> None:
    """Whatever text fits is text; the broker decides what may name a topic."""
    for name in ("", "..", "a/b", "nul\0", "line\n", "$reserved", "x" * 10_000):
        assert decode(packed(13, name)) == (7, p.ListTopics(name))


@given(st.binary(max_size=200))
@example(b"")
def test_random_bytes_raise_nothing_else(frame: bytes) -> None:
    """Nor do they by chance look like a packet of version 1."""
    for frames in ([frame], [frame, frame], [b"", frame]):
        with suppress(MalformedPacket):
            decode_from_client(frames)


@given(st.sampled_from(sorted(p.PACKETS)), st.binary(max_size=200))
def test_random_bytes_behind_a_good_head_raise_nothing_else(code: int, body: bytes) -> None:
    """Every decoder sees garbage."""
    with suppress(MalformedPacket):
        decode(head(code) + body)


@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_flipped_and_cut_packets_raise_nothing_else(name: str, data: st.DataObject) -> None:
    """A packet that is almost right is the more dangerous one."""
    frame = bytearray(encode(7, SAMPLES[name]))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedPacket):
        decode(bytes(frame[: data.draw(st.integers(0, len(frame)))]))


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(p.PACKETS)), st.lists(_JUNK, max_size=8))
def test_well_formed_junk_raises_nothing_else(code: int, fields: list[object]) -> None:
    """Right msgpack, wrong everything."""
    with suppress(MalformedPacket):
        decode(packed(code, *fields))

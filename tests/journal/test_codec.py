# SPDX-License-Identifier: Apache-2.0
"""Records as bytes: every type there and back, golden bytes, deliveries, and bytes that nobody of ours wrote."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.core import records
from oncemq.core.records import CODES, ELSEWHERE, NOT_STORED, Origin, Placement, Record, Stored
from oncemq.journal import codec
from oncemq.journal.codec import (
    BadRecord,
    check_record,
    decode,
    decode_delivery,
    delivery,
    encode,
    encoded_size,
    moved_parts,
    unmoved,
)
from oncemq.model.block import checksum
from tests.journal.helpers import block_of, stored, stored_in

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "records.json"
REGENERATE = "ONCEMQ_REGENERATE_GOLDEN"
"""Set this variable to write the file anew; only commit the change if the format was meant to change."""

BLOCK = block_of(b"one", b"two")
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def _stored(*placements: Placement, origin: Origin | None = None, publisher: str = "billing") -> Stored:
    return Stored(9, 1_700_000_000_000_000, A, B, 41, 2, checksum(BLOCK), len(BLOCK), placements, publisher, origin, BLOCK)


SAMPLES: dict[str, Record] = {
    "Started": records.Started(A, 17, 1_700_000_000_000_000, "0.1.0"),
    "SessionOpened": records.SessionOpened("billing", A, (B, C), False, 1_700_000_000_000_000),
    "SessionClosed": records.SessionClosed("billing", A),
    "ClientForgotten": records.ClientForgotten("billing"),
    "TopicCreated": records.TopicCreated(3, "orders", True, "7d", "10GB", 1_700_000_000_000_000),
    "TopicDeleted": records.TopicDeleted(3),
    "Subscribed": records.Subscribed(5, 3, "billing", "local", 120, 1_700_000_000_000_000),
    "Unsubscribed": records.Unsubscribed(5),
    "AuthorityFixed": records.AuthorityFixed(5, "broker"),
    "CommandSettled": records.CommandSettled("billing", A, 2, b"\x01reply"),
    "Stored": _stored(Placement(3, 120)),
    "Stored in several topics, with origin": _stored(
        Placement(3, 120), Placement(4, NOT_STORED), Placement(9, 7), origin=Origin(C, A, 55)
    ),
    "Stored nowhere": _stored(Placement(3, NOT_STORED)),
    "PutRefused": records.PutRefused("billing", A, 41, 2, 0xDEADBEEF, "too_large"),
    "CursorMoved": records.CursorMoved(5, 121),
    "Transacted": records.Transacted(
        "billing", A, 42, 0xDEADBEEF, (records.CursorChange(5, 119, 121), records.CursorChange(6, 0, 1))
    ),
    "Moved": records.Moved(6, _stored(Placement(3, 120), Placement(9, 7))),
    "Trimmed": records.Trimmed(3, 100),
    "Staged": records.Staged(9, 1_700_000_000_000_000, A, 3, "query-1", 12, 77, 20, 2, checksum(BLOCK), len(BLOCK), BLOCK),
    "StagedCommitted": records.StagedCommitted(
        10,
        1_700_000_000_000_000,
        C,
        "query-1",
        12,
        False,
        41,
        (records.CommittedPart(A, 3, 120), records.CommittedPart(B, 3, 142)),
        (records.CommittedTopic(3, 120, 44, 4_096),),
    ),
    "StagedReleased": records.StagedReleased("query-1", (A, B), True),
    "Stored, of a mesh": msgspec.structs.replace(
        _stored(Placement(3, 120), Placement(0, ELSEWHERE), origin=Origin(C, A, 55)), topics=("orders", "invoices"), has_more=True
    ),
    "Stored for others only": msgspec.structs.replace(
        _stored(Placement(0, ELSEWHERE), origin=Origin(C, A, 56)), topics=("orders",)
    ),
    "Moved, a gap": records.Moved(6, records.Lost(10, 1, A, Origin(C, B, 7), 12, (Placement(3, 122),))),
    "BaselineTaken": records.BaselineTaken((Origin(C, A, 55), Origin(B, A, 1))),
    "Lost": records.Lost(10, 1_700_000_000_000_000, A, Origin(C, B, 7), 12, (Placement(3, 122), Placement(9, 9))),
}


def _bytes(record: Record) -> bytes:
    return b"".join(encode(record))


def _as_decoded(record: Record) -> Record:
    """A block that was stored nowhere leaves no bytes and no length behind."""
    if isinstance(record, Stored) and all(each.first_offset == NOT_STORED for each in record.placements):
        return msgspec.structs.replace(record, block=b"", block_bytes=0)
    return record


def test_there_is_a_sample_of_every_record() -> None:
    assert {type(record) for record in SAMPLES.values()} == set(CODES.values())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_record_comes_back_as_it_was(name: str) -> None:
    content = _bytes(SAMPLES[name])
    assert len(content) % 8 == 0
    assert len(content) == encoded_size(SAMPLES[name])
    assert decode(content, with_block=True) == (_as_decoded(SAMPLES[name]), len(content))
    assert decode(b"12345678" + content, 8, with_block=True) == (_as_decoded(SAMPLES[name]), len(content) + 8)
    assert check_record(content, 0)[1] == len(content)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bytes_of_a_record_never_change(name: str) -> None:
    if os.environ.get(REGENERATE):
        GOLDEN.write_text(json.dumps({each: _bytes(SAMPLES[each]).hex() for each in SAMPLES}, indent=1) + "\n", encoding="ascii")
    golden = json.loads(GOLDEN.read_text(encoding="ascii"))
    assert set(golden) == set(SAMPLES)
    assert _bytes(SAMPLES[name]).hex() == golden[name]


@pytest.mark.parametrize("name", ["Stored", "Stored in several topics, with origin", "Staged", "StagedCommitted"])
def test_a_moved_record_is_the_stored_one_behind_its_source(name: str) -> None:
    """However often it is moved, what a subscriber gets is what was stored."""
    content = _bytes(SAMPLES[name])
    once = b"".join(moved_parts(content, 6))
    twice = b"".join(moved_parts(once, 9))
    assert decode(once, with_block=True)[0] == records.Moved(6, SAMPLES[name])  # type: ignore[arg-type]
    assert decode(twice, with_block=True)[0] == records.Moved(9, SAMPLES[name])  # type: ignore[arg-type]
    assert len(once) == len(twice) == len(content) + 16
    assert unmoved(twice) == unmoved(once) == unmoved(content) == content


def test_only_records_that_hold_something_can_have_been_moved() -> None:
    moved = b"".join(moved_parts(_bytes(SAMPLES["Trimmed"]), 1))
    for content in (moved, b"".join(codec.seal_parts(codec.MOVED_CODE, b"1234"))):
        with pytest.raises(BadRecord):
            decode(content)


def test_a_block_is_handed_on_without_a_copy() -> None:
    record = SAMPLES["Stored"]
    assert isinstance(record, Stored)
    assert encode(record)[1] is record.block


def test_a_replay_copies_no_block() -> None:
    record, _ = decode(_bytes(SAMPLES["Stored"]))
    assert isinstance(record, Stored)
    assert (record.block, record.block_bytes) == (b"", len(BLOCK))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_flipped_bit_that_matters_is_found(name: str) -> None:
    content = _bytes(SAMPLES[name])
    length = 16 + int.from_bytes(content[:4], "little")
    for position in range(length):
        for bit in (1, 128):
            bad = bytearray(content)
            bad[position] ^= bit
            with pytest.raises(BadRecord):
                check_record(bad, 0)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_record_that_is_cut_short_is_found(name: str) -> None:
    content = _bytes(SAMPLES[name])
    for length in range(len(content)):
        with pytest.raises(BadRecord):
            check_record(content[:length], 0)


@given(st.binary(max_size=300))
def test_hostile_bytes_raise_nothing_but_bad_record(content: bytes) -> None:
    for function in (decode, check_record, decode_delivery):
        with pytest.raises(BadRecord):
            function(content, 0)


@given(st.sampled_from(sorted({*CODES, 14, 64, 255})), st.binary(max_size=200), st.integers(0, 200))
def test_hostile_bytes_in_a_right_frame_raise_nothing_but_bad_record(code: int, header: bytes, block_bytes: int) -> None:
    content = b"".join(codec.seal_parts(code, header, bytes(block_bytes)))
    for function in (decode, check_record, decode_delivery):
        with suppress(BadRecord):
            function(content, 0)


# --- deliveries -------------------------------------------------------------------------------------


def test_a_record_of_one_topic_is_delivered_verbatim() -> None:
    content = _bytes(SAMPLES["Stored"])
    assert delivery(content, 3) is content


def test_a_record_of_several_topics_is_delivered_with_one_and_its_own_numbers() -> None:
    content = _bytes(SAMPLES["Stored in several topics, with origin"])
    for topic_id, offset, first_number in ((3, 120, 41), (9, 7, 45)):
        found, start, end, after = decode_delivery(delivery(content, topic_id), 0)
        assert (found.topic_id, found.first_offset, found.first_number) == (topic_id, offset, first_number)
        assert found.origin == Origin(C, A, 55)
        assert delivery(content, topic_id)[start:end] == BLOCK
        assert after == len(delivery(content, topic_id))


def test_a_topic_that_is_not_in_the_record_is_not_delivered() -> None:
    with pytest.raises(BadRecord):
        delivery(_bytes(SAMPLES["Stored in several topics, with origin"]), 5)
    with pytest.raises(BadRecord):
        delivery(_bytes(SAMPLES["CommandSettled"]) + bytes(100), 5)


def test_many_deliveries_in_one_body_are_read_one_after_the_other() -> None:
    sent = [stored(number, number * 10, topic=number, count=number) for number in range(1, 20)]
    body = b"".join(_bytes(record) for record in sent)
    position = 0
    for record in sent:
        found, start, end, position = decode_delivery(body, position)
        assert found.topic_id == record.placements[0].topic_id
        assert found.first_offset == record.placements[0].first_offset
        assert found.count == record.count
        assert found.append_number == record.append_number
        assert found.append_time_us == record.append_time_us
        assert found.publisher == record.publisher
        assert found.block_crc == record.block_crc
        assert (found.start_id, found.stream, found.first_number) == (record.start_id, record.stream, record.first_number)
        assert body[start:end] == record.block
    assert position == len(body)


def test_a_delivery_with_a_flipped_header_bit_is_found() -> None:
    content = _bytes(SAMPLES["Stored"])
    header_end = 16 + int.from_bytes(content[8:12], "little")
    for position in range(header_end):
        bad = bytearray(content)
        bad[position] ^= 4
        with pytest.raises(BadRecord):
            decode_delivery(bad, 0)


def test_a_delivery_names_exactly_one_topic() -> None:
    with pytest.raises(BadRecord):
        decode_delivery(_bytes(stored_in(1, (Placement(1, 0), Placement(2, 0)))), 0)

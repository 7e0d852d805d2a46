# SPDX-License-Identifier: Apache-2.0
"""Any record, drawn from its own types: it comes back as it was, and junk in its place is a BadRecord and nothing else."""

from __future__ import annotations

import string
from contextlib import suppress

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncemq.core.records import CODES, NOT_STORED, Moved, Origin, Placement, Record, Staged, Stored
from oncemq.errors import DirectoryTooNew, JournalDamaged
from oncemq.journal.codec import BadRecord, check_record, decode, decode_delivery, delivery, encode, encoded_size, seal_parts
from oncemq.journal.outbox import Outbox, OutboxEntry
from oncemq.journal.recovery import read_identity
from oncemq.model.block import checksum
from oncemq.sim.tape import Tape
from tests.journal.helpers import block_of
from tests.wire.samples import drawn

PLAIN = sorted((kind for kind in CODES.values() if kind not in {Stored, Staged, Moved}), key=lambda kind: kind.__name__)
IDS, U64, U32 = st.binary(min_size=16, max_size=16), st.integers(0, 2**63 - 1), st.integers(1, 2**31)
NAMES = st.text(string.ascii_letters + string.digits + "-_.", min_size=1, max_size=60)
BLOCKS = st.lists(st.binary(max_size=40), min_size=1, max_size=5).map(lambda values: block_of(*values))
PLACEMENTS = st.lists(
    st.builds(Placement, topic_id=st.integers(1, 2**63 - 1), first_offset=st.one_of(U64, st.just(NOT_STORED))),
    min_size=1,
    max_size=4,
    unique_by=lambda place: place.topic_id,
)
JUNK = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=9), st.binary(max_size=20)
    ),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@st.composite
def stored_records(draw: st.DrawFn) -> Stored:
    """A block somewhere or nowhere, as its header allows."""
    block, places = draw(BLOCKS), tuple(draw(PLACEMENTS))
    origin = draw(st.none() | st.builds(Origin, node=IDS, start_id=IDS, number=U64))
    numbers = (draw(U64), draw(U64), draw(IDS), draw(IDS), draw(U64), draw(U32))
    names = tuple(draw(st.lists(NAMES, max_size=3)))
    return Stored(*numbers, checksum(block), len(block), places, draw(NAMES), origin, block, names, draw(st.booleans()))


def bytes_of(record: Record) -> bytes:
    return b"".join(encode(record))


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_any_record_comes_back_as_it_was(kind: type[Record], data: st.DataObject) -> None:
    record = data.draw(drawn(kind))
    content = bytes_of(record)

    assert encoded_size(record) == len(content)
    assert decode(content, with_block=True) == (record, len(content))


@given(stored_records())
def test_any_stored_block_comes_back_as_it_was_and_is_delivered_to_each_of_its_topics(record: Stored) -> None:
    content = bytes_of(record)
    is_kept = any(place.first_offset != NOT_STORED for place in record.placements)
    found, after = decode(content, with_block=True)

    assert found == (record if is_kept else msgspec.structs.replace(record, block=b"", block_bytes=0))
    assert after == len(content) == encoded_size(record)
    for place in record.placements:
        if place.first_offset != NOT_STORED:
            sent = delivery(content, place.topic_id)
            told, start, end, _ = decode_delivery(sent, 0)
            assert (told.topic_id, told.first_offset, sent[start:end]) == (place.topic_id, place.first_offset, record.block)


@given(stored_records(), st.data())
def test_no_changed_byte_of_a_stored_block_passes(record: Stored, data: st.DataObject) -> None:
    content = bytearray(bytes_of(record))
    length = 16 + int.from_bytes(content[:4], "little")
    content[data.draw(st.integers(0, length - 1))] ^= data.draw(st.integers(1, 255))

    with pytest.raises(BadRecord):
        check_record(content, 0)


@given(st.sampled_from(sorted(CODES)), st.lists(JUNK, max_size=12))
def test_well_formed_junk_in_a_right_frame_raises_nothing_but_bad_record(code: int, fields: list[object]) -> None:
    content = b"".join(seal_parts(code, msgspec.msgpack.encode(fields), b""))
    for function in (decode, check_record, decode_delivery):
        with suppress(BadRecord):
            function(content, 0)


@given(st.binary(max_size=100))
@example(b'{"format": 1, "log": "\xff"}')
@example(b"[" * 4_000)
def test_hostile_bytes_in_the_identity_of_a_journal_are_told(content: bytes) -> None:
    tape = Tape()
    tape.open("identity", create=True).write(0, content)

    with pytest.raises((JournalDamaged, DirectoryTooNew)):
        read_identity(tape)


# --- the outbox -------------------------------------------------------------------------------------

ENTRIES = st.builds(
    OutboxEntry,
    stream=IDS,
    first_number=st.integers(1, 2**40),
    numbers=st.integers(1, 1000),
    topics=st.lists(NAMES, min_size=1, max_size=3).map(tuple),
    strict=st.booleans(),
    block=BLOCKS,
)


@given(st.lists(ENTRIES, max_size=6, unique_by=lambda entry: entry.stream))
def test_any_entries_of_an_outbox_come_back_as_they_were(entries: list[OutboxEntry]) -> None:
    tape = Tape()
    outbox = Outbox.open(tape, start_id=b"a" * 16, segment_bytes=1024)
    for entry in entries:
        outbox.append(entry)

    assert Outbox.open(tape, start_id=b"b" * 16).entries == entries


@given(st.lists(ENTRIES, min_size=1, max_size=4, unique_by=lambda entry: entry.stream), st.data())
def test_hostile_bytes_in_an_outbox_are_told_or_cut_off(entries: list[OutboxEntry], data: st.DataObject) -> None:
    tape = Tape()
    outbox = Outbox.open(tape, start_id=b"a" * 16, segment_bytes=1024)
    for entry in entries:
        outbox.append(entry)
    name = data.draw(st.sampled_from(tape.names()))
    position = data.draw(st.integers(0, tape.open(name).size()))
    tape.open(name).write(position, data.draw(st.binary(min_size=1, max_size=80)))

    with suppress(JournalDamaged):
        assert all(entry in entries for entry in Outbox.open(tape, start_id=b"b" * 16).entries)

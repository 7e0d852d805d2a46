# SPDX-License-Identifier: Apache-2.0
"""What a client keeps in files: slots and its identity come back as they were; other bytes are none, or told so."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncemq.core.identity import FORMAT, Identity, decode_identity, encode_identity
from oncemq.core.slot import PAGE_BYTES, SLOT_BYTES, Slot, decode_slot
from oncemq.errors import DirectoryUnusable
from tests.wire.samples import drawn

IDS, U64 = st.binary(min_size=16, max_size=16), st.integers(0, 2**63 - 1)
SLOTS = st.tuples(U64, U64, U64, U64, U64, U64, IDS, IDS, IDS, st.booleans())


def written(pages: bytearray, slot: Slot) -> None:
    position, content = slot.encode()
    pages[position : position + len(content)] = content


def fields_of(slot: Slot) -> tuple[object, ...]:
    return (
        slot.subscription_id,
        slot.topic_id,
        slot.finished,
        slot.handed,
        slot.reserved,
        slot.session,
        slot.boot,
        slot.is_clean,
    )


def made(fields: tuple[object, ...]) -> Slot:
    slot = Slot(*fields)  # type: ignore[arg-type]
    slot.freeze()
    return slot


@given(SLOTS)
def test_any_slot_comes_back_as_it_was(fields: tuple[object, ...]) -> None:
    pages, slot = bytearray(SLOT_BYTES), made(fields)
    written(pages, slot)
    found = decode_slot(bytes(pages))

    assert found is not None
    assert fields_of(found) == fields_of(slot)


@given(SLOTS, U64, st.integers(0, PAGE_BYTES - 1), st.binary(min_size=1, max_size=100))
def test_a_page_torn_while_a_slot_is_written_leaves_the_one_before_it(
    fields: tuple[object, ...], handed: int, at: int, torn: bytes
) -> None:
    """Two copies in two pages: whatever becomes of the one that is written, the other is whole."""
    pages, slot = bytearray(SLOT_BYTES), made(fields)
    written(pages, slot)
    before = fields_of(slot)
    slot.handed = handed
    position, content = slot.encode()
    pages[position : position + len(content)] = content
    pages[position + at % len(content)] ^= 1
    pages[position + len(content) : position + len(content) + len(torn)] = torn
    found = decode_slot(bytes(pages[:SLOT_BYTES]))

    assert found is not None
    assert fields_of(found) == before


@given(st.binary(max_size=SLOT_BYTES))
def test_hostile_bytes_are_no_slot(content: bytes) -> None:
    assert decode_slot(content) is None


@given(drawn(Identity))
def test_any_identity_comes_back_as_it_was(drawn_one: Identity) -> None:
    identity = msgspec.structs.replace(drawn_one, format=FORMAT, checksum="")

    assert decode_identity(encode_identity(identity), "directory", identity.client) == identity


@given(st.binary(max_size=100))
@example(b'{"client": "\xff"}')
@example(b"[" * 100_000)
def test_hostile_bytes_are_no_identity(content: bytes) -> None:
    with pytest.raises(DirectoryUnusable):
        decode_identity(content, "directory", "client")

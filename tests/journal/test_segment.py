# SPDX-License-Identifier: Apache-2.0
"""Headers of segments and groups, and the walk that believes only what fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.core.records import Record
from oncemq.journal.codec import check_record, encode
from oncemq.journal.segment import (
    GROUP_BYTES,
    HEADER_BYTES,
    GroupHeader,
    SegmentHeader,
    Walk,
    decode_group_header,
    decode_segment_header,
    encode_group_header,
    encode_segment_header,
    file_name,
    numbers_of,
)
from oncemq.sim.disk import SimDisk
from tests.journal.helpers import cursor

LOG, START, OTHER = b"L" * 16, b"S" * 16, b"O" * 16
SEGMENT = SegmentHeader(LOG, START, 7, 4711, HEADER_BYTES)
GOLDEN_SEGMENT = (
    "4f4e43454d51534701000000f843d7eb4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c"
    "5353535353535353535353535353535307000000000000006712000040000000"
)
GOLDEN_GROUP = (
    "3167727018000000030000000000000007000000000000000700000000000000"
    "4000000000000000535353535353535353535353535353530100000089948a4d"
)


def _header(number: int, *, segment: int = 7, start: bytes = START, synced: int = HEADER_BYTES) -> GroupHeader:
    return GroupHeader(24, number, segment, segment, synced, start, 1)


def _group(header: GroupHeader) -> bytes:
    return encode_group_header(header) + b"".join(encode(cursor(header.group_number)))


def _walk(*groups: bytes, header: SegmentHeader = SEGMENT) -> tuple[Walk[Record], list[int]]:
    """Walk through a segment of these bytes; return the walk and the group numbers it believed."""
    file = SimDisk(1).open("segment", create=True)
    file.write(0, [encode_segment_header(header), *groups])
    file.allocate(4096)
    walk: Walk[Record] = Walk(file, header, 4096, check_record)
    found = [group.header.group_number for group in walk]
    walk.search_claims()
    return walk, found


def test_the_bytes_of_headers_never_change() -> None:
    assert encode_segment_header(SEGMENT).hex() == GOLDEN_SEGMENT
    assert encode_group_header(_header(3)).hex() == GOLDEN_GROUP
    assert len(encode_segment_header(SEGMENT)) == HEADER_BYTES
    assert len(encode_group_header(_header(3))) == GROUP_BYTES


def test_headers_come_back_as_they_were_and_no_flipped_bit_passes() -> None:
    assert decode_segment_header(encode_segment_header(SEGMENT)) == SEGMENT
    assert decode_group_header(encode_group_header(_header(3))) == _header(3)
    for position in range(64):
        for encoded, decode in (
            (encode_segment_header(SEGMENT), decode_segment_header),
            (encode_group_header(_header(3)), decode_group_header),
        ):
            bad = bytearray(encoded)
            bad[position] ^= 2
            assert decode(bad) is None
            assert decode(encoded[:position]) is None


def test_what_a_group_says_of_another_segment_proves_nothing_of_this_one() -> None:
    elsewhere = GroupHeader(24, 2, 7, 6, 2000, START, 1)
    walk, found = _walk(_group(_header(1)), _group(elsewhere))
    assert (found, walk.synced) == ([1, 2], HEADER_BYTES)


@given(st.binary(max_size=80))
def test_hostile_bytes_are_no_headers(content: bytes) -> None:
    assert decode_segment_header(content) is None
    assert decode_group_header(content) is None


def test_groups_are_walked_one_behind_the_other() -> None:
    walk, found = _walk(_group(_header(3)), _group(_header(4)), _group(_header(5, synced=88 + 64)))
    assert found == [3, 4, 5]
    assert walk.position == HEADER_BYTES + 3 * 88
    assert walk.synced == HEADER_BYTES + 88


@pytest.mark.parametrize(
    "stale",
    [_header(4, segment=6), _header(4, start=OTHER), _header(5), _header(3), _header(2)],
    ids=["segment", "start", "skips", "repeats", "goes back"],
)
def test_a_group_of_another_segment_start_or_number_is_not_believed(stale: GroupHeader) -> None:
    walk, found = _walk(_group(_header(3)), _group(stale))
    assert found == [3]
    assert walk.position == HEADER_BYTES + 88


@pytest.mark.parametrize(
    "claim", [_header(5, synced=300), _header(5, synced=500, start=OTHER), _header(5, synced=500, segment=6)]
)
def test_a_claim_behind_torn_bytes_counts_if_it_is_ours(claim: GroupHeader) -> None:
    walk, found = _walk(_group(_header(3)), bytes(400), _group(claim))
    assert found == [3]
    assert walk.synced == (300 if claim.start_id == START and claim.segment_number == 7 else HEADER_BYTES)


def test_a_claim_that_cannot_be_is_not_believed() -> None:
    beyond_itself = _header(5, synced=4000)
    too_many_groups = _header(100, synced=300)
    for claim in (beyond_itself, too_many_groups):
        assert _walk(_group(_header(3)), bytes(400), _group(claim))[0].synced == HEADER_BYTES


def test_a_claim_across_a_chunk_border_is_found() -> None:
    """The search reads a mebibyte at a time; a header may lie on the border."""
    for before in (-40, -8, 0, 8):
        file = SimDisk(1).open("segment", create=True)
        position = (1 << 20) + HEADER_BYTES + 8 + before
        file.write(0, [encode_segment_header(SEGMENT)])
        file.write(position, [_group(_header(9, synced=5000))])
        file.allocate(3 << 20)
        walk: Walk[Record] = Walk(file, SEGMENT, 3 << 20, check_record)
        assert list(walk) == []
        walk.search_claims()
        assert walk.synced == 5000


def test_what_was_synced_before_the_segment_got_its_name_is_known() -> None:
    header = SegmentHeader(LOG, START, 7, 4711, HEADER_BYTES + 88)
    assert _walk(header=header)[0].synced == HEADER_BYTES + 88


def test_a_group_with_another_number_of_records_is_not_believed() -> None:
    header = GroupHeader(24, 3, 7, 7, 64, START, 2)
    assert _walk(encode_group_header(header) + b"".join(encode(cursor(3))))[1] == []


def test_file_names_are_sorted_by_number_and_others_are_not_ours() -> None:
    names = [file_name("segment-", number) for number in (10, 2, 1)]
    others = ["segment-1", "segment-0000000000000003.new", "segment-00000000000000xx", "index-0000000000000009", "lock"]
    assert numbers_of([*names, *others], "segment-") == [1, 2, 10]

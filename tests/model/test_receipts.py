# SPDX-License-Identifier: Apache-2.0
"""Receipts of many puts: one outcome per block behind what looks like a list."""

from __future__ import annotations

import pytest

from oncemq.model.message import Outcome, Receipt, Receipts

STORED = Outcome("orders", 3, 1, 3, True, 100, False)
NOT_STORED = Outcome("nobody", 0, 4, 2, False, None, False)
LONG_AGO = Outcome("orders", 3, 6, 2, True, None, True)
RECEIPTS = Receipts([STORED, NOT_STORED, LONG_AGO])


def test_every_message_has_its_receipt_in_order() -> None:
    """Numbers go on through all blocks; offsets are told where they are known."""
    assert len(RECEIPTS) == 7
    assert [receipt.number for receipt in RECEIPTS] == [1, 2, 3, 4, 5, 6, 7]
    assert [receipt.offset for receipt in RECEIPTS] == [100, 101, 102, None, None, None, None]
    assert [receipt.stored for receipt in RECEIPTS] == [True, True, True, False, False, True, True]
    assert [receipt.duplicate for receipt in RECEIPTS] == [False] * 5 + [True] * 2


@pytest.mark.parametrize("index", range(-7, 7))
def test_a_receipt_is_found_by_its_index(index: int) -> None:
    """From either end, as in a list."""
    assert RECEIPTS[index] == list(RECEIPTS)[index]


@pytest.mark.parametrize("index", [7, -8, 100])
def test_an_index_beyond_the_end_is_an_index_error(index: int) -> None:
    """As in a list."""
    with pytest.raises(IndexError):
        RECEIPTS[index]


@pytest.mark.parametrize("part", [slice(None), slice(2, 5), slice(-3, None), slice(None, None, 2), slice(5, 2)])
def test_a_slice_is_a_list(part: slice) -> None:
    """As in a list."""
    assert RECEIPTS[part] == list(RECEIPTS)[part]


def test_how_many_were_stored_is_known_without_looking_at_each() -> None:
    """Whole blocks are stored or not."""
    assert RECEIPTS.stored == 5
    assert Receipts([]).stored == 0
    assert list(Receipts([])) == []


def test_a_receipt_names_its_topic_and_its_place() -> None:
    """What an application writes into its own log."""
    assert STORED.receipt(2) == Receipt("orders", 3, True, 102, False, 3)

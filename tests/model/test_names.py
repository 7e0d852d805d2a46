# SPDX-License-Identifier: Apache-2.0
"""Names of topics and clients: what may be one, and what is said when it may not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.errors import InvalidName, UsageError
from oncemq.model.names import EPHEMERAL_PREFIX, check_client, check_topic, is_client_on_the_wire, is_valid_name

GOOD = ["a", "orders", "orders.eu-west_1.A9", "0", "-", "_", "x" * 255]
BAD = [
    "",
    ".",
    "..",
    "a..b",
    ".a",
    "a.",
    "a b",
    "a/b",
    "a\\b",
    "../etc",
    "nul\0",
    "line\n",
    "\n",
    "a\r",
    "$sys",
    "$",
    "ü",
    "é",
    "٣",
    "ａ",
    "*",
    "x" * 256,
]


@pytest.mark.parametrize("name", GOOD, ids=lambda name: repr(name)[:20])
def test_words_of_letters_digits_and_dashes_are_names(name: str) -> None:
    """Up to 255 bytes."""
    assert check_topic(name) == name
    assert check_client(name) == name


@pytest.mark.parametrize("name", BAD, ids=lambda name: repr(name)[:20])
def test_everything_else_is_refused(name: str) -> None:
    """Also what looks like a letter or digit in another script, and a newline at the end."""
    with pytest.raises(InvalidName) as caught:
        check_topic(name)
    assert "dot-separated words" in str(caught.value)
    assert len(str(caught.value)) < 300
    with pytest.raises(InvalidName):
        check_client(name)


@pytest.mark.parametrize("name", [None, 5, b"orders", ["orders"], object()])
def test_what_is_no_text_is_refused(name: object) -> None:
    """As a usage error like any other, not as a TypeError from somewhere inside."""
    with pytest.raises(UsageError):
        check_topic(name)
    with pytest.raises(UsageError):
        check_client(name)


@given(st.text(max_size=300))
def test_a_name_is_valid_exactly_if_it_looks_like_one(name: str) -> None:
    """The rule once more, in other words."""
    words = name.split(".")
    expected = len(name) <= 255 and all(word and re.fullmatch("[-_0-9A-Za-z]+", word) for word in words)
    assert is_valid_name(name) == bool(expected and "\n" not in name)


def test_ephemeral_clients_have_names_nobody_can_choose() -> None:
    """The prefix is reserved by its '$'."""
    name = EPHEMERAL_PREFIX + "0123abcd"
    assert is_client_on_the_wire(name)
    assert not is_valid_name(name)
    assert not is_client_on_the_wire(EPHEMERAL_PREFIX)
    assert not is_client_on_the_wire("$other.0123")

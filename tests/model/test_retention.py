# SPDX-License-Identifier: Apache-2.0
"""Retentions: what people may write, what is stored, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.errors import UsageError
from oncemq.model.retention import Retention, read_retention, readable, retention_text

READ = {
    "forever": ("forever", Retention(is_forever=True)),
    "1s": ("age:1", Retention(age_us=1_000_000)),
    "90m": ("age:5400", Retention(age_us=5_400_000_000)),
    "12h": ("age:43200", Retention(age_us=43_200_000_000)),
    "7d": ("age:604800", Retention(age_us=604_800_000_000)),
    "2w": ("age:1209600", Retention(age_us=1_209_600_000_000)),
    "512B": ("size:512", Retention(size_bytes=512)),
    "10KB": ("size:10000", Retention(size_bytes=10_000)),
    "10KiB": ("size:10240", Retention(size_bytes=10_240)),
    "3GiB": ("size:3221225472", Retention(size_bytes=3 * 2**30)),
    "1TB": ("size:1000000000000", Retention(size_bytes=10**12)),
    "age:60": ("age:60", Retention(age_us=60_000_000)),
    "size:1": ("size:1", Retention(size_bytes=1)),
}


@pytest.mark.parametrize("text", READ)
def test_what_people_write_is_stored_in_one_form(text: str) -> None:
    """And read back as what they meant."""
    stored, meant = READ[text]
    assert retention_text(text) == stored
    assert retention_text(stored) == stored
    assert read_retention(stored) == meant
    assert read_retention(stored).is_set


@pytest.mark.parametrize("text", READ)
def test_what_is_stored_is_shown_as_people_write_it(text: str) -> None:
    stored, _ = READ[text]
    assert retention_text(readable(stored)) == stored
    assert ":" not in readable(stored)


def test_the_largest_unit_that_fits_is_shown() -> None:
    assert [readable(text) for text in ("", "age:604800", "age:5400", "size:10240", "size:10000", "size:513")] == [
        "",
        "7d",
        "90m",
        "10KiB",
        "10KB",
        "513B",
    ]


def test_nothing_said_is_nothing_set() -> None:
    """The empty text is interest only."""
    assert not read_retention("").is_set


@pytest.mark.parametrize(
    "text",
    [
        *["0s", "0B", "7", "d", "7 d", "-7d", "7.5d", "7D", "7y", "10gib", "Forever", "always"],
        *["age:", "age:0", "age:-1", "age:x"],
        *["age:1.5", "size:0", "size:٣", "٣d", "age:99999999999999999999", "size:1:2", ":5"],
        *["forever:1", "7d\n", "9" * 13 + "d"],
        *["999999999999TiB", "size:" + "9" * 5_000],
    ],
    ids=lambda text: repr(text)[:30],
)
def test_what_is_no_retention_is_refused_with_an_example(text: str) -> None:
    """A typing error must not become "keep nothing"."""
    with pytest.raises(UsageError, match="7d"):
        retention_text(text)


@pytest.mark.parametrize("text", ["7d", "10GiB", "age:٣", "size:1 ", " forever"])
def test_the_stored_form_is_one_form_only(text: str) -> None:
    """What people write is not what the wire and the journal carry."""
    with pytest.raises(UsageError):
        read_retention(text)


@given(st.text(max_size=30))
def test_any_text_is_a_retention_or_a_usage_error(text: str) -> None:
    """Nothing else is raised, and what is accepted is stored in a form that reads back."""
    try:
        stored = retention_text(text)
    except UsageError:
        return
    assert read_retention(stored).is_set or not text

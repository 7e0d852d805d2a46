# SPDX-License-Identifier: Apache-2.0
"""docs/configuration.md is what the code says, and every limit says where it comes from.

May not: be satisfied by a page that was right once: it is made anew and compared.
Next: scripts/configuration_page.py, which makes it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from oncemq import limits
from scripts.configuration_page import limits_of, page_text, value_text
from tests.tidy.source import page

LIMITS = limits_of(Path(limits.__file__).read_text(encoding="utf-8"), vars(limits))


def test_the_configuration_page_is_what_the_code_says() -> None:
    assert page("docs/configuration.md") == page_text(), "run 'make reference' and commit docs/configuration.md"


def test_every_limit_says_what_it_bounds_and_where_it_comes_from() -> None:
    assert [limit.name for limit in LIMITS if not (limit.kind and limit.meaning)] == []


def test_no_limit_is_left_out() -> None:
    listed = {limit.name for limit in LIMITS} | {"KIB", "MIB"}
    assert {name for name in vars(limits) if name.isupper()} == listed


# --- the rules can fail ---------------------------------------------------------------------------


def test_a_comment_is_read_as_meaning_and_origin() -> None:
    text = "# --- live ---\nA_MS = 5_000  # Of a thing. guess: five.\nB = (\n  3  # Two lines. rule.\n)\nC = 1  # Nobody knows.\n"
    found = limits_of(text, {"A_MS": 5_000, "B": 3, "C": 1})
    assert [(each.section, each.name, each.meaning, each.kind) for each in found] == [
        ("live", "A_MS", "Of a thing.", "guess"),
        ("live", "B", "Two lines.", "rule"),
        ("live", "C", "Nobody knows.", ""),
    ]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("GET_BYTES", 1024 * 1024, "1 MiB"),
        ("PART_BYTES", 37, "37 B"),
        ("WAIT_MS_MAX", 30_000, "30 s"),
        ("PAUSE_MS", 10, "10 ms"),
        ("JUMP_US_MAX", 3_600_000_000, "1 h"),
        ("TOPICS_MAX", 100_000, "100,000"),
        ("PORT_LIVE", 5557, "5557"),
        ("OFFSET_MAX", 2**63 - 1, "2⁶³ − 1"),
    ],
)
def test_a_number_is_said_in_the_unit_of_its_name(name: str, value: int, text: str) -> None:
    assert value_text(name, value) == text

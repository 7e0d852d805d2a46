# SPDX-License-Identifier: Apache-2.0
"""Cutting a stream into lines: nothing is lost between two reads, and nobody waits for a full piece.

May not: need a terminal.
Next: test_messages.py for the command.
"""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.cli.lines import PIECE_LINES_MAX, Piece, pieces_of
from oncemq.errors import MessageTooLarge
from oncemq.limits import VALUE_BYTES_MAX


class Dribble(io.RawIOBase):
    """A stream that brings its content in the given bits."""

    def __init__(self, bits: list[bytes]) -> None:
        self._bits = [bit for bit in bits if bit]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._bits:
            return 0
        bit = self._bits.pop(0)
        buffer[: len(bit)] = bit
        return len(bit)


def lines_of(bits: list[bytes], from_line: int = 1) -> list[Piece]:
    return list(pieces_of(io.BufferedReader(Dribble(bits)), from_line))  # type: ignore[arg-type]


@given(st.lists(st.binary(max_size=20).map(lambda bit: bit.replace(b"x", b"\n"))), st.integers(min_value=1, max_value=10))
def test_lines_are_the_same_however_they_arrive(bits: list[bytes], from_line: int) -> None:
    content = b"".join(bits)
    expected = content.split(b"\n")
    if not expected[-1]:
        expected.pop()

    pieces = lines_of(bits, from_line)

    assert [value for piece in pieces for value in piece.values] == expected[from_line - 1 :]
    numbers = [piece.first_line + index for piece in pieces for index in range(len(piece.values))]
    assert numbers == list(range(from_line, len(expected) + 1))


def test_a_line_is_handed_on_before_the_next_one_is_there() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as typist:
        pieces = pieces_of(stream)  # type: ignore[arg-type]
        for number, line in enumerate((b"one", b"two"), start=1):
            typist.write(line + b"\n")
            assert next(pieces) == Piece(number, [line])


def test_a_piece_is_bounded() -> None:
    pieces = lines_of([b"\n" * (PIECE_LINES_MAX // 2)] * 5)

    assert max(len(piece.values) for piece in pieces) <= PIECE_LINES_MAX
    assert pieces[-1].last_line == 5 * (PIECE_LINES_MAX // 2)


def test_a_line_without_an_end_is_given_up_at_the_limit() -> None:
    with pytest.raises(MessageTooLarge, match="line 2"):
        lines_of([b"one\n"] + [b"x" * 8192] * (VALUE_BYTES_MAX // 8192 + 64))

# SPDX-License-Identifier: Apache-2.0
"""Cutting a stream of bytes into lines, a piece at a time, as soon as they are there.

May not: wait for a full piece: somebody may be typing, or following a file.
The idea: whatever one read brings is a piece. A fast writer fills large ones, a slow one is not kept waiting.
Next: put.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedReader

import msgspec

from oncemq.errors import MessageTooLarge
from oncemq.limits import KIB, VALUE_BYTES_MAX

READ_BYTES = 256 * KIB
PIECE_LINES_MAX = 10_000
"""Lines of one piece: far below the window of a client, so that a piece is sent as a whole."""


class Piece(msgspec.Struct, frozen=True):
    """Some lines in a row; the first line of a stream is number 1."""

    first_line: int
    values: list[bytes]

    @property
    def last_line(self) -> int:
        return self.first_line + len(self.values) - 1


def pieces_of(stream: BufferedReader, from_line: int = 1) -> Iterator[Piece]:
    """Yield the lines from number `from_line` on, without their line ends."""
    number, size_bytes = 1, 0
    parts: list[bytes] = []  # Of the line that has no end yet; joined once, however many reads it takes.
    while content := stream.read1(READ_BYTES):
        if b"\n" in content:
            *lines, content = b"".join([*parts, content]).split(b"\n")
            yield from _cut(lines, number, from_line)
            number, size_bytes = number + len(lines), 0
            parts.clear()
        parts.append(content)
        size_bytes += len(content)
        if size_bytes > VALUE_BYTES_MAX:
            raise MessageTooLarge(f"line {number}", size_bytes, VALUE_BYTES_MAX)
    if size_bytes:
        yield from _cut([b"".join(parts)], number, from_line)


def _cut(lines: list[bytes], number: int, from_line: int) -> Iterator[Piece]:
    wanted = lines[max(0, from_line - number) :]
    first = number + len(lines) - len(wanted)
    for at in range(0, len(wanted), PIECE_LINES_MAX):
        yield Piece(first + at, wanted[at : at + PIECE_LINES_MAX])

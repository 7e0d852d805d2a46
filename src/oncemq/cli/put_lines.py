# SPDX-License-Identifier: Apache-2.0
"""Putting stdin, a message per line: in pieces, each confirmed before the next, with a way to go on afterwards.

May not: read ahead of what is confirmed by more than a piece.
The idea: whatever ends it early, the last words name the line to go on with (H32).
Next: lines.py for the pieces.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import TYPE_CHECKING

from oncemq.cli.lines import Piece, pieces_of
from oncemq.cli.output import Output, Row
from oncemq.cli.put import Shape, as_row, as_text
from oncemq.errors import OnceMQError

if TYPE_CHECKING:
    from oncemq.client.client import Client
    from oncemq.model.message import Receipt


class Tally:
    """What became of the lines on one topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.stored = self.not_stored = 0
        self.first: int | None = None
        self.last: int | None = None

    def add(self, receipts: list[Receipt]) -> None:
        stored = [receipt for receipt in receipts if receipt.stored]
        offsets = [receipt.offset for receipt in stored if receipt.offset is not None]
        self.stored += len(stored)
        self.not_stored += len(receipts) - len(stored)
        if offsets:
            self.first = offsets[0] if self.first is None else self.first
            self.last = offsets[-1]

    def as_row(self, last_line: int) -> Row:
        return {
            "topic": self.topic,
            "stored": self.stored,
            "not_stored": self.not_stored,
            "first_offset": self.first,
            "last_offset": self.last,
            "last_line": last_line,
        }

    def as_text(self) -> str:
        if not self.stored:
            return f"{self.topic}: {self.not_stored:,} not stored: no subscribers"
        missed = f", {self.not_stored:,} not stored: no subscribers" if self.not_stored else ""
        where = f" at offsets {self.first} to {self.last}" if self.first is not None else ""
        return f"{self.topic}: {self.stored:,} stored{where}{missed}"


def put_lines(output: Output, client: Client, shape: Shape, from_line: int, *, is_durable: bool) -> None:
    """Put every line of stdin from that one on."""
    tallies = {topic: Tally(topic) for topic in shape.topics}
    done = from_line - 1
    piece: Piece | None = None
    with _progress(output) as advance:
        try:
            for piece in pieces_of(_stdin(), from_line):
                receipts = _put_piece(client, shape, piece)
                for topic, tally in tallies.items():
                    tally.add([receipt for receipt in receipts if receipt.topic == topic])
                done = piece.last_line
                if sys.stdin.isatty():
                    _echo(output, receipts)
                advance(len(piece.values))
        except (OnceMQError, KeyboardInterrupt):
            _say_where(output, range(from_line, done + 1), piece, is_kept=is_durable and client.pending > 0)
            raise
    for tally in tallies.values():
        output.result(tally.as_row(done), tally.as_text())


def _stdin() -> BufferedReader:
    return sys.stdin.buffer  # type: ignore[return-value]  # Typed as less than it is.


def _put_piece(client: Client, shape: Shape, piece: Piece) -> list[Receipt]:
    if shape.headers is None:
        keys = None if shape.key is None else [shape.key] * len(piece.values)
        return list(client.put_many(shape.topics, piece.values, keys=keys, strict=shape.strict))
    return [
        receipt
        for value in piece.values
        for receipt in client.put(shape.topics, value, key=shape.key, headers=shape.headers, strict=shape.strict)
    ]


def _echo(output: Output, receipts: list[Receipt]) -> None:
    """Somebody is typing and wants to see what becomes of each line."""
    for receipt in receipts:
        output.result(as_row(receipt), as_text(receipt))


def _say_where(output: Output, lines: range, piece: Piece | None, *, is_kept: bool) -> None:
    """Name the line to go on with. What was on the way is kept by a durable client, and unknown otherwise."""
    told = f"lines {lines.start} to {lines.stop - 1} are stored" if lines else "no line is confirmed"
    following = lines.stop
    if piece is not None and piece.last_line >= following:
        on_the_way = f"{following} to {piece.last_line}"
        if is_kept:
            told += f", {on_the_way} are kept and will be sent"
            following = piece.last_line + 1
        else:
            told += f", some of {on_the_way} may be and would be repeated"
    output.remark({"next_line": following, "text": told}, f"{told}: go on with --from-line {following}")


@contextmanager
def _progress(output: Output) -> Iterator[Callable[[int], None]]:
    """Count lines on the terminal while stdin comes from elsewhere."""
    if not output.has_watcher or sys.stdin.isatty():
        yield lambda _: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} messages"), TimeElapsedColumn())
    with Progress(*columns, console=output.console(stderr=True), transient=True) as progress:
        task = progress.add_task("put", total=None)
        yield lambda count: progress.advance(task, count)

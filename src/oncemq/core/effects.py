# SPDX-License-Identifier: Apache-2.0
"""What a decision asks the engine to do. Order is a type: everything here is spoken after the sync, refusals too.

May not: do anything.
The idea: the engine applies the records at once, appends and syncs them with all others of the same drain, and only
then speaks. An answer without records of its own waits as well: it may depend on a record of the same drain.
Next: engine/loop.py, which carries them out.
"""

from __future__ import annotations

import msgspec

from oncemq.core.packets import Packet, Part, Refused
from oncemq.core.parts import Splice
from oncemq.core.records import Record
from oncemq.model.refusals import TEXTS, Code


class Sender(msgspec.Struct, frozen=True, gc=False):
    """Whom to answer: an address of the network and the number of the request."""

    address: bytes
    request: int


class Send(msgspec.Struct, frozen=True, gc=False):
    """Say this packet."""

    to: Sender
    packet: Packet


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Read these ranges (topic id, first, end) from the journal once synced, and say them as Blocks.

    Where a splice comes next in one of the topics, only blocks with append numbers below `horizon` are said; if there are none,
    rows `spliced` (first, end) of that splice are. Whoever asks for one topic only is told more, up to `end`, as far as it fits.
    """

    to: Sender
    parts: tuple[Part, ...]
    ranges: tuple[tuple[int, int, int], ...]
    bytes_max: int
    through: int
    horizon: int = 0
    splice: Splice | None = None
    spliced: tuple[int, int] = (0, 0)
    spliced_topic_id: int = 0
    end: int = 0


class Publish(msgspec.Struct, frozen=True, gc=False):
    """Say to everybody who follows this topic where it ends, with the blocks of [first, end)."""

    topic_id: int
    first: int
    end: int


class Report(msgspec.Struct, frozen=True, gc=False):
    """Say how the broker is, or its mesh; the engine adds what only it knows."""

    to: Sender
    is_mesh: bool = False


class Stop(msgspec.Struct, frozen=True, gc=False):
    """End the loop once everything is said."""


Speech = Send | Deliver | Publish | Report | Stop


class Effects(msgspec.Struct, frozen=True, gc=False):
    """Records to write, in this order, and what to say once they are synced."""

    records: tuple[Record, ...] = ()
    speech: tuple[Speech, ...] = ()


NOTHING = Effects()


def answer(to: Sender, packet: Packet, *records: Record) -> Effects:
    return Effects(records, (Send(to, packet),))


def refusal(code: Code, *, expected: int = 0, detail: str = "") -> Refused:
    """Return the packet that says no, with the text people read."""
    text = TEXTS[code]
    return Refused(code.value, f"{text} ({detail})" if detail else text, expected)


def refuse(to: Sender, code: Code, *, expected: int = 0, detail: str = "") -> Effects:
    return Effects((), (Send(to, refusal(code, expected=expected, detail=detail)),))

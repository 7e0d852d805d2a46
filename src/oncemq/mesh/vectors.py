# SPDX-License-Identifier: Apache-2.0
"""Version vectors without gaps: how far each origin has come here, and a digest of all of it in eight bytes.

May not: know a number above a hole: what comes early is not in the vector, or a crash would lose it for ever (R25).
The idea: the digest is the sum of a hash per entry, so that it does not depend on order and follows one entry in constant time.
Two nodes with equal digests have the same messages; the cost of finding that out does not grow with how many.
Next: antientropy.py, which compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from oncemq.errors import invariant
from oncemq.limits import MESH_VECTOR_ENTRIES
from oncemq.mesh.packets import Had, Origin, Vector

_MODULUS = 2**64


def _weight(origin: Origin, number: int) -> int:
    if not number:
        return 0
    named = origin.node + origin.start_id + number.to_bytes(8, "little")
    return int.from_bytes(blake2b(named, digest_size=8).digest(), "little")


class Watermarks:
    """Per origin: everything up to this number is stored, or given up."""

    def __init__(self) -> None:
        self._had: dict[Origin, int] = {}
        self._sum = 0

    def __getitem__(self, origin: Origin) -> int:
        return self._had.get(origin, 0)

    def __len__(self) -> int:
        return len(self._had)

    def __iter__(self) -> Iterator[Origin]:
        return iter(self._had)

    def raise_to(self, origin: Origin, number: int) -> None:
        before = self[origin]
        invariant(number >= before, "a watermark went back", origin=origin, number=number)
        self._sum = (self._sum - _weight(origin, before) + _weight(origin, number)) % _MODULUS
        self._had[origin] = number

    @property
    def digest(self) -> bytes:
        return self._sum.to_bytes(8, "little")

    def entries(self) -> tuple[Had, ...]:
        """All of it, sorted by origin."""
        return tuple(Had(origin, number) for origin, number in sorted(self._had.items()))

    def covers(self, entries: Iterable[Had]) -> bool:
        return all(self[entry.origin] >= entry.number for entry in entries)

    def packets(self, entries_max: int = MESH_VECTOR_ENTRIES) -> list[Vector]:
        """All of it as packets; each says from which origin to which it is complete."""
        entries = self.entries()
        cuts = range(0, max(len(entries), 1), entries_max)
        firsts = [entries[cut].origin if cut else None for cut in cuts]
        ends = [*firsts[1:], None]
        return [Vector(entries[cut : cut + entries_max], firsts[i], ends[i]) for i, cut in enumerate(cuts)]

    def lacking(self, theirs: Vector) -> list[Had]:
        """What we have and they lack, within the origins that their packet is complete for."""
        told = {entry.origin: entry.number for entry in theirs.entries}
        first, end = theirs.first, theirs.end
        return [
            Had(origin, number)
            for origin, number in sorted(self._had.items())
            if (first is None or origin >= first) and (end is None or origin < end) and number > told.get(origin, 0)
        ]

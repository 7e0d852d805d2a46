# SPDX-License-Identifier: Apache-2.0
"""How far one batch goes, and how it is cut into tasks. Arithmetic only.

May not: ask a broker anything.
The idea: a rate limit is shared by topics in proportion to what waits in each, so that a small topic is not starved by a large
one and both arrive together. Ranges are cut into equal pieces; a block that lies across a border is read twice and used once.
Next: source.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from oncemq.limits import SPARK_SPLIT_ROWS
from oncemq.pipeline.reading import OffsetRange


def prorate(waiting: Mapping[str, int], rows_max: int) -> dict[str, int]:
    """Return how many of the waiting rows of each topic to take: `rows_max` together, and at least one somewhere."""
    total = sum(waiting.values())
    if total <= rows_max:
        return dict(waiting)
    taken = {topic: rows_max * rows // total for topic, rows in waiting.items()}
    left = rows_max - sum(taken.values())
    for topic in sorted(waiting, key=lambda name: (-waiting[name], name)):
        if left and taken[topic] < waiting[topic]:
            taken[topic] += 1
            left -= 1
    return taken


def split(ranges: Sequence[OffsetRange], *, partitions_min: int | None, cores: int) -> list[OffsetRange]:
    """Cut ranges into pieces: about `partitions_min` together if it was given, else as many as cores have use for."""
    filled = [each for each in ranges if each.rows > 0]
    total = sum(each.rows for each in filled)
    if not total:
        return []
    wanted = partitions_min or min(cores, -(-total // SPARK_SPLIT_ROWS))
    pieces: list[OffsetRange] = []
    for each in filled:
        pieces += _pieces(each, max(1, round(wanted * each.rows / total)))
    return pieces


def _pieces(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Equal pieces; only the last one keeps the mark of the end."""
    count = min(count, whole.rows)
    borders = [whole.first + whole.rows * index // count for index in range(count + 1)]
    bare = msgspec.structs.replace(whole, append_number=0)
    pieces = [msgspec.structs.replace(bare, first=first, end=end) for first, end in pairwise(borders)]
    pieces[-1] = msgspec.structs.replace(whole, first=pieces[-1].first)
    return pieces

# SPDX-License-Identifier: Apache-2.0
"""`oncemq bench memory`: how much a broker's memory grows while messages are put that nobody gets.

May not: count what a broker needs once, for its first blocks: that is there before the first look.
The idea: what the broker keeps per block is what could grow, so `--single` makes each message a block of its own. Blocks of one
are slow one by one; a block for each of many topics is cut and confirmed in one go.
Next: workplace.py, which asks the system for the memory of a process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import oncemq
from oncemq.cli.benchmarks.gets import fill
from oncemq.cli.benchmarks.workplace import TOPIC, Workplace, values_of, workplace
from oncemq.limits import BLOCK_CUT_MESSAGES, PUT_WINDOW_BLOCKS

WARM_UP_BLOCKS = 1_000
MEGABYTE = 1_000_000
TOPICS = tuple(f"{TOPIC}.{number}" for number in range(PUT_WINDOW_BLOCKS))
"""As many as blocks are in flight at a time."""
_PART_MESSAGES = 100 * len(TOPICS)
"""Messages between two looks of the progress bar."""


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """Megabytes are millions of bytes of resident memory of the broker's process."""

    rss_megabytes_before: float
    rss_megabytes_after: float
    growth_megabytes: float
    messages: int
    size_bytes: int
    single: bool
    file_system: str


def bench_memory(
    directory: Path, *, size_bytes: int, messages: int, single: bool, advance: Callable[[int], None]
) -> MemoryResult:
    with workplace(directory) as place:
        broker = place.start_broker()
        place.subscribe(broker, TOPICS if single else (TOPIC,))
        client, values = place.connect(broker), values_of(size_bytes)
        put, per_block = (_put_single, 1) if single else (fill, BLOCK_CUT_MESSAGES)
        put(client, values, WARM_UP_BLOCKS * per_block, lambda _: None)
        before_bytes = broker.rss_bytes()
        put(client, values, messages, advance)
        return _result(place, before_bytes, broker.rss_bytes(), messages=messages, size_bytes=size_bytes, single=single)


def _put_single(client: oncemq.Client, values: list[bytes], count: int, advance: Callable[[int], None]) -> None:
    """Put so many messages, each a block of its own, and have them confirmed."""
    done = 0
    while done < count:
        share = min(_PART_MESSAGES, count - done)
        for first in range(0, share, len(TOPICS)):
            for topic, value in zip(TOPICS[: share - first], values, strict=False):
                client.put(topic, value, wait=False)
            client.flush()
        done += share
        advance(share)


def _result(
    place: Workplace, before_bytes: int, after_bytes: int, *, messages: int, size_bytes: int, single: bool
) -> MemoryResult:
    return MemoryResult(
        rss_megabytes_before=before_bytes / MEGABYTE,
        rss_megabytes_after=after_bytes / MEGABYTE,
        growth_megabytes=(after_bytes - before_bytes) / MEGABYTE,
        messages=messages,
        size_bytes=size_bytes,
        single=single,
        file_system=place.file_system,
    )

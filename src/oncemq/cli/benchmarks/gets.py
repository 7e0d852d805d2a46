# SPDX-License-Identifier: Apache-2.0
"""`oncemq bench get`: how fast one subscriber gets messages that are stored already.

May not: count a message that was not handed out in order.
The idea: fill first, then get in rounds. The subscriber's slot is on the same disk and is written for every hand-over, as always.
Next: puts.py for the other direction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import oncemq
from oncemq.cli.benchmarks.workplace import TOPIC, Workplace, repeated, shares, values_of, workplace

ROUNDS = 5
GET_MANY_MESSAGES = 1_000
TIMEOUT_SECONDS = 30
_FILL_MESSAGES = 100_000
"""Messages of one put_many while filling, so that the progress bar moves."""


@dataclass(frozen=True, slots=True)
class GetResult:
    messages_per_second: float
    megabytes_per_second: float
    messages: int
    size_bytes: int
    single: bool
    rounds_messages_per_second: list[float]
    file_system: str


def bench_get(directory: Path, *, size_bytes: int, count: int, single: bool, advance: Callable[[int], None]) -> GetResult:
    with workplace(directory) as place:
        broker = place.start_broker()
        subscriber, publisher = place.subscribe(broker), place.connect(broker)
        fill(publisher, values_of(size_bytes), count, advance)
        place.settle()
        rates, next_offset = [], 0
        for share in shares(count, ROUNDS):
            started = time.perf_counter()
            _get_all(subscriber, next_offset, share, single=single)
            rates.append(share / (time.perf_counter() - started))
            next_offset += share
            advance(share)
        return _result(rates, place, size_bytes=size_bytes, count=count, single=single)


def fill(client: oncemq.Client, values: list[bytes], count: int, advance: Callable[[int], None]) -> None:
    """Put so many messages and have them confirmed."""
    done = 0
    while done < count:
        share = min(_FILL_MESSAGES, count - done)
        client.put_many(TOPIC, repeated(values, share))
        done += share
        advance(share)


def _get_all(client: oncemq.Client, first_offset: int, count: int, *, single: bool) -> None:
    """Get so many messages; any gap, repeat or silence ends the benchmark."""
    last = _get_single(client, count) if single else _get_blocks(client, count)
    if last is None or last.offset != first_offset + count - 1:
        raise oncemq.UsageError(f"expected message {first_offset + count - 1} last, got {last!r}")


def _get_single(client: oncemq.Client, count: int) -> oncemq.Message | None:
    get, message = client.get, None
    for _ in range(count):
        message = get(TOPIC, timeout=TIMEOUT_SECONDS)
    return message


def _get_blocks(client: oncemq.Client, count: int) -> oncemq.Message | None:
    messages: list[oncemq.Message] = []
    left = count
    while left:
        messages = client.get_many(TOPIC, min(GET_MANY_MESSAGES, left), timeout=TIMEOUT_SECONDS)
        left -= len(messages)
        if not messages:
            return None
    return messages[-1]


def _result(rates: list[float], place: Workplace, *, size_bytes: int, count: int, single: bool) -> GetResult:
    return GetResult(
        messages_per_second=median(rates),
        megabytes_per_second=median(rates) * size_bytes / 1_000_000,
        messages=count,
        size_bytes=size_bytes,
        single=single,
        rounds_messages_per_second=rates,
        file_system=place.file_system,
    )

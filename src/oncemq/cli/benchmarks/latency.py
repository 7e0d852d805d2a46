# SPDX-License-Identifier: Apache-2.0
"""`oncemq bench latency`: how long one synchronous put takes, beside one bare round trip with one fdatasync.

May not: pick the better rounds of either side.
The idea: both sides take turns in short rounds, so that whatever else the machine does meets both. The frames and the
written bytes of the bare side have the sizes of the real ones.
Next: echo.py for the bare side.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import oncemq
from oncemq.cli.benchmarks.echo import Echo
from oncemq.cli.benchmarks.puts import written
from oncemq.cli.benchmarks.workplace import TOPIC, Workplace, shares, values_of, workplace
from oncemq.core.packets import NOBODY, Put, PutDone, PutOutcome
from oncemq.core.publisher import OpenBlock
from oncemq.wire.codec import encode

ROUNDS = 20
WARM_UP_PUTS = 100
MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class LatencyResult:
    p50_us: float
    p99_us: float
    floor_us: float
    floor_p99_us: float
    ratio_to_floor: float
    puts: int
    size_bytes: int
    bytes_per_group: int
    file_system: str


def bench_latency(directory: Path, *, size_bytes: int, count: int, advance: Callable[[int], None]) -> LatencyResult:
    with workplace(directory) as place:
        broker = place.start_broker()
        place.subscribe(broker)
        client, value = place.connect(broker), values_of(size_bytes)[0]
        group_bytes = _warm_up(client, value)
        echo = _start_echo(place, value, group_bytes)
        try:
            place.settle()
            puts, floors = _take_turns(lambda: client.put(TOPIC, value), echo.call, count, advance)
        finally:
            echo.close()
        return _result(puts, floors, place, size_bytes=size_bytes, group_bytes=group_bytes)


def _warm_up(client: oncemq.Client, value: bytes) -> int:
    """Put a few messages and return how many bytes the journal wrote for one."""
    before = written(client)
    for _ in range(WARM_UP_PUTS):
        client.put(TOPIC, value)
    after = written(client)
    return (after.size_bytes - before.size_bytes) // (after.groups - before.groups)


def _start_echo(place: Workplace, value: bytes, group_bytes: int) -> Echo:
    block = OpenBlock((TOPIC,), strict=False)
    block.add(value, time.time_ns() // 1_000)
    request = encode(1, Put(NOBODY, NOBODY, 1_000, 1, (TOPIC,), False))
    reply = encode(1, PutDone(NOBODY, 1_000, 1, False, "", (PutOutcome(2**62, True, 1_000),)))
    sizes = (len(request), len(block.cut()))
    echo = Echo(place, group_bytes=group_bytes, reply_bytes=len(reply), request_sizes=sizes)
    for _ in range(WARM_UP_PUTS):
        echo.call()
    return echo


def _take_turns(
    put: Callable[[], object], call: Callable[[], object], count: int, advance: Callable[[int], None]
) -> tuple[list[float], list[float]]:
    puts: list[float] = []
    floors: list[float] = []
    for share in shares(count, ROUNDS):
        puts += _timed(put, share)
        floors += _timed(call, share)
        advance(share)
    return puts, floors


def _timed(action: Callable[[], object], count: int) -> list[float]:
    """How many microseconds each of so many calls took."""
    taken = []
    for _ in range(count):
        started = time.perf_counter()
        action()
        taken.append((time.perf_counter() - started) * MICROSECONDS)
    return taken


def _result(puts: list[float], floors: list[float], place: Workplace, *, size_bytes: int, group_bytes: int) -> LatencyResult:
    return LatencyResult(
        p50_us=median(puts),
        p99_us=_p99(puts),
        floor_us=median(floors),
        floor_p99_us=_p99(floors),
        ratio_to_floor=median(puts) / median(floors),
        puts=len(puts),
        size_bytes=size_bytes,
        bytes_per_group=group_bytes,
        file_system=place.file_system,
    )


def _p99(taken: list[float]) -> float:
    return quantiles(taken, n=100, method="inclusive")[98] if len(taken) > 1 else taken[0]

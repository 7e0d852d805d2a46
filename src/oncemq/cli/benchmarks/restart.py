# SPDX-License-Identifier: Apache-2.0
"""`oncemq bench restart`: how long a broker that was killed -9 under load needs until it confirms the next put.

May not: measure a client's patience: the client that asks is made when the new broker says that it listens.
The idea: fill a journal that nobody reads, so that nothing is trimmed. Then a few times: a publisher puts, kill -9 the broker
in the middle of it, start a new one over the same directory, and stop the clock at the first receipt. What Python itself needs
for starting and importing is measured beside it.
Next: load.py for the publisher, memory.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import oncemq
from oncemq.cli.benchmarks.load import BLOCK_MESSAGES, VALUE_BYTES
from oncemq.cli.benchmarks.workplace import (
    TOPIC,
    BrokerProcess,
    Workplace,
    kill_process,
    read_first_line,
    repeated,
    values_of,
    workplace,
)

ROUNDS = 3
GIGABYTE = 1_000_000_000
_PUT_BLOCKS = 50
"""Blocks of one put_many while filling, so that the progress bar moves."""
_ROUND_STEPS = 400
"""A round takes about as long as filling so many blocks. guess, for the progress bar only."""
_LOAD_SECONDS = 0.3
_IMPORTS = "import oncemq.cli.main, oncemq.client.broker"
"""What `oncemq serve` imports until it opens its directory."""


@dataclass(frozen=True, slots=True)
class RestartResult:
    """Seconds are medians of rounds. Gigabytes are thousands of millions of bytes of journal at the last start."""

    seconds: float
    seconds_python: float
    gigabytes: float
    segments: int
    messages: int
    rounds_seconds: list[float]
    file_system: str


def steps_of(gigabytes: float) -> int:
    """How many steps `bench_restart` will tell."""
    return _blocks_of(gigabytes) + ROUNDS * _ROUND_STEPS


def bench_restart(directory: Path, *, gigabytes: float, advance: Callable[[int], None]) -> RestartResult:
    with workplace(directory) as place:
        broker = place.start_broker()
        place.subscribe(broker).close()
        _fill(place.connect(broker), _blocks_of(gigabytes), advance)
        rounds, python = [], []
        for _ in range(ROUNDS):
            place.settle()
            python.append(_start_python(place))
            expected = _kill_under_load(place, broker)
            broker, seconds = _restart(place, expected)
            rounds.append(seconds)
            advance(_ROUND_STEPS)
        return _result(place, broker, rounds, python)


def _blocks_of(gigabytes: float) -> int:
    return max(1, round(gigabytes * GIGABYTE / (BLOCK_MESSAGES * VALUE_BYTES)))


def _fill(client: oncemq.Client, blocks: int, advance: Callable[[int], None]) -> None:
    """Put so many blocks and leave: nobody must knock at the old address while the new broker starts."""
    values, done = values_of(VALUE_BYTES), 0
    while done < blocks:
        share = min(_PUT_BLOCKS, blocks - done)
        client.put_many(TOPIC, repeated(values, share * BLOCK_MESSAGES))
        done += share
        advance(share)
    client.close()


def _start_python(place: Workplace) -> float:
    """How many seconds an interpreter takes to start, to import what a broker needs, and to end."""
    started = time.perf_counter()
    place.start_python("-c", _IMPORTS).wait()
    return time.perf_counter() - started


def _kill_under_load(place: Workplace, broker: BrokerProcess) -> int:
    """Kill the broker while a publisher puts; return how many messages were confirmed at least."""
    with oncemq.connect(broker.address) as client:
        expected = client.admin.topics(TOPIC)[0].end
    load = place.start_python("-m", "oncemq.cli.benchmarks.load", broker.address, str(place.directory / f"load-{expected}"))
    read_first_line(load)
    time.sleep(_LOAD_SECONDS)  # Any moment will do; by now blocks are in flight all the time.
    broker.kill()
    kill_process(load)
    return expected


def _restart(place: Workplace, expected: int) -> tuple[BrokerProcess, float]:
    """Start a broker and put one message; what was confirmed before must lie before it."""
    started = time.perf_counter()
    broker = place.start_broker()
    with oncemq.connect(broker.address) as client:
        receipt = client.put(TOPIC, b"first")
        seconds = time.perf_counter() - started
    if receipt.offset is None or receipt.offset < expected:
        raise oncemq.Diverged(f"{expected} messages were confirmed, and the first put after the restart is {receipt.offset}")
    return broker, seconds


def _result(place: Workplace, broker: BrokerProcess, rounds: list[float], python: list[float]) -> RestartResult:
    with oncemq.connect(broker.address) as client:
        values, messages = client.admin.stats().values, client.admin.topics(TOPIC)[0].end
    return RestartResult(
        seconds=median(rounds),
        seconds_python=median(python),
        gigabytes=values["journal_bytes"] / GIGABYTE,
        segments=values["journal_segments"],
        messages=messages,
        rounds_seconds=rounds,
        file_system=place.file_system,
    )

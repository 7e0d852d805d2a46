# SPDX-License-Identifier: Apache-2.0
"""`oncemq bench fanout`: how many messages a second reach many live subscribers together, and what one more costs the broker.

May not: count what was not handed out in order by a subscriber of its own; let the publishers run away from the slowest one.
The idea: a few publishers, one broker, two processes that hold the subscribers (ears.py). The publishers stay a few blocks ahead
of the slowest, so that what is measured is the live path and not the way a slow one catches up. A round is timed until everybody
has everything. The broker's time is read per thread: its own loop, and ZeroMQ's, which writes to every connection.
Next: gets.py for the same without push.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count as counting
from pathlib import Path

import oncemq
from oncemq.cli.benchmarks.ears import PROGRESS, open_progress
from oncemq.cli.benchmarks.workplace import TOPIC, BrokerProcess, Workplace, read_first_line, values_of, workplace

PROCESSES = 2
PUBLISHERS = 6
"""Each waits for every block of its own to be confirmed; together they share syncs, as publishers do."""
AHEAD_BLOCKS = 48
"""How far the publisher may be ahead of the slowest subscriber: less than fits its queue, so that nothing is lost to it."""
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What a number of subscribers costs the broker for one block."""

    subscribers: int
    deliveries_per_second: float
    broker_loop_us_per_block: float
    zeromq_us_per_block: float


@dataclass(frozen=True, slots=True)
class FanoutResult:
    deliveries_per_second: float
    subscribers: int
    blocks: int
    block_messages: int
    size_bytes: int
    broker_loop_us_per_block: float
    broker_loop_us_per_block_of_one: float
    costs: list[Cost]
    got_packets: int
    file_system: str


def bench_fanout(
    directory: Path, *, subscribers: int, blocks: int, block_messages: int, size_bytes: int, advance: Callable[[int], None]
) -> FanoutResult:
    counts = sorted({1, min(10, subscribers), subscribers})
    costs, got, system = [], 0, ""
    for count in counts:
        with workplace(directory) as place:
            cost, got = _measure(place, count, blocks, values_of(size_bytes)[:block_messages])
            costs.append(cost)
            system = place.file_system
        advance(blocks)
    last = costs[-1]
    return FanoutResult(
        deliveries_per_second=last.deliveries_per_second,
        subscribers=subscribers,
        blocks=blocks,
        block_messages=block_messages,
        size_bytes=size_bytes,
        broker_loop_us_per_block=last.broker_loop_us_per_block,
        broker_loop_us_per_block_of_one=costs[0].broker_loop_us_per_block,
        costs=costs,
        got_packets=got,
        file_system=system,
    )


def _measure(place: Workplace, count: int, blocks: int, values: list[bytes]) -> tuple[Cost, int]:
    """Have `count` subscribers take so many blocks; return what it cost, and how many packets the broker had besides puts."""
    (place.directory / PROGRESS).write_bytes(bytes(8 * count))
    broker = _assemble(place, count)
    publishers = [place.connect(broker) for _ in range(PUBLISHERS)]
    progress, layout = open_progress(place.directory), struct.Struct(f"<{count}Q")
    packets = publishers[0].admin.stats().values["count_packets"]
    before, started = thread_times_ns(broker), time.perf_counter()
    numbers, turn = counting(), threading.Lock()

    def put(publisher: oncemq.Client) -> None:
        while True:
            with turn:
                number = next(numbers)
            if number >= blocks:
                return
            _await(lambda: min(layout.unpack(progress)), (number - AHEAD_BLOCKS) * len(values))
            publisher.put_many(TOPIC, values)

    with ThreadPoolExecutor(PUBLISHERS) as pool:
        list(pool.map(put, publishers))
    _await(lambda: min(layout.unpack(progress)), blocks * len(values))
    elapsed, after = time.perf_counter() - started, thread_times_ns(broker)
    loop_ns = after.get(broker.pid, 0) - before.get(broker.pid, 0)
    all_ns = sum(after.values()) - sum(before.values())
    packets = publishers[0].admin.stats().values["count_packets"] - packets - blocks
    rate = count * blocks * len(values) / elapsed
    return Cost(count, rate, loop_ns / 1000 / blocks, (all_ns - loop_ns) / 1000 / blocks), packets


def _assemble(place: Workplace, count: int) -> BrokerProcess:
    broker = place.start_broker()
    first, processes = 0, []
    for number in range(min(PROCESSES, count)):
        share = count // PROCESSES + (number < count % PROCESSES) if count >= PROCESSES else 1
        arguments = (broker.address, str(place.directory), str(first), str(share))
        processes.append(place.start_python("-m", "oncemq.cli.benchmarks.ears", *arguments))
        first += share
    for process in processes:
        read_first_line(process)
    return broker


def _await(place: Callable[[], int], wanted: int) -> None:
    due = time.monotonic() + _PATIENCE_S
    while place() < wanted:
        if time.monotonic() > due:
            raise oncemq.UsageError(f"a subscriber stands at message {place()}, {wanted} were put")
        time.sleep(0.0002)


def thread_times_ns(broker: BrokerProcess) -> dict[int, int]:
    """How long each thread of the broker has run, in nanoseconds; its loop is the thread with the process's own id."""
    found = {}
    for task in Path(f"/proc/{broker.pid}/task").iterdir():
        try:
            found[int(task.name)] = int((task / "schedstat").read_text(encoding="ascii").split()[0])
        except OSError:
            continue
    return found

# SPDX-License-Identifier: Apache-2.0
"""`oncemq bench fanout`: how many messages a second reach many live subscribers together, and what one more costs the broker.

May not: count what was not handed out in order by a subscriber of its own; let the publishers run away from the slowest one.
The idea: a few publishers, one broker, two processes that hold the subscribers (ears.py). The publishers stay a few blocks ahead
of the slowest, so that what is measured is the live path and not the way a slow one catches up. A round is timed until everybody
has everything. The broker's time is read per thread: its own loop, and ZeroMQ's, which writes to every connection.
The floor is ZeroMQ alone: one bare socket that says packets of the same size once, and as many bare sockets that take them.
Next: bare_ears.py for the floor, gets.py for the same without push.
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
from oncemq.adapters.zmq_fan import Fan
from oncemq.cli.benchmarks.ears import PROGRESS, open_progress
from oncemq.cli.benchmarks.workplace import TOPIC, BrokerProcess, Workplace, read_first_line, values_of, workplace

PROCESSES = 2
PUBLISHERS = 16
"""Each waits for every block of its own to be confirmed; together they share syncs, as publishers do."""
AHEAD_BLOCKS = 120
"""How far the publisher may be ahead of the slowest subscriber: less than fits its queue, so that nothing is lost to it."""
_PATIENCE_S = 60.0
_LOOK_S = 0.0005


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
    floor_deliveries_per_second: float
    ratio_to_floor: float
    blocks_per_packet: float
    subscribers: int
    blocks: int
    block_messages: int
    size_bytes: int
    broker_loop_us_per_block: float
    broker_loop_us_per_block_of_one: float
    bare_send_us: float
    bare_send_us_of_one: float
    costs: list[Cost]
    got_packets: int
    file_system: str


def bench_fanout(
    directory: Path, *, subscribers: int, blocks: int, block_messages: int, size_bytes: int, advance: Callable[[int], None]
) -> FanoutResult:
    counts = sorted({1, min(10, subscribers), subscribers})
    costs, got, packed, system = [], 0, 1.0, ""
    for count in counts:
        with workplace(directory) as place:
            cost, got, packed = _measure(place, count, blocks, values_of(size_bytes)[:block_messages])
            costs.append(cost)
            system = place.file_system
        advance(blocks)
    last = costs[-1]
    packets = max(1, round(blocks / packed))
    body = bytes(blocks * block_messages * size_bytes // packets)
    with workplace(directory) as place:
        _, send_us_of_one = _measure_floor(place, 1, packets, body)
    with workplace(directory) as place:
        floor, send_us = _measure_floor(place, subscribers, packets, body)
    floor *= blocks * block_messages / packets
    return FanoutResult(
        deliveries_per_second=last.deliveries_per_second,
        floor_deliveries_per_second=floor,
        ratio_to_floor=last.deliveries_per_second / floor,
        blocks_per_packet=packed,
        subscribers=subscribers,
        blocks=blocks,
        block_messages=block_messages,
        size_bytes=size_bytes,
        broker_loop_us_per_block=last.broker_loop_us_per_block,
        broker_loop_us_per_block_of_one=costs[0].broker_loop_us_per_block,
        bare_send_us=send_us,
        bare_send_us_of_one=send_us_of_one,
        costs=costs,
        got_packets=got,
        file_system=system,
    )


def _measure(place: Workplace, count: int, blocks: int, values: list[bytes]) -> tuple[Cost, int, float]:
    """Have `count` subscribers take so many blocks; return what it cost, how many packets the broker had besides puts, and how
    many blocks left together."""
    broker = place.start_broker()
    _assemble(place, "ears", broker.address, count)
    publishers = [place.connect(broker) for _ in range(PUBLISHERS)]
    progress, layout = open_progress(place.directory), struct.Struct(f"<{count}Q")
    stats = publishers[0].admin.stats().values
    before, started = thread_times_ns(broker), time.perf_counter()
    numbers, turn = counting(), threading.Lock()

    def put(publisher: oncemq.Client) -> None:
        while True:
            with turn:  # One of them looks how far the slowest is; the others wait without costing anything.
                number = next(numbers)
                _await(lambda: min(layout.unpack(progress)), (min(number, blocks) - AHEAD_BLOCKS) * len(values))
            if number >= blocks:
                return
            publisher.put_many(TOPIC, values)

    with ThreadPoolExecutor(PUBLISHERS) as pool:
        list(pool.map(put, publishers))
    _await(lambda: min(layout.unpack(progress)), blocks * len(values))
    elapsed, after = time.perf_counter() - started, thread_times_ns(broker)
    loop_ns = after.get(broker.pid, 0) - before.get(broker.pid, 0)
    all_ns = sum(after.values()) - sum(before.values())
    grown = {name: value - stats.get(name, 0) for name, value in publishers[0].admin.stats().values.items()}
    cost = Cost(count, count * blocks * len(values) / elapsed, loop_ns / 1000 / blocks, (all_ns - loop_ns) / 1000 / blocks)
    return cost, grown["count_packets"] - blocks, grown["count_live_blocks"] / max(1, grown["count_live_packets"])


def _measure_floor(place: Workplace, count: int, packets: int, body: bytes) -> tuple[float, float]:
    """How many packets a second reach so many bare sockets together, and how long the one who says them is busy with one."""
    fan, busy_ns = Fan(), 0
    try:
        _assemble(place, "bare_ears", fan.address, count)
        fan.await_followers(count)
        progress, layout = open_progress(place.directory), struct.Struct(f"<{count}Q")
        started = time.perf_counter()
        for number in range(packets):
            _await(lambda: min(layout.unpack(progress)), number - AHEAD_BLOCKS)
            before_ns = time.thread_time_ns()
            fan.say(body)
            busy_ns += time.thread_time_ns() - before_ns
        _await(lambda: min(layout.unpack(progress)), packets)
        return count * packets / (time.perf_counter() - started), busy_ns / 1000 / packets
    finally:
        fan.close()


def _assemble(place: Workplace, module: str, address: str, count: int) -> None:
    """Start the processes with the many ends, and wait until they listen."""
    (place.directory / PROGRESS).write_bytes(bytes(8 * count))
    first, processes = 0, []
    for number in range(min(PROCESSES, count)):
        share = count // PROCESSES + (number < count % PROCESSES) if count >= PROCESSES else 1
        arguments = (address, str(place.directory), str(first), str(share))
        processes.append(place.start_python("-m", f"oncemq.cli.benchmarks.{module}", *arguments))
        first += share
    for process in processes:
        read_first_line(process)


def _await(place: Callable[[], int], wanted: int) -> None:
    due = time.monotonic() + _PATIENCE_S
    while place() < wanted:
        if time.monotonic() > due:
            raise oncemq.UsageError(f"a subscriber stands at message {place()}, {wanted} were put")
        time.sleep(_LOOK_S)


def thread_times_ns(broker: BrokerProcess) -> dict[int, int]:
    """How long each thread of the broker has run, in nanoseconds; its loop is the thread with the process's own id."""
    found = {}
    for task in Path(f"/proc/{broker.pid}/task").iterdir():
        try:
            found[int(task.name)] = int((task / "schedstat").read_text(encoding="ascii").split()[0])
        except OSError:
            continue
    return found

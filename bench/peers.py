# SPDX-License-Identifier: Apache-2.0
"""OnceMQ beside Redis Streams: the same messages, the same disk, the same run, both synced before they confirm.

    python bench/peers.py [--messages 200000] [--size 100] [--rounds 5] [--directory DIR]

May not: touch a Redis that was there before: it starts one of its own on a free port and ends it by its process id.
The idea: both take turns in rounds and begin in turn, so that whatever else the machine does meets both. OnceMQ puts with
put_many and gets with get_many, everything on (outbox, slots). Redis promises the same for a put (appendonly, appendfsync
always) and does nothing besides: no snapshots, no rewriting. Pipelines of 1,000 XADD, XREAD of 1,000 entries. One JSON object.
Next: docs/performance.md for how to read it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import oncemq
from oncemq.cli.benchmarks.workplace import TOPIC, Workplace, repeated, shares, values_of, workplace

BATCH_MESSAGES = 1_000
FIELD = b"value"
START_SECONDS_MAX = 10.0
TIMEOUT_SECONDS = 30
HELP = "apt-get install redis-server; pip install redis"


class Peer(Protocol):
    """One side of the comparison."""

    def put(self, values: list[bytes]) -> None:
        """Return once all of these are on the disk."""

    def get(self, count: int) -> None:
        """Get the next so many messages, and check that they are all there."""


# --- OnceMQ -----------------------------------------------------------------------------------------


class OnceMQ:
    """A broker process and two clients with everything on."""

    def __init__(self, place: Workplace) -> None:
        broker = place.start_broker()
        self._subscriber, self._publisher = place.subscribe(broker), place.connect(broker)
        self._next_offset = 0

    def put(self, values: list[bytes]) -> None:
        self._publisher.put_many(TOPIC, values)

    def get(self, count: int) -> None:
        end = self._next_offset + count
        while self._next_offset < end:
            wanted = min(BATCH_MESSAGES, end - self._next_offset)
            messages = self._subscriber.get_many(TOPIC, wanted, timeout=TIMEOUT_SECONDS)
            if not messages or messages[0].offset != self._next_offset:
                sys.exit(f"OnceMQ: message {self._next_offset} did not come")
            self._next_offset += len(messages)


# --- Redis Streams ----------------------------------------------------------------------------------


class RedisStreams:
    """A redis-server process and one connection."""

    def __init__(self, place: Workplace) -> None:
        import redis  # noqa: PLC0415 - main() has looked whether it is there

        port = free_port()
        self._process = start_redis(place, port)
        self._connection = redis.Redis(host="127.0.0.1", port=port)
        self._last_id = b"0"
        self._wait_until_ready(redis.exceptions.ConnectionError)

    def _wait_until_ready(self, not_yet: type[Exception]) -> None:
        due = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.version = str(self._connection.info("server")["redis_version"])
                return
            except not_yet:
                if self._process.poll() is not None or time.monotonic() > due:
                    sys.exit("redis-server did not start; its log is lost with its directory: try it by hand")
                time.sleep(0.02)

    def put(self, values: list[bytes]) -> None:
        for first in range(0, len(values), BATCH_MESSAGES):
            pipeline = self._connection.pipeline(transaction=False)
            for value in values[first : first + BATCH_MESSAGES]:
                pipeline.xadd(TOPIC, {FIELD: value})
            pipeline.execute()

    def get(self, count: int) -> None:
        left = count
        while left:
            found = self._connection.xread({TOPIC: self._last_id}, count=min(BATCH_MESSAGES, left))
            if not found:
                sys.exit(f"Redis: {left} messages did not come")
            entries = entries_of(found)
            self._last_id = entries[-1][0]
            left -= len(entries)

    def close(self) -> None:
        self._connection.close()


def entries_of(found: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of the one stream that was asked for: redis-py answers with a list (RESP2) or a dict (RESP3)."""
    if isinstance(found, dict):
        return [entry for batches in found.values() for batch in batches for entry in batch]
    return [entry for _, entries in found for entry in entries]


def start_redis(place: Workplace, port: int) -> subprocess.Popen[str]:
    """Start Debian's server with nothing on but what is compared; the workplace ends it."""
    directory = (place.directory / "redis").resolve()  # Redis changes into it, and would look for its log from there.
    directory.mkdir()
    settings = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": str(directory),
        "logfile": str(directory / "log"),
        "daemonize": "no",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always",
        "auto-aof-rewrite-percentage": "0",
    }
    return place.start("redis-server", *(word for key, value in settings.items() for word in (f"--{key}", value)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- the comparison ---------------------------------------------------------------------------------


def compare(place: Workplace, sides: dict[str, Peer], values: list[bytes], rounds: list[int]) -> dict[str, object]:
    """Let the sides take turns, first putting all rounds, then getting them."""
    puts = {name: partial(put_share, peer, values) for name, peer in sides.items()}
    put_rates = take_turns(place, puts, rounds)
    get_rates = take_turns(place, {name: peer.get for name, peer in sides.items()}, rounds)
    return {**row_of("put", put_rates), **row_of("get", get_rates)}


def put_share(peer: Peer, values: list[bytes], share: int) -> None:
    peer.put(repeated(values, share))


def take_turns(place: Workplace, actions: Mapping[str, Callable[[int], None]], rounds: list[int]) -> dict[str, list[float]]:
    """Run each action once per round; who begins changes from round to round. Return messages per second."""
    rates: dict[str, list[float]] = {name: [] for name in actions}
    order = list(actions)
    for share in rounds:
        for name in order:
            place.settle()
            started = time.perf_counter()
            actions[name](share)
            rates[name].append(share / (time.perf_counter() - started))
        order.reverse()
    return rates


def row_of(what: str, rates: dict[str, list[float]]) -> dict[str, object]:
    """Medians of rounds; the ratio is taken within a round, where both met the same machine."""
    ours, theirs = rates["oncemq"], rates["redis"]
    return {
        f"{what}_ratio": median(our / their for our, their in zip(ours, theirs, strict=True)),
        f"oncemq_{what}_messages_per_second": median(ours),
        f"redis_{what}_messages_per_second": median(theirs),
        f"rounds_oncemq_{what}_messages_per_second": ours,
        f"rounds_redis_{what}_messages_per_second": theirs,
    }


def has_package(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def missing() -> list[str]:
    """What this machine lacks for the comparison."""
    found = [] if shutil.which("redis-server") else ["the program redis-server"]
    return found if has_package("redis") else [*found, "the Python package redis"]


def arguments_of(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="OnceMQ beside Redis Streams, on this machine's disk.")
    parser.add_argument("--messages", type=int, default=200_000, help="messages of each side, over all rounds")
    parser.add_argument("--size", type=int, default=100, help="bytes of one value")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path(), help="where to work: its disk is what both sync to")
    found = parser.parse_args(words)
    if min(found.messages, found.size, found.rounds) < 1 or not found.directory.is_dir():
        parser.error("--messages, --size and --rounds are at least 1, and --directory is there")
    return found


def main(words: list[str]) -> None:
    if lacking := missing():
        sys.exit(f"{' and '.join(lacking)} is missing: {HELP}")
    arguments = arguments_of(words)
    with workplace(arguments.directory) as place:
        once, redis = OnceMQ(place), RedisStreams(place)
        try:
            rounds = shares(arguments.messages, arguments.rounds)
            result = compare(place, {"oncemq": once, "redis": redis}, values_of(arguments.size), rounds)
        finally:
            redis.close()
        settings = {"messages": arguments.messages, "size_bytes": arguments.size, "batch_messages": BATCH_MESSAGES}
        versions = {"oncemq_version": oncemq.__version__, "redis_version": redis.version, "has_hiredis": has_package("hiredis")}
        print(json.dumps(result | settings | versions | {"file_system": place.file_system}))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)

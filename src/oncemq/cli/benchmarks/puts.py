# SPDX-License-Identifier: Apache-2.0
"""`oncemq bench put`: how fast messages become durable, beside bare appending of the same bytes.

May not: count a message before its put is confirmed.
The idea: rounds. In each, a share of the messages is put and confirmed, again and again if it is too small to mean something;
then as many bytes in as many groups as the broker's journal took for them are appended bare. The medians of the rounds are
reported: one hiccup of a shared disk is one round. The ratio is taken within a round, where both met the same disk.
Next: raw.py for the bare side.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import oncemq
from oncemq.cli.benchmarks.raw import RawPasses
from oncemq.cli.benchmarks.workplace import TOPIC, Workplace, repeated, shares, values_of, workplace

ROUNDS = 5
ROUND_SECONDS_MIN = 0.4
"""Shorter rounds differ by a third from one another on a shared machine. guess."""
MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class PutResult:
    """Megabytes are millions of bytes of values, on both sides. All rates are medians of rounds, and so is the ratio."""

    messages_per_second: float
    megabytes_per_second: float
    raw_megabytes_per_second: float
    ratio_to_raw: float
    messages: int
    size_bytes: int
    single: bool
    groups: int
    bytes_per_group: int
    rounds_messages_per_second: list[float]
    rounds_raw_megabytes_per_second: list[float]
    file_system: str


@dataclass(frozen=True, slots=True)
class Round:
    """Some messages, put and appended bare."""

    messages: int
    seconds: float
    raw_seconds: float
    groups: int
    journal_bytes: int


@dataclass(frozen=True, slots=True)
class Written:
    """What the broker's journal has taken so far."""

    groups: int
    size_bytes: int


def bench_put(directory: Path, *, size_bytes: int, count: int, single: bool, advance: Callable[[int], None]) -> PutResult:
    with workplace(directory) as place:
        broker = place.start_broker()
        place.subscribe(broker)
        client, raw = place.connect(broker), RawPasses(place.directory / "raw")
        values = values_of(size_bytes)
        put_all(client, values, single=single)  # Warm-up: connections, the first outbox segment, the interpreter itself.
        rounds = []
        for share in shares(count, ROUNDS):
            rounds.append(_run_round(place, client, raw, repeated(values, share), single=single))
            advance(share)
        return _result(rounds, place, size_bytes=size_bytes, single=single)


def _run_round(place: Workplace, client: oncemq.Client, raw: RawPasses, values: list[bytes], *, single: bool) -> Round:
    """Put, then append bare. What one side leaves to the disk (an outbox is not synced) is no business of the other's."""
    place.settle()
    before = written(client)
    times, seconds = _put_repeatedly(client, values, single=single)
    after = written(client)
    place.settle()
    groups, size_bytes = after.groups - before.groups, after.size_bytes - before.size_bytes
    return Round(times * len(values), seconds, raw.run(size_bytes, groups), groups, size_bytes)


def _put_repeatedly(client: oncemq.Client, values: list[bytes], *, single: bool) -> tuple[int, float]:
    """Put these values, and again until a round is long enough; return how many times, and the seconds it took."""
    times, seconds, started = 0, 0.0, time.perf_counter()
    while seconds < ROUND_SECONDS_MIN:
        put_all(client, values, single=single)
        times, seconds = times + 1, time.perf_counter() - started
    return times, seconds


def put_all(client: oncemq.Client, values: list[bytes], *, single: bool) -> None:
    """Put these values and have all of them confirmed."""
    if not single:
        client.put_many(TOPIC, values)
        return
    put = client.put
    for value in values:
        put(TOPIC, value, wait=False)
    client.flush()


def written(client: oncemq.Client) -> Written:
    """Ask the broker how many groups its journal has written, and how many bytes they had."""
    values = client.admin.stats().values
    return Written(values["journal_groups"], values["journal_bytes_appended"])


def _result(rounds: list[Round], place: Workplace, *, size_bytes: int, single: bool) -> PutResult:
    rates = [entry.messages / entry.seconds for entry in rounds]
    raw_rates = [entry.messages * size_bytes / entry.raw_seconds / MEGABYTE for entry in rounds]
    groups = sum(entry.groups for entry in rounds)
    return PutResult(
        messages_per_second=median(rates),
        megabytes_per_second=median(rates) * size_bytes / MEGABYTE,
        raw_megabytes_per_second=median(raw_rates),
        ratio_to_raw=median(entry.raw_seconds / entry.seconds for entry in rounds),
        messages=sum(entry.messages for entry in rounds),
        size_bytes=size_bytes,
        single=single,
        groups=groups,
        bytes_per_group=sum(entry.journal_bytes for entry in rounds) // groups,
        rounds_messages_per_second=rates,
        rounds_raw_megabytes_per_second=raw_rates,
        file_system=place.file_system,
    )

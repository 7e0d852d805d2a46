# SPDX-License-Identifier: Apache-2.0
"""`oncemq bench transaction`: what exactly-once effects cost, beside a plain get and beside a bare commit of SQLite.

May not: count a transaction that was not committed, or a message that did not come in order.
The idea: four ways take turns in rounds, over the same messages on the same disk: get one by one; a transaction of the broker
that gets and puts; one of SQLite that gets and inserts a row; and SQLite alone, which changes one row and inserts another. Each
with one message per transaction, then with many.
Next: client/transactions.py and client/effects.py, which are measured.
"""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import oncemq
from oncemq.cli.benchmarks.gets import TIMEOUT_SECONDS, fill
from oncemq.cli.benchmarks.workplace import TOPIC, Workplace, shares, values_of, workplace

ROUNDS = 5
TARGET = "effects"
_CREATE = ("CREATE TABLE effects (value BLOB)", "CREATE TABLE places (name TEXT PRIMARY KEY, next_offset INTEGER)")
_INSERT = "INSERT INTO effects VALUES (?)"


@dataclass(frozen=True, slots=True)
class TransactionResult:
    get_messages_per_second: float
    broker_transactions_per_second: float
    broker_messages_per_second: float
    sqlite_transactions_per_second: float
    sqlite_messages_per_second: float
    bare_sqlite_transactions_per_second: float
    ratio_to_bare_sqlite: float
    transactions: int
    batch: int
    size_bytes: int
    file_system: str


class Ways:
    """The four ways through the same messages; each has come so far."""

    def __init__(self, place: Workplace, messages: int, size_bytes: int, advance: Callable[[int], None]) -> None:
        broker = place.start_broker()
        self._plain, self._relay, self._book = (place.subscribe(broker) for _ in range(3))
        place.subscribe(broker, (TARGET,))  # So that what is put there is stored.
        self._values = values_of(size_bytes)
        self._connection = _opened(place.directory / "application.db")
        self._bare = _opened(place.directory / "bare.db")
        self._bare.execute("INSERT INTO places VALUES ('bare', 0)")
        self._bare.commit()
        fill(place.connect(broker), self._values, messages, advance)
        place.settle()

    def get(self, count: int) -> None:
        for _ in range(count):
            _expect(self._plain.get(TOPIC, timeout=TIMEOUT_SECONDS) is not None)

    def broker(self, count: int) -> None:
        with self._relay.transaction() as transaction:
            found = transaction.get_many(TOPIC, count, timeout=TIMEOUT_SECONDS)
            for message in found:
                transaction.put(TARGET, message.value)
        _expect(len(found) == count)

    def sqlite(self, count: int) -> None:
        with self._book.transaction(self._connection) as transaction:
            found = transaction.get_many(TOPIC, count, timeout=TIMEOUT_SECONDS)
            self._connection.executemany(_INSERT, [(message.value,) for message in found])
        _expect(len(found) == count)

    def bare_sqlite(self, count: int) -> None:
        self._bare.execute("BEGIN IMMEDIATE")
        self._bare.execute("SELECT next_offset FROM places WHERE name = 'bare'").fetchone()
        self._bare.execute("UPDATE places SET next_offset = next_offset + ? WHERE name = 'bare'", (count,))
        self._bare.executemany(_INSERT, [(value,) for value in self._values[:count]])
        self._bare.execute("COMMIT")


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    for statement in _CREATE:
        connection.execute(statement)
    connection.commit()
    return connection


def _expect(is_so: bool) -> None:
    if not is_so:
        raise oncemq.UsageError("a message that was stored did not come: this broker is too slow, or something is wrong")


def bench_transaction(
    directory: Path, *, size_bytes: int, transactions: int, batch: int, advance: Callable[[int], None]
) -> TransactionResult:
    """One message per transaction, then `batch`, in rounds; medians."""
    rates: dict[str, list[float]] = defaultdict(list)
    with workplace(directory) as place:
        ways = Ways(place, transactions * (1 + batch), size_bytes, advance)
        for share in shares(transactions, ROUNDS):
            for name, way in (("broker", ways.broker), ("sqlite", ways.sqlite), ("bare_sqlite", ways.bare_sqlite)):
                rates[name].append(share / _seconds(way, share, 1))
                rates[f"{name}_batch"].append(share * batch / _seconds(way, share, batch))
                advance(share * (1 + batch))
            rates["get"].append(share * batch / _seconds(ways.get, 1, share * batch))
        found = {name: median(each) for name, each in rates.items()}
        return TransactionResult(
            get_messages_per_second=found["get"],
            broker_transactions_per_second=found["broker"],
            broker_messages_per_second=found["broker_batch"],
            sqlite_transactions_per_second=found["sqlite"],
            sqlite_messages_per_second=found["sqlite_batch"],
            bare_sqlite_transactions_per_second=found["bare_sqlite"],
            ratio_to_bare_sqlite=median(ours / bare for ours, bare in zip(rates["sqlite"], rates["bare_sqlite"], strict=True)),
            transactions=transactions,
            batch=batch,
            size_bytes=size_bytes,
            file_system=place.file_system,
        )


def _seconds(way: Callable[[int], None], times: int, count: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        way(count)
    return time.perf_counter() - started

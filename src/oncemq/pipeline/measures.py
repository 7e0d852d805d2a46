# SPDX-License-Identifier: Apache-2.0
"""How fast the archive and the audit are, one pass each.

May not: warm anything up, or start a broker: whoever measures does.
Next: cli/benchmarks/spark.py, which runs passes and reports.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from oncemq.errors import invariant
from oncemq.pipeline.archive import Archive, on_spark
from oncemq.pipeline.archive_tables import open_table
from oncemq.pipeline.audit import audit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOPICS = 4
_PUBLISHERS = 4
_EVENTS_PER_MESSAGE = 4


def archive_pass(spark: SparkSession, address: str, topic: str, place: Path) -> float:
    """Archive a whole topic to a new Delta table; seconds."""
    with Archive(address, [topic], open_table(place, "delta"), on_spark(spark), subscription=f"bench-{place.name}") as running:
        started = time.perf_counter()
        while running.step():
            pass
        return time.perf_counter() - started


def audit_pass(spark: SparkSession, place: Path) -> float:
    """Audit the histories below a directory; seconds."""
    started = time.perf_counter()
    result = audit(spark, [str(place)])
    invariant(not result.violations, "a sound history was found guilty", violations=result.violations)
    return time.perf_counter() - started


def write_history(place: Path, events: int) -> None:
    """A history without a fault: every message is put, confirmed, delivered once and found in the log."""
    place.mkdir(parents=True, exist_ok=True)
    ends, numbers = [0] * _TOPICS, [0] * _PUBLISHERS
    publisher, subscriber, log = (place / f"{name}.jsonl" for name in ("publisher", "subscriber", "log"))
    with publisher.open("w") as puts, subscriber.open("w") as gets, log.open("w") as kept:
        for topic in range(_TOPICS):
            gets.write(_line(0, "s", "ok", "subscribe", f'"subscription":"s","topic_id":"{topic}","start":0'))
        for number in range(events // _EVENTS_PER_MESSAGE):
            who, topic = number % _PUBLISHERS, number // 1000 % _TOPICS
            place_text = f'"topic_id":"{topic}","offset":{ends[topic]},"message":"p{who}-{number}"'
            at = 1 + 20 * number
            ends[topic] += 1
            numbers[who] += 1
            puts.write(_line(at, f"p{who}", "invoke", "put", f'"message":"p{who}-{number}"'))
            puts.write(_line(at + 10, f"p{who}", "ok", "put", f'{place_text},"stored":true,"duplicate":false'))
            gets.write(_line(at + 15, "s", "ok", "deliver", f'"subscription":"s",{place_text}'))
            kept.write(_line(10**12 + at, "harness", "ok", "log", f'{place_text},"stream":"{who:032x}","number":{numbers[who]}'))
        for topic, end in enumerate(ends):
            kept.write(_line(2 * 10**12, "harness", "ok", "end", f'"topic_id":"{topic}","low":0,"end":{end},"is_limited":false'))


def _line(time_us: int, process: str, kind: str, operation: str, fields: str) -> str:
    return f'{{"t":{time_us},"process":"{process}","life":1,"kind":"{kind}","op":"{operation}",{fields}}}\n'

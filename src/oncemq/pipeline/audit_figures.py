# SPDX-License-Identifier: Apache-2.0
"""What people ask of a history besides innocence: how many, how long from put to get, how much per second.

May not: judge; bring more than a few hundred rows to the driver.
The idea: latencies are counted in buckets one per cent wide, so percentiles of any number of messages come from one small table,
right to one per cent. A message counts with the first time a subscription got it, or repeats would pollute the tail.
Next: report.py, which draws them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from oncemq.pipeline.audit_events import is_ok

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}
_BUCKET = math.log(1.01)
_TIME_BUCKETS_MAX = 200
_WIDTHS_S = (0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


@dataclass(frozen=True, slots=True)
class Totals:
    """How many events of each kind there were, and how long the longest run took."""

    events: int
    torn: int
    put: int
    confirmed: int
    delivered: int
    span_us: int


@dataclass(frozen=True, slots=True)
class Latency:
    """From put to get, of one subscription, in microseconds. `counts` are (upper end of a bucket, messages), rising."""

    subscription: str
    messages: int
    longest_us: int
    counts: list[tuple[float, int]]

    def quantile_us(self, share: float) -> float:
        due, seen = share * self.messages, 0
        for upper_us, count in self.counts:
            seen += count
            if seen >= due:
                return min(upper_us, float(self.longest_us))
        return float(self.longest_us)


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages per second over the time of the runs: one point per `width_s`."""

    width_s: float
    at_s: list[float]
    confirmed: list[float]
    delivered: list[float]


def totals(events: DataFrame) -> Totals:
    """Count everything once. The first to touch the events: this is where they are read."""
    per_run = events.groupBy("run").agg(
        F.count("*").alias("events"),
        F.count_if("is_torn").alias("torn"),
        F.count_if((F.col("op") == "put") & (F.col("kind") == "invoke")).alias("put"),
        F.count_if(is_ok("put")).alias("confirmed"),
        F.count_if(is_ok("deliver")).alias("delivered"),
        (F.max("t") - F.min("t")).alias("span_us"),
    )
    names = ("events", "torn", "put", "confirmed", "delivered")
    row = per_run.agg(*(F.sum(name).alias(name) for name in names), F.max("span_us").alias("span_us")).first()
    return Totals(**{name: int(row[name] or 0) for name in (*names, "span_us")}) if row else Totals(0, 0, 0, 0, 0, 0)


def latencies(events: DataFrame) -> list[Latency]:
    """How long messages took from their put to each subscription."""
    is_invoke = (F.col("op") == "put") & (F.col("kind") == "invoke")
    firsts = (
        events.where(is_invoke | is_ok("deliver"))
        .groupBy("run", "message", F.when(is_ok("deliver"), F.col("subscription")).alias("subscription"))
        .agg(F.min("t").alias("t"))
    )
    began = F.min(F.when(F.col("subscription").isNull(), F.col("t"))).over(Window.partitionBy("run", "message"))
    lasted = firsts.withColumn("us", F.col("t") - began).where("subscription is not null and us is not null")
    bucket = F.ceil(F.log(F.greatest(F.col("us"), F.lit(1))) / _BUCKET)
    counted = lasted.groupBy("subscription", bucket.alias("bucket")).agg(
        F.count("*").alias("count"), F.max("us").alias("longest")
    )
    buckets: dict[str, list[tuple[float, int]]] = defaultdict(list)
    longest: dict[str, int] = defaultdict(int)
    for row in counted.orderBy("subscription", "bucket").collect():
        buckets[row["subscription"]].append((math.exp(row["bucket"] * _BUCKET), row["count"]))
        longest[row["subscription"]] = max(longest[row["subscription"]], row["longest"])
    return [Latency(name, sum(count for _, count in found), longest[name], found) for name, found in buckets.items()]


def flow(events: DataFrame, span_us: int) -> Flow:
    """Confirmed puts and deliveries per second; each run counts from its own beginning."""
    width_s = next(
        (width for width in _WIDTHS_S if span_us / 1e6 / width <= _TIME_BUCKETS_MAX), span_us / 1e6 / _TIME_BUCKETS_MAX
    )
    starts = events.groupBy("run").agg(F.min("t").alias("began"))
    bucket = F.floor((F.col("t") - F.col("began")) / (width_s * 1e6))
    counted = (
        events.where(is_ok("put", "deliver"))
        .join(F.broadcast(starts), "run")
        .groupBy(bucket.alias("bucket"))
        .agg(F.count_if(F.col("op") == "put").alias("confirmed"), F.count_if(F.col("op") == "deliver").alias("delivered"))
    )
    rows = {row["bucket"]: row for row in counted.collect()}
    steps = range(int(max(rows, default=-1)) + 1)
    return Flow(
        width_s,
        [(step + 0.5) * width_s for step in steps],
        [rows[step]["confirmed"] / width_s if step in rows else 0.0 for step in steps],
        [rows[step]["delivered"] / width_s if step in rows else 0.0 for step in steps],
    )

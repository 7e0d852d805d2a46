# SPDX-License-Identifier: Apache-2.0
"""Traces summed up, on Spark: the mean with its confidence interval, p95 and worst, beside the papers' values and closed forms.

May not: leave out a seed; average away a "never".
The idea: seeds are what is independent, so the interval of the mean is that of the seeds' means (Student's t, 95 %). p95 and
worst are over all observations, towards the bad side: of a reach the lowest, of a time the longest.
Next: anchors.py for the values beside them, figures.py for the drawing.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from oncemq.lab.anchors import closed_form, paper_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS = ("experiment", "mode", "nodes", "measure", "at")
LOW_IS_WORSE = ("first_", "told_mean", "heartbeat_", "send_mean", "survivors_have", "all_have", "mean_degree", "degree_")
"""Beginnings of measures whose smallest value is the worst."""
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Half widths of the 95 % interval in standard errors, for 2 to 31 seeds; beyond that it is 1.96."""


class Statistic(NamedTuple):
    """One measure at one place of one experiment."""

    experiment: str
    mode: str
    nodes: int
    measure: str
    at: float
    seeds: int
    never: int
    mean: float | None
    low: float | None
    high: float | None
    p95: float | None
    worst: float | None
    paper: float | None
    closed_form: float | None


def summed_up(traces: DataFrame) -> list[Statistic]:
    """The statistics of all that was seen, in the order of experiments, measures and places."""
    frame = _over_all(traces).join(_over_seeds(traces), list(KEYS))
    rows = frame.orderBy("experiment", "measure", "mode", "nodes", "at").collect()
    return [_statistic(row.asDict()) for row in rows]


def _over_seeds(traces: DataFrame) -> DataFrame:
    """Seeds, their mean, and its interval."""
    by_seed = traces.groupBy(*KEYS, "seed").agg(F.avg("value").alias("value"))
    seeds, deviation = F.count("value"), F.stddev_samp("value")
    width = _student(seeds - 1) * deviation / F.sqrt(seeds)
    return by_seed.groupBy(*KEYS).agg(
        F.count("*").alias("seeds"),
        F.avg("value").alias("mean"),
        (F.avg("value") - width).alias("low"),
        (F.avg("value") + width).alias("high"),
    )


def _over_all(traces: DataFrame) -> DataFrame:
    is_low_worse = F.lit(False)
    for start in LOW_IS_WORSE:
        is_low_worse = is_low_worse | F.col("measure").startswith(start)
    value = F.when(is_low_worse, -F.col("value")).otherwise(F.col("value"))
    folded = traces.withColumn("bad", value).withColumn("sign", F.when(is_low_worse, -1.0).otherwise(1.0))
    return folded.groupBy(*KEYS).agg(
        (F.count("*") - F.count("value")).alias("never"),
        (F.percentile("bad", F.lit(0.95)) * F.first("sign")).alias("p95"),
        (F.max("bad") * F.first("sign")).alias("worst"),
    )


def _student(freedom: Column) -> Column:
    table = F.array(*map(F.lit, STUDENT))
    return F.when(freedom > len(STUDENT), F.lit(1.96)).otherwise(F.get(table, freedom - 1))


def _statistic(row: dict[str, Any]) -> Statistic:
    place = (row["experiment"], row["measure"], row["nodes"], row["at"])
    known = {name: row[name] for name in Statistic._fields if name in row}
    return Statistic(**known, paper=paper_value(*place), closed_form=closed_form(*place))


def write_csv(statistics: Iterable[Statistic], target: Path) -> None:
    """All of it as one table; numbers with six significant digits, nothing for never and for nobody knows."""
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Statistic._fields)
        writer.writerows([_text(value) for value in statistic] for statistic in statistics)


def _text(value: object) -> object:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value


class Line(NamedTuple):
    """One measure along the axis of an experiment."""

    at: list[float]
    means: list[float]
    errors: list[float]
    """Half the confidence interval; 0 where there is one seed."""


def line_of(statistics: Sequence[Statistic], experiment: str, measure: str, mode: str, nodes: int | None = None) -> Line:
    """The points of a measure; `nodes` where several sizes were run."""
    found = [
        each
        for each in statistics
        if (each.experiment, each.measure, each.mode) == (experiment, measure, mode)
        and (nodes is None or each.nodes == nodes)
        and each.mean is not None
    ]
    found.sort(key=lambda each: each.at)
    errors = [0.0 if each.high is None else each.high - (each.mean or 0.0) for each in found]
    return Line([each.at for each in found], [each.mean or 0.0 for each in found], errors)

# SPDX-License-Identifier: Apache-2.0
"""Histories as one Spark table: JSON lines or Parquet, many files, many runs, each event with its seat in the order of things.

May not: judge an event, or bring events to the driver.
The idea: files of one directory are one run. Events of a run are ordered by time, then file, then place in the file: the same
order in which `oncemq torture` merges the histories of its processes. Spark may cut a file anywhere, so the place in a file
is where its piece begins and how many rows the task has read before.
Next: docs/history.md for the events, audit_laws.py for the judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.types import BooleanType, DataType, LongType, StringType, StructField, StructType

from oncemq.errors import UsageError
from oncemq.limits import AUDIT_PARTITION_BYTES, AUDIT_PARTITIONS_PER_CORE

_TEXTS = ("process", "kind", "op", "message", "topic_id", "subscription", "stream", "name")
_NUMBERS = ("t", "life", "offset", "start", "first", "end", "bound", "low", "number", "cursor", "told")
_FLAGS = ("stored", "duplicate", "is_limited", "is_kept")
_RARE = ("name", "start", "first", "end", "bound", "low", "cursor", "told", "is_limited", "is_kept")
"""Fields of few events: kept as one, which is null for all others and then costs next to nothing to move and to keep."""
_TORN = "torn"
_LOCAL = re.compile("^file:/+")
SEAT = ("t", "file", "block", "row")
"""What orders the events of a run."""


def _fields(names: Iterable[str], kind: DataType) -> list[StructField]:
    return [StructField(name, kind) for name in names]


SCHEMA = StructType([*_fields(_TEXTS, StringType()), *_fields(_NUMBERS, LongType()), *_fields(_FLAGS, BooleanType())])


def seat() -> Column:
    """The place of an event in its run, as one value that can be compared."""
    return F.struct(*SEAT)


def is_ok(*operations: str) -> Column:
    """Whether an event says that one of these operations happened."""
    return (F.col("kind") == "ok") & F.col("op").isin(*operations)


# --- files ----------------------------------------------------------------------------------------


def files_of(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files of JSON lines and of Parquet: directories are searched, addresses of other file systems taken as they are."""
    lines: list[str] = []
    tables: list[str] = []
    for path in paths:
        for found in _expanded(path):
            (tables if found.endswith(".parquet") else lines).append(found)
    return sorted(set(lines)), sorted(set(tables))


def _expanded(path: str) -> list[str]:
    if "://" in path:
        return [path]
    place = Path(path).absolute()
    if not place.is_dir():
        if not place.exists():
            raise UsageError(f"there is no history {path}: name files or directories of .jsonl or .parquet files")
        return [str(place)]
    found = [file for kind in ("*.jsonl", "*.parquet") for file in place.rglob(kind)]
    if not found:
        raise UsageError(f"{path} has no .jsonl and no .parquet file in it: keep histories with 'oncemq torture --keep DIR'")
    return [str(file) for file in found if not file.name.startswith(("_", "."))]


# --- tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Histories:
    """The events of all runs, and the runs' names: the directories their files lie in."""

    events: DataFrame
    kept: DataFrame
    """What is kept on the executors, until `close`."""
    runs: dict[int, str]

    def close(self) -> None:
        self.kept.unpersist()


def audit_session(spark: SparkSession, paths: Sequence[str]) -> SparkSession:
    """A session beside the given one, with as many partitions as these histories are worth, and plans that are made once.

    An audit is a few large questions with many steps. Planning them again after each step, as Spark does by default, takes
    longer than it saves: which sides of joins are small is known beforehand. In one partition nothing is shuffled at all.
    """
    own = spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", str(_pieces(paths, spark.sparkContext.defaultParallelism)))
    own.conf.set("spark.sql.adaptive.enabled", "false")
    return own


def _pieces(paths: Sequence[str], cores: int) -> int:
    lines, tables = files_of(paths)
    most = cores * AUDIT_PARTITIONS_PER_CORE
    if any("://" in file for file in lines + tables):
        return most
    size_bytes = sum(Path(file).stat().st_size for file in lines + tables)
    return min(most, 1 + size_bytes // AUDIT_PARTITION_BYTES)


def read_histories(spark: SparkSession, paths: Sequence[str]) -> Histories:
    """All events of these histories, read once, kept on the executors, and lying where their message's others lie."""
    lines, tables = files_of(paths)
    frames = [_read_lines(spark, lines)] if lines else []
    frames += [_read_tables(spark, tables)] if tables else []
    files = _numbered(sorted(file for frame in frames for file in frame.inputFiles()))
    seated = [_seated(spark, frame, files) for frame in frames]
    events = seated[0] if len(seated) == 1 else seated[0].unionByName(seated[1])
    # Most laws look at one message at a time: laid out by message once, they need no shuffle of their own.
    spread = _packed(events).repartition(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), "run", "message")
    kept = spread.persist(StorageLevel.MEMORY_AND_DISK)
    return Histories(kept.select("*", "rare.*").drop("rare"), kept, {file.run: _directory(file.path) for file in files})


def _packed(events: DataFrame) -> DataFrame:
    has_any = F.coalesce(*(F.col(name).cast("string") for name in _RARE)).isNotNull()
    return events.withColumn("rare", F.when(has_any, F.struct(*_RARE))).drop(*_RARE)


def _read_lines(spark: SparkSession, files: list[str]) -> DataFrame:
    schema = StructType([*SCHEMA.fields, StructField(_TORN, StringType())])
    return spark.read.schema(schema).option("columnNameOfCorruptRecord", _TORN).json(files)


def _read_tables(spark: SparkSession, files: list[str]) -> DataFrame:
    return spark.read.schema(SCHEMA).parquet(*files).withColumn(_TORN, F.lit(None).cast(StringType()))


class _File(NamedTuple):
    path: str
    file: int
    run: int


def _numbered(paths: list[str]) -> list[_File]:
    runs = {name: number for number, name in enumerate(sorted(set(map(_directory, paths))))}
    return [_File(path, number, runs[_directory(path)]) for number, path in enumerate(paths)]


def _directory(path: str) -> str:
    return unquote(_LOCAL.sub("/", path)).rpartition("/")[0]


def _seated(spark: SparkSession, frame: DataFrame, files: list[_File]) -> DataFrame:
    """Add run and seat. Numbers instead of names: every row of every shuffle carries them."""
    # Spark lists a local file as file:///a and gives it to a row as file:/a.
    both = [file._replace(path=path) for file in files for path in {file.path, _LOCAL.sub("file:/", file.path)}]
    numbers = spark.createDataFrame(both, "path string, file int, run int")
    placed = frame.select(
        *SCHEMA.names,
        F.col(_TORN).isNotNull().alias("is_torn"),
        F.col("_metadata.file_path").alias("path"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("row"),
    )
    return placed.join(F.broadcast(numbers), "path").drop("path")

# SPDX-License-Identifier: Apache-2.0
"""What a task of the archive does: fetch one range of a topic and write it as Parquet files, durable before it says so.

May not: commit anything. A file that no commit names is no part of the table, however it came there.
The idea: rows never enter the JVM: blocks become Arrow batches, batches become files (zstd). A range over midnight becomes
a file per day. The name of a file says what is in it, and ends in dice, so that two attempts never write the same file.
Next: archive_tables.py, which commits; reading.py, which verifies the range.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oncemq.errors import invariant
from oncemq.pipeline.arrow import TYPES
from oncemq.pipeline.reading import OffsetRange, read_batches
from oncemq.pipeline.requests import Requests, shared_requests

_READ = ("offset", "key", "value", "headers", "publisher", "put_number", "timestamp")
PARTITIONS = ("topic", "day")
SCHEMA = pa.schema(
    [
        pa.field("log", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("topic_id", pa.int64()),
        *(pa.field(name, TYPES[name]) for name in _READ),
        pa.field("day", pa.date32()),
    ]
)
"""A row of the archive. With log and topic id its offset means one message for ever, whatever a name stands for later."""
IN_FILE = pa.schema([field for field in SCHEMA if field.name not in PARTITIONS])
_COMPRESSION_LEVEL = 1


class Written(msgspec.Struct, frozen=True):
    """One file: rows of offsets in [first, end) that were put on one day."""

    path: str
    size_bytes: int
    rows: int
    topic: str
    topic_id: int
    day: str
    first: int
    end: int


def write_range(address: str, log: str, directory: str, wanted: OffsetRange, requests: Requests | None = None) -> list[Written]:
    """Write exactly the range and return its files, all of them synced."""
    writers: dict[str, _Writer] = {}
    rows = 0
    for batch in read_batches(requests or shared_requests(address), wanted, _READ):
        rows += batch.num_rows
        for day, part in _by_day(batch):
            if day not in writers:
                writers[day] = _Writer(Path(directory), log, wanted, day)
            writers[day].write(part)
    invariant(rows == wanted.rows, "a range was read in part", rows=rows, wanted=wanted.rows)
    return [writer.close() for writer in writers.values()]


def _by_day(batch: Any) -> list[tuple[str, Any]]:
    """The rows of a batch by the day they were put on, in UTC; nearly always there is one."""
    days = pc.cast(batch.column("timestamp"), pa.date32())
    found = pc.unique(days).to_pylist()
    if len(found) == 1:
        return [(found[0].isoformat(), batch)]
    return [(day.isoformat(), batch.filter(pc.equal(days, pa.scalar(day, pa.date32())))) for day in found]


class _Writer:
    """One file on its way."""

    def __init__(self, directory: Path, log: str, wanted: OffsetRange, day: str) -> None:
        name = f"{wanted.topic_id}-{wanted.first:020d}-{wanted.end:020d}-{secrets.token_hex(8)}.parquet"
        self._directory, self._log, self._wanted, self._day = directory, log, wanted, day
        self._place = directory / f"topic={wanted.topic}" / f"day={day}" / name
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._file = pq.ParquetWriter(
            self._place, IN_FILE, compression="zstd", compression_level=_COMPRESSION_LEVEL, use_dictionary=["log", "publisher"]
        )
        self._rows = 0
        self._first, self._end = wanted.end, wanted.first

    def write(self, batch: Any) -> None:
        rows = batch.num_rows
        fixed = [pa.repeat(self._log, rows), pa.repeat(pa.scalar(self._wanted.topic_id, pa.int64()), rows)]
        self._file.write_batch(pa.RecordBatch.from_arrays([*fixed, *batch.columns], schema=IN_FILE))
        offsets = batch.column("offset")
        self._rows += rows
        self._first, self._end = min(self._first, offsets[0].as_py()), max(self._end, offsets[-1].as_py() + 1)

    def close(self) -> Written:
        self._file.close()
        sync_all([self._place])
        wanted = self._wanted
        path = self._place.relative_to(self._directory).as_posix()
        size_bytes = self._place.stat().st_size
        return Written(path, size_bytes, self._rows, wanted.topic, wanted.topic_id, self._day, self._first, self._end)


def sync_all(paths: Sequence[Path]) -> None:
    """Make files durable, with the directories that name them."""
    directories = {parent for path in paths for parent in list(path.parents)[:3]}
    for place in [*paths, *directories]:
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

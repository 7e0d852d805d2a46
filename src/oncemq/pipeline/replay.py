# SPDX-License-Identifier: Apache-2.0
"""Replay: an archive back into a topic, every row once, however often it is killed and started again.

May not: trust its own memory of what was put. How far it is, is counted in the topic itself.
The idea: rows go out in the order of their offsets, through a client with an id and a state directory. What it had in its outbox
when it died is sent first; then the messages of that client id in the topic are counted, which says how many rows are done. A
subscription of its own keeps them there until they are counted; the job file remembers what was, so that no count is long.

    counted → put → flushed → noted

Next: archive_tables.py for what is read; docs/archive.md for what comes back as it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.compute as pc
import pyarrow.dataset as ds

import oncemq
from oncemq.core import packets as p
from oncemq.errors import NoSubscribers, UsageError, invariant
from oncemq.journal.codec import decode_delivery
from oncemq.limits import REPLAY_ROWS_PER_FLUSH, SPARK_READ_BYTES
from oncemq.model.refusals import Code
from oncemq.pipeline.archive_files import SCHEMA, sync_all
from oncemq.pipeline.archive_tables import Table
from oncemq.pipeline.offsets import Offsets
from oncemq.pipeline.options import source_options
from oncemq.pipeline.requests import Requests
from oncemq.pipeline.subscription import QuerySubscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = ("counted", "put", "flushed", "noted")
_READ = ("offset", "key", "value", "headers")
Rows = Callable[[int, int], Any]
"""(first, end) → the rows of the archive with such offsets, in order, as an Arrow table."""


class Wanted(msgspec.Struct, frozen=True):
    """What to replay. The same wish is the same job: started again it goes on."""

    archive: str
    source: str
    topic: str
    first: int = 0
    end: int = 2**63 - 1
    where: str = ""
    name: str = ""

    @property
    def job(self) -> str:
        return "replay-" + hashlib.blake2b(msgspec.json.encode(self), digest_size=8).hexdigest()


class Progress(msgspec.Struct, frozen=True):
    """What is done: `before` rows below offset `at` of the archive; `done` rows counted below offset `counted` of the topic."""

    version: int
    at: int
    end: int
    before: int
    done: int
    counted: int
    is_over: bool = False


# --- rows of an archive -------------------------------------------------------------------------------


def files_rows(files: list[str], place: Path, source: str) -> Rows:
    """Read with Arrow alone: no SQL, no JVM."""
    data = ds.dataset(
        files, schema=SCHEMA, format="parquet", partitioning=ds.partitioning(flavor="hive"), partition_base_dir=str(place)
    )

    def rows(first: int, end: int) -> Any:
        wanted = (ds.field("topic") == source) & (ds.field("offset") >= first) & (ds.field("offset") < end)
        return data.to_table(columns=list(_READ), filter=wanted).sort_by("offset")

    return rows


def spark_rows(spark: SparkSession, files: list[str], place: Path, source: str, where: str) -> Rows:
    """Read with Spark, through an SQL expression over the columns of the archive."""
    frame = table_frame(spark, files, place).where(f"topic = '{source}'")
    chosen = frame.where(where)

    def rows(first: int, end: int) -> Any:
        within = chosen.where(f"offset >= {first} and offset < {end}")
        return within.select(*_READ).orderBy("offset").toArrow()

    return rows


def table_frame(spark: SparkSession, files: list[str], place: Path) -> Any:
    """An archive's files as a Spark table, whatever its form."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - only where there is Spark

    schema = from_arrow_schema(SCHEMA)
    return spark.read.schema(schema).option("basePath", str(place)).parquet(*files)


# --- the job ------------------------------------------------------------------------------------------


class Replay:
    """One replay at work."""

    def __init__(
        self,
        address: str,
        wanted: Wanted,
        table: Table,
        state: Path,
        *,
        rows: Callable[[list[str]], Rows],
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._wanted = wanted
        self._table = table
        self._on_step = on_step
        self._place = state / wanted.job
        self._requests = Requests(address)
        given = {
            "address": address,
            "subscribe": wanted.topic,
            "subscription": f"{wanted.job}-count",
            "startingoffsets": "latest",
        }
        self._subscription = QuerySubscription(source_options(given, streaming=True), self._requests)
        try:
            self.progress = self._load() or self._begin()
            self._rows = rows(table.files(self.progress.version))
            self._client = oncemq.connect(address, id=wanted.job, state=self._place / "client")
        except BaseException:
            self._requests.close()
            raise

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._requests.close()

    def _load(self) -> Progress | None:
        path = self._place / "job.json"
        if not path.exists():
            return None
        return msgspec.json.decode(path.read_bytes(), type=Progress)

    def _begin(self) -> Progress:
        """Fix what is replayed, and from where in the topic it will be counted, before anything is put."""
        files = self._table.files()
        first, end = _bounds(files, self._table.place, self._wanted)
        self._check_kept()
        mark = self._subscription.begin().topics[self._wanted.topic]
        return self._note(Progress(self._table.version(), first, end, 0, 0, mark.next_offset))

    def _check_kept(self) -> None:
        """Refuse a topic that keeps nothing of its own: the rows would go with this replay's subscription, at the very end."""
        topic = self._wanted.topic
        info = self._requests.topics(topic).get(topic)
        found = self._requests.ask(p.ListSubscriptions(topic), p.Subscriptions).subscriptions
        if not (info and info.retain) and all(row.client == f"{self._wanted.job}-count" for row in found):
            raise NoSubscribers(
                Code.NO_SUBSCRIBERS,
                f"topic {topic!r} would not keep the rows: nobody subscribes to it and nothing retains it. Subscribe first, or "
                f"'oncemq topic create {topic} --retain forever'",
            )

    def _note(self, progress: Progress) -> Progress:
        self._place.mkdir(parents=True, exist_ok=True)
        path = self._place / "job.json"
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(progress))
        sync_all([new])
        new.replace(path)
        sync_all([path])
        self.progress = progress
        return progress

    # --- going on -------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Replay the next rows; return whether there may be more."""
        if self.progress.is_over:
            self._let_go()
            return False
        done = self._count()
        self._on_step("counted")
        progress = self.progress
        end = min(progress.at + REPLAY_ROWS_PER_FLUSH, progress.end)
        rows = self._rows(progress.at, end)
        invariant(0 <= done - progress.before <= rows.num_rows, "a replay counted another number than it put", done=done)
        self._put(rows.slice(done - progress.before))
        self._on_step("put")
        self._client.flush()
        self._on_step("flushed")
        done = self._count()
        if done != progress.before + rows.num_rows:
            raise UsageError(
                f"topic {self._wanted.topic!r} did not keep what was put: was the subscription of this replay deleted?"
            )
        self._note(msgspec.structs.replace(self.progress, at=end, before=done, is_over=end >= progress.end))
        self._on_step("noted")
        if end < progress.end:
            return True
        self._let_go()
        return False

    def _let_go(self) -> None:
        """Nothing is counted any more: the topic need not keep anything for this replay."""
        mine = f"{self._wanted.job}-count"
        for row in self._client.admin.subscriptions(self._wanted.topic):
            if row.client == mine:
                self._client.admin.delete_subscription(row.info.subscription_id)

    def _put(self, rows: Any) -> None:
        values, keys, headers = (rows.column(name).to_pylist() for name in ("value", "key", "headers"))
        for value, key, pairs in zip(values, keys, headers, strict=True):
            self._client.put(self._wanted.topic, value, key=key, headers=_headers(pairs), wait=False)

    def _count(self) -> int:
        """Have everything of the outbox stored, then count this client's messages in the topic."""
        self._client.flush()
        info = self._subscription.topics()[self._wanted.topic]
        at, done = self.progress.counted, self.progress.done
        while at < info.end:
            _, body = self._requests.read(p.Read(info.topic, info.topic_id, at, info.end, SPARK_READ_BYTES))
            position, started_at = 0, at
            while position < len(body):
                delivered, _, _, position = decode_delivery(body, position)
                block_end = delivered.first_offset + delivered.count
                done += (
                    min(block_end, info.end) - max(at, delivered.first_offset) if delivered.publisher == self._wanted.job else 0
                )
                at = block_end
            invariant(at > started_at, "the broker sent nothing of a range that it has", at=at)
        self._note(msgspec.structs.replace(self.progress, done=done, counted=max(at, self.progress.counted)))
        mark = self._subscription.bookmark(info.topic, info.topic_id, self.progress.counted)
        self._subscription.commit(Offsets(self._subscription.log_id, {info.topic: mark}))
        return done


def _headers(pairs: list[dict[str, Any]] | None) -> dict[str, str | bytes] | None:
    """Headers as they were put: values that are text come back as text."""
    return None if pairs is None else {pair["key"]: _text(pair["value"]) for pair in pairs}


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _bounds(files: list[str], place: Path, wanted: Wanted) -> tuple[int, int]:
    """The offsets there are; an archive may hold several topics of one name, of which only one can be meant."""
    if not files:
        raise UsageError(f"the archive {wanted.archive} is empty")
    data = ds.dataset(
        files, schema=SCHEMA, format="parquet", partitioning=ds.partitioning(flavor="hive"), partition_base_dir=str(place)
    )
    found = data.to_table(columns=["log", "topic_id", "offset"], filter=ds.field("topic") == wanted.source)
    if not found.num_rows:
        raise UsageError(f"the archive {wanted.archive} has no topic {wanted.source!r}")
    if len(pc.unique(found.column("topic_id"))) > 1:
        raise UsageError(f"topic {wanted.source!r} was deleted and made again: its two lives cannot be replayed as one")
    least, most = (int(value.as_py()) for value in pc.min_max(found.column("offset")).values())
    return max(wanted.first, least), min(wanted.end, most + 1)

# SPDX-License-Identifier: Apache-2.0
"""The archive: topics → table, every message once, however often it is killed and started again.

May not: believe anything but the table about how far it is; let the broker drop what is not on disk in the table.
The idea: plan a range behind what the table has, have tasks write it as files, commit files and new end at once, and only then
tell the broker. Killed before the commit: the files are nobody's, the range is written again. Killed after it: the table says so.

    planned → written → committed → acknowledged

Next: archive_tables.py for the commit, subscription.py for what is checked against the broker (R1).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from oncemq.core.packets import TopicInfo
from oncemq.errors import Gap, invariant
from oncemq.limits import ARCHIVE_ROWS_PER_COMMIT
from oncemq.pipeline.archive_files import Written, write_range
from oncemq.pipeline.archive_tables import Table
from oncemq.pipeline.offsets import Offsets, check_log
from oncemq.pipeline.options import source_options
from oncemq.pipeline.planning import prorate, split
from oncemq.pipeline.reading import OffsetRange
from oncemq.pipeline.requests import Requests
from oncemq.pipeline.subscription import QuerySubscription

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Write = Callable[[OffsetRange], list[Written]]
Run = Callable[[Write, Sequence[OffsetRange]], list[list[Written]]]
STEPS = ("planned", "written", "committed", "acknowledged")


def on_spark(spark: SparkSession) -> Run:
    """Have Spark's tasks write the pieces: only their names come back."""

    def run(write: Write, pieces: Sequence[OffsetRange]) -> list[list[Written]]:
        return list(spark.sparkContext.parallelize(pieces, len(pieces)).map(write).collect())

    return run


def here(write: Write, pieces: Sequence[OffsetRange]) -> list[list[Written]]:
    """Write the pieces in this process, one after the other."""
    return [write(piece) for piece in pieces]


class Archive:
    """One archive at work."""

    def __init__(
        self,
        address: str,
        topics: Sequence[str],
        table: Table,
        run: Run,
        *,
        subscription: str,
        starting: str = "earliest",
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        given = {"address": address, "subscribe": ",".join(topics), "subscription": subscription, "startingoffsets": starting}
        self._address = address
        self._table = table
        self._run = run
        self._on_step = on_step
        self._requests = Requests(address)
        self._subscription = QuerySubscription(source_options(given, streaming=True), self._requests)
        self._topics = tuple(topics)
        try:
            self._offsets = self._begin()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._requests.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- where it goes on -----------------------------------------------------------------------------

    def _begin(self) -> Offsets:
        """Behind what the table has, once the broker has said that this is its own history; else where the subscription began."""
        loaded, log_id = self._table.load(), self._subscription.log_id
        existing = self._subscription.topics()
        marks = loaded.topics if loaded is not None else {}
        # A topic that was deleted and made again has another id, and begins anew: its rows differ by that id.
        mine = {
            topic: marks[topic] for topic in self._topics if topic in marks and marks[topic].topic_id == existing[topic].topic_id
        }
        if loaded is None:
            return self._subscription.begin()
        check_log(loaded, log_id)
        if mine:
            self._subscription.check(Offsets(log_id, mine))
        fresh = {topic: self._subscription.start_of(topic) for topic in self._topics if topic not in mine}
        return Offsets(log_id, dict(marks) | mine | fresh)

    def waiting(self) -> dict[str, int]:
        """How many messages of each topic are not in the table yet."""
        infos = self._subscription.topics()
        return {topic: infos[topic].end - self._offsets.topics[topic].next_offset for topic in self._topics}

    # --- one step -------------------------------------------------------------------------------------

    def step(self, rows_max: int = ARCHIVE_ROWS_PER_COMMIT) -> int:
        """Archive what is there, up to so many rows, in one commit; return how many there were."""
        taken = {topic: rows for topic, rows in prorate(self.waiting(), rows_max).items() if rows > 0}
        if not taken:
            return 0
        infos, ranges = self._subscription.topics(), []
        after = dict(self._offsets.topics)
        for topic, rows in taken.items():
            ranges.append(self._plan(infos[topic], rows))
            last = ranges[-1]
            mark = after[topic]
            after[topic] = msgspec.structs.replace(
                mark, next_offset=last.end, start_id=last.start_id, append_number=last.append_number
            )
        self._on_step("planned")
        pieces = split(ranges, partitions_min=None, cores=os.cpu_count() or 1)
        write = partial(write_range, self._address, self._offsets.log_id.hex(), str(self._table.place))
        files = [file for made in self._run(write, pieces) for file in made]
        invariant(sum(file.rows for file in files) == sum(taken.values()), "an archive step wrote another number of rows")
        self._on_step("written")
        self._commit(files, Offsets(self._offsets.log_id, after))
        return sum(taken.values())

    def _plan(self, info: TopicInfo, rows: int) -> OffsetRange:
        first = self._offsets.topics[info.topic].next_offset
        if first < info.low:
            raise Gap(info.topic, first, info.low)
        mark = self._subscription.bookmark(info.topic, info.topic_id, first + rows)
        return OffsetRange(info.topic, info.topic_id, first, first + rows, mark.start_id, mark.append_number)

    def _commit(self, files: list[Written], after: Offsets) -> None:
        self._table.commit(files, self._offsets, after)
        self._offsets = after
        self._on_step("committed")
        mine = {topic: after.topics[topic] for topic in self._topics}
        self._subscription.commit(Offsets(after.log_id, mine))
        self._on_step("acknowledged")


def subscription_for(place: Path, what: str = "archive") -> str:
    """The name under which the broker keeps messages for an archive, unless another is given: one for each place."""
    import hashlib  # noqa: PLC0415 - once per run

    return f"{what}-{hashlib.blake2b(str(place.absolute()).encode(), digest_size=6).hexdigest()}"

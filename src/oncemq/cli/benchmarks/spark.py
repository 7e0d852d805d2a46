# SPDX-License-Identifier: Apache-2.0
"""`oncemq bench spark`: how fast Spark reads a topic, as a batch and as a stream, writes one, archives one, and audits.

May not: report a cold figure: the first pass of each kind loads classes and starts workers, and is not counted.
The idea: the median of a few warm passes over the same stored messages, each a whole query from start to end.
Next: pipeline/measuring.py for a pass.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from oncemq.cli.benchmarks.gets import fill
from oncemq.cli.benchmarks.workplace import TOPIC, end_process, read_first_line, values_of, workplace

_SINK = "bench-sink"
SCALED = (
    "rows",
    "cores",
    "batch_rows_per_second",
    "stream_rows_per_second",
    "sink_rows_per_second",
    "archive_rows_per_second",
    "audit_seconds",
)
"""What a row of the table says."""


@dataclass(frozen=True, slots=True)
class SparkResult:
    batch_rows_per_second: float
    stream_rows_per_second: float
    sink_rows_per_second: float
    archive_rows_per_second: float
    audit_seconds: float
    """Of `audit_events` events, as JSON lines; 0 where none were asked for."""
    audit_events: int
    rows: int
    size_bytes: int
    master: str
    cores: int
    passes_rows_per_second: list[list[float]]
    file_system: str


def bench_spark(
    directory: Path, *, size_bytes: int, count: int, master: str, passes: int, events: int, advance: Callable[[int], None]
) -> SparkResult:
    from oncemq.pipeline.measures import archive_pass, audit_pass, write_history
    from oncemq.pipeline.measuring import SparkRig

    with workplace(directory) as place:
        broker = place.start_broker()
        client = place.connect(broker)
        for topic in (TOPIC, _SINK):
            client.admin.create_topic(topic, retain="forever")
        fill(client, values_of(size_bytes), count, advance)
        with closing(SparkRig(broker.address, TOPIC, _SINK, count, master=master)) as rig:

            def measure(run: Callable[[], float]) -> list[float]:
                run()
                place.settle()
                rates = []
                for _ in range(passes):
                    rates.append(count / run())
                    advance(count)
                return rates

            measured = [
                measure(rig.read_batch),
                measure(lambda: rig.read_stream(place.directory)),
                measure(lambda: rig.write_stream(place.directory)),
            ]
            tables = (place.directory / f"archive-{number}" for number in range(passes + 1))
            measured.append(measure(lambda: archive_pass(rig.spark, broker.address, TOPIC, next(tables))))
            audit_seconds = 0.0
            if events:
                write_history(place.directory / "history", events)
                audit_seconds = min(audit_pass(rig.spark, place.directory / "history") for _ in range(2))
        (info,) = client.admin.topics(_SINK)
        if info.end != (passes + 1) * count:
            raise RuntimeError(f"the sink holds {info.end:,} rows instead of {(passes + 1) * count:,}")
        batch, stream, sink, archive = map(median, measured)
        return SparkResult(
            batch,
            stream,
            sink,
            archive,
            audit_seconds,
            events,
            count,
            size_bytes,
            master,
            len(os.sched_getaffinity(0)),
            measured,
            place.file_system,
        )


# --- how cost grows -----------------------------------------------------------------------------------


def bind(cores: int) -> None:
    """Have this process and all that it starts share so many cores: `local[1]` binds neither broker nor Python workers."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def scaled(words: list[str], *, count: int, events: int) -> Iterator[dict[str, object]]:
    """Measure a quarter, a half and all of the rows on all cores, then all of them on one, each in a process of its own."""
    cores = len(os.sched_getaffinity(0))
    for share, bound in ((4, cores), (2, cores), (1, cores), (1, 1)):
        size = ["--count", str(count // share), "--events", str(events // share), "--cores", str(bound)]
        command = [sys.executable, "-m", "oncemq", "bench", "spark", "--json", *size, *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)  # noqa: S603
        try:
            found = read_first_line(process)
            yield {name: found[name] for name in SCALED}
        finally:
            end_process(process)

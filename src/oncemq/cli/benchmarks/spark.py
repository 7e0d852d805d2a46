# SPDX-License-Identifier: Apache-2.0
"""`oncemq bench spark`: how fast Spark reads a topic, as a batch and as a stream, and writes one.

May not: report a cold figure: the first pass of each kind loads classes and starts workers, and is not counted.
The idea: the median of a few warm passes over the same stored messages, each a whole query from start to end.
Next: pipeline/measuring.py for a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from oncemq.cli.benchmarks.gets import fill
from oncemq.cli.benchmarks.workplace import TOPIC, values_of, workplace

_SINK = "bench-sink"


@dataclass(frozen=True, slots=True)
class SparkResult:
    batch_rows_per_second: float
    stream_rows_per_second: float
    sink_rows_per_second: float
    rows: int
    size_bytes: int
    master: str
    passes_rows_per_second: list[list[float]]
    file_system: str


def bench_spark(
    directory: Path, *, size_bytes: int, count: int, master: str, passes: int, advance: Callable[[int], None]
) -> SparkResult:
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
        (info,) = client.admin.topics(_SINK)
        if info.end != (passes + 1) * count:
            raise RuntimeError(f"the sink holds {info.end:,} rows instead of {(passes + 1) * count:,}")
        batch, stream, sink = map(median, measured)
        return SparkResult(batch, stream, sink, count, size_bytes, master, measured, place.file_system)

# SPDX-License-Identifier: Apache-2.0
"""`oncemq bench`: how fast it is on this machine, each figure beside what this machine can do at best.

May not: measure anything itself; cli/benchmarks/ does.
The idea: every command starts a broker process of its own in a temporary directory, measures, and takes everything away again.
Next: benchmarks/__init__.py; docs/performance.md for how to read the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.options import Json
from oncemq.cli.output import Output, output_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

app = typer.Typer(
    no_args_is_help=True, help="Measure this machine: put, get, latency, transaction, fanout, restart, memory, Spark."
)

Directory = Annotated[
    Path,
    typer.Option(
        "--directory",
        metavar="DIR",
        exists=True,
        file_okay=False,
        writable=True,
        help="Where to work: the disk of this directory is what is measured. Nothing stays there.",
    ),
]
Size = Annotated[int, typer.Option("--size", min=1, max=1_000_000, metavar="BYTES", help="Bytes of one value.")]
Count = Annotated[int, typer.Option("--count", min=1, metavar="N", help="How many messages.")]
HERE = Path()


@app.command("put")
def put(
    context: typer.Context,
    size: Size = 100,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="How many messages, at least.")] = 2_000_000,
    single: Annotated[bool, typer.Option("--single", help="put(wait=False) one by one, instead of put_many.")] = False,
    directory: Directory = HERE,
    _json: Json = False,
) -> None:
    """How fast messages become durable, beside bare appending and syncing of the same bytes."""
    from oncemq.cli.benchmarks.puts import bench_put

    with _watched(context, "put", count) as advance:
        result = bench_put(directory, size_bytes=size, count=count, single=single, advance=advance)
    _say(output_of(context), result)


@app.command("get")
def get(
    context: typer.Context,
    size: Size = 100,
    count: Count = 2_000_000,
    single: Annotated[bool, typer.Option("--single", help="get() one by one, instead of get_many.")] = False,
    directory: Directory = HERE,
    _json: Json = False,
) -> None:
    """How fast one subscriber gets messages that are stored already."""
    from oncemq.cli.benchmarks.gets import bench_get

    with _watched(context, "fill and get", 2 * count) as advance:
        result = bench_get(directory, size_bytes=size, count=count, single=single, advance=advance)
    _say(output_of(context), result)


@app.command("latency")
def latency(
    context: typer.Context,
    size: Size = 100,
    count: Count = 2_000,
    directory: Directory = HERE,
    _json: Json = False,
) -> None:
    """How long one synchronous put takes, beside one bare round trip with one fdatasync."""
    from oncemq.cli.benchmarks.latency import bench_latency

    with _watched(context, "latency", count) as advance:
        result = bench_latency(directory, size_bytes=size, count=count, advance=advance)
    _say(output_of(context), result)


@app.command("restart")
def restart(
    context: typer.Context,
    gigabytes: Annotated[
        float,
        typer.Option("--gigabytes", min=0.001, max=1_000, metavar="N", help="How much is stored before the broker is killed."),
    ] = 2.0,
    directory: Directory = HERE,
    _json: Json = False,
) -> None:
    """How long a broker that was killed -9 under load takes to confirm the next put."""
    from oncemq.cli.benchmarks.restart import bench_restart, steps_of

    with _watched(context, "fill and restart", steps_of(gigabytes)) as advance:
        result = bench_restart(directory, gigabytes=gigabytes, advance=advance)
    _say(output_of(context), result)


@app.command("memory")
def memory(
    context: typer.Context,
    size: Size = 100,
    messages: Annotated[int, typer.Option("--messages", min=1, metavar="N", help="How many messages.")] = 5_000_000,
    single: Annotated[bool, typer.Option("--single", help="Blocks of one message, instead of 1,000.")] = False,
    directory: Directory = HERE,
    _json: Json = False,
) -> None:
    """How much a broker's memory grows with what it stores."""
    from oncemq.cli.benchmarks.memory import bench_memory

    with _watched(context, "memory", messages) as advance:
        result = bench_memory(directory, size_bytes=size, messages=messages, single=single, advance=advance)
    _say(output_of(context), result)


@app.command("fanout")
def fanout(
    context: typer.Context,
    subscribers: Annotated[int, typer.Option("--subscribers", min=1, max=1_000, metavar="N", help="Live subscribers.")] = 100,
    blocks: Annotated[int, typer.Option("--blocks", min=1, metavar="N", help="Blocks of one round.")] = 2_000,
    block: Annotated[int, typer.Option("--block", min=1, max=1_000, metavar="N", help="Messages of one block.")] = 100,
    size: Size = 100,
    directory: Directory = HERE,
    _json: Json = False,
) -> None:
    """How fast messages reach many live subscribers, and what a block costs the broker for 1, 10 and all of them."""
    from oncemq.cli.benchmarks.fanout import bench_fanout

    with _watched(context, "fanout", 3 * blocks) as advance:
        result = bench_fanout(
            directory, subscribers=subscribers, blocks=blocks, block_messages=block, size_bytes=size, advance=advance
        )
    _say(output_of(context), result)


@app.command("transaction")
def transaction(
    context: typer.Context,
    size: Size = 100,
    transactions: Annotated[int, typer.Option("--transactions", min=1, metavar="N", help="How many of each kind.")] = 500,
    batch: Annotated[int, typer.Option("--batch", min=1, max=1_000, metavar="N", help="Messages of a large one.")] = 100,
    directory: Directory = HERE,
    _json: Json = False,
) -> None:
    """What transactions cost, of the broker and of SQLite, beside a plain get and a bare commit of SQLite."""
    from oncemq.cli.benchmarks.transactions import bench_transaction

    with _watched(context, "transaction", 4 * transactions * (1 + batch)) as advance:
        result = bench_transaction(directory, size_bytes=size, transactions=transactions, batch=batch, advance=advance)
    _say(output_of(context), result)


@app.command("spark")
def spark(
    context: typer.Context,
    size: Size = 100,
    count: Count = 4_000_000,
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Where Spark runs.")] = "local[*]",
    passes: Annotated[int, typer.Option("--passes", min=1, metavar="N", help="Counted passes, after a warm one.")] = 3,
    events: Annotated[int, typer.Option("--events", min=0, metavar="N", help="Events to audit; 0: no audit.")] = 5_000_000,
    cores: Annotated[int, typer.Option("--cores", min=0, metavar="N", help="Bind broker and Spark to so many; 0: all.")] = 0,
    scale: Annotated[bool, typer.Option("--scale", help="A table: 1/4, 1/2 and all of --count; all cores and one.")] = False,
    directory: Directory = HERE,
    _json: Json = False,
) -> None:
    """How fast Spark reads a topic (batch, stream), writes one, archives one, audits histories. Needs the extra 'spark'."""
    from oncemq.cli.benchmarks.spark import bench_spark, bind, scaled

    if scale:
        words = ["--size", str(size), "--master", master, "--passes", str(passes), "--directory", str(directory)]
        with _watched(context, "spark", 4) as advance:
            rows = []
            for row in scaled(words, count=count, events=events):
                rows.append(row)
                advance(1)
        output = output_of(context)
        output.rows("scale", rows if output.is_json else [_readable(row) for row in rows], empty="nothing was measured")
        return
    if cores:
        bind(cores)
    with _watched(context, "spark", (1 + 4 * passes) * count) as advance:
        result = bench_spark(
            directory, size_bytes=size, count=count, master=master, passes=passes, events=events, advance=advance
        )
    _say(output_of(context), result)


@contextmanager
def _watched(context: typer.Context, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how far a benchmark is, on stderr, if somebody watches. Drawn between measurements only, never during one.

    Results are for afterwards: the bar has to be gone from the terminal before anything else is written there.
    """
    from rich.progress import Progress

    output = output_of(context)
    with Progress(
        console=output.console(stderr=True), auto_refresh=False, transient=True, disable=not output.has_watcher
    ) as progress:
        task = progress.add_task(what, total=total)

        def advance(steps: int) -> None:
            progress.update(task, advance=steps, refresh=True)

        yield advance


def _say(output: Output, result: DataclassInstance) -> None:
    row = asdict(result)
    if str(row["file_system"]).startswith(("tmpfs", "ramfs")):
        output.warn("this directory is in memory, where a sync costs nothing: choose one on a disk with --directory")
    output.card(row if output.is_json else _readable(row))


def _readable(row: Mapping[str, object]) -> dict[str, object]:
    """Numbers as people read them; what is only there for programs is left out."""
    return {key: _rounded(value) for key, value in row.items() if not isinstance(value, list)}


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

# SPDX-License-Identifier: Apache-2.0
"""What the commands of `oncemq pipeline` share: where Spark runs, how it is started, and how far a command is.

May not: import pyspark before a command runs: `oncemq --help` must stay fast.
Next: pipeline_audit.py for a command to copy.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from oncemq.cli.output import Output
from oncemq.errors import UsageError

Master = Annotated[
    str, typer.Option("--master", metavar="MASTER", help="Where Spark runs: local[2], spark://host:7077, ...", show_default=True)
]
Memory = Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory of the Spark driver, as 4g.")]
LOCAL = "local[*]"


def start_spark(master: str, memory: str = "") -> Any:
    """Start Spark, or say how to install it."""
    if importlib.util.find_spec("pyspark") is None:
        raise UsageError("this needs Spark: pip install 'oncemq[spark]'")
    from oncemq.pipeline.session import spark_session

    return spark_session(master=master, name="oncemq pipeline", memory=memory)


@contextmanager
def steps_shown(output: Output, total: int) -> Iterator[Callable[[str], None]]:
    """Say which step is running, on a terminal with a bar, elsewhere not at all."""
    if not output.has_watcher:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<20}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=output.console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting Spark", total=total)
        begun = -1

        def tell(step: str) -> None:
            nonlocal begun
            begun += 1
            progress.update(task, description=step, completed=begun)

        yield tell

# SPDX-License-Identifier: Apache-2.0
"""`oncemq mesh local` and `oncemq mesh trial`: a real mesh of processes on this machine, to look at or to kill.

May not: leave a process behind: Ctrl-C and every other end stop all of them.
Next: meshing/nodes.py for the processes, meshing/trial.py for the trial.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.exits import Exit
from oncemq.cli.options import Json
from oncemq.cli.output import Output, Row, output_of
from oncemq.cli.signals import StopAsked
from oncemq.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from oncemq.cli.meshing.nodes import Node, Nodes
    from oncemq.core.packets import MeshStatusDone

_LOOK_S = 1.0

Directory = Annotated[
    Path | None,
    typer.Option("--directory", metavar="DIR", help="Where the nodes keep their data. Without it: removed at the end."),
]
Count = Annotated[int, typer.Option("--nodes", min=2, max=100, metavar="N", help="How many nodes.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the mesh for all nodes.")]


def local(
    context: typer.Context,
    nodes: Count = 20,
    directory: Directory = None,
    setting: Settings = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="End after this time. Without it: at Ctrl-C.")] = None,
    _json: Json = False,
) -> None:
    """Start a mesh of real processes on this machine, show its overlay, and end all of them at Ctrl-C.

    Each node is a broker: put at one, get at another, kill -9 a third and see its neighbours change.
    With --json: one object with all nodes when they are up, then one with the overlay every second.

    oncemq mesh local --nodes 20
    oncemq mesh local --nodes 3 --directory three --set heartbeat_ms=200
    """
    from oncemq.cli.meshing.nodes import Nodes

    output = output_of(context)
    with _place(directory) as place, StopAsked() as stop, Nodes(place, nodes, options_of(setting or [])) as mesh:
        mesh.start()
        output.result({"nodes": [_where(node) for node in mesh]}, f"{nodes} nodes, data and logs in {place}")
        until = None if seconds is None else time.monotonic() + seconds
        _show(output, mesh, lambda: stop.is_set or (until is not None and time.monotonic() > until))
        output.note("stopping all nodes …")
        mesh.stop()


def trial(
    context: typer.Context,
    nodes: Count = 20,
    messages: Annotated[int, typer.Option(min=2, help="Messages put at each node.")] = 20,
    failed: Annotated[
        str, typer.Option(metavar="PERCENT,…", help="Which shares of the nodes to kill, one trial each.")
    ] = "10,25,50,75,90",
    seed: Annotated[int, typer.Option(min=0, help="Who is killed.")] = 1,
    setting: Settings = None,
    _json: Json = False,
) -> int:
    """Kill a share of a real mesh with -9 in the middle of its work, start the dead again, and count.

    Survivors must deliver, once, everything that any survivor holds; in the end every node must have delivered everything once.

    oncemq mesh trial --nodes 20 --messages 20
    oncemq mesh trial --nodes 30 --failed 50 --json
    """
    from oncemq.cli.meshing.trial import Plan, run_trial
    from oncemq.cli.torture import interruptible

    output = output_of(context)
    results = []
    for share in _shares(failed):
        with interruptible(), _place(None) as place:
            plan = Plan(nodes, messages, share / 100, seed, tuple(options_of(setting or [])))
            results.append(run_trial(place, plan, output.note))
    if output.is_json:
        output.card({"trials": [each.as_row() for each in results]})
    else:
        output.rows("trials", [_trial_row(each.as_row()) for each in results], empty="")
        for each in results:
            for law, texts in each.violations.items():
                output.failure("violation", f"{law}: {texts[0]}")
    return Exit.OK if all(each.is_right for each in results) else Exit.FAILED


def options_of(settings: list[str]) -> list[str]:
    """Options of `oncemq serve` for these settings; refused here rather than by every node."""
    from oncemq.cli.mesh_settings import read_settings

    read_settings(None, settings)
    return ["--log-level", "warning", *(word for pair in settings for word in ("--set", pair))]


def _shares(text: str) -> list[float]:
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if not shares or not all(0 <= share < 100 for share in shares):
        raise UsageError(f"--failed {text!r}: use percentages below 100, like 10,25,50")
    return shares


def _trial_row(row: dict[str, object]) -> Row:
    dropped = {"packets", "violations"}
    return {key: value for key, value in row.items() if key not in dropped}


@contextmanager
def _place(directory: Path | None) -> Iterator[Path]:
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="oncemq-mesh-") as made:
        yield Path(made)


def _where(node: Node) -> Row:
    return {"name": node.name, "address": node.address, "mesh": node.mesh, "pid": node.pid}


# --- the table --------------------------------------------------------------------------------------


def _show(output: Output, mesh: Nodes, is_over: Callable[[], bool]) -> None:
    """Show the overlay until it is over: a live table for people, a line per look for programs."""
    if not output.is_json and output.has_watcher:
        from rich.live import Live

        with Live(_table(_rows(mesh)), console=output.console(stderr=True), auto_refresh=False) as live:
            while not is_over():
                live.update(_table(_rows(mesh)), refresh=True)
                time.sleep(_LOOK_S)
        return
    while not is_over():
        if output.is_json:
            output.card({"overlay": _rows(mesh)})
        time.sleep(_LOOK_S)


def _rows(mesh: Nodes) -> list[Row]:
    names = {node.mesh: node.name.removeprefix("node-") for node in mesh}
    return [_row(node, node.status(), names) for node in mesh]


def _row(node: Node, status: MeshStatusDone | None, names: dict[str, str]) -> Row:
    from oncemq.cli.mesh_status import lag_of

    row: dict[str, object] = {"node": node.name.removeprefix("node-"), "address": node.address, "pid": node.pid or 0}
    if status is None:
        return row | {"life": "down", "neighbours": "", "passive": 0, "messages": 0, "lag": 0, "lost": 0}
    neighbours = sorted((names.get(each.address, each.address) for each in status.neighbours), key=lambda name: (len(name), name))
    return row | {
        "life": status.life,
        "neighbours": " ".join(neighbours),
        "passive": len(status.passive),
        "messages": sum(each.had for each in status.origins),
        "lag": lag_of(status),
        "lost": status.lost,
    }


def _table(rows: list[Row]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for key in rows[0]:
        table.add_column(key, no_wrap=True)
    for row in rows:
        shown = {**row, "address": str(row["address"]).removeprefix("tcp://127.0.0.1")}
        table.add_row(*map(str, shown.values()), style="red" if row["life"] == "down" else "")
    return table

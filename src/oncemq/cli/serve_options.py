# SPDX-License-Identifier: Apache-2.0
"""The options of `oncemq serve`: what it keeps, and what makes it a node of a mesh.

May not: import what `oncemq --help` does not need.
Next: serve.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Listen = Annotated[
    str,
    typer.Option("--address", "-a", envvar="ONCEMQ_ADDRESS", metavar="ADDRESS", help="Where to listen. Port * is a free one."),
]
LiveAddress = Annotated[
    str,
    typer.Option(
        envvar="ONCEMQ_LIVE_ADDRESS",
        metavar="ADDRESS",
        help="Where to publish to live subscribers, who are told. Without it: the next port.",
    ),
]
Retain = Annotated[
    str,
    typer.Option(metavar="TIME|SIZE", help="Keep messages of new topics this long even if all have them: 7d, 10GiB, forever."),
]
Limit = Annotated[
    str,
    typer.Option(metavar="TIME|SIZE", help="Drop messages of new topics beyond this, even if somebody misses them."),
]
SegmentSize = Annotated[str, typer.Option(metavar="SIZE", help="Size of one file of the journal.")]
AcceptLoss = Annotated[
    bool, typer.Option("--accept-loss", help="Start although stored messages are missing; whoever wants them is told.")
]
Mesh = Annotated[
    str,
    typer.Option(
        "--mesh",
        envvar="ONCEMQ_MESH_ADDRESS",
        metavar="ADDRESS",
        help="Be a node of a mesh, and listen for other nodes here.",
    ),
]
Join = Annotated[
    list[str] | None,
    typer.Option(
        "--join",
        envvar="ONCEMQ_MESH_JOIN",
        metavar="ADDRESS",
        help="A node to join through; several are better. The first node of a new mesh starts without.",
    ),
]
Advertise = Annotated[
    str,
    typer.Option(
        envvar="ONCEMQ_MESH_ADVERTISE",
        metavar="ADDRESS",
        help="How other nodes reach this one. Without it: --mesh, or this machine's name.",
    ),
]
MeshConfig = Annotated[
    Path | None,
    typer.Option(envvar="ONCEMQ_MESH_CONFIG", metavar="FILE", help="A TOML file with settings in its table 'mesh'."),
]
MeshSetting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the mesh, like heartbeat_ms=500. See docs/mesh.md."),
]

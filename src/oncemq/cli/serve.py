# SPDX-License-Identifier: Apache-2.0
"""`oncemq serve`: a broker in this process, until it is told to stop.

May not: stop in the middle of a drain: a signal only asks, and the loop ends between two of them.
The idea: recover and listen, say where, then step until a signal or `oncemq shutdown` ends it; then sync and go.
Next: engine/loop.py, which is what runs here; client/broker.py for the same in a thread.
"""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.logs import LogFormat, LogLevel, set_up
from oncemq.cli.options import DEFAULT_ADDRESS, DataDirectory, Json
from oncemq.cli.output import output_of
from oncemq.cli.serve_options import (
    AcceptLoss,
    Advertise,
    Join,
    Limit,
    Listen,
    LiveAddress,
    Mesh,
    MeshConfig,
    MeshSetting,
    Retain,
    SegmentSize,
)
from oncemq.cli.signals import StopAsked
from oncemq.errors import UsageError

if TYPE_CHECKING:
    from oncemq.client.broker import MeshPlace
    from oncemq.engine.loop import BrokerLoop

log = logging.getLogger("oncemq.mesh")

_SIGNAL_DELAY_MS = 100
"""How long a signal may go unnoticed while nothing else happens."""
_SEGMENT_BYTES_MIN = 64 * 1024
_ADDRESS = re.compile(r"(ipc|inproc)://.+|tcp://\S+:(\d+|\*)")
_LIST = re.compile(r"tcp://[^,]*,.*|.*,\s*(tcp|ipc|inproc)://.*")
_NOWHERE = re.compile(r"tcp://(\*:.*|0\.0\.0\.0:.*|\[::\]:.*|.*:\*)")
"""Places to listen at, but none to connect to."""
_PORT = re.compile(r"\Atcp://.*:(\d+)\Z")
_PORT_MAX = 65_535
_LOOPBACK = re.compile(r"(ipc|inproc)://.*|tcp://(127(\.\d+){3}|localhost|\[::1\]):.*")


def serve(
    context: typer.Context,
    directory: DataDirectory,
    address: Listen = DEFAULT_ADDRESS,
    live_address: LiveAddress = "",
    retain: Retain = "",
    limit: Limit = "",
    segment_size: SegmentSize = "128MiB",
    accept_loss: AcceptLoss = False,
    mesh: Mesh = "",
    join: Join = None,
    advertise: Advertise = "",
    mesh_config: MeshConfig = None,
    setting: MeshSetting = None,
    log_level: Annotated[LogLevel, typer.Option(help="What to log, on stderr.")] = LogLevel.INFO,
    log_format: Annotated[LogFormat, typer.Option(help="How a line of the log looks.")] = LogFormat.TEXT,
    _json: Json = False,
) -> None:
    """Run a broker. Everything it promises is in the directory DIR, which is made if it is not there.

    The first line on stdout says where it listens; with --json it is an object with "address", "live_address" and "pid".
    SIGTERM, SIGINT (Ctrl-C) and 'oncemq shutdown' stop it cleanly. kill -9 loses nothing either.

    oncemq serve data
    oncemq serve /var/lib/oncemq --retain 7d --log-format json
    oncemq serve data --address 'tcp://127.0.0.1:*' --json
    oncemq serve a --address tcp://127.0.0.1:5556 --mesh tcp://127.0.0.1:7000
    oncemq serve b --address tcp://127.0.0.1:5566 --mesh tcp://127.0.0.1:7001 --join tcp://127.0.0.1:7000
    """
    from oncemq.adapters.service_manager import READY, tell
    from oncemq.client.broker import open_broker

    output = output_of(context)
    set_up(log_level, log_format)
    for each in filter(None, (address, live_address, mesh, advertise, *(join or []))):
        _check_port(each)
    place = _place(mesh, join or [], advertise, mesh_config, setting or [])
    for each in filter(None, (address, live_address, mesh)):
        if _LOOPBACK.fullmatch(each) is None:
            output.warn(f"{each} can be reached from other machines, and there is no authentication yet")
    segment = segment_bytes(segment_size)
    with StopAsked() as stop:
        loop, network = open_broker(
            directory,
            address,
            retain=retain,
            limit=limit,
            segment_bytes=segment,
            live_address=live_address,
            accept_loss=accept_loss,
            mesh=place,
        )
        try:
            where = {"address": network.address, "pid": os.getpid(), "directory": str(directory.resolve())}
            where["live_address"] = network.live_address
            node = ""
            if loop.mesh is not None:
                where["mesh"] = loop.mesh.node.membership.me
                node = f", node {where['mesh']}"
            output.result(where, f"listening at {network.address} (pid {os.getpid()}, data in {directory}{node})")
            tell(READY)
            _run(loop, stop)
        finally:
            network.close()


def _run(loop: BrokerLoop, stop: StopAsked) -> None:
    from oncemq.adapters.service_manager import STOPPING, tell

    while not stop.is_set and loop.step(wait_ms_max=_SIGNAL_DELAY_MS):
        pass
    tell(STOPPING)
    if not loop.depart():
        log.warning("no neighbour has everything of this node yet: start it again some time, and it tells them")
    loop.stop()


def _place(mesh: str, join: list[str], advertise: str, config: Path | None, pairs: list[str]) -> MeshPlace | None:
    """What makes this broker a node, if anything does."""
    from oncemq.cli.mesh_settings import read_settings
    from oncemq.client.broker import MeshPlace

    if not mesh:
        if join or advertise or config or pairs:
            raise UsageError("--join, --advertise, --mesh-config and --set are for nodes: say --mesh ADDRESS too")
        return None
    for each in join:
        _check_is_one(each)
    for each in filter(None, (mesh, advertise, *join)):
        if _ADDRESS.fullmatch(each) is None:  # Nobody answers there, and a node would wait for that for ever.
            raise UsageError(f"{each!r} is no address of a node: use one like tcp://10.0.0.5:7000")
    for each in (advertise, *join):
        if _NOWHERE.fullmatch(each) is not None:
            raise UsageError(f"nobody can connect to {each!r}: say which host and port, like tcp://10.0.0.5:7000")
    return MeshPlace(mesh, tuple(join), advertise, read_settings(config, pairs))


def _check_is_one(contact: str) -> None:
    if _LIST.fullmatch(contact) is not None:
        options = " ".join(f"--join {each}" for each in re.split(r"\s*,\s*", contact.strip(", ")))
        raise UsageError(f"--join takes one address: say {options}; ONCEMQ_MESH_JOIN has spaces between them")


def _check_port(address: str) -> None:
    """ZeroMQ takes any number, and listens at what is left of it in two bytes: nobody would look for it there."""
    found = _PORT.search(address)
    if found is not None and int(found[1]) > _PORT_MAX:
        raise UsageError(f"{address!r}: ports end at {_PORT_MAX}")


def segment_bytes(text: str) -> int:
    """Read a size like 128MiB."""
    from oncemq.journal.segment import SEGMENT_BYTES_MAX
    from oncemq.model.retention import read_retention, retention_text

    size_bytes = None
    with suppress(UsageError):  # It would speak of retention, which nobody asked for.
        size_bytes = read_retention(retention_text(text)).size_bytes
    if size_bytes is None or not _SEGMENT_BYTES_MIN <= size_bytes <= SEGMENT_BYTES_MAX:
        raise UsageError(f"--segment-size {text!r}: use a size from 64KiB to 2GiB")
    return size_bytes

# SPDX-License-Identifier: Apache-2.0
"""`oncemq outbox`: what a client keeps until a broker confirms it, and sending it now.

May not: send anything unless asked: looking changes nothing.
Next: client/puts.py, journal/outbox.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncemq.cli.connecting import connected
from oncemq.cli.exits import Exit
from oncemq.cli.options import DEFAULT_ADDRESS, Address, ClientId, Json, State
from oncemq.cli.output import Output, Row, output_of

if TYPE_CHECKING:
    from oncemq.client.puts import Waiting


def outbox(
    context: typer.Context,
    id: ClientId,
    flush: Annotated[bool, typer.Option("--flush", help="Send it now, and wait until the broker has confirmed it.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, metavar="SECONDS", help="With --flush: how long to try."),
    ] = None,
    state: State = None,
    address: Address = DEFAULT_ADDRESS,
    _json: Json = False,
) -> int:
    """Show what a client has put and no broker has confirmed yet; with --flush, send it.

    Every later run of that client sends it by itself, in order and once; this is for those who want to know, or cannot wait.

    oncemq outbox --id shop
    oncemq outbox --id shop --flush
    """
    output = output_of(context)
    if flush:
        return _flush(output, address, id, state, timeout)
    from oncemq.client.connect import connect

    client = connect(address, id=id, state=state, offline=True)
    try:
        rows = [_row(waiting) for waiting in client.outbox()]
    finally:
        client._abandon()  # Closing would send.
    output.rows("outbox", rows, empty="nothing waits: everything was confirmed")
    return Exit.OK


def _row(waiting: Waiting) -> Row:
    return {
        "topics": ", ".join(waiting.topics),
        "messages": waiting.messages,
        "bytes": waiting.size_bytes,
        "first_put": waiting.number,
    }


def _flush(output: Output, address: str, id: str, state: Path | None, timeout: float | None) -> int:
    with connected(output, address, id=id, state=state, offline=True) as client:
        waiting = sum(entry.messages for entry in client.outbox())
        client.flush(timeout)
    output.result({"confirmed": waiting}, f"{waiting:,} confirmed" if waiting else "nothing waited: everything was confirmed")
    return Exit.OK

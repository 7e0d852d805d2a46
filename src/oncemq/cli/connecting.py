# SPDX-License-Identifier: Apache-2.0
"""How commands reach a broker: as a client with an id, as one without, or only to ask.

May not: leave a client open, or somebody at a terminal without a word for seconds.
The idea: questions (lists, statistics) need no session, so they open none; everything else says Hello.
Next: client/connect.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

from oncemq.cli.output import Output

if TYPE_CHECKING:
    from oncemq.client.client import Client

_PATIENCE_S = 1.2


@contextmanager
def connected(
    output: Output,
    address: str,
    *,
    id: str | None = None,
    state: Path | None = None,
    in_doubt: str = "raise",
    takeover: bool = False,
    offline: bool = False,
) -> Iterator[Client]:
    """A client for one command. Leaving with an exception leaves what was handed out in doubt."""
    from oncemq.client.connect import connect

    with nullcontext() if offline else _patience(output, address):  # Offline it waits for nobody yet.
        client = connect(address, id=id, state=state, in_doubt=in_doubt, takeover=takeover, offline=offline)
    with _patience(output, address, client), client:
        try:
            yield client
        finally:
            if takeover:  # Afterwards: a put says Hello when it has something to send.
                _tell_leftovers(output, client)


def _tell_leftovers(output: Output, client: Client) -> None:
    """Say what became of puts that earlier runs had kept for a broker that was set back."""
    renumbered, unknown = client.leftovers.renumbered, client.leftovers.unknown
    if renumbered or unknown:
        output.remark(
            {"leftovers": {"renumbered": renumbered, "unknown": unknown}},
            f"of messages kept by earlier runs {renumbered} had never reached this broker and are put anew; "
            f"{unknown} may or may not have been stored and are not sent again",
        )


@contextmanager
def asking(output: Output, address: str) -> Iterator[Client]:
    """A client that has said nothing yet; enough to look, and it says Hello by itself when a command needs that."""
    from oncemq.client.connect import connect

    with _patience(output, address), connect(address, offline=True) as client:
        yield client


@contextmanager
def _patience(output: Output, address: str, client: Client | None = None) -> Iterator[None]:
    """Tell somebody at a terminal what is being waited for, if it takes long; of a client only while it has not had a Welcome."""

    def tell() -> None:
        if client is None or client._session.welcome is None:
            output.note(f"no answer from {address} yet, trying again …")

    timer = Timer(_PATIENCE_S, tell)
    timer.daemon = True
    if output.has_watcher:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()

# SPDX-License-Identifier: Apache-2.0
"""Ports for brokers that are killed and come back: nobody else's for as long as this process lives.

May not: listen there, or a broker could not.
The idea: to look whether a port is free says nothing about the next moment. So whoever takes one stays bound to it. Such a port
is refused to everybody who asks for it in the same way, and the system does not hand it out for a connection; but who sets
SO_REUSEADDR, as every server does, may listen there, since nobody does yet.
Next: wires.py for a broker and its clients, cli/meshing/nodes.py for nodes.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

_FIRST, _END = 20_000, 32_000
"""Below those that Linux hands out by itself, above those of well-known servers."""
_HELD: list[ExitStack] = []


def reserve_port() -> int:
    """Return a port that is free, as is the one behind it, where a broker publishes."""
    while True:
        port = random.randrange(_FIRST, _END, 2)  # noqa: S311 - a port, not a secret
        with ExitStack() as undo, suppress(OSError):
            for each in (port, port + 1):
                held = undo.enter_context(socket.socket())
                held.bind(("127.0.0.1", each))
                # From now on, not before: of two that both say so both would get it.
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _HELD.append(undo.pop_all())
            return port

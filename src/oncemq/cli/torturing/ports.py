# SPDX-License-Identifier: Apache-2.0
"""Ports for brokers that are killed and come back: nobody else's for as long as this process lives.

May not: hand out a port that the system hands out by itself: it must still be free after a kill.
The idea: to look whether a port is free says nothing about the next moment, in which another run looks too. So whoever takes one
also takes a name in Linux' abstract socket namespace, which is free again when the process ends, however it ends.
Next: wires.py for a broker and its clients, cli/meshing/nodes.py for nodes.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

_FIRST, _END = 20_000, 32_000
"""Below those of /proc/sys/net/ipv4/ip_local_port_range, above those of well-known servers."""
_HELD: list[socket.socket] = []


def reserve_port() -> int:
    """Return a port that is free, as is the one behind it, where a broker publishes."""
    while True:
        port = random.randrange(_FIRST, _END, 2)  # noqa: S311 - a port, not a secret
        with ExitStack() as undo, suppress(OSError):
            name = undo.enter_context(socket.socket(socket.AF_UNIX))
            name.bind(f"\0oncemq-port-{port}")
            with socket.socket() as first, socket.socket() as second:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            _HELD.append(name)
            undo.pop_all()  # From here on it stays open.
            return port

# SPDX-License-Identifier: Apache-2.0
"""Tells systemd, if it started this process, that the broker listens, or is about to stop.

May not: fail. A broker that cannot say it serves all the same.
The idea: sd_notify(3) is one datagram to the socket named in NOTIFY_SOCKET; "@" begins a name that is in no directory.
Next: cli/serve.py, which says when; contrib/oncemq.service, which wants to hear it.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

VARIABLE = "NOTIFY_SOCKET"
READY, STOPPING = "READY=1", "STOPPING=1"


def tell(news: str) -> None:
    """Tell whoever started this process; nobody, if nobody asked."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.connect(f"\0{name[1:]}" if name.startswith("@") else name)
        link.sendall(news.encode())

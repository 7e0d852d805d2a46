# SPDX-License-Identifier: Apache-2.0
"""What becomes of clients when the process forks: they stay with the parent.

May not: write or send anything. A child has a copy of every outbox, slot and put number; if it used them, two messages would have
one number, and one message would be handed out twice.
The idea: in the child every client is closed without a word, as if it had never been its own. The lock of a state directory
belongs to both until both have let go of it, so the child lets go at once.
Next: client/connect.py, which registers every client here.
"""

from __future__ import annotations

import os
from weakref import WeakSet

from oncemq.client.alone import NOBODY
from oncemq.client.client import Client

_clients: WeakSet[Client] = WeakSet()


def stay_with_this_process(client: Client) -> None:
    """Have a client closed in every process that is forked from this one."""
    _clients.add(client)


def _on_fork() -> None:
    for client in list(_clients):
        if not client._is_closed:
            client._is_closed = True
            client._alone.inside = NOBODY  # Whoever it was is not in this process.
            client._puts.open_blocks.clear()
            client._gets.held.clear()  # What was fetched ahead is the parent's to hand out.
            client._session.state.leave()
            client._session.close()
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_on_fork)

# SPDX-License-Identifier: Apache-2.0
"""The front door for asyncio: `connect_async` puts an AsyncClient together from its parts.

May not: hold a rule.
Next: client/async_client.py, client/connect.py.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from oncemq.adapters.system import SystemClock, SystemEntropy
from oncemq.adapters.zmq_loop_link import ZmqLoopLink
from oncemq.client.arguments import flags
from oncemq.client.async_client import AsyncClient
from oncemq.client.bridge import LoopClock, SharedSession, run
from oncemq.client.client import Client
from oncemq.client.connect import DEFAULT_ADDRESS, state_of
from oncemq.client.forks import stay_with_this_process
from oncemq.client.gets import Gets
from oncemq.client.puts import Puts
from oncemq.core.publisher import Publisher


async def connect_async(
    address: str = DEFAULT_ADDRESS,
    *,
    id: str | None = None,
    state: str | Path | None = None,
    in_doubt: str = "raise",
    takeover: bool = False,
    offline: bool = False,
) -> AsyncClient:
    """Connect to a broker from asyncio; the options are those of connect()."""
    session_id = SystemEntropy().id16()
    flags(takeover=takeover, offline=offline)
    kept = state_of(address, id, state, session_id, in_doubt)
    with ExitStack() as undo:
        undo.callback(kept.close)
        link = ZmqLoopLink(address)
        undo.callback(link.close)
        session = SharedSession(link, LoopClock(SystemClock()), kept, session_id=session_id, address=address, takeover=takeover)
        client = Client(session, Puts(session, Publisher(session_id)), Gets(session, in_doubt=in_doubt))
        stay_with_this_process(client)
        undo.pop_all()
    if not offline:
        try:
            await run(session.ensure)
        except BaseException:
            client._abandon()
            raise
    return AsyncClient(client)

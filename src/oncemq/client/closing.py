# SPDX-License-Identifier: Apache-2.0
"""The end of a client: what it tells its broker, and what it leaves for its next life.

May not: send puts, or insist on an answer: whatever is not said here is found out by the next Hello.
Next: client/client.py, which closes; client/transactions.py for what is pending then.
"""

from __future__ import annotations

import logging

import msgspec

from oncemq.client.gets import Gets
from oncemq.client.puts import Puts
from oncemq.client.session import Session
from oncemq.core.packets import Goodbye
from oncemq.errors import Refused

log = logging.getLogger("oncemq.client")


def say_goodbye(session: Session, puts: Puts, gets: Gets, left: int) -> None:
    """Leave every slot clean, and tell the broker that this session is over unless messages are left."""
    gets.close()
    puts.retire()
    if session.welcome is None:
        return
    if left == 0:
        try:
            session.try_once(Goodbye(session.id))
        except Refused as problem:
            log.debug("no goodbye: %s", problem)
    confirmed = {stream.hex(): number for stream, number in puts.publisher.confirmed.items()}
    session.state.save(msgspec.structs.replace(session.state.identity, confirmed=confirmed))

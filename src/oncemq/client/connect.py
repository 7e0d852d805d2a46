# SPDX-License-Identifier: Apache-2.0
"""The front door: `connect` puts a client together from its parts.

May not: hold a rule.
The idea: an id means a state directory (its outbox and slots are what makes exactly once survive this process);
no id means an ephemeral client, at least once, gone when it closes.
Next: client/client.py.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import platformdirs

from oncemq.adapters.os_disk import OsDisk
from oncemq.adapters.system import SystemClock, SystemEntropy
from oncemq.adapters.zmq_link import ZmqLink
from oncemq.client.arguments import flags
from oncemq.client.client import Client
from oncemq.client.forks import stay_with_this_process
from oncemq.client.gets import IN_DOUBT_CHOICES, Gets
from oncemq.client.puts import Puts
from oncemq.client.session import Session
from oncemq.client.state import DirectoryState, NoState, State
from oncemq.core.publisher import Publisher
from oncemq.errors import UsageError
from oncemq.limits import PORT_REQUEST
from oncemq.model.names import EPHEMERAL_PREFIX, check_client

DEFAULT_ADDRESS = f"tcp://127.0.0.1:{PORT_REQUEST}"


def connect(
    address: str = DEFAULT_ADDRESS,
    *,
    id: str | None = None,
    state: str | Path | None = None,
    in_doubt: str = "raise",
    takeover: bool = False,
    offline: bool = False,
) -> Client:
    """Connect to a broker.

    `id` names this client; what it puts is stored once and what it gets comes once, through crashes of either side.
    Its `state` directory (default: the platform's) belongs to one process at a time. Without an id the client is
    ephemeral: nothing survives it, and a message may come again after a crash.
    `in_doubt` says what get() does with messages handed out before a crash: "raise" InDoubt, "repeat" or "skip" them.
    `takeover` accepts that an earlier state directory is lost, or that the broker was set back to a backup: what was on its way
    here is then in doubt, and `client.leftovers` says what became of puts kept for later.
    `offline` does not insist on an answer now: puts are kept.
    """
    session_id = SystemEntropy().id16()
    flags(takeover=takeover, offline=offline)
    kept = state_of(address, id, state, session_id, in_doubt)
    return _assemble(kept, address, session_id, in_doubt=in_doubt, takeover=takeover, offline=offline)


def state_of(address: str, name: str | None, state: str | Path | None, session_id: bytes, in_doubt: str) -> State:
    """Check what the caller wants and open the state directory, or none for an ephemeral client."""
    if not isinstance(address, str):
        raise UsageError(f"an address is text like {DEFAULT_ADDRESS}, not {type(address).__name__}")
    if state is not None and not isinstance(state, str | Path):
        raise UsageError(f"a state directory is text or a Path, not {type(state).__name__}")
    if in_doubt not in IN_DOUBT_CHOICES:
        raise UsageError(f"in_doubt must be one of {', '.join(IN_DOUBT_CHOICES)}, not {in_doubt!r}")
    if name is None:
        if state is not None:
            raise UsageError("a state directory needs an id: connect(..., id='billing', state=...)")
        return NoState(EPHEMERAL_PREFIX + SystemEntropy().id16().hex())
    client = check_client(name)
    if "\0" in str(state):
        raise UsageError("a state directory cannot have a null character in its name")
    directory = Path(state) if state is not None else state_directory(address, client)
    return DirectoryState(OsDisk(directory), str(directory), client, session_id)


def _assemble(state: State, address: str, session_id: bytes, *, in_doubt: str, takeover: bool, offline: bool) -> Client:
    with ExitStack() as undo:
        undo.callback(state.close)
        link = ZmqLink(address)
        undo.callback(link.close)
        session = Session(link, SystemClock(), state, session_id=session_id, address=address, takeover=takeover)
        puts = Puts(session, Publisher(session_id))
        client = Client(session, puts, Gets(session, in_doubt=in_doubt))
        stay_with_this_process(client)
        undo.pop_all()
    if not offline:
        try:
            session.ensure()
        except BaseException:
            client._abandon()
            raise
    return client


def state_directory(address: str, client: str) -> Path:
    """Where a client's state lives unless it is told otherwise: per user, per broker address, per id."""
    place = re.sub(r"[^A-Za-z0-9.-]+", "_", address.removeprefix("tcp://"))
    return Path(platformdirs.user_state_dir("oncemq")) / "clients" / place / client

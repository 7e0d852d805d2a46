# SPDX-License-Identifier: Apache-2.0
"""OnceMQ: put a message on a topic, and every subscriber gets it exactly once, whatever crashes in between.

    import oncemq

    with oncemq.connect("tcp://127.0.0.1:5556", id="billing") as client:
        client.subscribe("orders")
        client.put("orders", b"one")
        message = client.get("orders", timeout=5)

May not: do anything but open the front door; load what nobody has asked for yet.
Next: client/connect.py, client/client.py; docs/architecture.md for the rooms behind.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from oncemq.errors import (
    AlreadySubscribed,
    BrokerFull,
    BrokerUnreachable,
    ClientClosed,
    ConflictingPut,
    Damaged,
    DatabaseBusy,
    DirectoryLocked,
    DirectoryTooNew,
    DirectoryUnusable,
    DiskFull,
    Diverged,
    EndedEarly,
    Fenced,
    Gap,
    InDoubt,
    InvalidName,
    JournalDamaged,
    JournalIncomplete,
    MessageTooLarge,
    NoSubscribers,
    NoSuchTopic,
    NotCommitted,
    NotDurable,
    NotSubscribed,
    OnceMQError,
    OutboxDamaged,
    OutboxFull,
    PutPending,
    Refused,
    StateLost,
    SyncFailed,
    Told,
    TransactionError,
    Uncertain,
    UnsupportedDatabase,
    UsageError,
    WorldError,
    WrongAuthority,
)
from oncemq.version import VERSION

if TYPE_CHECKING:
    from oncemq.client.async_client import AsyncClient, AsyncListener
    from oncemq.client.broker import Broker
    from oncemq.client.client import Client
    from oncemq.client.connect import connect
    from oncemq.client.connect_async import connect_async
    from oncemq.client.listening import Listener
    from oncemq.model.message import Message, Receipt, Receipts
    from oncemq.model.view import Block

__version__ = VERSION
_ROOMS = {
    "AsyncClient": "oncemq.client.async_client",
    "AsyncListener": "oncemq.client.async_client",
    "Block": "oncemq.model.view",
    "Broker": "oncemq.client.broker",
    "Client": "oncemq.client.client",
    "Listener": "oncemq.client.listening",
    "Message": "oncemq.model.message",
    "Receipt": "oncemq.model.message",
    "Receipts": "oncemq.model.message",
    "connect": "oncemq.client.connect",
    "connect_async": "oncemq.client.connect_async",
}
"""What is loaded when it is first used: every command imports this package, and few need a broker or ZeroMQ."""

__all__ = [
    "AlreadySubscribed",
    "AsyncClient",
    "AsyncListener",
    "Block",
    "Broker",
    "BrokerFull",
    "BrokerUnreachable",
    "Client",
    "ClientClosed",
    "ConflictingPut",
    "Damaged",
    "DatabaseBusy",
    "DirectoryLocked",
    "DirectoryTooNew",
    "DirectoryUnusable",
    "DiskFull",
    "Diverged",
    "EndedEarly",
    "Fenced",
    "Gap",
    "InDoubt",
    "InvalidName",
    "JournalDamaged",
    "JournalIncomplete",
    "Listener",
    "Message",
    "MessageTooLarge",
    "NoSubscribers",
    "NoSuchTopic",
    "NotCommitted",
    "NotDurable",
    "NotSubscribed",
    "OnceMQError",
    "OutboxDamaged",
    "OutboxFull",
    "PutPending",
    "Receipt",
    "Receipts",
    "Refused",
    "StateLost",
    "SyncFailed",
    "Told",
    "TransactionError",
    "Uncertain",
    "UnsupportedDatabase",
    "UsageError",
    "WorldError",
    "WrongAuthority",
    "__version__",
    "connect",
    "connect_async",
]


if not TYPE_CHECKING:  # A type checker sees the imports above, and still objects to a name that does not exist.

    def __getattr__(name: str) -> object:
        """Load a public name at its first use (PEP 562)."""
        if name not in _ROOMS:
            raise AttributeError(f"module 'oncemq' has no attribute {name!r}")
        found = getattr(import_module(_ROOMS[name]), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

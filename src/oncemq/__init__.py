# SPDX-License-Identifier: Apache-2.0
"""OnceMQ: put a message on a topic, and every subscriber gets it exactly once, whatever crashes in between.

    import oncemq

    with oncemq.connect("tcp://127.0.0.1:5556", id="billing") as client:
        client.subscribe("orders")
        client.put("orders", b"one")
        message = client.get("orders", timeout=5)

May not: do anything but open the front door.
Next: client/connect.py, client/client.py; docs/architecture.md for the rooms behind.
"""

from oncemq.client.broker import Broker
from oncemq.client.client import Client
from oncemq.client.connect import connect
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
from oncemq.model.message import Message, Receipt, Receipts
from oncemq.version import VERSION

__version__ = VERSION

__all__ = [
    "AlreadySubscribed",
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
    "Message",
    "MessageTooLarge",
    "NoSubscribers",
    "NoSuchTopic",
    "NotCommitted",
    "NotDurable",
    "NotSubscribed",
    "OnceMQError",
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
]

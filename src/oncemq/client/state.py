# SPDX-License-Identifier: Apache-2.0
"""A client's state directory: who it is, its outbox, and a slot per subscription. Or none of it, for ephemeral clients.

May not: decide anything; it reads and writes what core's machines say, in the order they need.
The idea: `client.json` is replaced atomically and synced; `outbox-*` are written before anything is sent; `slot-*` are mapped
memory, so that a hand-over costs a microsecond and survives kill -9.
Next: core/identity.py, core/slot.py, journal/outbox.py for the rules.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from oncemq.core.identity import Identity, decode_identity, encode_identity
from oncemq.core.packets import NOBODY, SubscriptionInfo
from oncemq.core.publisher import Entry
from oncemq.core.slot import SLOT_BYTES, Slot, decode_slot
from oncemq.crashpoints import reach
from oncemq.errors import DiskFull, OutboxDamaged, OutboxFull, SyncFailed
from oncemq.journal.outbox import Outbox, OutboxEntry, messages_of
from oncemq.limits import OUTBOX_BYTES_MAX
from oncemq.model.block import BadBlock, outline_of
from oncemq.ports import Disk, MappedFile

_IDENTITY = "client.json"
_SLOT = "slot-"


class Place(Protocol):
    """Where one subscription's slot is written."""

    def write(self, slot: Slot) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class MappedPlace:
    """A slot in mapped memory."""

    __slots__ = ("_file", "write_at")

    def __init__(self, file: MappedFile) -> None:
        self._file = file
        self.write_at = file.write

    def write(self, slot: Slot) -> None:
        self.write_at(*slot.encode())

    def sync(self) -> None:
        with told("a slot"):
            self._file.sync()

    def close(self) -> None:
        self._file.close()


class NoPlace:
    """The slot of a client without a directory: nothing survives."""

    def write(self, slot: Slot) -> None:
        pass

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class State(Protocol):
    """What a client keeps between two lives."""

    identity: Identity

    def save(self, identity: Identity) -> None: ...

    def entries(self) -> list[Entry]: ...

    def keep(self, entry: Entry) -> None: ...

    def retire(self, stream: bytes, through_number: int) -> None: ...

    def replace(self, old: Entry, new: Entry) -> None: ...

    def confirmed(self) -> dict[bytes, int]: ...

    def sync(self) -> None: ...

    def open_slot(self, info: SubscriptionInfo) -> tuple[Slot, Place, bool]: ...

    def newest_bookmark(self) -> tuple[bytes, int]: ...

    def keep_slots(self, subscription_ids: list[int], *, newest: bool = True) -> None: ...

    def close(self) -> None: ...

    def leave(self) -> None:
        """Close everything without writing: after a fork all of it is the parent's."""

    @property
    def is_durable(self) -> bool: ...


class NoState:
    """An ephemeral client: everything lives and dies with the process."""

    is_durable = False

    def __init__(self, client: str) -> None:
        self.identity = Identity(client)

    def save(self, identity: Identity) -> None:
        self.identity = identity

    def entries(self) -> list[Entry]:
        return []

    def keep(self, entry: Entry) -> None:
        pass

    def retire(self, stream: bytes, through_number: int) -> None:
        pass

    def replace(self, old: Entry, new: Entry) -> None:
        pass

    def confirmed(self) -> dict[bytes, int]:
        return {}

    def sync(self) -> None:
        pass

    def open_slot(self, info: SubscriptionInfo) -> tuple[Slot, Place, bool]:
        return fresh_slot(info, b"\0" * 16), NoPlace(), False

    def newest_bookmark(self) -> tuple[bytes, int]:
        return NOBODY, 0

    def keep_slots(self, subscription_ids: list[int], *, newest: bool = True) -> None:
        pass

    def close(self) -> None:
        pass

    def leave(self) -> None:
        pass


class DirectoryState:
    """A state directory, locked while this process lives."""

    is_durable = True

    def __init__(self, disk: Disk, directory: str, client: str, start_id: bytes) -> None:
        self._disk = disk
        self._where = f"the state directory {directory}"
        with told(self._where):
            disk.lock()
        try:
            self.identity = self._load(directory, client)
            self._slots = {name for name in disk.names() if name.startswith(_SLOT)}
            self._outbox = Outbox.open(disk, start_id=start_id)
        except BaseException:
            disk.unlock()
            raise
        self._boot = hashlib.blake2b(disk.boot_id().encode(), digest_size=16).digest() if disk.boot_id() else b"\0" * 16

    def _load(self, directory: str, client: str) -> Identity:
        if _IDENTITY not in self._disk.names():
            return Identity(client)
        file = self._disk.open(_IDENTITY)
        try:
            return decode_identity(file.read(0, file.size()), directory, client)
        finally:
            file.close()

    def save(self, identity: Identity) -> None:
        """Replace the identity, synced: whatever is said next may rely on it."""
        with told(self._where):
            self._write_identity(encode_identity(identity))
        self.identity = identity

    def _write_identity(self, content: bytes) -> None:
        temporary = _IDENTITY + ".new"
        file = self._disk.open(temporary, create=True)
        try:
            file.write(0, [content])
            file.sync()
        finally:
            file.close()
        reach("client.before_state_rename")
        self._disk.rename(temporary, _IDENTITY)
        self._disk.sync_names()

    # --- outbox ----------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """What an earlier process left unconfirmed, oldest first; OutboxDamaged if one of them is not a block."""
        return list(map(self._entry, self._outbox.entries))

    def _entry(self, left: OutboxEntry) -> Entry:
        try:
            count = outline_of(left.block).count
        except BadBlock as problem:
            others = messages_of([entry for entry in self._outbox.entries if entry is not left])
            raise OutboxDamaged("the outbox", 0, f"put {left.first_number} is not a block ({problem})", others) from problem
        return Entry(left.stream, left.first_number, count, left.topics, strict=left.strict, block=left.block)

    def keep(self, entry: Entry) -> None:
        """Write an entry before it may be sent. Not synced: it survives kill -9, and a sync makes it survive more."""
        if self._outbox.size_bytes + len(entry.block) > OUTBOX_BYTES_MAX:
            raise OutboxFull(self._outbox.size_bytes, OUTBOX_BYTES_MAX)
        reach("client.before_outbox")
        self._outbox.append(_kept(entry))
        reach("client.after_outbox")

    def replace(self, old: Entry, new: Entry) -> None:
        """Write the same block under a number of another stream, and let the old number go, at once."""
        reach("client.before_outbox")
        self._outbox.replace(old.stream, old.last_number, _kept(new))
        reach("client.after_outbox")

    def retire(self, stream: bytes, through_number: int) -> None:
        self._outbox.retire(stream, through_number)

    def confirmed(self) -> dict[bytes, int]:
        return {**self.identity.confirmed_numbers(), **self._outbox.confirmed}

    def sync(self) -> None:
        self._outbox.sync()

    # --- slots -----------------------------------------------------------------------------------------

    def open_slot(self, info: SubscriptionInfo) -> tuple[Slot, Place, bool]:
        """Return the slot, where to write it, and whether the operating system died since it was written last."""
        name = _slot_name(info.subscription_id)
        with told(self._where):
            is_new = name not in self._slots
            file = self._disk.map(name, SLOT_BYTES)
            if is_new:
                self._disk.sync_names()  # A slot that vanishes with the power would be taken for one nothing was handed out from.
                self._slots.add(name)
        place = MappedPlace(file)
        slot = decode_slot(file.read(0, SLOT_BYTES))
        is_os_crash = slot is not None and not slot.is_clean and (slot.boot != self._boot or self._boot == b"\0" * 16)
        if slot is None or slot.subscription_id != info.subscription_id or slot.topic_id != info.topic_id:
            slot, is_os_crash = fresh_slot(info, self._boot), False
        slot.boot, slot.is_clean = self._boot, False
        return slot, place, is_os_crash

    def newest_bookmark(self) -> tuple[bytes, int]:
        """(start id, append number) of the newest message any slot knows of: a broker that was set back does not have it."""
        append_number, start_id = max(self._bookmarks().values(), default=(0, NOBODY))
        return start_id, append_number

    def _bookmarks(self) -> dict[str, tuple[int, bytes]]:
        """Append number and start id of what was handed out last, by the name of the slot."""
        found = {}
        for name in sorted(self._slots):
            file = self._disk.map(name, SLOT_BYTES)
            slot = decode_slot(file.read(0, SLOT_BYTES))
            file.close()
            found[name] = (slot.append_number, slot.start_id) if slot is not None else (0, NOBODY)
        return found

    def keep_slots(self, subscription_ids: list[int], *, newest: bool = True) -> None:
        """Remove the slots of subscriptions that are no more.

        The newest bookmark stays: it tells of a broker that was set back, also of one that has the ended subscription again.
        Who takes over has been told.
        """
        bookmarks = self._bookmarks() if newest else {}
        last = max(bookmarks, key=bookmarks.__getitem__, default="")
        kept = {*map(_slot_name, subscription_ids), *([last] if last and bookmarks[last][0] else [])}
        for name in sorted(self._slots - kept):
            self._disk.unlink(name)
        self._slots &= kept

    def close(self) -> None:
        self._outbox.close()
        self._disk.unlock()

    def leave(self) -> None:
        self._outbox.close(clean=False)
        self._disk.unlock()


@contextmanager
def told(where: str) -> Iterator[None]:
    """Say in our words what the disk refused."""
    try:
        yield
    except OSError as error:
        raise (DiskFull(where) if error.errno == errno.ENOSPC else SyncFailed(where, error.strerror or str(error))) from error


def _kept(entry: Entry) -> OutboxEntry:
    return OutboxEntry(entry.stream, entry.first_number, entry.numbers, entry.topics, entry.strict, entry.block)


def fresh_slot(info: SubscriptionInfo, boot: bytes) -> Slot:
    """The slot of a subscription nothing was handed out from yet."""
    slot = Slot(info.subscription_id, info.topic_id, info.cursor, info.cursor, info.cursor, boot=boot)
    slot.freeze()
    return slot


def _slot_name(subscription_id: int) -> str:
    return f"{_SLOT}{subscription_id:016x}"

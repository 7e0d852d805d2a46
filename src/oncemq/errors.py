# SPDX-License-Identifier: Apache-2.0
"""Every exception a user can meet, as one tree. Each carries fields; the text is built from them and says what to do.

    OnceMQError
    ├── UsageError                 you asked for something that cannot be; nothing left this process
    │   ├── InvalidName, MessageTooLarge, ClientClosed, OutboxFull, UnsupportedDatabase, NotDurable
    ├── Told                       the six named ways to be told (nothing disappears silently)
    │   ├── Gap, Damaged, Diverged, StateLost, InDoubt, PutPending
    ├── Refused                    the broker said no, with a code (model/refusals.py has them all)
    │   ├── NoSuchTopic, NotSubscribed, AlreadySubscribed, NoSubscribers, WrongAuthority, Fenced,
    │   ├── ConflictingPut, BrokerFull
    ├── TransactionError           a transaction did not go as planned
    │   ├── NotCommitted, Uncertain, EndedEarly, DatabaseBusy
    ├── WorldError                 network, disk
    │   ├── BrokerUnreachable, DirectoryLocked, DirectoryUnusable, DirectoryTooNew, SyncFailed, DiskFull
    │   └── JournalDamaged ── JournalIncomplete, OutboxDamaged
    └── MalformedPacket            bytes that are not a packet (raised by wire/, turned into a refusal by the engine)
    InvariantViolated              our bug, not an OnceMQError on purpose: the process stops

May not: import anything of the project.
Next: model/refusals.py for the codes on the wire, cli/exits.py for the exit code of each.
"""

from __future__ import annotations


class OnceMQError(Exception):
    """Base of everything below; never raised itself."""


class InvariantViolated(AssertionError):
    """OnceMQ contradicted itself. The process must stop: state on disk is older but right."""


def invariant(condition: bool, sentence: str, **facts: object) -> None:
    """Stop if `condition` does not hold. Never reachable from user input or bytes off the wire."""
    if not condition:
        listed = ", ".join(f"{name}={value!r}" for name, value in facts.items())
        raise InvariantViolated(f"{sentence} ({listed})" if listed else sentence)


# --- you ------------------------------------------------------------------------------------------


class UsageError(OnceMQError):
    """You asked for something that cannot be; nothing left this process."""


class InvalidName(UsageError):
    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        super().__init__(
            f"{kind} {name[:60]!r} is not valid: use dot-separated words of ASCII letters, digits, '_' and '-', "
            "at most 255 bytes ('$' is reserved)"
        )


class MessageTooLarge(UsageError):
    def __init__(self, part: str, size_bytes: int, limit_bytes: int) -> None:
        self.part, self.size_bytes, self.limit_bytes = part, size_bytes, limit_bytes
        super().__init__(
            f"{part} of {size_bytes:,} bytes is over the limit of {limit_bytes:,}: put it elsewhere and send a reference"
        )


class ClientClosed(UsageError):
    def __init__(self) -> None:
        super().__init__("this client is closed, or was made before this process was forked: connect again")


class OutboxFull(UsageError):
    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes
        self.taken = 0
        """How many messages of a put_many were taken, and will be sent, before it was full."""
        super().__init__(
            f"the outbox holds {size_bytes:,} of {limit_bytes:,} bytes: wait until the broker is back and flush(), or put less"
        )


class UnsupportedDatabase(UsageError):
    def __init__(self, kind: str, methods: list[str]) -> None:
        self.kind = kind
        super().__init__(
            f"client.transaction() knows connections of sqlite3 and psycopg 3, not {kind}: for another pass an object with "
            f"the methods {', '.join(methods)} (oncemq.client.databases.Database says what each must do)"
        )


class NotDurable(UsageError):
    def __init__(self, weakness: str) -> None:
        self.weakness = weakness
        super().__init__(
            f"a commit to this database may be lost with the power, because {weakness}: change that, or say durable=False "
            "and accept that effects may then be lost or done twice after a power failure of the database"
        )


# --- told -----------------------------------------------------------------------------------------


class Told(OnceMQError):
    """The six named ways to be told that something is not as it should be."""


class Gap(Told):
    """Messages [first, end) of a topic are gone (cut off by a limit, or trimmed). Told once; the next get goes on behind it."""

    def __init__(self, topic: str, first: int, end: int) -> None:
        self.topic, self.first, self.end = topic, first, end
        super().__init__(
            f"messages {first} to {end - 1} of topic {topic!r} are no longer stored; call get() again to go on at {end}"
        )


class Damaged(Told):
    """Messages [first, end) are stored but cannot be read, or their bytes are wrong.

    `settle(topic, "repeat")` tries again, `settle(topic, "skip")` goes on behind them.
    """

    def __init__(self, topic: str, first: int, end: int, reason: str) -> None:
        self.topic, self.first, self.end, self.reason = topic, first, end, reason
        super().__init__(
            f"messages {first} to {end - 1} of topic {topic!r} are damaged ({reason}); "
            f"settle({topic!r}, 'repeat') to try again, restore them from a backup, "
            f"or settle({topic!r}, 'skip') to go on behind them"
        )


class Diverged(Told):
    """The broker's history is not the one this side has seen: it was set back to an older copy, has forgotten this client, or is
    another broker."""

    def __init__(self, what: str, last_common: int | None = None) -> None:
        self.what, self.last_common = what, last_common
        common = "" if last_common is None else f" The last common offset is {last_common}."
        super().__init__(
            f"the broker's history is not the one seen before: {what}.{common} "
            "If it was restored from a backup, or made to forget this client, connect once with takeover=True and the same state "
            "directory: kept puts that never reached it are sent, and what was on its way here is in doubt. If it is another "
            "broker, or another node of a mesh, go back to the one before, or use another state directory; what is kept in "
            "this one stays there"
        )


class StateLost(Told):
    """The broker knows a session of this client id that this state directory does not."""

    def __init__(self, client: str) -> None:
        self.client = client
        super().__init__(
            f"client id {client!r} was used with another state directory (a new machine, a restored or copied directory?). "
            "Use that directory, or another id, or connect with takeover=True: what was on the way is then in doubt"
        )


class InDoubt(Told):
    """Messages [first, end) were handed out before a crash; nobody knows whether they were handled."""

    def __init__(self, topic: str, first: int, end: int) -> None:
        self.topic, self.first, self.end = topic, first, end
        super().__init__(
            f"messages {first} to {end - 1} of topic {topic!r} may or may not have been handled before a crash: look at "
            f"in_doubt({topic!r}), then settle({topic!r}, 'repeat') or settle({topic!r}, 'skip')"
        )


class PutPending(Told):
    """A put got no answer in time. It is kept in the outbox, synced, and will be sent: do not put it again."""

    def __init__(self, number: int, pending: int, *, is_durable: bool = True, reason: str = "") -> None:
        self.number, self.pending, self.is_durable, self.reason = number, pending, is_durable, reason
        because = f" ({reason})" if reason else ""
        where = "in the outbox" if is_durable else "in this process's memory (it has no state directory)"
        again = "call flush(), or connect again with the same id" if is_durable else "call flush() before it ends"
        super().__init__(
            f"put {number} is not confirmed yet{because}; {pending} message(s) are kept {where} and will be sent. "
            f"Do not put again: {again}"
        )


# --- refused --------------------------------------------------------------------------------------


class Refused(OnceMQError):
    """The broker said no. `code` is stable, `text` is for people."""

    def __init__(self, code: str, text: str) -> None:
        self.code, self.text = code, text
        super().__init__(f"{text} [{code}]")


class NoSuchTopic(Refused):
    """The topic does not exist: subscribe to it, or create it with a retention."""


class NotSubscribed(Refused):
    """This client has no subscription there: subscribe first."""


class AlreadySubscribed(Refused):
    """The subscription exists already: go on with get()."""


class NoSubscribers(Refused):
    """A strict put found nobody to keep the message for."""


class WrongAuthority(Refused):
    """A subscription is consumed in one way only (get, receive or database), fixed by its first use."""


class Fenced(Refused):
    """A newer session of this client id took over. This process is out for good."""


class BrokerFull(Refused):
    """The broker's disk is full. Nothing was done; the same call works once there is space."""


class ConflictingPut(Refused):
    """The same put number came with other bytes. Nothing was stored."""


# --- world ----------------------------------------------------------------------------------------


class TransactionError(OnceMQError):
    """A transaction did not go as planned."""


class NotCommitted(TransactionError):
    """The broker refused the transaction as a whole: nothing of it happened, and its messages come again."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(f"nothing of the transaction happened: {text}")


class Uncertain(TransactionError):
    """The commit was not answered: it happened, or it will not have. The next call of this client finds out first."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the commit was not answered ({reason}): all of it happened or nothing did. Do not do its work again: "
            "the next transaction, put or receive of this client finds out first, and after a crash the messages come again "
            "exactly if nothing happened"
        )


class EndedEarly(TransactionError):
    """Somebody committed or rolled back inside a transaction of client.transaction(connection)."""

    def __init__(self) -> None:
        super().__init__(
            "the database transaction was committed or rolled back inside the block (commit(), rollback(), 'with connection:', "
            "executescript() do that, and so does a savepoint set before get() and rolled back after it): what came after was "
            "rolled back. Leave commit and rollback to the block, and set savepoints after get()"
        )


class DatabaseBusy(TransactionError):
    """Another process holds the rows of this client."""

    def __init__(self, reason: str, holders: str = "") -> None:
        self.reason, self.holders = reason, holders
        who = f"; the rows of this client were last taken by {holders}" if holders else ""
        super().__init__(f"the database is held by another transaction ({reason}){who}: end that process, or wait and try again")


class WorldError(OnceMQError):
    """Network, disk, another process."""


class BrokerUnreachable(WorldError):
    def __init__(self, address: str, tries: int, waited_ms: int) -> None:
        self.address, self.tries, self.waited_ms = address, tries, waited_ms
        super().__init__(
            f"no answer from a broker at {address} after {tries} {'try' if tries == 1 else 'tries'} ({waited_ms / 1000:.1f} s): "
            "is 'oncemq serve' running there?"
        )


class DirectoryLocked(WorldError):
    def __init__(self, directory: str, pid: int | None) -> None:
        self.directory, self.pid = directory, pid
        holder = f"process {pid}" if pid else "another process"
        super().__init__(f"{directory} is in use by {holder}: stop it first, or use another directory")


class DirectoryUnusable(WorldError):
    def __init__(self, directory: str, reason: str) -> None:
        self.directory, self.reason = directory, reason
        super().__init__(f"{directory} cannot be used: {reason}")


class DirectoryTooNew(WorldError):
    def __init__(self, directory: str, found: int, known: int) -> None:
        self.directory, self.found, self.known = directory, found, known
        super().__init__(
            f"{directory} was written by a newer version (format {found}, this one reads {known}): "
            "upgrade oncemq; nothing was touched"
        )


class JournalDamaged(WorldError):
    """Bytes that were synced are wrong. The broker refuses to start rather than forget."""

    def __init__(self, name: str, position: int, reason: str, *, may_be_moved: bool = False) -> None:
        self.name, self.position, self.reason = name, position, reason
        anyway = ". Without one: move that file away, and 'oncemq serve DIR --accept-loss' goes on without what was in it"
        super().__init__(
            f"{name} is damaged at byte {position}: {reason}. Nothing was changed. "
            f"Run 'oncemq verify DIR' to see how far it goes, then restore a backup{anyway if may_be_moved else ''}"
        )


class JournalIncomplete(JournalDamaged):
    """A file of the journal is missing, and with it what was stored in it. `lost` says what, `more` how many ranges besides."""

    def __init__(self, name: str, lost: str, more: int = 0, *, may_go_on: bool = True) -> None:
        self.name, self.position, self.reason = name, 0, f"it is missing, and with it {lost}"
        self.lost, self.more, self.may_go_on = lost, more, may_go_on
        besides = f" and {more} more such range{'s' if more > 1 else ''}" if more else ""
        anyway = ", or go on without them: 'oncemq serve DIR --accept-loss', and whoever still wants them is told Damaged"
        WorldError.__init__(
            self,
            f"{name} is missing, and with it {lost}{besides}. Nothing was changed. 'oncemq verify DIR' lists what is missing. "
            f"Put the file back, or restore a backup{anyway if may_go_on else ''}",
        )


class OutboxDamaged(JournalDamaged):
    """Puts that were kept in a client's state directory, and synced, cannot be read. `readable`: messages that still can."""

    def __init__(self, name: str, position: int, reason: str, readable: int) -> None:
        self.name, self.position, self.reason, self.readable = name, position, reason, readable
        WorldError.__init__(
            self,
            f"{name} in this client's state directory is damaged at byte {position}: {reason}. At least one put that was kept "
            f"there cannot be read; {readable} unsent message(s) can. Nothing was sent or changed. 'oncemq verify DIR' on the "
            "state directory shows how far it goes. Put back a good copy of the file, or move it away to go on without it",
        )


class SyncFailed(WorldError):
    """A write or sync failed. Nothing of it was confirmed; only a restart knows what the disk has."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(
            f"writing {name} failed: {reason}. Stopped; nothing unconfirmed was told to anyone. Check the disk, then restart"
        )


class DiskFull(WorldError):
    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(f"no space left for {where}: free some, it goes on by itself")


class MalformedPacket(OnceMQError):
    """Bytes that are not a packet of ours."""

    def __init__(self, code: str, reason: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(reason)

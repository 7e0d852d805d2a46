# SPDX-License-Identifier: Apache-2.0
"""Who a state directory is: its client id, the one log it belongs to, and the sessions it knows (R1, R3).

May not: forget a session it tried before the broker has welcomed a newer one.
The idea: every connect draws a random session, writes it down among the *tried* ones, and only then says Hello with all
it knows. A directory that is an old copy does not know the broker's current session, and is refused by that alone.
Next: core/sessions.py for the broker's side, client/state.py for the file.
"""

from __future__ import annotations

import msgspec
from crc32c import crc32c

from oncemq.core.packets import NOBODY, Hello
from oncemq.errors import DirectoryUnusable, UsageError
from oncemq.limits import KNOWN_SESSIONS_MAX, PAST_SESSIONS_MAX, PENDING_STREAMS_MAX

FORMAT = 2


_NEXT = "restore this directory from a backup, or move it away and connect once with takeover=True (puts kept in it stay there)"


class _Format(msgspec.Struct, frozen=True):
    """All that is read before the format is known."""

    format: int = FORMAT


class Leftovers(msgspec.Struct, frozen=True):
    """Messages of earlier runs that could not be sent under their old numbers, because the broker was set back, or another.

    `renumbered` had provably never arrived: they are put anew. Of `unknown` nobody can say whether they were stored; they are
    not sent again.
    """

    renumbered: int
    unknown: int


class Identity(msgspec.Struct, frozen=True):
    """The content of `client.json`; ids in hexadecimal, so that people can read it."""

    client: str
    format: int = FORMAT
    checksum: str = ""
    """CRC32C of this very file with an empty checksum; only in the file."""
    log: str = ""
    welcomed: str = ""
    tried: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    confirmed: dict[str, int] = {}
    diverged: str = ""
    """What showed that the broker had gone back; told at every start until somebody takes over."""
    absent: tuple[str, ...] = ()
    """Streams that the broker has provably never seen: their puts are on their way into another stream."""
    leftovers: Leftovers = Leftovers(0, 0)
    """What became of puts of earlier runs that could not be sent as they were, when that last happened."""

    def is_later(self, stream: bytes, session: bytes) -> bool:
        """Whether this directory began that stream after that session: then nothing of it was sent in that session or before."""
        order = [*self.past, self.welcomed, *self.tried]
        if stream.hex() not in order or session.hex() not in order:
            return False
        return order.index(stream.hex()) > order.index(session.hex())

    def confirmed_numbers(self) -> dict[bytes, int]:
        return {bytes.fromhex(stream): number for stream, number in self.confirmed.items()}


def is_full(identity: Identity) -> bool:
    """Whether no further session can be tried before one of those that were is welcomed."""
    return len(identity.tried) + 1 >= KNOWN_SESSIONS_MAX


def trying(identity: Identity, session: bytes) -> Identity:
    """Add a session that is about to be tried."""
    if is_full(identity):
        raise UsageError(
            f"client {identity.client!r} was started {len(identity.tried)} times without reaching a broker: "
            "start a broker and connect once before going on"
        )
    return msgspec.structs.replace(identity, tried=(*identity.tried, session.hex()))


def welcomed(identity: Identity, session: bytes, log_id: bytes) -> Identity:
    """The broker accepted that session: what was known before is past."""
    past = (*identity.past, identity.welcomed) if identity.welcomed else identity.past
    return msgspec.structs.replace(
        identity,
        log=log_id.hex(),
        welcomed=session.hex(),
        tried=(),
        past=past[-PAST_SESSIONS_MAX:],
        confirmed={},
        diverged="",
        absent=(),
    )


def hello(
    identity: Identity,
    session: bytes,
    pending: tuple[bytes, ...],
    bookmark: tuple[bytes, int],
    *,
    ephemeral: bool,
    takeover: bool,
) -> Hello:
    """What to say to a broker. `bookmark` is (start id, append number) of the newest message ever handed out here."""
    if len(pending) > PENDING_STREAMS_MAX:
        raise UsageError(
            f"the outbox holds puts of {len(pending)} earlier runs: at most {PENDING_STREAMS_MAX} can be sent at once"
        )
    known = tuple(bytes.fromhex(text) for text in (identity.welcomed, *identity.tried) if text and text != session.hex())
    return Hello(
        identity.client,
        session,
        bytes.fromhex(identity.log) if identity.log else NOBODY,
        known,
        tuple(bytes.fromhex(text) for text in identity.past),
        pending,
        ephemeral,
        takeover,
        *bookmark,
    )


def encode_identity(identity: Identity) -> bytes:
    written = msgspec.structs.replace(identity, format=FORMAT, checksum="")
    written = msgspec.structs.replace(written, checksum=_checksum(written))
    return msgspec.json.format(msgspec.json.encode(written), indent=2) + b"\n"


def _checksum(identity: Identity) -> str:
    return f"{crc32c(msgspec.json.encode(identity)):08x}"


def decode_identity(content: bytes, directory: str, client: str) -> Identity:
    """Read the file; raise DirectoryUnusable if it is not this client's, or not ours at all."""
    identity = read_identity_file(content, directory)
    if identity.client != client:
        raise DirectoryUnusable(
            directory, f"it belongs to client {identity.client!r}, not {client!r}: use a directory per client"
        )
    return identity


def read_identity_file(content: bytes, directory: str) -> Identity:
    """Read the file, whosever it is; raise DirectoryUnusable if it cannot be read, is damaged or too new."""
    try:
        found = msgspec.json.decode(content, type=_Format).format
        if found > FORMAT:
            raise DirectoryUnusable(directory, f"it was written by a newer version (format {found}): upgrade oncemq")
        identity = msgspec.json.decode(content, type=Identity)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise DirectoryUnusable(directory, f"client.json cannot be read ({problem}): {_NEXT}") from problem
    checksum, identity = identity.checksum, msgspec.structs.replace(identity, checksum="")
    is_from_before = identity.format == 1 and not checksum  # The first format had none.
    if not is_from_before and checksum != _checksum(identity):
        raise DirectoryUnusable(directory, f"client.json is damaged, its checksum is wrong: {_NEXT}")
    return identity

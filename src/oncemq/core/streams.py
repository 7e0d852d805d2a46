# SPDX-License-Identifier: Apache-2.0
"""Put streams and the clients they belong to: who may put what, and what became of it.

May not: forget an outcome's number. Only its details are forgotten, after the last OUTCOMES_KEPT_BLOCKS blocks.
The idea: a session is a put stream. A stream takes `last + 1` only, so one number decides new, repeated or missing;
it never outlives the directory that numbered it, so a number can never stand for two messages.
Next: core/state.py, which holds all clients.
"""

from __future__ import annotations

from collections import deque

import msgspec

from oncemq.core.packets import NOBODY, StreamInfo
from oncemq.core.records import Placement
from oncemq.limits import OUTCOMES_KEPT_BLOCKS, SESSIONS_REMEMBERED


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of one block, as long as it can be repeated in full."""

    first_number: int
    numbers: int
    block_crc: int
    code: str
    placements: tuple[Placement, ...]


class Stream:
    """One put stream: everything up to `last` has its outcome."""

    __slots__ = ("kept", "last")

    def __init__(self, last: int = 0, kept: tuple[Kept, ...] = ()) -> None:
        self.last = last
        self.kept: deque[Kept] = deque(kept, maxlen=OUTCOMES_KEPT_BLOCKS)

    def settle(self, outcome: Kept) -> None:
        self.last = outcome.first_number + outcome.numbers - 1
        self.kept.append(outcome)

    def is_inside(self, number: int) -> bool:
        """Whether that number lies inside a block that is still kept: then no other block can begin there."""
        return bool(self.kept) and self.kept[0].first_number <= number <= self.last and self.outcome_at(number) is None

    def outcome_at(self, first_number: int) -> Kept | None:
        """Return the outcome of the block that began there, if it is still kept."""
        for outcome in reversed(self.kept):
            if outcome.first_number <= first_number:
                return outcome if outcome.first_number == first_number else None
        return None


class ClientState:
    """One client id: its current session, the streams that may still be sent, and its last command."""

    __slots__ = (
        "command",
        "ephemeral",
        "name",
        "opened_us",
        "past",
        "previous",
        "reply",
        "seen_ms",
        "session",
        "streams",
        "subscriptions",
    )

    def __init__(self, name: str, session: bytes, *, ephemeral: bool, opened_us: int) -> None:
        self.name = name
        self.session = session
        self.ephemeral = ephemeral
        self.opened_us = opened_us
        self.past: deque[bytes] = deque(maxlen=2 * SESSIONS_REMEMBERED)
        self.previous = StreamInfo(NOBODY, 0)
        """The session this one replaced, and the last number it took: said in every Welcome, the repeated ones included."""
        self.streams: dict[bytes, Stream] = {session: Stream()}
        self.command = 0
        self.reply = b""
        self.subscriptions: dict[int, int] = {}
        """Topic id to subscription id."""
        self.seen_ms = 0
        """When it last spoke. Volatile: a restart counts as a word."""

    def open_session(self, session: bytes, kept: tuple[bytes, ...], opened_us: int) -> None:
        """Replace the session; only the streams named in `kept` stay (unknown ones begin empty)."""
        self.past.append(self.session)
        self.previous = StreamInfo(self.session, self.streams[self.session].last)
        self.session = session
        self.opened_us = opened_us
        self.streams = {stream: self.streams.get(stream, Stream()) for stream in kept} | {session: Stream()}
        self.command = 0
        self.reply = b""


class StreamDump(msgspec.Struct, frozen=True, array_like=True):
    stream: bytes
    last: int
    kept: tuple[Kept, ...]


class ClientDump(msgspec.Struct, frozen=True, array_like=True):
    """A client in a snapshot."""

    name: str
    session: bytes
    ephemeral: bool
    opened_us: int
    past: tuple[bytes, ...]
    streams: tuple[StreamDump, ...]
    command: int
    reply: bytes
    previous: StreamInfo = StreamInfo(NOBODY, 0)


def dump_client(client: ClientState) -> ClientDump:
    streams = tuple(StreamDump(name, stream.last, tuple(stream.kept)) for name, stream in client.streams.items())
    return ClientDump(
        client.name,
        client.session,
        client.ephemeral,
        client.opened_us,
        tuple(client.past),
        streams,
        client.command,
        client.reply,
        client.previous,
    )


def restore_client(dump: ClientDump) -> ClientState:
    client = ClientState(dump.name, dump.session, ephemeral=dump.ephemeral, opened_us=dump.opened_us)
    client.past.extend(dump.past)
    client.streams = {entry.stream: Stream(entry.last, entry.kept) for entry in dump.streams}
    client.command, client.reply, client.previous = dump.command, dump.reply, dump.previous
    return client

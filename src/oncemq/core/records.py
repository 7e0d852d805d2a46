# SPDX-License-Identifier: Apache-2.0
"""The facts a broker writes down. State is nothing but these, applied in order.

May not: change meaning once released: docs/journal-format.md and tests/golden hold the bytes of each.
The idea: records are past facts with explicit ids; whoever applies them needs no clock, no dice and no luck.
`Stored` is the busy one and has a binary header of its own (journal/codec.py); all others are small msgpack arrays. `Moved`
repeats the header and the block of another record.
Next: core/broker.py, which decides them and applies them.
"""

from __future__ import annotations

import msgspec

NOT_STORED = -1
"""The first offset of a placement nobody was interested in."""
ELSEWHERE = -2
"""... of a placement in a mesh: nobody here is interested, but it is stored for those elsewhere."""


class Started(msgspec.Struct, frozen=True, array_like=True):
    """A broker start: from `first_append_number` on, append numbers belong to this random id."""

    start_id: bytes
    first_append_number: int
    wall_us: int
    version: str


class SessionOpened(msgspec.Struct, frozen=True, array_like=True):
    """A Hello was accepted; `kept` names the older streams that may still be sent.

    `known` are sessions its directory had tried before: a Hello of one of them that arrives late fences nobody.
    """

    client: str
    session: bytes
    kept: tuple[bytes, ...]
    ephemeral: bool
    wall_us: int
    known: tuple[bytes, ...] = ()


class SessionClosed(msgspec.Struct, frozen=True, array_like=True):
    """A Goodbye. The session stays the client's current one, so that its directory is still known."""

    client: str
    session: bytes


class ClientForgotten(msgspec.Struct, frozen=True, array_like=True):
    """A client with its streams and subscriptions is gone, by command or by lease."""

    client: str


class TopicCreated(msgspec.Struct, frozen=True, array_like=True):
    """A topic, with an id that is never used again. `explicit` topics live until they are deleted."""

    topic_id: int
    name: str
    explicit: bool
    retain: str
    limit: str
    wall_us: int


class TopicDeleted(msgspec.Struct, frozen=True, array_like=True):
    topic_id: int


class Subscribed(msgspec.Struct, frozen=True, array_like=True):
    subscription_id: int
    topic_id: int
    client: str
    authority: str
    start_offset: int
    wall_us: int


class Unsubscribed(msgspec.Struct, frozen=True, array_like=True):
    subscription_id: int


class AuthorityFixed(msgspec.Struct, frozen=True, array_like=True):
    """The first consuming call decided how this subscription is consumed."""

    subscription_id: int
    authority: str


class CommandSettled(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a session's last command: `reply` is the packet to repeat (wire bytes, without request number)."""

    client: str
    session: bytes
    command: int
    reply: bytes


class Placement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a block lies in one topic; `first_offset` is NOT_STORED where nobody is interested, ELSEWHERE if nobody here is."""

    topic_id: int
    first_offset: int


class Origin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where in a mesh a block was first stored: (node, start) and its number there."""

    node: bytes
    start_id: bytes
    number: int


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """A block was taken: one durable outcome for `count` put numbers per placement."""

    append_number: int
    append_time_us: int
    start_id: bytes
    stream: bytes
    first_number: int
    count: int
    block_crc: int
    block_bytes: int
    placements: tuple[Placement, ...]
    publisher: str
    origin: Origin | None = None
    block: bytes | bytearray | memoryview = b""
    topics: tuple[str, ...] = ()
    """In a mesh the names of its topics, one per placement: other nodes know them by other ids, or not at all."""
    has_more: bool = False
    """In a mesh: the next number of its origin belongs to the same transaction."""


class PutRefused(msgspec.Struct, frozen=True, array_like=True):
    """A final refusal is an outcome too: these put numbers are used up."""

    client: str
    stream: bytes
    first_number: int
    numbers: int
    block_crc: int
    code: str


class CursorChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A cursor that stood at `begin` stands at `end`."""

    subscription_id: int
    begin: int
    end: int


class Transacted(msgspec.Struct, frozen=True, array_like=True):
    """A transaction was committed: these cursors moved, and the Stored records behind it in the same group are its puts."""

    client: str
    stream: bytes
    number: int
    crc: int
    moves: tuple[CursorChange, ...]


class Staged(msgspec.Struct, frozen=True, array_like=True):
    """A chunk of a part was kept: rows [first_row, first_row + count) of the storage id. Nobody can read it yet."""

    append_number: int
    append_time_us: int
    part: bytes
    chunk: int
    query: str
    batch: int
    storage_id: int
    first_row: int
    count: int
    block_crc: int
    block_bytes: int
    block: bytes | bytearray | memoryview = b""


class CommittedPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part that became messages from `first_offset` on."""

    part: bytes
    topic_id: int
    first_offset: int


class CommittedTopic(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one topic got by a commit."""

    topic_id: int
    first_offset: int
    rows: int
    size_bytes: int


class StagedCommitted(msgspec.Struct, frozen=True, array_like=True):
    """A batch of a query was committed: its parts are messages now, without being written again.

    Append numbers: one per chunk, from `append_number` on, part by part. Put numbers: one per row, from `first_number` on.
    Every other part of this batch and of earlier ones is released.
    """

    append_number: int
    append_time_us: int
    start_id: bytes
    query: str
    batch: int
    is_once: bool
    first_number: int
    parts: tuple[CommittedPart, ...]
    topics: tuple[CommittedTopic, ...]


class BaselineTaken(msgspec.Struct, frozen=True, array_like=True):
    """A node takes part in its mesh from here on: everything up to these numbers counts as had."""

    entries: tuple[Origin, ...]


class Lost(msgspec.Struct, frozen=True, array_like=True):
    """Messages from `origin` up to number `last` are nowhere to be had in the mesh: they count as had.

    Nobody knows their topics, so each topic with a subscription here has one offset that stands for them: a gap.
    """

    append_number: int
    append_time_us: int
    start_id: bytes
    origin: Origin
    last: int
    placements: tuple[Placement, ...]


Held = Stored | Staged | StagedCommitted | Lost
"""Records that hold messages, rows that may become some, or a gap: where they lie has to be known."""
HELD = (Stored, Staged, StagedCommitted, Lost)


class Moved(msgspec.Struct, frozen=True, array_like=True):
    """The same record in another place: what lay in segment `source` lies here once that is gone. State does not change."""

    source: int
    held: Held


class StagedReleased(msgspec.Struct, frozen=True, array_like=True):
    """Parts whose lease ended are gone; `is_forgotten`: and the query with them."""

    query: str
    parts: tuple[bytes, ...]
    is_forgotten: bool


class CursorMoved(msgspec.Struct, frozen=True, array_like=True):
    subscription_id: int
    cursor: int


class Trimmed(msgspec.Struct, frozen=True, array_like=True):
    """Messages below `low` are gone for good."""

    topic_id: int
    low: int


Record = (
    Started
    | SessionOpened
    | SessionClosed
    | ClientForgotten
    | TopicCreated
    | TopicDeleted
    | Subscribed
    | Unsubscribed
    | AuthorityFixed
    | CommandSettled
    | Stored
    | PutRefused
    | CursorMoved
    | Transacted
    | Staged
    | StagedCommitted
    | StagedReleased
    | Moved
    | Trimmed
    | BaselineTaken
    | Lost
)

CODES: dict[int, type[Record]] = {
    1: Started,
    2: SessionOpened,
    3: SessionClosed,
    4: ClientForgotten,
    5: TopicCreated,
    6: TopicDeleted,
    7: Subscribed,
    8: Unsubscribed,
    9: AuthorityFixed,
    10: CommandSettled,
    11: Stored,
    12: PutRefused,
    13: CursorMoved,
    14: Transacted,
    15: Staged,
    16: StagedCommitted,
    17: Moved,
    18: Trimmed,
    19: StagedReleased,
    20: BaselineTaken,
    21: Lost,
}
"""Type codes on disk."""

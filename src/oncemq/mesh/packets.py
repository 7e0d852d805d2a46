# SPDX-License-Identifier: Apache-2.0
"""Every packet between nodes, as a type, with type codes of the mesh's own. docs/mesh.md says who sends which, and when.

May not: touch bytes (wire/mesh_codec.py does) or change meaning once released (tests/golden holds the bytes of each).
The idea: the sender's address travels beside every packet. Whatever speaks of a link names it by the random number that both
ends know, so that a late packet of an older link between the same two nodes hits nothing.
Next: hyparview.py for codes below 16, node.py for the others.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from oncemq.core.shapes import Count, Id16, Natural, Positive, Text
from oncemq.limits import (
    MESH_ADDRESS_BYTES_MAX,
    MESH_IDS_MAX,
    MESH_RANGES_MAX,
    MESH_TOPICS_MAX,
    MESH_VECTOR_ENTRIES,
)

Address = str
"""Where a node can be reached, and what membership calls it."""
NOWHERE: Address = ""

Contact = Annotated[str, msgspec.Meta(max_length=MESH_ADDRESS_BYTES_MAX)]
Contacts = Annotated[tuple[Contact, ...], msgspec.Meta(max_length=MESH_IDS_MAX)]
LinkNumber = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Hops = Annotated[int, msgspec.Meta(ge=0, le=64)]
Digest = Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]


class Priority(enum.IntEnum):
    """How badly a node wants to be a neighbour, and what it offers for the place."""

    LOW = 0
    """Take me if you have a place."""
    HIGH = 1
    """I have hardly a neighbour: make room; whom you drop finds a place with me."""
    WALK = 2
    """A walk found you, and I am full: if you have two places, I come and send you one of mine."""
    BRIDGE = 3
    """You were out of reach: I drop `partner` for you, and whom you drop may take my place with it."""
    REPLACE = 4
    """A neighbour of mine died: take me if you have a place, and if you have none, see whether yours are alive."""
    JOIN = 5
    """Only inside a node: the ask is a Join."""


class Leaver(enum.IntEnum):
    """Which end of a link is about to leave, as far as the sender of a heartbeat knows."""

    NOBODY = 0
    SENDER = 1
    """I leave: do not count on me."""
    RECEIVER = 2
    """You leave, and I stay: if I go one day, I shall not count on you."""


class Reason(enum.IntEnum):
    """Why a link ended. Every Down carries one."""

    FAILED = 0
    """It is silent, or the connection broke."""
    EVICTED = 1
    """One end made room for somebody else."""
    LEFT = 2
    """It shut down in good order."""
    RESTARTED = 3
    """It came back under the same address and knows nothing of the old link."""
    SLOW = 4
    """It did not take its packets fast enough."""
    ONE_SIDED = 5
    """The other end does not know the link."""
    SURPLUS = 6
    """It accepted when all places had been taken meanwhile."""


class MeshPacket(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all packets between nodes: nothing but the shape."""


# --- membership -------------------------------------------------------------------------------------


class Join(MeshPacket, frozen=True, array_like=True, gc=False):
    """I am new, or know nobody any more."""

    link: LinkNumber


class ForwardJoin(MeshPacket, frozen=True, array_like=True, gc=False):
    """A walk that looks for neighbours for `joiner`."""

    joiner: Contact
    ttl: Hops


class Neighbour(MeshPacket, frozen=True, array_like=True, gc=False):
    """Be my neighbour. `active` are mine already: whoever has one of them refuses, so that there are no triangles."""

    link: LinkNumber
    priority: Priority
    active: Contacts = ()
    partner: Contact = NOWHERE


class NeighbourReply(MeshPacket, frozen=True, array_like=True, gc=False):
    """The answer; `hint` is somebody else who looked for a neighbour here, `sample` are ids for the reserve."""

    link: LinkNumber
    is_accepted: bool
    hint: Contact = NOWHERE
    sample: Contacts = ()


class Disconnect(MeshPacket, frozen=True, array_like=True, gc=False):
    """The link is over. `hint` has a place for you."""

    link: LinkNumber
    reason: Reason
    hint: Contact = NOWHERE
    sample: Contacts = ()


class Shuffle(MeshPacket, frozen=True, array_like=True, gc=False):
    origin: Contact
    ids: Contacts
    ttl: Hops


class ShuffleReply(MeshPacket, frozen=True, array_like=True, gc=False):
    ids: Contacts


class Heartbeat(MeshPacket, frozen=True, array_like=True, gc=False):
    """I am here, you are in my active view, this is the digest of what I have stored, and this is the island I belong to."""

    link: LinkNumber
    digest: Digest
    island: LinkNumber = 0
    beat: Natural = 0
    is_urgent: bool = False
    """Compare now: the link is new, or I have just caught up."""
    leaver: Leaver = Leaver.NOBODY


class Probe(MeshPacket, frozen=True, array_like=True, gc=False):
    """Are you there, and in which island? Asked of ids out of the cold list, so that a split heals by itself."""

    sample: Contacts = ()


class ProbeReply(MeshPacket, frozen=True, array_like=True, gc=False):
    island: LinkNumber
    sample: Contacts = ()


# --- messages ---------------------------------------------------------------------------------------


class Origin(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Who first stored a message: a node, and which of its starts. New at every start (R24)."""

    node: Id16
    start_id: Id16


class Spread(MeshPacket, frozen=True, array_like=True, gc=False):
    """A message of the mesh, with its block in the second frame."""

    origin: Origin
    number: Positive
    topics: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1, max_length=MESH_TOPICS_MAX)]
    publisher: Text
    count: Count
    is_copy: bool = False
    """It was requested, so it is not told on."""
    has_more: bool = False
    """The next number belongs to the same transaction: whoever takes it takes both at once, or neither (R27)."""


# --- anti-entropy -----------------------------------------------------------------------------------


class Had(MeshPacket, frozen=True, array_like=True, gc=False):
    """Everything of `origin` up to `number` is stored or given up here."""

    origin: Origin
    number: Natural


class Vector(MeshPacket, frozen=True, array_like=True, gc=False):
    """What I have, of all origins from `first` to before `end` (None: to the last one).

    `is_answer` names only what you lack, and asks for no answer.
    """

    entries: Annotated[tuple[Had, ...], msgspec.Meta(max_length=MESH_VECTOR_ENTRIES)]
    first: Origin | None = None
    end: Origin | None = None
    is_answer: bool = False


class Range(MeshPacket, frozen=True, array_like=True, gc=False):
    origin: Origin
    first: Positive
    last: Positive


class Request(MeshPacket, frozen=True, array_like=True, gc=False):
    """Send me these."""

    ranges: Annotated[tuple[Range, ...], msgspec.Meta(min_length=1, max_length=MESH_RANGES_MAX)]


class Denied(MeshPacket, frozen=True, array_like=True, gc=False):
    """These I cannot send. `is_gone`: I had them; `is_final`: I kept them as long as messages are kept, or they are mine."""

    range: Range
    is_gone: bool
    is_final: bool


class AskBaseline(MeshPacket, frozen=True, array_like=True, gc=False):
    """I am new: from where on do I take part?"""


class Baseline(MeshPacket, frozen=True, array_like=True, gc=False):
    """Take everything up to here as had; `is_last` ends a baseline of several packets."""

    entries: Annotated[tuple[Had, ...], msgspec.Meta(max_length=MESH_VECTOR_ENTRIES)]
    piece: Natural = 0
    is_last: bool = True


MESH_PACKETS: dict[int, type[MeshPacket]] = {
    1: Join,
    2: ForwardJoin,
    3: Neighbour,
    4: NeighbourReply,
    5: Disconnect,
    6: Shuffle,
    7: ShuffleReply,
    8: Heartbeat,
    9: Probe,
    10: ProbeReply,
    16: Spread,
    20: Vector,
    21: Request,
    22: Denied,
    23: AskBaseline,
    24: Baseline,
}
"""Type codes of the mesh, apart from those of clients and broker. 17 to 19 are reserved for a tree's announcements."""

MESH_CODE_OF = {kind: code for code, kind in MESH_PACKETS.items()}

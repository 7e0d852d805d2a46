# SPDX-License-Identifier: Apache-2.0
"""Every packet of the protocol, as a type. docs/protocol.md says who sends which, when, and what the receiver does.

May not: touch bytes (wire/codec.py does) or change meaning once released (tests/golden holds the bytes of each).
The idea: a closed set. Packets to the broker have codes below 64, packets from it 64 and above.
A packet names what it is about by ids that are never reused, so that a late copy can hit nobody but its addressee.
Code 19 is reserved: Seek.
Next: core/broker.py, one handler per packet.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from oncemq.core.mesh_packets import MeshNeighbour, MeshOrigin, MeshStatus, MeshStatusDone
from oncemq.core.shapes import NOBODY, Count, Id16, Natural, Packet, Positive, Short, SizeBytes, Text, WaitMs
from oncemq.core.stage_packets import CommitStaged, CommitStagedDone, CommittedRange, PartClaim, Stage, StageDone
from oncemq.limits import (
    GET_WANTS_MAX,
    KNOWN_SESSIONS_MAX,
    PAST_SESSIONS_MAX,
    PENDING_STREAMS_MAX,
    PUT_TOPICS_MAX,
    TRANSACT_ACKS_MAX,
    TRANSACT_PUTS_MAX,
)

__all__ = [
    "NOBODY",
    "CommitStaged",
    "CommitStagedDone",
    "CommittedRange",
    "MeshNeighbour",
    "MeshOrigin",
    "MeshStatus",
    "MeshStatusDone",
    "Packet",
    "PartClaim",
    "Stage",
    "StageDone",
]
"""What others define and this room knows as packets too; everything below is as public."""

# --- sessions ---------------------------------------------------------------------------------------


class Hello(Packet, frozen=True, array_like=True, gc=False):
    """Open a session. `known`: last welcomed session and those tried since; `past`: older ones; `pending`: older streams.

    `start_id` and `append_number` are the bookmark of the newest message this directory was ever handed (0: none).
    """

    client: Text
    session: Id16
    log_id: Id16 = NOBODY
    known: Annotated[tuple[Id16, ...], msgspec.Meta(max_length=KNOWN_SESSIONS_MAX)] = ()
    past: Annotated[tuple[Id16, ...], msgspec.Meta(max_length=PAST_SESSIONS_MAX)] = ()
    pending: Annotated[tuple[Id16, ...], msgspec.Meta(max_length=PENDING_STREAMS_MAX)] = ()
    ephemeral: bool = False
    takeover: bool = False
    start_id: Id16 = NOBODY
    append_number: Natural = 0


class SubscriptionInfo(Packet, frozen=True, array_like=True, gc=False):
    """What a client must know of one of its subscriptions."""

    subscription_id: Natural
    topic: Text
    topic_id: Natural
    authority: Short
    start: Natural
    cursor: Natural
    low: Natural
    end: Natural


class StreamInfo(Packet, frozen=True, array_like=True, gc=False):
    stream: Id16
    last_number: Natural


class Welcome(Packet, frozen=True, array_like=True, gc=False):
    """The session is open, durably. `previous` is the session it replaced, with the last put number taken from it."""

    client: Text
    session: Id16
    log_id: Id16
    start_id: Id16
    streams: tuple[StreamInfo, ...]
    previous: StreamInfo
    taken_over: bool
    subscriptions: tuple[SubscriptionInfo, ...]


class Goodbye(Packet, frozen=True, array_like=True, gc=False):
    session: Id16


class GoodbyeDone(Packet, frozen=True, array_like=True, gc=False):
    session: Id16


# --- puts -------------------------------------------------------------------------------------------


class Put(Packet, frozen=True, array_like=True, gc=False):
    """Store the block in the second frame in all these topics. Numbers: one per message and topic, consecutive."""

    session: Id16
    stream: Id16
    first_number: Positive
    count: Count
    topics: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1, max_length=PUT_TOPICS_MAX)]
    strict: bool = False


class PutOutcome(Packet, frozen=True, array_like=True, gc=False):
    """`first_offset` is None when not stored, or stored so long ago that the offset is no longer kept."""

    topic_id: Natural
    stored: bool
    first_offset: Natural | None


class PutDone(Packet, frozen=True, array_like=True, gc=False):
    """The one durable outcome of a block, told after the sync. `code` is empty, or the final refusal."""

    stream: Id16
    first_number: Positive
    numbers: Count
    duplicate: bool
    code: Short
    outcomes: tuple[PutOutcome, ...]


class TransactAck(Packet, frozen=True, array_like=True, gc=False):
    """Move the cursor of a subscription from `begin`, where it must be, to `end`.

    `start_id` and `append_number` are the bookmark of the last message read: a broker that was set back meanwhile has other
    messages at these offsets.
    """

    subscription_id: Natural
    topic_id: Natural
    begin: Natural
    end: Natural
    start_id: Id16 = NOBODY
    append_number: Natural = 0


class TransactPut(Packet, frozen=True, array_like=True, gc=False):
    """Store the next `block_bytes` of the second frame in all these topics."""

    topics: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1, max_length=PUT_TOPICS_MAX)]
    count: Count
    block_bytes: Count
    strict: bool = False

    @property
    def numbers(self) -> int:
        return self.count * len(self.topics)


class Transact(Packet, frozen=True, array_like=True, gc=False):
    """Acknowledge and put, all or nothing. Takes `number` of the session's own stream, and the following ones for its puts."""

    session: Id16
    number: Positive
    acks: Annotated[tuple[TransactAck, ...], msgspec.Meta(max_length=TRANSACT_ACKS_MAX)]
    puts: Annotated[tuple[TransactPut, ...], msgspec.Meta(max_length=TRANSACT_PUTS_MAX)] = ()

    @property
    def numbers(self) -> int:
        """How many numbers of the stream it takes."""
        return 1 + sum(put.numbers for put in self.puts)


class TransactDone(Packet, frozen=True, array_like=True, gc=False):
    """The one durable outcome of a transaction: committed if `code` is empty, with an outcome per put and topic."""

    number: Positive
    numbers: Count
    duplicate: bool
    code: Short
    outcomes: tuple[PutOutcome, ...]


# --- subscriptions ----------------------------------------------------------------------------------


class Subscribe(Packet, frozen=True, array_like=True, gc=False):
    """`start` is new, earliest, offset or time; `start_at` the offset or the append time in microseconds."""

    session: Id16
    command: Positive
    topic: Text
    start: Short = "new"
    start_at: Natural = 0
    authority: Short = ""


class SubscribeDone(Packet, frozen=True, array_like=True, gc=False):
    command: Natural
    subscription: SubscriptionInfo


class Unsubscribe(Packet, frozen=True, array_like=True, gc=False):
    """`subscription_id` 0 means whichever this client has on that topic (plain request-reply clients)."""

    session: Id16
    command: Positive
    topic: Text
    subscription_id: Natural = 0


class CommandDone(Packet, frozen=True, array_like=True, gc=False):
    """A command without an answer of its own was carried out."""

    command: Natural


class Want(Packet, frozen=True, array_like=True, gc=False):
    """One subscription in a Get: everything below `done` is finished (None: below `offset`), send from `offset` on.

    `start_id` and `append_number` are the bookmark of the last message consumed (0: none yet).
    """

    subscription_id: Natural
    topic_id: Natural
    offset: Natural
    done: Natural | None = None
    start_id: Id16 = NOBODY
    append_number: Natural = 0


class Get(Packet, frozen=True, array_like=True, gc=False):
    """Send messages of these subscriptions, oldest first; wait up to `wait_ms` at the broker if there are none."""

    session: Id16
    wants: Annotated[tuple[Want, ...], msgspec.Meta(min_length=1, max_length=GET_WANTS_MAX)]
    bytes_max: SizeBytes
    wait_ms: WaitMs = 0
    authority: Short = "local"


class Part(Packet, frozen=True, array_like=True, gc=False):
    """What a Blocks packet says of one topic: its low and end offset, and what of [offset, ...) cannot be had."""

    topic_id: Natural
    offset: Natural
    low: Natural
    end: Natural
    damaged_first: Natural = 0
    damaged_end: Natural = 0


class Blocks(Packet, frozen=True, array_like=True, gc=False):
    """The answer to Get and Read. The second frame holds stored records in append order (docs/journal-format.md).

    Messages of the named topics that are not in it have an append number above `through`.
    """

    parts: tuple[Part, ...]
    through: Natural
    start_id: Id16 = NOBODY
    """Which start of the broker answered: live packets of another one have to be checked by a Get first."""


class Read(Packet, frozen=True, array_like=True, gc=False):
    """Send messages [offset, end) of a topic to anyone: no session, no cursor. `topic_id` 0: whichever has that name."""

    topic: Text
    topic_id: Natural
    offset: Natural
    end: Natural
    bytes_max: SizeBytes


class Ack(Packet, frozen=True, array_like=True, gc=False):
    """Everything below `done` is finished. Answered by AckDone, after the sync, only if `confirm`.

    `start_id` and `append_number` are the bookmark of the last message finished, as in Want.
    """

    session: Id16
    subscription_id: Natural
    topic_id: Natural
    done: Natural
    authority: Short = "local"
    confirm: bool = False
    start_id: Id16 = NOBODY
    append_number: Natural = 0


class AckDone(Packet, frozen=True, array_like=True, gc=False):
    subscription_id: Natural
    cursor: Natural


# --- administration ---------------------------------------------------------------------------------


class CreateTopic(Packet, frozen=True, array_like=True, gc=False):
    """`retain` and `limit` as in model/retention.py: empty, forever, age:SECONDS, size:BYTES."""

    session: Id16
    command: Positive
    topic: Text
    retain: Short = ""
    limit: Short = ""


class TopicInfo(Packet, frozen=True, array_like=True, gc=False):
    topic: Text
    topic_id: Natural
    explicit: bool
    retain: Short
    limit: Short
    low: Natural
    end: Natural
    subscriptions: Natural
    size_bytes: Natural = 0


class TopicDone(Packet, frozen=True, array_like=True, gc=False):
    command: Natural
    info: TopicInfo


class DeleteTopic(Packet, frozen=True, array_like=True, gc=False):
    session: Id16
    command: Positive
    topic: Text
    topic_id: Natural = 0


class DeleteSubscription(Packet, frozen=True, array_like=True, gc=False):
    session: Id16
    command: Positive
    subscription_id: Natural


class ForgetClient(Packet, frozen=True, array_like=True, gc=False):
    session: Id16
    command: Positive
    client: Text


class ListTopics(Packet, frozen=True, array_like=True, gc=False):
    """`topic` empty: all of them."""

    topic: Text = ""


class Topics(Packet, frozen=True, array_like=True, gc=False):
    topics: tuple[TopicInfo, ...]


class ListSubscriptions(Packet, frozen=True, array_like=True, gc=False):
    topic: Text = ""


class SubscriptionRow(Packet, frozen=True, array_like=True, gc=False):
    client: Text
    info: SubscriptionInfo


class Subscriptions(Packet, frozen=True, array_like=True, gc=False):
    subscriptions: tuple[SubscriptionRow, ...]


class ListClients(Packet, frozen=True, array_like=True, gc=False):
    pass


class ClientRow(Packet, frozen=True, array_like=True, gc=False):
    client: Text
    session: Id16
    ephemeral: bool
    streams: Natural
    last_number: Natural
    subscriptions: Natural


class Clients(Packet, frozen=True, array_like=True, gc=False):
    clients: tuple[ClientRow, ...]


class Stats(Packet, frozen=True, array_like=True, gc=False):
    pass


class StatsDone(Packet, frozen=True, array_like=True, gc=False):
    log_id: Id16
    start_id: Id16
    values: dict[str, int]


class Shutdown(Packet, frozen=True, array_like=True, gc=False):
    """Stop the broker that was started as `start_id`; a late copy does not stop its successor."""

    start_id: Id16


class ShutdownDone(Packet, frozen=True, array_like=True, gc=False):
    start_id: Id16


class Heartbeat(Packet, frozen=True, array_like=True, gc=False):
    pass


class HeartbeatDone(Packet, frozen=True, array_like=True, gc=False):
    """`live` is where this broker publishes, as it is bound; empty if it does not."""

    start_id: Id16
    live: Text = ""


class Live(Packet, frozen=True, array_like=True, gc=False):
    """What a broker publishes on a topic's channel: its synced end and, in a second frame, blocks just stored; or no blocks.

    The first frame begins with the channel: the topic id in eight bytes.
    """

    start_id: Id16
    topic_id: Natural
    end: Natural


class Refused(Packet, frozen=True, array_like=True, gc=False):
    """A reasoned no. `expected` is the put number wanted next, or the last common offset, where one makes sense."""

    code: Short
    text: Text
    expected: Natural = 0


PACKETS: dict[int, type[Packet]] = {
    1: Hello,
    2: Goodbye,
    3: Put,
    4: Subscribe,
    5: Unsubscribe,
    6: Get,
    7: Read,
    8: Ack,
    9: CreateTopic,
    10: DeleteTopic,
    11: DeleteSubscription,
    12: ForgetClient,
    13: ListTopics,
    14: ListSubscriptions,
    15: ListClients,
    16: Stats,
    17: Shutdown,
    18: Heartbeat,
    20: Transact,
    21: Stage,
    22: CommitStaged,
    23: MeshStatus,
    64: Welcome,
    65: GoodbyeDone,
    66: PutDone,
    67: SubscribeDone,
    68: CommandDone,
    69: Blocks,
    70: AckDone,
    71: TopicDone,
    72: Topics,
    73: Subscriptions,
    74: Clients,
    75: StatsDone,
    76: ShutdownDone,
    77: HeartbeatDone,
    78: Live,
    80: TransactDone,
    81: StageDone,
    82: CommitStagedDone,
    83: MeshStatusDone,
    127: Refused,
}
"""Type codes on the wire. 19 Seek is reserved."""

CODE_OF: dict[type[Packet], int] = {kind: code for code, kind in PACKETS.items()}

Command = Subscribe | Unsubscribe | CreateTopic | DeleteTopic | DeleteSubscription | ForgetClient
"""Numbered apart from puts, one in flight per session, last outcome kept."""

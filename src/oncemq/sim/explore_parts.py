# SPDX-License-Identifier: Apache-2.0
"""The production machines as values: broker, publisher and subscriber can be stored, compared and gone on from anywhere.

May not: decide anything the runners of the product would not. What engine/loop.py, client/puts.py and client/gets.py do around
the machines is done here in the same order, without time, files and sockets.
The idea: a part is a frozen tuple. Each function thaws the production machine from it, lets one thing happen, and freezes it
again; the same part and the same event give the same result, so sim/explore.py asks only once.
Next: sim/explore.py, which tries every order of events.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from oncemq.core import packets as p
from oncemq.core import records
from oncemq.core.broker import BrokerMachine
from oncemq.core.effects import Deliver, Effects, Send, Sender, Speech
from oncemq.core.identity import Identity, hello, trying, welcomed
from oncemq.core.publisher import Entry, Publisher
from oncemq.core.retention import Holding
from oncemq.core.slot import Slot
from oncemq.core.state import BrokerState
from oncemq.core.subscriber import Span, Subscriber
from oncemq.errors import OnceMQError
from oncemq.model.block import cut_block
from oncemq.model.message import Source
from oncemq.model.refusals import Code
from oncemq.ports import Instant

LOG_ID = b"L" * 16
TOPIC = "topic"
STALE = -1
"""The flag of a request whose sender has given it up."""
_NOW = Instant(0, 1)
_FATAL = frozenset({Code.FENCED, Code.NO_SESSION, Code.UNKNOWN_STREAM})


class Broken(Exception):
    """A promise was broken: the first word is the law."""


class Logged(NamedTuple):
    """A stored message."""

    message: str
    source: Source


class Item(NamedTuple):
    """A packet on its way from or to one life of one client. `flag`: what its sender knew; STALE once given up."""

    client: int
    life: int
    flag: int
    packet: p.Packet
    message: str = ""
    bodies: tuple[Logged, ...] = ()


@cache
def block_of(message: str) -> bytes:
    return bytes(cut_block([message.encode()], array("q", [1])))


def session_of(client: int, life: int) -> bytes:
    return bytes([client + 1]) * 8 + life.to_bytes(8, "big")


def name_of(client: int) -> str:
    return f"client-{client}"


# --- the broker ---------------------------------------------------------------------------------------


class BrokerPart(NamedTuple):
    """What is synced, and what the drain that is under way has made of it."""

    life: int
    synced: bytes
    log: tuple[Logged, ...]
    now: bytes
    now_log: tuple[Logged, ...]
    cursors: tuple[tuple[int, int], ...] = ()
    speech: tuple[tuple[Speech, str], ...] = ()
    taken: int = 0
    """Packets in the drain under way."""


class _NoStore:
    def offset_at_time(self, topic_id: int, time_us: int) -> int | None:  # noqa: ARG002 - nobody asks for times here
        return None

    def holdings(self, topic_id: int) -> Sequence[Holding]:  # noqa: ARG002 - as above
        return ()


class _Drain:
    """A thawed broker, with what it has stored since."""

    def __init__(self, part: BrokerPart) -> None:
        self.state = BrokerState()
        self.state.restore(part.now)
        self.machine = BrokerMachine(self.state, _NoStore(), LOG_ID)
        self.machine.room_bytes = 1 << 40
        self.machine._cursors = dict(part.cursors)
        self.machine._cursors_due_ms = 1 << 40 if part.cursors else None
        self.log = list(part.now_log)
        self.speech = list(part.speech)

    def take(self, effects: Effects, message: str = "") -> None:
        for record in effects.records:
            self.machine.apply(record)
            if isinstance(record, records.Stored) and record.placements[0].first_offset != records.NOT_STORED:
                self.log.append(Logged(message, _source(record)))
        self.speech += [(entry, message) for entry in effects.speech]

    def freeze(self, part: BrokerPart, taken: int) -> BrokerPart:
        cursors = tuple(sorted(self.machine._cursors.items()))
        return part._replace(
            now=self.state.dump(), now_log=tuple(self.log), cursors=cursors, speech=tuple(self.speech), taken=taken
        )


def _source(record: records.Stored) -> Source:
    place = record.placements[0]
    numbers = record.first_number, place.first_offset, record.append_number, record.append_time_us
    return Source(TOPIC, place.topic_id, record.publisher, record.stream, *numbers, record.start_id)


def start_broker(part: BrokerPart) -> BrokerPart:
    """A new life on what is synced; its first record is synced before anything is served."""
    fresh = BrokerPart(part.life + 1, part.synced, part.log, part.synced, part.log)
    drain = _Drain(fresh)
    drain.take(drain.machine.start(_NOW, session_of(99, fresh.life), "sim"))
    return _synced(drain.freeze(fresh, 0))


def _synced(part: BrokerPart) -> BrokerPart:
    return part._replace(synced=part.now, log=part.now_log, speech=(), taken=0)


def receive(part: BrokerPart, item: Item) -> BrokerPart:
    """Decide one packet of a drain. Nothing is synced or said yet."""
    drain = _Drain(part)
    if not part.taken:
        drain.take(drain.machine.tidy(_NOW))
    to = Sender(bytes([item.client, item.life]), item.flag + 1)
    block = block_of(item.message) if item.message else b""
    drain.take(drain.machine.decide(_NOW, to, item.packet, block), item.message)
    return drain.freeze(part, part.taken + 1)


def end_drain(part: BrokerPart) -> tuple[BrokerPart, tuple[Item, ...]]:
    """Let cursors ride along, sync, and say everything."""
    drain = _Drain(part)
    drain.take(drain.machine.settle(_NOW, has_records=part.now != part.synced))
    part = drain.freeze(part, 0)
    items = tuple(_say(part, speech, message) for speech, message in part.speech)
    return _synced(part), items


def _say(part: BrokerPart, speech: Speech, message: str) -> Item:
    match speech:
        case Send(to, packet):
            return Item(to.address[0], to.address[1], to.request - 1, packet, message)
        case Deliver(to, parts, ranges, _, through):
            wanted = [range(first, end) for _, first, end in ranges]
            bodies = tuple(entry for entry in part.now_log if any(entry.source.first_offset in each for each in wanted))
            blocks = p.Blocks(parts, 0 if bodies else through)
            return Item(to.address[0], to.address[1], to.request - 1, blocks, "", bodies)
        case _:
            raise Broken(f"unexpected: the broker wants to say {type(speech).__name__}")


def crash_broker(part: BrokerPart, *, is_kept: bool) -> BrokerPart:
    """It dies in its drain: after the append, which survives, or before (or the power takes what was not synced)."""
    return start_broker(_synced(end_drain(part)[0]) if is_kept else part)


# --- publishers ---------------------------------------------------------------------------------------


class PublisherPart(NamedTuple):
    """One client that puts: who it is, what its outbox holds, and what its queue has come to."""

    client: int
    life: int
    identity: bytes
    outbox: tuple[tuple[bytes, int, str], ...]
    """Everything it ever kept: (stream, number, message). A process that dies may have forgotten what was confirmed."""
    entries: tuple[tuple[bytes, int, str, bool], ...]
    sent: int = 0
    floors: tuple[tuple[bytes, int], ...] = ()
    rewound_at: int = 0
    is_welcome: bool = False


Told = tuple[str, int]
"""A message and the offset its publisher was told."""


def _thaw_identity(client: int, identity: bytes) -> Identity:
    return msgspec.json.decode(identity, type=Identity) if identity else Identity(name_of(client))


def new_publisher(client: int, messages: Sequence[str]) -> PublisherPart:
    """A publisher whose application has put these messages without waiting; nothing is sent yet."""
    stream = session_of(client, 1)
    kept = tuple((stream, number, message) for number, message in enumerate(messages, start=1))
    return PublisherPart(client, 0, b"", kept, tuple((*entry, False) for entry in kept))


def start_publisher(part: PublisherPart, *, forgets: bool) -> tuple[PublisherPart, tuple[Item, ...]]:
    """A new process finds the outbox as it was kept (`forgets`: with what was confirmed still in it) and says Hello."""
    left = [(stream, number) for stream, number, _, is_done in part.entries if not is_done]
    entries = tuple((*entry, False) for entry in part.outbox if forgets or entry[:2] in left)
    session = session_of(part.client, part.life + 1)
    identity = msgspec.json.encode(trying(_thaw_identity(part.client, part.identity), session))
    outbox = tuple(entry[:3] for entry in entries)
    part = PublisherPart(part.client, part.life + 1, identity, outbox, entries)
    return part, (_hello(part, _thaw_publisher(part)),)


def _thaw_publisher(part: PublisherPart) -> Publisher:
    publisher = Publisher(session_of(part.client, part.life))
    for stream, number, message, is_done in part.entries:
        entry = Entry(stream, number, 1, (TOPIC,), strict=False, block=message.encode())
        entry.done = p.PutDone(stream, number, 1, False, "", ()) if is_done else None
        publisher._append(entry)
    publisher._floors.update(part.floors)
    publisher._sent = part.sent
    return publisher


def _freeze_publisher(part: PublisherPart, publisher: Publisher) -> PublisherPart:
    messages = {(stream, number): message for stream, number, message in part.outbox}
    entries = tuple(
        (entry.stream, entry.first_number, messages[entry.stream, entry.first_number], entry.done is not None)
        for entry in publisher._entries
    )
    floors = tuple(sorted(publisher._floors.items()))
    return part._replace(entries=entries, sent=publisher._sent, floors=floors)


def _hello(part: PublisherPart, publisher: Publisher) -> Item:
    identity = _thaw_identity(part.client, part.identity)
    pending = publisher.streams()
    packet = hello(identity, publisher.stream, pending, (p.NOBODY, 0), ephemeral=False, takeover=False)
    return Item(part.client, part.life, 0, packet)


def _puts(part: PublisherPart, publisher: Publisher) -> tuple[Item, ...]:
    session = session_of(part.client, part.life)
    return tuple(
        Item(part.client, part.life, publisher.floor(entry.stream), entry.packet(session), bytes(entry.block).decode())
        for entry in publisher.to_send()
    )


def retry_publisher(part: PublisherPart) -> tuple[PublisherPart, tuple[Item, ...]]:
    """No answer in time: whatever is open is sent again."""
    publisher = _thaw_publisher(part)
    if not part.is_welcome:
        return part, (_hello(part, publisher),)
    publisher.rewind()
    items = _puts(part, publisher)
    return _freeze_publisher(part, publisher)._replace(rewound_at=0), items


def tell_publisher(part: PublisherPart, item: Item) -> tuple[PublisherPart, tuple[Item, ...], tuple[Told, ...]]:
    """A packet arrives at a publisher."""
    publisher = _thaw_publisher(part)
    told: tuple[Told, ...] = ()
    match item.packet:
        case p.Welcome():
            part = _welcome_publisher(part, publisher, item.packet)
        case p.PutDone():
            told = _told(part, item.packet)
            publisher.on_put_done(item.packet)
        case p.Refused():
            part = _refuse_publisher(part, publisher, item)
    items = _puts(part, publisher) if part.is_welcome else ()
    return _freeze_publisher(part, publisher), items, told


def _welcome_publisher(part: PublisherPart, publisher: Publisher, packet: p.Welcome) -> PublisherPart:
    if part.is_welcome or packet.session != publisher.stream:
        return part
    try:
        lost = publisher.on_welcome(packet.streams, packet.previous, {})
    except OnceMQError as problem:
        raise Broken(f"diverged: {problem}") from problem
    if lost:
        raise Broken(f"lost-accept: {len(lost)} puts that were kept will never be sent")
    identity = welcomed(_thaw_identity(part.client, part.identity), publisher.stream, packet.log_id)
    return part._replace(identity=msgspec.json.encode(identity), is_welcome=True)


def _told(part: PublisherPart, done: p.PutDone) -> tuple[Told, ...]:
    messages = {(stream, number): message for stream, number, message in part.outbox}
    message = messages.get((done.stream, done.first_number))
    if done.code or message is None:
        raise Broken(f"two-answers: put {done.first_number} was told {done.code or 'to somebody else'}")
    return tuple((message, outcome.first_offset) for outcome in done.outcomes if outcome.first_offset is not None)


def _refuse_publisher(part: PublisherPart, publisher: Publisher, item: Item) -> PublisherPart:
    refused: p.Refused = item.packet  # type: ignore[assignment]
    if refused.code in _FATAL or (item.flag != STALE and refused.code != Code.GAP_IN_STREAM):
        raise Broken(f"fencing: the living process of {name_of(part.client)} was refused: {refused.code}")
    if item.flag == STALE:
        return part
    if refused.expected <= item.flag:
        raise Broken(f"lost-write: put {item.flag} was confirmed, but the broker expects put {refused.expected}")
    if refused.expected != part.rewound_at:
        publisher.rewind()
    return part._replace(rewound_at=refused.expected)


# --- the subscriber -----------------------------------------------------------------------------------


class SubscriberPart(NamedTuple):
    """One client that gets: who it is, its slot, and what it has buffered."""

    client: int
    life: int
    identity: bytes
    slot: tuple[int, int, int, int, int, int, bytes]
    """Subscription, topic, finished, handed, reserved, append number, start id."""
    info: p.SubscriptionInfo | None = None
    blocks: tuple[Logged, ...] = ()
    next_offset: int = 0
    bookmark: tuple[int, bytes] = (0, p.NOBODY)
    doubt: Span | None = None
    is_asking: bool = False


def start_subscriber(part: SubscriberPart) -> tuple[SubscriberPart, tuple[Item, ...]]:
    """A new process finds identity and slot, and says Hello."""
    session = session_of(part.client, part.life + 1)
    identity = msgspec.json.encode(trying(_thaw_identity(part.client, part.identity), session))
    part = SubscriberPart(part.client, part.life + 1, identity, part.slot)
    return part, (_subscriber_hello(part),)


def _subscriber_hello(part: SubscriberPart) -> Item:
    identity, bookmark = _thaw_identity(part.client, part.identity), (part.slot[6], part.slot[5])
    session = session_of(part.client, part.life)
    return Item(part.client, part.life, 0, hello(identity, session, (), bookmark, ephemeral=False, takeover=False))


def _thaw_subscriber(part: SubscriberPart, info: p.SubscriptionInfo) -> Subscriber:
    slot = Slot(*part.slot)
    slot.freeze()
    subscriber = Subscriber(info, slot)
    subscriber.next_offset, subscriber.doubt = part.next_offset, part.doubt
    subscriber._received_append, subscriber._received_start = part.bookmark
    subscriber._blocks.extend((entry.source, block_of(entry.message), 1) for entry in part.blocks)
    return subscriber


def _freeze_subscriber(part: SubscriberPart, subscriber: Subscriber, blocks: tuple[Logged, ...]) -> SubscriberPart:
    slot = subscriber.slot
    place = slot.finished, slot.handed, slot.reserved, slot.append_number, slot.start_id
    if subscriber.gap is not None or subscriber.damaged is not None:
        raise Broken(f"retention-law: the subscriber was told {subscriber.gap or subscriber.damaged}")
    return part._replace(
        slot=(slot.subscription_id, slot.topic_id, *place),
        blocks=blocks,
        next_offset=subscriber.next_offset,
        bookmark=(subscriber._received_append, subscriber._received_start),
        doubt=subscriber.doubt,
    )


def retry_subscriber(part: SubscriberPart) -> tuple[SubscriberPart, tuple[Item, ...]]:
    """No answer in time: say Hello, or ask, again."""
    return (part, (_subscriber_hello(part),)) if part.info is None else ask(part._replace(is_asking=False))


def ask(part: SubscriberPart) -> tuple[SubscriberPart, tuple[Item, ...]]:
    """The application calls get and nothing is buffered: whatever was handed out is finished, and the broker is asked."""
    subscriber = _thaw_subscriber(part, _info(part))
    subscriber.finish()
    packet = p.Get(session_of(part.client, part.life), (subscriber.want(),), 1 << 20, 0)
    return _freeze_subscriber(part, subscriber, ())._replace(is_asking=True), (Item(part.client, part.life, 0, packet),)


def acknowledge(part: SubscriberPart) -> tuple[SubscriberPart, tuple[Item, ...]]:
    """The application says that all it was handed is finished."""
    subscriber = _thaw_subscriber(part, _info(part))
    subscriber.finish()
    slot = subscriber.slot
    packet = p.Ack(session_of(part.client, part.life), slot.subscription_id, slot.topic_id, slot.finished)
    return _freeze_subscriber(part, subscriber, part.blocks), (Item(part.client, part.life, STALE, packet),)


def _info(part: SubscriberPart) -> p.SubscriptionInfo:
    if part.info is None:
        raise Broken("unexpected: a subscriber without a session")
    return part.info


def hand_out(part: SubscriberPart) -> tuple[SubscriberPart, tuple[str, int]]:
    """The application gets the next message; the slot is written first."""
    subscriber = _thaw_subscriber(part, _info(part))
    if not subscriber.has_message():
        raise Broken("damaged: a block cannot be sliced")
    if subscriber.needs_reserve():
        subscriber.reserve()
    message = subscriber.take()
    return _freeze_subscriber(part, subscriber, part.blocks[1:]), (message.value.decode(), message.offset)


def settle(part: SubscriberPart, choice: str) -> SubscriberPart:
    subscriber = _thaw_subscriber(part, _info(part))
    subscriber.settle(choice)
    return _freeze_subscriber(part, subscriber, ())


def tell_subscriber(part: SubscriberPart, item: Item) -> SubscriberPart:
    """A packet arrives at the subscriber."""
    match item.packet:
        case p.Welcome():
            return _welcome_subscriber(part, item.packet)
        case p.Blocks() if item.flag != STALE and part.is_asking:
            return _take_blocks(part, item)._replace(is_asking=False)
        case p.Refused(code) if code in _FATAL or item.flag != STALE:
            raise Broken(f"fencing: the living subscriber was refused: {code}")
        case _:
            return part


def _welcome_subscriber(part: SubscriberPart, packet: p.Welcome) -> SubscriberPart:
    session = session_of(part.client, part.life)
    if part.info is not None or packet.session != session:
        return part
    if not packet.subscriptions:
        raise Broken("subscription-durability: the subscription is gone")
    info = packet.subscriptions[0]
    identity = msgspec.json.encode(welcomed(_thaw_identity(part.client, part.identity), session, packet.log_id))
    slot = Slot(*part.slot)
    slot.freeze()
    subscriber = Subscriber(info, slot)
    try:
        subscriber.resume(info, is_os_crash=False, taken_over=packet.taken_over, client=name_of(part.client))
    except OnceMQError as problem:
        raise Broken(f"cursor-law: {problem}") from problem
    # From here on only its names matter; what else it said is old by now.
    info = msgspec.structs.replace(info, cursor=0, low=0, end=0)
    return _freeze_subscriber(part._replace(identity=identity, info=info), subscriber, ())


def _take_blocks(part: SubscriberPart, item: Item) -> SubscriberPart:
    packet: p.Blocks = item.packet  # type: ignore[assignment]
    subscriber = _thaw_subscriber(part, _info(part))
    taken = [entry for entry in item.bodies if subscriber.on_block(entry.source, block_of(entry.message), 1)]
    through = max([packet.through, *(entry.source.append_number for entry in item.bodies)])
    for each in packet.parts:
        subscriber.on_part(each.low, each.end, through, None)
    return _freeze_subscriber(part, subscriber, (*part.blocks, *taken))

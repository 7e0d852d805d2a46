# SPDX-License-Identifier: Apache-2.0
"""A transaction at the broker: acknowledgements and puts on any number of topics, all of them or none (R17).

May not: apply half of it. All its records leave one decision, so they lie in one group, and a group is valid as a whole or not.
The idea: it takes one number of its session's stream for itself and the following ones for its puts, so a repeat is recognised
like a repeated put. Acknowledgements are compare-and-swap: they say where the cursor must be, not only where it goes, so a
transaction that was run again after a lost answer cannot count twice. A "no" to its contents is its one durable outcome.
Next: core/puts.py for blocks, client/transactions.py for the side that waits for the answer.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import msgspec
from crc32c import crc32c

from oncemq.core.effects import Effects, Sender, answer, refuse
from oncemq.core.gets import No, find_subscription
from oncemq.core.packets import PutOutcome, Transact, TransactAck, TransactDone
from oncemq.core.puts import are_good, outcomes_of
from oncemq.core.records import (
    ELSEWHERE,
    NOT_STORED,
    AuthorityFixed,
    CursorChange,
    Origin,
    Placement,
    PutRefused,
    Record,
    Stored,
    Transacted,
)
from oncemq.core.state import BrokerState
from oncemq.core.streams import ClientState, Stream
from oncemq.core.topics import BROKER, UNDECIDED
from oncemq.model.block import BadBlock, Outline, ValueTooLarge, check_block
from oncemq.model.refusals import Code
from oncemq.ports import Instant

_ACK = struct.Struct("<QQQQ")


class TransactOffer(msgspec.Struct, frozen=True, gc=False):
    """A transaction somebody wants to commit. `cursors` are those that wait for the next group (subscription id to offset)."""

    client: ClientState
    to: Sender
    packet: Transact
    body: bytes | memoryview
    now: Instant
    room_bytes: int
    cursors: Mapping[int, int]
    origin: Origin | None = None
    """The name of its first put in the mesh, if this broker is a node of one."""

    @property
    def stream(self) -> Stream:
        return self.client.streams[self.packet.session]


class _NotNow(Exception):
    """A refusal that is no outcome: the same packet may be taken later."""

    def __init__(self, code: Code, detail: str = "") -> None:
        self.code, self.detail = code, detail


class _Never(Exception):
    """A refusal that is the outcome."""

    def __init__(self, code: Code) -> None:
        self.code = code


def decide_transact(state: BrokerState, offer: TransactOffer) -> Effects:
    """Decide what becomes of a transaction: committed, repeated, or refused for good or for now."""
    packet, last = offer.packet, offer.stream.last
    crc = content_crc(packet, offer.body)
    if packet.number <= last:
        return _repeat(offer, crc)
    if packet.number != last + 1:
        return refuse(offer.to, Code.GAP_IN_STREAM, expected=last + 1)
    try:
        moves = _check_acks(state, offer)
        records = [*_authorities(state, packet), Transacted(offer.client.name, packet.session, packet.number, crc, moves)]
        stored = _puts(state, offer)
    except _NotNow as no:
        return refuse(offer.to, no.code, detail=no.detail)
    except _Never as no:
        return _final(offer, no.code, crc)
    outcomes = tuple(outcome for record in stored for outcome in outcomes_of(record.placements))
    return answer(offer.to, TransactDone(packet.number, packet.numbers, False, "", outcomes), *records, *stored)


def content_crc(packet: Transact, body: bytes | memoryview) -> int:
    """What tells a repeat from another transaction under the same number."""
    acks = b"".join(_ACK.pack(ack.subscription_id, ack.topic_id, ack.begin, ack.end) for ack in packet.acks)
    return crc32c(body, crc32c(acks))


def _check_acks(state: BrokerState, offer: TransactOffer) -> tuple[CursorChange, ...]:
    acks = offer.packet.acks
    if len({ack.subscription_id for ack in acks}) != len(acks):
        raise _NotNow(Code.MALFORMED, "a subscription is acknowledged twice")
    return tuple(_check_ack(state, offer, ack) for ack in acks)


def _check_ack(state: BrokerState, offer: TransactOffer, ack: TransactAck) -> CursorChange:
    """Compare and swap: the cursor must stand where the transaction began to read, and this log must be the one it read."""
    found = find_subscription(state, offer.client, ack.subscription_id, ack.topic_id, BROKER)
    if isinstance(found, No):
        raise _Never(found.code)
    if ack.append_number and not state.belongs(ack.start_id, ack.append_number):
        raise _NotNow(Code.DIVERGED)
    if ack.begin != max(found.cursor, offer.cursors.get(found.subscription_id, 0)):
        raise _Never(Code.CURSOR_MOVED)
    if not ack.begin <= ack.end <= state.topics[ack.topic_id].end:
        raise _Never(Code.BEYOND_END)
    return CursorChange(found.subscription_id, ack.begin, ack.end)


def _authorities(state: BrokerState, packet: Transact) -> list[Record]:
    """The first consuming call fixes how a subscription is consumed."""
    undecided = [ack.subscription_id for ack in packet.acks if state.subscriptions[ack.subscription_id].authority == UNDECIDED]
    return [AuthorityFixed(subscription_id, BROKER) for subscription_id in undecided]


def _puts(state: BrokerState, offer: TransactOffer) -> list[Stored]:
    """One record per put, numbered and placed one behind the other: two puts may go to the same topic."""
    blocks = _blocks(offer)
    ends: dict[int, int] = {}
    number = offer.packet.number + 1
    records: list[Stored] = []
    for put, (block, outline) in zip(offer.packet.puts, blocks, strict=True):
        if not are_good(state, put.topics):
            raise _Never(Code.INVALID_NAME)
        placements = tuple(_place(state, name, outline.count, ends, offer.origin) for name in put.topics)
        is_stored = [placement.first_offset != NOT_STORED for placement in placements]
        if put.strict and not all(is_stored):
            raise _Never(Code.NO_SUBSCRIBERS)
        kept = block if any(is_stored) else b""
        record = _stored(state, offer, (number, len(records)), outline, placements, kept)
        records.append(_named(record, offer, len(records)))
        number += put.numbers
    if sum(record.block_bytes for record in records) > offer.room_bytes:
        raise _NotNow(Code.DISK_FULL)
    return records


def _blocks(offer: TransactOffer) -> list[tuple[bytes | memoryview, Outline]]:
    """Cut the body into the blocks of the puts, and check each as a Put's would be."""
    body, at = memoryview(offer.body), 0
    found: list[tuple[bytes | memoryview, Outline]] = []
    for put in offer.packet.puts:
        block = body[at : at + put.block_bytes]
        at += put.block_bytes
        try:
            outline = check_block(block)
        except ValueTooLarge:
            raise _Never(Code.TOO_LARGE) from None
        except BadBlock as problem:
            raise _NotNow(Code.CORRUPT_BLOCK, str(problem)) from None
        if outline.count != put.count:
            raise _NotNow(Code.MALFORMED, "a block holds another number of messages")
        found.append((block, outline))
    if at != len(body):
        raise _NotNow(Code.MALFORMED, "the blocks do not fill the second frame")
    return found


def _place(state: BrokerState, name: str, count: int, ends: dict[int, int], origin: Origin | None) -> Placement:
    topic = state.topic_named(name)
    if topic is None or not topic.has_interest:
        return Placement(topic.topic_id if topic is not None else 0, NOT_STORED if origin is None else ELSEWHERE)
    first = ends.get(topic.topic_id, topic.end)
    ends[topic.topic_id] = first + count
    return Placement(topic.topic_id, first)


def _stored(
    state: BrokerState,
    offer: TransactOffer,
    place: tuple[int, int],
    outline: Outline,
    placements: tuple[Placement, ...],
    block: bytes | memoryview,
) -> Stored:
    """The record of one put; `place` is its first number and how many records of this transaction come before it."""
    number, before = place
    return Stored(
        state.next_append_number + before,
        max(offer.now.wall_us, state.append_time_us),
        state.start_id,
        offer.packet.session,
        number,
        outline.count,
        outline.crc,
        len(block),
        placements,
        offer.client.name,
        None,
        block,
    )


def _named(record: Stored, offer: TransactOffer, before: int) -> Stored:
    """The record with its name in the mesh: puts of a transaction have numbers one behind the other, and are tied."""
    first, puts = offer.origin, offer.packet.puts
    if first is None:
        return record
    origin = Origin(first.node, first.start_id, first.number + before)
    return msgspec.structs.replace(record, origin=origin, topics=puts[before].topics, has_more=before + 1 < len(puts))


def _final(offer: TransactOffer, code: Code, crc: int) -> Effects:
    packet = offer.packet
    record = PutRefused(offer.client.name, packet.session, packet.number, packet.numbers, crc, code.value)
    return answer(offer.to, TransactDone(packet.number, packet.numbers, False, code.value, ()), record)


def _repeat(offer: TransactOffer, crc: int) -> Effects:
    """Tell the outcome again. Other contents under the same number are a conflict."""
    packet, stream = offer.packet, offer.stream
    kept = stream.outcome_at(packet.number)
    if stream.is_inside(packet.number) or (kept is not None and kept.block_crc != crc):
        return refuse(offer.to, Code.CONFLICTING_PUT)
    code = kept.code if kept is not None else ""
    outcomes = _kept_outcomes(stream, packet) if kept is not None and not code else ()
    return answer(offer.to, TransactDone(packet.number, packet.numbers, True, code, outcomes))


def _kept_outcomes(stream: Stream, packet: Transact) -> tuple[PutOutcome, ...]:
    number = packet.number + 1
    found: list[PutOutcome] = []
    for put in packet.puts:
        kept = stream.outcome_at(number)
        found += outcomes_of(kept.placements) if kept is not None else ()
        number += put.numbers
    return tuple(found)

# SPDX-License-Identifier: Apache-2.0
"""Stage and CommitStaged: a batch of rows from many tasks becomes messages at once, or not at all (R22).

May not: show a row before its commit; commit a batch twice; take an older batch for a repeat.
The idea: tasks stage parts under random ids, because attempts are numbered anew by every driver and a failed attempt has
already sent everything (H18). The driver names the parts that count. Committed is one number per query: that batch again is a
repeat, the next one is new, an earlier one is proof that the checkpoint was set back (H19), a later one that the broker was.
Nobody aborts: what no commit names is released by the next one, or when its lease ends.
Next: core/parts.py for the nouns, pipeline/sink.py for who stages.
"""

from __future__ import annotations

import struct

import msgspec
from crc32c import crc32c

from oncemq.core.effects import Effects, Sender, answer, refuse
from oncemq.core.packets import CommitStaged, CommitStagedDone, CommittedRange, PartClaim, Stage, StageDone
from oncemq.core.parts import Part, Query
from oncemq.core.records import CommittedPart, CommittedTopic, Record, Staged, StagedCommitted, StagedReleased
from oncemq.core.state import BrokerState
from oncemq.core.topics import Topic
from oncemq.limits import QUERIES_MAX, STAGE_LEASE_MS, STAGED_PARTS_MAX
from oncemq.model.block import BadBlock, Outline, check_block
from oncemq.model.names import is_valid_name
from oncemq.model.refusals import Code
from oncemq.ports import Instant

_CRC = struct.Struct("<I")
_CLAIMS = msgspec.msgpack.Decoder(tuple[PartClaim, ...])


class StageOffer(msgspec.Struct, frozen=True, gc=False):
    """A chunk somebody wants to stage."""

    to: Sender
    packet: Stage
    block: bytes | memoryview
    now: Instant
    room_bytes: int


def next_crc(crc: int, block_crc: int) -> int:
    """The checksum of a part after one more block."""
    return crc32c(_CRC.pack(block_crc), crc)


# --- staging ----------------------------------------------------------------------------------------


def decide_stage(state: BrokerState, offer: StageOffer) -> Effects:
    """Keep a chunk, or say why not: `last + 1` of a part is new, anything up to `last` is a repeat."""
    packet, to = offer.packet, offer.to
    if not is_valid_name(packet.query):
        return refuse(to, Code.INVALID_NAME)
    query = state.queries.get(packet.query)
    if query is not None and packet.batch <= query.batch:
        if packet.batch < query.batch:
            return refuse(to, Code.BATCH_WENT_BACK, expected=query.batch)
        return answer(to, StageDone(packet.part, packet.chunk, True))
    try:
        outline = check_block(offer.block)
    except BadBlock as problem:
        return refuse(to, Code.CORRUPT_BLOCK, detail=str(problem))
    if outline.count != packet.count:
        return refuse(to, Code.MALFORMED, detail="the block holds another number of messages")
    return _take(state, offer, outline)


def _take(state: BrokerState, offer: StageOffer, outline: Outline) -> Effects:
    packet, to = offer.packet, offer.to
    part = state.parts.get(packet.part)
    if part is None:
        if packet.chunk != 1:
            return refuse(to, Code.NO_SUCH_PART)
        if len(state.parts) >= STAGED_PARTS_MAX:
            return refuse(to, Code.TOO_MANY)
        part = Part(state.fresh_id(), packet.query, packet.batch)
    elif (part.query, part.batch) != (packet.query, packet.batch):
        return refuse(to, Code.CONFLICTING_PUT)
    if packet.chunk <= part.chunks:
        is_other = packet.chunk == part.chunks and outline.crc != part.last_crc
        return refuse(to, Code.CONFLICTING_PUT) if is_other else answer(to, StageDone(packet.part, packet.chunk, False))
    if packet.chunk != part.chunks + 1:
        return refuse(to, Code.GAP_IN_STREAM, expected=part.chunks + 1)
    if len(offer.block) > offer.room_bytes:
        return refuse(to, Code.DISK_FULL)
    return answer(to, StageDone(packet.part, packet.chunk, False), _staged(state, offer, outline, part))


def _staged(state: BrokerState, offer: StageOffer, outline: Outline, part: Part) -> Staged:
    packet = offer.packet
    return Staged(
        state.next_append_number,
        max(offer.now.wall_us, state.append_time_us),
        packet.part,
        packet.chunk,
        packet.query,
        packet.batch,
        part.storage_id,
        part.rows,
        packet.count,
        outline.crc,
        len(offer.block),
        offer.block,
    )


# --- committing -------------------------------------------------------------------------------------


def decide_commit(state: BrokerState, to: Sender, packet: CommitStaged, body: bytes | memoryview, now: Instant) -> Effects:
    """Commit a batch, repeat its answer, or refuse: all parts exactly as they were staged, or nothing happens."""
    if not is_valid_name(packet.query):
        return refuse(to, Code.INVALID_NAME)
    query = state.queries.get(packet.query)
    if query is not None and packet.batch == query.batch:
        return answer(to, CommitStagedDone(packet.query, packet.batch, True, query.ranges))
    if query is not None and packet.batch < query.batch:
        return refuse(to, Code.BATCH_WENT_BACK, expected=query.batch)
    if packet.batch != (0 if query is None else query.batch + 1):
        return refuse(to, Code.BATCH_MISSING, expected=0 if query is None else query.batch + 1)
    if query is None and len(state.queries) >= QUERIES_MAX:
        return refuse(to, Code.TOO_MANY)
    claims = _claims(body)
    if claims is None or len(claims) != packet.parts:
        return refuse(to, Code.MALFORMED, detail="the parts cannot be read")
    problem = _problem(state, packet, claims)
    if problem is not None:
        return refuse(to, problem[0], detail=problem[1])
    record = _committed(state, packet, claims, now)
    ranges = tuple(CommittedRange(each.topic_id, each.first_offset, each.rows) for each in record.topics)
    return answer(to, CommitStagedDone(packet.query, packet.batch, False, ranges), record)


def _claims(body: bytes | memoryview) -> tuple[PartClaim, ...] | None:
    try:
        return _CLAIMS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _problem(state: BrokerState, packet: CommitStaged, claims: tuple[PartClaim, ...]) -> tuple[Code, str] | None:
    """What speaks against a commit: parts that are not as claimed, or topics that would not keep the rows."""
    if len({claim.part for claim in claims}) != len(claims):
        return Code.MALFORMED, "a part twice"
    for claim in claims:
        part = state.parts.get(claim.part)
        if part is None or (part.query, part.batch) != (packet.query, packet.batch):
            return Code.NO_SUCH_PART, claim.part.hex()
        if (part.chunks, part.rows, part.crc) != (claim.chunks, claim.rows, claim.crc):
            return Code.NO_SUCH_PART, f"{claim.part.hex()} has other rows"
    for name in sorted({claim.topic for claim in claims}):
        topic = state.topic_named(name)
        if topic is None or not topic.has_interest:
            return Code.NO_SUBSCRIBERS if is_valid_name(name) else Code.INVALID_NAME, name[:255]
    return None


def _committed(state: BrokerState, packet: CommitStaged, claims: tuple[PartClaim, ...], now: Instant) -> StagedCommitted:
    query = state.queries.get(packet.query)
    parts: list[CommittedPart] = []
    given: dict[int, CommittedTopic] = {}
    for claim in claims:
        part, topic = state.parts[claim.part], _topic(state, claim.topic)
        before = given.get(topic.topic_id, CommittedTopic(topic.topic_id, topic.end, 0, 0))
        parts.append(CommittedPart(claim.part, topic.topic_id, before.first_offset + before.rows))
        given[topic.topic_id] = CommittedTopic(
            topic.topic_id, before.first_offset, before.rows + part.rows, before.size_bytes + part.size_bytes
        )
    return StagedCommitted(
        state.next_append_number,
        max(now.wall_us, state.append_time_us),
        state.start_id,
        packet.query,
        packet.batch,
        packet.is_once,
        1 if query is None else query.next_number,
        tuple(parts),
        tuple(given.values()),
    )


def _topic(state: BrokerState, name: str) -> Topic:
    return state.topics[state.topic_ids[name]]


# --- leases -----------------------------------------------------------------------------------------


class Leases:
    """When each query last spoke. Volatile: a restart counts as a word."""

    __slots__ = ("_seen_ms",)

    def __init__(self) -> None:
        self._seen_ms: dict[str, int] = {}

    def renew(self, query: str, now: Instant) -> None:
        self._seen_ms[query] = now.ticks_ms

    def expired(self, state: BrokerState, now: Instant) -> list[Record]:
        """Release what queries left behind that said nothing for a whole lease; one query at a time."""
        waiting = {part.query for part in state.parts.values()}
        waiting |= {name for name, query in state.queries.items() if query.is_once}
        self._seen_ms = {name: self._seen_ms.get(name, now.ticks_ms) for name in waiting}
        for name, seen_ms in self._seen_ms.items():
            if now.ticks_ms - seen_ms > STAGE_LEASE_MS:
                parts = tuple(key for key, part in state.parts.items() if part.query == name)
                return [StagedReleased(name, parts, _is_once(state.queries.get(name)))]
        return []


def _is_once(query: Query | None) -> bool:
    return query is not None and query.is_once

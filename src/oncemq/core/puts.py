# SPDX-License-Identifier: Apache-2.0
"""Taking a block: new, repeated, missing its predecessor, or refused. One number, one durable outcome (R4, R5).

May not: consume a number without a record, or answer differently when asked again.
The idea: `first_number == last + 1` is new, anything up to `last` is a repeat, anything else is a gap.
Final refusals are outcomes and are journaled; transient ones (full disk) consume nothing.
Next: core/streams.py for what is remembered, core/broker.py for who calls.
"""

from __future__ import annotations

import msgspec

from oncemq.core.effects import Effects, Sender, answer, refuse
from oncemq.core.packets import Put, PutDone, PutOutcome
from oncemq.core.records import ELSEWHERE, NOT_STORED, Origin, Placement, PutRefused, Stored
from oncemq.core.state import BrokerState
from oncemq.core.streams import ClientState, Kept, Stream
from oncemq.model.block import BadBlock, Outline, ValueTooLarge, check_block
from oncemq.model.names import is_valid_name
from oncemq.model.refusals import Code
from oncemq.ports import Instant


class Offer(msgspec.Struct, frozen=True, gc=False):
    """A block somebody wants to put: whose, to whom the answer goes, and what the journal can still take."""

    client: ClientState
    to: Sender
    packet: Put
    block: bytes | memoryview
    now: Instant
    room_bytes: int
    origin: Origin | None = None
    """Its name in the mesh, if this broker is a node of one: then it is stored in any case (R27)."""

    @property
    def numbers(self) -> int:
        return self.packet.count * len(self.packet.topics)


def decide_put(state: BrokerState, offer: Offer) -> Effects:
    """Decide what becomes of a block."""
    packet, to = offer.packet, offer.to
    stream = offer.client.streams.get(packet.stream)
    if stream is None:
        return refuse(to, Code.UNKNOWN_STREAM)
    if packet.first_number + offer.numbers - 1 <= stream.last:
        return _repeat(offer, stream)
    if packet.first_number != stream.last + 1:
        return refuse(to, Code.GAP_IN_STREAM, expected=stream.last + 1)
    try:
        outline = check_block(offer.block)
    except ValueTooLarge:
        return _final(offer, Code.TOO_LARGE, 0)
    except BadBlock as problem:
        return refuse(to, Code.CORRUPT_BLOCK, detail=str(problem))
    if outline.count != packet.count:
        return refuse(to, Code.MALFORMED, detail="the block holds another number of messages")
    return _take(state, offer, outline)


def _take(state: BrokerState, offer: Offer, outline: Outline) -> Effects:
    packet = offer.packet
    if not are_good(state, packet.topics):
        return _final(offer, Code.INVALID_NAME, outline.crc)
    placements = place(state, packet.topics, ELSEWHERE if offer.origin is not None else NOT_STORED)
    is_stored = [placement.first_offset != NOT_STORED for placement in placements]
    if packet.strict and not all(is_stored):
        return _final(offer, Code.NO_SUBSCRIBERS, outline.crc)
    if len(offer.block) > offer.room_bytes:
        return refuse(offer.to, Code.DISK_FULL)
    block = offer.block if any(is_stored) else b""
    record = Stored(
        state.next_append_number,
        max(offer.now.wall_us, state.append_time_us),  # Ages must not run backwards when a clock does.
        state.start_id,
        packet.stream,
        packet.first_number,
        packet.count,
        outline.crc,
        len(block),
        placements,
        offer.client.name,
        offer.origin,
        block,
        packet.topics if offer.origin is not None else (),
    )
    return answer(
        offer.to, PutDone(packet.stream, packet.first_number, offer.numbers, False, "", outcomes_of(placements)), record
    )


def are_good(state: BrokerState, names: tuple[str, ...]) -> bool:
    """Valid names, none of them twice. A topic that exists has a valid name."""
    if len(names) == 1 and names[0] in state.topic_ids:
        return True
    return all(map(is_valid_name, names)) and len(set(names)) == len(names)


def place(state: BrokerState, names: tuple[str, ...], nowhere: int) -> tuple[Placement, ...]:
    """Where the block goes in each topic: at its end, or `nowhere` if nobody is interested."""
    placements = []
    for name in names:
        topic = state.topic_named(name)
        if topic is None:
            placements.append(Placement(0, nowhere))
        else:
            placements.append(Placement(topic.topic_id, topic.end if topic.has_interest else nowhere))
    return tuple(placements)


def outcomes_of(placements: tuple[Placement, ...]) -> tuple[PutOutcome, ...]:
    """What a client is told of where its block lies."""
    return tuple(
        PutOutcome(entry.topic_id, True, entry.first_offset)
        if entry.first_offset >= 0
        else PutOutcome(entry.topic_id, entry.first_offset == ELSEWHERE, None)
        for entry in placements
    )


def _final(offer: Offer, code: Code, block_crc: int) -> Effects:
    """A refusal that is the outcome: the numbers are used up, and every repeat hears the same."""
    packet, numbers = offer.packet, offer.numbers
    record = PutRefused(offer.client.name, packet.stream, packet.first_number, numbers, block_crc, code.value)
    return answer(offer.to, PutDone(packet.stream, packet.first_number, numbers, False, code.value, ()), record)


def _repeat(offer: Offer, stream: Stream) -> Effects:
    """Tell the outcome again, in full while it is kept. Other bytes under the same number are a conflict."""
    packet, numbers = offer.packet, offer.numbers
    kept = stream.outcome_at(packet.first_number)
    if stream.is_inside(packet.first_number) or (kept is not None and (kept.numbers != numbers or _differs(kept, offer.block))):
        return refuse(offer.to, Code.CONFLICTING_PUT)
    outcomes, code = (outcomes_of(kept.placements), kept.code) if kept is not None else ((), "")
    return answer(offer.to, PutDone(packet.stream, packet.first_number, numbers, True, code, outcomes))


def _differs(kept: Kept, block: bytes | memoryview) -> bool:
    """Whether these are other bytes than those stored under that number. The checksum itself lies at 12 to 15."""
    return kept.block_crc not in {0, int.from_bytes(block[12:16], "little")}

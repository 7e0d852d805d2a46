# SPDX-License-Identifier: Apache-2.0
"""Reading any range of a topic: no subscription, no cursor, nothing finished.

May not: skip what is missing. Gone is a Gap, bent is Damaged.
Next: core/gets.py for the broker's side.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncemq.client.session import Session
from oncemq.core.packets import Part, Read
from oncemq.core.subscriber import Span, Subscriber
from oncemq.errors import Damaged, Gap
from oncemq.journal.codec import BadRecord, Delivered, decode_delivery
from oncemq.limits import GET_BYTES
from oncemq.model.block import BadBlock, messages_of
from oncemq.model.message import Message, Source


def _check(topic: str, part: Part, at: int) -> None:
    if at < part.low:
        raise Gap(topic, at, part.low)
    if part.damaged_end:
        raise Damaged(topic, max(at, part.damaged_first), part.damaged_end, "the broker cannot read it; its log says why")


def _messages(topic: str, body: bytes | memoryview, at: int) -> list[Message]:
    found: list[Message] = []
    position = 0
    while position < len(body):
        try:
            delivered, start, end, position = decode_delivery(body, position)
            source = source_of(topic, delivered)
            found.extend(messages_of(bytes(body[start:end]), source, skip=max(0, at - delivered.first_offset)))
        except (BadBlock, BadRecord) as problem:
            raise Damaged(topic, at, at + 1, str(problem)) from problem
    return found


def source_of(topic: str, delivered: Delivered) -> Source:
    """What the messages of a delivered block share."""
    return Source(
        topic,
        delivered.topic_id,
        delivered.publisher,
        delivered.stream,
        delivered.first_number,
        delivered.first_offset,
        delivered.append_number,
        delivered.append_time_us,
        delivered.start_id,
    )


def offer(subscriber: Subscriber, delivered: Delivered, block: bytes) -> bool:
    """Give a subscriber a delivered block; say whether it took it."""
    if int.from_bytes(block[12:16], "little") != delivered.block_crc:
        block = b""  # Another block in its place: slicing it will tell it as damaged.
    return subscriber.on_block(source_of(subscriber.topic, delivered), block, delivered.count)


def damage_of(part: Part) -> Span | None:
    """What of a topic the broker said it cannot read."""
    return Span(part.damaged_first, part.damaged_end) if part.damaged_end else None


def read_range(session: Session, topic: str, offset: int, end: int, *, topic_id: int = 0) -> Iterator[Message]:
    """Yield messages [offset, end) as far as the topic goes, a block or so at a time."""
    at = offset
    while at < end:
        packet, body = session.read_blocks(Read(topic, topic_id, at, end, GET_BYTES))
        _check(topic, packet.parts[0], at)
        found = [message for message in _messages(topic, body, at) if message.offset < end]
        if not found:
            return
        yield from found
        at = found[-1].offset + 1

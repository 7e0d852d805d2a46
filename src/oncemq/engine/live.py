# SPDX-License-Identifier: Apache-2.0
"""Publishing what was just stored: read once from the journal, sent once, whatever the number of followers.

May not: be called before the sync of what it publishes, or wait for anybody.
The idea: the blocks of one drain and topic leave together, a packet up to LIVE_PACKET_BYTES. They are read back rather than kept:
one truth for every kind of record, and it is in the page cache. What is too large to be queued for slow followers, or cannot
be read, is only told by the topic's end: whoever wants it asks.
Next: core/channels.py for when, adapters/zmq_network.py for how it leaves, core/live.py for who takes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncemq.core.channels import channel_of
from oncemq.core.effects import Publish
from oncemq.core.packets import Live
from oncemq.crashpoints import reach
from oncemq.journal.codec import decode_delivery
from oncemq.journal.journal import Journal
from oncemq.journal.reading import DamagedRead
from oncemq.limits import LIVE_BLOCK_BYTES_MAX, LIVE_DRAIN_BYTES_MAX, LIVE_PACKET_BYTES
from oncemq.ports import Network
from oncemq.wire.codec import encode


@dataclass(slots=True)
class Pushed:
    """What left."""

    packets: int = 0
    blocks: int = 0
    size_bytes: int = 0


def publish(network: Network, journal: Journal, start_id: bytes, entry: Publish) -> Pushed:
    """Send the blocks of [first, end) to whoever follows the topic, and its end in any case."""
    head = channel_of(entry.topic_id) + encode(0, Live(start_id, entry.topic_id, entry.end))
    pushed, at = Pushed(), entry.first
    while at < entry.end and pushed.size_bytes < LIVE_DRAIN_BYTES_MAX:
        found = _read(journal, entry.topic_id, at, entry.end)
        size_bytes = sum(map(len, found))
        if not found or size_bytes > LIVE_BLOCK_BYTES_MAX:
            break
        network.publish([head, found[0] if len(found) == 1 else b"".join(found)])
        reach("broker.after_live")
        last = decode_delivery(found[-1], 0)[0]
        at = last.first_offset + last.count
        pushed.packets, pushed.blocks, pushed.size_bytes = (
            pushed.packets + 1,
            pushed.blocks + len(found),
            pushed.size_bytes + size_bytes,
        )
    if at < entry.end or entry.first == entry.end:
        network.publish([head])
        reach("broker.after_live")
        pushed.packets += 1
    return pushed


def _read(journal: Journal, topic_id: int, first: int, end: int) -> list[bytes]:
    try:
        return journal.read([(topic_id, first, end)], LIVE_PACKET_BYTES)
    except DamagedRead:
        return []  # Whoever asks for it is told.

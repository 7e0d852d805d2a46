# SPDX-License-Identifier: Apache-2.0
"""The whole state of a directory as plain values, for people: `oncemq inspect`.

May not: change a byte: it recovers into memory as a start would, and stops where a start begins to write.
The idea: what is shown is what a broker starting now would know: newest snapshot, then every record that can be
believed. Ids are hexadecimal, times are ISO 8601, and every list is in a fixed order.
Next: recovery.py, which does the reading.
"""

from __future__ import annotations

from datetime import UTC, datetime

from oncemq.core.origins import LOG_BIT
from oncemq.core.state import BrokerState
from oncemq.core.streams import ClientState, Kept, Stream
from oncemq.core.topics import Subscription, Topic
from oncemq.errors import DirectoryUnusable
from oncemq.journal.recovery import Recovered, read_identity, recover
from oncemq.journal.segment import SNAPSHOTS, numbers_of
from oncemq.ports import Disk

Described = dict[str, object]
_CALENDAR_END_US = 253_402_300_800_000_000  # The year 10000, where `datetime` ends.


def look_into(disk: Disk) -> Described:
    """Return everything the directory says; raises JournalDamaged and the like as a start would."""
    identity = read_identity(disk)
    if identity is None:
        raise DirectoryUnusable(str(disk), "there is no journal in it")
    state = BrokerState()
    found = recover(disk, bytes.fromhex(identity.log), state, accept_loss=True)
    return {
        "format": identity.format,
        "log_id": identity.log,
        "start_id": state.start_id.hex(),
        "next_append_number": state.next_append_number,
        "last_append": _time(state.append_time_us),
        "topics": [_topic(state.topics[topic_id]) for _, topic_id in sorted(state.topic_ids.items())],
        "clients": [_client(state, client) for _, client in sorted(state.clients.items())],
        "starts": [
            {"start_id": start.start_id.hex(), "first_append_number": start.first_append_number} for start in state.starts
        ],
        "origins": [
            {"node": log.node.hex(), "start_id": log.start_id.hex(), "low": log.low, "had": log.had} for log in state.origins
        ],
        "segments": _segments(found, state),
        "missing": [
            {"topic": each.topic, "first": each.first, "end": each.end, "segment": each.segment or None}
            for each in (found.missing if found is not None else [])
        ],
        "snapshots": numbers_of(disk.names(), SNAPSHOTS),
        "records_not_proven_synced": sum(len(group.items) for group in found.tail) if found is not None else 0,
    }


def _topic(topic: Topic) -> Described:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "low": topic.low,
        "end": topic.end,
        "explicit": topic.explicit,
        "retain": topic.retain,
        "limit": topic.limit,
        "subscriptions": [_subscription(entry) for entry in topic.subscriptions.values()],
    }


def _subscription(subscription: Subscription) -> Described:
    return {
        "client": subscription.client,
        "subscription_id": subscription.subscription_id,
        "start": subscription.start,
        "cursor": subscription.cursor,
        "authority": subscription.authority,
    }


def _client(state: BrokerState, client: ClientState) -> Described:
    return {
        "client": client.name,
        "session": client.session.hex(),
        "ephemeral": client.ephemeral,
        "opened": _time(client.opened_us),
        "past_sessions": [session.hex() for session in client.past],
        "last_command": client.command,
        "subscribed_to": sorted(state.topics[topic_id].name for topic_id in client.subscriptions),
        "streams": [_stream(state, stream_id, stream) for stream_id, stream in client.streams.items()],
    }


def _stream(state: BrokerState, stream_id: bytes, stream: Stream) -> Described:
    """The last outcomes are those a repeated put would be told again."""
    return {
        "stream": stream_id.hex(),
        "last_number": stream.last,
        "outcomes_kept": len(stream.kept),
        "last_outcome": _outcome(state, stream.kept[-1]) if stream.kept else None,
    }


def _outcome(state: BrokerState, kept: Kept) -> Described:
    stored = [placement for placement in kept.placements if placement.first_offset >= 0]
    return {
        "first_number": kept.first_number,
        "numbers": kept.numbers,
        "refused": kept.code,
        "stored": {_name(state, placement.topic_id): placement.first_offset for placement in stored},
    }


def _time(time_us: int) -> str | None:
    """A time for people; None where none was written yet, or no calendar has it."""
    if not 0 < time_us < _CALENDAR_END_US:
        return None
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000).isoformat()


def _name(state: BrokerState, topic_id: int) -> str:
    topic = state.topics.get(topic_id)
    return topic.name if topic is not None else f"deleted topic or released part {topic_id}"


def _segments(found: Recovered | None, state: BrokerState) -> list[Described]:
    """What each file holds; the records after the last proven sync are not counted here."""
    parts = {each: ("" if each & LOG_BIT else f"part {each} of ") + storage.name for each, storage in state.storages.items()}
    return [
        {
            "segment": sealed.number,
            "bytes": sealed.end,
            "holds": {
                parts.get(totals.topic_id) or _name(state, totals.topic_id): [totals.first, totals.end]
                for totals in sealed.totals
                if not totals.source
            },
            "moved_here": [
                {
                    "topic": parts.get(totals.topic_id) or _name(state, totals.topic_id),
                    "first": totals.first,
                    "end": totals.end,
                    "from": totals.source,
                }
                for totals in sealed.totals
                if totals.source
            ],
        }
        for sealed in (found.sealed if found is not None else [])
    ]

# SPDX-License-Identifier: Apache-2.0
"""Handing out messages: what a Get may see, what it finishes, and when it waits.

May not: move a cursor by anything but `done` (R6), or hand out what a bookmark from another history asks for (R1).
The idea: `done` and `offset` are two numbers. The answer is a promise to read [offset, end) from the journal after the sync;
a Get that finds nothing is parked here until a put, its time, or its end.
Next: core/broker.py for waking parked gets, core/retention.py for what cursors set free.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncemq.core.effects import Deliver, Effects, Sender, refuse
from oncemq.core.packets import Ack, Get, Part, Read, Want
from oncemq.core.records import AuthorityFixed, Record
from oncemq.core.state import BrokerState
from oncemq.core.streams import ClientState
from oncemq.core.topics import AUTHORITIES, UNDECIDED, Subscription, Topic
from oncemq.model.refusals import Code


@dataclass(frozen=True, slots=True)
class No:
    """Why a want cannot be served."""

    code: Code
    expected: int = 0


@dataclass(frozen=True, slots=True)
class Parked:
    """A Get that waits: whose it is, what for, and until when."""

    to: Sender
    packet: Get
    client: str
    due_ms: int


def find_subscription(
    state: BrokerState, client: ClientState, subscription_id: int, topic_id: int, authority: str
) -> Subscription | No:
    """Return the subscription if it is this client's, lives on that very topic, and may be consumed that way."""
    if topic_id not in state.topics:
        return No(Code.NO_SUCH_TOPIC)
    subscription = state.subscriptions.get(subscription_id)
    if subscription is None or subscription.topic_id != topic_id or subscription.client != client.name:
        return No(Code.NOT_SUBSCRIBED)
    if authority not in AUTHORITIES or subscription.authority not in {UNDECIDED, authority}:
        return No(Code.WRONG_AUTHORITY)
    return subscription


def check_want(state: BrokerState, client: ClientState, want: Want, authority: str) -> Subscription | No:
    """Check ids, authority, bookmark and numbers of one want."""
    found = find_subscription(state, client, want.subscription_id, want.topic_id, authority)
    if isinstance(found, No):
        return found
    topic = state.topics[want.topic_id]
    if want.append_number and not state.belongs(want.start_id, want.append_number):
        return No(Code.DIVERGED, topic.end)
    if want.offset > topic.end or (want.done or 0) > topic.end:
        return No(Code.BEYOND_END, topic.end)
    return found


def decide_get(state: BrokerState, client: ClientState, to: Sender, packet: Get) -> tuple[Effects, bool, dict[int, int]]:
    """Return what to do, whether the Get has to wait, and the cursors it moves (subscription id to offset)."""
    fixed: list[Record] = []
    done: dict[int, int] = {}
    for want in packet.wants:
        found = check_want(state, client, want, packet.authority)
        if isinstance(found, No):
            return refuse(to, found.code, expected=found.expected), False, {}
        if found.authority == UNDECIDED:
            fixed.append(AuthorityFixed(found.subscription_id, packet.authority))
        finished = want.offset if want.done is None else want.done
        if finished > found.cursor:
            done[found.subscription_id] = finished
    delivery = deliver(state, to, packet)
    has_to_wait = packet.wait_ms > 0 and not _has_news(delivery)
    return Effects(tuple(fixed), () if has_to_wait else (delivery,)), has_to_wait, done


def deliver(state: BrokerState, to: Sender, packet: Get) -> Deliver:
    """What there is for a Get right now."""
    parts, wanted = [], []
    for want in packet.wants:
        topic = state.topics[want.topic_id]
        low = topic.low_at(want.offset)
        parts.append(Part(topic.topic_id, want.offset, low, topic.end))
        if low <= want.offset < topic.end:
            wanted.append((topic, want.offset, topic.end))
    return _delivery(to, parts, wanted, packet.bytes_max, state.next_append_number - 1)


def _delivery(to: Sender, parts: list[Part], wanted: list[tuple[Topic, int, int]], bytes_max: int, through: int) -> Deliver:
    """Answer in append order over all topics: a topic's own messages up to the first splice of any, or else that splice."""
    pieces = [(topic.topic_id, topic.piece(first, end)) for topic, first, end in wanted]
    ranges = tuple((topic_id, piece.first, piece.end) for topic_id, piece in pieces if piece.splice is None)
    ahead = [(topic_id, piece, splice) for topic_id, piece in pieces if (splice := piece.splice or piece.next_splice)]
    if not ahead:
        return Deliver(to, tuple(parts), ranges, bytes_max, through)
    topic_id, piece, first = min(ahead, key=lambda entry: entry[2].append_number)
    horizon = first.append_number
    if piece.splice is None:
        return Deliver(to, tuple(parts), ranges, bytes_max, 0, horizon, end=wanted[0][2])
    rows = (piece.first - piece.splice.first, piece.end - piece.splice.first)
    return Deliver(to, tuple(parts), ranges, bytes_max, 0, horizon, piece.splice, rows, topic_id, wanted[0][2])


def _has_news(delivery: Deliver) -> bool:
    """Messages, or the news that some are gone."""
    return bool(delivery.ranges) or delivery.splice is not None or any(part.offset < part.low for part in delivery.parts)


def decide_read(state: BrokerState, to: Sender, packet: Read) -> Effects:
    """Serve a range of a topic to anyone who knows its name; positions below `low` are told as gone."""
    topic = _topic_to_read(state, packet)
    if topic is None:
        return refuse(to, Code.NO_SUCH_TOPIC)
    if packet.offset > topic.end:
        return refuse(to, Code.BEYOND_END, expected=topic.end)
    low = topic.low_at(packet.offset)
    part = Part(topic.topic_id, packet.offset, low, topic.end)
    end = min(packet.end, topic.end)
    wanted = [(topic, packet.offset, end)] if low <= packet.offset < end else []
    return Effects((), (_delivery(to, [part], wanted, packet.bytes_max, state.next_append_number - 1),))


def _topic_to_read(state: BrokerState, packet: Read) -> Topic | None:
    topic = state.topic_named(packet.topic)
    if topic is None or packet.topic_id not in {0, topic.topic_id}:
        return None
    return topic


def check_ack(state: BrokerState, client: ClientState, packet: Ack) -> Subscription | No:
    found = find_subscription(state, client, packet.subscription_id, packet.topic_id, packet.authority)
    if isinstance(found, No):
        return found
    topic = state.topics[packet.topic_id]
    if packet.append_number and not state.belongs(packet.start_id, packet.append_number):
        return No(Code.DIVERGED, topic.end)
    return No(Code.BEYOND_END, topic.end) if packet.done > topic.end else found

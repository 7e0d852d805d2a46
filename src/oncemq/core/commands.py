# SPDX-License-Identifier: Apache-2.0
"""Commands: Subscribe, Unsubscribe, topic and subscription administration. Numbered, one in flight, never done twice.

May not: carry out a command whose number is not above the last one of its session (R5): a late copy hits nobody.
The idea: every command ends in one CommandSettled record that holds the reply, refusals included, in the same group as
what it did. A repeat gets that reply; anything older is told it is late.
Next: core/topics.py for what they change.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from oncemq.core.departures import forget_records, unsubscribe_records
from oncemq.core.effects import Effects, Send, Sender, refusal, refuse
from oncemq.core.packets import (
    CODE_OF,
    PACKETS,
    Command,
    CommandDone,
    CreateTopic,
    DeleteSubscription,
    DeleteTopic,
    ForgetClient,
    Packet,
    Refused,
    Subscribe,
    SubscribeDone,
    TopicDone,
    TopicInfo,
    Unsubscribe,
)
from oncemq.core.records import (
    CommandSettled,
    Record,
    Subscribed,
    TopicCreated,
    TopicDeleted,
)
from oncemq.core.retention import Store
from oncemq.core.state import BrokerState
from oncemq.core.streams import ClientState
from oncemq.core.topics import AUTHORITIES, UNDECIDED, Subscription, Topic
from oncemq.errors import UsageError
from oncemq.limits import SUBSCRIPTIONS_MAX, TOPICS_MAX
from oncemq.model.names import is_valid_name
from oncemq.model.refusals import Code
from oncemq.model.retention import read_retention
from oncemq.ports import Instant

Outcome = tuple[Packet, list[Record]]
"""The reply, and what was done."""


def pack_reply(packet: Packet) -> bytes:
    """The form in which a reply is kept: type code, then msgpack."""
    return bytes([CODE_OF[type(packet)]]) + msgspec.msgpack.encode(packet)


def unpack_reply(reply: bytes) -> Packet:
    return msgspec.msgpack.decode(reply[1:], type=PACKETS[reply[0]])


class Commands:
    """Decides commands over a state; `retain` and `limit` are given to topics that a subscription creates."""

    __slots__ = ("limit", "retain", "state", "store")

    def __init__(self, state: BrokerState, store: Store, *, retain: str = "", limit: str = "") -> None:
        self.state = state
        self.store = store
        self.retain = retain
        self.limit = limit

    def decide(self, client: ClientState, to: Sender, packet: Command, now: Instant) -> Effects:
        """Carry a command out once, or repeat its reply."""
        if packet.command == client.command:
            return Effects((), (Send(to, unpack_reply(client.reply)),))
        if packet.command < client.command:
            return refuse(to, Code.LATE_COMMAND)
        reply, done = self._carry_out(client, packet, now)
        if isinstance(reply, Refused) and reply.code in {Code.TOO_MANY, Code.DISK_FULL}:
            return Effects((), (Send(to, reply),))
        settled = CommandSettled(client.name, packet.session, packet.command, pack_reply(reply))
        return Effects((*done, settled), (Send(to, reply),))

    def _carry_out(self, client: ClientState, packet: Command, now: Instant) -> Outcome:
        match packet:
            case Subscribe():
                return self._subscribe(client, packet, now)
            case Unsubscribe():
                return self._unsubscribe(client, packet)
            case CreateTopic():
                return self._create_topic(packet, now)
            case DeleteTopic():
                return self._delete_topic(packet)
            case DeleteSubscription():
                return self._delete_subscription(packet)
            case ForgetClient():
                return self._forget_client(client, packet)
            case _:
                assert_never(packet)

    # --- subscriptions -------------------------------------------------------------------------------

    def _subscribe(self, client: ClientState, packet: Subscribe, now: Instant) -> Outcome:
        if not is_valid_name(packet.topic):
            return refusal(Code.INVALID_NAME), []
        if packet.authority not in AUTHORITIES | {UNDECIDED}:
            return refusal(Code.MALFORMED, detail="unknown authority"), []
        done: list[Record] = []
        topic = self.state.topic_named(packet.topic)
        if len(self.state.subscriptions) >= SUBSCRIPTIONS_MAX or (topic is None and len(self.state.topics) >= TOPICS_MAX):
            return refusal(Code.TOO_MANY), []
        if topic is None:
            created = TopicCreated(self.state.fresh_id(), packet.topic, False, self.retain, self.limit, now.wall_us)
            topic = Topic(created.topic_id, packet.topic, explicit=False, retain=self.retain, limit=self.limit)
            done.append(created)
        elif topic.topic_id in client.subscriptions:
            return refusal(Code.ALREADY_SUBSCRIBED), []
        start = self._start_offset(topic, packet)
        if start is None:
            return refusal(Code.BEYOND_END if packet.start == "offset" else Code.MALFORMED, expected=topic.end), []
        subscription = Subscription(self.state.fresh_id(len(done)), topic.topic_id, client.name, packet.authority, start)
        done.append(Subscribed(subscription.subscription_id, topic.topic_id, client.name, packet.authority, start, now.wall_us))
        return SubscribeDone(packet.command, topic.describe(subscription)), done

    def _start_offset(self, topic: Topic, packet: Subscribe) -> int | None:
        """Where a new subscription begins; None if there is no such place."""
        match packet.start:
            case "new":
                return topic.end
            case "earliest":
                return topic.low
            case "offset":
                return packet.start_at if packet.start_at <= topic.end else None
            case "time":
                found = self.store.offset_at_time(topic.topic_id, packet.start_at)
                return topic.end if found is None else max(found, topic.low)
            case _:
                return None

    def _unsubscribe(self, client: ClientState, packet: Unsubscribe) -> Outcome:
        topic = self.state.topic_named(packet.topic)
        if topic is None:
            return refusal(Code.NO_SUCH_TOPIC), []
        subscription_id = client.subscriptions.get(topic.topic_id)
        if subscription_id is None or packet.subscription_id not in {0, subscription_id}:
            return refusal(Code.NOT_SUBSCRIBED), []
        return CommandDone(packet.command), unsubscribe_records(self.state, self.state.subscriptions[subscription_id])

    def _delete_subscription(self, packet: DeleteSubscription) -> Outcome:
        subscription = self.state.subscriptions.get(packet.subscription_id)
        if subscription is None:
            return refusal(Code.NO_SUCH_SUBSCRIPTION), []
        return CommandDone(packet.command), unsubscribe_records(self.state, subscription)

    # --- topics and clients --------------------------------------------------------------------------

    def _create_topic(self, packet: CreateTopic, now: Instant) -> Outcome:
        if not is_valid_name(packet.topic):
            return refusal(Code.INVALID_NAME), []
        if self.state.topic_named(packet.topic) is not None:
            return refusal(Code.TOPIC_EXISTS), []
        if len(self.state.topics) >= TOPICS_MAX:
            return refusal(Code.TOO_MANY), []
        try:
            read_retention(packet.retain)
            read_retention(packet.limit)
        except UsageError as problem:
            return refusal(Code.MALFORMED, detail=str(problem)), []
        record = TopicCreated(self.state.fresh_id(), packet.topic, True, packet.retain, packet.limit, now.wall_us)
        info = TopicInfo(packet.topic, record.topic_id, True, packet.retain, packet.limit, 0, 0, 0)
        return TopicDone(packet.command, info), [record]

    def _delete_topic(self, packet: DeleteTopic) -> Outcome:
        topic = self.state.topic_named(packet.topic)
        if topic is None or packet.topic_id not in {0, topic.topic_id}:
            return refusal(Code.NO_SUCH_TOPIC), []
        return CommandDone(packet.command), [TopicDeleted(topic.topic_id)]

    def _forget_client(self, client: ClientState, packet: ForgetClient) -> Outcome:
        forgotten = self.state.clients.get(packet.client)
        if forgotten is None or forgotten is client:
            return refusal(Code.NO_SUCH_CLIENT), []
        return CommandDone(packet.command), forget_records(self.state, forgotten)

# SPDX-License-Identifier: Apache-2.0
"""The broker's machine: one handler per packet. `decide` says what should happen, `apply` makes it so.

May not: change durable state in `decide`; know time, files or sockets.
The idea, as the engine uses it, once per drain:

    tidy(now)                       leases and trims; everything applied so far is synced, so trimming is safe
    decide(now, sender, packet)     for each packet; its records are applied at once
    settle(now)                     wake parked gets, let cursors ride along
    ... append, sync, speak ...

Next: core/state.py for what records do, core/puts.py, core/gets.py, core/commands.py, core/sessions.py for the rules.
"""

from __future__ import annotations

from collections import Counter

from oncemq.core import packets as p
from oncemq.core import records
from oncemq.core.channels import Channels
from oncemq.core.commands import Commands
from oncemq.core.departures import forget_records
from oncemq.core.effects import NOTHING, Deliver, Effects, Report, Send, Sender, Speech, Stop, answer, refusal, refuse
from oncemq.core.gets import No, Parked, check_ack, check_want, decide_get, decide_read, deliver
from oncemq.core.origins import MeshRetention, new_lows
from oncemq.core.packets import Packet
from oncemq.core.parking import Parking
from oncemq.core.puts import Offer, decide_put
from oncemq.core.retention import Store, Timeline, new_low
from oncemq.core.sessions import decide_goodbye, decide_hello
from oncemq.core.staging import Leases, StageOffer, decide_commit, decide_stage
from oncemq.core.state import BrokerState
from oncemq.core.streams import ClientState
from oncemq.core.transactions import TransactOffer, decide_transact
from oncemq.limits import (
    CONTROL_ROOM_BYTES,
    CURSOR_DELAY_MS,
    EPHEMERAL_LEASE_MS,
    HOUSEKEEPING_MS,
    PARKED_GETS_MAX,
)
from oncemq.model.refusals import Code
from oncemq.ports import Instant

_WAKES_ALL = (records.SessionOpened, records.Unsubscribed, records.TopicDeleted, records.ClientForgotten)
"""After these a parked Get may have lost its right to wait."""
_RELEASED_PART_BYTES = 18
"""What a part costs in the record that releases it: its id, and two bytes that say so."""


class BrokerMachine:
    def __init__(self, state: BrokerState, store: Store, log_id: bytes, *, retain: str = "", limit: str = "") -> None:
        self.state = state
        self.log_id = log_id
        self.room_bytes = 0
        """How many bytes of blocks the journal can take in this drain; set by the engine before it decides."""
        self.live_address = ""
        """Where the engine publishes; told to whoever asks."""
        self.retention: MeshRetention | None = None
        """Set if this broker is a node of a mesh: how long it keeps messages for others."""
        self.is_leaving = False
        """Nothing new is taken any more: a node that leaves waits until others have what it has."""
        self.counters: Counter[str] = Counter()
        self.channels = Channels()
        self._store = store
        self._commands = Commands(state, store, retain=retain, limit=limit)
        self._parking = Parking()
        self._cursors: dict[int, int] = {}
        self._cursors_due_ms: int | None = None
        self._touched: dict[int, None] = {}
        self._wake_all = False
        self._tidy_due_ms = 0
        self._timeline = Timeline()
        self._leases = Leases()

    # --- the four calls of a drain -------------------------------------------------------------------

    def start(self, now: Instant, start_id: bytes, version: str) -> Effects:
        """The first record of a life, synced before anything is served (R1)."""
        for client in self.state.clients.values():
            client.seen_ms = now.ticks_ms
        return Effects((records.Started(start_id, self.state.next_append_number, now.wall_us, version),))

    def tidy(self, now: Instant) -> Effects:
        """Once a second: end expired leases and move lows. Only called when everything applied is synced."""
        if now.ticks_ms < self._tidy_due_ms:
            return NOTHING
        self._tidy_due_ms = now.ticks_ms + HOUSEKEEPING_MS
        gone: list[records.Record] = []
        for client in self.state.clients.values():
            if client.ephemeral and now.ticks_ms - client.seen_ms > EPHEMERAL_LEASE_MS:
                return Effects(tuple(forget_records(self.state, client)))  # One at a time: records depend on state.
        if released := self._leases.expired(self.state, now):
            return Effects(tuple(released))
        for topic in self.state.topics.values():
            low = new_low(topic, self._store, wall_us=self._timeline.trusted_us(now))
            if low > topic.low:
                gone.append(records.Trimmed(topic.topic_id, low))
        return Effects((*gone, *self._cut_logs(now)))

    def _cut_logs(self, now: Instant) -> list[records.Record]:
        if self.retention is None:
            return []
        lows = new_lows(self.state.origins, self._store, self.retention, wall_us=self._timeline.trusted_us(now))
        return [records.Trimmed(log_id, low) for log_id, low in lows.items()]

    def is_tidy_due(self, now: Instant) -> bool:
        return now.ticks_ms >= self._tidy_due_ms

    def decide(self, now: Instant, to: Sender, packet: Packet, block: bytes | memoryview = b"") -> Effects:
        """Decide one packet. Durable state changes only when the records come back through `apply`."""
        self.counters["packets"] += 1
        match packet:
            case p.Put(session=session) | p.Get(session=session) | p.Ack(session=session) | p.Goodbye(session=session):
                return self._of_session(now, session, to, packet, block)
            case p.Transact(session=session):
                return self._of_session(now, session, to, packet, block)
            case (
                p.Subscribe(session=session)
                | p.Unsubscribe(session=session)
                | p.CreateTopic(session=session)
                | p.DeleteTopic(session=session)
                | p.DeleteSubscription(session=session)
                | p.ForgetClient(session=session)
            ):
                return self._of_session(now, session, to, packet, block)
            case p.Hello():
                return self._count(self._on_hello(to, packet, now))
            case p.Stage() | p.CommitStaged() if self.retention is not None:
                return self._count(refuse(to, Code.NOT_IN_A_MESH))
            case p.Stage():
                return self._on_stage(to, packet, block, now)
            case p.CommitStaged(query=query):
                self._leases.renew(query, now)
                return self._count(decide_commit(self.state, to, packet, block, now))
            case p.Read():
                return self._count(decide_read(self.state, to, packet))
            case _:
                return self._count(self._on_question(to, packet))

    def settle(self, now: Instant, *, has_records: bool, may_write: bool = True) -> Effects:
        """End a drain: answer parked gets that were woken or are due, and write cursors if others are written anyway."""
        speech: list[Speech] = [*self._wake(), *self._expire(now)] if self._parking else []
        if self.channels:
            speech += self.channels.speech(self.state.topics, now.ticks_ms)
        due = self._cursors_due_ms is not None and now.ticks_ms >= self._cursors_due_ms
        return Effects(tuple(self._cursor_records()) if may_write and (has_records or due) else (), tuple(speech))

    def apply(self, record: records.Record) -> None:
        """The only writer of durable state. Also notes whom the record may wake."""
        self.state.apply(record)
        if isinstance(record, records.Stored):
            for placement in record.placements:
                self.channels.on_stored(placement.topic_id)
                if self._parking.waits_for(placement.topic_id):
                    self._touched[placement.topic_id] = None
        elif isinstance(record, records.StagedCommitted):
            for entry in record.topics:
                self.channels.on_stored(entry.topic_id)
                self._touched[entry.topic_id] = None
        elif isinstance(record, records.Lost):
            for placement in record.placements:
                self.channels.on_stored(placement.topic_id)
                self._touched[placement.topic_id] = None
        elif isinstance(record, records.Trimmed):
            self._touched[record.topic_id] = None
        elif isinstance(record, _WAKES_ALL):
            self._wake_all = True

    def next_due_ms(self) -> int:
        """When the engine must come back even if no packet arrives."""
        due = [self._tidy_due_ms]
        if self._cursors_due_ms is not None:
            due.append(self._cursors_due_ms)
        due += [each for each in (self._parking.next_due_ms(), self.channels.next_due_ms()) if each is not None]
        return min(due)

    def last_words(self, *, may_write: bool) -> Effects:
        """What a clean stop still has to write and say."""
        speech = tuple(Send(entry.to, refusal(Code.STOPPING)) for entry in self._parking.take_all())
        return Effects(tuple(self._cursor_records()) if may_write else (), speech)

    def control_bytes(self) -> int:
        """Room for what the next drain may write besides its packets' records: cursors, trims, an ended lease.

        A lease that ends names every part that goes with it.
        """
        facts = len(self._cursors) + len(self.state.topics) + len(self.state.subscriptions) + len(self.state.origins.logs)
        return CONTROL_ROOM_BYTES + 64 * facts + _RELEASED_PART_BYTES * len(self.state.parts)

    def lows(self) -> dict[int, int]:
        """The low offset of every living topic, and the lowest row needed of whatever is staged or spliced."""
        return {topic_id: topic.low for topic_id, topic in self.state.topics.items()} | self.state.storage_lows()

    def _on_hello(self, to: Sender, packet: p.Hello, now: Instant) -> Effects:
        """Open a session. Cursors still on their way are written first: a Welcome must not tell older ones."""
        cursors = dict(self._cursors)
        moved = self._cursor_records()
        effects = decide_hello(self.state, self.log_id, to, packet, now, cursors)
        return Effects((*moved, *effects.records), effects.speech)

    # --- packets of a session --------------------------------------------------------------------------

    def _of_session(self, now: Instant, session: bytes, to: Sender, packet: Packet, block: bytes | memoryview) -> Effects:
        client = self.state.sessions.get(session)
        if client is None:
            return self._count(refuse(to, Code.FENCED if self.state.was_session(session) else Code.NO_SESSION))
        client.seen_ms = now.ticks_ms
        match packet:
            case p.Put():
                return self._on_put(client, to, packet, block, now)
            case p.Get():
                return self._on_get(client, to, packet, now)
            case p.Transact():
                return self._on_transact(client, to, packet, block, now)
            case p.Ack():
                return self._on_ack(client, to, packet, now)
            case p.Goodbye():
                return self._count(decide_goodbye(self.state, client, to, packet))
            case _:
                return self._on_command(client, to, packet, now)

    def _on_put(self, client: ClientState, to: Sender, packet: p.Put, block: bytes | memoryview, now: Instant) -> Effects:
        if self.is_leaving:
            return self._count(refuse(to, Code.STOPPING))
        effects = decide_put(self.state, Offer(client, to, packet, block, now, self.room_bytes, self._next_origin()))
        if effects.records:
            self.room_bytes -= len(block)
        return self._count(effects)

    def _on_transact(
        self, client: ClientState, to: Sender, packet: p.Transact, body: bytes | memoryview, now: Instant
    ) -> Effects:
        if self.is_leaving:
            return self._count(refuse(to, Code.STOPPING))
        terms = (self.room_bytes, self._cursors, self._next_origin())
        effects = decide_transact(self.state, TransactOffer(client, to, packet, body, now, *terms))
        if effects.records:
            self.room_bytes -= len(body)
        return self._count(effects)

    def _next_origin(self) -> records.Origin | None:
        """The name of the next message that is put here, if this is a node of a mesh."""
        if self.retention is None:
            return None
        return self.state.origins.next_of(self.log_id, self.state.start_id)

    def _on_stage(self, to: Sender, packet: p.Stage, block: bytes | memoryview, now: Instant) -> Effects:
        self._leases.renew(packet.query, now)
        effects = decide_stage(self.state, StageOffer(to, packet, block, now, self.room_bytes))
        if effects.records:
            self.room_bytes -= len(block)
        return self._count(effects)

    def _on_get(self, client: ClientState, to: Sender, packet: p.Get, now: Instant) -> Effects:
        effects, has_to_wait, done = decide_get(self.state, client, to, packet)
        if has_to_wait and len(self._parking) >= PARKED_GETS_MAX:
            return self._count(refuse(to, Code.TOO_MANY))
        self._remember(done, now)
        if has_to_wait:
            self._parking.add(Parked(to, packet, client.name, now.ticks_ms + packet.wait_ms))
        return self._count(effects)

    def _on_ack(self, client: ClientState, to: Sender, packet: p.Ack, now: Instant) -> Effects:
        found = check_ack(self.state, client, packet)
        if isinstance(found, No):
            return self._count(refuse(to, found.code, expected=found.expected))
        fixed: list[records.Record] = []
        if not found.authority:
            fixed.append(records.AuthorityFixed(found.subscription_id, packet.authority))
        cursor = max(found.cursor, packet.done, self._cursors.get(found.subscription_id, 0))
        if not packet.confirm:
            self._remember({found.subscription_id: cursor}, now)
            return Effects(tuple(fixed))
        fixed.append(records.CursorMoved(found.subscription_id, cursor))
        return answer(to, p.AckDone(found.subscription_id, cursor), *fixed)

    def _on_command(self, client: ClientState, to: Sender, packet: Packet, now: Instant) -> Effects:
        if isinstance(packet, p.Subscribe) and self.retention is not None and not self.state.origins.has_baseline:
            return self._count(refuse(to, Code.JOINING))  # What came between would be skipped (R27).
        return self._count(self._commands.decide(client, to, packet, now))  # type: ignore[arg-type]

    def _remember(self, done: dict[int, int], now: Instant) -> None:
        """Keep cursors until a group takes them along; they need no sync of their own."""
        for subscription_id, cursor in done.items():
            if cursor > self._cursors.get(subscription_id, -1):
                self._cursors[subscription_id] = cursor
                if self._cursors_due_ms is None:
                    self._cursors_due_ms = now.ticks_ms + CURSOR_DELAY_MS

    def _cursor_records(self) -> list[records.Record]:
        moved: list[records.Record] = [
            records.CursorMoved(subscription_id, cursor)
            for subscription_id, cursor in self._cursors.items()
            if subscription_id in self.state.subscriptions and cursor > self.state.subscriptions[subscription_id].cursor
        ]
        self._cursors.clear()
        self._cursors_due_ms = None
        return moved

    # --- questions -------------------------------------------------------------------------------------

    def _on_question(self, to: Sender, packet: Packet) -> Effects:
        match packet:
            case p.Heartbeat():
                return answer(to, p.HeartbeatDone(self.state.start_id, self.live_address))
            case p.Stats():
                return Effects((), (Report(to),))
            case p.MeshStatus():
                if self.retention is None:
                    return refuse(to, Code.NOT_A_NODE)
                return Effects((), (Report(to, is_mesh=True),))
            case p.ListTopics(name):
                return answer(to, p.Topics(tuple(self._topic_info(name))))
            case p.ListSubscriptions(name):
                return answer(to, p.Subscriptions(tuple(self._subscription_rows(name))))
            case p.ListClients():
                return answer(to, p.Clients(tuple(map(_client_row, self.state.clients.values()))))
            case p.Shutdown(start_id):
                if start_id != self.state.start_id:
                    return refuse(to, Code.WRONG_START)
                return Effects((), (Send(to, p.ShutdownDone(start_id)), Stop()))
            case _:
                return refuse(to, Code.UNKNOWN_PACKET)

    def _topic_info(self, name: str) -> list[p.TopicInfo]:
        topics = [topic for topic in self.state.topics.values() if name in {"", topic.name}]
        sizes = (sum(held.size_bytes for held in self._store.holdings(topic.topic_id)) for topic in topics)
        return [topic.info(size) for topic, size in zip(topics, sizes, strict=True)]

    def _subscription_rows(self, name: str) -> list[p.SubscriptionRow]:
        return [
            p.SubscriptionRow(subscription.client, topic.describe(subscription))
            for topic in self.state.topics.values()
            if name in {"", topic.name}
            for subscription in topic.subscriptions.values()
        ]

    def statistics(self) -> dict[str, int]:
        """Numbers for people and dashboards."""
        return {
            **{f"count_{name}": number for name, number in sorted(self.counters.items())},
            "topics": len(self.state.topics),
            "subscriptions": len(self.state.subscriptions),
            "clients": len(self.state.clients),
            "parked_gets": len(self._parking),
            "channels_followed": len(self.channels),
            "staged_parts": len(self.state.parts),
            "staged_bytes": sum(part.size_bytes for part in self.state.parts.values()),
            "append_number": self.state.next_append_number - 1,
        }

    # --- parked gets -----------------------------------------------------------------------------------

    def _wake(self) -> list[Speech]:
        woken = self._parking.take_all() if self._wake_all else self._parking.take_waiting_for(self._touched)
        self._touched.clear()
        self._wake_all = False
        return [speech for entry in woken for speech in self._look_again(entry)]

    def _look_again(self, entry: Parked) -> list[Speech]:
        """Serve a parked Get, refuse it if it lost its right, or let it wait on."""
        client = self.state.clients.get(entry.client)
        if client is None or client.session != entry.packet.session:
            return [Send(entry.to, refusal(Code.FENCED if client is not None else Code.NO_SESSION))]
        for want in entry.packet.wants:
            found = check_want(self.state, client, want, entry.packet.authority)
            if isinstance(found, No):
                return [Send(entry.to, refusal(found.code, expected=found.expected))]
        delivery = deliver(self.state, entry.to, entry.packet)
        if delivery.ranges or delivery.splice is not None or any(part.offset < part.low for part in delivery.parts):
            return [delivery]
        self._parking.add(entry)
        return []

    def _expire(self, now: Instant) -> list[Deliver]:
        return [deliver(self.state, entry.to, entry.packet) for entry in self._parking.take_due(now.ticks_ms)]

    def _count(self, effects: Effects) -> Effects:
        for speech in effects.speech:
            if isinstance(speech, Send):
                if isinstance(speech.packet, p.Refused):
                    self.counters[f"refused_{speech.packet.code}"] += 1
                elif isinstance(speech.packet, p.PutDone):
                    self.counters["duplicates" if speech.packet.duplicate else "puts"] += 1
        return effects


def _client_row(client: ClientState) -> p.ClientRow:
    return p.ClientRow(
        client.name,
        client.session,
        client.ephemeral,
        len(client.streams),
        client.streams[client.session].last,
        len(client.subscriptions),
    )

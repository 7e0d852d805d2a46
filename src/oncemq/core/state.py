# SPDX-License-Identifier: Apache-2.0
"""The broker's durable state: a fold over records, and nothing else.

May not: be changed by anything but `apply`. Live and in recovery alike, the same function over the same records.
The idea: topics, clients and starts in dictionaries, small enough to be written whole into a snapshot.
Next: core/broker.py, which decides which records there shall be.
"""

from __future__ import annotations

import hashlib
from typing import assert_never

import msgspec
from crc32c import crc32c

from oncemq.core import records
from oncemq.core.origins import LOG_BIT, Origins, OriginsDump
from oncemq.core.packets import NOBODY, CommittedRange
from oncemq.core.parts import (
    NO_ROWS,
    Part,
    PartDump,
    Query,
    QueryDump,
    Splice,
    Storage,
    dump_part,
    dump_query,
    publisher_of,
    restore_part,
    restore_query,
    stream_of,
)
from oncemq.core.streams import ClientDump, ClientState, Kept, Stream, dump_client, restore_client
from oncemq.core.topics import Subscription, Topic, TopicDump, dump_topic, restore_topic
from oncemq.errors import invariant


class Start(msgspec.Struct, frozen=True, array_like=True):
    """From this append number on, the log was written by that start."""

    start_id: bytes
    first_append_number: int


class Dump(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot of everything below."""

    starts: tuple[Start, ...]
    next_append_number: int
    append_time_us: int
    ids_given: int
    topics: tuple[TopicDump, ...]
    clients: tuple[ClientDump, ...]
    parts: tuple[PartDump, ...] = ()
    queries: tuple[QueryDump, ...] = ()
    origins: OriginsDump = OriginsDump()


class BrokerState:
    """Everything a broker must remember."""

    def __init__(self) -> None:
        self.starts: list[Start] = []
        self.next_append_number = 1
        self.append_time_us = 0
        self.ids_given = 0
        self.topics: dict[int, Topic] = {}
        self.topic_ids: dict[str, int] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.clients: dict[str, ClientState] = {}
        self.sessions: dict[bytes, ClientState] = {}
        """Current sessions only: every state-changing packet is checked against this by equality."""
        self.parts: dict[bytes, Part] = {}
        """Staged and not committed."""
        self.queries: dict[str, Query] = {}
        self.origins = Origins()
        """What a node of a mesh has of every origin; empty at a broker that is none."""

    # --- questions ---------------------------------------------------------------------------------

    @property
    def start_id(self) -> bytes:
        return self.starts[-1].start_id if self.starts else NOBODY

    def topic_named(self, name: str) -> Topic | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def fresh_id(self, ahead: int = 0) -> int:
        """Return an id no topic or subscription ever had, not even in a history this broker was set back from."""
        seed = self.start_id + (self.ids_given + ahead).to_bytes(8, "little")
        return int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "little") >> 1 or 1

    def belongs(self, start_id: bytes, append_number: int) -> bool:
        """Whether this log gave that append number during that start (R1)."""
        for index, start in enumerate(self.starts):
            if start.start_id == start_id:
                last = index + 1 == len(self.starts)
                end = self.next_append_number if last else self.starts[index + 1].first_append_number
                return start.first_append_number <= append_number < end
        return False

    def was_session(self, session: bytes) -> bool:
        """Whether that session was some client's, and a newer one took over."""
        return any(session in client.past for client in self.clients.values())

    # --- apply -------------------------------------------------------------------------------------

    def apply(self, record: records.Record) -> None:  # noqa: PLR0912 - one line per record, nothing else
        match record:
            case records.Stored():
                self._stored(record)
            case records.CursorMoved(subscription_id, cursor):
                if subscription_id in self.subscriptions:
                    self.subscriptions[subscription_id].cursor = cursor
            case records.Trimmed(topic_id, low):
                self._trimmed(topic_id, low)
            case records.Staged():
                self._staged(record)
            case records.StagedCommitted():
                self._staged_committed(record)
            case records.StagedReleased(query, parts, is_forgotten):
                for part in parts:
                    del self.parts[part]
                if is_forgotten:
                    del self.queries[query]
            case records.PutRefused():
                outcome = Kept(record.first_number, record.numbers, record.block_crc, record.code, ())
                self.clients[record.client].streams[record.stream].settle(outcome)
            case records.Transacted(client, stream, number, crc, moves):
                self.clients[client].streams[stream].settle(Kept(number, 1, crc, "", ()))
                for move in moves:
                    self.subscriptions[move.subscription_id].cursor = move.end
            case records.SessionOpened():
                self._session_opened(record)
            case records.SessionClosed() | records.Moved():
                pass
            case records.ClientForgotten(name):
                self._client_forgotten(name)
            case records.CommandSettled(client, session, command, reply):
                self._command_settled(client, session, command, reply)
            case records.TopicCreated():
                self._topic_created(record)
            case records.TopicDeleted(topic_id):
                self._topic_deleted(topic_id)
            case records.Subscribed():
                self._subscribed(record)
            case records.Unsubscribed(subscription_id):
                self._unsubscribed(subscription_id)
            case records.AuthorityFixed(subscription_id, authority):
                self.subscriptions[subscription_id].authority = authority
            case records.BaselineTaken(entries):
                self.origins.adopt(entries)
            case records.Lost():
                self._lost(record)
            case records.Started(start_id, first_append_number):
                self.starts.append(Start(start_id, first_append_number))
                self.ids_given = 0
            case _:
                assert_never(record)

    def _stored(self, record: records.Stored) -> None:
        self._appended(record.append_number, 1, record.append_time_us)
        for placement in record.placements:
            if placement.first_offset >= 0:
                topic = self.topics[placement.topic_id]
                invariant(placement.first_offset == topic.end, "offsets have no gaps", topic=topic.name)
                topic.end = placement.first_offset + record.count
        if record.origin is not None:
            self.origins.took(record.origin)
            if record.stream == NOBODY:
                return  # It was put at another node: whose put it was is that node's business.
        numbers = record.count * len(record.placements)
        outcome = Kept(record.first_number, numbers, record.block_crc, "", record.placements)
        self.clients[record.publisher].streams[record.stream].settle(outcome)

    def _trimmed(self, topic_id: int, low: int) -> None:
        if topic_id & LOG_BIT:
            self.origins.trim(topic_id, low)
        else:
            self.topics[topic_id].trim(low)

    def _lost(self, record: records.Lost) -> None:
        """One offset of each topic stands for what nobody has; whoever comes to it is told a gap."""
        self._appended(record.append_number, 1, record.append_time_us)
        self.origins.give_up(record)
        for placement in record.placements:
            topic = self.topics[placement.topic_id]
            invariant(placement.first_offset == topic.end, "offsets have no gaps", topic=topic.name)
            place = (topic.end, topic.end + 1, NO_ROWS, record.append_number, record.append_time_us, record.start_id)
            topic.splices.append(Splice(*place, NOBODY, 0, ""))
            topic.end += 1

    def _staged(self, record: records.Staged) -> None:
        self._appended(record.append_number, 1, record.append_time_us)
        part = self.parts.get(record.part)
        if part is None:
            part = self.parts[record.part] = Part(record.storage_id, record.query, record.batch)
            self.ids_given += 1
        invariant(record.chunk == part.chunks + 1, "chunks of a part have no gaps", part=record.part.hex())
        part.chunks, part.rows = record.chunk, part.rows + record.count
        part.size_bytes += record.block_bytes
        part.crc, part.last_crc = crc32c(record.block_crc.to_bytes(4, "little"), part.crc), record.block_crc

    def _staged_committed(self, record: records.StagedCommitted) -> None:
        """Splice the parts into their topics, and release what the batch and those before it left behind."""
        stream, publisher, number = stream_of(record.query), publisher_of(record.query), record.first_number
        append_number = record.append_number
        for entry in record.parts:
            part, topic = self.parts.pop(entry.part), self.topics[entry.topic_id]
            invariant(entry.first_offset == topic.end, "offsets have no gaps", topic=topic.name)
            topic.end += part.rows
            place = (entry.first_offset, topic.end, part.storage_id, append_number, record.append_time_us, record.start_id)
            topic.splices.append(Splice(*place, stream, number, publisher))
            append_number, number = append_number + part.chunks, number + part.rows
        self._appended(record.append_number, append_number - record.append_number, record.append_time_us)
        self.parts = {name: part for name, part in self.parts.items() if part.query != record.query or part.batch > record.batch}
        ranges = tuple(CommittedRange(each.topic_id, each.first_offset, each.rows) for each in record.topics)
        self.queries[record.query] = Query(record.batch, number, record.is_once, ranges)

    def _appended(self, append_number: int, count: int, time_us: int) -> None:
        invariant(append_number == self.next_append_number, "append numbers have no gaps", got=append_number)
        self.next_append_number = append_number + count
        self.append_time_us = time_us

    @property
    def storages(self) -> dict[int, Storage]:
        """The rows that are still needed of every storage id: of parts all, of splices what their topic has not trimmed."""
        found = {part.storage_id: Storage(f"(staged by {part.query})", 0, part.rows) for part in self.parts.values()}
        for topic in self.topics.values():
            for splice in topic.splices:
                name = f"{topic.name} (rows of a part, from offset {splice.first} on)"
                found[splice.storage_id] = Storage(name, max(0, topic.low - splice.first), splice.end - splice.first)
        found.pop(NO_ROWS, None)
        return found | {log.log_id: Storage(log.name, log.low, log.end) for log in self.origins}

    def storage_lows(self) -> dict[int, int]:
        """The lowest of those rows by storage id: asked for once a second, so nothing else is made."""
        lows = {part.storage_id: 0 for part in self.parts.values()} | {log.log_id: log.low for log in self.origins}
        for topic in self.topics.values():
            low = topic.low
            lows.update((splice.storage_id, max(0, low - splice.first)) for splice in topic.splices)
        return lows

    def _session_opened(self, record: records.SessionOpened) -> None:
        client = self.clients.get(record.client)
        if client is None:
            client = ClientState(record.client, record.session, ephemeral=record.ephemeral, opened_us=record.wall_us)
            client.streams |= {stream: Stream() for stream in record.kept}
            self.clients[record.client] = client
        else:
            self.sessions.pop(client.session, None)
            client.open_session(record.session, record.kept, record.wall_us)
        client.past.extend(session for session in record.known if session not in client.past)
        self.sessions[record.session] = client

    def _client_forgotten(self, name: str) -> None:
        client = self.clients.pop(name)
        self.sessions.pop(client.session, None)
        invariant(not client.subscriptions, "a client is forgotten after its subscriptions", client=name)

    def _command_settled(self, name: str, session: bytes, command: int, reply: bytes) -> None:
        client = self.clients.get(name)
        if client is not None and client.session == session:
            client.command, client.reply = command, reply

    def _topic_created(self, record: records.TopicCreated) -> None:
        topic = Topic(record.topic_id, record.name, explicit=record.explicit, retain=record.retain, limit=record.limit)
        self.topics[record.topic_id] = topic
        self.topic_ids[record.name] = record.topic_id
        self.ids_given += 1

    def _topic_deleted(self, topic_id: int) -> None:
        topic = self.topics.pop(topic_id)
        del self.topic_ids[topic.name]
        for subscription in topic.subscriptions.values():
            del self.subscriptions[subscription.subscription_id]
            del self.clients[subscription.client].subscriptions[topic_id]

    def _subscribed(self, record: records.Subscribed) -> None:
        subscription = Subscription(record.subscription_id, record.topic_id, record.client, record.authority, record.start_offset)
        self._link(self.topics[record.topic_id], subscription)
        self.ids_given += 1

    def _link(self, topic: Topic, subscription: Subscription) -> None:
        topic.subscriptions[subscription.subscription_id] = subscription
        self.subscriptions[subscription.subscription_id] = subscription
        self.clients[subscription.client].subscriptions[topic.topic_id] = subscription.subscription_id

    def _unsubscribed(self, subscription_id: int) -> None:
        subscription = self.subscriptions.pop(subscription_id)
        del self.topics[subscription.topic_id].subscriptions[subscription_id]
        del self.clients[subscription.client].subscriptions[subscription.topic_id]

    # --- snapshots ---------------------------------------------------------------------------------

    def dump(self) -> bytes:
        """Write the whole state down."""
        state = Dump(
            tuple(self.starts),
            self.next_append_number,
            self.append_time_us,
            self.ids_given,
            tuple(map(dump_topic, self.topics.values())),
            tuple(map(dump_client, self.clients.values())),
            tuple(dump_part(name, part) for name, part in self.parts.items()),
            tuple(dump_query(name, query) for name, query in self.queries.items()),
            self.origins.dump(),
        )
        return msgspec.msgpack.encode(state)

    def restore(self, state: bytes) -> None:
        """Become what was written down; empty bytes are a new log."""
        self.__init__()  # type: ignore[misc]
        if not state:
            return
        dump = msgspec.msgpack.decode(state, type=Dump)
        self.starts = list(dump.starts)
        self.next_append_number = dump.next_append_number
        self.append_time_us, self.ids_given = dump.append_time_us, dump.ids_given
        self.parts = {entry.part: restore_part(entry) for entry in dump.parts}
        self.queries = {entry.query: restore_query(entry) for entry in dump.queries}
        self.origins.restore(dump.origins)
        for client in map(restore_client, dump.clients):
            self.clients[client.name] = client
            self.sessions[client.session] = client
        for topic in map(restore_topic, dump.topics):
            self.topics[topic.topic_id] = topic
            self.topic_ids[topic.name] = topic.topic_id
            for subscription in list(topic.subscriptions.values()):
                self._link(topic, subscription)

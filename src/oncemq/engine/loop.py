# SPDX-License-Identifier: Apache-2.0
"""The broker's loop: drain → decide and apply → append → sync → speak. The order is the promise.

May not: say anything before the sync of its drain, refusals included; go on after a failed write or sync.
The idea: everything that arrived while the last sync ran is decided now and shares the next one (group commit).
Between two drains all applied state is synced: that is when trimming and snapshots are safe.
Next: core/broker.py for the decisions, journal/journal.py for append and sync.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import msgspec

from oncemq.core import packets as p
from oncemq.core import records
from oncemq.core.broker import BrokerMachine
from oncemq.core.effects import Deliver, Effects, Publish, Report, Send, Sender, Speech, Stop, refusal, refuse
from oncemq.core.packets import Packet, Part
from oncemq.core.parts import NO_ROWS, Splice
from oncemq.core.state import BrokerState
from oncemq.crashpoints import reach
from oncemq.engine.live import publish
from oncemq.engine.mesh import MeshSide, MeshTerms
from oncemq.engine.patience import Patience
from oncemq.errors import DiskFull, MalformedPacket
from oncemq.journal.codec import append_number_of, decode_delivery, spliced_delivery
from oncemq.journal.journal import Journal, JournalSettings
from oncemq.journal.reading import DamagedRead
from oncemq.limits import (
    CLEAN_PAUSE_MS,
    CLEAN_SLICE_BYTES,
    DRAIN_BYTES_MAX,
    DRAIN_PACKETS_MAX,
    MESH_LEAVE_MS,
    RECORD_ROOM_BYTES,
    STAGED_PART_BYTES,
)
from oncemq.model.names import EPHEMERAL_PREFIX
from oncemq.model.refusals import Code
from oncemq.model.retention import readable
from oncemq.ports import Clock, Disk, Entropy, Frames, Instant, Network
from oncemq.wire.codec import decode_from_client, encode, request_of

log = logging.getLogger("oncemq.broker")

_IDLE_MS_MAX = 1_000
_STARVED_MS = 50
_LEAVING_MS = 100
_TOLD = (records.TopicCreated, records.TopicDeleted, records.SessionOpened, records.ClientForgotten, records.Subscribed)
"""Facts worth a line in the log."""


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A packet that could be read, and its block."""

    sender: Sender
    packet: Packet
    block: bytes | memoryview


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """How a broker keeps things. `retain` and `limit` are for topics that a subscription creates."""

    journal: JournalSettings
    retain: str = ""
    limit: str = ""
    version: str = ""


class BrokerLoop:
    """One broker: its machine, its journal, and the ports they speak through."""

    def __init__(self, machine: BrokerMachine, journal: Journal, network: Network, clock: Clock) -> None:
        self.machine = machine
        self.journal = journal
        self._network = network
        machine.live_address = network.live_address
        self._clock = clock
        self.mesh: MeshSide | None = None
        """Set if this broker is a node of a mesh."""
        self._has_mesh_room = True
        self._stopping = False
        self._missed_bytes = 0
        self._is_starved = False
        self._is_cleaning = False
        self._patience = Patience()
        self._clean_due_ms = self._cleaned_at_bytes = 0
        self._records: list[records.Record] = []
        self._speech: list[Speech] = []

    @classmethod
    def open(
        cls,
        disk: Disk,
        network: Network,
        clock: Clock,
        entropy: Entropy,
        settings: BrokerSettings,
        mesh: MeshTerms | None = None,
    ) -> BrokerLoop:
        """Recover what is on the disk and write down that a new life began, synced, before anything is served."""
        state, start_id = BrokerState(), entropy.id16()
        journal = Journal.open(disk, start_id=start_id, new_log_id=entropy.id16(), state=state, settings=settings.journal)
        for missing in journal.missing:
            log.error("%s is missing, and with it %s: whoever wants them is told Damaged", missing.file, missing)
        machine = BrokerMachine(state, journal, journal.log_id, retain=settings.retain, limit=settings.limit)
        loop = cls(machine, journal, network, clock)
        try:
            control = machine.control_bytes()
            if journal.prepare(control, 1, control=True) < control:
                raise DiskFull("starting the broker: not even the reserve is left")
            if mesh is not None:
                loop.mesh = MeshSide(machine, journal, disk, mesh)
            loop._take(machine.start(clock.now(), start_id, settings.version))
            if loop.mesh is not None:
                loop.mesh.start(clock.now(), loop._take)
            loop._write()
        except BaseException:
            loop.abandon()
            raise
        _tell_start(journal, state)
        if mesh is None and state.origins.has_baseline:
            log.warning("this was a node of a mesh, and is started without --mesh: what is put here now reaches no other node")
        return loop

    # --- one drain -------------------------------------------------------------------------------------

    def step(self, wait_ms_max: int = _IDLE_MS_MAX) -> bool:
        """Run one drain, waiting up to `wait_ms_max` for something to do; False once the broker has stopped."""
        due_ms = self.machine.next_due_ms() if self.mesh is None else min(self.machine.next_due_ms(), self.mesh.due_ms)
        due_in_ms = due_ms - self._clock.now().ticks_ms
        if self._is_starved:
            due_in_ms = max(due_in_ms, _STARVED_MS)  # What is due cannot be written: do not spin on it.
        elif self._is_cleaning:
            due_in_ms = min(due_in_ms, CLEAN_PAUSE_MS)
        if due_in_ms > 0:
            self._network.wait(min(due_in_ms, wait_ms_max))
        arrived = self._drain()
        has_heard = self.mesh is not None and self.mesh.drain()
        if arrived or has_heard:
            reach("broker.after_receive")
        now = self._clock.now()
        if self.mesh is not None:
            self.mesh.now = now
        if self.machine.is_tidy_due(now):
            self.journal.trim(self.machine.lows())
            self._is_cleaning = True
        if self._is_cleaning:
            self._clean(now)
        for channel, is_followed in self._network.followings():
            self.machine.channels.note(self.machine.state.topics, channel, is_followed=is_followed)
        self._make_room(arrived)
        if not self._is_starved:
            self._take(self.machine.tidy(now))
        for entry in arrived:
            self._take(self._decide(now, entry))
        if self.mesh is not None:
            self.mesh.run(self._take, has_room=self._has_mesh_room)
            self.mesh.settle(self._take, has_room=self._has_mesh_room)
        self._take(self.machine.settle(now, has_records=bool(self._records), may_write=not self._is_starved))
        self._write()
        self._speak()
        return not self._stopping

    def stop(self) -> None:
        """End cleanly: what is known is written, synced and snapshotted; those who wait are told."""
        control = self.machine.control_bytes()
        has_room = self.journal.prepare(control, 1, control=True) >= control
        self._take(self.machine.last_words(may_write=has_room))
        self._write()
        self._speak()
        if self.mesh is not None:
            self.mesh.remember()
        self.journal.close()
        log.info("stopped cleanly")

    def depart(self, patience_ms: int = MESH_LEAVE_MS) -> bool:
        """Leave the mesh in good order: go on until a neighbour has what this node has (R27); False if that took too long."""
        if self.mesh is None or not self.mesh.node.membership.active:
            return True
        self.machine.is_leaving = True
        due_ms = self._clock.now().ticks_ms + patience_ms
        self.mesh.leave(self._clock.now(), self._take)
        while not self._is_free() and self._clock.now().ticks_ms < due_ms:
            self.step(_LEAVING_MS)
        return self.mesh.has_left or self.mesh.goes_with_all

    def _is_free(self) -> bool:
        """Whether nothing is left to wait for before going."""
        return self.mesh is None or self.mesh.has_left or self.mesh.goes_with_all or self.mesh.is_alone

    def abandon(self) -> None:
        """Let go of the directory after a failure, without writing: what is on the disk is all that counts now."""
        self.journal.close(clean=False)

    def _drain(self) -> list[Arrived]:
        """Take what is waiting, up to the bounds of one drain; what cannot be read is refused, and counts as well."""
        arrived: list[Arrived] = []
        packets = size_bytes = 0
        while packets < DRAIN_PACKETS_MAX and size_bytes < DRAIN_BYTES_MAX:
            received = self._network.receive()
            if received is None:
                break
            address, frames = received
            packets += 1
            size_bytes += sum(map(len, frames))
            try:
                request, packet, block = decode_from_client(frames)
            except MalformedPacket as problem:
                self._on_malformed(address, frames, problem)
                continue
            arrived.append(Arrived(Sender(address, request), packet, block))
        return arrived

    def _on_malformed(self, address: bytes, frames: Frames, problem: MalformedPacket) -> None:
        """Refuse what has at least a head; be silent to what is not even a packet."""
        self.machine.counters[f"malformed_{problem.code}"] += 1
        log.debug("unreadable packet: %s", problem.reason)
        request = request_of(frames)
        if frames and len(frames[0]) >= 8:
            self._speech.append(Send(Sender(address, request), refusal(Code(problem.code), detail=problem.reason[:200])))

    def _decide(self, now: Instant, entry: Arrived) -> Effects:
        """Decide a packet; without any room left, only what needs nothing written goes on."""
        effects = self.machine.decide(now, entry.sender, entry.packet, entry.block)
        return refuse(entry.sender, Code.DISK_FULL) if self._is_starved and effects.records else effects

    def _clean(self, now: Instant) -> None:
        """Let the journal move a slice: now and then, and under load twice what was put meanwhile, so that it keeps up."""
        written = self.journal.bytes_put - self._cleaned_at_bytes
        if now.ticks_ms < self._clean_due_ms and written < CLEAN_SLICE_BYTES:
            return
        self._is_cleaning = self.journal.clean(self.machine.lows(), min(max(CLEAN_SLICE_BYTES, 2 * written), DRAIN_BYTES_MAX))
        self._clean_due_ms = now.ticks_ms + CLEAN_PAUSE_MS
        self._cleaned_at_bytes = self.journal.bytes_put

    def _make_room(self, arrived: list[Arrived]) -> None:
        """Have space allocated before anything is admitted: what is applied must fit (R14).

        On a full disk puts get what the active segment still holds, and everything else goes on from the reserve. When even
        that is used up the broker is starved: it reads and delivers, and writes nothing.
        """
        machine, journal = self.machine, self.journal
        small = machine.control_bytes() + sum(RECORD_ROOM_BYTES + _weight(entry.packet) for entry in arrived)
        mesh_bytes, mesh_records = self.mesh.room() if self.mesh is not None else (0, 0)
        needed = small + sum(len(entry.block) for entry in arrived) + mesh_bytes
        room = journal.prepare(needed, len(arrived) + mesh_records)
        is_full = room < needed
        self._has_mesh_room = not is_full
        self._is_starved = is_full and journal.prepare(small, len(arrived), control=True) < small
        self._tell_space(needed if is_full else 0, room)
        if is_full:
            room, mesh_bytes = journal.prepare(0, 0), 0
        machine.room_bytes = max(0, room - small - mesh_bytes)

    def _tell_space(self, missed_bytes: int, room_bytes: int) -> None:
        """Log when the disk fills up and when it is over: when what did not fit would fit, not when something smaller does."""
        if missed_bytes and not self._missed_bytes:
            log.warning("disk full: puts are refused until there is space")
        elif self._missed_bytes and room_bytes >= self._missed_bytes:
            log.warning("space is back: puts are taken")
            self._missed_bytes = 0
        self._missed_bytes = missed_bytes or self._missed_bytes

    def _take(self, effects: Effects) -> None:
        """Apply at once; remember what to write and to say."""
        for record in effects.records:
            if isinstance(record, _TOLD):
                log.log(_level(record), "%s", describe(record, self.machine.state))
            self.machine.apply(record)
            self._records.append(record)
            if self.mesh is not None and type(record) is records.Stored:
                self.mesh.put(record, self._take)
        self._speech.extend(effects.speech)

    def _write(self) -> None:
        """One write and one sync for the whole drain; any failure ends the process (SyncFailed)."""
        if not self._records:
            return
        reach("broker.before_append")
        self.journal.append(self._records)
        reach("broker.after_append")
        self.journal.sync()
        reach("broker.after_sync")
        self._records.clear()

    def _speak(self) -> None:
        """Say everything this drain had to say. All of it is synced."""
        speech, self._speech = self._speech, []
        for entry in speech:
            match entry:
                case Send(to, packet):
                    self._network.send(to.address, [encode(to.request, packet)])
                case Deliver():
                    self._deliver(entry)
                case Publish():
                    self._publish(entry)
                case Report(to, is_mesh):
                    report = self.mesh.status() if is_mesh and self.mesh is not None else self._report()
                    self._network.send(to.address, [encode(to.request, report)])
                case Stop():
                    self._stopping = True
            reach("broker.between_answers")
        if speech:
            reach("broker.after_answers")
        if self.mesh is not None:
            self.mesh.speak()

    def _deliver(self, delivery: Deliver) -> None:
        parts = delivery.parts
        try:
            found = self._read(delivery)
        except DamagedRead as damage:
            self._tell_damage(damage)
            if self._patience.may_pass(self._clock.now().ticks_ms, damage):
                self.machine.counters["refused_reads"] += 1
                return  # Whoever asked asks again.
            self.machine.counters["damaged_reads"] += 1
            found, parts = [], tuple(_mark_damaged(part, damage) for part in parts)
        header = encode(delivery.to.request, p.Blocks(parts, delivery.through if not found else 0, self.machine.state.start_id))
        self._network.send(delivery.to.address, [header, found[0] if len(found) == 1 else b"".join(found)])

    def _tell_damage(self, damage: DamagedRead) -> None:
        topic = self.machine.state.topics.get(damage.topic_id)
        name = repr(topic.name) if topic is not None else damage.topic_id
        log.error("cannot read messages %d to %d of topic %s: %s", damage.first, damage.end - 1, name, damage.reason)

    def _publish(self, entry: Publish) -> None:
        pushed = publish(self._network, self.journal, self.machine.state.start_id, entry)
        self.machine.counters["live_packets"] += pushed.packets
        self.machine.counters["live_blocks"] += pushed.blocks

    def _read(self, delivery: Deliver) -> list[bytes]:
        """Read what comes next in append order: blocks of the topics' own, or rows of a splice made to look like such."""
        found = self.journal.read(delivery.ranges, delivery.bytes_max) if delivery.ranges else []
        if not delivery.horizon:
            return found
        found = [block for block in found if append_number_of(block) < delivery.horizon]
        if not found and delivery.splice is not None:
            found = self._read_rows(delivery.spliced_topic_id, delivery.splice, delivery.spliced, delivery.bytes_max)
        if len(delivery.parts) == 1:
            self._read_on(delivery, found)
        return found

    def _read_rows(self, topic_id: int, splice: Splice, rows: tuple[int, int], bytes_max: int) -> list[bytes]:
        try:
            found = self.journal.read([(splice.storage_id, *rows)], bytes_max)
        except DamagedRead as damage:
            raise type(damage)(topic_id, splice.first + damage.first, splice.first + damage.end, damage.reason) from damage
        return [spliced_delivery(row, splice, topic_id) for row in found]

    def _read_on(self, delivery: Deliver, found: list[bytes]) -> None:
        """Go on in one topic through its following runs, small parts of small batches perhaps, as long as they fit."""
        topic = self.machine.state.topics.get(delivery.parts[0].topic_id)
        left = delivery.bytes_max - sum(map(len, found))
        while topic is not None and found and left > 0:
            last = decode_delivery(found[-1], 0)[0]
            at = last.first_offset + last.count
            if at >= delivery.end:
                return
            piece = topic.piece(at, delivery.end)
            try:
                if piece.splice is not None and piece.splice.storage_id == NO_ROWS:
                    return  # A gap: told to whoever comes to it.
                if piece.splice is None:
                    more = self.journal.read([(topic.topic_id, piece.first, piece.end)], left)
                else:
                    rows = (piece.first - piece.splice.first, piece.end - piece.splice.first)
                    more = self._read_rows(topic.topic_id, piece.splice, rows, left)
            except DamagedRead:
                return  # Told when it is asked for.
            left -= sum(map(len, more))
            if left < 0 or not more:
                return
            found += more

    def _report(self) -> p.StatsDone:
        journal = self.journal.statistics()
        values = self.machine.statistics() | {
            "network_dropped": self._network.dropped,
            "journal_bytes": journal.size_bytes,
            "journal_segments": journal.segments,
            "journal_groups": journal.groups_appended,
            "journal_syncs": journal.syncs,
            "journal_bytes_appended": journal.bytes_appended,
            "journal_bytes_moved": journal.bytes_moved,
            "journal_segments_cleaned": journal.segments_cleaned,
        }
        mesh = self.mesh.statistics() if self.mesh is not None else {}
        return p.StatsDone(self.machine.log_id, self.machine.state.start_id, values | mesh)


def _weight(packet: Packet) -> int:
    """How many bytes a packet may cost in the journal at most, besides its block and what every record costs."""
    match packet:
        case p.Put():
            return 32 * len(packet.topics) + sum(map(len, packet.topics))
        case p.Transact():
            names = [name for put in packet.puts for name in put.topics]
            topics = 32 * len(names) + sum(map(len, names))
            return RECORD_ROOM_BYTES * len(packet.puts) + topics + 128 * len(packet.acks)
        case p.CommitStaged():
            return STAGED_PART_BYTES * packet.parts
        case p.Hello():
            return 20 * (len(packet.pending) + len(packet.known))
        case p.Get():
            return 128 * len(packet.wants)
        case _:
            return 0


def _mark_damaged(part: Part, damage: DamagedRead) -> Part:
    if part.topic_id != damage.topic_id:
        return part
    return Part(part.topic_id, part.offset, part.low, part.end, damage.first, damage.end)


def _tell_start(journal: Journal, state: BrokerState) -> None:
    found = journal.statistics()
    log.info(
        "started: %d topics, %d subscriptions, %d segments, %d records of an unclean stop written again",
        len(state.topics),
        len(state.subscriptions),
        found.segments,
        found.tail_records_rewritten,
    )


def _level(record: records.Record) -> int:
    """Clients without an id come and go with every command: not worth a line for people."""
    if isinstance(record, records.SessionOpened | records.ClientForgotten) and record.client.startswith(EPHEMERAL_PREFIX):
        return logging.DEBUG
    return logging.INFO


def describe(record: records.Record, state: BrokerState) -> str:
    """A record as a line of the log, before it is applied to that state."""
    match record:
        case records.TopicCreated():
            return f"topic {record.name!r} created" + (f", retain {readable(record.retain)}" if record.retain else "")
        case records.TopicDeleted():
            return f"topic {state.topics[record.topic_id].name!r} deleted"
        case records.SessionOpened():
            return f"client {record.client!r} opened session {record.session.hex()[:8]}"
        case records.ClientForgotten():
            return f"client {record.client!r} forgotten"
        case records.Subscribed():
            topic = state.topics[record.topic_id].name
            return f"client {record.client!r} subscribed to {topic!r} from offset {record.start_offset}"
        case _:
            return type(record).__name__

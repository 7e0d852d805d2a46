# SPDX-License-Identifier: Apache-2.0
"""The mesh side of a node's loop: hears other nodes, has their messages written with everything else, and speaks after the sync.

May not: say anything before the sync of its drain; wait for a neighbour; take what the journal has no room for.
The idea: the machine (mesh/node.py) lives in the broker's one loop. What it hears in a drain becomes records of the same group as
the puts of clients, one sync covers both, and only then are neighbours told (R24). Those who catch up are served from the
journal a slice per drain, as fast as they take it. A neighbour whose queue is full is expelled, and catches up later.
Next: engine/loop.py, which calls; mesh/journaling.py for the records.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from oncemq.core import records
from oncemq.core.broker import BrokerMachine
from oncemq.core.effects import Effects
from oncemq.core.mesh_packets import MeshNeighbour, MeshOrigin, MeshStatusDone
from oncemq.core.origins import MeshRetention
from oncemq.core.packets import NOBODY
from oncemq.crashpoints import reach
from oncemq.engine.patience import Patience
from oncemq.errors import MalformedPacket
from oncemq.journal.codec import BadRecord, decode, unmoved
from oncemq.journal.journal import Journal
from oncemq.journal.reading import DamagedRead
from oncemq.journal.segment import NEW, write_new
from oncemq.limits import (
    DRAIN_BYTES_MAX,
    DRAIN_PACKETS_MAX,
    MESH_MEMORY_MS,
    MESH_SERVE_BYTES,
    MESH_SERVE_MESSAGES,
    MESH_SERVES_MAX,
    MESH_TELL_WAITING_MS,
    RECORD_ROOM_BYTES,
)
from oncemq.mesh.arrivals import weight_of
from oncemq.mesh.effects import Down, MeshEffects, Send, Serve, Speech, TellGap, Up
from oncemq.mesh.journaling import StoredLogs, node_state, range_of, record_of, spread_of
from oncemq.mesh.node import Life, MeshNode
from oncemq.mesh.packets import Address, Baseline, Denied, MeshPacket, Origin, Range, Reason, Spread
from oncemq.mesh.settings import MeshSettings
from oncemq.ports import Dice, Disk, Frames, Instant, Links
from oncemq.wire.mesh_codec import apart
from oncemq.wire.mesh_codec import decode as decode_packet
from oncemq.wire.mesh_codec import encode as encode_packet

log = logging.getLogger("oncemq.mesh")

_SERVING_MS, _WAITING_MS = 2, 50
"""While somebody is being served the loop comes back this soon; or this, if nobody could take anything."""
_ENTRY_BYTES = 64
"""What an origin costs at most in the record of a baseline. measured: 47."""
_MEMORY = "mesh-members.json"
_MEMORY_BYTES_MAX = 1 << 20

Take = Callable[[Effects], None]
"""The loop's own: apply at once, write and say later."""


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A packet of another node."""

    sender: Address
    packet: MeshPacket
    block: bytes | memoryview


@dataclass(frozen=True, slots=True)
class MeshTerms:
    """What makes a broker a node: its links, whom it joins through, and how the mesh is run."""

    links: Links
    dice: Dice
    contacts: tuple[Address, ...] = ()
    settings: MeshSettings = field(default_factory=MeshSettings)


class MeshSide:
    """A broker's part in its mesh. Made after recovery, before the record of the start is written."""

    def __init__(self, machine: BrokerMachine, journal: Journal, disk: Disk, terms: MeshTerms) -> None:
        links, settings = terms.links, terms.settings
        self._logs = StoredLogs(machine.state)
        self.node = MeshNode(
            links.address, node_state(machine.state), self._logs, settings, terms.dice, terms.contacts, read_memory(disk)
        )
        machine.retention = MeshRetention(settings.retention_ms * 1000, settings.retention_bytes)
        self.now = Instant(0, 0)
        """The instant of this drain; set by the loop."""
        self._disk = disk
        self._is_news = False
        self._waiting: tuple[int, int] | None = None
        """Since when this node finds no mesh, and when to say so next."""
        self._memory_due_ms = 0
        self._patience_ms = settings.heartbeat_timeout_ms
        self._can_serve = False
        self._patience = Patience()
        self.counters: Counter[str] = Counter()
        self._machine = machine
        self._journal = journal
        self._links = links
        self._heard: list[Heard] = []
        self._speech: list[Speech] = []
        self._serving: deque[Serve] = deque()
        self._full_ms: dict[Address, int] = {}
        """Since when the queue to a node is full."""

    # --- one drain -------------------------------------------------------------------------------------

    @property
    def due_ms(self) -> int:
        """When the loop must come back even if nothing arrives."""
        if not self._serving:
            return self.node.due_ms
        return min(self.node.due_ms, self.now.ticks_ms + (_SERVING_MS if self._can_serve else _WAITING_MS))

    def drain(self) -> bool:
        """Take what other nodes sent, up to the bounds of one drain; say whether that was anything."""
        packets = size_bytes = 0
        while packets < DRAIN_PACKETS_MAX and size_bytes < DRAIN_BYTES_MAX:
            frames = self._links.receive()
            if frames is None:
                break
            size_bytes += sum(map(len, frames))
            for packet in apart(frames):
                packets += 1
                self._note_heard(packet)
        return packets > 0

    def _note_heard(self, frames: Frames) -> None:
        try:
            self._heard.append(Heard(*decode_packet(frames)))
        except MalformedPacket as problem:
            self.counters["malformed"] += 1
            log.debug("unreadable packet of a node: %s", problem.reason)

    def room(self) -> tuple[int, int]:
        """Bytes and records that this drain may need: what was heard, and what waits for it."""
        early = self.node.early
        spreads = [(heard.packet, heard.block) for heard in self._heard if isinstance(heard.packet, Spread)]
        blocks = early.size_bytes + sum(len(block) + weight_of(packet) for packet, block in spreads)
        gaps = 1 + self.node.antientropy.holes
        count = early.count + len(spreads) + gaps
        pieces = [heard.packet.entries for heard in self._heard if isinstance(heard.packet, Baseline)]
        baseline = _ENTRY_BYTES * (self.node.collected + sum(map(len, pieces)))
        return blocks + count * RECORD_ROOM_BYTES + baseline + 32 * gaps * len(self._machine.state.topics), count

    def start(self, now: Instant, take: Take) -> None:
        """Begin this life: what is said leaves with the first drain, after the record of the start is synced."""
        self.now = now
        self._carry_out(self.node.start(now.ticks_ms, self._machine.log_id, self._machine.state.start_id), take)

    def run(self, take: Take, *, has_room: bool) -> None:
        """Give the machine everything that happened; without room nothing is taken, and comes again by anti-entropy."""
        now_ms = self.now.ticks_ms
        for address in self._links.broken():
            self.counters["broken_links"] += 1
            self._let_go(address)
            self._carry_out(self.node.lost(now_ms, address), take)
        for address in [each for each, since_ms in self._full_ms.items() if now_ms - since_ms >= self._patience_ms]:
            self._let_go(address)  # The goodbye goes by a new link, past all that waits in this one.
            self.counters["expelled"] += address in self.node.membership.active
            self._carry_out(self.node.expel(now_ms, address), take)
        heard, self._heard = self._heard, []
        for each in heard:
            if self._is_welcome(each, has_room=has_room):
                self._carry_out(self.node.hear(now_ms, each.sender, each.packet, each.block), take)
        if now_ms >= self.node.due_ms:
            self._carry_out(self.node.tick(now_ms), take)

    def _let_go(self, address: Address) -> None:
        """Whatever waits for that node is dropped, and no more is read for it."""
        self._links.drop(address)
        self._full_ms.pop(address, None)
        self._serving = deque(serve for serve in self._serving if serve.to != address)

    def _is_welcome(self, heard: Heard, *, has_room: bool) -> bool:
        packet = heard.packet
        if not isinstance(packet, Spread):
            return has_room or not isinstance(packet, Baseline)
        if self._machine.state.origins.is_taken(packet.origin.node, packet.origin.start_id):
            self.counters["forged"] += 1
            return False
        self.counters["spreads_heard"] += 1
        self.counters["no_room"] += not has_room
        return has_room

    def put(self, record: records.Stored, take: Take) -> None:
        """A client put something here: tell it to the mesh once it is synced."""
        if record.origin is not None and record.stream != NOBODY:
            message = (record.topics, record.publisher, record.count, memoryview(record.block))
            self._carry_out(self.node.put(self.now.ticks_ms, *message, has_more=record.has_more), take)

    def settle(self, take: Take, *, has_room: bool) -> None:
        """End the drain: what follows from all that was applied."""
        if has_room:
            self._carry_out(self.node.settle(self.now.ticks_ms), take)

    def _carry_out(self, effects: MeshEffects, take: Take) -> None:
        for record in effects.records:
            written = record_of(self._machine.state, self.now, record)
            if written is not None:
                take(Effects((written,)))
            self.node.apply(record)
        self._speech.extend(effects.speech)

    # --- after the sync --------------------------------------------------------------------------------

    def speak(self) -> None:
        """Say everything this drain had to say to other nodes. All of it is synced."""
        speech, self._speech = self._speech, []
        for each in speech:
            match each:
                case Send(to, packet, block):
                    self._send(to, packet, block)
                    reach("mesh.between_packets")
                case Serve():
                    self._begin_to_serve(each)
                case Up(address):
                    self._is_news = True
                    log.info("neighbour %s", address)
                case Down(address, reason):
                    if reason is Reason.FAILED:
                        self._let_go(address)
                    log.info("no longer a neighbour: %s (%s)", address, reason.name.lower())
                case TellGap(origin, first, last):
                    log.error("messages %d to %d of node %s are lost for the mesh", first, last, origin.node.hex()[:8])
                case _:
                    pass  # Handed over by the topics of the broker.
        self._serve()
        self._tell_waiting()
        if self._is_news and self.now.ticks_ms >= self._memory_due_ms:
            self.remember()

    def _tell_waiting(self) -> None:
        """Say why a node does not get on, less and less often: who waits for it looks into its log."""
        node, now_ms = self.node, self.now.ticks_ms
        is_waiting = node.life is Life.JOINING or (not node.membership.active and bool(node.membership.contacts))
        if not is_waiting:
            if self._waiting is not None:
                log.info("in the mesh")
            self._waiting = None
        elif self._waiting is None:
            self._waiting = (now_ms, now_ms + MESH_TELL_WAITING_MS)
        elif now_ms >= self._waiting[1]:
            since_ms = self._waiting[0]
            self._waiting = (since_ms, now_ms + (now_ms - since_ms))
            log.warning("not in the mesh: %s", _reason(node))

    def _send(self, to: Address, packet: MeshPacket, block: bytes | memoryview = b"") -> None:
        frame = encode_packet(self._links.address, packet)
        is_spread = isinstance(packet, Spread)
        self.counters[f"sent_{type(packet).__name__.lower()}"] += 1
        if self._links.send(to, [frame, block] if is_spread else [frame]):
            self._full_ms.pop(to, None)
        else:  # It finds out by anti-entropy what it missed; if it takes nothing at all for long, it goes.
            self.counters["dropped"] += 1
            self._full_ms.setdefault(to, self.now.ticks_ms)

    def _begin_to_serve(self, serve: Serve) -> None:
        """A request takes the place of an earlier one for the same origin: whoever asks again has seen what came."""
        if serve.is_copy:
            rest = (each for each in self._serving if not each.is_copy or (each.to, each.origin) != (serve.to, serve.origin))
            self._serving = deque(rest)
        if len(self._serving) < MESH_SERVES_MAX:
            self._serving.append(serve)

    def _serve(self) -> None:
        """Read on for everybody who is being served, in turn: each gets a slice if it has taken the one before."""
        self._can_serve = False
        for _ in range(len(self._serving)):
            serve = self._serving.popleft()
            if self._links.room_bytes(serve.to) < 2 * MESH_SERVE_BYTES:
                self._serving.append(serve)
                continue
            self._can_serve = True
            next_number = self._serve_slice(serve)
            if next_number <= serve.last:
                self._serving.append(msgspec.structs.replace(serve, first=next_number))

    def _serve_slice(self, serve: Serve) -> int:
        """Send some of a range; return the number to go on with. What was trimmed meanwhile is denied when it is asked again."""
        held = self._logs.held(serve.origin, serve.first, serve.last)
        if not held:
            return serve.last + 1
        number, last = held[0]
        wanted = range_of(serve.origin, number, min(last, number + MESH_SERVE_MESSAGES - 1))
        try:
            for each in self._journal.read([wanted], MESH_SERVE_BYTES):
                stored = decode(unmoved(each), with_block=True)[0]
                if isinstance(stored, records.Stored):
                    self._send(serve.to, spread_of(stored, is_copy=serve.is_copy), bytes(stored.block))
                number += 1
        except DamagedRead as damage:
            return self._deny_damaged(serve, number, min(damage.end - 1, last), damage)
        except BadRecord as damage:
            return self._deny_damaged(serve, number, number, damage)
        return number

    def _deny_damaged(self, serve: Serve, first: int, last: int, damage: Exception) -> int:
        """Say that these cannot be had here, or whoever asks would wait for them for ever; return the number to go on with."""
        log.error("cannot serve messages of node %s: %s", serve.origin.node.hex()[:8], damage)
        if isinstance(damage, DamagedRead) and self._patience.may_pass(self.now.ticks_ms, damage):
            return last + 1
        self.counters["damaged_reads"] += 1
        if serve.is_copy:
            self._send(serve.to, Denied(Range(serve.origin, first, last), is_gone=True, is_final=False))
        return last + 1

    def remember(self) -> None:
        """Write down who is known: if every contact is gone at the next start, they are the way back."""
        self._is_news, self._memory_due_ms = False, self.now.ticks_ms + MESH_MEMORY_MS
        try:
            write_new(self._disk, _MEMORY, [msgspec.json.encode(self.node.membership.memory())])
            self._disk.rename(_MEMORY + NEW, _MEMORY)
        except OSError as problem:
            log.warning("cannot write down who is known: %s", problem)

    # --- the end ---------------------------------------------------------------------------------------

    def leave(self, now: Instant, take: Take) -> None:
        """Begin to leave: go on until a neighbour has all that we have."""
        self.now = now
        if self.node.life in {Life.JOINING, Life.MEMBER}:
            self._carry_out(self.node.leave(now.ticks_ms), take)

    @property
    def is_alone(self) -> bool:
        """No neighbour, and nobody is being asked: there is nobody to wait for."""
        membership = self.node.membership
        return not membership.active and membership.places >= membership.settings.active

    @property
    def goes_with_all(self) -> bool:
        """Every neighbour leaves too and has what we have, and nobody else is being asked: the whole mesh is being stopped."""
        membership = self.node.membership
        is_asking = membership.places + len(membership.active) < membership.settings.active
        return not is_asking and self.node.antientropy.is_covered_by_leavers()

    @property
    def has_left(self) -> bool:
        return self.node.life is Life.LEFT

    def statistics(self) -> dict[str, int]:
        """Numbers for people and dashboards."""
        membership = self.node.membership
        return {
            "mesh_neighbours": len(membership.active),
            "mesh_passive": len(membership.passive),
            "mesh_origins": len(self.node.state.had),
            "mesh_lost": self.node.state.given_up,
            "mesh_early": self.node.early.count,
            "mesh_serving": len(self._serving),
            **{f"mesh_count_{name}": number for name, number in sorted(self.all_counters().items())},
        }

    def status(self) -> MeshStatusDone:
        """All there is to say to people about this node's part in the mesh."""
        node, now_ms, seen = self.node, self.now.ticks_ms, self.node.seen
        neighbours = tuple(
            MeshNeighbour(address, max(0, now_ms - link.heard_ms), node.antientropy.phase_of(address).value)
            for address, link in node.membership.active.items()
        )
        logs = self._machine.state.origins
        origins = [(log, seen.pop(Origin(log.node, log.start_id), 0)) for log in logs]
        unknown = tuple(MeshOrigin(origin.node, origin.start_id, 1, 0, number) for origin, number in seen.items())
        return MeshStatusDone(
            node.membership.me,
            self._machine.log_id,
            self._machine.state.start_id,
            node.life.value,
            neighbours,
            tuple(node.membership.passive.ids),
            len(node.membership.reserve.cold),
            tuple(MeshOrigin(each.node, each.start_id, each.low, each.had, max(each.had, far)) for each, far in origins)
            + unknown,
            node.state.given_up,
            node.early.count,
            dict(sorted(self.all_counters().items())),
        )

    def all_counters(self) -> Counter[str]:
        return self.counters + self.node.counters + self.node.membership.counters


def _reason(node: MeshNode) -> str:
    membership = node.membership
    if not membership.active:
        where = ", ".join(membership.contacts)
        return f"nobody answers at {where}; see --join, and whether they reach this node at {membership.me} (--advertise)"
    return "no neighbour has joined itself; the first node of a new mesh must be started without --join"


def read_memory(disk: Disk) -> list[Address]:
    """Who was known in the life before; nobody if that cannot be read."""
    if _MEMORY not in disk.names():
        return []
    try:
        file = disk.open(_MEMORY)
        try:
            return msgspec.json.decode(file.read(0, _MEMORY_BYTES_MAX), type=list[Address])
        finally:
            file.close()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return []

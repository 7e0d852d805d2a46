# SPDX-License-Identifier: Apache-2.0
"""A node of the mesh: membership, broadcast, anti-entropy and topic filter in one machine.

May not: change durable state but through `apply`; say anything that rests on what is not synced.
The idea, as a runner uses it, once per drain:

    hear · lost · put · tick      for each input; records are applied at once
    settle(now)                   requests, digests and holes that follow from what was applied
    ... append, sync, then carry the speech out ...

Because speech waits for the sync, a vector or digest never tells what a crash could take back, and nothing of ours is
broadcast before it is on our disk (R24).
Next: state.py for what records do, hyparview.py, broadcast.py and antientropy.py for the layers.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from oncemq.errors import invariant
from oncemq.limits import MESH_VECTOR_ENTRIES
from oncemq.mesh import packets as p
from oncemq.mesh import records as r
from oncemq.mesh.antientropy import AntiEntropy
from oncemq.mesh.arrivals import EarlyMessages
from oncemq.mesh.broadcast import Broadcast, Flood, Key
from oncemq.mesh.dice import jittered, pick
from oncemq.mesh.effects import HandOver, MeshEffects, Send, Serve, Speech, TellGap, Up
from oncemq.mesh.hyparview import NEVER_MS, Membership
from oncemq.mesh.packets import NOWHERE, Address, MeshPacket, Origin
from oncemq.mesh.settings import MeshSettings
from oncemq.mesh.state import NodeState
from oncemq.model.block import BadBlock, ValueTooLarge, check_block
from oncemq.model.names import is_client_on_the_wire, is_valid_name
from oncemq.ports import Dice

URGENT_MS = 200
"""Neighbours are told at most this often that we have just caught up."""


class Store(Protocol):
    """What the runner's journal can still serve."""

    def held(self, origin: Origin, first: int, last: int) -> list[tuple[int, int]]:
        """The stretches of a range that are stored, as (first, last), in order."""

    def is_expired(self, origin: Origin, number: int) -> bool:
        """Whether that message was stored here, and let go when it had been kept for as long as messages are."""


class Life(enum.Enum):
    """Where a node is in its life; docs/mesh.md draws it."""

    STOPPED = "stopped"
    JOINING = "joining"
    MEMBER = "member"
    LEAVING = "leaving"
    LEFT = "left"


class Step(enum.Enum):
    FOUND = "start without contacts"
    JOIN = "start with contacts, no baseline yet"
    RETURN = "start with a baseline on disk"
    BASELINE = "baseline taken and synced"
    LEAVE = "asked to leave"
    COVERED = "a neighbour has all we have"


LIFE: dict[tuple[Life, Step], Life] = {
    (Life.STOPPED, Step.FOUND): Life.MEMBER,
    (Life.STOPPED, Step.RETURN): Life.MEMBER,
    (Life.STOPPED, Step.JOIN): Life.JOINING,
    (Life.JOINING, Step.BASELINE): Life.MEMBER,
    (Life.JOINING, Step.LEAVE): Life.LEAVING,
    (Life.MEMBER, Step.LEAVE): Life.LEAVING,
    (Life.LEAVING, Step.COVERED): Life.LEFT,
}


class MeshNode:
    def __init__(
        self,
        me: Address,
        state: NodeState,
        store: Store,
        settings: MeshSettings,
        dice: Dice,
        contacts: Iterable[Address] = (),
        remembered: Iterable[Address] = (),
    ) -> None:
        self.state = state
        self.settings = settings
        self.counters: Counter[str] = Counter()
        self.membership = Membership(me, settings, dice, contacts, remembered)
        self.broadcast: Broadcast = Flood(2 * settings.heartbeat_timeout_ms, settings.hold_messages)
        self.antientropy = AntiEntropy(state.had, settings, dice, lambda origin: self.early.next_missing(origin, state.had))
        self.early = EarlyMessages(settings.early_messages, settings.early_bytes, self.antientropy.is_stuck)
        self.life = Life.STOPPED
        self._store = store
        self._dice = dice
        self._speech: list[Speech] = []
        self._records: list[r.MeshRecord] = []
        self._baseline: tuple[Address, list[p.Baseline]] = (NOWHERE, [])
        self._heartbeat_ms = NEVER_MS
        self._urgent_ms = 0
        self._has_caught_up = False

    # --- inputs -------------------------------------------------------------------------------------------

    def start(self, now_ms: int, node: bytes, start_id: bytes) -> MeshEffects:
        """Begin a life. The record is synced before anything is said, so that no two lives share an origin (R24)."""
        self._records.append(r.StartedNode(Origin(node, start_id)))
        is_founder = not self.membership.contacts and not self.state.has_baseline
        if is_founder:
            self._records.append(r.BaselineTaken(()))
        self._step(Step.FOUND if is_founder else Step.RETURN if self.state.has_baseline else Step.JOIN)
        if self.settings.heartbeat_ms:
            self._heartbeat_ms = now_ms + jittered(self._dice, self.settings.heartbeat_ms)
        self.membership.join(now_ms)
        return self._effects(now_ms)

    def put(
        self,
        now_ms: int,
        topics: tuple[str, ...],
        publisher: str,
        count: int,
        block: bytes | memoryview,
        *,
        has_more: bool = False,
    ) -> MeshEffects:
        """Take a message of our own: stored here, and told to all once it is synced. In a mesh every put is stored (R27)."""
        origin = self.own_origin
        number = self.state.had[origin] + 1
        self._take(now_ms, p.Spread(origin, number, topics, publisher, count, False, has_more), block, NOWHERE)
        return self._effects(now_ms)

    def want(self, topic: str) -> MeshEffects:
        """Subscribe. Refused before there is a baseline: what came between would be skipped (R27)."""
        invariant(self.may_subscribe, "a subscription before the baseline")
        return MeshEffects((r.TopicWanted(topic),))

    def unwant(self, topic: str) -> MeshEffects:
        return MeshEffects((r.TopicUnwanted(topic),))

    def hear(self, now_ms: int, sender: Address, packet: MeshPacket, block: bytes | memoryview = b"") -> MeshEffects:
        """Take a packet of another node."""
        if self.life in {Life.STOPPED, Life.LEFT}:
            return MeshEffects()
        self.membership.hear(now_ms, sender, packet)
        match packet:
            case p.Heartbeat() if sender in self.membership.active:
                self._drain_changes(now_ms)
                self._on_heartbeat(now_ms, sender, packet)
            case p.Spread():
                self._on_spread(now_ms, sender, packet, block)
            case p.Vector() if self.state.has_baseline:
                self.antientropy.on_vector(sender, packet)
            case p.Request():
                self._on_request(sender, packet)
            case p.Denied():
                self.antientropy.on_denied(sender, packet)
            case p.AskBaseline() if self.state.has_baseline and self.life is Life.MEMBER:
                self._give_baseline(sender)  # Not when leaving: who takes it has our vector, but not what we wait to see stored.
            case p.Baseline() if not self.state.has_baseline:
                self._on_baseline(sender, packet)
            case _:
                pass
        return self._effects(now_ms)

    def lost(self, now_ms: int, address: Address) -> MeshEffects:
        """The link layer says that a node is not there."""
        self.membership.lost(now_ms, address)
        return self._effects(now_ms)

    def expel(self, now_ms: int, address: Address) -> MeshEffects:
        """The link layer says that a neighbour does not take its packets."""
        self.membership.expel(now_ms, address)
        return self._effects(now_ms)

    def leave(self, now_ms: int) -> MeshEffects:
        """Leave in good order: go on until a neighbour has all that we have (R27), then say goodbye."""
        self._step(Step.LEAVE)
        self.antientropy.leave()
        for address in self.membership.active:
            self._beat(address, is_urgent=False)
        return self._effects(now_ms)

    # --- time ---------------------------------------------------------------------------------------------

    @property
    def due_ms(self) -> int:
        return min(self.membership.due_ms, self._heartbeat_ms)

    def tick(self, now_ms: int) -> MeshEffects:
        if self.life in {Life.STOPPED, Life.LEFT}:
            return MeshEffects()
        if now_ms >= self._heartbeat_ms:
            stall_ms = now_ms - self._heartbeat_ms
            self._heartbeat_ms = now_ms + jittered(self._dice, self.settings.heartbeat_ms)
            self._on_heartbeat_due(now_ms, stall_ms if stall_ms > self.settings.heartbeat_ms else 0)
        self.membership.tick(now_ms)
        return self._effects(now_ms)

    def _on_heartbeat_due(self, now_ms: int, stall_ms: int) -> None:
        for address in self.membership.silent(now_ms, stall_ms=stall_ms):
            self.membership.lost(now_ms, address)
        self.membership.island.tick(now_ms)
        self._drain_changes(now_ms)
        for address in self.membership.active:
            self._beat(address, is_urgent=False)
        if not self.state.has_baseline and self.membership.active:
            self._say(pick(self._dice, list(self.membership.active)), p.AskBaseline())

    def _on_heartbeat(self, now_ms: int, sender: Address, packet: p.Heartbeat) -> None:
        """Whoever leaves is told at once that we know: only then may it count on us."""
        self.antientropy.on_digest(now_ms, sender, packet.digest, is_urgent=packet.is_urgent)
        if self.antientropy.on_leaver(sender, packet):
            self._beat(sender, is_urgent=False)

    def settle(self, now_ms: int) -> MeshEffects:
        """End a drain: what follows from the records that were applied."""
        if self.life in {Life.STOPPED, Life.LEFT}:
            return MeshEffects()
        self.antientropy.advanced()
        if self.state.has_baseline:
            self.antientropy.pull(now_ms)
            for origin, last in self.antientropy.watch(now_ms, self.early.lowest(), self.membership.reserve.others):
                self._give_up(now_ms, origin, last)
        if self._has_caught_up and now_ms >= self._urgent_ms:
            self._urgent_ms, self._has_caught_up = now_ms + URGENT_MS, False
            for address in self.membership.active:
                self._beat(address, is_urgent=True)
        if self.life is Life.LEAVING and self.antientropy.is_covered_by_somebody():
            self._step(Step.COVERED)
            self.membership.leave()
        return self._effects(now_ms)

    # --- state --------------------------------------------------------------------------------------------

    @property
    def own_origin(self) -> Origin:
        origin = self.state.origin
        invariant(origin is not None, "a node that was not started")
        return origin  # type: ignore[return-value]

    @property
    def collected(self) -> int:
        """Origins in the pieces of a baseline that have come so far."""
        return sum(len(piece.entries) for piece in self._baseline[1])

    @property
    def seen(self) -> dict[Origin, int]:
        """How far each origin is known to have come, where that is further than we have."""
        found = self.antientropy.seen()
        for origin, number in self.early.highest().items():
            found[origin] = max(number, found.get(origin, 0))
        return found

    @property
    def may_subscribe(self) -> bool:
        return self.state.has_baseline

    def apply(self, record: r.MeshRecord) -> None:
        """The only writer of durable state. What waited for it, or is had by now, need not wait any more."""
        self.state.apply(record)
        if isinstance(record, r.GivenUp):
            self.early.drop_through(record.origin, record.last)
        elif isinstance(record, r.BaselineTaken):
            for entry in record.entries:
                self.early.drop_through(entry.origin, entry.number)

    def _step(self, step: Step) -> None:
        after = LIFE.get((self.life, step))
        invariant(after is not None, "no such step in the life of a node", life=self.life, step=step)
        self.life = after  # type: ignore[assignment]

    # --- messages -----------------------------------------------------------------------------------------

    def _on_spread(self, now_ms: int, sender: Address, packet: p.Spread, block: bytes | memoryview) -> None:
        origin, number = packet.origin, packet.number
        if not self.state.has_baseline or origin == self.state.origin:
            return  # Without a baseline nothing is taken; what is ours we have, or it is a lie.
        if number <= self.state.had[origin] or (origin, number) in self.early:
            self.counters["repeats"] += 1
            self.broadcast.repeated((origin, number), sender)
        elif not _is_sound(packet, block):
            self.counters["unsound"] += 1
            if packet.is_copy:  # It is damaged where it is stored: whoever sent it cannot give it to us.
                self.antientropy.on_denied(sender, p.Denied(p.Range(origin, number, number), True, False))
        elif number == self.state.had[origin] + 1 and not packet.has_more:
            self._take(now_ms, packet, block, sender)
            self._take_early(now_ms, origin, number)
        elif self.early.add(packet, block, sender, self.state.had):
            self._tell_on(now_ms, packet, block, sender)
            is_next = packet.is_copy and self.early.is_in_line(origin, number, self.state.had)
            self.antientropy.progressed(now_ms, origin, sender if is_next else NOWHERE)
            self._take_early(now_ms, origin, self.state.had[origin])
        else:
            self.counters["early_dropped"] += 1
            self.antientropy.kept_out(origin, number, sender)
        self._note_evicted()

    def _note_evicted(self) -> None:
        for early in self.early.evicted:
            self.antientropy.kept_out(early.packet.origin, early.packet.number, early.sender)
        self.early.evicted.clear()

    def _take(self, now_ms: int, packet: p.Spread, block: bytes | memoryview, sender: Address) -> None:
        """Store the next message of its origin, tell it on, and hand it over."""
        self._store_next(packet, block)
        self._tell_on(now_ms, packet, block, sender)
        self.antientropy.progressed(now_ms, packet.origin, sender if packet.is_copy else NOWHERE)
        self._has_caught_up = self._has_caught_up or packet.is_copy

    def _store_next(self, packet: p.Spread, block: bytes | memoryview) -> None:
        wanted = self.state.topics.wanted_of(packet.topics)
        origin, number = packet.origin, packet.number
        taken = r.Taken(origin, number, packet.topics, wanted, packet.publisher, packet.count, block, packet.has_more)
        self._records.append(taken)
        if wanted:
            self._speech.append(HandOver(origin, number, wanted))

    def _take_early(self, now_ms: int, origin: Origin, number: int) -> None:
        """What waited for the message just taken has its turn, a transaction as a whole. It was told on when it came."""
        while whole := self.early.pop_whole(origin, number + 1):
            number += len(whole)
            for early in whole:
                self._store_next(early.packet, early.block)
                self._has_caught_up = self._has_caught_up or early.packet.is_copy
            self.antientropy.progressed(now_ms, origin)

    def _tell_on(self, now_ms: int, packet: p.Spread, block: bytes | memoryview, sender: Address) -> None:
        if packet.is_copy:
            return
        for target in self.broadcast.targets(now_ms, (packet.origin, packet.number), sender):
            self._speech.append(Send(target, packet, block))

    def _give_up(self, now_ms: int, origin: Origin, last: int) -> None:
        """Nobody has these numbers. What is here of the same transaction is stored all the same, if there was more of it once."""
        begun = self.early.pop_begun(origin, self.state.had)
        for early in begun:
            self._store_next(early.packet, early.block)
        first = self.state.had[origin] + 1 + len(begun)
        self._records.append(r.GivenUp(origin, first, last))
        self._speech.append(TellGap(origin, first, last))
        self._take_early(now_ms, origin, last)

    # --- requests -----------------------------------------------------------------------------------------

    def _on_request(self, sender: Address, packet: p.Request) -> None:
        """Serve what is stored, deny the rest; whoever asks must not wait for what will never come."""
        for wanted in packet.ranges:
            origin, first = wanted.origin, wanted.first
            for held_first, held_last in self._store.held(origin, first, wanted.last):
                if held_first > first:
                    self._deny(sender, origin, first, held_first - 1)
                self._speech.append(Serve(sender, origin, held_first, held_last, True))
                first = held_last + 1
            if first <= wanted.last:
                self._deny(sender, origin, first, wanted.last)

    def _deny(self, to: Address, origin: Origin, first: int, last: int) -> None:
        """Of what is gone all is denied at once, also what was not asked for yet: a long absence is not asked for in portions."""
        had = self.state.had[origin]
        is_gone = first <= had
        if is_gone:
            left = self._store.held(origin, first, had)
            last = left[0][0] - 1 if left else had
        is_final = is_gone and (origin.node == self.own_origin.node or self._store.is_expired(origin, first))
        self._say(to, p.Denied(p.Range(origin, first, last), is_gone, is_final))

    # --- the baseline -------------------------------------------------------------------------------------

    def _give_baseline(self, to: Address) -> None:
        entries = self.state.had.entries()
        cuts = range(0, max(len(entries), 1), MESH_VECTOR_ENTRIES)
        for piece, cut in enumerate(cuts):
            is_last = cut + MESH_VECTOR_ENTRIES >= len(entries)
            self._say(to, p.Baseline(entries[cut : cut + MESH_VECTOR_ENTRIES], piece, is_last))

    def _on_baseline(self, sender: Address, packet: p.Baseline) -> None:
        """Collect the pieces of one answer, as they come: those of two answers are cut at different origins, and skip some."""
        if packet.piece == 0:
            self._baseline = (sender, [])
        giver, pieces = self._baseline
        if sender != giver or packet.piece != len(pieces):
            return
        pieces.append(packet)
        if packet.is_last:
            entries = tuple(entry for piece in pieces for entry in piece.entries)
            self._baseline = (NOWHERE, [])
            self._records.append(r.BaselineTaken(entries))
            if self.life is Life.JOINING:
                self._step(Step.BASELINE)

    # --- effects ------------------------------------------------------------------------------------------

    def _say(self, to: Address, packet: MeshPacket) -> None:
        self._speech.append(Send(to, packet))

    def _beat(self, address: Address, *, is_urgent: bool) -> None:
        """Say that we are here; an urgent one lets the neighbour compare at once."""
        membership = self.membership
        number, island = membership.active[address].number, membership.island
        leaver = p.Leaver.SENDER if self.life is Life.LEAVING else self.antientropy.leaver_of(address)
        self._say(address, p.Heartbeat(number, self.state.had.digest, island.number, island.beat, is_urgent, leaver))

    def _drain_changes(self, now_ms: int) -> None:
        """Tell the other layers who came and went; a new neighbour is handed what is held, and compares at once."""
        membership = self.membership
        for change in membership.changes:
            self._speech.append(change)
            if isinstance(change, Up):
                self.antientropy.up(change.address)
                self._hand_held(change.address, self.broadcast.up(now_ms, change.address))
            else:
                self.antientropy.down(change.address)
                self.broadcast.down(now_ms, change.address, change.reason)
        arrived = [change.address for change in membership.changes if isinstance(change, Up)]
        membership.changes.clear()
        self._speech += [Send(to, packet) for to, packet in membership.sends]
        membership.sends.clear()
        for address in arrived:  # After the packets that make it a neighbour.
            if address in membership.active:
                self._beat(address, is_urgent=True)
                if not self.state.has_baseline:
                    self._say(address, p.AskBaseline())

    def _hand_held(self, address: Address, keys: list[Key]) -> None:
        for origin, number in keys:
            if number <= self.state.had[origin]:
                self._speech.append(Serve(address, origin, number, number, False))

    def _effects(self, now_ms: int) -> MeshEffects:
        self._drain_changes(now_ms)
        self._speech += [Send(to, packet) for to, packet in self.antientropy.sends]
        self.antientropy.sends.clear()
        effects = MeshEffects(tuple(self._records), tuple(self._speech))
        self._records.clear()
        self._speech.clear()
        return effects


def _is_sound(packet: p.Spread, block: bytes | memoryview) -> bool:
    """Whether the block is what its publisher cut; checked once, on arrival."""
    if len(set(packet.topics)) != len(packet.topics) or not all(map(is_valid_name, packet.topics)):
        return False
    if not is_client_on_the_wire(packet.publisher):
        return False
    try:
        return check_block(block).count == packet.count
    except (BadBlock, ValueTooLarge):
        return False

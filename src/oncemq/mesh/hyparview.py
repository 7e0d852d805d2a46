# SPDX-License-Identifier: Apache-2.0
"""Membership after HyParView (Leitão, Pereira, Rodrigues, DSN 2007), with what twenty years of use have added to it.

May not: know time or dice but as arguments; keep anything durable: a node that restarts joins anew.
The idea: five neighbours, symmetric; thirty others in reserve. Differs from the paper, in short (docs/mesh.md has all of it):

    no triangles    an ask names our neighbours, and whoever shares one refuses
    no holes        whoever is dropped for a newcomer is told to link to it, so one join splits an edge and fills both ends
    hints           a full node that refuses names the one it refused before: the two have a place each
    names           a link has a random number that both ends know; a late packet of an older one hits nothing
    cold list       a sample of all ids ever heard: reserve of the reserve, and the way back over a healed split

Inputs are `join`, `hear`, `lost`, `expel`, `tick`, `leave`; packets to send collect in `sends`, who came and went in `changes`.
Next: repair.py for the search for neighbours, standing.py for the table, views.py for the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from oncemq.mesh import packets as p
from oncemq.mesh.dice import jittered, link_number, pick, sample
from oncemq.mesh.effects import Down, Up
from oncemq.mesh.islands import Island
from oncemq.mesh.packets import NOWHERE, Address, MeshPacket, Priority, Reason
from oncemq.mesh.repair import Search
from oncemq.mesh.reserve import Reserve
from oncemq.mesh.settings import MeshSettings
from oncemq.mesh.standing import Ask, Cause, Link, Relations
from oncemq.ports import Dice

NEVER_MS = 2**62


class Membership:
    def __init__(
        self,
        me: Address,
        settings: MeshSettings,
        dice: Dice,
        contacts: Iterable[Address] = (),
        remembered: Iterable[Address] = (),
    ) -> None:
        """`contacts` are asked to join through; `remembered` are ids that an earlier life of this node knew."""
        self.me = me
        self.sends: list[tuple[Address, MeshPacket]] = []
        self.changes: list[Up | Down] = []
        self.counters: Counter[str] = Counter()
        self.settings = settings
        self.contacts = tuple(each for each in dict.fromkeys(contacts) if each != me)
        self._dice = dice
        self._relations = Relations()
        self.active = self._relations.active
        self.search = Search(settings, dice)
        self.island = Island(settings.heartbeat_ms, dice)
        self._asked = self._relations.asked
        self.reserve = Reserve(me, settings, dice, self.contacts, (self.active, self._asked))
        self.passive = self.reserve.passive
        self._last_asker: Address = NOWHERE
        self._sent: list[Address] = []
        self._probing: tuple[Address, int] | None = None
        self._has_joined = False
        self._has_left = False
        self._suspected_ms = -NEVER_MS
        self._shuffle_ms = NEVER_MS
        self._heal_ms = NEVER_MS
        self.reserve.learn(remembered)

    def memory(self) -> list[Address]:
        """Ids worth keeping for the next life: if every contact is gone by then, they are the only way back."""
        return list(dict.fromkeys((*self.active, *self.passive.ids, *self.reserve.cold)))

    # --- inputs -------------------------------------------------------------------------------------------

    def join(self, now_ms: int) -> None:
        """Begin to take part. Without contacts this node is the first one, and waits to be found."""
        self._has_joined = True
        settings = self.settings
        self._shuffle_ms = now_ms + jittered(self._dice, settings.shuffle_ms) if settings.shuffle_ms else NEVER_MS
        self._heal_ms = now_ms + jittered(self._dice, settings.heal_ms) if settings.heal_ms else NEVER_MS
        self._refill(now_ms)

    def hear(self, now_ms: int, sender: Address, packet: MeshPacket) -> None:
        """Take a packet of another node."""
        if sender == self.me or self._has_left:
            return
        if sender in self.reserve.quarantine:
            self.reserve.quarantine.release(sender)
        link = self.active.get(sender)
        if link is not None:
            link.heard_ms = now_ms
        handler = _HANDLERS.get(type(packet))
        if handler is not None:
            handler(self, now_ms, sender, packet)

    def lost(self, now_ms: int, address: Address) -> None:
        """The link layer, or silence, says that a node is not there: it is forgotten, and replaced."""
        self.counters["lost"] += 1
        if address in self.active:
            self._drop(address, Reason.FAILED)
            self.search.begin(is_urgent=True)
        elif address in self._asked:
            self._relations.move(address, Cause.UNANSWERED)
        self.reserve.bury(now_ms, address)
        self._refill(now_ms)

    def expel(self, now_ms: int, address: Address) -> None:
        """A neighbour does not take its packets: it goes, and catches up later from whoever takes it in."""
        if address in self.active:
            self._end(address, Reason.SLOW)
            self.search.begin(excluding=address)
            self._refill(now_ms)

    def leave(self) -> None:
        """Say goodbye to all, and name each a neighbour of ours instead: they close the ring. Nobody keeps an id that is gone."""
        neighbours = list(self.active)
        for address, other in zip(neighbours, neighbours[1:] + neighbours[:1], strict=True):
            self._end(address, Reason.LEFT, other if other != address else NOWHERE)
        self._has_left = True

    # --- links --------------------------------------------------------------------------------------------

    @property
    def places(self) -> int:
        """Free places, asks that may still be accepted not counted as free."""
        return self.settings.active - len(self.active) - len(self._asked)

    def _send(self, to: Address, packet: MeshPacket) -> None:
        self.sends.append((to, packet))

    def _link_up(self, now_ms: int, address: Address, number: int, cause: Cause) -> None:
        self.passive.remove(address)
        self._relations.move(address, cause, Link(number, now_ms))
        self.changes.append(Up(address))
        if len(self.active) >= self.settings.active:
            self.search.end()

    def _drop(self, address: Address, reason: Reason) -> None:
        self._relations.move(address, Cause.ENDED)
        self.changes.append(Down(address, reason))
        self.counters[f"down_{reason.name.lower()}"] += 1

    def _end(self, address: Address, reason: Reason, hint: Address = NOWHERE) -> None:
        """End a link from this side: the other one is told, with a way to go on, and kept in reserve."""
        names = tuple(self.reserve.names_for(address)) if reason is not Reason.SURPLUS else ()
        self._send(address, p.Disconnect(self.active[address].number, reason, hint, names))
        self._drop(address, reason)
        self.passive.add(address)

    def _evict(self, newcomer: Address, hint: Address, *, chosen: Address = NOWHERE) -> None:
        """Make room for a newcomer: somebody goes, and is told where there is a place."""
        victim = chosen if chosen in self.active else pick(self._dice, [each for each in self.active if each != newcomer])
        self._end(victim, Reason.EVICTED, hint)

    # --- joining ------------------------------------------------------------------------------------------

    def _on_join(self, now_ms: int, joiner: Address, packet: p.Join) -> None:
        """Always answered, also to one that we still believe to be a neighbour: it has restarted."""
        if self._outranks(joiner):
            return
        self._welcome(now_ms, joiner, packet.link, joiner)
        self.reserve.learn((joiner,))
        self._accept(joiner, packet.link)
        for neighbour in sample(self._dice, [each for each in self.active if each != joiner], self.settings.walks):
            self._send(neighbour, p.ForwardJoin(joiner, self.settings.active_walk))

    def _welcome(self, now_ms: int, address: Address, number: int, hint: Address) -> None:
        """Take somebody in, whatever it costs: whoever must go is told the hint."""
        if address in self.active:
            self._drop(address, Reason.RESTARTED)
        if len(self.active) >= self.settings.active:
            self._evict(address, hint)
        self._link_up(now_ms, address, number, Cause.ADMITTED)

    def _accept(self, address: Address, number: int) -> None:
        self._send(address, p.NeighbourReply(number, True, NOWHERE, tuple(self.reserve.names_for(address))))

    def _hint_for(self, asker: Address) -> Address:
        """Name the one who asked before, and remember this one for the next."""
        hint, self._last_asker = self._last_asker, asker
        return hint if hint != asker and hint not in self.active else NOWHERE

    def _on_forward_join(self, now_ms: int, sender: Address, packet: p.ForwardJoin) -> None:
        joiner = packet.joiner
        if joiner == self.me:
            return
        onward = [each for each in self.active if each not in (sender, joiner)]
        if packet.ttl == 0 or len(self.active) <= 1 or not onward:
            # Differs from the paper: the joiner is asked, and is a neighbour only once it has answered.
            if joiner not in self.active and joiner not in self._asked:
                self._ask(now_ms, joiner, Priority.LOW if self.places > 0 else Priority.WALK)
            return
        if packet.ttl == self.settings.passive_walk:
            self.reserve.learn((joiner,))
        self._send(pick(self._dice, onward), p.ForwardJoin(joiner, packet.ttl - 1))

    # --- asking and being asked ---------------------------------------------------------------------------

    def _ask(self, now_ms: int, address: Address, priority: Priority, partner: Address = NOWHERE) -> None:
        number = link_number(self._dice)
        self._relations.move(address, Cause.ASK, Ask(number, now_ms, priority, partner))
        self.search.tries(address)
        self.counters["asks"] += 1
        if priority is Priority.JOIN:
            self._send(address, p.Join(number))
        else:
            named = tuple(self.active) if self.search.is_strict else ()
            self._send(address, p.Neighbour(number, priority, named, partner))

    def _on_neighbour(self, now_ms: int, asker: Address, packet: p.Neighbour) -> None:
        if self._outranks(asker):
            return
        if asker in self.active or self._may_enter(asker, packet):
            hint = packet.partner if packet.priority is Priority.BRIDGE else asker
            self._welcome(now_ms, asker, packet.link, hint)
            self._accept(asker, packet.link)
            return
        if asker in self._asked:
            self._relations.move(asker, Cause.REFUSED)  # It ignores our ask, as we would ignore its.
        hint = self._hint_for(asker)
        if packet.priority is Priority.REPLACE:
            self._suspect(now_ms)
        if len(self.active) < self.settings.active or packet.priority is Priority.REPLACE:
            self.search.hint(asker)  # We may be refused ourselves, or lose somebody, and then there is a place for it.
        self.reserve.learn((asker,))
        self._send(asker, p.NeighbourReply(packet.link, False, hint, tuple(self.reserve.names_for(asker))))

    def _outranks(self, asker: Address) -> bool:
        """Both asked at once: the ask of the smaller address counts. Is that ours?"""
        return asker in self._asked and self.me < asker

    def _may_enter(self, asker: Address, packet: p.Neighbour) -> bool:
        active = self.active
        if not packet.active and packet.priority is Priority.HIGH:
            return True  # It has nobody.
        if any(each in active for each in packet.active):
            return False
        places = self.places + (asker in self._asked)
        match packet.priority:
            case Priority.LOW | Priority.REPLACE:
                return places > 0
            case Priority.WALK:
                return places > 1
            case _:
                return True

    def _on_neighbour_reply(self, now_ms: int, sender: Address, packet: p.NeighbourReply) -> None:
        if (asked := self._relations.rename(packet.link, sender)) != NOWHERE:
            self.reserve.bury(now_ms, asked)  # Kept as another node, it would be asked beside the one it is.
        ask = self._asked.get(sender)
        if ask is None or ask.number != packet.link:
            link = self.active.get(sender)
            if packet.is_accepted and (link is None or link.number != packet.link):
                self._send(sender, p.Disconnect(packet.link, Reason.ONE_SIDED))
            return
        self.reserve.learn(packet.sample)
        self.search.hint(packet.hint)
        if packet.is_accepted:
            self._on_accepted(now_ms, sender, ask)
        else:
            self._relations.move(sender, Cause.REFUSED)
            self.search.refused()
        self._refill(now_ms)

    def _on_accepted(self, now_ms: int, sender: Address, ask: Ask) -> None:
        """It has a place for us; do we still have one for it?"""
        if len(self.active) >= self.settings.active:
            if ask.priority not in (Priority.WALK, Priority.BRIDGE):
                self._relations.move(sender, Cause.TOO_LATE)
                self._send(sender, p.Disconnect(ask.number, Reason.SURPLUS))
                self.passive.add(sender)
                return
            is_walk = ask.priority is Priority.WALK
            self._evict(sender, sender if is_walk else NOWHERE, chosen=ask.partner)
        if ask.priority is Priority.JOIN:
            self.search.wait(now_ms)  # Walks are under way that fill the other places better than asking around here would.
        if ask.priority is Priority.BRIDGE:
            self.counters["bridges"] += 1
        self._link_up(now_ms, sender, ask.number, Cause.ACCEPTED)

    def _on_disconnect(self, now_ms: int, sender: Address, packet: p.Disconnect) -> None:
        """Ignored unless it names the link as we know it: packets of older links may be late."""
        link, ask = self.active.get(sender), self._asked.get(sender)
        if link is not None and link.number == packet.link:
            self._drop(sender, packet.reason)
        elif ask is not None and ask.number == packet.link:
            self._relations.move(sender, Cause.REFUSED)
        else:
            return
        if packet.reason is Reason.LEFT:
            self.reserve.forget(now_ms, sender)
        else:
            self.passive.add(sender)
        self.reserve.learn(packet.sample)
        self.search.begin(excluding=sender)
        self.search.hint(packet.hint)
        self._refill(now_ms)

    # --- the search for neighbours ------------------------------------------------------------------------

    def _refill(self, now_ms: int) -> None:
        """Ask until as many are asked as there are places. An ask that takes long counts no more: the next goes out beside it."""
        if not self._has_joined or self._has_left or len(self.active) >= self.settings.active:
            return
        if self.search.paused_until_ms is not None:
            self.search.wake(self.reserve)
            if self.search.paused_until_ms is not None:
                return
        settings = self.settings
        while len(self._asked) < settings.dials_max:
            young = sum(ask.worth for ask in self._asked.values() if now_ms - ask.asked_ms < settings.dial_stagger_ms)
            if len(self.active) + young >= settings.active:
                return
            if not self._ask_next(now_ms):
                return

    def _ask_next(self, now_ms: int) -> bool:
        candidate = self._candidate()
        if candidate is not None:
            self._ask(now_ms, candidate, self._priority(candidate))
            return True
        if not self._asked:
            if self.search.escalates(self.settings.active - len(self.active)):
                return True
            if not self.active:
                self._ask_again(now_ms)
            self.search.pause(now_ms)
        return False

    def _priority(self, candidate: Address) -> Priority:
        if not self.active and candidate in self.contacts:
            return Priority.JOIN
        missing = self.settings.active - len(self.active)
        wants_swap = missing > 1 and self.search.fruitless > 0
        if not self.active or wants_swap:
            return Priority.HIGH
        return Priority.REPLACE if self.search.is_urgent else Priority.LOW

    def _candidate(self) -> Address | None:
        while (hint := self.search.next_hint()) is not None:
            if self._is_stranger(hint) and hint not in self.reserve.quarantine:
                return hint
        while (known := self.search.next_known(self.reserve)) is not None:
            if self._is_stranger(known):
                return known
            self.search.tries(known)
        return None

    def _is_stranger(self, address: Address) -> bool:
        return address != self.me and address not in self.active and address not in self._asked

    def _ask_again(self, now_ms: int) -> None:
        """No neighbour, and nobody left to ask: who did not answer an earlier search may be there by now, as lonely as we are."""
        others = [each for each in self.reserve.cold if not self.search.is_tried(each)]
        for address in filter(self._is_stranger, sample(self._dice, self.contacts, 1) + sample(self._dice, others, 1)):
            self._ask(now_ms, address, self._priority(address))

    # --- shuffles -----------------------------------------------------------------------------------------

    def _shuffle(self) -> None:
        if not self.active:
            return
        settings, dice = self.settings, self._dice
        neighbours = list(self.active)
        target = pick(dice, neighbours)
        named = sample(dice, [each for each in neighbours if each != target], settings.shuffle_active)
        self._sent = self.passive.sample(settings.shuffle_passive)
        self._send(target, p.Shuffle(self.me, (self.me, *named, *self._sent), settings.shuffle_ttl))

    def _on_shuffle(self, now_ms: int, sender: Address, packet: p.Shuffle) -> None:
        """Decremented first, as the paper does. With nobody to forward to it is accepted here instead of dropped."""
        origin = packet.origin
        if origin == self.me:
            return
        onward = [each for each in self.active if each not in (sender, origin)]
        if packet.ttl > 1 and len(self.active) > 1 and onward:
            self._send(pick(self._dice, onward), p.Shuffle(origin, packet.ids, packet.ttl - 1))
            return
        answer = self.passive.sample(len(packet.ids))
        self._send(origin, p.ShuffleReply(tuple(answer)))
        self._integrate(packet.ids, answer)
        self._refill(now_ms)

    def _on_shuffle_reply(self, now_ms: int, _sender: Address, packet: p.ShuffleReply) -> None:
        self._integrate(packet.ids, self._sent)
        self._refill(now_ms)

    def _integrate(self, ids: Iterable[Address], sent: list[Address]) -> None:
        self.reserve.learn(ids, [each for each in sent if each in self.passive])

    # --- heartbeats ---------------------------------------------------------------------------------------

    def _on_heartbeat(self, now_ms: int, sender: Address, packet: p.Heartbeat) -> None:
        """Whoever counts us as a neighbour, and is none, is told: one-sided links end within one heartbeat."""
        link, ask = self.active.get(sender), self._asked.get(sender)
        if link is not None and link.number == packet.link:
            self.island.hear(now_ms, packet.island, packet.beat)
        elif ask is not None and ask.number == packet.link:
            self._on_accepted(now_ms, sender, ask)  # Its answer was lost, or is late.
            self._refill(now_ms)
        else:
            self._send(sender, p.Disconnect(packet.link, Reason.ONE_SIDED))

    def silent(self, now_ms: int, *, stall_ms: int = 0) -> list[Address]:
        """Neighbours that were not heard for too long. A stall of our own is no silence of theirs (Lifeguard)."""
        oldest_ms = now_ms - self.settings.heartbeat_timeout_ms
        if stall_ms:
            for link in self.active.values():
                link.heard_ms += stall_ms
        return [address for address, link in self.active.items() if link.heard_ms < oldest_ms]

    # --- healing ------------------------------------------------------------------------------------------

    def _probe(self, now_ms: int) -> None:
        target = self.reserve.cold.next_probe(now_ms, self.active)
        if target is not None:
            self._probing = (target, now_ms + self.settings.ask_timeout_ms)
            self._send(target, p.Probe(tuple(self.reserve.names_for(target))))

    def _on_probe(self, now_ms: int, sender: Address, packet: p.Probe) -> None:
        self._send(sender, p.ProbeReply(self.island.name(now_ms), tuple(self.reserve.names_for(sender))))
        self.reserve.learn((sender, *packet.sample))

    def _on_probe_reply(self, now_ms: int, sender: Address, packet: p.ProbeReply) -> None:
        """Somebody of another island can be reached: bridge the split, with two links for two."""
        if self._probing is None or self._probing[0] != sender:
            return
        self._probing = None
        self.reserve.cold.answered(sender)
        self.reserve.learn((sender, *packet.sample))
        if self.island.differs(now_ms, packet.island) and self._is_stranger(sender):
            is_full = len(self.active) >= self.settings.active
            partner = pick(self._dice, list(self.active)) if is_full else NOWHERE
            self._ask(now_ms, sender, Priority.BRIDGE, partner)

    def _suspect(self, now_ms: int) -> None:
        """Somebody lost a neighbour, and there may be a crash wave: see whether ours are alive. At most once per time-out."""
        if now_ms - self._suspected_ms >= self.settings.ask_timeout_ms:
            self._suspected_ms = now_ms
            for address in self.active:
                self._send(address, p.Probe())

    # --- time ---------------------------------------------------------------------------------------------

    @property
    def due_ms(self) -> int:
        """When the next tick is wanted. Heartbeats are the node's: it has a digest to send with them."""
        due = min(self._shuffle_ms, self._heal_ms)
        for ask in self._asked.values():
            due = min(due, ask.asked_ms + (self.settings.ask_timeout_ms if ask.is_slow else self.settings.dial_stagger_ms))
        if self.search.paused_until_ms is not None:
            due = min(due, self.search.paused_until_ms)
        if self._probing is not None:
            due = min(due, self._probing[1])
        return due

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        if self._has_left:
            return
        self.reserve.quarantine.expire(now_ms)
        self._tick_asks(now_ms)
        if self._probing is not None and now_ms >= self._probing[1]:
            self.reserve.cold.failed(self._probing[0], now_ms)
            self._probing = None
        paused_until_ms = self.search.paused_until_ms
        if paused_until_ms is not None and now_ms >= paused_until_ms:
            self.search.resume()
        if now_ms >= self._shuffle_ms:
            self._shuffle_ms = now_ms + jittered(self._dice, self.settings.shuffle_ms)
            self._shuffle()
        if now_ms >= self._heal_ms:
            self._heal_ms = now_ms + jittered(self._dice, self.settings.heal_ms)
            self._probe(now_ms)
        self._refill(now_ms)

    def _tick_asks(self, now_ms: int) -> None:
        """Asks without an answer: the other end is told, in case only the answer was lost."""
        for address, ask in list(self._asked.items()):
            ask.is_slow = now_ms - ask.asked_ms >= self.settings.dial_stagger_ms
            if now_ms - ask.asked_ms >= self.settings.ask_timeout_ms:
                self._send(address, p.Disconnect(ask.number, Reason.ONE_SIDED))
                self.lost(now_ms, address)


_HANDLERS: dict[type[MeshPacket], Callable[[Membership, int, Address, Any], None]] = {
    p.Join: Membership._on_join,
    p.ForwardJoin: Membership._on_forward_join,
    p.Neighbour: Membership._on_neighbour,
    p.NeighbourReply: Membership._on_neighbour_reply,
    p.Disconnect: Membership._on_disconnect,
    p.Shuffle: Membership._on_shuffle,
    p.ShuffleReply: Membership._on_shuffle_reply,
    p.Heartbeat: Membership._on_heartbeat,
    p.Probe: Membership._on_probe,
    p.ProbeReply: Membership._on_probe_reply,
}
"""One per packet of membership; a table, because a large simulation asks it millions of times."""

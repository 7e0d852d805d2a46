# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs of the mesh: mistakes somebody could make, planted one at a time, to prove that the judges would see them.

May not: touch the product but through a Patch, which takes everything back.
The idea: as in sim/bugs.py, most of them are holes that the design was made to close (H36 to H45). Small meshes with faults are
run against each until one is judged guilty.
Next: sim/mesh_swarm.py for the meshes; `oncemq mesh simulate --bugs` for the hunt.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

from oncemq.mesh.antientropy import AntiEntropy
from oncemq.mesh.arrivals import Early, EarlyMessages
from oncemq.mesh.effects import MeshEffects, Send, TellGap
from oncemq.mesh.hyparview import Membership
from oncemq.mesh.node import MeshNode
from oncemq.mesh.packets import Origin, ProbeReply, Spread
from oncemq.mesh.records import GivenUp, MeshRecord, StartedNode
from oncemq.mesh.repair import Search
from oncemq.mesh.state import NodeState, TopicFilter
from oncemq.mesh.views import ColdList
from oncemq.sim.bugs import Bug, Patch
from oncemq.sim.hunt import Find
from oncemq.sim.mesh_swarm import run_seed
from oncemq.sim.mesh_world import MeshWorld, SimNode

SECONDS_MAX = 60.0
"""How long a bug may hide, in seconds of processor time."""
FIRST_SEEDS = {
    "splits_stay": 309,
    "only_the_forgotten_are_probed": 309,
    "only_neighbours_are_asked_for_holes": 25,
    "only_some_others_are_asked_for_holes": 51,
    "given_up_is_not_had": 54,
    "what_had_no_room_is_given_up": 54,
    "gaps_are_not_told": 54,
    "holes_stay_young": 182,
    "holes_block_for_ever": 92,
    "leavers_count_on_each_other": 302,
}
"""Where a hunt begins, for bugs that few seeds show."""
MESH_BUGS: dict[str, Bug] = {}


def mesh_bug(function: Bug) -> Bug:
    """Register a bug under its name."""
    MESH_BUGS[function.__name__] = function
    return function


def hunt(name: str, seconds_max: float = SECONDS_MAX) -> Find:
    """Run seeds with one bug planted until one is judged guilty, or the time is over."""
    started = time.process_time()
    for seed in count(FIRST_SEEDS.get(name, 0)):
        with Patch() as patch:
            MESH_BUGS[name](patch)
            violations = run_seed(seed).violations
        seconds = round(time.process_time() - started, 2)
        if violations:
            return Find(name, seconds, seed, ", ".join(violations))
        if seconds >= seconds_max:
            break
    return Find(name, seconds, seed, "")


def hunt_all(seconds_max: float = SECONDS_MAX) -> Iterator[Find]:
    for name in MESH_BUGS:
        yield hunt(name, seconds_max)


# --- what is durable, and what is told ------------------------------------------------------------------------


@mesh_bug
def vector_tells_unsynced(patch: Patch) -> None:
    """A node speaks as soon as it has decided, before the sync."""
    carry_out = MeshWorld._carry_out

    def speak_at_once(self: MeshWorld, node: SimNode, machine: MeshNode, effects: MeshEffects) -> tuple[Any, ...]:
        for each in carry_out(self, node, machine, effects):
            self._speak(node, each)
        return ()

    patch.set(MeshWorld, "_carry_out", speak_at_once)


@mesh_bug
def incarnation_kept_over_restart(patch: Patch) -> None:
    """A restarted node goes on under its old origin, with numbers that it may have used already (H37)."""
    start = MeshNode.start

    def restart(self: MeshNode, now_ms: int, node: bytes, start_id: bytes) -> MeshEffects:
        old = self.state.origin
        return start(self, now_ms, node, old.start_id if old is not None else start_id)

    patch.set(MeshNode, "start", restart)


@mesh_bug
def own_origin_messages_dropped(patch: Patch) -> None:
    """What a node lost of its own with an older disk is not taken back."""
    on_spread = MeshNode._on_spread

    def drop(self: MeshNode, now_ms: int, sender: str, packet: Spread, block: bytes) -> None:
        if packet.origin.node != self.own_origin.node:
            on_spread(self, now_ms, sender, packet, block)

    patch.set(MeshNode, "_on_spread", drop)


@mesh_bug
def baseline_after_subscribe(patch: Patch) -> None:
    """A joining node takes subscriptions before it has a baseline (H40)."""
    patch.set(MeshNode, "may_subscribe", property(lambda _: True))


@mesh_bug
def early_messages_in_the_vector(patch: Patch) -> None:
    """What comes early is stored at once, and the watermark jumps over the hole (H39)."""

    def jump(self: NodeState, origin: Origin, _first: int, last: int) -> None:
        self.had.raise_to(origin, max(last, self.had[origin]))

    def take(self: MeshNode, now_ms: int, sender: str, packet: Spread, block: bytes) -> None:
        if self.state.has_baseline and packet.number > self.state.had[packet.origin] and packet.origin != self.state.origin:
            self._take(now_ms, packet, block, sender)

    patch.set(NodeState, "_advance", jump)
    patch.set(MeshNode, "_on_spread", take)


@mesh_bug
def repeats_are_stored_again(patch: Patch) -> None:
    """A message that comes once more is taken once more."""
    advance = NodeState._advance

    def lenient(self: NodeState, origin: Origin, first: int, last: int) -> None:
        if first == self.had[origin] + 1:
            advance(self, origin, first, last)

    def take(self: MeshNode, now_ms: int, sender: str, packet: Spread, block: bytes) -> None:
        if self.state.has_baseline and packet.number <= self.state.had[packet.origin] + 1 and packet.origin != self.state.origin:
            self._store_next(packet, block)
            if packet.number > self.state.had[packet.origin]:
                self._tell_on(now_ms, packet, block, sender)

    patch.set(NodeState, "_advance", lenient)
    patch.set(MeshNode, "_on_spread", take)


@mesh_bug
def leave_before_anybody_has_it(patch: Patch) -> None:
    """A clean leave does not wait for a neighbour (R27)."""
    patch.set(AntiEntropy, "is_covered_by_somebody", lambda _: True)


@mesh_bug
def leavers_count_on_each_other(patch: Patch) -> None:
    """A neighbour that has everything lets a node go, though it may be leaving itself."""

    def is_covered(self: AntiEntropy) -> bool:
        return any(each.digest in self._lately for each in self._neighbours.values())

    patch.set(AntiEntropy, "is_covered_by_somebody", is_covered)


@mesh_bug
def transactions_are_torn(patch: Patch) -> None:
    """What is tied to a message is not waited for."""

    def pop_one(self: EarlyMessages, origin: Origin, number: int) -> list[Early]:
        early = self.pop(origin, number)
        return [early] if early is not None else []

    patch.set(EarlyMessages, "pop_whole", pop_one)


@mesh_bug
def full_memory_keeps_transactions_out(patch: Patch) -> None:
    """What is far from its turn is never forgotten for what is in line."""
    patch.set(EarlyMessages, "_make_room", lambda *_: False)


@mesh_bug
def topic_filter_ignored(patch: Patch) -> None:
    patch.set(TopicFilter, "wanted_of", lambda _, topics: topics)


# --- anti-entropy and holes -----------------------------------------------------------------------------------


@mesh_bug
def nothing_is_pulled(patch: Patch) -> None:
    patch.set(AntiEntropy, "pull", lambda *_: None)


@mesh_bug
def digests_are_not_compared(patch: Patch) -> None:
    patch.set(AntiEntropy, "on_digest", lambda *_, **__: None)


@mesh_bug
def holes_block_for_ever(patch: Patch) -> None:
    """A message that exists nowhere stops everything behind it (H38)."""
    patch.set(AntiEntropy, "_lost_through", lambda *_: 0)


@mesh_bug
def holes_are_given_up_at_once(patch: Patch) -> None:
    """The first round of denials counts, however young the hole, and whoever else may have it."""
    lost_through = AntiEntropy._lost_through

    def hasty(self: AntiEntropy, _now_ms: int, origin: Origin, hole: Any, _elsewhere: Any) -> int:
        return lost_through(self, hole.barren_ms + self._settings.retention_ms, origin, hole, ())

    patch.set(AntiEntropy, "_lost_through", hasty)


@mesh_bug
def only_some_others_are_asked_for_holes(patch: Patch) -> None:
    """Old holes are given up though somebody is known who was not asked, or did not answer."""
    lost_through = AntiEntropy._lost_through
    patch.set(
        AntiEntropy, "_lost_through", lambda self, now_ms, origin, hole, _elsewhere: lost_through(self, now_ms, origin, hole, ())
    )


@mesh_bug
def what_had_no_room_is_given_up(patch: Patch) -> None:
    """That somebody gave what memory could not keep is forgotten: it counts as denied by all."""
    patch.set(AntiEntropy, "kept_out", lambda *_: None)


@mesh_bug
def gaps_are_not_told(patch: Patch) -> None:
    """Subscribers do not hear of what was given up."""
    give_up = MeshNode._give_up

    def silent(self: MeshNode, now_ms: int, origin: Origin, last: int) -> None:
        give_up(self, now_ms, origin, last)
        self._speech[:] = [each for each in self._speech if not isinstance(each, TellGap)]

    patch.set(MeshNode, "_give_up", silent)


@mesh_bug
def given_up_is_not_had(patch: Patch) -> None:
    """A node that gave something up goes on asking for it (H45)."""
    apply = NodeState.apply

    def forget(self: NodeState, record: MeshRecord) -> None:
        if not isinstance(record, GivenUp):
            apply(self, record)

    patch.set(NodeState, "apply", forget)


@mesh_bug
def denials_are_not_said(patch: Patch) -> None:
    patch.set(MeshNode, "_deny", lambda *_: None)


@mesh_bug
def only_neighbours_are_asked_for_holes(patch: Patch) -> None:
    """Neighbours that joined later never had it, and a node may have no others."""
    watch = AntiEntropy.watch
    patch.set(AntiEntropy, "watch", lambda self, now_ms, waiting, _others: watch(self, now_ms, waiting, tuple))


@mesh_bug
def holes_stay_young(patch: Patch) -> None:
    """A hole is found anew with every round, so it never becomes old enough to be given up."""
    begins_round = AntiEntropy._begins_round

    def forget(self: AntiEntropy, now_ms: int, origin: Origin, hole: Any) -> bool:
        begins = begins_round(self, now_ms, origin, hole)
        hole.barren_ms = now_ms if begins else hole.barren_ms
        return begins

    patch.set(AntiEntropy, "_begins_round", forget)


# --- membership -------------------------------------------------------------------------------------------------


@mesh_bug
def splits_stay(patch: Patch) -> None:
    """Nobody bridges two islands that can reach each other."""
    _set_handler(patch, ProbeReply, lambda *_: None)


@mesh_bug
def only_the_forgotten_are_probed(patch: Patch) -> None:
    """Two halves that know each other in their passive views, and whose places are taken, stay apart."""
    next_probe = ColdList.next_probe
    probe = Membership._probe

    def fewer(self: Membership, now_ms: int) -> None:
        with Patch() as inner:
            known = {*self.active, *self.passive.ids}
            inner.set(ColdList, "next_probe", lambda cold, now_ms, _known: next_probe(cold, now_ms, known))
            probe(self, now_ms)

    patch.set(Membership, "_probe", fewer)


@mesh_bug
def silent_neighbours_stay(patch: Patch) -> None:
    patch.set(Membership, "silent", lambda *_, **__: [])


@mesh_bug
def a_restarted_neighbour_comes_up_twice(patch: Patch) -> None:
    """The Down of its former life is not said."""
    drain = MeshNode._drain_changes

    def hide(self: MeshNode, now_ms: int) -> None:
        before = len(self._speech)
        drain(self, now_ms)
        said = self._speech[before:]
        self._speech[before:] = [each for each in said if getattr(each, "reason", None) != 3 or isinstance(each, Send)]

    patch.set(MeshNode, "_drain_changes", hide)


@mesh_bug
def searches_do_not_pause(patch: Patch) -> None:
    """A place that cannot be filled is searched for without end."""

    def pause(self: Search, now_ms: int) -> None:
        self.fruitless += 1
        self.paused_until_ms = now_ms + 10

    patch.set(Search, "pause", pause)


@mesh_bug
def started_is_not_written_down(patch: Patch) -> None:
    """A node's origin lives in memory only: after a restart nothing tells its own messages from others'."""
    start = MeshNode.start

    def forgetful(self: MeshNode, now_ms: int, node: bytes, start_id: bytes) -> MeshEffects:
        effects = start(self, now_ms, node, start_id)
        kept = [record for record in effects.records if not isinstance(record, StartedNode)]
        self.state.origin = Origin(node, bytes(16))
        return MeshEffects(tuple(kept), effects.speech)

    patch.set(MeshNode, "start", forgetful)


def _set_handler(patch: Patch, kind: type, handler: Any) -> None:
    """Handlers of packets are in a table; the patch replaces one row of it by replacing `hear`."""
    hear = Membership.hear

    def patched(self: Membership, now_ms: int, sender: str, packet: Any) -> None:
        if type(packet) is kind:
            link = self.active.get(sender)
            if link is not None:
                link.heard_ms = now_ms
            handler(self, now_ms, sender, packet)
        else:
            hear(self, now_ms, sender, packet)

    patch.set(Membership, "hear", patched)

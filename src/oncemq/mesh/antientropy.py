# SPDX-License-Identifier: Apache-2.0
"""Finding out what this node misses, and getting it: digests first, then vectors, then exact requests.

May not: store anything; believe a neighbour's vector for more than "it may have this".
The idea: every heartbeat carries the digest of what its sender has stored. A digest that we have had ourselves lately is that of
a neighbour that lags. An unknown one that lasts longer than a flood takes (without that grace, every message under way would
cost a vector) makes us send our vector, and the answer names what we lack. New links compare at once. What we lack is pulled
from one neighbour at a time, in each origin's order. A hole that every neighbour denies for as long as messages are kept, or
that one of them has kept for so long, is given up, and told (R25).
Next: node.py, which stores what comes; docs/mesh.md for the diagram of TRANSITIONS.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from oncemq.limits import MESH_DIGESTS_KEPT, MESH_OTHERS_ASKED, MESH_OTHERS_TRIES, MESH_RANGES_MAX, MESH_VECTOR_ENTRIES
from oncemq.mesh.dice import pick
from oncemq.mesh.packets import NOWHERE, Address, Denied, Had, Heartbeat, Leaver, MeshPacket, Origin, Range, Request, Vector
from oncemq.mesh.settings import MeshSettings
from oncemq.mesh.vectors import Watermarks
from oncemq.ports import Dice


class Phase(enum.Enum):
    """Where we are with one neighbour."""

    IN_STEP = "in step"
    IN_DOUBT = "differs"
    COMPARING = "vector sent"


class Sign(enum.Enum):
    """What we heard of it, in the words of the diagram."""

    KNOWN = "known digest"
    UNKNOWN = "unknown digest"
    OVERDUE = "unknown digest for the grace, or urgent"


TRANSITIONS: dict[tuple[Phase, Sign], Phase] = {
    (Phase.IN_STEP, Sign.KNOWN): Phase.IN_STEP,
    (Phase.IN_STEP, Sign.UNKNOWN): Phase.IN_DOUBT,
    (Phase.IN_STEP, Sign.OVERDUE): Phase.COMPARING,
    (Phase.IN_DOUBT, Sign.KNOWN): Phase.IN_STEP,
    (Phase.IN_DOUBT, Sign.UNKNOWN): Phase.IN_DOUBT,
    (Phase.IN_DOUBT, Sign.OVERDUE): Phase.COMPARING,
    (Phase.COMPARING, Sign.KNOWN): Phase.IN_STEP,
    (Phase.COMPARING, Sign.UNKNOWN): Phase.COMPARING,
    (Phase.COMPARING, Sign.OVERDUE): Phase.COMPARING,
}


class _Neighbour:
    """What we believe of one neighbour. `kept` is the digest of what it has and keeps for us when we are gone."""

    __slots__ = ("claims", "denials", "digest", "is_leaving", "kept", "phase", "since_ms")

    def __init__(self) -> None:
        self.phase = Phase.IN_STEP
        self.since_ms = 0
        self.digest = self.kept = b""
        self.is_leaving = False
        self.claims: dict[Origin, int] = {}
        self.denials: dict[Origin, Denied] = {}


class _Pull:
    """A request that is on its way: one per origin."""

    __slots__ = ("due_ms", "last", "neighbour")

    def __init__(self, neighbour: Address, last: int, due_ms: int) -> None:
        self.neighbour, self.last, self.due_ms = neighbour, last, due_ms


class _Hole:
    """Numbers `first` to `end` of an origin are missing; `sender` may have them. Everybody may be asked again at `round_ms`.

    `asked` are those who were asked though they are no neighbours, and gave nothing: how often. Parts of a transaction may come:
    `reached` says how far they did, and since `barren_ms` nothing more came. `denied` is what all neighbours last denied,
    and `held` is the first number in it that somebody has.
    """

    __slots__ = ("asked", "barren_ms", "denied", "end", "first", "held", "reached", "round_ms", "sender", "since_ms")

    def __init__(self, now_ms: int, first: int, end: int, sender: Address) -> None:
        self.first, self.end, self.sender = first, end, sender
        self.since_ms = self.round_ms = self.barren_ms = now_ms
        self.denied = self.held = self.reached = 0
        self.asked: dict[Address, int] = {}


class AntiEntropy:
    def __init__(self, had: Watermarks, settings: MeshSettings, dice: Dice, next_missing: Callable[[Origin], int]) -> None:
        """`next_missing` knows what waits: who lacks the rest of a transaction is not asked for its beginning for ever."""
        self.sends: list[tuple[Address, MeshPacket]] = []
        self._had = had
        self._next_missing = next_missing
        self._settings = settings
        self._dice = dice
        self._neighbours: dict[Address, _Neighbour] = {}
        self._pulls: dict[Origin, _Pull] = {}
        self._lately: deque[bytes] = deque((had.digest,), maxlen=MESH_DIGESTS_KEPT)
        self._holes: dict[Origin, _Hole] = {}
        self._givers: dict[Origin, Address] = {}
        """Who gave something out of a hole, though it is no neighbour, since it was last asked: it has the rest, most likely."""

    # --- neighbours ---------------------------------------------------------------------------------------

    def up(self, neighbour: Address) -> None:
        self._neighbours[neighbour] = _Neighbour()

    def down(self, neighbour: Address) -> None:
        self._neighbours.pop(neighbour, None)
        for origin in [origin for origin, pull in self._pulls.items() if pull.neighbour == neighbour]:
            del self._pulls[origin]

    def advanced(self) -> None:
        """The vector moved: remember its digest, by which neighbours that lag are recognised."""
        digest = self._had.digest
        if self._lately[-1] != digest:
            self._lately.append(digest)

    def leave(self) -> None:
        """From here on a digest of ours is lately only if it covers all that we have now."""
        self._lately = deque((self._had.digest,), maxlen=MESH_DIGESTS_KEPT)

    def is_covered_by_somebody(self) -> bool:
        """Whether a neighbour has what we had when we began to leave, and stays; what came since, others have brought.

        Only one that knew that we leave when it said so, and did not leave then, counts: if it leaves later it will not count on
        us. Otherwise two who leave at once would go with what only they have, each because the other has it.
        """
        return any(each.kept in self._lately for each in self._neighbours.values())

    def is_covered_by_leavers(self) -> bool:
        """Whether all neighbours leave too, and have what we had when we began to."""
        neighbours = self._neighbours.values()
        return bool(neighbours) and all(each.is_leaving and each.digest in self._lately for each in neighbours)

    def leaver_of(self, neighbour: Address) -> Leaver:
        """What there is to tell a neighbour about leaving, by one who stays."""
        known = self._neighbours.get(neighbour)
        return Leaver.RECEIVER if known is not None and known.is_leaving else Leaver.NOBODY

    def on_leaver(self, sender: Address, packet: Heartbeat) -> bool:
        """Note who leaves, and who stays though we do; return whether it is news that the sender leaves."""
        neighbour = self._neighbours.get(sender)
        if neighbour is None or packet.leaver is Leaver.NOBODY:
            return False
        if packet.leaver is Leaver.RECEIVER:
            neighbour.kept = packet.digest
            return False
        was_leaving, neighbour.is_leaving = neighbour.is_leaving, True
        return not was_leaving

    def phase_of(self, neighbour: Address) -> Phase:
        """Whether a neighbour has what we have, as far as we know."""
        known = self._neighbours.get(neighbour)
        return known.phase if known is not None else Phase.IN_STEP

    def seen(self) -> dict[Origin, int]:
        """How far somebody has come, where that is further than we have."""
        found = {origin: hole.end for origin, hole in self._holes.items() if hole.end > self._had[origin]}
        for neighbour in self._neighbours.values():
            for origin, number in neighbour.claims.items():
                if number > self._had[origin]:
                    found[origin] = max(number, found.get(origin, 0))
        return found

    # --- comparing ----------------------------------------------------------------------------------------

    def on_digest(self, now_ms: int, sender: Address, digest: bytes, *, is_urgent: bool) -> None:
        neighbour = self._neighbours.get(sender)
        if neighbour is None:
            return
        neighbour.digest = digest
        sign = self._sign(now_ms, neighbour, digest, is_urgent=is_urgent)
        before, neighbour.phase = neighbour.phase, TRANSITIONS[neighbour.phase, sign]
        if sign is Sign.OVERDUE:
            self.sends += [(sender, packet) for packet in self._had.packets()]
        if sign is Sign.OVERDUE or before is Phase.IN_STEP:
            neighbour.since_ms = now_ms

    def _sign(self, now_ms: int, neighbour: _Neighbour, digest: bytes, *, is_urgent: bool) -> Sign:
        if digest in self._lately:
            return Sign.KNOWN
        is_old = neighbour.phase is not Phase.IN_STEP and now_ms - neighbour.since_ms >= self._settings.digest_grace_ms
        return Sign.OVERDUE if is_urgent or is_old else Sign.UNKNOWN

    def on_vector(self, sender: Address, vector: Vector) -> None:
        """Note what they have and we lack; tell them what they lack."""
        neighbour = self._neighbours.get(sender)
        if neighbour is not None:
            for entry in vector.entries:
                self._claim(neighbour, entry)
        lacking = () if vector.is_answer else tuple(self._had.lacking(vector))
        cuts = range(0, len(lacking), MESH_VECTOR_ENTRIES)
        self.sends += [(sender, Vector(lacking[cut : cut + MESH_VECTOR_ENTRIES], is_answer=True)) for cut in cuts]

    def _claim(self, neighbour: _Neighbour, entry: Had) -> None:
        """It says to have something. What it did not have earlier it may have got; what it has no more it will not get again."""
        origin, denied = entry.origin, neighbour.denials.get(entry.origin)
        if denied is not None and not denied.is_gone and entry.number >= denied.range.first:
            del neighbour.denials[origin]
        if entry.number > self._had[origin] and not self._denies(neighbour, origin):
            neighbour.claims[origin] = max(entry.number, neighbour.claims.get(origin, 0))

    # --- pulling ------------------------------------------------------------------------------------------

    def pull(self, now_ms: int) -> None:
        """Request what is missing and not on its way, from somebody who says to have it."""
        self._expire_pulls(now_ms)
        wanted: dict[Address, list[Range]] = {}
        for origin, claimants in self._open_claims().items():
            chosen = pick(self._dice, claimants)
            first = self._had[origin] + 1
            last = min(self._neighbours[chosen].claims[origin], first + self._settings.request_messages - 1)
            self._pulls[origin] = _Pull(chosen, last, now_ms + self._settings.request_timeout_ms)
            wanted.setdefault(chosen, []).append(Range(origin, first, last))
        for neighbour, ranges in wanted.items():
            cuts = range(0, len(ranges), MESH_RANGES_MAX)
            self.sends += [(neighbour, Request(tuple(ranges[cut : cut + MESH_RANGES_MAX]))) for cut in cuts]

    def _open_claims(self) -> dict[Origin, list[Address]]:
        """Origins of which somebody has more than we do, and nothing is on its way."""
        claimed: dict[Origin, list[Address]] = {}
        for address, neighbour in self._neighbours.items():
            for origin, number in list(neighbour.claims.items()):
                if number <= self._had[origin]:
                    del neighbour.claims[origin]
                elif origin not in self._pulls:
                    claimed.setdefault(origin, []).append(address)
        return claimed

    def _expire_pulls(self, now_ms: int) -> None:
        """Requests that are answered, or will not be: then its next vector may bring the claim back."""
        for origin, pull in list(self._pulls.items()):
            if self._had[origin] >= pull.last:
                del self._pulls[origin]
            elif now_ms >= pull.due_ms:
                del self._pulls[origin]
                if pull.neighbour in self._neighbours:
                    self._neighbours[pull.neighbour].claims.pop(origin, None)

    def progressed(self, now_ms: int, origin: Origin, giver: Address = NOWHERE) -> None:
        """Something came: whoever sends is given more time; `giver` sent what was next, because we asked."""
        if giver != NOWHERE and origin in self._holes:
            self._note_giver(now_ms, origin, giver)
        pull = self._pulls.get(origin)
        if pull is not None:
            pull.due_ms = now_ms + self._settings.request_timeout_ms

    def _note_giver(self, now_ms: int, origin: Origin, giver: Address) -> None:
        """What somebody gives more of is not lost. Only what is new counts: else nothing that memory drops would ever be."""
        if giver not in self._neighbours:
            self._givers[origin] = giver
        hole, number = self._holes[origin], self._next_missing(origin)
        if number > hole.reached:
            hole.reached, hole.barren_ms = number, now_ms
            hole.asked.pop(giver, None)

    def kept_out(self, origin: Origin, number: int, giver: Address) -> None:
        """Somebody gave what there is no room for yet: it is not lost, and whoever has what is next is asked again."""
        hole, first = self._holes.get(origin), self._next_missing(origin)
        if hole is not None and number == first:
            hole.asked.pop(giver, None)
        elif hole is not None:
            hole.held = number if hole.held <= first else min(hole.held, number)

    def on_denied(self, sender: Address, packet: Denied) -> None:
        neighbour, origin = self._neighbours.get(sender), packet.range.origin
        if neighbour is None:
            self._on_denied_elsewhere(sender, packet.range)
            return
        neighbour.denials[origin] = self._joined(neighbour.denials.get(origin), packet)
        pull = self._pulls.get(origin)
        if pull is not None and pull.neighbour == sender and packet.range.first > self._next_missing(origin):
            pull.last = min(pull.last, packet.range.first - 1)  # What lies before it is on its way.
            return
        neighbour.claims.pop(origin, None)
        if pull is not None and pull.neighbour == sender:
            del self._pulls[origin]

    def _on_denied_elsewhere(self, sender: Address, denied: Range) -> None:
        """One of the others that was asked does not have what is next. Whoever did not answer may have it, and is asked again."""
        hole, pull = self._holes.get(denied.origin), self._pulls.get(denied.origin)
        if hole is None or sender not in hole.asked or not denied.first <= self._next_missing(denied.origin) <= denied.last:
            return
        hole.asked[sender] = MESH_OTHERS_TRIES
        if pull is not None and pull.neighbour == sender:
            del self._pulls[denied.origin]

    def _joined(self, before: Denied | None, packet: Denied) -> Denied:
        """What a neighbour denies of an origin, so that it is not asked again for what is missing next.

        It may have said that before, and deny something behind it too: two damaged messages are denied one by one.
        """
        denied = packet.range
        if before is None or not before.range.first <= self._next_missing(denied.origin) <= before.range.last:
            return packet
        if denied.first <= before.range.first:
            return packet
        if denied.first > before.range.last + 1:
            return before
        both = Range(denied.origin, before.range.first, max(before.range.last, denied.last))
        return Denied(both, before.is_gone and packet.is_gone, before.is_final and packet.is_final)

    # --- holes --------------------------------------------------------------------------------------------

    def is_stuck(self, origin: Origin) -> bool:
        """Whether all neighbours have denied what is missing next, and it has not come since."""
        hole = self._holes.get(origin)
        return hole is not None and hole.denied >= self._next_missing(origin)

    @property
    def holes(self) -> int:
        """How many origins have a hole that is being looked after: so many may be given up at once."""
        return len(self._holes)

    def watch(
        self, now_ms: int, waiting: Iterable[tuple[Origin, int, Address]], others: Callable[[], Sequence[Address]]
    ) -> list[tuple[Origin, int]]:
        """Look after holes: ask for them after a grace, and return those that are lost, with the last number of each.

        When no neighbour has it, one of the others is asked: neighbours that joined later never had it, and may be all we have.
        """
        for origin, number, sender in self._gone():
            self._note_hole(now_ms, origin, number - 1, sender)
        for origin, number, sender in waiting:
            self._note_hole(now_ms, origin, number - 1, sender)
            if origin in self._holes:
                self._holes[origin].end = number - 1  # However much is gone elsewhere: what waits here is not lost.
        lost, elsewhere = [], others() if self._holes else ()
        for origin, hole in list(self._holes.items()):
            if self._had[origin] >= hole.end:
                del self._holes[origin]
                self._givers.pop(origin, None)
            elif self._neighbours and now_ms - hole.since_ms >= self._settings.hole_grace_ms:
                last = self._lost_through(now_ms, origin, hole, elsewhere)
                if last:
                    lost.append((origin, last))
                elif origin not in self._pulls:
                    self._ask_for_hole(now_ms, origin, hole, elsewhere)
        return lost

    def _gone(self) -> list[tuple[Origin, int, Address]]:
        """What neighbours say to have had, and have no more, up to the number behind it."""
        return [
            (origin, denied.range.last + 1, address)
            for address, neighbour in self._neighbours.items()
            for origin, denied in neighbour.denials.items()
            if denied.is_gone
        ]

    def _note_hole(self, now_ms: int, origin: Origin, end: int, sender: Address) -> None:
        """A hole whose first number came is another one: what is left of it is as young as that."""
        first, hole = self._had[origin] + 1, self._holes.get(origin)
        if hole is not None and hole.first == first:
            hole.end = max(hole.end, end)
        elif end >= first:
            self._holes[origin] = _Hole(now_ms, first, end, sender)

    def _lost_through(self, now_ms: int, origin: Origin, hole: _Hole, elsewhere: Sequence[Address]) -> int:
        """The last number that all neighbours deny, if that has been so for long enough, or it was kept for so long; else 0.

        Nodes may keep messages for different times: one neighbour's word is final once others have been asked too. And
        without such a word somebody may well have it: then as many others are asked as we know at a time.
        """
        first = self._next_missing(origin)
        denials = [neighbour.denials.get(origin) for neighbour in self._neighbours.values()]
        said = [denied for denied in denials if denied is not None and denied.range.first <= first <= denied.range.last]
        if len(said) < len(denials):
            return 0
        hole.denied = max(hole.denied, first)
        is_old = now_ms - hole.barren_ms >= self._settings.retention_ms
        has_asked_some = len(hole.asked) >= MESH_OTHERS_ASKED or all(each in hole.asked for each in elsewhere)
        is_final = has_asked_some and any(denied.is_final for denied in said)
        has_asked_all = sum(tries >= MESH_OTHERS_TRIES for tries in hole.asked.values()) >= len(elsewhere)
        if not is_final and not (is_old and has_asked_all):
            return 0
        ends = [hole.end, *(denied.range.last for denied in said)]
        return min(ends) if hole.held <= first else min(*ends, hole.held - 1)

    def _ask_for_hole(self, now_ms: int, origin: Origin, hole: _Hole, elsewhere: Sequence[Address]) -> None:
        """First whoever sent what waits behind it, then every neighbour in turn, then others, one per round.

        One of the others that gave something is asked on at once: it may be the only one that has it.
        """
        asked = [address for address, each in self._neighbours.items() if not self._denies(each, origin)]
        if asked:
            chosen = hole.sender if hole.sender in asked else pick(self._dice, asked)
        elif origin in self._givers:
            chosen = self._givers.pop(origin)
        elif self._begins_round(now_ms, origin, hole) and elsewhere:
            fewest = min(hole.asked.get(each, 0) for each in elsewhere)
            chosen = pick(self._dice, [each for each in elsewhere if hole.asked.get(each, 0) == fewest])
            hole.asked[chosen] = fewest + 1
        else:
            return
        first = self._next_missing(origin)
        last = min(hole.end, first + self._settings.request_messages - 1)
        self._pulls[origin] = _Pull(chosen, last, now_ms + self._settings.request_timeout_ms)
        self.sends.append((chosen, Request((Range(origin, first, last),))))

    def _begins_round(self, now_ms: int, origin: Origin, hole: _Hole) -> bool:
        """All have denied it. Somebody may get it meanwhile: another round, after a while."""
        if now_ms < hole.round_ms:
            return False
        hole.round_ms = now_ms + self._settings.digest_grace_ms
        for neighbour in self._neighbours.values():
            neighbour.denials.pop(origin, None)
        return True

    def _denies(self, neighbour: _Neighbour, origin: Origin) -> bool:
        denied = neighbour.denials.get(origin)
        first = self._next_missing(origin)
        return denied is not None and denied.range.first <= first <= denied.range.last

# SPDX-License-Identifier: Apache-2.0
"""A client's outbox and a client's state directory, recorded for crash images.

May not: write but through Outbox and DirectoryState, or ask them what is right.
The idea: both do what sessions, puts and gets do, in their order; a promise is a place in a list of what had to be kept when.
Next: sim/images.py, which takes the images; sim/subject_journal.py for the broker's journal.
"""

from __future__ import annotations

from collections.abc import Hashable
from random import Random
from typing import NamedTuple, cast

from oncemq.client.state import DirectoryState, Place
from oncemq.core.identity import Identity, trying, welcomed
from oncemq.core.packets import SubscriptionInfo
from oncemq.core.slot import Slot
from oncemq.journal.outbox import Outbox, OutboxEntry
from oncemq.sim.subjects import LOG_ID, RECOVERIES, Broken, draw_block
from oncemq.sim.tape import Tape

_OUTBOX_SEGMENT_BYTES = 1536


# --- the outbox ---------------------------------------------------------------------------------------
class _Kept(NamedTuple):
    """What an outbox promises at some instant, as (stream, first number) of entries."""

    synced: frozenset[tuple[bytes, int]]
    """Nothing but their confirmation may take these away."""
    written: frozenset[tuple[bytes, int]]
    """Kill -9 leaves these."""
    gone: frozenset[tuple[bytes, int]]
    """These count as confirmed, and a broker was told to forget their streams: they never come back."""


class OutboxSubject:
    """Blocks kept, synced and confirmed over some starts. A promise is a place in a list of what had to be kept when."""

    tells_at_once = False

    def __init__(self, random: Random) -> None:
        self._random = random
        self._starts = 0
        self._entries: dict[tuple[bytes, int], bytes] = {}
        self._confirmed: dict[bytes, int] = {}
        self._now = _Kept(frozenset(), frozenset(), frozenset())
        self._promises: list[_Kept] = [self._now]
        self._outbox: Outbox

    def work(self, tape: Tape) -> None:
        for _ in range(self._random.choice((1, 2, 3))):
            tape.kill()
            self._outbox = self._open(tape)
            self._say_hello(tape)
            for _ in range(self._random.randrange(4, 16)):
                self._act(tape)
            if self._random.random() < 0.3:
                self._outbox.close()

    def _open(self, tape: Tape) -> Outbox:
        self._starts += 1
        return Outbox.open(tape, start_id=self._starts.to_bytes(16, "big"), segment_bytes=_OUTBOX_SEGMENT_BYTES)

    def _say_hello(self, tape: Tape) -> None:
        """What a session does first: a stream with nothing pending will be forgotten by the broker.

        Of a stream that is named pending it knows every number, and an entry that comes back is only a repeat.
        """
        self._outbox.sync()
        tape.sync_names()  # As DirectoryState.save does before Hello is said.
        pending = frozenset(map(_key, self._outbox.entries))
        streams = {stream for stream, _ in pending}
        gone = frozenset(key for key in self._entries if key[0] not in streams)
        self._promise(tape, _Kept(pending, pending, gone))

    def _promise(self, tape: Tape, kept: _Kept) -> None:
        self._now = kept
        self._promises.append(kept)
        tape.mark(len(self._promises) - 1)

    def _act(self, tape: Tape) -> None:
        match self._random.randrange(6):
            case 0 | 1 | 2:
                self._append(tape)
            case 3:
                self._outbox.sync()
                self._promise(tape, self._now._replace(synced=self._now.written))
            case _:
                self._retire(tape)

    def _append(self, tape: Tape) -> None:
        stream = self._starts.to_bytes(16, "big")
        number = 1 + sum(known == stream for known, _ in self._entries)
        entry = OutboxEntry(stream, number, 1, ("topic",), False, draw_block(self._random, b"%d" % number))
        self._entries[_key(entry)] = bytes(entry.block)
        self._outbox.append(entry)
        self._promise(tape, self._now._replace(written=self._now.written | {_key(entry)}))

    def _retire(self, tape: Tape) -> None:
        """The broker has confirmed the oldest pending block: from here on it may be there or not."""
        if self._now.written:
            stream, number = min(self._now.written)
            self._confirmed[stream] = number
            done = {(stream, number)}
            self._promise(tape, self._now._replace(synced=self._now.synced - done, written=self._now.written - done))
            self._outbox.retire(stream, number)

    # --- the verdict ---------------------------------------------------------------------------------

    def recover(self, tape: Tape, life: int) -> Hashable:
        tape.kill()
        self._starts = RECOVERIES + life
        self._outbox = self._open(tape)
        return self._found()

    def _found(self) -> tuple[tuple[tuple[bytes, int], bytes], ...]:
        return tuple((_key(entry), bytes(entry.block)) for entry in self._outbox.entries)

    def judge(self, found: Hashable, promise: int, *, is_cache: bool) -> None:
        entries = cast(tuple[tuple[tuple[bytes, int], bytes], ...], found)
        keys = [key for key, _ in entries]
        kept = self._promises[promise]
        if keys != sorted(set(keys)):
            raise Broken("an entry is there twice, or out of order")
        if any(self._entries.get(key) != block for key, block in entries):
            raise Broken("an entry is not what was written")
        missing = (kept.written if is_cache else kept.synced) - set(keys)
        if missing:
            raise Broken(f"{len(missing)} entries that were kept are gone")
        if kept.gone & set(keys):
            raise Broken("an entry that counted as confirmed is back")
        if any(number > self._confirmed.get(stream, 0) for stream, number in self._outbox.confirmed.items()):
            raise Broken("something counts as confirmed that was not")

    def go_on(self) -> Hashable:
        entry = OutboxEntry(self._starts.to_bytes(16, "big"), 1, 1, ("topic",), False, draw_block(self._random, b"more"))
        before = self._found()
        self._outbox.append(entry)
        self._outbox.sync()
        return (*before, (_key(entry), bytes(entry.block)))


def _key(entry: OutboxEntry) -> tuple[bytes, int]:
    return entry.stream, entry.first_number


# --- the state directory ------------------------------------------------------------------------------

_INFO = SubscriptionInfo(7, "topic", 3, "local", 0, 0, 0, 100)
_RESERVED_AHEAD = 4


class _Place(NamedTuple):
    """What a state directory promises at some instant: at least that identity, that slot, and nothing handed out beyond it."""

    identity: int
    slot: int
    last_slot: int
    handed: int


class StateSubject:
    """Identities saved and slots written, as sessions and gets do. A promise is a place in a list, as for the outbox."""

    tells_at_once = False

    def __init__(self, random: Random) -> None:
        self._random = random
        self._starts = 0
        self._identities: list[Identity] = [Identity("client")]
        self._slots: list[tuple[int, int, int]] = [(0, 0, 0)]
        self._now = _Place(0, 0, 0, 0)
        self._promises: list[_Place] = [self._now]
        self._state: DirectoryState
        self._slot: Slot
        self._place: Place

    def work(self, tape: Tape) -> None:
        for _ in range(self._random.choice((1, 2, 3))):
            tape.kill()
            self._state = self._open(tape)
            session = self._starts.to_bytes(16, "big")
            self._save(tape, trying(self._state.identity, session))
            self._take_up(tape)
            self._save(tape, welcomed(self._state.identity, session, LOG_ID))
            for _ in range(self._random.randrange(2, 12)):
                self._hand_out(tape)
            if self._random.random() < 0.4:
                self._leave(tape)

    def _open(self, tape: Tape) -> DirectoryState:
        self._starts += 1
        return DirectoryState(tape, "directory", "client", self._starts.to_bytes(16, "big"))

    def _promise(self, tape: Tape, place: _Place) -> None:
        self._now = place
        self._promises.append(place)
        tape.mark(len(self._promises) - 1)

    def _save(self, tape: Tape, identity: Identity) -> None:
        self._identities.append(identity)
        self._state.save(identity)
        self._promise(tape, self._now._replace(identity=len(self._identities) - 1))

    def _take_up(self, tape: Tape) -> None:
        """What Gets.add does; whatever was in doubt is skipped."""
        self._slot, self._place, _ = self._state.open_slot(_INFO)
        self._slot.finished = self._slot.handed
        self._slot.freeze()
        self._write(tape, sync=True)

    def _write(self, tape: Tape, *, sync: bool) -> None:
        self._slots.append((self._slot.finished, self._slot.handed, self._slot.reserved))
        self._place.write(self._slot)
        last = len(self._slots) - 1
        self._promise(tape, self._now._replace(last_slot=last))
        if sync:
            self._place.sync()
            self._promise(tape, self._now._replace(slot=last))

    def _hand_out(self, tape: Tape) -> None:
        slot = self._slot
        if slot.handed >= slot.reserved:
            slot.reserved = slot.handed + _RESERVED_AHEAD
            self._write(tape, sync=True)
        slot.finished, slot.handed = slot.handed, slot.handed + 1
        self._write(tape, sync=False)
        self._promise(tape, self._now._replace(handed=slot.handed))

    def _leave(self, tape: Tape) -> None:
        self._slot.is_clean, self._slot.finished = True, self._slot.handed
        self._slot.freeze()
        self._write(tape, sync=True)
        self._state.close()

    # --- the verdict ---------------------------------------------------------------------------------

    def recover(self, tape: Tape, life: int) -> Hashable:
        tape.kill()
        self._starts = RECOVERIES + life
        self._state = self._open(tape)
        self._slot, self._place, _ = self._state.open_slot(_INFO)
        return self._found()

    def _found(self) -> tuple[str, tuple[int, int, int]]:
        return repr(self._state.identity), (self._slot.finished, self._slot.handed, self._slot.reserved)

    def judge(self, found: Hashable, promise: int, *, is_cache: bool) -> None:
        identity, slot = cast(tuple[str, tuple[int, int, int]], found)
        place = self._promises[promise]
        if identity not in map(repr, self._identities[place.identity :]):
            raise Broken("an identity that was saved is gone")
        if slot not in self._slots[place.slot :] or (is_cache and slot not in self._slots[place.last_slot :]):
            raise Broken(f"the slot is {slot}, an older one than the last that was kept")
        if slot[2] < place.handed:
            raise Broken(f"{place.handed} messages were handed out, the slot knows of {slot[2]}")

    def go_on(self) -> Hashable:
        session = self._starts.to_bytes(16, "big")
        self._state.save(trying(self._state.identity, session))
        self._slot.freeze()
        self._place.write(self._slot)
        self._place.sync()
        return self._found()

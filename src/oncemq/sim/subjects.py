# SPDX-License-Identifier: Apache-2.0
"""What is recorded for crash images: the journal with a broker's state, a client's outbox, a client's state directory.

May not: excuse a loss, or write to a disk but through the production code that owns it.
The idea: a subject works on a tape and marks what it could promise by then; afterwards it is asked whether what recovery finds on
an image keeps that promise. The journal's answer is the strictest: the state must be the fold of a prefix of all records.
Next: sim/images.py, which takes the images; sim/tape.py for the disk.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable
from random import Random
from typing import NamedTuple, Protocol, cast

from oncemq.client.state import DirectoryState, Place
from oncemq.core import records
from oncemq.core.identity import Identity, trying, welcomed
from oncemq.core.packets import SubscriptionInfo
from oncemq.core.slot import Slot
from oncemq.core.state import BrokerState
from oncemq.errors import invariant
from oncemq.journal.codec import decode_delivery, encode
from oncemq.journal.journal import Journal, JournalSettings
from oncemq.journal.outbox import Outbox, OutboxEntry
from oncemq.model.block import checksum, cut_block
from oncemq.sim.tape import Tape

_SETTINGS = JournalSettings(segment_bytes=3072, segment_records_max=14, reserve_bytes=1024)
_OUTBOX_SEGMENT_BYTES = 1536
_LOG_ID = b"L" * 16
_TOPICS = (1, 2)


class Subject(Protocol):
    """Somebody who works on a tape and can tell whether an image keeps what was promised."""

    def work(self, tape: Tape) -> None:
        """Do something on an empty tape, and mark promises."""

    def recover(self, tape: Tape) -> Hashable:
        """Open what is there with the production code, as after a crash, and return all that was found."""

    def judge(self, found: Hashable, promise: int, *, is_cache: bool) -> None:
        """Raise Broken unless that keeps the promise; `is_cache`: nothing was lost but the process."""

    def go_on(self) -> Hashable:
        """Do one more thing durably with what was recovered last, and return what must be found from then on."""


class Broken(Exception):
    """A promise was not kept."""


def _block(random: Random, text: bytes) -> bytes:
    size = random.choice((0, 0, 40, 40, 300, 300, 700, 1500))
    return bytes(cut_block([text + random.randbytes(size)], array("q", [1])))


# --- the journal --------------------------------------------------------------------------------------


class JournalSubject:
    """Groups of records over some starts. A promise is how many records are synced."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._starts = 0
        self._records: list[records.Record] = []
        self._folds: dict[bytes, int] = {BrokerState().dump(): 0}
        """Every prefix of the records, as the state it makes."""
        self._state = BrokerState()
        self._journal: Journal

    # --- the run -------------------------------------------------------------------------------------

    def work(self, tape: Tape) -> None:
        self._journal, self._state = self._open(tape)
        self._write(tape, self._beginning(), sync=True)
        for life in range(self._random.choice((1, 2, 3))):
            if life:
                self._start_again(tape)
            for _ in range(self._random.randrange(3, 14)):
                self._act(tape)
            if self._random.random() < 0.4:
                self._journal.close()

    def _open(self, tape: Tape) -> tuple[Journal, BrokerState]:
        self._starts += 1
        state = BrokerState()
        start_id = self._starts.to_bytes(16, "big")
        journal = Journal.open(tape, start_id=start_id, new_log_id=_LOG_ID, state=state, settings=_SETTINGS)
        return journal, state

    def _start_again(self, tape: Tape) -> None:
        tape.kill()
        expected = self._state.dump()
        self._journal, self._state = self._open(tape)
        invariant(self._state.dump() == expected, "a restart after kill -9 found another state")
        tape.mark(len(self._records))  # Whatever a start has found may be told to anybody.
        self._write(tape, [self._started()], sync=True)

    def _started(self) -> records.Record:
        return records.Started(self._starts.to_bytes(16, "big"), self._state.next_append_number, 1, "sim")

    def _beginning(self) -> list[records.Record]:
        opened = records.SessionOpened("publisher", b"p" * 16, (), False, 1)
        topics = [records.TopicCreated(topic, f"topic-{topic}", True, "", "", 1) for topic in _TOPICS]
        return [
            self._started(),
            opened,
            *topics,
            *(records.Subscribed(9 + topic, topic, "publisher", "", 0, 1) for topic in _TOPICS),
        ]

    def _act(self, tape: Tape) -> None:
        """What a drain does; now and then two groups share a sync, and dead segments are trimmed."""
        self._write(tape, [self._stored(self._state), *self._cursors()], sync=self._random.random() < 0.8)
        if self._random.random() < 0.3:
            self._write(tape, self._trims(), sync=True)
            self._journal.trim({topic.topic_id: topic.low for topic in self._state.topics.values()})

    def _write(self, tape: Tape, group: list[records.Record], *, sync: bool) -> None:
        size = sum(len(part) for record in group for part in encode(record))
        invariant(self._journal.prepare(size, len(group)) >= size, "no room on an endless disk")
        for record in group:
            self._state.apply(record)
            self._records.append(record)
            self._folds[self._state.dump()] = len(self._records)
        self._journal.append(group)
        if sync:
            self._journal.sync()
            tape.mark(len(self._records))

    def _stored(self, state: BrokerState) -> records.Stored:
        topics = self._random.choice(((1,), (2,), _TOPICS))
        placements = tuple(records.Placement(topic, state.topics[topic].end) for topic in topics)
        number = state.clients["publisher"].streams[b"p" * 16].last + 1
        block = _block(self._random, b"%d" % number)
        place = (state.next_append_number, 1, state.start_id, b"p" * 16, number, 1)
        return records.Stored(*place, checksum(block), len(block), placements, "publisher", None, block)

    def _cursors(self) -> list[records.Record]:
        behind = [entry for entry in self._state.subscriptions.values() if entry.cursor < self._state.topics[entry.topic_id].end]
        chosen = [entry for entry in behind if self._random.random() < 0.5]
        return [records.CursorMoved(entry.subscription_id, self._state.topics[entry.topic_id].end) for entry in chosen]

    def _trims(self) -> list[records.Record]:
        lows = {entry.topic_id: entry.cursor for entry in self._state.subscriptions.values()}
        return [records.Trimmed(topic, low) for topic, low in lows.items() if low > self._state.topics[topic].low]

    # --- the verdict ---------------------------------------------------------------------------------

    def recover(self, tape: Tape) -> Hashable:
        tape.kill()
        self._journal, self._state = self._open(tape)
        return self._found()

    def _found(self) -> tuple[bytes, tuple[bytes, ...]]:
        """The state, and every block that can be read."""
        ranges = [(topic.topic_id, topic.low, topic.end) for topic in self._state.topics.values() if topic.end > topic.low]
        blocks = [_block_in(content) for each in ranges for content in self._journal.read([each], 1 << 30)]
        return self._state.dump(), tuple(blocks)

    def judge(self, found: Hashable, promise: int, *, is_cache: bool) -> None:  # noqa: ARG002 - prefixes say it all
        state, blocks = cast(tuple[bytes, tuple[bytes, ...]], found)
        count = self._folds.get(state)
        if count is None:
            raise Broken("the state is not that of any prefix of the records")
        if count < promise:
            raise Broken(f"{promise} records were synced, {count} are there")
        if list(blocks) != self._blocks_of(count):
            raise Broken(f"of {len(self._blocks_of(count))} blocks {len(blocks)} can be read, or others")

    def _blocks_of(self, count: int) -> list[bytes | bytearray | memoryview]:
        lows = {topic.topic_id: topic.low for topic in self._state.topics.values()}
        stored = [record for record in self._records[:count] if isinstance(record, records.Stored)]
        return [record.block for topic, low in lows.items() for record in stored if _is_in(record, topic, low)]

    def go_on(self) -> Hashable:
        state = self._state
        if len(state.topics) == len(_TOPICS):
            record = self._stored(state)
            size = sum(map(len, encode(record)))
            invariant(self._journal.prepare(size, 1) >= size, "no room on an endless disk")
            state.apply(record)
            self._journal.append([record])
            self._journal.sync()
        return self._found()


def _is_in(record: records.Stored, topic: int, low: int) -> bool:
    return any(place.topic_id == topic and place.first_offset + record.count > low for place in record.placements)


def _block_in(content: bytes) -> bytes:
    _, start, end, _ = decode_delivery(content, 0)
    return content[start:end]


# --- the outbox ---------------------------------------------------------------------------------------


class _Kept(NamedTuple):
    """What an outbox promises at some instant, as (stream, first number) of entries."""

    synced: frozenset[tuple[bytes, int]]
    """Nothing but their confirmation may take these away."""
    written: frozenset[tuple[bytes, int]]
    """Kill -9 leaves these."""
    gone: frozenset[tuple[bytes, int]]
    """These count as confirmed, and a broker was told so: they never come back."""


class OutboxSubject:
    """Blocks kept, synced and confirmed over some starts. A promise is a place in a list of what had to be kept when."""

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
        """What a session does first: whatever is not pending will be forgotten by the broker."""
        self._outbox.sync()
        tape.sync_names()  # As DirectoryState.save does before Hello is said.
        pending = frozenset(map(_key, self._outbox.entries))
        gone = frozenset(self._entries) - pending
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
        entry = OutboxEntry(stream, number, 1, ("topic",), False, _block(self._random, b"%d" % number))
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

    def recover(self, tape: Tape) -> Hashable:
        tape.kill()
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
        entry = OutboxEntry(self._starts.to_bytes(16, "big"), 1, 1, ("topic",), False, _block(self._random, b"more"))
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
            self._save(tape, welcomed(self._state.identity, session, _LOG_ID))
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

    def recover(self, tape: Tape) -> Hashable:
        tape.kill()
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


SUBJECTS: dict[str, Callable[[Random], Subject]] = {
    "journal": JournalSubject,
    "outbox": OutboxSubject,
    "state directory": StateSubject,
}

# SPDX-License-Identifier: Apache-2.0
"""A journal with a broker's state, recorded for crash images.

May not: write but through Journal, or ask it what is right.
The idea: groups of records over some starts, with rolls, snapshots and trims; several groups may share a sync, and a group may
have several blocks. The answer is the strictest there is: after recovery the state must be the fold of a prefix of all groups,
none of them half, not shorter than what was synced, with every block readable.
Next: sim/images.py, which takes the images; sim/subject_client.py for the other two.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from random import Random
from typing import NamedTuple, cast

import msgspec

from oncemq.core import records
from oncemq.core.effects import Sender
from oncemq.core.packets import CommitStaged, PartClaim, Stage
from oncemq.core.staging import StageOffer, decide_commit, decide_stage
from oncemq.core.state import BrokerState
from oncemq.core.topics import Topic
from oncemq.errors import invariant
from oncemq.journal.codec import decode, decode_delivery, encode, spliced_delivery
from oncemq.journal.journal import Journal, JournalSettings
from oncemq.model.block import checksum
from oncemq.ports import Instant
from oncemq.sim.subjects import LOG_ID, RECOVERIES, Broken, draw_block
from oncemq.sim.tape import Tape

_SETTINGS = JournalSettings(segment_bytes=3072, segment_records_max=14, reserve_bytes=1024, clean_slack_bytes=0)
_TOPICS = (1, 2)
_STREAM = b"p" * 16
_QUERY, _NOBODY, _NOW = "query", Sender(b"", 0), Instant(0, 1)
Block = bytes | bytearray | memoryview


class _Found(NamedTuple):
    """The state, every block that can be read, and the last number of the stream, which no dump is asked for."""

    state: bytes
    blocks: tuple[bytes, ...]
    last_number: int


class JournalSubject:
    """Groups of records over some starts. A promise is how many records are synced."""

    tells_at_once = True

    def __init__(self, random: Random) -> None:
        self._random = random
        self._starts = 0
        self._records: list[records.Record] = []
        self._folds: dict[bytes, int] = {BrokerState().dump(): 0}
        """Every prefix of the groups, as the state it makes; how many records those are."""
        self._sync_chance = random.choice((0.8, 0.3))
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
        journal = Journal.open(tape, start_id=start_id, new_log_id=LOG_ID, state=state, settings=_SETTINGS)
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
        opened = records.SessionOpened("publisher", _STREAM, (), False, 1)
        topics = [records.TopicCreated(topic, f"topic-{topic}", True, "", "", 1) for topic in _TOPICS]
        return [
            self._started(),
            opened,
            *topics,
            *(records.Subscribed(9 + topic, topic, "publisher", "", 0, 1) for topic in _TOPICS),
        ]

    def _act(self, tape: Tape) -> None:
        """What a drain does; now and then two groups share a sync, dead segments are trimmed and sparse ones cleaned."""
        self._write(tape, [*self._puts(), *self._cursors()], sync=self._syncs())
        if self._random.random() < 0.4:
            self._write(tape, self._staged(), sync=self._syncs())
        if self._state.parts and self._random.random() < 0.3:
            self._write(tape, self._committed(), sync=self._syncs())
        if self._random.random() < 0.3:
            self._write(tape, self._trims(), sync=True)
            lows = {topic.topic_id: topic.low for topic in self._state.topics.values()} | self._state.storage_lows()
            self._journal.trim(lows)
            self._journal.clean(lows, self._random.choice((300, 5000)))

    def _syncs(self) -> bool:
        return self._random.random() < self._sync_chance

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

    def _puts(self) -> list[records.Record]:
        """What one to three puts of a drain come to, each decided on what those before it leave."""
        state, puts = BrokerState(), list[records.Record]()
        state.restore(self._state.dump())
        for _ in range(self._random.choice((1, 1, 2, 3))):
            puts.append(self._stored(state))
            state.apply(puts[-1])
        return puts

    def _stored(self, state: BrokerState) -> records.Stored:
        topics = self._random.choice(((1,), (2,), _TOPICS))
        placements = tuple(records.Placement(topic, state.topics[topic].end) for topic in topics)
        number = state.clients["publisher"].streams[_STREAM].last + 1
        block = draw_block(self._random, b"%d" % number)
        place = (state.next_append_number, 1, state.start_id, _STREAM, number, 1)
        return records.Stored(*place, checksum(block), len(block), placements, "publisher", None, block)

    def _staged(self) -> list[records.Record]:
        """The next chunk of a part that waits, or the first of another one."""
        names = [name for name in self._state.parts if self._random.random() < 0.5]
        name = names[0] if names else len(self._records).to_bytes(16, "big")
        chunk = self._state.parts[name].chunks + 1 if names else 1
        packet = Stage(_QUERY, self._batch(), name, chunk, 1)
        block = draw_block(self._random, b"staged-%d" % len(self._records))
        return list(decide_stage(self._state, StageOffer(_NOBODY, packet, block, _NOW, 1 << 30)).records)

    def _batch(self) -> int:
        query = self._state.queries.get(_QUERY)
        return 0 if query is None else query.batch + 1

    def _committed(self) -> list[records.Record]:
        """A commit of some of the parts; the others are released by it."""
        chosen = [item for item in self._state.parts.items() if self._random.random() < 0.7]
        claims = [
            PartClaim(name, f"topic-{self._random.choice(_TOPICS)}", part.chunks, part.rows, part.crc) for name, part in chosen
        ]
        packet = CommitStaged(_QUERY, self._batch(), len(claims))
        return list(decide_commit(self._state, _NOBODY, packet, msgspec.msgpack.encode(claims), _NOW).records)

    def _cursors(self) -> list[records.Record]:
        behind = [entry for entry in self._state.subscriptions.values() if entry.cursor < self._state.topics[entry.topic_id].end]
        chosen = [entry for entry in behind if self._random.random() < 0.5]
        return [records.CursorMoved(entry.subscription_id, self._state.topics[entry.topic_id].end) for entry in chosen]

    def _trims(self) -> list[records.Record]:
        lows = {entry.topic_id: entry.cursor for entry in self._state.subscriptions.values()}
        return [records.Trimmed(topic, low) for topic, low in lows.items() if low > self._state.topics[topic].low]

    # --- the verdict ---------------------------------------------------------------------------------

    def recover(self, tape: Tape, life: int) -> Hashable:
        tape.kill()
        self._starts = RECOVERIES + life
        self._journal, self._state = self._open(tape)
        return self._found()

    def _found(self) -> _Found:
        blocks = [block for topic in self._state.topics.values() for block in self._read(topic)]
        for part in self._state.parts.values():
            blocks += [_staged_block(content) for content in self._journal.read([(part.storage_id, 0, part.rows)], 1 << 30)]
        streams = self._state.clients["publisher"].streams if self._state.clients else {}
        return _Found(self._state.dump(), tuple(blocks), streams[_STREAM].last if _STREAM in streams else 0)

    def _read(self, topic: Topic) -> Iterator[bytes]:
        """Read a topic from low to end, through its splices, as the broker does."""
        at = topic.low
        while at < topic.end:
            piece = topic.piece(at, topic.end)
            if piece.splice is None:
                wanted = (topic.topic_id, piece.first, piece.end)
                yield from (_block_in(content) for content in self._journal.read([wanted], 1 << 30))
            else:
                wanted = (piece.splice.storage_id, piece.first - piece.splice.first, piece.end - piece.splice.first)
                for content in self._journal.read([wanted], 1 << 30):
                    yield _block_in(spliced_delivery(content, piece.splice, topic.topic_id))
            at = piece.end

    def judge(self, found: Hashable, promise: int, *, is_cache: bool) -> None:  # noqa: ARG002 - prefixes say it all
        state, blocks, last_number = cast(_Found, found)
        count = self._folds.get(state)
        if count is None:
            raise Broken("the state is not that of any prefix of the groups")
        if count < promise:
            raise Broken(f"{promise} records were synced, {count} are there")
        if list(blocks) != self._blocks_of(count):
            raise Broken(f"of {len(self._blocks_of(count))} blocks {len(blocks)} can be read, or others")
        if last_number != sum(len(record.placements) for record in self._records[:count] if isinstance(record, records.Stored)):
            raise Broken(f"the last put of the stream is number {last_number}, and would be taken again, or refused")

    def _blocks_of(self, count: int) -> list[bytes | bytearray | memoryview]:
        """What must be readable, told from the records alone: topics in offset order, then parts that wait."""
        placed: dict[int, list[Block]] = {topic: [] for topic in self._state.topics}
        parts: dict[bytes, list[Block]] = {}
        for record in self._records[:count]:
            match record:
                case records.Stored():
                    for place in record.placements:
                        placed.setdefault(place.topic_id, []).append(record.block)
                case records.Staged():
                    parts.setdefault(record.part, []).append(record.block)
                case records.StagedCommitted():
                    for entry in record.parts:
                        placed.setdefault(entry.topic_id, []).extend(parts[entry.part])
                    parts.clear()
        waiting = [block for blocks in parts.values() for block in blocks]
        kept = [placed[topic.topic_id][topic.low :] for topic in self._state.topics.values()]  # Every block is one message.
        return [block for blocks in kept for block in blocks] + waiting

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


def _block_in(content: bytes) -> bytes:
    _, start, end, _ = decode_delivery(content, 0)
    return content[start:end]


def _staged_block(content: bytes) -> bytes:
    record, _ = decode(content, with_block=True)
    invariant(isinstance(record, records.Staged), "something else than a staged block")
    return bytes(cast(records.Staged, record).block)

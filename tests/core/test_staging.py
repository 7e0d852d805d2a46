# SPDX-License-Identifier: Apache-2.0
"""Staging at the broker: invisible until committed, all or nothing, the same batch once, an older one never (R22)."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from oncemq.core.broker import BrokerMachine
from oncemq.core.effects import Deliver
from oncemq.core.packets import (
    CommitStaged,
    CommitStagedDone,
    CommittedRange,
    CreateTopic,
    DeleteTopic,
    Packet,
    PartClaim,
    Put,
    Read,
    Refused,
    Stage,
    StageDone,
)
from oncemq.core.staging import next_crc
from oncemq.core.state import BrokerState
from oncemq.journal.codec import encoded_size
from oncemq.limits import CONTROL_ROOM_BYTES, HOUSEKEEPING_MS, STAGE_LEASE_MS
from oncemq.model.block import checksum, cut_block
from oncemq.model.refusals import Code
from oncemq.ports import Instant
from tests.core.test_edges import NOW, SESSION, TO, code_of, machine_with_client, say, take

QUERY = "query-1"


def block(*values: bytes) -> bytes:
    return bytes(cut_block(values, array("q", [1] * len(values))))


def part_id(number: int) -> bytes:
    return bytes([number]) * 16


@pytest.fixture
def machine() -> BrokerMachine:
    """Topics "out" and "other" that keep everything; one message in "out"."""
    machine = machine_with_client()
    say(machine, CreateTopic(SESSION, 1, "out", "forever"))
    say(machine, CreateTopic(SESSION, 2, "other", "forever"))
    say(machine, Put(SESSION, SESSION, 1, 1, ("out",)), block(b"before"))
    return machine


def stage(machine: BrokerMachine, part: int, *chunks: tuple[bytes, ...], batch: int = 0, topic: str = "out") -> PartClaim:
    """Stage a part and return what the task would tell its driver."""
    crc = 0
    for number, values in enumerate(chunks, start=1):
        content = block(*values)
        assert say(machine, Stage(QUERY, batch, part_id(part), number, len(values)), content) == [
            StageDone(part_id(part), number, False)
        ]
        crc = next_crc(crc, checksum(content))
    return PartClaim(part_id(part), topic, len(chunks), sum(map(len, chunks)), crc)


def commit(machine: BrokerMachine, *claims: PartClaim, batch: int = 0, query: str = QUERY) -> Packet:
    (answer,) = say(machine, CommitStaged(query, batch, len(claims)), msgspec.msgpack.encode(claims))
    return answer


def topic_id(machine: BrokerMachine, name: str) -> int:
    return machine.state.topic_ids[name]


def end(machine: BrokerMachine, name: str) -> int:
    return machine.state.topics[topic_id(machine, name)].end


def read(machine: BrokerMachine, topic: str, first: int, last: int) -> Deliver:
    (speech,) = machine.decide(NOW, TO, Read(topic, 0, first, last, 1_000)).speech
    assert isinstance(speech, Deliver)
    return speech


def restored(machine: BrokerMachine) -> BrokerState:
    state = BrokerState()
    state.restore(machine.state.dump())
    return state


# --- committing -------------------------------------------------------------------------------------


def test_staged_rows_are_invisible_until_they_are_committed_all_at_once(machine: BrokerMachine) -> None:
    claims = [stage(machine, 1, (b"a", b"b"), (b"c",)), stage(machine, 2, (b"d",), topic="other"), stage(machine, 3, (b"e",))]
    assert (end(machine, "out"), end(machine, "other")) == (1, 0)

    done = commit(machine, *claims)

    out, other = topic_id(machine, "out"), topic_id(machine, "other")
    assert done == CommitStagedDone(QUERY, 0, False, (CommittedRange(out, 1, 4), CommittedRange(other, 0, 1)))
    assert (end(machine, "out"), end(machine, "other")) == (5, 1)


def test_the_same_batch_again_is_a_repeat_with_the_same_ranges(machine: BrokerMachine) -> None:
    first = commit(machine, stage(machine, 1, (b"a",)))
    again = Stage(QUERY, 0, part_id(2), 1, 1)

    assert say(machine, again, block(b"a")) == [StageDone(part_id(2), 1, True)], "nothing of it is needed any more"
    assert commit(machine, PartClaim(part_id(2), "out", 1, 1, 7)) == msgspec.structs.replace(first, is_repeat=True)
    assert end(machine, "out") == 2
    assert machine.state.parts == {}


def test_an_older_batch_is_refused_when_it_is_staged_and_when_it_is_committed(machine: BrokerMachine) -> None:
    for batch in range(3):
        commit(machine, stage(machine, batch + 1, (b"a",), batch=batch), batch=batch)

    (refused,) = say(machine, Stage(QUERY, 1, part_id(9), 1, 1), block(b"new"))
    assert refused == commit(machine, PartClaim(part_id(9), "out", 1, 1, 7), batch=1)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.expected) == (Code.BATCH_WENT_BACK, 2)


def test_a_batch_whose_predecessor_is_unknown_is_refused(machine: BrokerMachine) -> None:
    """A broker that was set back to a copy, or is another one, must not go on as if nothing were missing."""
    assert code_of([commit(machine, batch=3)]) == Code.BATCH_MISSING
    commit(machine)
    refused = commit(machine, stage(machine, 1, (b"a",), batch=2), batch=2)
    assert code_of([refused]) == Code.BATCH_MISSING
    assert end(machine, "out") == 1


@pytest.mark.parametrize(
    "change", [{"chunks": 2}, {"rows": 3}, {"crc": 0}, {"part": part_id(8)}], ids=["chunks", "rows", "crc", "another part"]
)
def test_a_part_that_is_not_as_it_was_staged_commits_nothing(machine: BrokerMachine, change: dict[str, object]) -> None:
    good, bad = stage(machine, 1, (b"a",)), msgspec.structs.replace(stage(machine, 2, (b"b", b"c")), **change)

    assert code_of([commit(machine, good, bad)]) == Code.NO_SUCH_PART
    assert end(machine, "out") == 1
    assert len(machine.state.parts) == 2, "the batch can be committed as it was staged"


def test_a_part_of_another_batch_or_query_is_not_committed(machine: BrokerMachine) -> None:
    claim = stage(machine, 1, (b"a",), batch=1)
    assert code_of([commit(machine, claim)]) == Code.NO_SUCH_PART
    assert code_of([commit(machine, claim, query="query-2")]) == Code.NO_SUCH_PART


def test_a_topic_nobody_keeps_refuses_the_whole_batch_and_can_be_made_later(machine: BrokerMachine) -> None:
    claims = stage(machine, 1, (b"a",)), stage(machine, 2, (b"b",), topic="nobody")
    assert code_of([commit(machine, *claims)]) == Code.NO_SUBSCRIBERS
    say(machine, CreateTopic(SESSION, 3, "nobody", "forever"))
    assert isinstance(commit(machine, *claims), CommitStagedDone)


@pytest.mark.parametrize("body", [b"", b"\xc1", msgspec.msgpack.encode([1]), msgspec.msgpack.encode([])])
def test_a_list_of_parts_that_cannot_be_read_is_refused(machine: BrokerMachine, body: bytes) -> None:
    assert code_of(say(machine, CommitStaged(QUERY, 0, 1), body)) == Code.MALFORMED


def test_an_empty_batch_is_remembered(machine: BrokerMachine) -> None:
    assert commit(machine) == CommitStagedDone(QUERY, 0, False, ())
    assert commit(machine) == CommitStagedDone(QUERY, 0, True, ())


# --- staging ----------------------------------------------------------------------------------------


def test_a_chunk_is_taken_once_and_in_order(machine: BrokerMachine) -> None:
    stage(machine, 1, (b"a",), (b"b",))
    repeat, other = Stage(QUERY, 0, part_id(1), 2, 1), Stage(QUERY, 0, part_id(1), 4, 1)

    assert say(machine, repeat, block(b"b")) == [StageDone(part_id(1), 2, False)]
    assert code_of(say(machine, repeat, block(b"x"))) == Code.CONFLICTING_PUT
    assert code_of(say(machine, other, block(b"d"))) == Code.GAP_IN_STREAM
    assert code_of(say(machine, Stage(QUERY, 0, part_id(2), 2, 1), block(b"b"))) == Code.NO_SUCH_PART
    assert code_of(say(machine, Stage(QUERY, 1, part_id(1), 3, 1), block(b"c"))) == Code.CONFLICTING_PUT
    assert machine.state.parts[part_id(1)].rows == 2


@pytest.mark.parametrize(
    ("packet", "content", "code"),
    [
        (Stage(QUERY, 0, part_id(1), 1, 1), b"x" * 64, Code.CORRUPT_BLOCK),
        (Stage(QUERY, 0, part_id(1), 1, 2), block(b"a"), Code.MALFORMED),
        (Stage("no name", 0, part_id(1), 1, 1), block(b"a"), Code.INVALID_NAME),
    ],
)
def test_what_cannot_be_staged_leaves_nothing(machine: BrokerMachine, packet: Stage, content: bytes, code: str) -> None:
    assert code_of(say(machine, packet, content)) == code
    assert machine.state.parts == {}


def test_a_full_disk_refuses_chunks_and_they_can_be_sent_again(machine: BrokerMachine) -> None:
    machine.room_bytes = 10
    assert code_of(say(machine, Stage(QUERY, 0, part_id(1), 1, 1), block(b"a"))) == Code.DISK_FULL
    machine.room_bytes = 1_000_000
    stage(machine, 1, (b"a",))


# --- what is left behind ----------------------------------------------------------------------------


def test_a_commit_releases_what_its_batch_and_those_before_left_behind(machine: BrokerMachine) -> None:
    stage(machine, 1, (b"failed attempt",))
    claim = stage(machine, 2, (b"a",))
    ahead = stage(machine, 3, (b"b",), batch=1)

    commit(machine, claim)

    assert list(machine.state.parts) == [ahead.part]


def test_a_lease_ends_what_nobody_commits_and_every_word_renews_it(machine: BrokerMachine) -> None:
    stage(machine, 1, (b"a",))

    def tidied(at_ms: int) -> None:
        take(machine, machine.tidy(Instant(at_ms, NOW.wall_us)))

    half, late = NOW.ticks_ms + STAGE_LEASE_MS // 2, NOW.ticks_ms + STAGE_LEASE_MS + HOUSEKEEPING_MS
    tidied(half)
    machine.decide(Instant(half, NOW.wall_us), TO, Stage(QUERY, 0, part_id(1), 1, 1), block(b"a"))
    tidied(late)
    assert list(machine.state.parts) == [part_id(1)]
    tidied(half + STAGE_LEASE_MS + 2 * HOUSEKEEPING_MS)
    assert machine.state.parts == {}


def test_there_is_always_room_for_the_record_that_ends_a_lease(machine: BrokerMachine) -> None:
    """It names every part that goes: a thousand of them are more than what is kept free for a drain that does nothing."""
    for number in range(1_000):
        say(machine, Stage(QUERY, 0, number.to_bytes(16, "big"), 1, 1), block(b"a"))
    take(machine, machine.tidy(NOW))
    effects = machine.tidy(Instant(NOW.ticks_ms + STAGE_LEASE_MS + HOUSEKEEPING_MS, NOW.wall_us))

    assert CONTROL_ROOM_BYTES < encoded_size(effects.records[0]) <= machine.control_bytes()


def test_an_id_that_is_used_once_is_forgotten_with_its_lease_and_others_never(machine: BrokerMachine) -> None:
    say(machine, CommitStaged("once", 0, 0, True), msgspec.msgpack.encode([]))
    commit(machine)
    for round_number in range(4):
        take(machine, machine.tidy(Instant(NOW.ticks_ms + round_number * (STAGE_LEASE_MS + 2_000), NOW.wall_us)))
    assert list(machine.state.queries) == [QUERY]


# --- reading, retention, recovery -------------------------------------------------------------------


def test_a_read_is_cut_where_the_rows_of_a_part_begin_and_end(machine: BrokerMachine) -> None:
    commit(machine, stage(machine, 1, (b"a", b"b")))
    say(machine, Put(SESSION, SESSION, 2, 1, ("out",)), block(b"after"))
    out = topic_id(machine, "out")
    (splice,) = machine.state.topics[out].splices

    own, spliced, behind = read(machine, "out", 0, 4), read(machine, "out", 2, 4), read(machine, "out", 3, 4)

    assert (own.ranges, own.splice) == (((out, 0, 1),), None)
    assert (spliced.splice, spliced.spliced, spliced.ranges) == (splice, (1, 2), ())
    assert (behind.ranges, behind.splice) == (((out, 3, 4),), None)


def test_rows_have_the_querys_numbers_and_append_numbers_without_a_gap(machine: BrokerMachine) -> None:
    commit(machine, stage(machine, 1, (b"a", b"b"), (b"c",)), stage(machine, 2, (b"d",)))
    commit(machine, stage(machine, 3, (b"e",), batch=1), batch=1)

    splices = machine.state.topics[topic_id(machine, "out")].splices
    assert [(each.first_number, each.publisher) for each in splices] == [
        (1, "spark.query-1"),
        (4, "spark.query-1"),
        (5, "spark.query-1"),
    ]
    assert splices[1].append_number == splices[0].append_number + 2, "one append number per chunk"
    assert len({each.stream for each in splices}) == 1


def test_what_is_staged_or_spliced_is_needed_until_it_is_trimmed(machine: BrokerMachine) -> None:
    from oncemq.core.records import Trimmed

    commit(machine, stage(machine, 1, (b"a", b"b")))
    stage(machine, 2, (b"c",), batch=1)
    out = topic_id(machine, "out")
    committed, waiting = machine.state.topics[out].splices[0].storage_id, machine.state.parts[part_id(2)].storage_id

    assert machine.lows() == {out: 0, topic_id(machine, "other"): 0, committed: 0, waiting: 0}
    machine.apply(Trimmed(out, 2))
    assert machine.lows()[committed] == 1
    machine.apply(Trimmed(out, 3))
    assert committed not in machine.lows()
    say(machine, DeleteTopic(SESSION, 3, "out"))
    assert set(machine.lows()) == {topic_id(machine, "other"), waiting}


def test_a_snapshot_remembers_parts_queries_and_splices(machine: BrokerMachine) -> None:
    commit(machine, stage(machine, 1, (b"a", b"b")))
    stage(machine, 2, (b"c",), batch=1)

    state = restored(machine)

    assert state.parts == machine.state.parts
    assert state.queries == machine.state.queries
    assert state.topics[topic_id(machine, "out")].splices == machine.state.topics[topic_id(machine, "out")].splices
    assert state.dump() == machine.state.dump()

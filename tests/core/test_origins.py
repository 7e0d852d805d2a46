# SPDX-License-Identifier: Apache-2.0
"""A broker that is a node: every put is stored and named, foreign messages lie in topics and logs, what is lost is a gap."""

from __future__ import annotations

import msgspec
import pytest

from oncemq.core import records
from oncemq.core.effects import Deliver
from oncemq.core.origins import MeshRetention, Origins, log_id_of, new_lows
from oncemq.core.packets import (
    NOBODY,
    CommitStaged,
    Get,
    MeshStatus,
    Put,
    PutDone,
    PutOutcome,
    Read,
    Stage,
    Subscribe,
    Transact,
    TransactPut,
    Want,
)
from oncemq.core.records import Origin, Placement, Stored
from oncemq.core.state import BrokerState
from oncemq.errors import InvariantViolated
from oncemq.mesh import records as mesh
from oncemq.mesh.journaling import StoredLogs, node_state, record_of, spread_of
from oncemq.mesh.packets import Had
from oncemq.mesh.packets import Origin as MeshOrigin
from tests.core.helpers import LOG, SESSION, START, TO, FakeStore, Held, Talk, at, block_of

NODE, OTHER_START = b"n" * 16, b"z" * 16
FAR = MeshOrigin(NODE, OTHER_START)


class NodeTalk(Talk):
    """A conversation with a node that has joined."""

    def __init__(self, *, has_baseline: bool = True) -> None:
        super().__init__()
        self.machine.retention = MeshRetention(10**9, 10**9)
        if has_baseline:
            self.machine.apply(records.BaselineTaken(()))

    def hear(self, number: int, *topics: str, count: int = 1) -> Stored:
        """Take a message of another node."""
        record = self.write(mesh.Taken(FAR, number, topics, (), "far", count, block_of(count)))
        assert isinstance(record, Stored)
        return record

    def write(self, record: mesh.MeshRecord) -> records.Record:
        written = record_of(self.state, at(self.clock_ms), record)
        assert written is not None
        self.machine.apply(written)
        return written

    def had(self, node: bytes = LOG, start_id: bytes = START) -> int:
        return self.state.origins.next_of(node, start_id).number - 1


def test_in_a_mesh_a_put_is_stored_though_nobody_subscribes_here_and_a_repeat_hears_the_same() -> None:
    talk = NodeTalk()
    outcome = (PutOutcome(0, True, None),)
    assert talk.put(1, strict=True) == PutDone(SESSION, 1, 1, False, "", outcome)
    assert talk.put(1) == PutDone(SESSION, 1, 1, True, "", outcome)
    assert talk.had() == 1


def test_a_put_has_a_name_in_the_mesh_and_the_names_of_its_topics() -> None:
    talk = NodeTalk()
    talk.subscribe("a")
    (record,) = talk.machine.decide(at(0), TO, Put(SESSION, SESSION, 1, 2, ("a", "b")), block_of(2)).records
    assert isinstance(record, Stored)
    assert record.origin == Origin(LOG, START, 1)
    assert record.topics == ("a", "b")
    assert [each.first_offset for each in record.placements] == [0, records.ELSEWHERE]
    assert spread_of(record, is_copy=False).topics == ("a", "b")


def test_a_broker_that_is_no_node_names_nothing() -> None:
    talk = Talk()
    (record,) = talk.machine.decide(at(0), TO, Put(SESSION, SESSION, 1, 1, ("a",)), block_of(1)).records
    assert isinstance(record, Stored)
    assert (record.origin, record.topics) == (None, ())
    assert talk.code(MeshStatus()) == "not_a_node"


def test_the_puts_of_a_transaction_are_tied() -> None:
    talk = NodeTalk()
    puts = tuple(TransactPut((name,), 1, len(block_of(1))) for name in ("a", "b", "c"))
    effects = talk.machine.decide(at(0), TO, Transact(SESSION, 1, (), puts), block_of(1) * 3)
    stored = [record for record in effects.records if isinstance(record, Stored)]
    assert [(record.origin and record.origin.number, record.has_more) for record in stored] == [(1, True), (2, True), (3, False)]
    talk.take(effects)
    assert talk.had() == 3


def test_a_foreign_message_lies_in_the_topics_that_have_subscriptions_and_in_its_origins_log() -> None:
    talk = NodeTalk()
    topic_id = talk.subscribe("a").topic_id
    record = talk.hear(1, "a", "b", count=3)
    assert record.placements == (Placement(topic_id, 0), Placement(0, records.ELSEWHERE))
    assert record.stream == NOBODY
    assert talk.state.topics[topic_id].end == 3
    assert StoredLogs(talk.state).held(FAR, 1, 9) == [(1, 1)]
    assert talk.state.storages[log_id_of(OTHER_START)].end == 2
    with pytest.raises(InvariantViolated, match="order"):
        talk.hear(3, "a")


def test_state_of_the_mesh_is_in_the_snapshot_and_a_start_reads_it_off() -> None:
    talk = NodeTalk()
    talk.hear(1, "a")
    talk.put(1)
    talk.write(mesh.BaselineTaken((Had(MeshOrigin(b"q" * 16, b"w" * 16), 40),)))
    again = BrokerState()
    again.restore(talk.state.dump())
    assert again.dump() == talk.state.dump()
    found = node_state(again)
    assert found.has_baseline
    assert {(origin.node, found.had[origin]) for origin in found.had} == {(NODE, 1), (LOG, 1), (b"q" * 16, 40)}
    assert StoredLogs(again).held(MeshOrigin(b"q" * 16, b"w" * 16), 1, 50) == []


def test_what_is_given_up_is_a_gap_of_one_offset_in_every_topic_with_a_subscription() -> None:
    talk = NodeTalk()
    seen = talk.subscribe("a")
    talk.hear(1, "a")
    talk.write(mesh.GivenUp(FAR, 2, 9))
    talk.hear(10, "a")
    assert talk.state.origins.lost == 8
    delivery = talk.delivered(get(seen.subscription_id, seen.topic_id, 0))
    assert delivery.horizon, "what comes behind the gap is not delivered before it was told"
    (part,) = talk.delivered(get(seen.subscription_id, seen.topic_id, 1)).parts
    assert (part.offset, part.low, part.end) == (1, 2, 3)
    assert talk.delivered(get(seen.subscription_id, seen.topic_id, 2)).ranges == ((seen.topic_id, 2, 3),)
    (read,) = talk.delivered(Read("a", 0, 1, 3, 1000)).parts
    assert read.low == 2
    again = BrokerState()
    again.restore(talk.state.dump())
    assert again.dump() == talk.state.dump()
    assert StoredLogs(again).held(FAR, 1, 99) == [(10, 10)], "a log has no hole"


def test_a_parked_get_is_told_a_gap() -> None:
    talk = NodeTalk()
    seen = talk.subscribe("a")
    assert talk.speech(get(seen.subscription_id, seen.topic_id, 0, wait_ms=1000)) == ()
    talk.write(mesh.GivenUp(FAR, 1, 1))
    (spoken,) = talk.settle()
    assert isinstance(spoken, Deliver)
    assert spoken.parts[0].low == 1


def get(subscription_id: int, topic_id: int, offset: int, *, wait_ms: int = 0) -> Get:
    return Get(SESSION, (Want(subscription_id, topic_id, offset, 0),), 1_000_000, wait_ms)


def test_no_subscription_before_the_baseline_and_nothing_is_used_up() -> None:
    talk = NodeTalk(has_baseline=False)
    assert talk.code(Subscribe(SESSION, 1, "t")) == "joining"
    assert isinstance(talk.put(1), PutDone), "puts are taken"
    talk.machine.apply(records.BaselineTaken(()))
    assert talk.subscribe("t").start == 0


def test_a_node_takes_no_staged_parts() -> None:
    talk = NodeTalk()
    assert talk.code(Stage("q", 0, b"p" * 16, 1, 1), block_of(1)) == "not_in_a_mesh"
    assert talk.code(CommitStaged("q", 0, 0), msgspec.msgpack.encode(())) == "not_in_a_mesh"


def test_a_node_that_leaves_takes_no_puts() -> None:
    talk = NodeTalk()
    talk.machine.is_leaving = True
    assert talk.code(Put(SESSION, SESSION, 1, 1, ("t",)), block_of(1)) == "stopping"
    assert talk.code(Transact(SESSION, 1, ()), b"") == "stopping"


def test_a_start_that_is_known_as_another_nodes_is_not_believed() -> None:
    origins = Origins()
    origins.took(Origin(NODE, START, 1))
    assert origins.is_taken(b"x" * 16, START)
    assert not origins.is_taken(NODE, START)


def test_a_baseline_that_knows_less_takes_nothing_back() -> None:
    origins = Origins()
    for number in (1, 2, 3):
        origins.took(Origin(NODE, START, number))
    origins.adopt([Origin(NODE, START, 2), Origin(NODE, OTHER_START, 7)])
    assert [(log.start_id, log.low, log.had) for log in origins] == [(START, 1, 3), (OTHER_START, 8, 7)]


# --- retention ------------------------------------------------------------------------------------------


def logs_of(*had: int) -> Origins:
    origins = Origins()
    for index, number in enumerate(had):
        origins.adopt(())
        for each in range(1, number + 1):
            origins.took(Origin(NODE, bytes([index]) * 16, each))
    return origins


class Stores(FakeStore):
    """What segments hold, by log."""

    def __init__(self, **held: list[Held]) -> None:
        super().__init__()
        self._held = {log_id_of(bytes([int(name[1:])]) * 16): each for name, each in held.items()}

    def holdings(self, topic_id: int) -> list[Held]:
        return self._held.get(topic_id, [])


def test_old_messages_go_by_age_and_the_oldest_by_size_over_all_origins() -> None:
    origins = logs_of(10, 10)
    store = Stores(_0=[Held(5, 100, 10), Held(11, 100, 30)], _1=[Held(4, 100, 20), Held(11, 100, 40)])
    kept = MeshRetention(age_us=1000, size_bytes=1000)
    first, second = (log_id_of(bytes([index]) * 16) for index in (0, 1))
    assert new_lows(origins, store, kept, wall_us=100) == {}
    assert new_lows(origins, store, kept, wall_us=1015) == {first: 5}
    assert new_lows(origins, store, kept, wall_us=1035) == {first: 11, second: 4}
    assert new_lows(origins, store, MeshRetention(1000, 200), wall_us=100) == {first: 5, second: 4}


@pytest.mark.parametrize(("size_bytes", "low"), [(1, 8), (99, 8), (100, 8), (101, 5), (201, 1), (10**9, 1)])
def test_by_size_never_less_is_kept_than_was_asked_for_however_large_segments_are(size_bytes: int, low: int) -> None:
    """What is newest was just put, and neighbours may still have to ask for it."""
    origins = logs_of(10)
    store = Stores(_0=[Held(5, 100, 10), Held(8, 100, 20), Held(11, 100, 30)])
    lows = new_lows(origins, store, MeshRetention(1000, size_bytes), wall_us=100)
    assert lows.get(log_id_of(bytes(16)), 1) == low


def test_a_log_that_was_cut_is_not_cut_again_while_its_segment_is_still_there() -> None:
    origins = logs_of(10)
    log_id = log_id_of(bytes(16))
    origins.trim(log_id, 5)
    store = Stores(_0=[Held(5, 100, 10), Held(8, 100, 20)])
    assert new_lows(origins, store, MeshRetention(1000, 10**9), wall_us=1015) == {}
    assert new_lows(origins, store, MeshRetention(1000, 10**9), wall_us=1025) == {log_id: 8}


def test_what_was_kept_long_enough_is_told_from_what_was_never_here_also_after_a_start() -> None:
    talk = NodeTalk()
    logs = StoredLogs(talk.state)
    talk.write(mesh.BaselineTaken((Had(FAR, 2),)))
    for number in range(3, 8):
        talk.hear(number, "t")
    talk.state.origins.trim(log_id_of(OTHER_START), 5)
    assert [logs.is_expired(FAR, number) for number in (2, 3, 4, 5)] == [False, True, True, False]
    again = BrokerState()
    again.restore(talk.state.dump())
    assert [StoredLogs(again).is_expired(FAR, number) for number in (2, 3, 4, 5)] == [False, True, True, False]
    talk.write(mesh.GivenUp(FAR, 8, 9))
    assert not any(logs.is_expired(FAR, number) for number in range(1, 12)), "what is given up was not kept"


def test_tidying_cuts_logs_and_the_record_says_so() -> None:
    talk = NodeTalk()
    talk.hear(1, "a")
    talk.hear(2, "a")
    talk.machine.retention = MeshRetention(age_us=1000, size_bytes=10**9)
    talk.store.held = [Held(2, 100, 0)]
    trimmed = talk.machine.tidy(at(5_000)).records
    assert trimmed == (records.Trimmed(log_id_of(OTHER_START), 2),)
    talk.machine.apply(trimmed[0])
    assert StoredLogs(talk.state).held(FAR, 1, 2) == [(2, 2)]
    assert talk.machine.lows()[log_id_of(OTHER_START)] == 2

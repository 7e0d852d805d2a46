# SPDX-License-Identifier: Apache-2.0
"""Between the machine of the mesh and the broker's journal: which records stand for what a node decides, and back.

May not: decide anything; keep anything: the broker's state is the truth, the node's watermarks are read off it at every start.
The idea: `Taken` becomes a Stored record with an origin. It lies in the topics that have subscriptions here, and in its origin's
log, so that it is delivered, served to neighbours and counted in the vector by the same bytes (R24, R25). Names clash:
`mesh.packets.Origin` is a node and a start, `core.records.Origin` has a number too.
Next: engine/mesh.py, which uses it; core/origins.py for the logs.
"""

from __future__ import annotations

from oncemq.core import records
from oncemq.core.origins import log_id_of
from oncemq.core.packets import NOBODY
from oncemq.core.puts import place
from oncemq.core.records import ELSEWHERE, Placement
from oncemq.core.state import BrokerState
from oncemq.mesh import records as mesh
from oncemq.mesh.packets import Had, Origin, Spread
from oncemq.mesh.state import NodeState
from oncemq.ports import Instant


def node_state(state: BrokerState) -> NodeState:
    """What a node knows at a start, from what the broker has recovered."""
    found = NodeState()
    if state.origins.has_baseline:
        found.apply(mesh.BaselineTaken(()))
    for log in state.origins:
        found.had.raise_to(Origin(log.node, log.start_id), log.had)
    found.given_up = state.origins.lost
    return found


def record_of(state: BrokerState, now: Instant, record: mesh.MeshRecord) -> records.Record | None:
    """The record that a broker writes for one of the mesh; None where another one says it already."""
    match record:
        case mesh.Taken(origin=origin) if origin.start_id != state.start_id:
            return _stored(state, now, record)
        case mesh.GivenUp(origin=origin, first=first, last=last):
            return _lost(state, now, records.Origin(origin.node, origin.start_id, first), last)
        case mesh.BaselineTaken(entries=entries):
            return records.BaselineTaken(tuple(map(_mark, entries)))
        case _:
            return None  # Our own message was stored when it was put; Started and Subscribed say the rest.


def _mark(entry: Had) -> records.Origin:
    return records.Origin(entry.origin.node, entry.origin.start_id, entry.number)


def _stored(state: BrokerState, now: Instant, taken: mesh.Taken) -> records.Stored:
    block = taken.block
    return records.Stored(
        state.next_append_number,
        max(now.wall_us, state.append_time_us),
        state.start_id,
        NOBODY,
        taken.number,
        taken.count,
        int.from_bytes(block[12:16], "little"),
        len(block),
        place(state, taken.topics, ELSEWHERE),
        taken.publisher,
        records.Origin(taken.origin.node, taken.origin.start_id, taken.number),
        block,
        taken.topics,
        taken.has_more,
    )


def _lost(state: BrokerState, now: Instant, first: records.Origin, last: int) -> records.Lost:
    """Nobody knows the topics of what is lost: every topic with a subscription gets an offset that stands for it."""
    placements = tuple(Placement(topic.topic_id, topic.end) for topic in state.topics.values() if topic.subscriptions)
    time_us = max(now.wall_us, state.append_time_us)
    return records.Lost(state.next_append_number, time_us, state.start_id, first, last, placements)


def spread_of(stored: records.Stored, *, is_copy: bool) -> Spread:
    """A stored message as other nodes are told it."""
    origin = stored.origin
    if origin is None:
        raise ValueError("a message that belongs to no mesh")
    name = Origin(origin.node, origin.start_id)
    return Spread(name, origin.number, stored.topics, stored.publisher, stored.count, is_copy, stored.has_more)


class StoredLogs:
    """What the logs of a broker can still serve: mesh.node.Store."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def held(self, origin: Origin, first: int, last: int) -> list[tuple[int, int]]:
        log = self._state.origins.logs.get((origin.node, origin.start_id))
        if log is None:
            return []
        first, last = max(first, log.low), min(last, log.had)
        return [(first, last)] if first <= last else []

    def is_expired(self, origin: Origin, number: int) -> bool:
        log = self._state.origins.logs.get((origin.node, origin.start_id))
        return log is not None and log.since <= number < log.low


def range_of(origin: Origin, first: int, last: int) -> tuple[int, int, int]:
    """The same numbers as a range of the journal."""
    return log_id_of(origin.start_id), first, last + 1

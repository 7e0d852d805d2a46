# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs of staging: the mistakes that make a Spark sink lose or repeat rows.

May not: be imported by anything but sim/bugs.py.
Next: sim/bugs_broker.py for the broker's other bugs.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oncemq.core import broker, parts, staging, state
from oncemq.core.effects import answer
from oncemq.core.packets import CommitStagedDone, StageDone
from oncemq.sim import stagers
from oncemq.sim.bugs import Patch, bug


@bug
def names_parts_by_attempt(patch: Patch) -> None:
    """Part ids are attempt numbers, which every driver counts anew, and nothing else tells parts apart (H18)."""
    stage = stagers.Stager._stage

    def by_attempt(self: stagers.Stager, session: Any, topic: str, messages: list[str]) -> Any:
        attempt = getattr(self, "attempt", 0) if getattr(self, "attempt_life", 0) == self.life else 0
        self.__dict__.update(attempt=attempt + 1, attempt_life=self.life)
        entropy = self.world.entropy
        self.world.entropy = _Counted(f"{self._query}-{self._batch}-{attempt}")  # type: ignore[assignment]
        try:
            return stage(self, session, topic, messages)
        finally:
            self.world.entropy = entropy

    patch.set(stagers.Stager, "_stage", by_attempt)
    patch.set(broker, "decide_stage", _takes_any_repeat)
    patch.set(staging, "_problem", _compares_nothing)


class _Counted:
    """Ids that are not random at all."""

    def __init__(self, name: str) -> None:
        self._name = name

    def id16(self) -> bytes:
        return parts.stream_of(self._name)


def _takes_any_repeat(held: state.BrokerState, offer: staging.StageOffer) -> Any:
    """A chunk that is there already is acknowledged, whatever it holds."""
    part = held.parts.get(offer.packet.part)
    if part is not None and offer.packet.chunk <= part.chunks:
        return answer(offer.to, StageDone(offer.packet.part, offer.packet.chunk, False))
    return staging.decide_stage(held, offer)


_problem = staging._problem


def _compares_nothing(held: state.BrokerState, packet: Any, claims: Any) -> Any:
    """Rows, chunks and checksum of a claim are taken from the part itself."""
    known = {claim.part: held.parts.get(claim.part) for claim in claims}
    claims = tuple(
        claim if (part := known[claim.part]) is None else replace(claim, chunks=part.chunks, rows=part.rows, crc=part.crc)
        for claim in claims
    )
    return _problem(held, packet, claims)


@bug
def answers_an_older_batch_as_a_repeat(patch: Patch) -> None:
    """`last ≥ batch` counts as committed: rows of a rolled-back checkpoint are never published (H19)."""
    commit, stage = staging.decide_commit, staging.decide_stage

    def decide_commit(held: state.BrokerState, to: Any, packet: Any, body: Any, now: Any) -> Any:
        query = held.queries.get(packet.query)
        if query is not None and packet.batch < query.batch:
            return answer(to, CommitStagedDone(packet.query, packet.batch, True, ()))
        return commit(held, to, packet, body, now)

    def decide_stage(held: state.BrokerState, offer: staging.StageOffer) -> Any:
        query = held.queries.get(offer.packet.query)
        if query is not None and offer.packet.batch < query.batch:
            return answer(offer.to, StageDone(offer.packet.part, offer.packet.chunk, True))
        return stage(held, offer)

    patch.set(broker, "decide_commit", decide_commit)
    patch.set(broker, "decide_stage", decide_stage)


@bug
def commits_a_batch_again(patch: Patch) -> None:
    """A driver that died before it wrote down its commit publishes the batch a second time."""
    commit, stage = staging.decide_commit, staging.decide_stage

    def forgetting(held: state.BrokerState, name: str, batch: int) -> None:
        query = held.queries.get(name)
        if query is not None and query.batch == batch:
            held.queries[name] = parts.Query(batch - 1, query.next_number, query.is_once, ())

    def decide_commit(held: state.BrokerState, to: Any, packet: Any, body: Any, now: Any) -> Any:
        if packet.batch:
            forgetting(held, packet.query, packet.batch)
        return commit(held, to, packet, body, now)

    def decide_stage(held: state.BrokerState, offer: staging.StageOffer) -> Any:
        if offer.packet.batch:
            forgetting(held, offer.packet.query, offer.packet.batch)
        return stage(held, offer)

    patch.set(broker, "decide_commit", decide_commit)
    patch.set(broker, "decide_stage", decide_stage)


@bug
def shows_parts_before_their_commit(patch: Patch) -> None:
    """A part is visible as soon as it is staged: what a failed attempt wrote is published as well."""
    staged = state.BrokerState._staged

    def visible(self: state.BrokerState, record: Any) -> None:
        staged(self, record)
        part, topic = self.parts[record.part], next(iter(self.topics.values()), None)
        if topic is not None and record.chunk == 1:
            place = (topic.end, topic.end + part.rows, part.storage_id, record.append_number, record.append_time_us)
            numbers = (parts.stream_of(record.query), record.append_number)
            topic.splices.append(parts.Splice(*place, self.start_id, *numbers, parts.publisher_of(record.query)))
            topic.end += part.rows

    patch.set(state.BrokerState, "_staged", visible)


@bug
def forgets_the_last_batch_in_snapshots(patch: Patch) -> None:
    """After a restart the batch before the last one counts as the last: a re-run publishes its rows again."""
    patch.set(state, "restore_query", lambda dump: parts.Query(dump.batch - 1, dump.next_number, dump.is_once, ()))


@bug
def unlinks_what_is_staged(patch: Patch) -> None:
    """A segment counts as dead although parts that wait, or splices, still need it."""
    patch.set(state.BrokerState, "storage_lows", lambda _self: {})

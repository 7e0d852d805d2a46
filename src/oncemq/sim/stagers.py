# SPDX-License-Identifier: Apache-2.0
"""A streaming query in a simulated world: a driver with a checkpoint, tasks that fail after they have written, and re-runs.

May not: know what the product promises; remember more between lives than Spark's checkpoint does.
The idea: `offsets/N` is written before batch N runs, `commits/N` after the sink has committed. A driver that dies in between runs
batch N again with the same rows, cut into other parts by other attempts. What a life before it staged is still at the broker.
Next: core/staging.py for the broker's side, sim/swarm.py for the world around it.
"""

from __future__ import annotations

from array import array
from typing import Any

import msgspec

from oncemq.client.session import Session
from oncemq.client.state import NoState
from oncemq.core import packets as p
from oncemq.core.staging import next_crc
from oncemq.errors import Refused
from oncemq.model.block import checksum, cut_block
from oncemq.model.names import EPHEMERAL_PREFIX
from oncemq.model.refusals import Code
from oncemq.sim.actors import AWAY, Base
from oncemq.sim.history import Event
from oncemq.sim.network import SimLink

_STARTS_OVER = {Code.BATCH_WENT_BACK, Code.BATCH_MISSING}


class Stager(Base):
    """Publishes batches exactly once, as Spark would."""

    def __init__(self, *place: Any, topics: list[str], batches: int, batch_max: int, may_go_back: bool) -> None:
        super().__init__(*place, batch_max=batch_max)
        self._topics = topics
        self._left = batches
        self._may_go_back = may_go_back
        """Whether its checkpoint may come back from an older copy: not where the broker may too, and both tell the same lie."""
        self._query = f"{self.name}-query-0"
        self._rows: list[tuple[str, str]] = []
        """The planned batch: (topic, message) of every row. Empty once it is committed."""
        self._batch = 0
        self._made = 0
        self.may_begin = False

    def _live(self) -> None:
        session = self._session()
        while not self.may_begin:
            self.world.clock.pause(10)
        while self._left:
            try:
                with self.asking.call():
                    self._run_batch(session)
            except AWAY:
                self.world.clock.pause(200)
            except Refused as refused:
                self._on_refused(refused)
        session.close()
        self.is_done = True

    def _session(self) -> Session:
        """A connection that says no Hello: staging needs none."""
        link = SimLink(self.world.network, self.world.scheduler, self.name)
        place = NoState(EPHEMERAL_PREFIX + self.name)
        return Session(link, self.world.clock, place, session_id=self.world.entropy.id16(), address="sim", takeover=False)

    def _on_refused(self, refused: Refused) -> None:
        """Run the batch again, or begin anew with a new checkpoint, which is a new query."""
        if refused.code in _STARTS_OVER:
            self.note("ok", "told", name=str(refused.code))
            self._query, self._batch = f"{self._query.rpartition('-')[0]}-{self._made}", 0
        elif refused.code != Code.NO_SUCH_PART:
            raise refused

    # --- one batch -----------------------------------------------------------------------------------

    def _run_batch(self, session: Session) -> None:
        if not self._rows:
            self._plan()
        claims, staged = self._stage_all(session)
        body = msgspec.msgpack.encode(claims)
        done = session.exchange(p.CommitStaged(self._query, self._batch, len(claims)), block=body)
        if not isinstance(done, p.CommitStagedDone):
            raise TypeError(type(done).__name__)
        if done.is_repeat:
            self._confirm_again()
        else:
            self._confirm(done, staged)
        for _, message in self._rows:
            self.note("ok", "kept", message=message)
        if self.random.random() < 0.8:  # Else it dies before it has written `commits/N`, and runs the batch again.
            self._rows = []
            self._left -= 1
            self._batch += 1

    def _plan(self) -> None:
        """Write `offsets/N`. Now and then the checkpoint comes back from an older copy: other rows under old numbers."""
        if self._may_go_back and self._batch > 2 and self.random.random() < 0.1:
            self._batch -= 2
            self.note("ok", "set_back", name=self.name, copied=len(self.history.events))
        count = self.random.randrange(1, self.batch_max)
        self._rows = [(self.random.choice(self._topics), f"{self.name}-{self._made + number}") for number in range(count)]
        self._made += count
        for _, message in self._rows:
            self.note("invoke", "put", message=message)

    def _confirm(self, done: p.CommitStagedDone, staged: list[tuple[str, list[str]]]) -> None:
        ends = {entry.topic_id: entry.first_offset for entry in done.ranges}
        ids = {
            topic: entry.topic_id for topic, entry in zip(dict.fromkeys(topic for topic, _ in staged), done.ranges, strict=True)
        }
        for topic, messages in staged:
            for message in messages:
                place: Event = {"topic_id": str(ids[topic]), "offset": ends[ids[topic]]}
                self.note("ok", "put", message=message, **place, stored=True, duplicate=False)
                ends[ids[topic]] += 1

    def _confirm_again(self) -> None:
        """It was told where the batch is; which row is where, only the run that committed it knows."""
        for topic, message in self._rows:
            place: Event = {"topic_id": self.world.topic_ids[topic], "offset": None}
            self.note("ok", "put", message=message, **place, stored=True, duplicate=True)

    # --- tasks ---------------------------------------------------------------------------------------

    def _stage_all(self, session: Session) -> tuple[list[p.PartClaim], list[tuple[str, list[str]]]]:
        """Cut the rows into tasks, differently every time; some tasks write everything and then fail."""
        rows, claims, staged = list(self._rows), [], []
        self.random.shuffle(rows)
        while rows:
            size = self.random.randrange(1, len(rows) + 1)
            task, rows = rows[:size], rows[size:]
            for topic in dict.fromkeys(topic for topic, _ in task):
                messages = [message for name, message in task if name == topic]
                if self.random.random() < 0.2:
                    self._stage(session, topic, messages)
                claims.append(self._stage(session, topic, messages))
                staged.append((topic, messages))
        return claims, staged

    def _stage(self, session: Session, topic: str, messages: list[str]) -> p.PartClaim:
        part, crc, chunk, rest = self.world.entropy.id16(), 0, 0, messages
        while rest:
            size = self.random.randrange(1, len(rest) + 1)
            block = cut_block([message.encode() for message in rest[:size]], array("q", [1] * size))
            chunk, rest = chunk + 1, rest[size:]
            session.exchange(p.Stage(self._query, self._batch, part, chunk, size), block=block)
            crc = next_crc(crc, checksum(block))
        return p.PartClaim(part, topic, chunk, len(messages), crc)

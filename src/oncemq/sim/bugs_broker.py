# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs of the broker and its journal.

May not: be imported by anything but sim/bugs.py.
The idea: every function breaks one rule; its docstring says which. The product's names are taken as they are, private ones
included: whoever renames one has to look here, and at what guards it.
Next: sim/bugs_client.py for the client's.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oncemq.core import broker, commands, retention, sessions, streams, subscriber, topics
from oncemq.core import puts as core_puts
from oncemq.core import state as core_state
from oncemq.core.packets import PutOutcome, Want
from oncemq.core.records import CursorMoved
from oncemq.engine import loop
from oncemq.journal import codec, journal, recovery, segment, space
from oncemq.model.retention import Retention
from oncemq.sim.bugs import Patch, Without, bug
from oncemq.sim.bugs_client import resume_from_cursor

# --- broker and journal -----------------------------------------------------------------------------


@bug
def answers_before_the_sync(patch: Patch) -> None:
    """The loop speaks, then writes."""
    write, speak = loop.BrokerLoop._write, loop.BrokerLoop._speak
    patch.set(loop.BrokerLoop, "_write", speak)
    patch.set(loop.BrokerLoop, "_speak", write)


@bug
def does_not_sync(patch: Patch) -> None:
    """A group counts as synced once it is written."""

    def sync(self: journal.Journal) -> None:
        self._synced = self._end

    patch.set(journal.Journal, "sync", sync)


@bug
def ignores_a_failed_sync(patch: Patch) -> None:
    """EIO is swallowed and everybody is told ok."""
    patch.set(journal.Journal, "_fail", lambda _self, _name, _error: None)


@bug
def serves_the_page_cache_after_a_restart(patch: Patch) -> None:
    """The unproven tail is not written again: what a restart read may never have been on the disk (H4)."""
    make = space.make_segment

    def without_sync(target: Any, plan: space.Plan, capacity_bytes: int) -> space.NewSegment | None:
        return make(_UnsyncedFiles(target), plan, capacity_bytes)

    patch.set(journal, "make_segment", without_sync)


class _UnsyncedFiles(Without):
    """A disk whose files do not sync."""

    def __init__(self, target: Any) -> None:
        super().__init__(target, "")

    def open(self, name: str, *, create: bool = False) -> Any:
        return Without(self._target.open(name, create=create), "sync")


@bug
def forgets_streams_in_snapshots(patch: Patch) -> None:
    """De-duplication is rebuilt from the journal only, and forgets what was in deleted segments (H34)."""
    dump = streams.dump_client
    patch.set(core_state, "dump_client", lambda client: replace(dump(client), streams=dump(client).streams[:0]))
    restore = streams.restore_client

    def restored(entry: streams.ClientDump) -> streams.ClientState:
        client = restore(entry)
        client.streams.setdefault(client.session, streams.Stream())
        return client

    patch.set(core_state, "restore_client", restored)


@bug
def leaves_unheard_topics_out_of_snapshots(patch: Patch) -> None:
    """What is retained and nobody subscribes to is not written down: the next start knows nothing of it."""
    dump = core_state.BrokerState.dump

    def dump_heard(self: core_state.BrokerState) -> bytes:
        topics = self.topics
        self.topics = {number: topic for number, topic in topics.items() if topic.subscriptions or not topic.end}
        try:
            return dump(self)
        finally:
            self.topics = topics

    patch.set(core_state.BrokerState, "dump", dump_heard)


@bug
def de_duplicates_by_a_window(patch: Patch) -> None:
    """A number that is no longer among the outcomes kept counts as new."""
    decide = core_puts.decide_put

    def decide_put(held: core_state.BrokerState, offer: core_puts.Offer) -> Any:
        stream = offer.client.streams.get(offer.packet.stream)
        if stream is not None and stream.outcome_at(offer.packet.first_number) is None:
            stream.last = offer.packet.first_number - 1
        return decide(held, offer)

    patch.set(broker, "decide_put", decide_put)
    patch.set(streams.Stream, "settle", _settle_and_forget)


def _settle_and_forget(self: streams.Stream, outcome: streams.Kept) -> None:
    self.last = outcome.first_number + outcome.numbers - 1
    self.kept.clear()
    self.kept.append(outcome)


@bug
def takes_a_gap_in_a_stream(patch: Patch) -> None:
    """A put is taken although an earlier one is missing: the earlier one will look like a repeat."""
    decide = core_puts.decide_put

    def decide_put(held: core_state.BrokerState, offer: core_puts.Offer) -> Any:
        stream = offer.client.streams.get(offer.packet.stream)
        if stream is not None and offer.packet.first_number > stream.last + 1:
            stream.last = offer.packet.first_number - 1
        return decide(held, offer)

    patch.set(broker, "decide_put", decide_put)


@bug
def repeats_another_outcome(patch: Patch) -> None:
    """A repeat is told where the topic ends now."""
    outcomes = core_puts.outcomes_of

    def moved(placements: Any) -> tuple[PutOutcome, ...]:
        return tuple(replace(entry, first_offset=(entry.first_offset or 0) + 1) for entry in outcomes(placements))

    repeat = core_puts._repeat

    def wrong(offer: core_puts.Offer, stream: streams.Stream) -> Any:
        with Patch() as inner:
            inner.set(core_puts, "outcomes_of", moved)
            return repeat(offer, stream)

    patch.set(core_puts, "_repeat", wrong)


@bug
def trims_what_one_subscriber_still_needs(patch: Patch) -> None:
    """Interest looks at the fastest subscriber."""

    def interest_low(topic: Any) -> int:
        return max((int(entry.cursor) for entry in topic.subscriptions.values()), default=int(topic.end))

    patch.set(retention, "_interest_low", interest_low)


@bug
def trims_what_is_kept_for_ever(patch: Patch) -> None:
    """Where somebody subscribes interest alone counts: what all of them have goes, whatever `retain` says (R10)."""
    kept = retention.new_low

    def low(topic: Any, store: Any, *, wall_us: int) -> int:
        interest = retention._interest_low(topic) if topic.subscriptions else 0
        return max(kept(topic, store, wall_us=wall_us), interest)

    patch.set(broker, "new_low", low)


@bug
def trims_by_unsynced_cursors(patch: Patch) -> None:
    """A cursor counts as soon as it is heard; the record that says so may be lost (H15)."""
    remember = broker.BrokerMachine._remember

    def at_once(self: broker.BrokerMachine, done: dict[int, int], now: Any) -> None:
        remember(self, done, now)
        for subscription_id, cursor in done.items():
            self.state.subscriptions[subscription_id].cursor = cursor + 50

    patch.set(broker.BrokerMachine, "_remember", at_once)


@bug
def acknowledges_what_was_only_prefetched(patch: Patch) -> None:
    """A Get's offset moves the cursor (H1)."""
    want = subscriber.Subscriber.want

    def eager(self: subscriber.Subscriber) -> Want:
        return replace(want(self), done=self.next_offset)

    patch.set(subscriber.Subscriber, "want", eager)


@bug
def accepts_every_hello(patch: Patch) -> None:
    """The newest Hello wins, also a dead process's late one (H13)."""
    patch.set(sessions, "_why_not", lambda *_: None)


@bug
def serves_fenced_sessions(patch: Patch) -> None:
    """A session that was replaced may go on."""
    of_session = broker.BrokerMachine._of_session

    def lenient(self: broker.BrokerMachine, now: Any, name: bytes, to: Any, packet: Any, block: Any) -> Any:
        for client in self.state.clients.values():
            if name in client.past:
                name = client.session
                client.streams.setdefault(getattr(packet, "stream", name), streams.Stream())
        return of_session(self, now, name, to, packet, block)

    patch.set(broker.BrokerMachine, "_of_session", lenient)


@bug
def honours_late_commands(patch: Patch) -> None:
    """An Unsubscribe is carried out whenever it arrives (H6)."""
    decide = commands.Commands.decide

    def always(self: commands.Commands, client: Any, to: Any, packet: Any, now: Any) -> Any:
        before, client.command = client.command, -1
        try:
            return decide(self, client, to, packet, now)
        finally:
            client.command = before

    patch.set(commands.Commands, "decide", always)
    unsubscribe = commands.Commands._unsubscribe

    def by_name(self: commands.Commands, client: Any, packet: Any) -> Any:
        return unsubscribe(self, client, replace(packet, subscription_id=0))

    patch.set(commands.Commands, "_unsubscribe", by_name)


@bug
def cuts_snapshots_ahead_of_the_sync(patch: Patch) -> None:
    """A snapshot holds what the group's own sync has not made durable yet (H5)."""
    write = loop.BrokerLoop._write

    def snapshot_first(self: loop.BrokerLoop) -> None:
        if len(self._records) > 1:
            self.journal._write_snapshot(self.machine.state.dump())
        write(self)

    patch.set(loop.BrokerLoop, "_write", snapshot_first)


@bug
def takes_torn_groups(patch: Patch) -> None:
    """Recovery does not check the bytes of blocks: what a power cut tore is taken for whole."""
    patch.set(codec, "check_block_bytes", lambda _block, _crc: None)


@bug
def takes_the_whole_records_of_a_torn_group(patch: Patch) -> None:
    """A group counts up to its first wrong record: half of what was decided together has happened."""
    whole = segment.Walk._group

    def group(self: segment.Walk[Any]) -> segment.Group[Any]:
        start, check, items = self.position, self._check, list[tuple[Any, int, int]]()

        def noted(body: Any, at: int) -> tuple[Any, int]:
            item, after = check(body, at)
            items.append((item, start + segment.GROUP_BYTES + at, after - at))
            return item, after

        self._check = noted
        try:
            return whole(self)
        except codec.BadRecord:
            if not items:
                raise
            end = items[-1][1] + items[-1][2]
            body = self._window.view(start + segment.GROUP_BYTES, end - start - segment.GROUP_BYTES)
            header = segment.decode_group_header(self._window.view(start, segment.GROUP_BYTES))
            return segment.Group(start, header, body, items)  # type: ignore[arg-type]
        finally:
            self._check = check

    patch.set(segment.Walk, "_group", group)


@bug
def drops_the_tail_after_a_restart(patch: Patch) -> None:
    """Recovery stops at the last proven group: what was synced and confirmed last is gone."""
    replay = recovery._replay_last

    def without_tail(*arguments: Any) -> Any:
        return replace(replay(*arguments), tail=[])

    patch.set(recovery, "_replay_last", without_tail)


@bug
def keeps_less_than_was_asked_for(patch: Patch) -> None:
    """A retention keeps a quarter of its time or size."""
    beyond: Any = retention._beyond

    def hasty(topic: Any, kept: Any, *store: Any, at_most: bool) -> Any:
        return beyond(topic, kept if at_most else _quarter(kept), *store, at_most=at_most)

    patch.set(retention, "_beyond", hasty)


@bug
def takes_more_than_its_limit_says(patch: Patch) -> None:
    """Once a topic is above its limit, all of it goes that can."""
    beyond: Any = retention._beyond

    def greedy(topic: Any, limit: Any, *store: Any, at_most: bool) -> Any:
        low = beyond(topic, limit, *store, at_most=at_most)
        return topic.end if at_most and low > topic.low else low

    patch.set(retention, "_beyond", greedy)


@bug
def cuts_off_what_is_young(patch: Patch) -> None:
    """A limit by age takes what is a quarter of it old."""
    beyond: Any = retention._beyond

    def hasty(topic: Any, limit: Any, *store: Any, at_most: bool) -> Any:
        is_aged = at_most and limit.age_us is not None
        return beyond(topic, _quarter(limit) if is_aged else limit, *store, at_most=at_most)

    patch.set(retention, "_beyond", hasty)


def _quarter(kept: Retention) -> Retention:
    age_us, size_bytes = kept.age_us, kept.size_bytes
    return Retention(kept.is_forever, age_us and age_us // 4, size_bytes and size_bytes // 4)


@bug
def tells_damage_to_the_end_of_the_topic(patch: Patch) -> None:
    """One block cannot be read, and everything behind it is told as damaged as well."""
    mark: Any = loop._mark_damaged

    def to_the_end(part: Any, damage: Any) -> Any:
        marked = mark(part, damage)
        return replace(marked, damaged_end=part.end) if marked.damaged_end else marked

    patch.set(loop, "_mark_damaged", to_the_end)


@bug
def lets_puts_take_the_reserve(patch: Patch) -> None:
    """A full disk is noticed only when writing fails, after everything was applied (H9)."""
    patch.set(journal.Journal, "prepare", lambda _self, _size, _records, *, control=False: 10**9)  # noqa: ARG005


@bug
def wakes_gets_before_the_sync(patch: Patch) -> None:
    """A parked Get is answered as soon as a put is applied."""
    take, speak = loop.BrokerLoop._take, loop.BrokerLoop._speak

    def at_once(self: loop.BrokerLoop, effects: Any) -> None:
        take(self, effects)
        if effects.speech and not self._records:
            speak(self)

    def write(self: loop.BrokerLoop) -> None:
        self.journal.append(self._records)
        speak(self)
        self.journal.sync()
        self._records.clear()

    patch.set(loop.BrokerLoop, "_take", at_once)
    patch.set(loop.BrokerLoop, "_write", write)


@bug
def restarts_offsets_from_a_stale_counter(patch: Patch) -> None:
    """A snapshot holds the end of a topic as it was one block ago."""
    dump = topics.dump_topic
    patch.set(core_state, "dump_topic", lambda topic: replace(dump(topic), end=max(topic.low, topic.end - 1)))


@bug
def moves_cursors_back(patch: Patch) -> None:
    """An old acknowledgement is believed."""
    records: Any = broker.BrokerMachine._cursor_records

    def backwards(self: broker.BrokerMachine) -> list[Any]:
        return [CursorMoved(entry.subscription_id, max(0, entry.cursor - 3)) for entry in records(self)]

    patch.set(broker.BrokerMachine, "_cursor_records", backwards)
    patch.set(subscriber.Subscriber, "resume", resume_from_cursor)

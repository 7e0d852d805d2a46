# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs: ways to break the product on purpose, one at a time, to prove that the judges would see it.

May not: touch the product but through a Patch, which takes everything back.
The idea: each is a mistake somebody could make, most of them taken from the holes the design was made to close. A simulator
that misses one of them is the bug to mend first. `oncemq sim --bugs` runs seeds against each until it is caught.
Next: sim/checkers.py for who catches them, cli/sim.py for the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace as replaced
from typing import Any

from msgspec.structs import replace

from oncemq.client import gets, puts, session, state
from oncemq.core import broker, commands, publisher, retention, sessions, streams, subscriber
from oncemq.core import gets as core_gets
from oncemq.core import puts as core_puts
from oncemq.core import state as core_state
from oncemq.core.packets import PutOutcome, Want
from oncemq.core.records import CursorMoved
from oncemq.engine import loop
from oncemq.journal import codec, journal, outbox, recovery, segment, space
from oncemq.sim import disk


class Patch:
    """Replaces attributes, and puts them back."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        self._undo.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)

    def undo(self) -> None:
        for owner, name, value in reversed(self._undo):
            setattr(owner, name, value)


Bug = Callable[[Patch], None]
BUGS: dict[str, Bug] = {}


def _bug(function: Bug) -> Bug:
    BUGS[function.__name__] = function
    return function


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run with one bug in the product."""
    patch = Patch()
    BUGS[name](patch)
    try:
        yield
    finally:
        patch.undo()


# --- broker and journal -----------------------------------------------------------------------------


@_bug
def answers_before_the_sync(patch: Patch) -> None:
    """The loop speaks, then writes."""
    write, speak = loop.BrokerLoop._write, loop.BrokerLoop._speak
    patch.set(loop.BrokerLoop, "_write", lambda self: speak(self))
    patch.set(loop.BrokerLoop, "_speak", lambda self: write(self))


@_bug
def does_not_sync(patch: Patch) -> None:
    """A group counts as synced once it is written."""

    def sync(self: journal.Journal) -> None:
        self._synced = self._end

    patch.set(journal.Journal, "sync", sync)


@_bug
def ignores_a_failed_sync(patch: Patch) -> None:
    """EIO is swallowed and everybody is told ok."""
    patch.set(journal.Journal, "_fail", lambda _self, _name, _error: None)


@_bug
def serves_the_page_cache_after_a_restart(patch: Patch) -> None:
    """The unproven tail is not written again: what a restart read may never have been on the disk (H4)."""
    make = space.make_segment

    def without_sync(target: Any, plan: space.Plan, capacity_bytes: int) -> space.NewSegment | None:
        sync = disk.SimFile.sync
        disk.SimFile.sync = lambda _self: None  # type: ignore[method-assign]
        try:
            return make(target, plan, capacity_bytes)
        finally:
            disk.SimFile.sync = sync  # type: ignore[method-assign]

    patch.set(journal, "make_segment", without_sync)


@_bug
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


@_bug
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


@_bug
def takes_a_gap_in_a_stream(patch: Patch) -> None:
    """A put is taken although an earlier one is missing: the earlier one will look like a repeat."""
    decide = core_puts.decide_put

    def decide_put(held: core_state.BrokerState, offer: core_puts.Offer) -> Any:
        stream = offer.client.streams.get(offer.packet.stream)
        if stream is not None and offer.packet.first_number > stream.last + 1:
            stream.last = offer.packet.first_number - 1
        return decide(held, offer)

    patch.set(broker, "decide_put", decide_put)


@_bug
def repeats_another_outcome(patch: Patch) -> None:
    """A repeat is told where the topic ends now."""
    outcomes = core_puts._outcomes

    def moved(placements: Any) -> tuple[PutOutcome, ...]:
        return tuple(replace(entry, first_offset=(entry.first_offset or 0) + 1) for entry in outcomes(placements))

    repeat = core_puts._repeat

    def wrong(offer: core_puts.Offer, stream: streams.Stream) -> Any:
        patch_inner = Patch()
        patch_inner.set(core_puts, "_outcomes", moved)
        try:
            return repeat(offer, stream)
        finally:
            patch_inner.undo()

    patch.set(core_puts, "_repeat", wrong)


@_bug
def trims_what_one_subscriber_still_needs(patch: Patch) -> None:
    """Interest looks at the fastest subscriber."""

    def interest_low(topic: Any) -> int:
        return max((entry.cursor for entry in topic.subscriptions.values()), default=topic.end)

    patch.set(retention, "_interest_low", interest_low)


@_bug
def trims_by_unsynced_cursors(patch: Patch) -> None:
    """A cursor counts as soon as it is heard; the record that says so may be lost (H15)."""
    remember = broker.BrokerMachine._remember

    def at_once(self: broker.BrokerMachine, done: dict[int, int], now: Any) -> None:
        remember(self, done, now)
        for subscription_id, cursor in done.items():
            self.state.subscriptions[subscription_id].cursor = cursor + 50

    patch.set(broker.BrokerMachine, "_remember", at_once)


@_bug
def acknowledges_what_was_only_prefetched(patch: Patch) -> None:
    """A Get's offset moves the cursor (H1)."""
    want = subscriber.Subscriber.want

    def eager(self: subscriber.Subscriber) -> Want:
        return replace(want(self), done=self.next_offset)

    patch.set(subscriber.Subscriber, "want", eager)


@_bug
def accepts_every_hello(patch: Patch) -> None:
    """The newest Hello wins, also a dead process's late one (H13)."""
    patch.set(sessions, "_why_not", lambda *_: None)


@_bug
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


@_bug
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


@_bug
def cuts_snapshots_ahead_of_the_sync(patch: Patch) -> None:
    """A snapshot holds what the group's own sync has not made durable yet (H5)."""
    write = loop.BrokerLoop._write

    def snapshot_first(self: loop.BrokerLoop) -> None:
        if len(self._records) > 1:
            self.journal._write_snapshot(self.machine.state.dump())
        write(self)

    patch.set(loop.BrokerLoop, "_write", snapshot_first)


@_bug
def takes_torn_groups(patch: Patch) -> None:
    """Recovery does not check what lies inside a group."""
    patch.set(codec, "check_block_bytes", lambda _block, _crc: None)
    patch.set(segment, "decode_group_header", _lenient_header(segment.decode_group_header))


def _lenient_header(decode: Any) -> Any:
    def lenient(head: Any) -> Any:
        found = decode(head)
        return found if found is None else replace(found, crc=0) if hasattr(found, "crc") else found

    return lenient


@_bug
def drops_the_tail_after_a_restart(patch: Patch) -> None:
    """Recovery stops at the last proven group: what was synced and confirmed last is gone."""
    replay = recovery._replay_last

    def without_tail(*arguments: Any) -> Any:
        found = replay(*arguments)
        return replaced(found, tail=[]) if hasattr(found, "__dataclass_fields__") else replace(found, tail=[])

    patch.set(recovery, "_replay_last", without_tail)


@_bug
def lets_puts_take_the_reserve(patch: Patch) -> None:
    """A full disk is noticed only when writing fails, after everything was applied (H9)."""
    patch.set(journal.Journal, "prepare", lambda _self, _size, _records, *, control=False: 10**9)  # noqa: ARG005


@_bug
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


@_bug
def loses_cursors_that_wait_for_a_hello(patch: Patch) -> None:
    """A Welcome tells cursors older than those on their way."""
    hello = broker.decide_hello
    patch.set(broker, "decide_hello", lambda *arguments: hello(*arguments[:-1], {}))


@_bug
def restarts_offsets_from_a_stale_counter(patch: Patch) -> None:
    """A snapshot holds the end of a topic as it was one block ago."""
    dump = core_state.dump_topic
    patch.set(core_state, "dump_topic", lambda topic: replace(dump(topic), end=max(topic.low, topic.end - 1)))


@_bug
def moves_cursors_back(patch: Patch) -> None:
    """An old acknowledgement is believed."""
    records = broker.BrokerMachine._cursor_records

    def backwards(self: broker.BrokerMachine) -> list[Any]:
        return [CursorMoved(entry.subscription_id, max(0, entry.cursor - 3)) for entry in records(self)]

    patch.set(broker.BrokerMachine, "_cursor_records", backwards)
    patch.set(subscriber.Subscriber, "resume", _resume_from_cursor)


def _resume_from_cursor(self: subscriber.Subscriber, info: Any, **_: Any) -> None:
    self.slot.finished = self.slot.handed = self.next_offset = info.cursor
    self.slot.reserved = max(self.slot.reserved, info.cursor)


# --- client -----------------------------------------------------------------------------------------


@_bug
def finishes_a_message_at_hand_over(patch: Patch) -> None:
    """What is handed out counts as done: nothing is ever in doubt (H2)."""
    patch.set(subscriber.Subscriber, "_doubt", lambda self, span: _pass_over(self, span))
    patch.set(subscriber.Subscriber, "take_many", _take_but_the_first(subscriber.Subscriber.take_many))


def _pass_over(self: subscriber.Subscriber, span: subscriber.Span) -> None:
    self.slot.finished = self.slot.handed = self.next_offset = max(span.first, span.end) + 1


def _take_but_the_first(take_many: Any) -> Any:
    return lambda self, count: take_many(self, count)


@_bug
def resumes_at_the_brokers_cursor(patch: Patch) -> None:
    """After a crash the slot is ignored (H24)."""
    patch.set(subscriber.Subscriber, "resume", _resume_from_cursor)


@_bug
def resubscribes_at_the_end(patch: Patch) -> None:
    """A restarted subscriber begins with what is new."""

    def at_the_end(self: subscriber.Subscriber, info: Any, **_: Any) -> None:
        self.slot.finished = self.slot.handed = self.next_offset = info.end
        self.slot.reserved = max(self.slot.reserved, info.end)

    patch.set(subscriber.Subscriber, "resume", at_the_end)


@_bug
def retries_with_a_new_number(patch: Patch) -> None:
    """After a reset every block gets fresh numbers."""
    rewind = publisher.Publisher.rewind

    def renumber(self: publisher.Publisher) -> None:
        rewind(self)
        for entry in self._entries:
            if entry.stream == self.stream:
                del self._by_number[entry.stream, entry.first_number]
                entry.first_number = self.next_number
                self.next_number += entry.numbers
                self._by_number[entry.stream, entry.first_number] = entry

    patch.set(publisher.Publisher, "rewind", renumber)
    patch.set(core_puts, "decide_put", core_puts.decide_put)
    decide = core_puts.decide_put

    def without_gaps(held: core_state.BrokerState, offer: core_puts.Offer) -> Any:
        stream = offer.client.streams.get(offer.packet.stream)
        if stream is not None and offer.packet.first_number > stream.last + 1:
            stream.last = offer.packet.first_number - 1
        return decide(held, offer)

    patch.set(broker, "decide_put", without_gaps)


@_bug
def retires_the_outbox_when_sending(patch: Patch) -> None:
    """An entry leaves the outbox when it leaves the process."""
    send = session.Session.send

    def send_and_retire(self: session.Session, packet: Any, block: Any = None) -> int:
        if block is not None:
            self.state.retire(packet.stream, packet.first_number + packet.count * len(packet.topics) - 1)
        return send(self, packet, block)

    patch.set(session.Session, "send", send_and_retire)
    patch.set(state.DirectoryState, "sync", lambda _self: None)


@_bug
def retires_too_much(patch: Patch) -> None:
    """Compaction of the outbox drops the tail."""
    retire = outbox.Outbox.retire
    patch.set(outbox.Outbox, "retire", lambda self, stream, number: retire(self, stream, number + 20))


@_bug
def keeps_nothing_in_the_outbox(patch: Patch) -> None:
    """Blocks are sent without being kept."""
    patch.set(state.DirectoryState, "keep", lambda _self, _entry: None)


@_bug
def does_not_sync_what_is_pending(patch: Patch) -> None:
    """PutPending is raised although a power cut would lose the put."""
    patch.set(outbox.Outbox, "sync", lambda _self: None)


@_bug
def does_not_sync_the_reservation(patch: Patch) -> None:
    """Messages beyond what is synced are handed out (H23)."""
    patch.set(state.MappedPlace, "sync", lambda _self: None)


@_bug
def does_not_sync_a_slots_name(patch: Patch) -> None:
    """A slot that vanishes with the power is taken for a fresh one."""
    patch.set(state.DirectoryState, "open_slot", _without_names(state.DirectoryState.open_slot))
    patch.set(state.DirectoryState, "save", _without_names(state.DirectoryState.save))


def _without_names(function: Any) -> Any:
    def unsynced(self: Any, *arguments: Any) -> Any:
        sync = disk.SimDisk.sync_names
        disk.SimDisk.sync_names = lambda _self: None  # type: ignore[method-assign]
        try:
            return function(self, *arguments)
        finally:
            disk.SimDisk.sync_names = sync  # type: ignore[method-assign]

    return unsynced


@_bug
def writes_the_slot_after_the_hand_over(patch: Patch) -> None:
    """The slot is always one call behind."""
    write = state.MappedPlace.write
    behind: dict[int, tuple[int, int]] = {}

    def late(self: state.MappedPlace, slot: Any) -> None:
        now = slot.finished, slot.handed
        slot.finished, slot.handed = behind.get(id(slot), now)
        behind[id(slot)] = now
        write(self, slot)
        slot.finished, slot.handed = now

    patch.set(state.MappedPlace, "write", late)


@_bug
def hands_out_a_block_from_its_beginning(patch: Patch) -> None:
    """A block that began before the wanted offset is handed out whole."""
    on_block = subscriber.Subscriber.on_block

    def whole(self: subscriber.Subscriber, source: Any, block: bytes, count: int) -> bool:
        taken = on_block(self, source, block, count)
        if taken:
            kept_source, kept_block, _ = self._blocks.pop()
            self._blocks.append((kept_source, kept_block, 0))
        return taken

    patch.set(subscriber.Subscriber, "on_block", whole)


@_bug
def passes_over_a_gap_in_silence(patch: Patch) -> None:
    """What is gone is skipped without a word."""

    def silent(self: subscriber.Subscriber, low: int, end: int, through: int, _damaged: Any) -> None:
        self.end, self.through = max(self.end, end), max(self.through, through)
        self.next_offset = max(self.next_offset, low)

    patch.set(subscriber.Subscriber, "on_part", silent)


@_bug
def takes_any_block_that_arrives(patch: Patch) -> None:
    """A late or repeated answer is buffered although it does not continue what is there."""

    def any_block(self: subscriber.Subscriber, source: Any, block: bytes, count: int) -> bool:
        self._blocks.append((source, block, 0))
        self.next_offset = source.first_offset + count
        return True

    patch.set(subscriber.Subscriber, "on_block", any_block)
    on_blocks = gets.Gets._on_blocks

    def any_answer(self: gets.Gets, request: int, packet: Any, body: Any) -> None:
        self._request = request
        on_blocks(self, request, packet, body)

    patch.set(gets.Gets, "_on_blocks", any_answer)


@_bug
def uses_a_session_again_after_a_crash(patch: Patch) -> None:
    """A directory's last session goes on, with numbers from 1 (H3)."""
    trying = session.trying

    def again(identity: Any, name: bytes) -> Any:
        return replace(trying(identity, name), tried=identity.tried)

    patch.set(session, "trying", again)
    open_session = session.Session._open

    def reopened(self: session.Session) -> None:
        if self.state.identity.welcomed:
            self.id = bytes.fromhex(self.state.identity.welcomed)
        open_session(self)

    patch.set(session.Session, "_open", reopened)
    cut = publisher.Publisher.cut

    def of_old_stream(self: publisher.Publisher, block: Any) -> Any:
        return cut(self, block)

    patch.set(publisher.Publisher, "cut", of_old_stream)
    packet = publisher.Entry.packet
    patch.set(publisher.Entry, "packet", lambda self, name: replace(packet(self, name), stream=name))


@_bug
def gives_up_a_put_that_was_refused_for_now(patch: Patch) -> None:
    """A full disk counts as an answer: the block leaves the outbox."""
    refused = puts.Puts._on_refused

    def drop(self: puts.Puts, request: int, packet: Any) -> bool:
        entry = self._requests.get(request)
        if entry is not None and packet.code == "disk_full":
            self._state.retire(entry.stream, entry.last_number)
            self.publisher._entries.remove(entry) if entry in self.publisher._entries else None
            self.publisher.next_number = self.publisher.next_number
        return refused(self, request, packet)

    patch.set(puts.Puts, "_on_refused", drop)


@_bug
def believes_a_topics_name(patch: Patch) -> None:
    """Ids are not compared: a Get for a deleted topic is served from its successor (H11)."""
    find = core_gets.find_subscription

    def by_name(held: Any, client: Any, subscription_id: int, topic_id: int, authority: str) -> Any:
        if topic_id not in held.topics and client.subscriptions:
            topic_id, subscription_id = next(iter(client.subscriptions.items()))
        return find(held, client, subscription_id, topic_id, authority)

    patch.set(core_gets, "find_subscription", by_name)

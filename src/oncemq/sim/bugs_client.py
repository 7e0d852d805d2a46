# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs of the client.

May not: be imported by anything but sim/bugs.py.
The idea: every function breaks one rule; its docstring says which. The product's names are taken as they are, private ones
included: whoever renames one has to look here, and at what guards it.
Next: sim/bugs_broker.py for the broker's.
"""

from __future__ import annotations

from typing import Any

from oncemq.client import gets, puts, session, state
from oncemq.core import broker, publisher, subscriber
from oncemq.core import gets as core_gets
from oncemq.core import puts as core_puts
from oncemq.core import state as core_state
from oncemq.core.packets import PutDone
from oncemq.journal import outbox
from oncemq.sim.bugs import Patch, Without, bug


def resume_from_cursor(self: subscriber.Subscriber, info: Any, **_: Any) -> None:
    self.slot.finished = self.slot.handed = self.next_offset = self.given = info.cursor
    self.slot.reserved = max(self.slot.reserved, info.cursor)


# --- client -----------------------------------------------------------------------------------------


@bug
def finishes_a_message_at_hand_over(patch: Patch) -> None:
    """What is handed out counts as done: nothing is ever in doubt (H2)."""
    patch.set(subscriber.Subscriber, "_doubt", _pass_over)


def _pass_over(self: subscriber.Subscriber, span: subscriber.Span) -> None:
    self.slot.finished = self.slot.handed = self.next_offset = self.given = max(span.first, span.end) + 1


@bug
def begins_what_is_in_doubt_too_late(patch: Patch) -> None:
    """Of several messages in doubt the first is left out: nobody is asked about it, and nobody gets it (R7)."""
    doubt = subscriber.Subscriber._doubt

    def late(self: subscriber.Subscriber, span: subscriber.Span) -> None:
        doubt(self, subscriber.Span(span.first + 1, span.end) if span.end - span.first > 1 else span)

    patch.set(subscriber.Subscriber, "_doubt", late)


@bug
def resumes_at_the_brokers_cursor(patch: Patch) -> None:
    """After a crash the slot is ignored (H24)."""
    patch.set(subscriber.Subscriber, "resume", resume_from_cursor)


@bug
def resubscribes_at_the_end(patch: Patch) -> None:
    """A restarted subscriber begins with what is new."""

    def at_the_end(self: subscriber.Subscriber, info: Any, **_: Any) -> None:
        self.slot.finished = self.slot.handed = self.next_offset = self.given = info.end
        self.slot.reserved = max(self.slot.reserved, info.end)

    patch.set(subscriber.Subscriber, "resume", at_the_end)


@bug
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
    decide = core_puts.decide_put

    def without_gaps(held: core_state.BrokerState, offer: core_puts.Offer) -> Any:
        stream = offer.client.streams.get(offer.packet.stream)
        if stream is not None and offer.packet.first_number > stream.last + 1:
            stream.last = offer.packet.first_number - 1
        return decide(held, offer)

    patch.set(broker, "decide_put", without_gaps)


@bug
def retires_the_outbox_when_sending(patch: Patch) -> None:
    """An entry leaves the outbox when it leaves the process."""
    send = session.Session.send

    def send_and_retire(self: session.Session, packet: Any, block: Any = None) -> int:
        if block is not None:
            self.state.retire(packet.stream, packet.first_number + packet.count * len(packet.topics) - 1)
        return send(self, packet, block)

    patch.set(session.Session, "send", send_and_retire)
    patch.set(state.DirectoryState, "sync", lambda _self: None)


@bug
def retires_too_much(patch: Patch) -> None:
    """Compaction of the outbox drops the tail."""
    retire = outbox.Outbox.retire
    patch.set(outbox.Outbox, "retire", lambda self, stream, number: retire(self, stream, number + 20))


@bug
def keeps_nothing_in_the_outbox(patch: Patch) -> None:
    """Blocks are sent without being kept."""
    patch.set(state.DirectoryState, "keep", lambda _self, _entry: None)


@bug
def does_not_sync_what_is_pending(patch: Patch) -> None:
    """PutPending is raised although a power cut would lose the put."""
    patch.set(outbox.Outbox, "sync", lambda _self: None)


@bug
def does_not_sync_the_reservation(patch: Patch) -> None:
    """Messages beyond what is synced are handed out (H23)."""
    patch.set(state.MappedPlace, "sync", lambda _self: None)


@bug
def does_not_sync_a_slots_name(patch: Patch) -> None:
    """A slot that vanishes with the power is taken for a fresh one."""
    patch.set(state.DirectoryState, "open_slot", _without_names(state.DirectoryState.open_slot))
    patch.set(state.DirectoryState, "save", _without_names(state.DirectoryState.save))


def _without_names(function: Any) -> Any:
    def unsynced(self: Any, *arguments: Any) -> Any:
        real, self._disk = self._disk, Without(self._disk, "sync_names")
        try:
            return function(self, *arguments)
        finally:
            self._disk = real

    return unsynced


@bug
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


@bug
def hands_out_a_block_from_its_beginning(patch: Patch) -> None:
    """A block that began before the wanted offset is handed out whole."""
    on_block = subscriber.Subscriber.on_block

    def whole(self: subscriber.Subscriber, source: Any, block: bytes, count: int) -> bool:
        taken = on_block(self, source, block, count)
        if taken and source.first_offset < self.given < source.first_offset + count:
            self.given = source.first_offset
        return taken

    patch.set(subscriber.Subscriber, "on_block", whole)


@bug
def passes_over_a_gap_in_silence(patch: Patch) -> None:
    """What is gone is skipped without a word."""

    def silent(self: subscriber.Subscriber, low: int, end: int, through: int, _damaged: Any) -> None:
        self.end, self.through = max(self.end, end), max(self.through, through)
        self.next_offset = self.given = max(self.next_offset, low)

    patch.set(subscriber.Subscriber, "on_part", silent)


@bug
def takes_any_block_that_arrives(patch: Patch) -> None:
    """A late or repeated answer is buffered although it does not continue what is there."""

    def any_block(self: subscriber.Subscriber, source: Any, block: bytes, count: int) -> bool:
        self._blocks.append((source, block, count))
        self.next_offset = source.first_offset + count
        if self.head() is not None and len(self._blocks) == 1 and not self._messages:
            self.given = source.first_offset
        return True

    patch.set(subscriber.Subscriber, "on_block", any_block)
    on_blocks = gets.Gets._on_blocks

    def any_answer(self: gets.Gets, request: int, packet: Any, body: Any) -> None:
        self.request = request
        on_blocks(self, request, packet, body)

    patch.set(gets.Gets, "_on_blocks", any_answer)


@bug
def gives_up_a_put_that_was_refused_for_now(patch: Patch) -> None:
    """A full disk counts as an answer: the application is told that the put is done."""
    refused = puts.Puts._on_refused

    def settled(self: puts.Puts, request: int, packet: Any) -> bool:
        entry = next((entry for entry in self.publisher._entries if entry.done is None), None)
        if entry is not None and packet.code == "disk_full":
            self._on_put_done(request, PutDone(entry.stream, entry.first_number, entry.numbers, False, "", ()))
            return True
        return refused(self, request, packet)

    patch.set(puts.Puts, "_on_refused", settled)


@bug
def believes_a_topics_name(patch: Patch) -> None:
    """Ids are not compared: a Get for a deleted topic is served from its successor (H11)."""
    find = core_gets.find_subscription

    def by_name(held: Any, client: Any, subscription_id: int, topic_id: int, authority: str) -> Any:
        if topic_id not in held.topics and client.subscriptions:
            topic_id, subscription_id = next(iter(client.subscriptions.items()))
        return find(held, client, subscription_id, topic_id, authority)

    patch.set(core_gets, "find_subscription", by_name)

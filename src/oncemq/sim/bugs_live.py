# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs of the live path, at both ends.

May not: be imported by anything but sim/bugs.py.
The idea: every function breaks one rule; its docstring says which. The product's names are taken as they are, private ones
included: whoever renames one has to look here, and at what guards it.
Next: core/live.py and core/channels.py for the rules.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oncemq.client import live
from oncemq.core import live as core_live
from oncemq.core.channels import channel_of
from oncemq.core.effects import Publish
from oncemq.core.packets import Ack, Live
from oncemq.engine import loop
from oncemq.journal.codec import decode_delivery
from oncemq.limits import GET_PARK_MS
from oncemq.sim.bugs import Patch, bug
from oncemq.wire.codec import encode


@bug
def tells_the_applied_end_in_heartbeats(patch: Patch) -> None:
    """A heartbeat carries the end as it is in memory, before the sync (R18)."""
    write = loop.BrokerLoop._write

    def early(self: loop.BrokerLoop) -> None:
        state = self.machine.state
        for topic_id in self.machine.channels._published if self._records else ():
            if topic_id in state.topics:
                packet = Live(state.start_id, topic_id, state.topics[topic_id].end)
                self._network.publish([channel_of(topic_id) + encode(0, packet)])
        write(self)

    patch.set(loop.BrokerLoop, "_write", early)


@bug
def publishes_before_the_sync(patch: Patch) -> None:
    """Blocks leave as soon as they are written; the power may go before they are on the disk."""

    def write(self: loop.BrokerLoop) -> None:
        self.journal.append(self._records)
        for entry in self._speech:
            if isinstance(entry, Publish):
                self._publish(entry)
        self.journal.sync()
        self._records.clear()

    patch.set(loop.BrokerLoop, "_write", write)


@bug
def does_not_notice_a_gap_in_what_it_hears(patch: Patch) -> None:
    """What is missing below a block that was heard is waited for, not asked for."""

    def get_wait_ms(self: core_live.Follower, ticks_ms: int) -> int | None:
        if not self._is_checked:
            return 0
        return None if self.is_heard(ticks_ms) else GET_PARK_MS

    patch.set(core_live.Follower, "get_wait_ms", get_wait_ms)


@bug
def does_not_notice_a_lost_tail(patch: Patch) -> None:
    """Heartbeats only say that the broker lives: their end is not looked at (H16)."""
    on_packet = live.Live._on_packet

    def without_end(self: live.Live, frames: Any, ticks_ms: int) -> None:
        with Patch() as inner:
            if len(frames) == 1:
                on_live = core_live.Follower.on_live
                inner.set(core_live.Follower, "on_live", lambda each, packet, at: on_live(each, replace(packet, end=0), at))
            on_packet(self, frames, ticks_ms)

    patch.set(live.Live, "_on_packet", without_end)


def _as_it_comes(patch: Patch, *, is_behind: bool) -> None:
    """Have live blocks taken although they do not continue: those that lie behind, or those that lie before."""

    def take(self: live.Live, body: Any) -> None:
        position = 0
        while position < len(body):
            delivered, start, end, position = decode_delivery(body, position)
            subscriber = self._gets._by_topic_id.get(delivered.topic_id)
            if subscriber is not None and subscriber.head() is None and subscriber.doubt is None:
                first = delivered.first_offset
                if first > subscriber.given if is_behind else first < subscriber.given:
                    subscriber.given = subscriber.next_offset = first
            self._gets.buffer(delivered, bytes(body[start:end]))

    patch.set(live.Live, "_take_blocks", take)


@bug
def takes_a_live_block_behind_a_gap(patch: Patch) -> None:
    """A block that is heard is handed out although the one before it is missing."""
    _as_it_comes(patch, is_behind=True)


@bug
def does_not_slice_what_overlaps(patch: Patch) -> None:
    """A block that is heard is handed out whole although a Get has brought it, or a part of it."""
    _as_it_comes(patch, is_behind=False)


@bug
def acknowledges_what_it_heard(patch: Patch) -> None:
    """A listener tells the broker how far it has received, not how far the application has come (H1)."""
    acknowledge = live.Live._acknowledge

    def received(self: live.Live, followers: Any, ticks_ms: int) -> None:
        send = self._session.send

        def ahead(packet: Any, block: Any = None) -> int:
            if isinstance(packet, Ack):
                packet = replace(packet, done=self._followers[packet.topic_id].subscriber.next_offset)
            return send(packet, block)

        self._session.send = ahead  # type: ignore[method-assign]
        try:
            acknowledge(self, followers, ticks_ms)
        finally:
            del self._session.send

    patch.set(live.Live, "_acknowledge", received)

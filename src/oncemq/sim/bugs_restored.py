# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs that only directories set back to older copies, or cloned, bring to light (R1, R3, R4).

May not: be imported by anything but sim/bugs.py.
The idea: every function forgets one of the tests that make a backup's return visible; its docstring says which.
Next: sim/rollback.py, which sets directories back; sim/forks.py for what must be told then.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from oncemq.client import puts, session
from oncemq.core import publisher, sessions, subscriber
from oncemq.core import state as core_state
from oncemq.errors import StateLost
from oncemq.model.refusals import Code
from oncemq.sim.bugs import Patch, bug


@bug
def believes_a_bookmark_of_any_start(patch: Patch) -> None:
    """An append number counts as ours whichever start gave it: a broker set back and refilled looks like the old one (H33)."""

    def belongs(self: core_state.BrokerState, _start_id: bytes, append_number: int) -> bool:
        return append_number < self.next_append_number

    patch.set(core_state.BrokerState, "belongs", belongs)


@bug
def takes_a_directory_that_does_not_know_the_session(patch: Patch) -> None:
    """Known sessions are not checked in Hello: an old copy of a directory may go on (H24)."""
    why_not = sessions._why_not

    def lenient(*arguments: Any) -> Code | None:
        code = why_not(*arguments)
        return None if code is Code.STATE_LOST else code

    patch.set(sessions, "_why_not", lenient)


@bug
def believes_a_welcome_that_shows_less(patch: Patch) -> None:
    """What was confirmed is not compared with what the broker has: its loss is passed over in silence (R4)."""
    on_welcome = publisher.Publisher.on_welcome

    def trusting(self: publisher.Publisher, streams: Any, previous: Any, _confirmed: dict[bytes, int]) -> Any:
        return on_welcome(self, streams, previous, {})

    patch.set(publisher.Publisher, "on_welcome", trusting)


@bug
def begins_streams_that_an_old_copy_names(patch: Patch) -> None:
    """After a takeover any pending stream may be sent: what was stored and forgotten long ago is stored again."""
    patch.set(sessions, "_kept", lambda packet, _client: packet.pending)


@bug
def takes_over_in_silence(patch: Patch) -> None:
    """Who takes over goes on at the broker's cursor and is not told what was on its way: handed out before, it comes again."""
    resume = subscriber.Subscriber.resume

    def go_on(self: subscriber.Subscriber, info: Any, *, taken_over: bool, **other: Any) -> None:
        resume(self, replace(info, end=info.cursor) if taken_over else info, taken_over=taken_over, **other)

    patch.set(subscriber.Subscriber, "resume", go_on)


@bug
def renumbers_for_a_broker_that_went_back(patch: Patch) -> None:
    """A broker that asks for a number that was confirmed gets the next message under it."""

    def go_on(self: puts.Puts, expected: int) -> None:
        machine = self.publisher
        for entry in machine._entries:
            if entry.stream == machine.stream:
                del machine._by_number[entry.stream, entry.first_number]
                entry.first_number = expected
                expected += entry.numbers
                machine._by_number[entry.stream, entry.first_number] = entry
        machine.next_number = expected
        machine.rewind()

    refused = puts.Puts._on_refused

    def lenient(self: puts.Puts, request: int, packet: Any) -> bool:
        entry, floor = self._requests.get(request, (None, 0))
        if entry is not None and packet.code == Code.GAP_IN_STREAM and packet.expected <= floor:
            self._requests.clear()
            go_on(self, packet.expected)
            return True
        return refused(self, request, packet)

    patch.set(puts.Puts, "_on_refused", lenient)


@bug
def answers_a_lost_state_by_taking_over(patch: Patch) -> None:
    """A directory that is an old copy takes over by itself, without a word to the application."""
    ensure = session.Session.ensure

    def stubborn(self: session.Session, timeout_ms: int | None = None) -> None:
        try:
            ensure(self, timeout_ms)
        except StateLost:
            self.takeover, self._failure = True, None
            ensure(self, timeout_ms)

    patch.set(session.Session, "ensure", stubborn)

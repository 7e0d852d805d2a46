# SPDX-License-Identifier: Apache-2.0
"""The runner of core/live.py: one live link for all listeners of a client, beside its ordinary one.

May not: start a thread, hand anything out, or rely on what it hears. client/gets.py asks for whatever is missing.
The idea: a turn does the next thing there is: take one live packet, take one answer, ask, acknowledge, or wait for both links at
once. Live packets are read one by one and only when the application has nothing left, so that what a slow one does not take
stays in a queue of bounded length; beyond it packets are lost, which is noticed, and got. While an answer that fills a gap is
on its way live packets wait, because they continue what it brings.
Next: client/listening.py for who takes turns, core/live.py for the rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from oncemq.client.gets import Gets, Held
from oncemq.client.session import Session
from oncemq.core.channels import CHANNEL_BYTES, channel_of
from oncemq.core.live import Follower
from oncemq.core.packets import Ack, Blocks, Heartbeat, HeartbeatDone, Refused
from oncemq.core.packets import Live as LivePacket
from oncemq.crashpoints import reach
from oncemq.errors import Diverged, MalformedPacket
from oncemq.journal.codec import BadRecord, decode_delivery
from oncemq.limits import (
    BACKOFF_MS,
    BACKOFF_MS_MAX,
    GET_PARK_MS,
    LIVE_SIGN_OF_LIFE_MS,
    REQUEST_TIMEOUT_MS,
    REQUEST_TRIES,
)
from oncemq.ports import Frames, LiveLink
from oncemq.wire.codec import decode

_ACKS_REMEMBERED = 64
"""Acknowledgements whose refusal is still recognised; there is no answer to one that is taken."""


class Live:
    """What a client knows of the live path."""

    def __init__(self, session: Session, gets: Gets) -> None:
        self._session = session
        self._gets = gets
        self._link: LiveLink | None = None
        self._opened_ms: int | None = None
        self._followers: dict[int, Follower] = {}
        """By topic id."""
        self._listeners: dict[int, int] = {}
        """How many listeners share each."""
        self._acks: deque[tuple[int, int]] = deque(maxlen=_ACKS_REMEMBERED)
        """(request, topic id) of acknowledgements."""
        self._own = 0
        """The last Get asked for here."""
        self._is_answered = False
        """Whether one was answered since a listener began to wait."""
        self._watched = 0
        """The Get whose answer is waited for."""
        self._parked = 0
        """That Get, if it may wait at the broker."""
        self._due_ms = 0
        self._tries = 0
        self._fruitless = 0
        self._not_before_ms = 0
        gets.on_answer = self._on_answer
        gets.on_other_refusal = self._on_refused

    # --- who follows what ------------------------------------------------------------------------------

    def follow(self, held: Held) -> Follower:
        """Begin to follow a subscription's channel, or share with whoever does."""
        topic_id = held.subscriber.slot.topic_id
        follower = self._followers.get(topic_id)
        if follower is None or follower.subscriber is not held.subscriber:
            follower = self._followers[topic_id] = Follower(held.subscriber, self._ticks_ms())
            self._listeners[topic_id] = 0
            if self._link is not None:
                self._link.follow(channel_of(topic_id))
        self._listeners[topic_id] += 1
        return follower

    def leave(self, follower: Follower) -> None:
        """One listener less; with the last one the channel is left."""
        topic_id = follower.subscriber.slot.topic_id
        if self._followers.get(topic_id) is follower:
            self._listeners[topic_id] -= 1
            if self._listeners[topic_id] == 0:
                self.forget(topic_id)

    def forget(self, topic_id: int) -> None:
        """Leave a channel for good, at once: its subscription was ended."""
        self._listeners.pop(topic_id, None)
        if self._followers.pop(topic_id, None) is not None and self._link is not None and not self._session.is_closed:
            self._link.leave(channel_of(topic_id))

    def _ticks_ms(self) -> int:
        return self._session.clock.now().ticks_ms

    # --- the link --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A listener begins to wait: listen where the broker publishes, unless that is done already."""
        self._is_answered = False
        if self._opened_ms is None:
            reply = self._session.exchange(Heartbeat())
            self._connect(reply.live if isinstance(reply, HeartbeatDone) else "")

    def _connect(self, address: str) -> None:
        """An empty address: this broker does not publish, everything is got as always."""
        self._opened_ms = self._ticks_ms()
        self._link = self._session.open_live(address) if address else None
        for topic_id, follower in self._followers.items():
            follower.on_silence()
            if self._link is not None:
                self._link.follow(channel_of(topic_id))

    def _reopen_if_silent(self, followers: Sequence[Follower], ticks_ms: int) -> None:
        """A link on which nothing is heard is replaced: the broker may publish elsewhere now, or the connection is dead."""
        is_due = self._opened_ms is not None and ticks_ms - self._opened_ms >= LIVE_SIGN_OF_LIFE_MS
        if not is_due or all(follower.is_heard(ticks_ms) for follower in followers):
            return
        self._opened_ms = ticks_ms
        reply = self._session.try_once(Heartbeat())
        if isinstance(reply, HeartbeatDone):
            self._connect(reply.live)

    # --- one turn --------------------------------------------------------------------------------------

    def turn(self, followers: Sequence[Follower], remaining_ms: int | None) -> bool:
        """Do the next thing, waiting if there is none; False if the time is over and everything there is was heard of."""
        session = self._session
        session.raise_failure()
        ticks_ms = self._ticks_ms()
        if self._take_live(ticks_ms) or session.receive(0):
            return True
        self._acknowledge(followers, ticks_ms)
        if remaining_ms == 0 and self._is_all_here(followers, ticks_ms):
            return False
        self._ask(followers, ticks_ms, remaining_ms)
        self._check_answer(ticks_ms, is_last=remaining_ms == 0)
        self._reopen_if_silent(followers, ticks_ms)
        self._wait(followers, ticks_ms, remaining_ms)
        return True

    def _is_all_here(self, followers: Sequence[Follower], ticks_ms: int) -> bool:
        """Whether nothing is known to be missing, and silence means that there is nothing."""
        waits_ms = [follower.get_wait_ms(ticks_ms) for follower in followers]
        return 0 not in waits_ms and (self._is_answered or not any(waits_ms))

    def _is_fetching(self) -> bool:
        """Whether an answer is on its way that live packets are expected to continue; one for other topics is not waited for."""
        is_underway = self._gets.request not in {0, self._parked}
        return is_underway and any(asked.slot.topic_id in self._followers for asked in self._gets.asked)

    def _wait(self, followers: Sequence[Follower], ticks_ms: int, remaining_ms: int | None) -> None:
        due_ms = min(follower.next_due_ms(ticks_ms) for follower in followers)
        if self._gets.request:
            due_ms = min(due_ms, self._due_ms)
        if self._not_before_ms > ticks_ms:
            due_ms = min(due_ms, self._not_before_ms)
        wait_ms = max(1, due_ms - ticks_ms)
        if remaining_ms:
            wait_ms = min(wait_ms, remaining_ms)
        if self._link is None or self._is_fetching():
            self._session.receive(wait_ms)
        else:
            self._link.wait(wait_ms)

    def release(self) -> None:
        """The application goes on: a Get that waits at the broker must not stand in the way of its other calls."""
        if self._parked and self._gets.request == self._parked:
            self._gets.request = 0
        self._parked = 0

    # --- what is heard ---------------------------------------------------------------------------------

    def hear(self) -> bool:
        """Take one live packet if there is one: all that is due while one follows the other."""
        self._session.raise_failure()
        return self._take_live(self._ticks_ms())

    def _take_live(self, ticks_ms: int) -> bool:
        if self._link is None or self._is_fetching():
            return False
        frames = self._link.receive()
        if frames is None:
            return False
        reach("client.after_live")
        self._on_packet(frames, ticks_ms)
        return True

    def _on_packet(self, frames: Frames, ticks_ms: int) -> None:
        try:
            _, packet = decode(frames[0][CHANNEL_BYTES:])
        except (MalformedPacket, IndexError):
            return  # Not of this protocol: as good as lost.
        follower = self._followers.get(packet.topic_id) if isinstance(packet, LivePacket) else None
        if isinstance(packet, LivePacket) and follower is not None and follower.on_live(packet, ticks_ms) and len(frames) > 1:
            self._take_blocks(frames[1])

    def _take_blocks(self, body: bytes | memoryview) -> None:
        """Buffer what continues; what does not is old, or lies behind a gap that the end told of."""
        position = 0
        try:
            while position < len(body):
                delivered, start, end, position = decode_delivery(body, position)
                self._gets.buffer(delivered, bytes(body[start:end]))
        except BadRecord:
            return  # Bent on the way: as good as lost.

    def _on_answer(self, request: int, packet: Blocks) -> None:
        self._tries = 0
        self._is_answered = self._is_answered or request == self._own
        ticks_ms = self._ticks_ms()
        for part in packet.parts:
            follower = self._followers.get(part.topic_id)
            if follower is None:
                continue
            if not follower.on_answer(packet.start_id, part.end):
                self._gets.problem = Diverged("it ends before the end it told once: messages it had are gone", part.end)
            is_in_vain = follower.get_wait_ms(ticks_ms) == 0 and not self._gets.brought_something
            self._fruitless = self._fruitless + 1 if is_in_vain else 0
            if is_in_vain:
                self._not_before_ms = ticks_ms + min(BACKOFF_MS << min(self._fruitless - 1, 10), BACKOFF_MS_MAX)

    def _on_refused(self, request: int, _: Refused) -> bool:
        """An acknowledgement was refused: whatever the reason, the next Get will be told it."""
        for asked, topic_id in self._acks:
            if asked == request and topic_id in self._followers:
                self._followers[topic_id].on_refused()
                return True
        return False

    # --- what is said ----------------------------------------------------------------------------------

    def acknowledge_if_due(self, follower: Follower) -> None:
        """Called for every message handed out: whoever is slow with a large block is heard of all the same."""
        ticks_ms = self._ticks_ms()
        if follower.is_acknowledgement_due(ticks_ms):
            self._acknowledge((follower,), ticks_ms)
            self._session.receive(0)  # Whoever always finds something live must still hear that an earlier one was refused.

    def _acknowledge(self, followers: Sequence[Follower], ticks_ms: int) -> None:
        for follower in followers:
            if follower.is_acknowledgement_due(ticks_ms):
                subscriber, slot = follower.subscriber, follower.subscriber.slot
                follower.on_acknowledged(ticks_ms)
                subscriber.told = max(subscriber.told, slot.finished)
                ack = Ack(self._session.id, slot.subscription_id, slot.topic_id, slot.finished)
                self._acks.append((self._session.send(ack), slot.topic_id))

    def _ask(self, followers: Sequence[Follower], ticks_ms: int, remaining_ms: int | None) -> None:
        """Ask for what is missing at once; for what may come on a silent channel with a Get that waits."""
        if ticks_ms < self._not_before_ms:
            return
        wanted = [(follower.subscriber, follower.get_wait_ms(ticks_ms)) for follower in followers]
        missing = [subscriber for subscriber, wait_ms in wanted if wait_ms == 0]
        silent = [subscriber for subscriber, wait_ms in wanted if wait_ms]
        is_asked = all(subscriber in self._gets.asked for subscriber in missing or silent)
        if self._gets.request and (is_asked or self._is_fetching()):
            return
        if missing:
            self._gets.ask(self._gets.with_others(missing), 0)
            self._own, self._parked = self._gets.request, 0
        elif silent:
            wait_ms = GET_PARK_MS if remaining_ms is None else min(remaining_ms, GET_PARK_MS)
            self._gets.ask(self._gets.with_others(silent), wait_ms)
            self._own, self._parked = self._gets.request, self._gets.request if wait_ms else 0

    def _check_answer(self, ticks_ms: int, *, is_last: bool) -> None:
        """Send again on a fresh connection what is not answered, and give up after some tries."""
        request = self._gets.request
        if request != self._watched:
            self._watched = request
            wait_ms = GET_PARK_MS if request == self._parked else 0
            self._due_ms = ticks_ms + wait_ms + (REQUEST_TIMEOUT_MS << self._tries)
        if request and ticks_ms >= self._due_ms:
            self._tries += 1
            if self._tries >= REQUEST_TRIES or is_last:
                tries, self._tries = self._tries, 0
                self._session.renew()
                raise self._session.unreachable(ticks_ms, tries)
            self._session.restart(self._tries)

# SPDX-License-Identifier: Apache-2.0
"""The listening half of a client, one machine per subscription: what of a live channel may be believed, and what must be asked.

May not: hold a message, a place or a truth of its own. What may be handed out is core/subscriber.py's business, as for get.
The idea: the live path is a rumour of what a Get would bring. A packet counts only if it comes from the start of the broker that
has checked this subscription's bookmark (R1): after a restart that is asked first. Whatever it tells beyond what is here, a block
behind a gap or the end in a heartbeat, is missing and is asked for (H16). A channel that is silent is not relied on: then every
message is got as always. The broker is told what is finished, not what arrived (R6).
Next: client/live.py, which runs it; core/channels.py for the other end.
"""

from __future__ import annotations

from collections import deque

from oncemq.core.packets import NOBODY, Live
from oncemq.core.subscriber import Subscriber
from oncemq.limits import GET_PARK_MS, LIVE_ACK_MESSAGES, LIVE_ACK_MS, LIVE_SIGN_OF_LIFE_MS, LIVE_SILENCE_MS

_STARTS_REMEMBERED = 8
"""Earlier starts whose packets may still lie in a queue; an unknown one only costs a Get."""


class Follower:
    """What is known of one subscription's channel."""

    __slots__ = ("_acknowledged_ms", "_end", "_end_start_id", "_heard_ms", "_is_checked", "_past", "_start_id", "subscriber")

    def __init__(self, subscriber: Subscriber, ticks_ms: int) -> None:
        self.subscriber = subscriber
        self._start_id = NOBODY
        """The start of the broker that last served a Get of this subscription, and so knows its bookmark."""
        self._is_checked = False
        """Whether nothing was heard from a start that has not served a Get yet."""
        self._past: deque[bytes] = deque(maxlen=_STARTS_REMEMBERED)
        self._end, self._end_start_id = 0, NOBODY
        """The highest end ever heard, and who told it."""
        self._heard_ms: int | None = None
        self._acknowledged_ms = ticks_ms

    # --- from the broker -----------------------------------------------------------------------------

    def on_live(self, packet: Live, ticks_ms: int) -> bool:
        """Take note of a live packet; say whether its blocks may be offered to the subscriber."""
        if packet.start_id != self._start_id:
            self._is_checked = self._is_checked and packet.start_id in self._past
            return False
        self._heard_ms = ticks_ms
        if packet.end > self._end:
            self._end, self._end_start_id = packet.end, packet.start_id
        return True

    def on_answer(self, start_id: bytes, end: int) -> bool:
        """Take note of who served a Get; False if that broker lacks what an earlier start told: it was set back."""
        if start_id != self._start_id:
            self._past.append(self._start_id)
            self._start_id, self._heard_ms = start_id, None
        self._is_checked = True
        return end >= self._end or start_id == self._end_start_id

    def on_refused(self) -> None:
        """An acknowledgement was refused: a Get will be told why."""
        self._is_checked = False

    def on_silence(self) -> None:
        """The channel is opened anew: nothing was heard on this one."""
        self._heard_ms = None

    # --- to the broker -------------------------------------------------------------------------------

    def get_wait_ms(self, ticks_ms: int) -> int | None:
        """How long a Get should wait at the broker; None if there is nothing to ask, because all would be heard."""
        if not self._is_checked or self.subscriber.next_offset < self._end:
            return 0
        return None if self.is_heard(ticks_ms) else GET_PARK_MS

    def is_heard(self, ticks_ms: int) -> bool:
        """Whether the channel can be relied on: it spoke a short while ago."""
        return self._heard_ms is not None and ticks_ms - self._heard_ms < LIVE_SILENCE_MS

    def is_acknowledgement_due(self, ticks_ms: int) -> bool:
        """Whether to tell the broker what is finished, or at least that this session lives."""
        subscriber = self.subscriber
        news, waited_ms = subscriber.slot.finished - subscriber.told, ticks_ms - self._acknowledged_ms
        return news >= LIVE_ACK_MESSAGES or waited_ms >= (LIVE_ACK_MS if news > 0 else LIVE_SIGN_OF_LIFE_MS)

    def on_acknowledged(self, ticks_ms: int) -> None:
        self._acknowledged_ms = ticks_ms

    def next_due_ms(self, ticks_ms: int) -> int:
        """When to look again even if nothing arrives."""
        has_news = self.subscriber.slot.finished > self.subscriber.told
        acknowledge_ms = self._acknowledged_ms + (LIVE_ACK_MS if has_news else LIVE_SIGN_OF_LIFE_MS)
        heard_ms = self._heard_ms if self._heard_ms is not None and self.is_heard(ticks_ms) else ticks_ms
        return min(acknowledge_ms, heard_ms + LIVE_SILENCE_MS)

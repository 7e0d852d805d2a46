# SPDX-License-Identifier: Apache-2.0
"""What `client.listen(...)` returns: an iterator over messages, or over whole blocks, as they are stored.

May not: hand out anything before its slot is written; the same law, the same slots and the same hands as get (client/gets.py).
The idea: handing out is get's business, waiting is client/live.py's. The next step finishes what the step before handed out, on
whichever topic (R7). An exception ends a `for` loop but not the listener: what it told is resolved, and `next` goes on.
Next: client/live.py for the turns, core/subscriber.py for what may be handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, NamedTuple, Self, TypeVar

from oncemq.client.alone import IN_PASSING, alone, handing_out
from oncemq.client.arguments import milliseconds
from oncemq.client.gets import Gets, Held
from oncemq.client.live import Live
from oncemq.core.live import Follower
from oncemq.core.subscriber import Subscriber
from oncemq.crashpoints import reach
from oncemq.errors import Gap, OnceMQError, invariant
from oncemq.limits import RESERVE_AHEAD_BLOCKS
from oncemq.model.message import Message
from oncemq.model.view import Block

Taken = TypeVar("Taken")


class Ears(NamedTuple):
    """What every listener needs: where to hear and to get, which subscriptions, and for how long."""

    live: Live
    gets: Gets
    helds: list[Held]
    timeout_ms: int | None
    check_open: Callable[[], None]


class Listener(Generic[Taken]):
    """One listener. It ends when its time is over without a message, or when none of its subscriptions is left."""

    def __init__(self, ears: Ears) -> None:
        self._alone = ears.gets.alone
        self._live = ears.live
        self._gets = ears.gets
        self._timeout_ms = ears.timeout_ms
        self._check_open = ears.check_open
        self._followed: dict[str, tuple[Held, Follower]] = {
            held.subscriber.topic: (held, ears.live.follow(held)) for held in ears.helds
        }
        self._last: tuple[Held, int] | None = None
        """Where something was handed out last, and how far the application then was."""
        self._is_ended = False

    # --- for applications ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Taken]:
        return self

    def __next__(self) -> Taken:
        taken = self._step(self._timeout_ms) if not self._is_ended else None
        if taken is None:
            self.close()
            raise StopIteration
        return taken

    def next(self, timeout: float | None = None) -> Taken | None:
        """Wait for one more, up to `timeout` seconds; None if none came. Goes on where a `for` loop would have ended."""
        return self._step(milliseconds(timeout))

    @alone
    def finish(self) -> None:
        """Say that what was handed out is finished, without waiting for the next; the broker is told a little later."""
        self._check_open()
        self._finish_last()

    @alone
    def close(self) -> None:
        """Stop listening. The subscriptions stay, and so does the last thing handed out: get() or listen() finishes it."""
        self._is_ended = True
        followed, self._followed = self._followed, {}
        for _, follower in followed.values():
            self._live.leave(follower)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError, OnceMQError):
            self.close()

    # --- inside ----------------------------------------------------------------------------------------

    @handing_out
    def _step(self, timeout_ms: int | None) -> tuple[Subscriber, int, Taken] | None:
        """Have something ready within that time and hand it out; None if nothing came, or nothing is subscribed to any more."""
        self._check_open()
        try:
            chosen = self._wait(timeout_ms)
        except Gap as gap:
            self._gets.pass_over(gap)
            if gap.topic in self._followed:
                self._last = self._followed[gap.topic][0], gap.end  # Handed out like a message: the next step finishes it.
            raise
        finally:
            self._live.release()
        if chosen is None:
            return None
        held, follower = chosen
        subscriber, count, item = self._hand_out(held)
        # The new hand-over is written first: between the two a crash leaves both in doubt, never neither.
        if self._last is not None and self._last[0] is not held:
            self._finish_last()
        self._last = held, subscriber.slot.handed
        self._live.acknowledge_if_due(follower)
        return subscriber, count, item

    def _wait(self, timeout_ms: int | None) -> tuple[Held, Follower] | None:
        if not self._drop_ended():
            return None
        if (chosen := self._ready()) is not None:
            return chosen
        self._finish_last()  # This step finishes what was handed out before, even if it brings nothing.
        self._live.begin()
        clock = self._gets.clock
        started_ms = clock.now().ticks_ms
        while (chosen := self._ready()) is None:
            self._gets.raise_what_blocks([held for held, _ in self._followed.values()])
            remaining_ms = None if timeout_ms is None else max(0, timeout_ms - (clock.now().ticks_ms - started_ms))
            if not self._live.turn([follower for _, follower in self._followed.values()], remaining_ms):
                return None
        return chosen

    def _drop_ended(self) -> bool:
        """Forget subscriptions that were ended meanwhile; say whether one is left."""
        for topic, (held, _) in list(self._followed.items()):
            if self._gets.held.get(topic) is not held:
                del self._followed[topic]
        return bool(self._followed)

    def _ready(self) -> tuple[Held, Follower] | None:
        """Whose next message is the oldest of those that are here."""
        found = None
        oldest = 0
        for entry in self._followed.values():
            subscriber = entry[0].subscriber
            if self._is_ready(subscriber):
                head = subscriber.head() or 0
                if found is None or head < oldest:
                    found, oldest = entry, head
        return found

    def _finish_last(self) -> None:
        """Finish what was handed out last; what another call handed out since is not ours to finish."""
        if self._last is not None:
            held, given = self._last
            if held.subscriber.given == given and self._gets.held.get(held.subscriber.topic) is held:
                self._gets.finish(held)

    def _is_ready(self, subscriber: Subscriber) -> bool:
        raise NotImplementedError

    def _hand_out(self, held: Held) -> tuple[Subscriber, int, Taken]:
        raise NotImplementedError


class MessageListener(Listener[Message]):
    """Message by message."""

    def __next__(self) -> Message:
        alone = self._alone
        before = alone.inside
        if before:
            alone.expect_mine()
        else:
            alone.inside = IN_PASSING
        try:
            last = self._last
            held = last[0] if last is not None and len(self._followed) == 1 else None
            if held is not None and self._gets.held.get(held.subscriber.topic) is held:
                subscriber = held.subscriber
                message = subscriber.take_ready()
                if message is not None:
                    held.place.write(subscriber.slot)
                    self._last = held, message.offset + 1
                    self._live.acknowledge_if_due(self._followed[subscriber.topic][1])
                    subscriber.given += 1
                    return message
        finally:
            alone.inside = before
        return super().__next__()

    def _is_ready(self, subscriber: Subscriber) -> bool:
        return subscriber.has_message()

    def _hand_out(self, held: Held) -> tuple[Subscriber, int, Message]:
        subscriber, message = self._gets.hand_out(held)
        return subscriber, 1, message


class BlockListener(Listener[Block]):
    """Block by block, as they were stored: many messages at the price of one."""

    _found: tuple[Subscriber, Block] | None = None
    """The block that is ready: it was validated, which is not done twice."""

    def next(self, timeout: float | None = None) -> Block | None:
        return self._next_ready() or super().next(timeout)

    def __next__(self) -> Block:
        return self._next_ready() or super().__next__()

    @handing_out
    def _next_ready(self) -> tuple[Subscriber, int, Block] | None:
        """Hand out the next block of the only subscription, if nothing but that is due."""
        if self._last is None or len(self._followed) != 1:
            return None
        held = self._last[0]
        subscriber = held.subscriber
        if self._gets.held.get(subscriber.topic) is not held:
            return None
        block = subscriber.ready_block() or (subscriber.ready_block() if self._live.hear() else None)
        if block is None:
            return None
        subscriber.take_block(block)
        reach("client.before_hand_over")
        held.place.write(subscriber.slot)
        reach("client.after_hand_over")
        self._last = held, block.end_offset
        if subscriber.end > subscriber.next_offset:
            self._gets.prefetch(subscriber)
        self._live.acknowledge_if_due(self._followed[subscriber.topic][1])
        return subscriber, len(block), block

    def _is_ready(self, subscriber: Subscriber) -> bool:
        if self._found is None or self._found[0] is not subscriber or self._found[1].first_offset != subscriber.given:
            block = subscriber.next_block()
            self._found = (subscriber, block) if block is not None else None
        return self._found is not None

    def _hand_out(self, held: Held) -> tuple[Subscriber, int, Block]:
        subscriber = held.subscriber
        self._is_ready(subscriber)
        invariant(self._found is not None, "only what is ready is handed out")
        block: Block = self._found[1]  # type: ignore[index]
        count = len(block)
        if subscriber.needs_reserve(count):
            self._gets.reserve(held, count, RESERVE_AHEAD_BLOCKS)
        subscriber.take_block(block)
        reach("client.before_hand_over")
        held.place.write(subscriber.slot)
        reach("client.after_hand_over")
        self._gets.prefetch(subscriber)
        return subscriber, count, block

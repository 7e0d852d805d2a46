# SPDX-License-Identifier: Apache-2.0
"""The receiving half of a client, one machine per subscription: what may be handed out, and what that finishes.

May not: hand out a message twice, out of order, or before the runner has written the slot.
The idea: blocks that continue `next_offset` are buffered whole; `take` slices them into messages, moves the slot, and so
finishes the message handed out before (R7). What is in doubt, gone or damaged stands in the way until it is told.
`given` is what the application has: the one number that whoever hands out moves last, with nothing behind it that could fail.
An exception out of nowhere (Ctrl-C, a time-out by signal) before that leaves it, and the same offset is handed out next.
Next: core/slot.py for the numbers, client/client.py for the runner.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from oncemq.core.packets import NOBODY, SubscriptionInfo, Want
from oncemq.core.slot import Slot
from oncemq.errors import Damaged, Gap, InDoubt, StateLost
from oncemq.limits import RESERVE_AHEAD_CALLS, RESERVE_AHEAD_MESSAGES
from oncemq.model.block import BadBlock, messages_of
from oncemq.model.message import Message, Source
from oncemq.model.view import Block


class Span(NamedTuple):
    """A range of offsets [first, end)."""

    first: int
    end: int


class Subscriber:
    """One subscription of this process."""

    __slots__ = (
        "_blocks",
        "_first",
        "_messages",
        "_received_append",
        "_received_start",
        "authority",
        "buffered_bytes",
        "damaged",
        "doubt",
        "end",
        "gap",
        "given",
        "info",
        "next_offset",
        "slot",
        "start",
        "through",
        "told",
        "topic",
    )

    def __init__(self, info: SubscriptionInfo, slot: Slot) -> None:
        self.info = info
        self.topic = info.topic
        self.authority = info.authority
        self.start = info.start
        self.slot = slot
        self.given = slot.handed
        """The next offset the application has not had, nor been told of. Everything buffered is found by it."""
        self.next_offset = slot.handed
        self.told = info.cursor
        """The cursor the broker has been told."""
        self.doubt: Span | None = None
        self.gap: Span | None = None
        self.damaged: tuple[Span, str] | None = None
        self.end = info.end
        """Where the topic ended when the broker last spoke of it."""
        self.through = 0
        """Messages of this topic that are not buffered have an append number above this one."""
        self.buffered_bytes = 0
        self._blocks: deque[tuple[Source, bytes, int]] = deque()
        """Blocks with their number of messages. Some at the beginning of the first may have been handed out before."""
        self._messages: list[Message] = []
        self._first = 0
        """The offset of the first of `_messages`."""
        self._received_append = slot.append_number
        self._received_start = slot.start_id

    # --- at the start --------------------------------------------------------------------------------

    def resume(self, info: SubscriptionInfo, *, is_os_crash: bool, taken_over: bool, client: str, is_lost: bool = False) -> None:
        """Compare the slot with the broker after a Welcome, and work out what is in doubt.

        `is_lost`: there was a slot, because it is written and synced before the first Get, and now there is none.
        """
        slot = self.slot
        if taken_over or is_lost:
            self.forget_bookmark()
            self._doubt(Span(info.cursor, info.end))
        elif info.cursor > (slot.reserved if is_os_crash else slot.handed):
            raise StateLost(client)  # The broker was told more than this directory ever handed out: it is an old copy.
        elif is_os_crash:
            # What the broker was told is finished, even if the slot that said so is lost with the cache.
            self._doubt(Span(max(slot.finished, info.cursor), min(slot.reserved, info.end)))
        else:
            self._doubt(Span(slot.finished, slot.handed))
            slot.reserved = slot.handed  # The first hand-over reserves, and so syncs, anew: taking up a subscription need not.

    def forget_bookmark(self) -> None:
        """It may belong to a history that is no more."""
        slot = self.slot
        slot.append_number = self._received_append = 0
        slot.start_id = self._received_start = NOBODY
        slot.freeze()

    def _doubt(self, span: Span) -> None:
        slot = self.slot
        slot.finished, slot.handed = span.first, max(span.end, span.first)
        slot.reserved = max(slot.reserved, slot.handed)
        self.next_offset = self.given = slot.handed
        self.doubt = span if span.end > span.first else None

    def settle(self, choice: str) -> None:
        """Resolve what is in doubt or damaged: `repeat` hands it out again, `skip` counts it as finished."""
        self.gap = None  # It began at another place; the next answer says whether anything is missing from here on.
        if self.damaged is not None:
            if choice == "skip":
                self._go_on_at(self.damaged[0].end)
            else:
                self.drop_buffer()  # Ask again: a disk that failed to read once may read now.
            self.damaged = None
        elif self.doubt is not None:
            self.drop_buffer()
            at = self.doubt.first if choice == "repeat" else self.doubt.end
            self._go_on_at(at)
            self.doubt = None

    def _go_on_at(self, offset: int) -> None:
        """Everything below is finished. Whoever calls syncs the slot: the reservation may have moved."""
        slot = self.slot
        slot.finished = slot.handed = self.next_offset = self.given = offset
        slot.reserved = max(slot.reserved, offset)

    # --- from the broker -----------------------------------------------------------------------------

    def want(self) -> Want:
        """What to ask for: from the first offset not buffered; done is what the application finished."""
        slot = self.slot
        self.told = max(self.told, slot.finished)
        return Want(
            slot.subscription_id,
            slot.topic_id,
            self.next_offset,
            slot.finished,
            self._received_start,
            self._received_append,
        )

    def on_block(self, source: Source, block: bytes, count: int) -> bool:
        """Buffer a block if it continues what is here; a copy or a stray is dropped."""
        end = source.first_offset + count
        if not source.first_offset <= self.next_offset < end or self.gap is not None or self.damaged is not None:
            return False
        self._blocks.append((source, block, count))
        self.buffered_bytes += len(block)
        self.next_offset = end
        self._received_append, self._received_start = source.append_number, source.start_id
        return True

    def on_part(self, low: int, end: int, through: int, damaged: Span | None) -> bool:
        """What the broker says of this topic besides its blocks; say whether it is news that a get may wait for."""
        is_news = through > self.through
        self.end = max(self.end, end)
        if low > self.next_offset:
            self.gap = Span(self.next_offset, low)
        if damaged is not None and damaged.end > self.next_offset >= damaged.first:
            self.damaged = Span(self.next_offset, damaged.end), "the broker cannot read it; its log says why"
        self.through = max(self.through, through)
        return is_news or self.gap is not None or self.damaged is not None

    def drop_buffer(self) -> None:
        """Forget what was prefetched and start over behind what was handed out."""
        self._messages = []
        self._blocks.clear()
        self.buffered_bytes = 0
        self.next_offset = self.given
        self._received_append, self._received_start = self.slot.append_number, self.slot.start_id

    def set_back(self, place: int, bookmark: tuple[bytes, int]) -> None:
        """Go on at `place`, as if nothing had been handed out since; for places that are kept elsewhere (client/feeds.py)."""
        slot = self.slot
        slot.finished = slot.handed = self.given = place
        slot.start_id, slot.append_number = bookmark
        self.gap = self.damaged = None
        self.drop_buffer()

    # --- to the application --------------------------------------------------------------------------

    def head(self) -> int | None:
        """The append number of the next message, or None if nothing is buffered."""
        index = self.given - self._first
        if 0 <= index < len(self._messages):
            return self._messages[index].source.append_number
        return self._blocks[0][0].append_number if self._blocks else None

    def raise_if_blocked(self) -> None:
        """Tell what stands before the next message. Whoever tells the application of a gap then calls `pass_over`."""
        if self.doubt is not None:
            raise InDoubt(self.topic, *self.doubt)
        if self.head() is not None:
            return
        if self.damaged is not None:
            raise Damaged(self.topic, *self.damaged[0], self.damaged[1])
        if self.gap is not None:
            self.finish()  # The call that meets the gap finishes what was handed out before it.
            raise Gap(self.topic, *self.gap)

    def pass_over(self, gap: Span) -> None:
        """A gap was told: the next call goes on behind it, and finishes it."""
        if gap.end <= self.given:
            return  # Two tasks were told, and one of them has gone on meanwhile: what it was given must not come again.
        self.gap = None
        self.next_offset = gap.end
        self.given = gap.end

    def has_message(self) -> bool:
        """Whether `take` will return something; slices the next block when the last one is used up."""
        if self._reach(self.given):
            return True
        self.drop_buffer()  # Whatever is left in it does not continue what the application has: it is asked for again.
        return False

    def _reach(self, at: int) -> bool:
        """Have the message at that offset sliced, if it is buffered."""
        if 0 <= at - self._first < len(self._messages):
            return True
        while self._blocks and self._blocks[0][0].first_offset <= at:
            if self._slice_next(at):
                return True
        return False

    def _slice_next(self, at: int) -> bool:
        source, block, count = self._blocks[0]
        if source.first_offset + count > at:
            try:
                messages = messages_of(block, source, skip=at - source.first_offset)
            except BadBlock as problem:
                self._damage(at, source.first_offset + count, problem)
                return False
            self._messages = []  # Never messages with another's first offset, whatever interrupts us between the lines.
            self._first = at
            self._messages = messages
        self._blocks.popleft()
        self.buffered_bytes -= len(block)
        return 0 <= at - self._first < len(self._messages)

    def _damage(self, at: int, end: int, problem: BadBlock) -> None:
        """A block up to `end` is damaged. Its record says so, which is checked: of a damaged block not even the count is."""
        self.drop_buffer()
        self.damaged = Span(at, end), str(problem)

    def take(self) -> Message:
        """Return the next message, which finishes the one before. The caller writes the slot, then moves `given`."""
        slot, offset = self.slot, self.given
        message = self._messages[offset - self._first]
        slot.finished = offset
        slot.handed = offset + 1
        self.mark(message.source)
        return message

    def mark(self, source: Source) -> None:
        """Move the bookmark, both halves at once: one of another start than the other would be no place at all."""
        slot = self.slot
        slot.append_number = source.append_number
        if slot.start_id != source.start_id:
            slot.start_id = source.start_id
            slot.freeze()

    def take_ready(self) -> Message | None:
        """The same on the fast path: None where anything but handing out is due (slicing, reserving, telling)."""
        offset, messages, slot = self.given, self._messages, self.slot
        index = offset - self._first
        # The first of a block moves the whole bookmark: not here.
        if not 0 < index < len(messages) or offset >= slot.reserved:
            return None
        message = messages[index]
        slot.finished = offset
        slot.handed = offset + 1
        slot.append_number = message.source.append_number
        return message

    def take_many(self, count: int) -> list[Message]:
        """The same for up to `count` messages of what is buffered; they finish everything handed out before."""
        taken: list[Message] = []
        at = self.given
        while len(taken) < count and self._reach(at):
            start = at - self._first
            taken += self._messages[start : start + count - len(taken)]
            at = self.given + len(taken)
        if taken:
            slot = self.slot
            slot.finished = self.given
            slot.handed = at
            self.mark(taken[-1].source)
        return taken

    def next_block(self) -> Block | None:
        """What is left of the next block, unsliced if it is whole; None if nothing is buffered. Nothing is handed out by this."""
        at = self.given
        if 0 <= at - self._first < len(self._messages):
            return Block.of(self._messages[at - self._first :])
        while self._blocks and self._blocks[0][0].first_offset <= at:
            source, block, count = self._blocks[0]
            if source.first_offset + count > at:
                try:
                    return Block.cut(block, source, at - source.first_offset)
                except BadBlock as problem:
                    self._damage(at, source.first_offset + count, problem)
                    return None
            self._blocks.popleft()
            self.buffered_bytes -= len(block)
        self.drop_buffer()
        return None

    def ready_block(self) -> Block | None:
        """The same on the fast path: None where anything but handing out is due (fetching, reserving, telling)."""
        blocks, at = self._blocks, self.given
        if len(blocks) < 2 or self.doubt is not None:
            return None  # The first one was handed out last.
        source, block, count = blocks[0]
        if source.first_offset + count == at:
            blocks.popleft()
            self.buffered_bytes -= len(block)
            source, block, count = blocks[0]
        if source.first_offset != at or at + count > self.slot.reserved:
            return None
        try:
            return Block.cut(block, source, 0)
        except BadBlock:
            return None  # The long way tells it.

    def take_block(self, block: Block) -> None:
        """Hand out what `next_block` returned: all before is finished. The caller writes the slot, then moves `given`."""
        slot = self.slot
        slot.finished = self.given
        slot.handed = block.end_offset
        self.mark(block.source)

    def needs_reserve(self, count: int = 1) -> bool:
        """Whether handing out `count` messages would pass what is reserved, and synced."""
        return self.given + count > self.slot.reserved

    def reserve(self, count: int = 1, calls: int = RESERVE_AHEAD_CALLS) -> None:
        """Raise the reservation for so many calls like this one; the caller syncs the slot before it hands anything out."""
        self.slot.reserved = self.given + max(RESERVE_AHEAD_MESSAGES, calls * count)

    def finish(self) -> bool:
        """Everything the application had, a gap that was told included, is done; say whether that is news for the slot."""
        slot = self.slot
        if self.doubt is not None or slot.finished == slot.handed == self.given:
            return False
        slot.finished = slot.handed = self.given
        slot.reserved = max(slot.reserved, slot.handed)
        return True

    def take_back(self) -> None:
        """What the slot says was handed out, but an exception kept from the application, is not in doubt."""
        self.slot.handed = min(self.slot.handed, max(self.given, self.slot.finished))

# SPDX-License-Identifier: Apache-2.0
"""Messages of a subscription whose place is kept elsewhere: at the broker (receive, transaction) or in a database.

May not: decide that anything is finished. A feed reads ahead and can be set back; whoever owns the place says what counts.
The idea: the machine of get (core/subscriber.py) does the buffering, with a slot in memory that nobody relies on. One request
at a time, because every message of a feed costs a sync somewhere anyway.
Next: client/receiving.py and client/transactions.py for the broker's places, client/effects.py for a database's.
"""

from __future__ import annotations

from oncemq.client.reader import damage_of, offer
from oncemq.client.session import Session
from oncemq.core.packets import NOBODY, Ack, AckDone, Blocks, Get, Want
from oncemq.core.slot import Slot
from oncemq.core.subscriber import Span, Subscriber
from oncemq.core.topics import DATABASE
from oncemq.errors import Damaged, Diverged, Gap, Refused
from oncemq.journal.codec import BadRecord, decode_delivery
from oncemq.limits import GET_BYTES, GET_PARK_MS
from oncemq.model.message import Message
from oncemq.model.refusals import Code

Bookmark = tuple[bytes, int]
"""Start id and append number of the last message consumed."""
NO_BOOKMARK: Bookmark = (NOBODY, 0)


class Feed:
    """One subscription, read from a place that the caller keeps."""

    def __init__(self, session: Session, held: Subscriber, authority: str, *, place: int, bookmark: Bookmark) -> None:
        self._session = session
        self._held = held
        self.authority = authority
        self.info = info = held.info
        self.done = info.cursor
        """What is finished; of a database the broker is told with every request."""
        self.confirmed = info.cursor
        """What the broker, if it keeps the place, has answered to be finished."""
        self._start_id = session.welcome.start_id if session.welcome is not None else NOBODY
        """The start of the broker that is known to have what is finished."""
        self.given_before = 0
        """Offsets below this one were given in an earlier attempt too."""
        self.is_ours = False
        """Whether this process has claimed the row in a database."""
        self._passed: list[Span] = []
        """Gaps that were told, and damage that is not to be waited for: whoever goes back before them is not told again."""
        self._damage: Span | None = None
        """The damage that was told last."""
        slot = Slot(info.subscription_id, info.topic_id, place, place, place, bookmark[1], bookmark[0])
        self._subscriber = Subscriber(info, slot)

    @property
    def place(self) -> int:
        """The offset behind everything handed out, gaps that were told included."""
        return self._subscriber.given

    @property
    def bookmark(self) -> Bookmark:
        slot = self._subscriber.slot
        return slot.start_id, slot.append_number

    def set_back(self, place: int, bookmark: Bookmark) -> None:
        """Go on at `place`, whatever was handed out since; behind what was told there."""
        self._subscriber.set_back(self.behind(place), bookmark)

    def settle(self, choice: str) -> None:
        """Resolve the damage that was told last: `skip` goes on behind it, `repeat` asks again, as every call does anyway."""
        damage, self._damage = self._damage, None
        if damage is not None and choice == "skip":
            self._pass(damage)
            self.set_back(self.place, self.bookmark)

    def _pass(self, span: Span) -> None:
        self.forget_passed(self.done)
        self._passed.append(span)

    def untell(self, gap: Gap) -> None:
        """Something kept a gap from the application: whoever goes back before it is told again."""
        self._passed.remove(Span(gap.first, gap.end))

    def forget_passed(self, below: int) -> None:
        """What is finished need not be remembered; should the place go back before it after all, it is told again."""
        self._passed = [span for span in self._passed if span.end > below]

    def behind(self, place: int) -> int:
        """That place, or where what was passed there ends."""
        for span in sorted(self._passed):
            if span.first <= place < span.end:
                place = span.end
        return place

    def next(self, timeout_ms: int | None) -> Message | None:
        """Hand out the next message; None if none came in time. Raises Gap once, Damaged until it is settled."""
        return self.take() if self.wait(timeout_ms) else None

    def take(self) -> Message:
        """Hand out the next message, which must be there."""
        message = self._subscriber.take()
        self._subscriber.given += 1
        if self._damage is not None and self._damage.first <= message.offset:
            self._damage = None  # It was put right: there is nothing to settle any more.
        return message

    def wait(self, timeout_ms: int | None) -> bool:
        """Have a message ready; False if none came in time."""
        subscriber = self._subscriber
        due_ms = None if timeout_ms is None else self._session.clock.now().ticks_ms + timeout_ms
        was_asked = False
        while not subscriber.has_message():
            self._raise_if_blocked()
            left_ms = GET_PARK_MS if due_ms is None else max(0, due_ms - self._session.clock.now().ticks_ms)
            if left_ms == 0 and was_asked:
                return False
            self._ask(min(left_ms, GET_PARK_MS))
            was_asked = True
        return True

    def _raise_if_blocked(self) -> None:
        try:
            self._subscriber.raise_if_blocked()
        except Gap as gap:
            if self._pass_again():
                return
            self._pass(Span(gap.first, gap.end))
            self._subscriber.pass_over(Span(gap.first, gap.end))
            raise
        except Damaged as damage:
            self._subscriber.settle("repeat")  # The next call asks again: it may have been put right.
            if self._pass_again():
                return
            self._damage = Span(damage.first, damage.end)
            raise

    def _pass_again(self) -> bool:
        """Go on behind what was passed here before the place went back; False if what stands here is news."""
        here = self.place
        behind = self.behind(here)
        self._subscriber.pass_over(Span(here, behind))
        return behind > here

    def has_message(self) -> bool:
        """Whether `next` would return at once."""
        return self._subscriber.has_message()

    def _ask(self, wait_ms: int) -> None:
        want = self._subscriber.want()
        # Where the broker keeps the place only an acknowledgement or a commit moves it: one that was set back lost both halves of
        # its last transactions, and a Get that moved its cursor on would leave the other half lost.
        done = self.done if self.authority == DATABASE else 0
        asked = Want(want.subscription_id, want.topic_id, want.offset, done, want.start_id, want.append_number)
        before, self._held.authority = self._held.authority, self.authority
        try:
            packet, body = self._session.get_blocks(Get(self._session.id, (asked,), GET_BYTES, wait_ms, self.authority))
        except Refused as problem:
            if problem.code == Code.WRONG_AUTHORITY:
                self._held.authority = before  # An earlier call has fixed another: get() must not take it for ours.
            self._on_refused(problem)
        else:
            self._check_start(packet.start_id)
            self._absorb(packet, body)

    def _check_start(self, start_id: bytes) -> None:
        """A broker that started anew may have come from a backup, and have forgotten what it had confirmed: ask for its place."""
        if start_id == self._start_id or self.authority == DATABASE:
            return
        info = self.info
        reply = self._session.ask(Ack(self._session.id, info.subscription_id, info.topic_id, 0, self.authority, True))
        if isinstance(reply, AckDone) and reply.cursor < self.confirmed:
            self._session.fail(Diverged("it has forgotten acknowledgements that it had confirmed", reply.cursor))
            self._session.raise_failure()
        self._start_id = start_id

    def _on_refused(self, problem: Refused) -> None:
        if problem.code == Code.BEYOND_END:
            raise Diverged("it ends before the place this subscription had come to") from problem
        if problem.code != Code.STOPPING:  # A broker that stops cleanly is no worse than one that dies: ask its successor.
            raise problem
        self._session.restart(1)

    def _absorb(self, packet: Blocks, body: bytes | memoryview) -> None:
        subscriber, position, through = self._subscriber, 0, packet.through
        try:
            while position < len(body):
                delivered, start, end, position = decode_delivery(body, position)
                through = max(through, delivered.append_number)
                offer(subscriber, delivered, bytes(body[start:end]))
        except BadRecord:
            return  # Bent on the way: it will be asked for again.
        for part in packet.parts:
            subscriber.on_part(part.low, part.end, through, damage_of(part))

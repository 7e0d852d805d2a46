# SPDX-License-Identifier: Apache-2.0
"""The runner of core/subscriber.py: asks for blocks ahead of the application and writes the slot before it hands out.

May not: hand out a message before its slot is written, or tell the broker `done` for what is not finished.
The idea: one Get in flight. An answer that brings blocks sends the next Get at once, so that the broker reads while the
application works; an answer that brings none is followed by a Get that waits at the broker.
Next: core/subscriber.py for the rules, core/slot.py for what survives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from oncemq.client.feeds import Feed
from oncemq.client.reader import damage_of, offer, read_range
from oncemq.client.session import Session
from oncemq.client.state import Place
from oncemq.core.packets import NOBODY, Ack, Blocks, Get, ListTopics, Part, Refused, SubscriptionInfo, Topics, Welcome
from oncemq.core.subscriber import Span, Subscriber
from oncemq.core.topics import LOCAL, UNDECIDED
from oncemq.crashpoints import reach
from oncemq.errors import Diverged, Gap, NotSubscribed, OnceMQError, UsageError, WrongAuthority
from oncemq.journal.codec import BadRecord, Delivered, decode_delivery
from oncemq.limits import (
    BACKOFF_MS,
    BACKOFF_MS_MAX,
    GET_BYTES,
    GET_PARK_MS,
    GET_WANTS_MAX,
    REQUEST_TIMEOUT_MS,
    REQUEST_TRIES,
    RESERVE_AHEAD_CALLS,
)
from oncemq.model.message import Message
from oncemq.model.refusals import TEXTS, Code, to_error

IN_DOUBT_CHOICES = ("raise", "repeat", "skip")


@dataclass(slots=True)
class Held:
    """A subscription with the place its slot is written to."""

    subscriber: Subscriber
    place: Place
    begin: int
    """What was finished when it was taken up."""
    feed: Feed | None = None
    """Where it is read from if its place is kept elsewhere."""

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was handed out or finished since, so that the slot says what it said before."""
        slot = self.subscriber.slot
        return self.begin == slot.finished == slot.handed == slot.reserved

    @property
    def is_local(self) -> bool:
        """Whether get() and listen() may consume it, so that the slot is their place and no count of attempts."""
        return self.subscriber.authority in {LOCAL, UNDECIDED}


class Gets:
    def __init__(self, session: Session, *, in_doubt: str, bytes_max: int = GET_BYTES) -> None:
        self._session = session
        self.alone = session.alone
        self._in_doubt = in_doubt
        self._bytes_max = bytes_max
        self.held: dict[str, Held] = {}
        self._by_topic_id: dict[int, Subscriber] = {}
        self.clock = session.clock
        self.request = 0
        """The Get in flight; 0: none."""
        self.asked: tuple[Subscriber, ...] = ()
        self._is_prefetch = False
        self._parked_until_ms = 0
        """Until when the broker may keep the Get in flight."""
        self._answers = 0
        self.brought_something = False
        """Whether the last answer moved anything: one that did not must not be asked for again at once."""
        self.problem: OnceMQError | None = None
        self._last_any: tuple[Held, int] | None = None
        """Where the last get over all topics handed something out, and how far the application then was."""
        self._ended = NOBODY, 0
        """The bookmark of the newest message of a subscription that was ended: a broker without it was set back."""
        self.on_answer: Callable[[int, Blocks], None] = lambda _request, _packet: None
        """Called with every answer to a Get, after its blocks were taken."""
        self.on_other_refusal: Callable[[int, Refused], bool] = lambda _request, _packet: False
        session.on_blocks = self._on_blocks
        session.on_get_refused = self._on_refused
        session.on_failure = self._on_failure

    # --- subscriptions ---------------------------------------------------------------------------------

    def on_welcome(self, welcome: Welcome) -> None:
        """Take up every subscription where its slot says, and work out what is in doubt."""
        ids = [info.subscription_id for info in welcome.subscriptions]
        self._session.state.keep_slots(ids, newest=not welcome.taken_over)
        for info in welcome.subscriptions:
            self.add(info, taken_over=welcome.taken_over, was_here=self._session.state.is_durable)

    def add(self, info: SubscriptionInfo, *, taken_over: bool = False, was_here: bool = False) -> Subscriber:
        """Take up a subscription; one that `was_here` before and was consumed has left a slot."""
        self.close_place(info.topic)
        slot, place, is_os_crash = self._session.state.open_slot(info)
        is_lost = was_here and info.authority == LOCAL and slot.counter == 0
        slot.session = self._session.id
        if not slot.append_number:
            slot.start_id, slot.append_number = self._ended
        slot.freeze()
        subscriber = Subscriber(info, slot)
        if info.authority in {LOCAL, UNDECIDED}:
            client = self._session.state.identity.client
            subscriber.resume(info, is_os_crash=is_os_crash, taken_over=taken_over, client=client, is_lost=is_lost)
        elif taken_over:
            subscriber.forget_bookmark()
        is_new = slot.counter == 0
        place.write(slot)
        if is_new or taken_over or info.authority not in {LOCAL, UNDECIDED}:
            place.sync()  # Else what a power cut leaves of the old one says the same, or puts more in doubt.
        self.held[info.topic] = Held(subscriber, place, slot.finished)
        self._by_topic_id[info.topic_id] = subscriber
        if subscriber.doubt is not None and self._in_doubt != "raise":
            self.settle(info.topic, self._in_doubt)
        return subscriber

    def close_place(self, topic: str) -> None:
        """Let go of the place of a subscription that is gone or about to be taken up anew."""
        held = self.held.pop(topic, None)
        if held is not None:
            held.place.close()
            self._by_topic_id.pop(held.subscriber.slot.topic_id, None)
            if self._last_any is not None and self._last_any[0] is held:
                self._last_any = None

    def remove(self, topic: str) -> None:
        """Forget a subscription that was ended."""
        held = self.held.get(topic)
        if held is not None and held.subscriber.slot.append_number > self._ended[1]:
            self._ended = held.subscriber.slot.start_id, held.subscriber.slot.append_number
        self.close_place(topic)
        self._session.state.keep_slots([held.subscriber.slot.subscription_id for held in self.held.values()])

    def find(self, topic: str) -> Held:
        self._session.ensure()
        held = self.held.get(topic)
        if held is None:
            raise self._why_not(topic)
        return held

    def local_topics(self) -> list[str]:
        """The topics that get and listen over all subscriptions mean; raises if there are none, or too many."""
        if not self.held:
            raise NotSubscribed(Code.NOT_SUBSCRIBED, TEXTS[Code.NOT_SUBSCRIBED])
        topics = [topic for topic, held in self.held.items() if held.is_local]
        if not 1 <= len(topics) <= GET_WANTS_MAX:
            raise UsageError(
                f"all topics at once need 1 to {GET_WANTS_MAX} subscriptions that get() may consume, not {len(topics)}"
            )
        return topics

    def _why_not(self, topic: str) -> OnceMQError:
        """Not subscribed, or is there no such topic at all? Only the broker knows."""
        reply = self._session.exchange(ListTopics(topic))
        code = Code.NOT_SUBSCRIBED if isinstance(reply, Topics) and reply.topics else Code.NO_SUCH_TOPIC
        return to_error(code, TEXTS[code])

    # --- handing out -----------------------------------------------------------------------------------

    # Whoever hands a message on to the application then moves `given` (core/subscriber.py): the last thing that happens.

    def get(self, topic: str, timeout_ms: int | None) -> tuple[Subscriber, Message] | None:
        """Take the next message of a topic, which finishes the one before; None if none came in time."""
        held = self.find(topic)
        if not held.subscriber.has_message():
            self.finish(held)
        if not self._wait((held,), timeout_ms, held.subscriber.has_message):
            return None
        return self.hand_out(held)

    def get_many(self, topic: str, count: int, timeout_ms: int | None) -> tuple[Subscriber, list[Message]] | None:
        """Take up to `count` messages as soon as there is at least one."""
        held = self.find(topic)
        subscriber = held.subscriber
        if not subscriber.has_message():
            self.finish(held)
        if not self._wait((held,), timeout_ms, subscriber.has_message):
            return None
        if subscriber.needs_reserve(count):
            self.reserve(held, count)
        messages = subscriber.take_many(count)
        reach("client.before_hand_over")
        held.place.write(subscriber.slot)
        reach("client.after_hand_over")
        self.prefetch(subscriber)
        return subscriber, messages

    def get_any(self, timeout_ms: int | None) -> tuple[Subscriber, Message] | None:
        """Take the oldest unread message over all subscriptions; finishes what the last such call handed out."""
        self._session.ensure()
        held = tuple(self.held[topic] for topic in self.local_topics())
        if self._oldest(held) is None:
            self._finish_last_any()
        try:
            if not self._wait(held, timeout_ms, lambda: self._oldest(held) is not None):
                return None
        except Gap as gap:
            self._last_any = self.held[gap.topic], gap.end  # Handed out like a message, so the next such call finishes it.
            raise
        chosen = self._oldest(held)
        if chosen is None or not chosen.subscriber.has_message():
            return self.get_any(timeout_ms)  # Its block was damaged; the next look tells so.
        taken = self.hand_out(chosen)
        # The new hand-over is written first: between the two a crash leaves both in doubt, never neither.
        if self._last_any is not None and self._last_any[0] is not chosen:
            self._finish_last_any()
        self._last_any = chosen, chosen.subscriber.slot.handed
        return taken

    def _finish_last_any(self) -> None:
        """Finish what the last get over all topics handed out; what a get of one topic handed out since is not ours to finish."""
        if self._last_any is not None and self._last_any[0].subscriber.given == self._last_any[1]:
            self.finish(self._last_any[0])

    def pass_over(self, gap: Gap) -> None:
        """The application is being told of a gap: the next call goes on behind it."""
        held = self.held.get(gap.topic)
        if held is not None:
            held.subscriber.pass_over(Span(gap.first, gap.end))

    def hand_out(self, held: Held) -> tuple[Subscriber, Message]:
        subscriber = held.subscriber
        if subscriber.needs_reserve():
            self.reserve(held, 1)
        message = subscriber.take()
        reach("client.before_hand_over")
        held.place.write(subscriber.slot)
        reach("client.after_hand_over")
        self.prefetch(subscriber)
        return subscriber, message

    def reserve(self, held: Held, count: int, calls: int = RESERVE_AHEAD_CALLS) -> None:
        """Raise the reservation and sync it, before anything beyond it is handed out (R8)."""
        slot = held.subscriber.slot
        before = slot.reserved
        held.subscriber.reserve(count, calls)
        held.place.write(slot)
        try:
            held.place.sync()
        except BaseException:
            slot.reserved = before  # Not synced, so nothing may be handed out on the strength of it.
            raise

    @staticmethod
    def _oldest(held: Sequence[Held]) -> Held | None:
        """The subscription whose next message is the oldest; None while one without a message may have an older."""
        heads = [(head, entry) for entry in held if (head := entry.subscriber.head()) is not None]
        if not heads:
            return None
        oldest, chosen = min(heads, key=lambda pair: pair[0])
        waiting = [entry.subscriber for entry in held if entry.subscriber.head() is None]
        return chosen if all(subscriber.through >= oldest for subscriber in waiting) else None

    # --- asking ----------------------------------------------------------------------------------------

    def _wait(self, held: Sequence[Held], timeout_ms: int | None, is_ready: Callable[[], bool]) -> bool:
        """Have `is_ready` come true within that time. Raises what stands in the way, or BrokerUnreachable."""
        clock = self._session.clock
        started_ms = clock.now().ticks_ms
        tries, fruitless, was_answered = 0, 0, False
        while not is_ready():
            self.raise_what_blocks(held)
            asked_ms = clock.now().ticks_ms
            waited_ms = asked_ms - started_ms
            remaining_ms = GET_PARK_MS if timeout_ms is None else max(0, timeout_ms - waited_ms)
            if remaining_ms == 0 and was_answered:
                return False
            wait_ms = min(remaining_ms, GET_PARK_MS)  # Short: a Get that died with its broker is not answered.
            if self.request == 0 or not self._is_served(held, asked_ms + wait_ms):
                self.ask(self.with_others([entry.subscriber for entry in held]), wait_ms)
            is_prefetch, answers = self._is_prefetch, self._answers
            if self._await_answer(wait_ms + (REQUEST_TIMEOUT_MS << tries)):
                if self._answers == answers:
                    continue  # Another call has asked anew, or the connection is a new one: nothing was said yet.
                tries, was_answered = 0, was_answered or not is_prefetch
                is_early = clock.now().ticks_ms - asked_ms < wait_ms and not is_prefetch
                fruitless = fruitless + 1 if is_early and not self.brought_something else 0
                self._back_off(fruitless, remaining_ms)
            elif (tries := tries + 1) >= REQUEST_TRIES or (timeout_ms is not None and remaining_ms <= wait_ms):
                self._session.renew()
                raise self._session.unreachable(started_ms, tries)  # No answer is not the same as no message.
            else:
                self._session.restart(tries)
        return True

    def _is_served(self, held: Sequence[Held], due_ms: int) -> bool:
        """Whether the Get in flight is for these too, and in time: another task, or a cancelled one, may wait for longer.

        One that fetches ahead is answered at once, and is no hindrance.
        """
        is_in_time = self._parked_until_ms <= due_ms
        return self._is_prefetch or (is_in_time and all(entry.subscriber in self.asked for entry in held))

    def with_others(self, wanted: Sequence[Subscriber]) -> list[Subscriber]:
        """What to ask for. On an event loop another call may be waiting already: one Get serves both."""
        others = [
            other for other in self.asked if self.request and other not in wanted and other.slot.topic_id in self._by_topic_id
        ]
        return [*wanted, *others][:GET_WANTS_MAX]

    def _back_off(self, fruitless: int, remaining_ms: int) -> None:
        """After an answer that came at once and brought nothing: a broker in trouble is not helped by a thousand Gets."""
        if fruitless:
            self._session.clock.pause(min(BACKOFF_MS << min(fruitless - 1, 10), BACKOFF_MS_MAX, remaining_ms))

    def raise_what_blocks(self, held: Sequence[Held]) -> None:
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem
        for entry in held:
            try:
                entry.subscriber.raise_if_blocked()
            except Gap as gap:
                self._mark_near(entry, gap.end)
                entry.place.write(entry.subscriber.slot)
                raise

    def ask(self, subscribers: Sequence[Subscriber], wait_ms: int, *, is_prefetch: bool = False) -> None:
        self._is_prefetch = is_prefetch
        wants = tuple(subscriber.want() for subscriber in subscribers)
        self.asked = tuple(subscribers)
        self._parked_until_ms = self._session.clock.now().ticks_ms + wait_ms
        self.request = self._session.send(Get(self._session.id, wants, self._bytes_max, wait_ms))

    def _await_answer(self, timeout_ms: int) -> bool:
        """Receive until the Get in flight is none any more, answered as a rule; False if its time is over."""
        clock = self._session.clock
        request, due_ms = self.request, clock.now().ticks_ms + timeout_ms
        while request and self.request == request:
            remaining_ms = due_ms - clock.now().ticks_ms
            if remaining_ms <= 0:
                return False
            self._session.receive(remaining_ms)
            self._session.raise_failure()
        return True

    def prefetch(self, subscriber: Subscriber) -> None:
        """Ask for more before the buffer is empty; take what has arrived. Never waits."""
        if subscriber.buffered_bytes >= self._bytes_max:
            return
        if self.request:
            self._session.receive(0)
        if self.request == 0 and subscriber.end > subscriber.next_offset and subscriber.gap is None:
            self.ask([subscriber], 0, is_prefetch=True)

    def on_reset(self) -> None:
        self.request = 0

    def _on_failure(self) -> None:
        """This process is out: what was fetched ahead is its successor's to hand out."""
        for held in self.held.values():
            held.subscriber.drop_buffer()

    # --- what arrives ----------------------------------------------------------------------------------

    def _on_blocks(self, request: int, packet: Blocks, body: bytes | memoryview) -> None:
        if request != self.request:
            return  # The answer to a Get that was given up; whatever it brings will be asked for again.
        self.request = 0
        self._answers += 1
        self.brought_something = False
        for asked in self.asked:
            asked.authority = LOCAL  # Whatever it was before: the broker has fixed it with this Get.
        through = packet.through
        got_any = False
        position = 0
        try:
            while position < len(body):
                delivered, start, end, position = decode_delivery(body, position)
                through = max(through, delivered.append_number)
                got_any = self.buffer(delivered, bytes(body[start:end])) or got_any
        except BadRecord:
            return  # Bent on the way: as good as lost, it will be asked for again.
        for part in packet.parts:
            subscriber = self._by_topic_id.get(part.topic_id)
            if subscriber is not None and subscriber.on_part(part.low, part.end, through, damage_of(part)):
                self.brought_something = True
        self.brought_something = self.brought_something or got_any
        self.on_answer(request, packet)
        if got_any and len(self.asked) == 1:
            self.prefetch(self.asked[0])

    def buffer(self, delivered: Delivered, block: bytes) -> bool:
        subscriber = self._by_topic_id.get(delivered.topic_id)
        return subscriber is not None and offer(subscriber, delivered, block)

    def _on_refused(self, request: int, packet: Refused) -> bool:
        if request != self.request:
            return self.on_other_refusal(request, packet)
        self.request = 0
        self._answers += 1
        self.brought_something = packet.code != Code.STOPPING
        if packet.code == Code.BEYOND_END:
            self.problem = Diverged("it ends before the place this client has come to", packet.expected)
        elif packet.code != Code.STOPPING:  # A broker that stops cleanly is no worse than one that dies: ask its successor.
            self.problem = self._session.to_error(packet)
        return True

    # --- finishing -------------------------------------------------------------------------------------

    def ack(self, topic: str) -> None:
        """Everything handed out on this topic is finished; the broker is told."""
        held = self.find(topic)
        if not held.is_local:
            raise WrongAuthority(Code.WRONG_AUTHORITY, TEXTS[Code.WRONG_AUTHORITY])
        self.finish(held)
        self._tell(held.subscriber)

    @staticmethod
    def finish(held: Held) -> None:
        """Whatever was handed out on this topic is finished (R7): by an ack, by the next call even if it brings nothing."""
        slot = held.subscriber.slot
        reserved = slot.reserved
        if held.is_local and held.subscriber.finish():
            held.place.write(slot)
            if slot.reserved > reserved:
                held.place.sync()  # The broker must never be told more than what a power cut leaves here.

    def _tell(self, subscriber: Subscriber) -> None:
        slot = subscriber.slot
        is_ours = subscriber.authority in {LOCAL, UNDECIDED}
        if is_ours and subscriber.told < slot.finished and self._session.welcome is not None:
            subscriber.told = slot.finished
            self._session.send(Ack(self._session.id, slot.subscription_id, slot.topic_id, slot.finished))

    def settle(self, topic: str, choice: str) -> None:
        held = self.find_held(topic)
        if choice not in ("repeat", "skip"):
            raise UsageError(f"settle with 'repeat' or 'skip', not {choice!r}")
        if held.feed is not None:
            held.feed.settle(choice)
        held.subscriber.settle(choice)
        if choice == "skip" and held.is_local:
            self._mark_near(held, held.subscriber.given - 1, held.subscriber.given)
        held.place.write(held.subscriber.slot)
        held.place.sync()
        self.request = 0

    def _mark_near(self, held: Held, *offsets: int) -> None:
        """Move the bookmark to a message at the place that was jumped to, so that a broker set back to before it is noticed."""
        slot = held.subscriber.slot
        for offset in offsets:
            with suppress(OnceMQError):
                for message in read_range(self._session, held.subscriber.topic, offset, offset + 1, topic_id=slot.topic_id):
                    held.subscriber.mark(message.source)
                    return

    def find_held(self, topic: str) -> Held:
        held = self.held.get(topic)
        return held if held is not None else self.find(topic)

    def in_doubt(self, topic: str) -> list[Message]:
        """Read what is in doubt from the broker, without handing it out."""
        held = self.find(topic)
        doubt = held.subscriber.doubt
        if doubt is None:
            return []
        return list(read_range(self._session, topic, *doubt, topic_id=held.subscriber.slot.topic_id))

    def finish_all(self) -> None:
        """The application left without an exception: whatever was handed out is finished."""
        for held in self.held.values():
            if held.is_local:
                self.finish(held)

    def close(self) -> None:
        """Tell the broker how far things are, mark every slot clean, and sync it."""
        for held in self.held.values():
            slot = held.subscriber.slot
            if held.is_local:
                held.subscriber.take_back()
            self._tell(held.subscriber)
            slot.is_clean = True
            slot.freeze()
            held.place.write(slot)
            if not held.is_untouched:
                held.place.sync()
            held.place.close()
        self.held.clear()


def _damage(part: Part) -> Span | None:
    return Span(part.damaged_first, part.damaged_end) if part.damaged_end else None

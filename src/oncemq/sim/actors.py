# SPDX-License-Identifier: Apache-2.0
"""Applications in a simulated world: a publisher and a subscriber that go on after every death, and write down what they saw.

May not: know what the product promises. They use the public client and record its answers, nothing more.
The idea: an actor has many lives. What it has done so far is the harness's memory, not the process's;
everything the process knew is in its state directory, as for a real program that is started again.
Next: sim/swarm.py, which lets them live and die; sim/checkers.py, which reads what they wrote.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from itertools import product
from random import Random
from typing import Any, Protocol

from oncemq.client.client import Client
from oncemq.errors import (
    BrokerFull,
    BrokerUnreachable,
    Damaged,
    Diverged,
    Gap,
    InDoubt,
    NoSuchTopic,
    NotSubscribed,
    OnceMQError,
    PutPending,
    Refused,
    StateLost,
)
from oncemq.limits import RESERVE_AHEAD_CALLS, RESERVE_AHEAD_MESSAGES
from oncemq.model.message import Message
from oncemq.sim.asking import Asking, Get
from oncemq.sim.disk import SimDisk
from oncemq.sim.history import Event, History
from oncemq.sim.scheduler import Process
from oncemq.sim.world import World

AWAY = (BrokerUnreachable, BrokerFull)
"""What an application waits out."""
PADDING = b"."
"""What makes a message larger, behind its name."""
TOLD = (InDoubt, Gap, Damaged, *AWAY)
"""What a get may say instead of handing out a message."""


class Actor(Protocol):
    """Somebody with many lives."""

    name: str
    life: int
    lives: dict[Process, int]
    welcomed_life: int
    is_done: bool
    os_crashes: int
    process: Process | None

    def live(self) -> None: ...


class Base(ABC):
    """What publishers and subscribers share."""

    def __init__(self, world: World, history: History, name: str, random: Random, *, batch_max: int) -> None:
        self.world = world
        self.history = history
        self.name = name
        self.random = random
        self.batch_max = batch_max
        """Messages it asks for, or puts, at once."""
        self.life = 0
        self.lives: dict[Process, int] = {}
        """Which life a process is: after a takeover two of them run at once."""
        self.welcomed_life = 0
        """The last life a broker welcomed."""
        self.is_done = False
        self.os_crashes = 0
        self.takeover = False
        self.takeovers = 0
        self.process: Process | None = None
        self.asking = Asking(name, world.scheduler, self.note)

    def live(self) -> None:
        """Live until done, dead, or told something that a process cannot go on with."""
        try:
            self._live()
        except (Diverged, StateLost, Refused) as told:
            self._on_told(told)
        finally:
            self.asking.end()

    @abstractmethod
    def _live(self) -> None: ...

    def _on_told(self, told: OnceMQError) -> None:
        """Do what the errors say: begin anew with a new directory, or take over aloud. The next life does it."""
        self.note("ok", "told", name=type(told).__name__)
        if self.world.scheduler.running is not self.process or not isinstance(told, Diverged | StateLost):
            return  # Somebody newer lives already; or a new session will show what is the matter.
        self.takeover = True
        self.takeovers += 1
        if isinstance(told, Diverged) or self.random.random() < 0.5:
            self.note("ok", "anew")
            self.world.adopt_disk(self.name, SimDisk(self.world.scheduler.seed))

    def note(self, kind: str, operation: str, **fields: str | int | bool | None) -> None:
        scheduler = self.world.scheduler
        life = self.lives.get(scheduler.running, self.life)  # type: ignore[arg-type]
        self.history.add(scheduler.time_us, self.name, life, kind, operation, fields)

    def connect(self) -> Client:
        """Connect, however often it takes."""
        self.note("invoke", "welcome")
        disk = self.world.client_disk(self.name)  # A successor may get another one while this process still tries.
        while True:
            # It is the newest process that was told to; an older one that still tries has no business to take over from it.
            takeover = self.takeover and self.world.scheduler.running is self.process
            try:
                with self.asking.call():
                    client = self.world.connect(self.name, disk=disk, takeover=takeover)
            except AWAY:
                self.world.clock.pause(self.random.randrange(50, 500))
            else:
                if takeover:
                    self.note("ok", "start_over", subscription=self.name)
                    self.takeover = False
                self.note("ok", "welcome")
                running = self.world.scheduler.running
                self.welcomed_life = self.lives.get(running, self.life) if running is not None else self.life
                return client


class Publisher(Base):
    """Puts numbered messages, one by one and in bulk, until all have been tried, and waits until all are confirmed."""

    def __init__(self, *place: Any, topics: list[str], count: int, batch_max: int, padding_bytes: int = 0) -> None:
        super().__init__(*place, batch_max=batch_max)
        self._topics = topics
        self._count = count
        self._padding = PADDING * padding_bytes
        self._next = 0
        self.life_taken_over = False
        """Once is enough: of two successors that both take over, either may be the last to be heard."""
        self.may_begin = False
        """Set once every topic has a subscriber: until then a put is rightly not stored."""

    def _live(self) -> None:
        """Put until all is put. A newer process of this id may take over meanwhile: then that one goes on."""
        self._publish(self.connect())

    def _publish(self, client: Client) -> None:
        while not self.may_begin:
            self.world.clock.pause(10)
        while self._next < self._count:
            try:
                self._act(client)
            except AWAY:
                self.world.clock.pause(200)
        while client.pending:
            try:
                with self.asking.call():
                    client.flush()
            except PutPending:
                continue
        client.close()
        self.is_done = True

    def _act(self, client: Client) -> None:
        match self.random.randrange(5):
            case 0 | 1:
                self._put_one(client)
            case 2:
                self._put_many(client)
            case 3:
                self._put_without_waiting(client)
            case _:
                self._put_to_several(client)

    def _messages(self, count: int) -> list[str]:
        first = self._next
        self._next = min(self._next + count, self._count)
        return [f"{self.name}-{number}" for number in range(first, self._next)]

    def _value(self, message: str) -> bytes:
        return message.encode() + self._padding

    def _invoke(self, messages: list[str]) -> None:
        for message in messages:
            self.note("invoke", "put", message=message)

    def _keep(self, messages: Iterable[str], *topics: str) -> None:
        for message, topic in product(messages, topics):
            self.note("ok", "kept", message=message, topic_id=self.world.topic_ids.get(topic))

    def _put_one(self, client: Client) -> None:
        messages, topic = self._messages(1), self.random.choice(self._topics)
        self._invoke(messages)
        try:
            with self.asking.call():
                receipt = client.put(topic, self._value(messages[0]))
        except PutPending:
            self._keep(messages, topic)
            return
        self._confirm(messages[0], receipt.topic_id, receipt.offset, stored=receipt.stored, duplicate=receipt.duplicate)

    def _confirm(self, message: str, topic_id: int, offset: int | None, *, stored: bool, duplicate: bool) -> None:
        self.note("ok", "put", message=message, topic_id=str(topic_id), offset=offset, stored=stored, duplicate=duplicate)
        if stored:
            self.note("ok", "kept", message=message, topic_id=str(topic_id))

    def _put_many(self, client: Client) -> None:
        topic, size = self.random.choice(self._topics), self.random.randrange(1, self.batch_max)
        messages = self._messages(size)
        self._invoke(messages)
        try:
            with self.asking.call():
                receipts = client.put_many(topic, [self._value(message) for message in messages])
        except PutPending:
            self._keep(messages, topic)
            return
        for message, receipt in zip(messages, receipts, strict=True):
            self._confirm(message, receipt.topic_id, receipt.offset, stored=receipt.stored, duplicate=receipt.duplicate)

    def _put_without_waiting(self, client: Client) -> None:
        messages = self._messages(self.random.randrange(1, self.batch_max))
        self._invoke(messages)
        topics = []
        for message in messages:
            topics.append(self.random.choice(self._topics))
            client.put(topics[-1], self._value(message), wait=False)
        with suppress(PutPending), self.asking.call():  # Kept all the same: told so, and synced.
            client.flush()
        for message, topic in zip(messages, topics, strict=True):
            self._keep([message], topic)

    def _put_to_several(self, client: Client) -> None:
        messages = self._messages(1)
        self._invoke(messages)
        try:
            with self.asking.call():
                receipts = client.put(self._topics, self._value(messages[0]))
        except PutPending:
            self._keep(messages, *self._topics)
            return
        for receipt in receipts:
            self._confirm(messages[0], receipt.topic_id, receipt.offset, stored=receipt.stored, duplicate=receipt.duplicate)


class Subscriber(Base):
    """Gets everything of some topics until the world says that no more will come."""

    RESERVED_CALLS = RESERVE_AHEAD_CALLS
    """How many of its largest calls may be in doubt after an operating-system crash."""

    def __init__(self, *place: Any, topics: list[str], batch_max: int) -> None:
        super().__init__(*place, batch_max=batch_max)
        self._topics = topics
        self._ids: dict[str, int] = {}
        self._sure: dict[str, tuple[int, int]] = {}
        """By topic id: how many deaths with the machine, and takeovers, there had been when it last knew its place for sure."""
        self._handed: dict[str, int] = {}
        """By topic id: behind what it was handed, or told is gone, since it last called. Only the next call finishes that."""
        self.has_subscribed = False
        self.may_end = False

    def _live(self) -> None:
        client = self.connect()
        for topic in self._topics:
            self._subscribe(client, topic)
        self.has_subscribed = True
        while not (self.may_end and self._is_drained(client)):
            try:
                self._act(client)
            except TOLD as told:
                self._take(client, told)
        client.close()
        self.is_done = True

    def _take(self, client: Client, told: OnceMQError) -> None:
        """Do what an application does when a get tells it something instead of a message."""
        match told:
            case InDoubt():
                self._try_to_settle(client, told)
            case Gap(topic=topic, first=first, end=end):
                self.asking.on_found(str(self._ids[topic]), end)
                self.note("ok", "gap", subscription=self.name, topic_id=str(self._ids[topic]), first=first, end=end)
                self._handed[str(self._ids[topic])] = end
            case Damaged():
                self._settle_damage(client, told)
            case _:
                self.world.clock.pause(200)

    def _subscribe(self, client: Client, topic: str, start: str = "earliest") -> None:
        while True:
            try:
                with self.asking.call():
                    info = client.subscribe(topic, start)
            except AWAY:
                continue
            self._ids[topic] = info.topic_id
            self._handed.pop(str(info.topic_id), None)  # What another life was handed, and did not call again, is not finished.
            self.asking.begin(info.topic_id, info.start)
            place: Event = {"subscription": self.name, "topic_id": str(info.topic_id), "start": info.start}
            self.note("ok", "subscribe", **place, subscription_id=str(info.subscription_id), cursor=info.cursor)
            return

    def _act(self, client: Client) -> None:
        match self.random.randrange(3):
            case 0:
                topic = self.random.choice(self._topics)
                self._ask_for([topic], lambda: [client.get(topic, timeout=0.2)], 0.2)
            case 1:
                self._ask_for(self._topics, lambda: [client.get(timeout=0.2)], 0.2)
            case _:
                topic, count = self.random.choice(self._topics), self.random.randrange(1, self.batch_max)
                self._ask_for([topic], lambda: client.get_many(topic, count, timeout=0.2), 0.2)

    def _ask_for(self, topics: list[str], get: Get, timeout_s: float) -> list[Message]:
        """Make a call that asks for these topics, and write down what it brings."""
        self._go_on(*topics)
        found = self.asking.messages((self._ids[topic] for topic in topics), timeout_s, get)
        self._deliver(found)
        return found

    def _go_on(self, *topics: str) -> None:
        """It is about to call again: from now on what it was handed of these topics may be acknowledged, and not before."""
        for topic in topics:
            topic_id = str(self._ids[topic])
            if topic_id in self._handed:
                self.note("ok", "done", subscription=self.name, topic_id=topic_id, end=self._handed.pop(topic_id))

    def _deliver(self, messages: list[Message]) -> None:
        for message in messages:
            topic_id, text = str(message.source.topic_id), message.value.decode()
            self._sure[topic_id] = self.os_crashes, self.takeovers
            self._handed[topic_id] = message.offset + 1
            self.asking.on_found(topic_id, message.offset + 1)
            self.note("ok", "deliver", subscription=self.name, topic_id=topic_id, offset=message.offset, message=text)

    def _settle_damage(self, client: Client, told: Damaged) -> None:
        """Have it put right and try again, or go on without it."""
        span: Event = {"subscription": self.name, "topic_id": str(self._ids[told.topic]), "first": told.first, "end": told.end}
        self.asking.on_found(str(span["topic_id"]), told.first)
        self.note("ok", "damaged", **span)
        if self.random.random() < 0.5:
            self.world.repair()
            client.settle(told.topic, "repeat")
        else:
            self._settle_with(client, told, "skip")
            self.note("ok", "skip", **span)

    def _settle_with(self, client: Client, told: Damaged | InDoubt, choice: str) -> None:
        """Settle. What is skipped may be acknowledged as soon as that begins."""
        topic_id = str(self._ids[told.topic])
        if choice == "skip":
            self.note("ok", "done", subscription=self.name, topic_id=topic_id, end=told.end)
        with self.asking.call():
            client.settle(told.topic, choice)
        self._handed.pop(topic_id, None)

    def _try_to_settle(self, client: Client, doubt: InDoubt) -> None:
        try:
            self._settle(client, doubt)
        except AWAY:
            self.world.clock.pause(200)  # The next get tells it again.

    def _settle(self, client: Client, doubt: InDoubt) -> None:
        topic_id = str(self._ids[doubt.topic])
        span: Event = {"subscription": self.name, "topic_id": topic_id, "first": doubt.first, "end": doubt.end}
        self.asking.on_found(topic_id, doubt.end)
        self.note("ok", "in_doubt", **span, bound=self._most_in_doubt(topic_id, doubt.end))
        # A limit may have cut off what is in doubt, or it cannot be read; get() will tell.
        with suppress(Gap, Damaged), self.asking.call():
            for message in client.in_doubt(doubt.topic):
                self.note("ok", "doubted", topic_id=topic_id, offset=message.offset, message=message.value.decode())
        choice = self.random.choice(["repeat", "skip"])
        self._settle_with(client, doubt, choice)
        self._sure[topic_id] = self.os_crashes, self.takeovers
        self.note("ok", choice, **span)

    def _most_in_doubt(self, topic_id: str, end: int) -> int:
        """How much can be in doubt by what happened since it last knew its place: what it asked for with one call at most.

        After its machine died, what was reserved. Whoever takes over knows nothing: all that is there is in doubt.
        """
        os_crashes, takeovers = self._sure.get(topic_id, (0, 0))
        if self.takeovers > takeovers:
            return end
        if self.os_crashes > os_crashes:
            return RESERVE_AHEAD_MESSAGES + self.RESERVED_CALLS * self.batch_max
        return self.batch_max

    def _is_drained(self, client: Client) -> bool:
        """Whether nothing is left on any topic; says so in the history."""
        try:
            if any(self._has_more(client, topic) for topic in self._topics):
                return False
            with self.asking.call():
                ends = {info.topic_id: info.end for info in client.topics()}
        except TOLD as told:
            self._take(client, told)
            return False
        for topic in self._topics:
            topic_id = self._ids[topic]
            self.note("ok", "drained", subscription=self.name, topic_id=str(topic_id), end=ends.get(topic_id))
        return True

    def _has_more(self, client: Client, topic: str) -> bool:
        return bool(self._ask_for([topic], lambda: [client.get(topic, timeout=0)], 0))


class Wanderer(Subscriber):
    """Subscribes to a topic of its own, puts there, gets some of it, leaves, and comes back: the topic is another each time."""

    def __init__(self, *place: Any, rounds: int, batch_max: int) -> None:
        super().__init__(*place, topics=[f"of-{place[2]}"], batch_max=batch_max)
        self._rounds = rounds
        self._put = 0
        self.has_subscribed = True

    def _live(self) -> None:
        client = self.connect()
        while self._rounds:
            restores = self.world.restores
            self._subscribe(client, self._topics[0], "new")
            last = self._put_some(client)
            if self.random.random() < 0.7:
                self._get_up_to(client, last, restores)
            self._leave(client)
            self._rounds -= 1
        client.close()
        self.is_done = True

    def _put_some(self, client: Client) -> int:
        """Put a few messages that must find a subscriber, and return the offset of the last one."""
        last = -1
        for _ in range(self.random.randrange(1, 6)):
            self._put += 1
            message = f"{self.name}-{self._put}"
            self.note("invoke", "put", message=message)
            try:
                with self.asking.call():
                    receipt = client.put(self._topics[0], message.encode(), strict=True)
            except PutPending:
                self._flush(client)
                continue
            told: Event = {"topic_id": str(receipt.topic_id), "offset": receipt.offset, "stored": receipt.stored}
            self.note("ok", "put", message=message, **told, duplicate=receipt.duplicate)
            last = receipt.offset if receipt.offset is not None else last
        return last

    def _flush(self, client: Client) -> None:
        while client.pending:
            with suppress(PutPending), self.asking.call():
                client.flush()

    def _get_up_to(self, client: Client, last: int, restores: int) -> None:
        """Get until that offset, unless a broker was set back meanwhile: then it may never come."""
        at = -1
        while at < last and self.world.restores == restores:
            try:
                found = self._ask_for(self._topics, lambda: [client.get(self._topics[0], timeout=0.2)], 0.2)
            except TOLD as told:
                self._take(client, told)
                at = max(at, told.end - 1) if isinstance(told, InDoubt | Gap | Damaged) else at
                continue
            at = found[-1].offset if found else at

    def _leave(self, client: Client) -> None:
        is_unknown = False
        lane: Event = {"subscription": self.name, "topic_id": str(self._ids[self._topics[0]])}
        self.note("invoke", "unsubscribe", **lane)
        while True:
            try:
                with self.asking.call():
                    client.unsubscribe(self._topics[0])
            except AWAY:
                is_unknown = True
                continue
            except (NoSuchTopic, NotSubscribed):
                if not is_unknown:  # Else an earlier try did it, and only its answer was lost.
                    raise
            self.note("ok", "unsubscribe", **lane)
            return

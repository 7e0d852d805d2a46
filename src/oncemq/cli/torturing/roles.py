# SPDX-License-Identifier: Apache-2.0
"""The clients of `oncemq torture`, each a process with a state directory that is killed and started again.

May not: know what the product promises. They use the public client and write down its answers, nothing more.
The idea: as in sim/actors.py, but on real disks and sockets. What an application knows after a kill is what it wrote down: a
subscriber settles what is in doubt by looking into its own history, a publisher takes its next number from there.
Run as `python -m oncemq.cli.torturing.roles PART`, a Part as JSON.
Next: recorder.py for the histories, cast.py for who starts these.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec

from oncemq import (
    BrokerFull,
    BrokerUnreachable,
    Client,
    Damaged,
    Gap,
    InDoubt,
    Listener,
    Message,
    OnceMQError,
    PutPending,
    Receipt,
    connect,
)
from oncemq.adapters.crash_hook import install_from_environment
from oncemq.adapters.starter import end_with_starter
from oncemq.cli.torturing.recorder import Recorder, events_of, history_of
from oncemq.sim.history import Event

AWAY = (BrokerUnreachable, BrokerFull)
"""What an application waits out."""
LOAD_OVER, MAY_END = "load-over", "may-end"
"""Files of the run's directory: no more puts; no more messages will come."""
FLEETING = "events"
"""The topic that keeps nothing which everybody has."""
DAMAGED = "told_damaged"
BATCH_MAX = 20
"""Messages put, or asked for, at once: so many can be in doubt after a kill."""
_LARGE_VALUE_BYTES = 20_000
_PAUSE_S = 0.2
_GET_S = 0.2


class Part(msgspec.Struct, frozen=True):
    """Who a process is in this life."""

    role: str
    name: str
    life: int
    address: str
    directory: str
    topics: tuple[str, ...]
    seed: str
    pause_ms: int = 0
    database: str = ""


class Application:
    """What publishers and subscribers share."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.directory = Path(part.directory)
        self.random = Random(part.seed)  # noqa: S311 - replayable on purpose
        path = history_of(self.directory, part.name)
        self.recorder = Recorder(path, part.name, part.life)
        self.past = events_of(path)
        """What earlier lives wrote down."""

    def connect(self) -> Client:
        """Connect, however often it takes."""
        while True:
            try:
                client = connect(self.part.address, id=self.part.name, state=self.directory / "states" / self.part.name)
            except AWAY:
                time.sleep(self.random.random() * _PAUSE_S)
            else:
                self.recorder.note("ok", "welcome")
                return client

    def is_told(self, word: str) -> bool:
        """Whether the run has come to a point."""
        return (self.directory / word).exists()


def flush_all(client: Client) -> None:
    """Have everything confirmed, however often it takes."""
    while client.pending:
        with suppress(PutPending):
            client.flush()


# --- publisher ------------------------------------------------------------------------------------------


class Publisher(Application):
    """Puts numbered messages, one by one and in bulk, until the load is over, and waits until all are confirmed."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._next = sum(event["op"] == "put" and event["kind"] == "invoke" for event in self.past)

    def live(self) -> None:
        client = self.connect()
        while not self.is_told(LOAD_OVER):
            with suppress(*AWAY):
                self.act(client)
            time.sleep(self.random.random() * self.part.pause_ms / 1000)
        flush_all(client)
        client.close()

    def act(self, client: Client) -> None:
        """Put something, one way or another."""
        match self.random.randrange(5):
            case 0 | 1:
                self._put_one(client, self._new(1)[0])
            case 2:
                self._put_many(client, self._new(self.random.randrange(1, BATCH_MAX)))
            case 3:
                self._put_without_waiting(client, self._new(self.random.randrange(1, BATCH_MAX)))
            case _:
                self._put_to_several(client, self._new(1)[0])

    def _new(self, count: int) -> list[str]:
        """Names for messages that nobody ever put, written down before anything else happens with them."""
        names = [f"{self.part.name}-{self._next + index}" for index in range(count)]
        self._next += count
        self.recorder.note_all("invoke", "put", [{"message": name} for name in names])
        return names

    def _value(self, name: str) -> bytes:
        size_bytes = self.random.choice([0, 100, 100, 400, 400, 2_000])
        if self.random.random() < 0.005:
            size_bytes = _LARGE_VALUE_BYTES
        return name.encode().ljust(size_bytes, b".")

    def _put_one(self, client: Client, name: str) -> None:
        try:
            receipt = client.put(self.random.choice(self.part.topics), self._value(name))
        except PutPending:
            self._keep([name])
        else:
            self._confirm([(name, receipt)])

    def _put_many(self, client: Client, names: list[str]) -> None:
        try:
            receipts = client.put_many(self.random.choice(self.part.topics), list(map(self._value, names)))
        except PutPending:
            self._keep(names)
        else:
            self._confirm(list(zip(names, receipts, strict=True)))

    def _put_without_waiting(self, client: Client, names: list[str]) -> None:
        for name in names:
            client.put(self.random.choice(self.part.topics), self._value(name), wait=False)
        with suppress(PutPending):  # Kept all the same: told so, and synced.
            client.flush()
        self._keep(names)

    def _put_to_several(self, client: Client, name: str) -> None:
        try:
            receipts = client.put(self.part.topics, self._value(name))
        except PutPending:
            self._keep([name])
        else:
            self._confirm([(name, receipt) for receipt in receipts])

    def _confirm(self, confirmed: list[tuple[str, Receipt]]) -> None:
        self.recorder.note_all("ok", "put", [_row_of(name, receipt) for name, receipt in confirmed])
        self._keep([name for name, receipt in confirmed if receipt.stored])

    def _keep(self, names: list[str]) -> None:
        self.recorder.note_all("ok", "kept", [{"message": name} for name in names])


def _row_of(name: str, receipt: Receipt) -> Event:
    place: Event = {"topic_id": str(receipt.topic_id), "offset": receipt.offset}
    return {"message": name, **place, "stored": receipt.stored, "duplicate": receipt.duplicate}


# --- subscriber -----------------------------------------------------------------------------------------


class Subscriber(Application):
    """Gets everything of its topics, one way or another, until no more will come."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._ids: dict[str, str] = {}
        self._listener: Listener[Message] | None = None
        self._listened: Client | None = None
        """Whose listener that is: after damage was told there is another client."""
        delivered = (event for event in self.past if event["op"] == "deliver")
        self._seen = {(str(event["topic_id"]), int(event["offset"] or 0)) for event in delivered}

    def live(self) -> None:
        client = self._begin()
        print("ready", flush=True)
        while True:
            try:
                if self.is_told(MAY_END) and self._is_drained(client):
                    break
                self._act_or_take(client)
            except Damaged as damage:
                client = self._begin_again(client, damage)
        client.close()

    def _act_or_take(self, client: Client) -> None:
        try:
            self._act(client)
        except (InDoubt, Gap, *AWAY) as told:
            self._take(client, told)

    def _begin(self) -> Client:
        client = self.connect()
        for topic in self.part.topics:
            self._subscribe(client, topic)
        return client

    def _begin_again(self, client: Client, damage: Damaged) -> Client:
        """A broker whose disk is just going away cannot read. Real damage is told again, until the run gives up."""
        span: Event = {"topic_id": self._ids[damage.topic], "first": damage.first, "end": damage.end}
        self.recorder.note("ok", "fault", name=DAMAGED, **span)
        client.close()
        time.sleep(_PAUSE_S)
        return self._begin()

    def _subscribe(self, client: Client, topic: str) -> None:
        while True:
            with suppress(*AWAY):
                info = client.subscribe(topic, "earliest")
                self._ids[topic] = str(info.topic_id)
                self.recorder.note("ok", "subscribe", **self._where(topic), start=info.start)
                return

    def _where(self, topic: str) -> Event:
        return {"subscription": self._lane(topic), "topic_id": self._ids[topic]}

    def _lane(self, _topic: str) -> str:
        """What the history calls a subscription: here one for each client and topic."""
        return self.part.name

    def _act(self, client: Client) -> None:
        topic = self.random.choice(self.part.topics)
        match self.random.randrange(5):
            case 0:
                self._deliver([client.get(topic, timeout=_GET_S)])
            case 1:
                self._deliver([client.get(timeout=_GET_S)])
            case 2:
                self._deliver([*client.get_many(topic, self.random.randrange(1, BATCH_MAX), timeout=_GET_S)])
            case _:
                self._hear(client)

    def _hear(self, client: Client) -> None:
        """Listen to everything for a while."""
        if self._listener is None or self._listened != client:
            self._listener, self._listened = client.listen(), client
        for _ in range(self.random.randrange(1, 2 * BATCH_MAX)):
            message = self._listener.next(timeout=_GET_S)
            if message is None:
                return
            self._deliver([message])

    def _deliver(self, messages: list[Message | None]) -> None:
        rows: list[Event] = []
        for message in messages:
            if message is not None:
                self._seen.add((str(message.source.topic_id), message.offset))
                rows.append({"subscription": self._lane(message.topic), **_seen_row(message)})
        self.recorder.note_all("ok", "deliver", rows)

    def _take(self, client: Client, told: OnceMQError) -> None:
        """Do what an application does when a get tells it something instead of a message."""
        match told:
            case InDoubt():
                with suppress(*AWAY):  # The next get tells it again.
                    self._settle(client, told)
            case Gap(topic=topic, first=first, end=end):
                self.recorder.note("ok", "gap", **self._where(topic), first=first, end=end)
            case _:
                time.sleep(self.random.random() * _PAUSE_S)

    def _settle(self, client: Client, doubt: InDoubt) -> None:
        """Skip what is in this application's own history, repeat what is not."""
        span: Event = {**self._where(doubt.topic), "first": doubt.first, "end": doubt.end}
        self.recorder.note("ok", "in_doubt", **span, bound=BATCH_MAX)
        messages = client.in_doubt(doubt.topic)
        self.recorder.note_all("ok", "doubted", map(_seen_row, messages))
        has_seen = all((self._ids[doubt.topic], offset) in self._seen for offset in range(doubt.first, doubt.end))
        choice = "skip" if has_seen else "repeat"
        # Written down first: between the two a kill leaves it in doubt, and the next life comes to the same choice.
        self.recorder.note("ok", choice, **span)
        client.settle(doubt.topic, choice)

    def _is_drained(self, client: Client) -> bool:
        """Whether nothing is left on any topic; says so in the history."""
        topics = self._topics()
        try:
            for topic in topics:
                if (message := client.get(topic, timeout=0)) is not None:
                    self._deliver([message])
                    return False
            ends = {str(info.topic_id): info.end for info in client.topics()}
        except (InDoubt, Gap, *AWAY) as told:
            self._take(client, told)
            return False
        for topic in topics:
            self.recorder.note("ok", "drained", **self._where(topic), end=ends.get(self._ids[topic]))
        return True

    def _topics(self) -> tuple[str, ...]:
        """What it subscribes to."""
        return self.part.topics


def _seen_row(message: Message) -> Event:
    name = message.value.rstrip(b".").decode(errors="replace")
    return {"topic_id": str(message.source.topic_id), "offset": message.offset, "message": name}


def _log_row(message: Message) -> Event:
    place: Event = {"stream": message.source.stream.hex(), "number": message.put_number}
    return {**_seen_row(message), **place, "size_bytes": len(message.value)}


# --- the run's own errands ------------------------------------------------------------------------------


class Librarian(Application):
    """Creates the topics before anybody comes, and reads them whole when everybody is gone."""

    def prepare(self) -> None:
        """All topics but one keep everything; because of that one old segments die as well."""
        with connect(self.part.address) as client:
            for topic in self.part.topics:
                info = client.admin.create_topic(topic, retain="" if topic == FLEETING else "forever")
                terms: Event = {"retain": info.retain, "limit": info.limit, "step_bytes": 0}
                self.recorder.note("ok", "created", topic_id=str(info.topic_id), name=topic, **terms)

    def read(self) -> None:
        """The last word on what is stored."""
        with connect(self.part.address) as client:
            self.recorder.note("ok", "topics", number=len(client.topics()))
            for topic in self.part.topics:
                while not self._has_read(client, topic):
                    pass

    def _has_read(self, client: Client, topic: str) -> bool:
        """Read a topic whole; False if something everybody has was trimmed meanwhile. One that is gone is no news here."""
        info = next(iter(client.admin.topics(topic)), None)
        if info is None:
            return True
        try:
            messages = list(client.read(topic, info.low, info.end))
        except Gap:
            return False
        self.recorder.note_all("ok", "log", map(_log_row, messages))
        limits: Event = {"low": info.low, "end": info.end, "is_limited": bool(info.limit)}
        self.recorder.note("ok", "end", topic_id=str(info.topic_id), **limits)
        return True


def main() -> None:
    end_with_starter()
    install_from_environment()
    part = msgspec.json.decode(sys.argv[1], type=Part)
    match part.role:
        case "publish":
            Publisher(part).live()
        case "subscribe":
            Subscriber(part).live()
        case "prepare":
            Librarian(part).prepare()
        case _:
            Librarian(part).read()


if __name__ == "__main__":
    main()

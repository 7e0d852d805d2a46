# SPDX-License-Identifier: Apache-2.0
"""One script, lived twice: with bad neighbours and without. Nobody may get less or more because of somebody else.

May not: let a neighbour make progress before the others are done: whoever waits for it, waits for ever.
The idea: one publisher puts what the script says, in that order, so what each reader gets can be compared message by message,
with the offsets. Neighbours subscribe to the same topics, and then are slow in every way there is: asleep, dead, deaf, or gone.
The broker dies in both runs, and the line loses. What is left of the logs may differ, what readers got may not.
Next: sim/worker.py, which judges some seeds by this as well; sim/checkers.py for the laws of one run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from random import Random
from typing import TypeVar

from oncemq.client.client import Client
from oncemq.errors import NoSuchTopic, NotSubscribed, OnceMQError, PutPending
from oncemq.model.message import Message
from oncemq.sim.actors import AWAY
from oncemq.sim.network import DELIVER, DROP, Transit, Verdict
from oncemq.sim.scheduler import stream, without_collector
from oncemq.sim.world import World

EVERY = 11
"""Of so many seeds one is also judged by this. Odd, so that both of the twins that share the judging have some."""
TOPICS = ("orders", "payments")
READERS = ("gets", "gets_many", "listens", "receives")
NEIGHBOURS = ("sleeps", "holds", "dies", "is_deaf", "leaves", "hoards")
PATIENCE_US = 120_000_000
"""Readers that are left alone are done within some ten seconds."""
FOREVER_MS = 10**9
LULL_S = 0.5
"""For so long a reader that has all it expects looks whether there is more."""

Result = TypeVar("Result")
Place = tuple[str, int, str]
"""Topic, offset and words of a message."""
Got = dict[str, list[Place]]
"""What each reader got, in order, topic by topic."""
Note = Callable[[Message | None], None]
Take = Callable[[Note], None]
"""Takes something, and has it noted at once: whatever is raised afterwards, it was taken."""


@dataclass(frozen=True, slots=True)
class Script:
    """What happens in both runs."""

    topics: tuple[str, ...]
    puts: tuple[tuple[str, int, int], ...]
    """Where to put, how many messages, and for how long to wait before that, in milliseconds."""
    readers: tuple[str, ...]
    neighbours: tuple[str, ...]
    deaths: tuple[tuple[int, bool], ...]
    """When the broker dies, and whether its machine does."""
    retain: str
    loss: float
    sync_us_max: int

    @property
    def expected(self) -> Counter[str]:
        """How many messages each topic gets."""
        counts: Counter[str] = Counter()
        for topic, count, _ in self.puts:
            counts[topic] += count
        return counts


def draw_script(random: Random) -> Script:
    topics = TOPICS[: random.randrange(1, len(TOPICS) + 1)]
    puts = [(random.choice(topics), random.randrange(1, 12), random.randrange(150)) for _ in range(random.randrange(8, 25))]
    return Script(
        topics=topics,
        puts=tuple(puts),
        readers=tuple(random.choices(READERS, k=random.randrange(1, 3))),
        neighbours=tuple(random.choices(NEIGHBOURS, k=random.randrange(1, 3))),
        deaths=tuple((random.randrange(3_000_000), random.random() < 0.5) for _ in range(random.randrange(3))),
        retain=random.choice(["", "forever"]),
        loss=random.choice([0.0, 0.0, 0.05]),
        sync_us_max=random.choice([0, 300, 5_000]),
    )


def compared(seed: int) -> dict[str, list[str]]:
    """The witnesses of a seed by their law, if it is one that is judged by this."""
    witnesses = [] if seed % EVERY else compare(seed)
    return {"isolation": witnesses} if witnesses else {}


def compare(seed: int) -> list[str]:
    """Live a script with and without its neighbours; return what differs, and what is missing in both."""
    script = draw_script(stream(seed, "isolation"))
    with without_collector():
        alone, among = _Run(seed, script, ()).live(), _Run(seed, script, script.neighbours).live()
    return list(differences(alone, among, script))


def differences(alone: Got, among: Got, script: Script) -> Iterator[str]:
    """What readers got less, or more, or otherwise, because of others."""
    who = ", ".join(f"somebody who {name}" for name in script.neighbours).replace("_", " ")
    for reader, expected in alone.items():
        got, counts = among[reader], Counter(topic for topic, _, _ in expected)
        if got != expected:
            less, more = [place for place in expected if place not in got], [place for place in got if place not in expected]
            yield f"{reader} got {len(got)} messages beside {who}, and {len(expected)} alone; less {less[:3]}, more {more[:3]}"
        elif counts != script.expected:
            yield f"{reader} got {dict(counts)} of {dict(script.expected)}, neighbours or not"
        elif len({words for _, _, words in expected}) < len(expected):
            yield f"{reader} got one message twice and another one never, neighbours or not"


# --- one run ------------------------------------------------------------------------------------------


class _Run:
    """A world in which a script is lived."""

    def __init__(self, seed: int, script: Script, neighbours: tuple[str, ...]) -> None:
        self._script = script
        self._world = World(seed, retain=script.retain)
        self._world.sync_us_max = script.sync_us_max
        self._line = stream(seed, "isolation/line")
        self._readers = {f"{name}{number}": name for number, name in enumerate(script.readers)}
        self._neighbours = {f"{name}{number}": name for number, name in enumerate(neighbours)}
        self._got: Got = {name: [] for name in self._readers}
        self._subscribed: set[str] = set()
        self._done: set[str] = set()

    def live(self) -> Got:
        """Run until every reader has all there is, or nobody gets anything any more."""
        world = self._world
        world.start_broker()
        world.network.rule = self._rule
        for at_us, power_cut in self._script.deaths:
            world.scheduler.after(at_us, partial(self._die, power_cut=power_cut))
        people = self._readers | self._neighbours
        processes = [
            world.spawn(name, partial(self._take_part, name, getattr(self, f"_{kind}"))) for name, kind in people.items()
        ]
        processes.append(world.spawn("publisher", self._publish))
        world.scheduler.run(until=lambda: len(self._done) == len(self._readers), limit_us=PATIENCE_US)
        world.scheduler.end()
        for error in filter(None, (process.error for process in processes)):
            raise error
        return {name: sorted(got, key=lambda place: place[0]) for name, got in self._got.items()}

    def _rule(self, _: Transit) -> Verdict:
        return DROP if self._line.random() < self._script.loss else DELIVER

    def _die(self, *, power_cut: bool) -> None:
        if self._world.is_broker_running:
            (self._world.cut_power if power_cut else self._world.kill_broker)()
            self._world.scheduler.after(100_000, self._world.launch_broker)

    def _take_part(self, name: str, live: Callable[[str, Client], None]) -> None:
        """Connect and subscribe to all topics, however often it takes, and live."""
        client = self._persist(lambda: self._world.connect(name))
        for topic in self._script.topics:
            self._persist(partial(client.subscribe, topic, "earliest"))
        self._subscribed.add(name)
        live(name, client)

    def _persist(self, call: Callable[[], Result]) -> Result:
        while True:
            try:
                return call()
            except AWAY:
                self._world.clock.pause(50)

    def _publish(self) -> None:
        """Put what the script says, once all are there."""
        client = self._persist(lambda: self._world.connect("publisher"))
        self._world.scheduler.wait_until(lambda: self._subscribed == set(self._readers) | set(self._neighbours))
        number = 0
        for topic, count, pause_ms in self._script.puts:
            self._world.clock.pause(pause_ms)
            values = [f"m{number + each}".encode() for each in range(count)]
            number += count
            with suppress(PutPending):
                client.put_many(topic, values)
        while client.pending:
            with suppress(PutPending):
                client.flush()

    # --- readers: they live, and get everything --------------------------------------------------------

    def _read(self, name: str, takes: Sequence[Take]) -> None:
        """Take in turn until there is all that is expected, and then nothing more."""
        got, expected = self._got[name], self._script.expected.total()
        empty = 0
        for take in cycle(takes):
            before = len(got)
            try:
                take(partial(self._note, got))
            except AWAY:
                self._world.clock.pause(50)
                continue
            except OnceMQError as told:
                got.append((self._script.topics[0], -1, f"told: {told}"))
                break
            empty = empty + 1 if len(got) == before else 0
            if len(got) >= expected and empty >= len(takes):
                break
        self._done.add(name)

    @staticmethod
    def _note(got: list[Place], message: Message | None) -> None:
        """Write a message down. One that is given again says so itself: its block was left, and nobody answered."""
        if message is not None:
            place = message.topic, message.offset, message.value.decode()
            if message.attempt == 1 or place not in got:
                got.append(place)

    def _gets(self, name: str, client: Client) -> None:
        self._read(name, [lambda note: note(client.get(timeout=LULL_S))])

    def _gets_many(self, name: str, client: Client) -> None:
        def take(topic: str, note: Note) -> None:
            for message in client.get_many(topic, 10, timeout=LULL_S):
                note(message)

        self._read(name, [partial(take, topic) for topic in self._script.topics])

    def _listens(self, name: str, client: Client) -> None:
        listener = client.listen()
        self._read(name, [lambda note: note(listener.next(timeout=20 * LULL_S))])

    def _receives(self, name: str, client: Client) -> None:
        def take(topic: str, note: Note) -> None:
            with client.receive(topic, timeout=LULL_S) as message:
                note(message)

        self._read(name, [partial(take, topic) for topic in self._script.topics])

    # --- neighbours: slow in every way -----------------------------------------------------------------

    def _sleeps(self, _name: str, _client: Client) -> None:
        """It has subscribed, and never asks for anything."""
        self._world.clock.pause(FOREVER_MS)

    def _holds(self, _name: str, client: Client) -> None:
        """It gets one message, and never finishes it."""
        self._persist(lambda: client.get(timeout=5))
        self._world.clock.pause(FOREVER_MS)

    def _dies(self, _name: str, client: Client) -> None:
        """It gets a few, and its machine dies; and nobody starts it again."""
        self._persist(lambda: client.get_many(self._script.topics[0], 5, timeout=5))
        self._world.crash_client(client, power_cut=True)

    def _is_deaf(self, _name: str, client: Client) -> None:
        """It listens, hears one message, and never another: what is pushed to it piles up."""
        self._persist(lambda: client.listen().next(timeout=5))
        self._world.clock.pause(FOREVER_MS)

    def _leaves(self, _name: str, client: Client) -> None:
        """It comes and goes, and gets something at times."""
        topic = self._script.topics[0]
        while True:
            with suppress(NotSubscribed, NoSuchTopic, *AWAY):
                client.unsubscribe(topic)
            with suppress(OnceMQError):
                client.subscribe(topic, "earliest")
                client.get(topic, timeout=0.1)
            self._world.clock.pause(100)

    def _hoards(self, _name: str, client: Client) -> None:
        """It gets something in a transaction that never ends."""
        with client.transaction() as transaction:
            self._persist(lambda: transaction.get_many(self._script.topics[0], 5, timeout=5))
            self._world.clock.pause(FOREVER_MS)

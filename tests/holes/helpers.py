# SPDX-License-Identifier: Apache-2.0
"""What the tests of holes share: a started world, packets meddled with on their way, deaths at crash points, bare packets.

May not: test anything, or know a rule of the product.
The idea: the broker and the clients are the shipped ones. `meddle` says what becomes of the next packets of one kind,
`Raw` speaks packets no shipped client would send, `crash_at` kills whoever reaches a named instant.
Next: test_puts.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oncemq import crashpoints
from oncemq.client.client import Client
from oncemq.core.packets import NOBODY, Hello, Packet, Put, Subscribe, SubscribeDone, SubscriptionInfo, Welcome
from oncemq.model.block import cut_block
from oncemq.sim.disk import SimDisk
from oncemq.sim.network import DELIVER, TO_BROKER, SimLink, Transit, Verdict
from oncemq.sim.scheduler import Killed, Process
from oncemq.sim.world import World
from oncemq.wire.codec import decode, encode

SECOND_US = 1_000_000
WORLDS: list[World] = []
"""The worlds of the test that runs; conftest.py ends them."""


def started(seed: int = 1, **choices: object) -> World:
    """A world whose broker runs."""
    world = World(seed, **choices)  # type: ignore[arg-type]
    WORLDS.append(world)
    world.start_broker()
    return world


def back_up(world: World) -> SimDisk:
    """A copy of the directory of a broker that was killed for it, and runs again."""
    world.kill_broker()
    copy = world.disk.copy()
    world.start_broker()
    return copy


def restore(world: World, copy: SimDisk) -> None:
    """Have the broker run on an older copy of its directory."""
    world.kill_broker()
    world.disk.set_back(copy)
    world.start_broker()


def values(client: Client, topic: str | None = None) -> list[bytes]:
    """Get until nothing comes."""
    found = []
    while (message := client.get(topic, timeout=0)) is not None:
        found.append(message.value)
    return found


def number(count: int, first: int = 0) -> list[bytes]:
    """Values that can be told apart and counted."""
    return [b"%d" % each for each in range(first, first + count)]


def stored_values(world: World, topic: str) -> list[bytes]:
    """Everything a topic holds, read without consuming anything. Inside `run`."""
    with world.connect() as reader:
        info = reader.admin.topics(topic)[0]
        return [message.value for message in reader.read(topic, info.low, info.end)]


# --- the network ------------------------------------------------------------------------------------


def packet_of(transit: Transit) -> Packet:
    return decode(transit.frames[0])[1]


def meddle(world: World, kind: type[Packet], verdict: Verdict, *, times: int = 1, link: str | None = None) -> None:
    """Let `verdict` fall on the next `times` packets of that kind (of that link); all others go as before."""
    before, left = world.network.rule, times

    def rule(transit: Transit) -> Verdict:
        nonlocal left
        if left and link in {None, transit.link} and isinstance(packet_of(transit), kind):
            left -= 1
            return verdict
        return before(transit)

    world.network.rule = rule


def overhear(world: World, kind: type[Packet]) -> list[Packet]:
    """Return a list that every packet of that kind is noted in as it sets out."""
    before: Callable[[Transit], Verdict] = world.network.rule
    heard: list[Packet] = []

    def rule(transit: Transit) -> Verdict:
        packet = packet_of(transit)
        if isinstance(packet, kind):
            heard.append(packet)
        return before(transit)

    world.network.rule = rule
    return heard


def be_quiet(world: World) -> None:
    """Let every packet go its way again."""
    world.network.rule = lambda _: DELIVER


def record_frames(world: World, kind: type[Packet]) -> list[list[bytes]]:
    """Keep the frames of every packet of that kind on its way to the broker, so that a copy can be sent late."""
    before, kept = world.network.rule, []

    def rule(transit: Transit) -> Verdict:
        if transit.direction == TO_BROKER and isinstance(packet_of(transit), kind):
            kept.append(transit.frames)
        return before(transit)

    world.network.rule = rule
    return kept


class Raw:
    """A link without a client: sends what it is told and returns what comes back. Inside `run`."""

    def __init__(self, world: World, client: str = "raw") -> None:
        self.link = SimLink(world.network, world.scheduler, client)
        self.client = client
        self.session = NOBODY
        self._world = world
        self._request = 0
        self._command = 0

    def ask(self, packet: Packet, block: bytes | None = None, timeout_ms: int = 1000) -> Packet:
        """Send one packet and return its answer."""
        self._request += 1
        frame = encode(self._request, packet)
        return self.replay([frame] if block is None else [frame, block], timeout_ms)

    def replay(self, frames: list[bytes], timeout_ms: int = 1000) -> Packet:
        """Send these frames as they are and return what comes back."""
        self.link.send(frames)
        answer = self.link.receive(timeout_ms)
        assert answer is not None, "no answer"
        return decode(answer[0])[1]

    def hello(self, *, known: tuple[bytes, ...] = (), pending: tuple[bytes, ...] = ()) -> Welcome:
        self.session = self._world.entropy.id16()
        welcome = self.ask(Hello(self.client, self.session, NOBODY, known, (), pending))
        assert isinstance(welcome, Welcome)
        return welcome

    def subscribe(self, topic: str) -> SubscriptionInfo:
        done = self.ask(Subscribe(self.session, self.next_command(), topic))
        assert isinstance(done, SubscribeDone)
        return done.subscription

    def next_command(self) -> int:
        self._command += 1
        return self._command

    def put(self, first: int, topic: str | tuple[str, ...], *found: bytes, strict: bool = False) -> Packet:
        """Put these values as one block that begins with that number, and return the answer."""
        topics = (topic,) if isinstance(topic, str) else topic
        return self.ask(Put(self.session, self.session, first, len(found), topics, strict), block_of(*found))


def block_of(*found: bytes) -> bytes:
    return bytes(cut_block(found, array("q", [0] * len(found))))


# --- deaths -----------------------------------------------------------------------------------------


@contextmanager
def crash_at(point: str, *, after: int = 0) -> Iterator[None]:
    """Kill whoever reaches `point` for the (after+1)-th time, once."""
    left = after

    def hook(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == -1:
                raise Killed()

    crashpoints.install(hook)
    try:
        yield
    finally:
        crashpoints.install(None)


def until_dead(world: World, process: Process) -> None:
    """Let the world go on until that process has ended, and raise what ended it."""
    assert world.scheduler.run(until=lambda: not process.is_running)
    if process.error is not None:
        raise process.error


def die_at(world: World, point: str, body: Callable[[], object], *, after: int = 0) -> None:
    """Run `body` as a process that dies at a crash point of its own."""
    with crash_at(point, after=after):
        until_dead(world, world.spawn("victim", lambda: body() and None))


def until_broker_dies(world: World) -> None:
    assert world.scheduler.run(until=lambda: not world.is_broker_running)

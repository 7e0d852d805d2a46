# SPDX-License-Identifier: Apache-2.0
"""Many tasks on one AsyncClient: they put, get, receive and run transactions, are cancelled at random, and the broker dies.

May not: know how the client does it. It calls what an application calls, and counts what came of it.
The idea: every message is a number. A put that returned, or said that it is kept, is stored once; one that was cancelled or
refused is stored once or not at all. What is got comes once; what is received is not given again after its block was left in
peace; what transactions move has one effect each. `python -m tests.real.tasks --seed 7 --seconds 60` plays longer.
Next: test_async_tasks.py, the short form.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import oncemq
from oncemq.client import gets, puts, session
from oncemq.errors import BrokerUnreachable, NotCommitted, PutPending, Uncertain
from oncemq.limits import REQUEST_TIMEOUT_MS
from tests.real.harness import BrokerProcess

TOPICS = ("got", "received", "moved", "booked")
"""Each is consumed in its own way."""
CANCELLED_SHARE = 0.3
IMPATIENT_MS = 100
"""What a request is given in place of the usual time: some then give up a broker that starts again, others wait for it."""
DRAIN_S = 120.0
TO_BE_SEEN = tuple(f"{work}: {end}" for work in ("put", "get", "receive", "move", "book") for end in ("done", "CancelledError"))
"""What has to happen at least once, however long a busy machine takes for it."""


class Trouble(Exception):
    """What goes wrong in the application itself."""


EXPECTED = (asyncio.CancelledError, BrokerUnreachable, NotCommitted, PutPending, Trouble, Uncertain)


class Turn:
    """Let the event loop go round once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Play:
    """One client, its tasks, and what they saw."""

    def __init__(self, client: oncemq.AsyncClient, books: sqlite3.Connection, chance: random.Random) -> None:
        self.client = client
        self.books = books
        self.chance = chance
        self.is_over = False
        self.most = 5
        """How many messages are taken at once."""
        self.number = 0
        self.due: dict[str, set[bytes]] = {topic: set() for topic in TOPICS}
        """What must be stored once."""
        self.open: dict[str, set[bytes]] = {topic: set() for topic in TOPICS}
        """What may be stored, once."""
        self.got: list[bytes] = []
        self.left: list[bytes] = []
        """What was received in blocks that were left in peace."""
        self.half_left: set[bytes] = set()
        """What was received in blocks whose leaving failed: it may be given again."""
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()
        """How often each kind of work came to an end of each kind."""

    # --- what tasks do ---------------------------------------------------------------------------------

    async def put(self) -> None:
        topic, how = self.chance.choice(TOPICS), self.chance.choice(("wait", "wait", "collect", "many"))
        values = [self._value() for _ in range(self.chance.randrange(1, 6) if how == "many" else 1)]
        try:
            if how == "many":
                await self.client.put_many(topic, values)
            else:
                await self.client.put(topic, values[0], wait=how == "wait")
        except PutPending:
            self.due[topic].update(values)  # Kept.
            raise
        except BaseException:
            self.open[topic].update(values)
            raise
        self.due[topic].update(values)

    def _value(self) -> bytes:
        self.number += 1
        return b"%d" % self.number

    async def get(self) -> None:
        if self.chance.random() < 0.5:
            message = await self.client.get("got", timeout=self.chance.random() / 2)
            found = [] if message is None else [message]
        else:
            found = await self.client.get_many("got", self.chance.randrange(1, self.most), timeout=self.chance.random() / 2)
        self.got.extend(message.value for message in found)
        if self.chance.random() < 0.2:
            await self.client.ack("got")

    async def receive(self) -> None:
        value, is_done = None, False
        try:
            async with self.client.receive("received", timeout=self.chance.random() / 2) as message:
                if message is not None:
                    value = message.value
                    if value in self.left:
                        self.wrong.append(f"{value!r} was received again after its block was left")
                    await self._dawdle()
                is_done = True
        except BaseException:
            if value is not None and is_done:
                self.half_left.add(value)
            raise
        if value is not None:
            self.left.append(value)

    async def move(self) -> None:
        async with self.client.transaction() as transaction:
            for message in await transaction.get_many(
                "moved", self.chance.randrange(1, self.most), timeout=self.chance.random() / 4
            ):
                transaction.put("out", message.value)
            await self._dawdle()
            self._cancel_soon()

    async def book(self) -> None:
        async with self.client.transaction(self.books, durable=False) as transaction:
            message = await transaction.get("booked", timeout=self.chance.random() / 4)
            if message is not None:
                self.books.execute("INSERT INTO effects VALUES (?)", (message.value.decode(),))
            await self._dawdle()

    async def look(self) -> None:
        await self.client.topics()
        await self.client.subscribe(f"beside-{self.chance.randrange(3)}")

    async def _dawdle(self) -> None:
        for _ in range(self.chance.randrange(4)):
            await Turn()
        if self.chance.random() < 0.1:
            raise Trouble

    def _cancel_soon(self) -> None:
        """Now and then, so that it hits what follows: a commit, as a rule."""
        task = asyncio.current_task()
        if task is not None and self.chance.random() < CANCELLED_SHARE:
            asyncio.get_running_loop().call_later(self.chance.random() / 40, task.cancel)

    # --- how they are driven ---------------------------------------------------------------------------

    async def drive(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do one kind of work again and again, and cancel it now and then."""
        while not self.is_over:
            task = asyncio.create_task(work())
            if self.chance.random() < CANCELLED_SHARE:
                await self._let_run(task)
                task.cancel()
            await asyncio.wait((task,))
            self._note(work.__name__, task)

    async def _let_run(self, task: asyncio.Task[None]) -> None:
        if self.chance.random() < 0.5:
            for _ in range(self.chance.randrange(12)):
                await Turn()
        else:
            await asyncio.wait((task,), timeout=self.chance.expovariate(50))

    def _note(self, name: str, task: asyncio.Task[None]) -> None:
        problem = asyncio.CancelledError() if task.cancelled() else task.exception()
        self.seen[f"{name}: {type(problem).__name__ if problem is not None else 'done'}"] += 1
        if problem is not None and not isinstance(problem, EXPECTED):
            self.wrong.append(f"{name} raised {problem!r}")

    async def until_all_was_seen(self) -> None:
        """Go on until everybody came to each kind of end, or the time is over: who asks for it looks."""
        never, due_s = asyncio.Event(), time.monotonic() + DRAIN_S
        while not all(self.seen[each] for each in TO_BE_SEEN) and time.monotonic() < due_s:
            await _wait(never, 0.05)

    async def until_done(self, work: Callable[[], Awaitable[object]]) -> Any:
        """Do something that may be done again until it is through."""
        due_s = time.monotonic() + DRAIN_S
        while True:
            try:
                return await work()
            except (BrokerUnreachable, NotCommitted, PutPending, Uncertain):
                if time.monotonic() > due_s:
                    raise

    # --- what must have come of it ---------------------------------------------------------------------

    async def stored(self, topic: str) -> list[bytes]:
        infos = await self.until_done(lambda: self.client.admin.topics(topic))
        return [message.value async for message in self.client.read(topic, 0, infos[0].end)]

    async def settle(self) -> None:
        """Have everything confirmed, then consumed by whoever can."""
        await self.until_done(self.client.flush)
        stored = {topic: await self.stored(topic) for topic in TOPICS}
        self._judge_puts(stored)
        await self._consume(stored)
        self._judge("got", self.got, stored["got"])
        self._judge("effects", [value.encode() for (value,) in self.books.execute("SELECT value FROM effects")], stored["booked"])
        self._judge("out", await self.stored("out"), stored["moved"])
        lost = set(stored["received"]) - set(self.left) - self.half_left
        self.wrong += [f"{value!r} was never received" for value in sorted(lost)]
        self.wrong += [f"{value!r} was left in peace {count} times" for value, count in Counter(self.left).items() if count > 1]

    def _judge_puts(self, stored: dict[str, list[bytes]]) -> None:
        for topic, values in stored.items():
            counts = Counter(values)
            self.wrong += [f"{value!r} is in {topic} {count} times" for value, count in counts.items() if count > 1]
            self.wrong += [f"{value!r} is not in {topic}" for value in sorted(self.due[topic] - set(values))]
            self.wrong += [f"nobody put {value!r}" for value in sorted(set(values) - self.due[topic] - self.open[topic])]

    async def _consume(self, stored: dict[str, list[bytes]]) -> None:
        """As before, until there is an effect for every message, or the time is over; then once more, when nothing is left."""
        self.chance, self.most = Calm(), 200
        due_s = time.monotonic() + DRAIN_S

        async def moved() -> int:
            return len(await self.stored("out"))

        async def got() -> int:
            return len(self.got)

        async def received() -> int:
            return len({*self.left, *self.half_left})

        async def booked() -> int:
            (count,) = self.books.execute("SELECT COUNT(*) FROM effects").fetchone()
            return int(count)

        ways = {
            "got": (self.get, got),
            "received": (self.receive, received),
            "moved": (self.move, moved),
            "booked": (self.book, booked),
        }
        for topic, (work, count) in ways.items():
            while await count() < len(stored[topic]) and time.monotonic() < due_s:
                await self.until_done(work)
            await self.until_done(work)

    def _judge(self, what: str, found: list[bytes], wanted: list[bytes]) -> None:
        twice = [value for value, count in Counter(found).items() if count > 1]
        self.wrong += [f"{what}: {value!r} came twice" for value in sorted(twice)]
        self.wrong += [f"{what}: {value!r} never came" for value in sorted(set(wanted) - set(found))]
        self.wrong += [f"{what}: {value!r} came out of nowhere" for value in sorted(set(found) - set(wanted))]


class Calm(random.Random):
    """A chance that troubles nobody."""

    def random(self) -> float:
        return 0.6


async def _strike(broker: BrokerProcess, chance: random.Random, seconds: float, deaths: int) -> None:
    """End the broker and start it again, a few times in that time."""
    never = asyncio.Event()
    for _ in range(deaths):
        await _wait(never, chance.uniform(0.5, 1.5) * seconds / (deaths + 1))
        await asyncio.to_thread(chance.choice((broker.kill, broker.kill, broker.stop)))
        await _wait(never, chance.choice((0, 0, 0.3)))
        await asyncio.to_thread(broker.start)
    await _wait(never, seconds / (deaths + 1))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return


def _books(directory: Path) -> sqlite3.Connection:
    books = sqlite3.connect(directory / "books.db", isolation_level=None)
    books.execute("PRAGMA synchronous = OFF")  # Nobody pulls the plug of this one.
    books.execute("CREATE TABLE effects (value TEXT)")
    return books


async def play(directory: Path, broker: BrokerProcess, *, seed: int, seconds: float, deaths: int) -> Play:
    """Play once, settle everything, and return what was seen."""
    chance, books = random.Random(seed), _books(directory)
    try:
        async with await oncemq.connect_async(broker.address, id="tasks", state=directory / "tasks") as client:
            it = Play(client, books, chance)
            for topic in (*TOPICS, "out"):
                await client.admin.create_topic(topic, retain="forever")
            for topic in TOPICS:
                await client.subscribe(topic)
            works = [*[it.put] * 8, *[it.get] * 2, *[it.receive] * 2, *[it.move] * 3, it.book, it.look]
            async with asyncio.timeout(seconds + 4 * DRAIN_S):
                drivers = [asyncio.create_task(it.drive(work)) for work in works]
                await _strike(broker, random.Random(seed), seconds, deaths)
                await it.until_all_was_seen()
                it.is_over = True
                await asyncio.gather(*drivers)
                await it.settle()
    finally:
        books.close()
    return it


def be_impatient(timeout_ms: int) -> None:
    for room in (session, puts, gets):
        room.REQUEST_TIMEOUT_MS = timeout_ms  # type: ignore[attr-defined]


def run(directory: Path, *, seed: int, seconds: float, deaths: int) -> Play:
    broker = BrokerProcess(directory / "broker")
    broker.start()
    be_impatient(IMPATIENT_MS)
    try:
        return asyncio.run(play(directory, broker, seed=seed, seconds=seconds, deaths=deaths))
    finally:
        be_impatient(REQUEST_TIMEOUT_MS)
        broker.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        seen = run(Path(directory), seed=options.seed, seconds=options.seconds, deaths=int(options.seconds / 3))
    for what, count in sorted(seen.seen.items()):
        print(f"{count:7} {what}")
    print(f"seed {options.seed}:", "\n".join(seen.wrong[:50]) or "nothing is wrong")
    raise SystemExit(bool(seen.wrong))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Exceptions out of nowhere (Ctrl-C, a time-out by signal) inside put, get and ack: streams go on and messages come once.

The idea: a trace function raises at the n-th line of the client's own code, for every n there is; then the application goes on
as if nothing had happened. Lines that only return or raise again are left out: no signal handler runs there.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import oncemq
from oncemq.client.client import Client
from oncemq.errors import Gap, NoSubscribers
from oncemq.sim.world import World
from tests.holes.helpers import SECOND_US, number, started, stored_values

PACKAGE = f"{Path(oncemq.__file__).parent}/"
ROOMS = re.compile(r"oncemq/(client/\w+|core/(publisher|subscriber|slot)|journal/outbox)\.py$")
UNINTERRUPTED = re.compile(r"(return( \w+)?|raise( [a-z]+)?|try:|alone\.inside = [a-zA-Z_]+)( *#.*)?$")
"""These alone, with an error that is made already: no call, no loop, so no instant at which Python would run a signal handler."""


class Interrupted(BaseException):
    """What a signal handler might raise."""


class Tracer:
    """Raises at the n-th line, once."""

    lines: dict[str, list[str]] = {}  # noqa: RUF012 - a cache of the sources for all of them

    def __init__(self, left: int) -> None:
        self.left = left
        self.place = ""

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Tracer | None:
        name = frame.f_code.co_filename
        if event == "call":
            return self if ROOMS.search(name) else None
        if event == "line" and not UNINTERRUPTED.match(self._line(name, frame.f_lineno)):
            self.left -= 1
            if self.left == 0:
                self.place = f"{name}:{frame.f_lineno}"
                raise Interrupted
        return self

    def _line(self, name: str, number: int) -> str:
        if name not in self.lines:
            self.lines[name] = Path(name).read_text(encoding="utf-8").splitlines()
        return self.lines[name][number - 1].strip()


@contextmanager
def tracing(tracer: Tracer) -> Iterator[None]:
    """Let it see every line of the block. Whoever was watching before goes on behind it: coverage, a debugger."""
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        yield
    finally:
        sys.settrace(before)


def at_every_line(call: Callable[[], object], *, go_on: Callable[[], object]) -> int:
    """Interrupt `call` at its first line, its second, and so on, and go on after each; return how many there are."""
    interrupted = 0
    while True:
        tracer = Tracer(interrupted + 1)
        try:
            with tracing(tracer):
                call()
        except Interrupted:
            interrupted += 1
        if tracer.left > 0:
            return interrupted
        try:
            go_on()
        except BaseException as problem:
            problem.add_note(f"after an interruption at {tracer.place}")
            raise


def with_subscriber(world: World) -> Client:
    sub = world.connect("sub")
    sub.subscribe("t")
    return sub


class Puts:
    """Puts numbered messages and knows which were confirmed."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.tried = 0
        self.confirmed: list[int] = []

    def next(self) -> bytes:
        self.tried += 1
        return b"%d" % (self.tried - 1)

    def one(self) -> None:
        value = self.next()
        self.client.put("t", value)
        self.confirmed.append(int(value))

    def many(self) -> None:
        values = [self.next() for _ in range(3)]
        self.client.put_many("t", values, keys=values)
        self.confirmed += map(int, values)

    def collected(self) -> None:
        """Without waiting, with a key each; the first is there already when the second is interrupted."""
        value = self.next()
        self.client.put("t", value, key=value, wait=False)
        self.confirmed.append(int(value))

    def collected_and_flushed(self) -> None:
        self.collected()
        self.client.flush()


@pytest.mark.parametrize("how", ["one", "many", "collected", "collected_and_flushed"])
def test_a_put_interrupted_at_any_line_leaves_a_stream_that_goes_on(how: str) -> None:
    """G1, G8: what was confirmed is stored, nothing is stored twice, in order, each with its own key; nothing hangs."""
    world = started()

    def script() -> None:
        with_subscriber(world).close()
        client = world.connect("pub")
        puts = Puts(client)
        points = at_every_line(getattr(puts, how), go_on=puts.one)
        assert points > 25
        client.flush()
        assert client.close() == 0
        with world.connect("pub") as again:
            assert again.pending == 0
            Puts(again).one()
        stored = [int(value) for value in stored_values(world, "t")][:-1]
        assert stored == sorted(set(stored))
        assert set(puts.confirmed) <= set(stored) <= set(range(puts.tried))
        with world.connect() as reader:
            keyed = [message for message in reader.read("t", 0, len(stored)) if message.key is not None]
            assert all(message.key == message.value for message in keyed)

    world.run(script)


def test_a_put_interrupted_at_any_line_and_killed_is_in_the_outbox_once_or_not_at_all() -> None:
    """G1: the next run finds a clean outbox, whatever was half-written."""
    world = started()

    def script() -> None:
        with_subscriber(world).close()
        tried = done = 0
        while True:
            client = world.connect("pub")
            tracer = Tracer(done + 1)
            tried += 1
            try:
                with tracing(tracer):
                    client.put("t", b"%d" % tried)
            except Interrupted:
                done += 9  # Every ninth line will do: each death costs a connect.
            world.crash_client(client)
            with world.connect("pub") as again:
                again.flush()
            if tracer.left > 0:
                break
        stored = [int(value) for value in stored_values(world, "t")]
        assert stored == sorted(set(stored))
        assert stored[-1] == tried

    world.run(script)


@pytest.mark.parametrize("how", ["one", "any", "many", "ack"])
def test_a_get_interrupted_at_any_line_loses_and_repeats_nothing(how: str) -> None:
    """G3: what an interrupted get had not returned comes next."""
    world = started()
    count = 4000

    def script() -> None:
        sub = with_subscriber(world)
        with world.connect("pub") as pub:
            for first in range(0, count, 7):  # Small blocks, so that slicing is interrupted too.
                pub.put_many("t", number(min(7, count - first), first))
        got: list[bytes] = []

        def get(take: Callable[[], Any]) -> None:
            message = take()
            if message is not None:
                got.append(message.value)

        def call() -> None:
            match how:
                case "one":
                    get(lambda: sub.get("t", timeout=0))
                case "any":
                    get(lambda: sub.get(timeout=0))
                case "many":
                    messages = sub.get_many("t", 10, timeout=0)
                    got.extend(message.value for message in messages)
                case "ack":
                    sub.ack("t")
                    get(lambda: sub.get("t", timeout=0))

        for _ in range(9):  # Each time at another place of a block.
            assert at_every_line(call, go_on=lambda: get(lambda: sub.get("t", timeout=0))) > 3
        while (message := sub.get("t", timeout=0)) is not None:
            got.append(message.value)
        assert got == number(count)
        sub.close()
        with world.connect("sub") as again:
            assert again.get("t", timeout=0) is None

    world.run(script)


def test_a_gap_whose_telling_is_interrupted_is_told_next_time() -> None:
    """G8: a gap counts as told when it has reached the application."""
    world = started()

    def script() -> None:
        with world.connect("pub") as pub:
            pub.admin.create_topic("t", limit="1s")
            sub = with_subscriber(world)
            interrupted, told = 0, False
            while not told:
                pub.put_many("t", number(5))
                world.clock.pause(10_000)
                try:
                    with tracing(Tracer(interrupted + 1)):
                        sub.get("t", timeout=0)
                except Interrupted:
                    interrupted += 1
                    with pytest.raises(Gap):
                        sub.get("t", timeout=0)
                except Gap:
                    told = True
                assert sub.get("t", timeout=0) is None
            assert interrupted > 50

    world.run(script, limit_us=36_000 * SECOND_US)


def test_a_refused_put_whose_telling_is_interrupted_is_told_next_time() -> None:
    """G8: it was forgotten before its error was made, so that whoever was interrupted in between never heard of it."""
    world = started()

    def script() -> None:
        with_subscriber(world)
        client = world.connect("pub")
        interrupted, told = 0, False
        while not told:
            client.put("nobody", b"x", strict=True, wait=False)
            client.put("t", b"x")  # Now the other one is refused, and nobody was told.
            try:
                with tracing(Tracer(interrupted + 1)):
                    client.flush()
            except Interrupted:
                interrupted += 1
                with pytest.raises(NoSubscribers):
                    client.flush()
            except NoSubscribers:
                told = True
            assert client.flush() == 0
        assert interrupted > 20

    world.run(script)


def on_alarm(_number: int, frame: FrameType | None) -> None:
    """Raise, but only inside the client: what the test itself is doing then is not the client's business."""
    if frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        raise Interrupted


@pytest.fixture
def alarms() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, on_alarm)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.real
@pytest.mark.usefixtures("alarms")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Raised while a frame is freed: gone, as may be.
def test_a_storm_of_signals_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """The same with real signals, a real broker and a real disk: the handler raises wherever it happens to be called."""
    count, interrupted = 30_000, 0
    got: list[bytes] = []
    with oncemq.Broker(tmp_path / "data") as broker, oncemq.connect(broker.address, id="s", state=tmp_path / "s") as client:
        client.subscribe("t")
        client.put_many("t", number(count))
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
        while len(got) < count:
            try:
                message = client.get("t", timeout=5)
                assert message is not None
                got.append(message.value)
            except Interrupted:
                interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert got == number(count)
    assert interrupted > 10

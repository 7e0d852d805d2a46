# SPDX-License-Identifier: Apache-2.0
"""Time and processes of a simulated world: one heap of events, one greenlet per process, nothing ever waits for real.

May not: know brokers, clients or packets.
The idea: a process is ordinary blocking code. Where it would wait, it switches to the scheduler, which jumps to the next event.
One process runs at a time and events are ordered by (time, number), so a seed gives one history.
A process is killed by raising Killed inside it at the place where it waits, or at a crash point.
Next: sim/network.py, where processes wait for packets.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from random import Random

from greenlet import getcurrent, greenlet

from oncemq.errors import invariant
from oncemq.ports import Instant

WALL_START_US = 1_700_000_000_000_000
"""When every world begins: some day in November 2023."""


def stream(seed: int, name: str) -> Random:
    """A stream of randomness of its own, so that one more draw elsewhere shifts nothing here."""
    return Random(f"{seed}/{name}")


@contextmanager
def without_collector() -> Iterator[None]:
    """Nobody looks for garbage meanwhile: when that happens depends on all that this process ever did, not on the seed.

    And what is found acts once more: the listener of a process that died says on the line that it leaves.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Killed(BaseException):
    """kill -9: not an Exception, so that no handler of the product can catch it."""


class Process:
    """One simulated process: a greenlet with a name, and the reason why it ended."""

    def __init__(self, scheduler: Scheduler, name: str, body: Callable[[], None]) -> None:
        self.name = name
        self.error: BaseException | None = None
        self.is_killed = False
        self._scheduler = scheduler
        self._body = body
        self._greenlet = greenlet(self._run, scheduler.hub)
        self._wake_number = 0

    def _run(self) -> None:
        try:
            self._body()
        except Killed:
            pass
        except BaseException as problem:
            if not self.is_killed:  # What a dead process still stumbles over is nobody's news.
                self.error = problem

    @property
    def is_running(self) -> bool:
        return not self._greenlet.dead

    def resume(self) -> None:
        if not self._greenlet.dead:
            self._scheduler.running = self
            self._greenlet.switch()
            self._scheduler.running = None

    def kill(self) -> None:
        """End it where it stands. Must not be called by itself: raise Killed there."""
        self._wake_number += 1
        self.is_killed = True
        while not self._greenlet.dead:
            self._scheduler.running = self
            with suppress(Killed):  # One that had not begun has nobody else to catch it.
                self._greenlet.throw(Killed())
            self._scheduler.running = None

    def wait(self, duration_us: int | None) -> None:
        """Give way until `wake` or until the time is over."""
        if self.is_killed:
            raise Killed()  # A dead process does not wait; it only unwinds.
        self._wake_number += 1
        if duration_us is not None:
            self._scheduler.after(duration_us, partial(self._timer, self._wake_number))
        self._scheduler.hub.switch()

    def wake(self) -> None:
        """End its wait at the next event."""
        self._scheduler.after(0, partial(self._timer, self._wake_number))

    def _timer(self, number: int) -> None:
        if number == self._wake_number:  # Else it was woken before its time.
            self._wake_number += 1
            self.resume()


class Scheduler:
    """The heap of events, and the clock they move."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.time_us = 0
        self.wall_shift_us = 0
        self.hub = getcurrent()
        self.running: Process | None = None
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._processes: list[Process] = []

    def random(self, name: str) -> Random:
        return stream(self.seed, name)

    def spawn(self, name: str, body: Callable[[], None]) -> Process:
        process = Process(self, name, body)
        self._processes.append(process)
        self.after(0, process.resume)
        return process

    @property
    def events(self) -> int:
        """How many events there were, those that are still to come included."""
        return self._number

    def after(self, delay_us: int, event: Callable[[], None]) -> None:
        self._number += 1
        due_us = self.time_us + delay_us if delay_us > 0 else self.time_us
        heapq.heappush(self._events, (due_us, self._number, event))

    def current(self) -> Process:
        invariant(self.running is not None, "only a simulated process can wait")
        return self.running  # type: ignore[return-value]

    def do(self, action: Callable[[], None]) -> None:
        """Carry out something that ends or starts processes: at once if nobody runs, else at the next event."""
        if getcurrent() is self.hub:
            action()
            return
        process, done = self.current(), []

        def event() -> None:
            action()
            done.append(True)
            process.wake()

        self.after(0, event)
        while not done:
            process.wait(None)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Let the world go on until `condition` holds, from inside a process or from outside."""
        if getcurrent() is self.hub:
            self.run(until=condition)
            return
        while not condition():
            self.current().wait(100)

    def run(self, *, until: Callable[[], bool], limit_us: int = 3_600_000_000) -> bool:
        """Let events happen until `until` holds; False if they ran out, or the simulated time did."""
        events, end_us = self._events, self.time_us + limit_us
        while not until():
            if not events or events[0][0] > end_us:
                return False
            self.time_us, _, event = heapq.heappop(events)
            event()
        return True

    def end(self) -> None:
        """The world is over: kill whoever still lives. A greenlet that waits for ever keeps everything on its stack for ever."""
        for process in self._processes:
            process.kill()
        self._processes.clear()
        self._events.clear()


class SimClock:
    """ports.Clock of a world. Every reading costs a microsecond, so that no loop stands still."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> Instant:
        scheduler = self._scheduler
        scheduler.time_us = time_us = scheduler.time_us + 1
        return Instant(time_us // 1000, WALL_START_US + time_us + scheduler.wall_shift_us)

    def wall_us(self) -> int:
        return WALL_START_US + self._scheduler.time_us + self._scheduler.wall_shift_us

    def pause(self, duration_ms: int) -> None:
        self._scheduler.current().wait(duration_ms * 1000)


class SimEntropy:
    """ports.Entropy from a seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def id16(self) -> bytes:
        return self._random.randbytes(16)

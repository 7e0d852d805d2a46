# SPDX-License-Identifier: Apache-2.0
"""Time and processes of a simulated world: one heap of events, one greenlet per process, nothing ever waits for real.

May not: know brokers, clients or packets.
The idea: a process is ordinary blocking code. Where it would wait, it switches to the scheduler, which jumps to the next event.
One process runs at a time and events are ordered by (time, number), so a seed gives one history.
A process is killed by raising Killed inside it at the place where it waits, or at a crash point.
Next: sim/network.py, where processes wait for packets.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

from greenlet import getcurrent, greenlet

from oncemq.ports import Instant

WALL_START_US = 1_700_000_000_000_000
"""When every world begins: some day in November 2023."""


class Killed(BaseException):
    """kill -9: not an Exception, so that no handler of the product can catch it."""


class Process:
    """One simulated process: a greenlet with a name, and the reason why it ended."""

    def __init__(self, scheduler: Scheduler, name: str, body: Callable[[], None]) -> None:
        self.name = name
        self.error: BaseException | None = None
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
            self.error = problem

    @property
    def is_running(self) -> bool:
        return not self._greenlet.dead

    def resume(self) -> None:
        if not self._greenlet.dead:
            self._greenlet.switch()

    def kill(self) -> None:
        """End it where it stands. Must not be called by itself: raise Killed there."""
        self._wake_number += 1
        if not self._greenlet.dead:
            if self._greenlet:
                self._greenlet.throw(Killed())
            else:
                self._greenlet.throw(Killed)

    def wait(self, duration_us: int | None) -> None:
        """Give way until `wake` or until the time is over."""
        self._wake_number += 1
        if duration_us is not None:
            number = self._wake_number
            self._scheduler.after(duration_us, lambda: self._timer(number))
        self._scheduler.hub.switch()

    def wake(self) -> None:
        """End its wait at the next event."""
        number = self._wake_number
        self._scheduler.after(0, lambda: self._timer(number))

    def _timer(self, number: int) -> None:
        if number == self._wake_number:
            self._wake_number += 1
            self.resume()


class Scheduler:
    """The heap of events, and the clock they move."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.time_us = 0
        self.wall_shift_us = 0
        self.hub = getcurrent()
        self.processes: list[Process] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0

    def random(self, name: str) -> Random:
        """A stream of randomness of its own, so that one more draw elsewhere shifts nothing here."""
        return Random(f"{self.seed}/{name}")

    def spawn(self, name: str, body: Callable[[], None]) -> Process:
        process = Process(self, name, body)
        self.processes.append(process)
        self.after(0, process.resume)
        return process

    def after(self, delay_us: int, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.time_us + max(0, delay_us), self._number, event))

    def current(self) -> Process:
        running = getcurrent()
        return next(process for process in self.processes if process._greenlet is running)

    def run(self, *, until: Callable[[], bool], limit_us: int = 3_600_000_000) -> bool:
        """Let events happen until `until` holds; False if they ran out, or the simulated time did."""
        end_us = self.time_us + limit_us
        while not until():
            if not self._events or self._events[0][0] > end_us:
                return False
            at_us, _, event = heapq.heappop(self._events)
            self.time_us = at_us
            event()
        return True


class SimClock:
    """ports.Clock of a world. Every reading costs a microsecond, so that no loop stands still."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> Instant:
        self._scheduler.time_us += 1
        time_us = self._scheduler.time_us
        return Instant(time_us // 1000, self.wall_us())

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

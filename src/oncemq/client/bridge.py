# SPDX-License-Identifier: Apache-2.0
"""Blocking client code on an event loop: where it would wait, the loop goes on with other tasks.

May not: run anything in another thread, or change what the client's code does. It only decides who waits.
The idea: `run` starts a call in a greenlet; `wait`, called from inside it, hands an awaitable to the task and comes back with its
result. Several calls share one session: one of them polls the socket, and whoever takes a packet wakes all others to look whether
it was theirs. The same for the live socket of those who listen. A cancelled call is thrown out where it waits, and there it has
taken nothing (H14).
Next: client/async_client.py, the front.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

import greenlet

from oncemq.client.session import Session
from oncemq.errors import BrokerUnreachable, InvariantViolated
from oncemq.ports import Clock, Frames, Instant, Link, LiveLink

Result = TypeVar("Result")


async def run(call: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """Run blocking code that waits through `wait`, and return what it returns."""
    caller = greenlet.getcurrent()
    inner = greenlet.greenlet(lambda: call(*arguments, **named), caller)
    inner.gr_context = caller.gr_context
    step = inner.switch()
    while not inner.dead:
        try:
            found = await step
        except BaseException as problem:
            step = inner.throw(problem)
        else:
            step = inner.switch(found)
    result: Result = step
    return result


def wait(awaitable: Awaitable[Result]) -> Result:
    """Let the event loop go on until that is done. Only inside `run`."""
    inside = greenlet.getcurrent().parent
    if inside is None:
        raise InvariantViolated("waiting outside run()")
    found: Result = inside.switch(awaitable)
    return found


async def take_in_time(lock: asyncio.Lock, timeout_ms: int | None) -> bool:
    """Take a lock; False if it was not to be had in time. One that is free is taken also if there is no time."""
    try:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            return await lock.acquire()
    except TimeoutError:
        return False


class PollingLink(Link, Protocol):
    """A link that can be waited for."""

    async def until_readable(self, timeout_ms: int) -> None:
        """Return when there may be something to receive, or when the time is over."""


class PollingLiveLink(LiveLink, Protocol):
    """A live link that can be waited for."""

    async def until_readable(self, timeout_ms: int) -> None:
        """Return when there may be something to receive, or when the time is over."""


class LoopClock:
    """A clock whose pauses do not stop the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> Instant:
        return self._clock.now()

    def wall_us(self) -> int:
        return self._clock.wall_us()

    def pause(self, duration_ms: int) -> None:
        wait(asyncio.sleep(duration_ms / 1000))


class Turn:
    """Where one call at a time may be, in the order they came. Only inside `run`."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @contextmanager
    def within(self, timeout_ms: int | None) -> Iterator[bool]:
        """Have the turn in here; False if it did not come in time."""
        if not wait(take_in_time(self._lock, timeout_ms)):
            yield False
            return
        try:
            yield True
        finally:
            self._lock.release()


class SharedSession(Session):
    """A session that several calls wait on at once."""

    _link: PollingLink
    _turn = 0
    _is_polled = _is_live_polled = False
    _waiting: tuple[asyncio.Future[None], ...] = ()
    _opening: asyncio.Future[bool] | None = None
    """Done when the call that opens the session is through; True: there is no broker."""

    def ensure(self, timeout_ms: int | None = None) -> None:
        """Have a session. One call opens it and the others wait: what a Welcome sets up must not be set up again under them."""
        started_ms = self.clock.now().ticks_ms
        while self.welcome is None and self._opening is not None:
            left_ms = None if timeout_ms is None else timeout_ms - (self.clock.now().ticks_ms - started_ms)
            if wait(self._is_hopeless(self._opening, left_ms)):
                raise self.unreachable(started_ms)
        if self.welcome is not None or self._failure is not None:
            return super().ensure(timeout_ms)
        self._opening = opening = asyncio.get_running_loop().create_future()
        is_away = False
        try:
            super().ensure(timeout_ms)
        except BrokerUnreachable:
            is_away = timeout_ms is None  # Whoever had less time than others does not speak for them.
            raise
        finally:
            self._opening = None
            opening.set_result(is_away)

    @staticmethod
    async def _is_hopeless(opening: asyncio.Future[bool], timeout_ms: int | None) -> bool:
        """Wait for whoever opens the session; True if that failed for everybody, or if the time is over."""
        if timeout_ms is not None and timeout_ms <= 0:
            return True
        await asyncio.wait((opening,), timeout=None if timeout_ms is None else timeout_ms / 1000)
        return opening.result() if opening.done() else True

    def receive(self, timeout_ms: int) -> bool:
        """Have a packet handed to whoever it is for, by this call or by another one, within that time."""
        turn, due_ms = self._turn, self.clock.now().ticks_ms + timeout_ms
        while True:
            if super().receive(0):
                self._turn += 1
                self._wake()
                return True
            if self._turn != turn:
                return True
            left_ms = due_ms - self.clock.now().ticks_ms
            if left_ms <= 0:
                return False
            wait(self._stand_by(left_ms))

    def new_turn(self) -> Callable[[int | None], AbstractContextManager[bool]]:
        return Turn().within

    def open_live(self, address: str) -> LiveLink:
        return SharedLive(self, super().open_live(address))  # type: ignore[arg-type]

    def took_live(self) -> None:
        """A live packet was taken: it may be for somebody else who listens."""
        self._turn += 1
        self._wake()

    async def stand_by_both(self, live: PollingLiveLink, timeout_ms: int) -> None:
        """Wait for a packet on either link; whoever takes it."""
        waits = [asyncio.ensure_future(self._stand_by(timeout_ms)), asyncio.ensure_future(self._stand_by_live(live, timeout_ms))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _stand_by_live(self, live: PollingLiveLink, timeout_ms: int) -> None:
        if self._is_live_polled:
            return await self._stand_behind(timeout_ms)
        self._is_live_polled = True
        try:
            await live.until_readable(timeout_ms)
        finally:
            self._is_live_polled = False
            self._wake()

    async def _stand_by(self, timeout_ms: int) -> None:
        """Poll the socket if nobody does; else wait for whoever does."""
        if self._is_polled:
            return await self._stand_behind(timeout_ms)
        self._is_polled = True
        try:
            await self._link.until_readable(timeout_ms)
        finally:
            self._is_polled = False
            self._wake()  # Somebody else must poll now.

    async def _stand_behind(self, timeout_ms: int) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting = (*self._waiting, future)
        try:
            await asyncio.wait((future,), timeout=timeout_ms / 1000)
        finally:
            self._waiting = tuple(other for other in self._waiting if other is not future)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, ()
        for future in waiting:
            if not future.done():
                future.set_result(None)


class SharedLive:
    """A live link that several calls listen on at once."""

    def __init__(self, session: SharedSession, link: PollingLiveLink) -> None:
        self._session = session
        self._link = link

    def follow(self, channel: bytes) -> None:
        self._link.follow(channel)

    def leave(self, channel: bytes) -> None:
        self._link.leave(channel)

    def receive(self) -> Frames | None:
        frames = self._link.receive()
        if frames is not None:
            self._session.took_live()
        return frames

    def wait(self, timeout_ms: int) -> None:
        wait(self._session.stand_by_both(self._link, timeout_ms))

    def close(self) -> None:
        self._link.close()

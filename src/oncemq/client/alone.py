# SPDX-License-Identifier: Apache-2.0
"""One call of a client at a time: whoever calls while another thread is inside is told, instead of spoiling what is half done.

May not: make anybody wait. With a lock a put would wait for a get that waits for ever.
The idea: one number says who is inside. CPython changes threads at calls and loops only, so between reading it and writing it
there is neither. A call from inside a call, such as a generator given to put_many() that gets, is its own thread's affair and
goes through. The fast paths (put without waiting, get, a listener's next) have the decorator's lines in themselves: it is a call
more.
Next: client/client.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from oncemq.core.subscriber import Subscriber
from oncemq.errors import UsageError

NOBODY = 0
IN_PASSING = -1
"""Somebody is inside and does not wait. To ask which thread it is takes longer than most such calls."""

_IN_A_CALL = (
    "another thread is inside a call of this client: give each thread a client with an id of its own, guard this one with a "
    "threading.Lock, or use oncemq.connect_async(), whose client takes many tasks at once. "
    "(Without other threads it was a signal handler that interrupted a call: let it set a flag)"
)
_OF_A_LOOP = (
    "this AsyncClient belongs to the thread of its event loop: from another one use asyncio.run_coroutine_threadsafe(..., loop), "
    "or connect there, with an id of its own"
)

Given = ParamSpec("Given")
Found = TypeVar("Found")


class Alone:
    """Who is inside a call of one client: the number of a thread, NOBODY or IN_PASSING."""

    __slots__ = ("_why_not", "inside")

    def __init__(self) -> None:
        self.inside = NOBODY
        self._why_not = _IN_A_CALL

    def expect_mine(self) -> None:
        """Somebody is inside. That must be this thread."""
        if self.inside != get_ident():
            raise UsageError(self._why_not)

    def stay_here(self) -> None:
        """From now on no other thread may enter at all: tasks take turns inside."""
        self.inside, self._why_not = get_ident(), _OF_A_LOOP


class Guarded(Protocol):
    """What has calls that are made one at a time."""

    _alone: Alone


Self_ = TypeVar("Self_", bound=Guarded)


def alone(call: Callable[Concatenate[Self_, Given], Found]) -> Callable[Concatenate[Self_, Given], Found]:
    """A call that is refused, before it does anything, while another thread is inside one."""

    @wraps(call)
    def guarded(self: Self_, /, *given: Given.args, **named: Given.kwargs) -> Found:
        alone = self._alone
        before = alone.inside
        if before:
            alone.expect_mine()
        else:
            alone.inside = IN_PASSING
        try:
            alone.inside = get_ident()
            return call(self, *given, **named)
        finally:
            alone.inside = before

    return guarded


def handing_out(
    call: Callable[Concatenate[Self_, Given], tuple[Subscriber, int, Found] | None],
) -> Callable[Concatenate[Self_, Given], Found | None]:
    """The same for a call that says whose messages it hands out, how many, and what is returned for them.

    Not `alone` around another function: an interrupt between the two would fall behind `given`, and what is handed out be lost.
    """

    @wraps(call)
    def guarded(self: Self_, /, *given: Given.args, **named: Given.kwargs) -> Found | None:
        alone = self._alone
        before = alone.inside
        if before:
            alone.expect_mine()
        else:
            alone.inside = IN_PASSING
        try:
            alone.inside = get_ident()
            taken = call(self, *given, **named)
            if taken is None:
                return None
            subscriber, count, found = taken
            subscriber.given += count  # Last: whatever interrupts us before this line, the same is handed out next.
            return found
        finally:
            alone.inside = before

    return guarded

# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is among the tasks of an AsyncClient: at a transaction, or at a topic that is received from.

May not: know what is done in a turn.
The idea: tasks wait for each other, but not for themselves: whoever has the turn, and every task that was started from inside it,
carries a mark in its context. A task that waits for its own child, as `asyncio.wait_for` does on Python 3.11, would wait for ever
if the child waited for the turn.
Next: client/async_client.py, which has the turns.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from oncemq.client.bridge import take_in_time
from oncemq.errors import UsageError


class _Mark:
    """What whoever has a turn carries; another one each time."""

    is_over = False


_inside: ContextVar[frozenset[_Mark]] = ContextVar("oncemq_inside", default=frozenset())
"""The marks of the turns that this task is in, or was started from inside of."""


class Floor:
    """One turn, and who has it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._mark: _Mark | None = None
        self._why_not_put = ""

    async def take(self, why_not: str, timeout_ms: int | None = None, *, why_not_put: str = "") -> bool:
        """Wait for the turn; False if it did not come in time. Who has it already is told why that is wrong."""
        self.expect_outside(why_not)
        if not await take_in_time(self._lock, timeout_ms):
            return False
        mark = _Mark()
        self._mark, self._why_not_put = mark, why_not_put
        # Those that are over go: a task that was started from inside carries them on, and so would every one it starts in turn.
        _inside.set(frozenset((mark, *(other for other in _inside.get() if not other.is_over))))
        return True

    def leave(self) -> None:
        """Let the next one have it."""
        if self._mark is not None:
            self._mark.is_over = True
        self._mark, self._why_not_put = None, ""
        self._lock.release()

    def expect_puts_allowed(self) -> None:
        """Refuse a put inside a turn that it could be no part of."""
        if self._why_not_put:
            self.expect_outside(self._why_not_put)

    def expect_outside(self, why_not: str) -> None:
        """Refuse what cannot be done inside the turn."""
        if self._mark is not None and self._mark in _inside.get():
            raise UsageError(why_not)

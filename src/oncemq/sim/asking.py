# SPDX-License-Identifier: Apache-2.0
"""What an application asks for in vain, and since when: the watchdog's notes, made by whoever waits.

May not: judge, or let any time pass. Short waits are everybody's lot and are not written down.
The idea: a call that needs the broker is made inside `call`. Who is told that nobody answers asks again, so calls without an
answer are one wait, until one is answered or the process ends. The same for every topic that was asked for, until a call brings
something, of whichever topic: whoever has that in his hands may sleep over it.
Next: sim/progress.py, which judges these notes; sim/actors.py for who makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from oncemq.errors import BrokerUnreachable, PutPending, Uncertain
from oncemq.model.message import Message
from oncemq.sim.scheduler import Killed, Process, Scheduler

NOTED_US = 1_000_000
"""What took longer than this is written down, so that a history also tells how near to its bound a sound world came."""
Get = Callable[[], Iterable[Message | None]]
"""A call that brings messages; None for none."""
UNANSWERED = (BrokerUnreachable, PutPending, Uncertain)
"""What a call says that was not answered."""


@dataclass(slots=True)
class _Waits:
    """What one process waits for."""

    unanswered_us: int | None = None
    """Since when it should have had an answer; None while it has."""
    active_us: int = 0
    """Since when it calls again and again. Who does something else for long does not notice what becomes of its connection."""
    ended_us: int = 0
    """When its last call ended."""
    in_vain: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By topic id: when the first call began that brought nothing of it, and when the last one ended."""


class Asking:
    """The notes of one actor, for each of its processes: after a takeover two of them live at once."""

    def __init__(self, name: str, scheduler: Scheduler, note: Callable[..., None]) -> None:
        self._name = name
        self._scheduler = scheduler
        self._note = note
        self._waits: dict[Process | None, _Waits] = {}
        self._due: dict[str, int] = {}
        """By topic id: the first offset that no process of this actor was ever handed, nor told gone."""

    def _mine(self) -> _Waits:
        waits = self._waits.get(self._scheduler.running)
        if waits is None:
            waits = self._waits[self._scheduler.running] = _Waits()
        return waits

    # --- answers -----------------------------------------------------------------------------------------

    @contextmanager
    def call(self, timeout_s: float = 0.0) -> Iterator[None]:
        """A call that needs the broker, and may take that long before an answer is due. Whatever it says but that nobody answers
        is an answer."""
        waits = self._begin_call(timeout_s)
        try:
            yield
        except UNANSWERED as told:
            self._on_away(waits, told)
            raise
        except Exception:
            self._on_answer(waits)
            raise
        else:
            self._on_answer(waits)

    def _begin_call(self, timeout_s: float) -> _Waits:
        """What waits for long begins a wait of its own: many answers may come in it that its caller never sees."""
        waits, now_us = self._mine(), self._scheduler.time_us
        due_us = now_us + int(timeout_s * 1e6)
        if now_us - waits.ended_us > NOTED_US:
            waits.active_us, waits.unanswered_us = now_us, None
        if timeout_s * 1e6 > NOTED_US:
            self._on_answer(waits)
        if waits.unanswered_us is None or due_us < waits.unanswered_us:
            waits.unanswered_us = due_us
        return waits

    def _on_away(self, waits: _Waits, told: Exception) -> None:
        waits.ended_us = self._scheduler.time_us
        self._note("info", "away", name=type(told).__name__, active=waits.active_us)

    def _on_answer(self, waits: _Waits) -> None:
        waits.ended_us = self._scheduler.time_us
        since_us, waits.unanswered_us = waits.unanswered_us, None
        if since_us is not None and self._scheduler.time_us - since_us > NOTED_US:
            self._note("ok", "unanswered", since=since_us)

    # --- messages ----------------------------------------------------------------------------------------

    def begin(self, topic_id: int, offset: int) -> None:
        """A subscription is taken up: nothing before that offset is due."""
        self._due.setdefault(str(topic_id), offset)

    def messages(self, topic_ids: Iterable[int], timeout_s: float, get: Get) -> list[Message]:
        """Make a call that asks for these topics. Whoever is told something was not there in vain.

        Made for every message there is: this is `call` in other words.
        """
        began_us, waits = self._scheduler.time_us, self._begin_call(timeout_s)
        try:
            found = [message for message in get() if message is not None]
        except UNANSWERED as told:
            self.on_nothing(topic_ids, began_us)
            self._on_away(waits, told)
            raise
        except Killed:
            self.on_nothing(topic_ids, began_us)
            raise
        except Exception:
            self._on_answer(waits)
            raise
        self._on_answer(waits)
        if found:
            self._end_in_vain(waits)
        else:
            self.on_nothing(topic_ids, began_us)
        return found

    def on_found(self, topic_id: str, end: int) -> None:
        """Something of a topic was handed out, or was told, up to that offset: whoever asked for it did not ask in vain."""
        if end > self._due.get(topic_id, -1):
            self._due[topic_id] = end
        in_vain = self._mine().in_vain
        if in_vain and topic_id in in_vain:
            self._note_in_vain(topic_id, *in_vain.pop(topic_id))

    def on_nothing(self, topic_ids: Iterable[int], began_us: int) -> None:
        """A call that asked for these topics from then on brought nothing at all."""
        in_vain = self._mine().in_vain
        for topic_id in map(str, topic_ids):
            first_us, _ = in_vain.get(topic_id, (began_us, 0))
            in_vain[topic_id] = first_us, self._scheduler.time_us

    def _end_in_vain(self, waits: _Waits) -> None:
        """Nobody asks in vain any more. Whoever has something in his hands may sleep over it: that is no wait, of no topic."""
        for topic_id, span in waits.in_vain.items():
            self._note_in_vain(topic_id, *span)
        waits.in_vain.clear()

    def _note_in_vain(self, topic_id: str, since_us: int, until_us: int) -> None:
        if until_us - since_us > NOTED_US:
            place = {"subscription": self._name, "topic_id": topic_id, "start": self._due.get(topic_id, 0)}
            self._note("ok", "in_vain", **place, since=since_us, until=until_us)

    # --- the end -----------------------------------------------------------------------------------------

    def end(self) -> None:
        """The running process ends, well or not: what it still waits for is written down."""
        waits = self._waits.pop(self._scheduler.running, None)
        if waits is not None:
            self._on_answer(waits)
            self._end_in_vain(waits)

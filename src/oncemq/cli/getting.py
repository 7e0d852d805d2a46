# SPDX-License-Identifier: Apache-2.0
"""The loop of `oncemq get`: get, write, flush, acknowledge.

May not: acknowledge before the flush, or be interrupted between hand-over and flush.
The idea: a signal only sets a flag, which is looked at between messages; waiting happens in short turns for that reason.
A gap is told and the loop goes on behind it; it makes the exit code 5 in the end.
Next: get.py for the options.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from oncemq.cli.exits import Exit
from oncemq.cli.messages import as_line
from oncemq.cli.output import Output
from oncemq.cli.signals import StopAsked
from oncemq.errors import BrokerUnreachable, Damaged, Gap, NotSubscribed, Refused
from oncemq.model.refusals import TEXTS, Code, to_error

if TYPE_CHECKING:
    from oncemq.client.client import Client
    from oncemq.client.listening import Listener
    from oncemq.model.message import Message

_TURN_S = 0.5
"""How long a signal may go unnoticed while there is no message."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to get: of one topic or of any, so many (None: no end), waiting so long for each."""

    topic: str | None
    count: int | None
    wait_s: float
    follow: bool
    skip_damaged: bool


class Reading:
    """One run of `oncemq get`."""

    def __init__(self, output: Output, client: Client, plan: Plan) -> None:
        self.written = 0
        self.was_told = False
        self._output = output
        self._client = client
        self._plan = plan
        self._listener: Listener[Message] | None = None

    def run(self, stop: StopAsked) -> None:
        """Write messages until the plan is fulfilled, none is left, or a signal ends it."""
        while self._plan.count is None or self.written < self._plan.count:
            message = self._next(stop)
            if message is None:
                return
            self._write(message)
            self._finish(message)
            self.written += 1

    def _finish(self, message: Message) -> None:
        """It is written and flushed. A follower tells the broker now and then: it would be told by every one of many."""
        if self._listener is not None:
            self._listener.finish()
        else:
            self._client.ack(message.topic)

    def _listen(self, turn_s: float) -> Message | None:
        if self._listener is None:
            topic = self._plan.topic
            self._listener = self._client.listen(topic) if topic is not None else self._client.listen()
        return self._listener.next(timeout=turn_s)

    def _next(self, stop: StopAsked) -> Message | None:
        """Wait for the next message, in turns; None when the time is over or a signal came."""
        left_s = self._plan.wait_s
        while not stop.is_set:
            turn_s = _TURN_S if self._plan.follow else min(_TURN_S, left_s)
            message = self._try(turn_s)
            left_s -= turn_s
            if message is not None or (left_s <= 0 and not self._plan.follow):
                return message
        return None

    def _try(self, turn_s: float) -> Message | None:
        """One turn. What only has to be told is told here, and the next turn goes on behind it."""
        try:
            return self._listen(turn_s) if self._plan.follow else self._client.get(self._plan.topic, timeout=turn_s)
        except Gap as gap:
            self._tell(gap)
            return self._try(turn_s)
        except Damaged as damaged:
            if not self._plan.skip_damaged:
                raise
            self._tell(damaged)
            self._client.settle(damaged.topic, "skip")
            return self._try(turn_s)
        except NotSubscribed:
            raise self._why_not_subscribed() from None
        except (BrokerUnreachable, Refused) as away:
            if not self._plan.follow or (isinstance(away, Refused) and away.code != Code.STOPPING):
                raise
            self._output.note(f"{away}; trying again …")
            return None

    def _tell(self, told: Gap | Damaged) -> None:
        self._output.problem(told)
        self.was_told = True

    def _why_not_subscribed(self) -> Refused:
        """A topic that does not exist is another mistake than a topic one has not subscribed to."""
        topic = self._plan.topic
        code = Code.NOT_SUBSCRIBED if topic is None or self._client.admin.topics(topic) else Code.NO_SUCH_TOPIC
        return to_error(code, TEXTS[code])

    def _write(self, message: Message) -> None:
        try:
            sys.stdout.buffer.write(as_line(message, is_json=self._output.is_json))
            sys.stdout.buffer.flush()
        except OSError as problem:
            # What is left in the buffer must not come out later: it counts as not written.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            text = f"message {message.offset} of {message.topic!r} could not be written ({problem.strerror}): it is in doubt"
            self._output.failure("not_written", text)
            raise typer.Exit(Exit.FAILED) from problem

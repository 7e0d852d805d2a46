# SPDX-License-Identifier: Apache-2.0
"""`oncemq chaos`: guests that come, go and fail at random at a live broker, which must serve all of them right.

May not: harm the broker, or anything of it that was there before: topics and clients of a run have names of their own.
The idea: a torture with other players. The broker is one that runs already, or one of the run's own; the guests fall over by
themselves and are killed and paused besides. In the end the judges read what everybody wrote down.
Next: guests.py for what a guest does, performance.py for the phases.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from random import Random

from oncemq.cli.torturing.cast import Cast, Place, Player
from oncemq.cli.torturing.guests import FELL_OVER, has_flushed, names_of
from oncemq.cli.torturing.performance import Harm, Performance, Plan
from oncemq.cli.torturing.recorder import Recorder
from oncemq.cli.torturing.roles import LOAD_OVER
from oncemq.cli.torturing.verdict import Verdict
from oncemq.errors import UsageError

TOPICS = 3
_BETWEEN_S = 0.6
_PAUSE_S = (0.2, 2.0)


class Visitors(Cast):
    """Guests at a broker that was there before them and stays."""

    def players(self) -> list[Player]:
        return list(self.clients)

    def _open_broker(self) -> None:
        pass

    def stop_broker(self) -> None:
        self.errand("sweep", "guests")


class Mischief:
    """Kills and pauses guests, and notices who fell over."""

    def __init__(self, cast: Cast, random: Random, recorder: Recorder) -> None:
        self._cast = cast
        self._random = random
        self._recorder = recorder
        self._due_s = time.monotonic()
        self._paused: dict[str, tuple[Player, float]] = {}
        self.strokes = 0
        self.last = ""

    def step(self) -> None:
        self._watch()
        for name, (_, due_s) in list(self._paused.items()):
            if time.monotonic() >= due_s:
                self._go_on(name)
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + self._random.random() * _BETWEEN_S
            self._strike(self._random.choice(self._cast.clients))

    def _watch(self) -> None:
        for guest in self._cast.clients:
            self._cast.place.tally["falls"] += guest.child is not None and guest.child.code == FELL_OVER
        self._cast.watch()

    def _strike(self, guest: Player) -> None:
        if guest.child is None or not guest.is_alive or guest.name in self._paused:
            return
        self.strokes += 1
        if self._random.random() < 0.5:
            self.last = f"kill -9 {guest.name}"
            guest.child.kill()
            self._cast.count_kill(guest)
        else:
            self.last = f"pause {guest.name}"
            guest.child.signal(signal.SIGSTOP)
            self._cast.place.tally["pauses"] += 1
            self._paused[guest.name] = guest, time.monotonic() + self._random.uniform(*_PAUSE_S)
        self._recorder.note("ok", "fault", name=self.last)

    def _go_on(self, name: str) -> None:
        guest, _ = self._paused.pop(name)
        if guest.child is not None:
            guest.child.signal(signal.SIGCONT)

    def heal(self) -> None:
        for name in list(self._paused):
            self._go_on(name)


class Chaos(Performance):
    """A run of so many guests at `address`, or at a broker of its own."""

    def __init__(self, plan: Plan, on_step: Callable[[int, str], None], *, run: str, guests: int, address: str) -> None:
        super().__init__(plan, on_step)
        if address and not address.startswith("tcp://"):
            raise UsageError(f"--address {address!r}: chaos needs one like tcp://127.0.0.1:5556")
        self._address = address
        self._topics = names_of(run, "topic", TOPICS)
        ends = frozenset({FELL_OVER})
        self.players = [Player(name, "visit", self._topics, "guests", ends) for name in names_of(run, "guest", guests)]

    def _cast(self, place: Place, random: Random, _players: ExitStack) -> Cast:
        if not self._address:
            return Cast(place, random, self.players)
        place.wires.broker_address = self._address
        return Visitors(place, random, self.players)

    def _nemesis(self, cast: Cast, _faults: list[str], random: Random, recorder: Recorder) -> Harm:
        return Mischief(cast, random, recorder)

    def _drain(self, cast: Cast) -> None:
        """Before anybody gets the last message it must be there: all guests put what they still had first."""
        (self.plan.directory / LOAD_OVER).touch()
        self._await(cast, lambda guest: (self.plan.directory / has_flushed(guest.name)).exists(), cast.clients)
        super()._drain(cast)

    def _verify(self, place: Place) -> None:
        if not self._address:
            super()._verify(place)

    def figures(self, verdict: Verdict) -> dict[str, object]:
        names = ("put", "confirmed", "delivered", "in_doubt", "lost", "twice", "confirmed_but_missing")
        row: dict[str, object] = {"guests": len(self.players), "lives": sum(player.life for player in self.players)}
        row |= {name: getattr(verdict, name) for name in names}
        return row | {"kills": self.tally["client_kills"], "pauses": self.tally["pauses"], "falls": self.tally["falls"]}

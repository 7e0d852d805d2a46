# SPDX-License-Identifier: Apache-2.0
"""A nemesis that leaves no place out: every life of the broker and of the workers ends at a crash point, each point in its turn.

May not: harm anything but the processes of its own run; go on after `heal`.
The idea: whoever is dead gets the next point of its list before it is started again, at one of its first hits, drawn from the
seed. Who does not come by in time is killed where it is, which is a place as well. Two lists run at the same time, so that the
one often dies while the other is away.
Next: transactions.py for the points, nemesis.py for faults of all other kinds.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from random import Random

from oncemq.cli.torturing.cast import Cast, Player
from oncemq.cli.torturing.recorder import Recorder

ANYWHERE = "anywhere"
"""Where those were killed who did not come by their point in time."""
_LIFE_S = 4.0
_FREQUENT_HITS, _RARE_HITS = 25, 2
_RARE = ("journal.", "client.before_state")
_DATABASE_S = 10.0
"""How often a process of the database is killed, where there is one."""


class Spread:
    """`points` has the crash points of every player; `database` finds the processes of a database server to kill, if any."""

    def __init__(
        self,
        cast: Cast,
        points: dict[str, tuple[str, ...]],
        random: Random,
        recorder: Recorder,
        database: Callable[[], list[int]] | None = None,
    ) -> None:
        self._cast = cast
        self._random = random
        self._recorder = recorder
        self._database = database
        self._database_due_s = time.monotonic() + _DATABASE_S
        self._points = {name: self._in_turn(mine) for name, mine in points.items()}
        self._born_s: dict[tuple[str, int], float] = {}
        """When a life was first seen."""
        self.strokes = 0
        self.last = ""

    def _in_turn(self, points: tuple[str, ...]) -> Iterator[str]:
        return chain.from_iterable(self._random.sample(round, len(round)) for round in repeat(points))

    def step(self) -> None:
        """Give whoever is about to live again its end; end whoever lives too long."""
        for player in self._victims():
            if player.child is None and not player.crash_at:
                self._arm(player)
        self._cast.watch()
        for player in self._victims():
            born_s = self._born_s.setdefault((player.name, player.life), time.monotonic())
            if time.monotonic() - born_s > _LIFE_S:
                self._kill(player)
        if self._database is not None and time.monotonic() > self._database_due_s:
            self._kill_database(self._database)

    def _kill(self, player: Player) -> None:
        if player.child is not None and player.is_alive:
            player.child.kill()
            self._cast.count_kill(player)
            self._cast.place.tally[ANYWHERE] += 1

    def _victims(self) -> list[Player]:
        return [player for player in self._cast.players() if player.name in self._points and not player.is_done]

    def _arm(self, player: Player) -> None:
        point = next(self._points[player.name])
        hits = _RARE_HITS if point.startswith(_RARE) else _FREQUENT_HITS
        player.crash_at = f"{point}:{self._random.randint(1, hits)}"
        self.strokes += 1
        self.last = point
        self._recorder.note("ok", "fault", name=player.crash_at)

    def _kill_database(self, find: Callable[[], list[int]]) -> None:
        """One process of the server dies, whereupon all of it starts over and recovers from its own log."""
        self._database_due_s = time.monotonic() + self._random.random() * 2 * _DATABASE_S
        for pid in find()[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self._cast.place.tally.update(("kills", "database_kills"))

    def heal(self) -> None:
        """Nobody dies any more. Who was to die at a point is killed now, and lives again without one."""
        for player in self._victims():
            if player.dies_at:
                self._kill(player)
        self._points.clear()
        for player in self._cast.players():
            player.crash_at = ""

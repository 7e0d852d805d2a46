# SPDX-License-Identifier: Apache-2.0
"""Who is killed when, and how far everybody is: one look after the other until the time is over and everything is drained.

May not: spare anybody; count what it did not read from the files of those it happened to.
The idea: victims come from a shuffled deck with the broker in it twice, so that every process dies in a run of any length.
Next: stage.py for the processes, display.py for what people see of this.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from oncemq.cli.demonstrating.roles import ledger_of
from oncemq.cli.demonstrating.stage import Player, Stage
from oncemq.cli.torturing.processes import TortureFailed
from oncemq.cli.torturing.recorder import Recorder, history_of, now_us
from oncemq.cli.torturing.roles import LOAD_OVER, MAY_END

LAKE_ROWS = "lake-rows"
"""A file of the demo's directory: how many rows the table has."""
_LOOK_S = 0.02
_SAMPLE_S = 0.25
_KILL_PAUSE_S = (0.7, 1.5)
_DRAIN_S = 120.0
_PUT = b'"kind":"invoke","op":"put"'
_DELIVERED = b'"kind":"ok","op":"deliver"'


class Counter:
    """How often something stands in a file that grows, read on from where the last look ended."""

    def __init__(self, path: Path, what: bytes) -> None:
        self._path, self._what = path, what
        self._position = self._count = 0

    def look(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._position)
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._position += len(whole)
            self._count += whole.count(self._what)
        return self._count


@dataclass
class Facts:
    """What is known of the run so far; times in seconds since it began."""

    at_s: list[float] = field(default_factory=list)
    counts: dict[str, list[int]] = field(default_factory=dict)
    """How many messages each process had put, got, booked or archived at those times."""
    kills: list[tuple[float, str]] = field(default_factory=list)
    overlay: dict[str, list[str]] = field(default_factory=dict)
    """Who was whose neighbour in the mesh."""

    def latest(self, name: str) -> int:
        return self.counts[name][-1] if self.counts.get(name) else 0

    def rate(self, name: str) -> float:
        """Messages per second since about two seconds ago."""
        found = self.counts.get(name, [])
        first = max(0, len(found) - 9)
        lasted = self.at_s[-1] - self.at_s[first] if len(found) > 1 else 0
        return (found[-1] - found[first]) / lasted if lasted else 0.0


class Director:
    """One run. `on_look` is called all the time, `on_kill` with the victim and its process id."""

    def __init__(self, stage: Stage, seed: int, on_look: Callable[[Facts], None], on_kill: Callable[[Player, int], None]) -> None:
        self.facts = Facts()
        self._stage, self._on_look, self._on_kill = stage, on_look, on_kill
        self._random = Random(f"{seed}")  # noqa: S311 - replayable on purpose
        self._recorder = Recorder(history_of(stage.directory, "director"), "director", 1)
        self._recorder.note("ok", "fault", name="began")  # The first event: all times count from here.
        self._began_us = now_us()
        self._deck: list[Player] = []
        self._kill_due_s = 0.0
        self._counters = self._all_counters()

    def run(self, seconds: float) -> None:
        """Load with kills for so long, counted from when everybody has begun; then let everything come to its end."""
        names = [player.name for player in (*self._stage.publishers, *self._stage.subscribers)]
        self.wait(lambda: all(self.facts.latest(name) for name in names), "everybody has begun")
        stage, until_s = self._stage, time.monotonic() + seconds
        self._kill_due_s = time.monotonic() + _KILL_PAUSE_S[0]
        while time.monotonic() < until_s:
            if time.monotonic() >= self._kill_due_s:
                self._kill_somebody()
            self._look()
        stage.may_end = True
        for word, players in ((LOAD_OVER, stage.publishers), (MAY_END, stage.subscribers)):
            (stage.directory / word).touch()
            self.wait(lambda: all(player.is_done for player in players), "everybody is done")  # noqa: B023 - called at once

    def wait(self, is_done: Callable[[], bool], until: str, within_s: float = _DRAIN_S) -> None:
        """Go on looking until something is so; `until` says what."""
        deadline_s = time.monotonic() + within_s
        while not is_done():
            if time.monotonic() > deadline_s:
                text = f"waited {within_s:.0f} s in vain until {until}: if this machine has much else to do, try again"
                raise TortureFailed(text)
            self._look()

    def _look(self) -> None:
        self._stage.watch()
        at_s = (now_us() - self._began_us) / 1e6
        if not self.facts.at_s or at_s - self.facts.at_s[-1] >= _SAMPLE_S:
            self.facts.at_s.append(at_s)
            for name, counter in self._counters.items():
                self.facts.counts.setdefault(name, []).append(counter())
            self._on_look(self.facts)
        time.sleep(_LOOK_S)

    def _kill_somebody(self) -> None:
        self._kill_due_s = time.monotonic() + self._random.uniform(*_KILL_PAUSE_S)
        if not self._deck:
            self._deck = [self._stage.broker, *self._stage.players()]
            self._random.shuffle(self._deck)
        victim = self._deck.pop()
        pid = self._stage.kill(victim)
        if pid is not None:
            self._recorder.note("ok", "crash", name=victim.name)
            self.facts.kills.append(((now_us() - self._began_us) / 1e6, victim.name))
            self._on_kill(victim, pid)

    # --- counting --------------------------------------------------------------------------------------

    def _all_counters(self) -> dict[str, Callable[[], int]]:
        directory = self._stage.directory
        puts = {player.name: Counter(history_of(directory, player.name), _PUT).look for player in self._stage.publishers}
        gets = {name: Counter(history_of(directory, name), _DELIVERED).look for name in ("plain", "live")}
        return {**puts, **gets, "ledger": lambda: booked(directory)[0], "lake": lambda: _lake_rows(directory)}


def booked(directory: Path) -> tuple[int, int]:
    """How many rows the ledger has, and how many different ones."""
    path = ledger_of(directory)
    if not path.exists():
        return 0, 0
    connection = sqlite3.connect(path)
    try:
        rows, different = connection.execute("SELECT count(*), count(DISTINCT value) FROM effects").fetchone()
    except sqlite3.OperationalError:  # Being made this very moment.
        return 0, 0
    finally:
        connection.close()
    return int(rows), int(different)


def _lake_rows(directory: Path) -> int:
    path = directory / LAKE_ROWS
    text = path.read_text() if path.exists() else ""
    return int(text or 0)

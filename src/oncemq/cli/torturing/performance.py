# SPDX-License-Identifier: Apache-2.0
"""One run from beginning to verdict: set up, load with faults, heal, drain, read the logs, judge, clean up.

May not: leave a process, a mount or a namespace behind, whatever interrupts it.
The idea: whatever is made is put on one stack at once and taken down in reverse. What the machine does not allow is found out
while setting up, and said.
Next: cast.py for who plays, nemesis.py for what happens to them, verdict.py for what it came to.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from oncemq.cli.torturing.cast import Cast, Place, Player, crowd
from oncemq.cli.torturing.nemesis import KILLS, Nemesis
from oncemq.cli.torturing.processes import TortureFailed
from oncemq.cli.torturing.recorder import Recorder, history_of, merged
from oncemq.cli.torturing.roles import LOAD_OVER, MAY_END
from oncemq.cli.torturing.store import open_store, unmount
from oncemq.cli.torturing.tools import NotPossible
from oncemq.cli.torturing.tracer import check_tracing
from oncemq.cli.torturing.verdict import Verdict, judge
from oncemq.cli.torturing.wires import close_wires, open_wires
from oncemq.errors import UsageError
from oncemq.limits import MIB

_COUNTS = (
    "kills",
    "broker_kills",
    "client_kills",
    "crash_points",
    "power_cuts",
    "pauses",
    "partitions",
    "one_way_partitions",
    "disk_full",
    "io_errors",
    "line_faults",
)
_FIGURES = ("put", "confirmed", "delivered", "in_doubt", "lost", "twice", "confirmed_but_missing", "told_damaged")
_LOOK_S = 0.01
_DRAIN_S = 120.0
_VERIFY_S = 300.0


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    directory: Path
    faults: tuple[str, ...]
    kills: int
    seconds: float
    seed: int

    @property
    def store_bytes(self) -> int:
        """Room for everything the run may put: it is kept for the judges."""
        return (128 + 2 * self.kills + int(self.seconds if self.seconds < float("inf") else 0) // 2) * MIB


class Harm(Protocol):
    """Who harms: one step after the other, until everything is healed."""

    strokes: int
    last: str

    def step(self) -> None: ...

    def heal(self) -> None: ...


class Performance:
    """A run. `on_step` is told how far it is after every step: kills (or strokes) so far, and the last fault."""

    def __init__(self, plan: Plan, on_step: Callable[[int, str], None]) -> None:
        self.plan = plan
        self.not_possible: dict[str, str] = {}
        self.tally: Counter[str] = Counter()
        self.store_kind = ""
        self._on_step = on_step
        self._wrongs: dict[str, list[str]] = {}

    def run(self) -> Verdict:
        with ExitStack() as world:
            try:
                with ExitStack() as players:
                    self._perform(world, players)
            except TortureFailed as failed:
                self._wrongs["process"] = [f"{failed} (the run broke off here: what was still on its way counts as lost)"]
            verdict = self._judge()
            if verdict.violations:
                self._save_journal()
        return verdict

    def _perform(self, world: ExitStack, players: ExitStack) -> None:
        cast, nemesis = self._set_up(world, players)
        self._load(nemesis)
        nemesis.heal()
        self._drain(cast)
        self._read(cast)
        cast.stop_broker()
        self._verify(cast.place)

    # --- what another kind of run does its own way -------------------------------------------------------

    def _cast(self, place: Place, random: Random, _players: ExitStack) -> Cast:
        """Who plays."""
        return Cast(place, random, crowd())

    def _nemesis(self, cast: Cast, faults: list[str], random: Random, recorder: Recorder) -> Harm:
        """Who harms them."""
        return Nemesis(cast, faults, random, recorder)

    def _read(self, cast: Cast) -> None:
        """Have everything written down that is only known in the end."""
        cast.errand("read")

    def figures(self, verdict: Verdict) -> dict[str, object]:
        """What people ask for, in their order."""
        row: dict[str, object] = {name: getattr(verdict, name) for name in _FIGURES}
        return row | {name: self.tally[name] for name in _COUNTS} | {"disk": self.store_kind}

    # --- phases ----------------------------------------------------------------------------------------

    def _set_up(self, world: ExitStack, players: ExitStack) -> tuple[Cast, Harm]:
        plan, wanted = self.plan, set(self.plan.faults)
        random = Random(f"{plan.seed}")  # noqa: S311 - replayable on purpose
        # What takes down is there before what it takes down, so that no interruption falls in between.
        world.callback(unmount, self._disk)
        world.callback(close_wires)
        store = open_store(self._disk, wanted, plan.store_bytes, self.not_possible)
        wires = open_wires(wanted, self.not_possible)
        self.store_kind = store.kind
        cast = self._cast(Place(plan.directory, store, wires, plan.seed, tally=self.tally), random, players)
        players.callback(cast.close)
        for stack in (world, players):
            stack.callback(ignore_signals)  # Cleaning up is not interrupted.
        cast.open()
        if "io_error" in wanted:
            self._check_tracing(cast)
        possible = [name for name in plan.faults if name not in self.not_possible]
        if not possible:
            raise UsageError(f"nothing of that is possible here: {self.not_possible}")
        recorder = Recorder(history_of(plan.directory, "nemesis"), "nemesis", 1)
        players.callback(recorder.close)
        return cast, self._nemesis(cast, possible, random, recorder)

    @property
    def _disk(self) -> Path:
        return self.plan.directory / "disk"

    def _check_tracing(self, cast: Cast) -> None:
        try:
            check_tracing(cast.proxy, self.plan.directory)
        except NotPossible as problem:
            self.not_possible["io_error"] = str(problem)

    def _load(self, nemesis: Harm) -> None:
        """Harm until there were enough kills, or enough of anything if kills are not among the faults."""
        deadline = time.monotonic() + self.plan.seconds
        has_kills = any(name in KILLS for name in self.plan.faults)
        done = 0
        while done < self.plan.kills and time.monotonic() < deadline:
            nemesis.step()
            done = self.tally["kills"] if has_kills else nemesis.strokes
            self._on_step(done, nemesis.last)
            time.sleep(_LOOK_S)

    def _drain(self, cast: Cast) -> None:
        """No more puts; then, once all publishers are done, no more gets than there are messages."""
        cast.may_end = True
        publishers = [client for client in cast.clients if client.role == "publish"]
        for word, waited_for in ((LOAD_OVER, publishers), (MAY_END, cast.clients)):
            (self.plan.directory / word).touch()
            self._await(cast, lambda player: player.is_done, waited_for)

    def _await(self, cast: Cast, is_done: Callable[[Player], bool], players: list[Player]) -> None:
        """Go on living until that is true of all of them."""
        deadline = time.monotonic() + _DRAIN_S
        while stuck := [player.name for player in players if not is_done(player)]:
            cast.watch()
            self._on_step(0, "healed, draining")
            if time.monotonic() > deadline:
                raise TortureFailed(f"{', '.join(stuck)} did not come to an end within {_DRAIN_S:.0f} s after all was healed")
            time.sleep(_LOOK_S)

    def _verify(self, place: Place) -> None:
        """Every checksum of what the broker left must be right."""
        command = [sys.executable, "-m", "oncemq", "verify", str(place.store.directory), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_VERIFY_S, check=False)  # noqa: S603 - ours
        if done.returncode:
            self._wrongs["verify"] = [(done.stdout + done.stderr).strip()[-500:]]

    # --- afterwards ------------------------------------------------------------------------------------

    def _judge(self) -> Verdict:
        verdict = judge(merged(self.plan.directory / "histories"))
        if verdict.told_damaged and not self.tally["power_cuts"]:
            self._wrongs["damaged"] = [f"damage was told {verdict.told_damaged} times, and no disk had gone away"]
        verdict.violations.update(self._wrongs)
        return verdict

    def _save_journal(self) -> None:
        """Save the broker's directory from a file system that goes away with the run."""
        if self._disk.is_mount():
            with suppress(OSError):
                shutil.copytree(self._disk / "broker", self.plan.directory / "broker-copy", dirs_exist_ok=True)


def ignore_signals() -> None:
    """From now on nothing interrupts. By a handler that does nothing: SIG_IGN stumbles over a signal that is just arriving."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)

# SPDX-License-Identifier: Apache-2.0
"""Those who play together, with many lives each: watched all the time, started again, and gone in the end, whatever happens.

May not: harm anybody, or excuse a death that no fault explains.
The idea: `watch` notices who has ended, compares how with what is expected of that process, and gives the next life later.
Who plays, and with which command, is said by those who inherit.
Next: processes.py for one process; cast.py for torture and chaos, demonstrating/stage.py for the demo.
"""

from __future__ import annotations

import signal
import time
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Generic, TypeVar

from oncemq.cli.exits import Exit
from oncemq.cli.signals import uninterrupted
from oncemq.cli.torturing.processes import Child, TortureFailed

DEAD_S = 0.3
"""How long somebody stays dead, at most: long enough that people see it."""


@dataclass
class Lives:
    """Somebody with many lives."""

    name: str
    role: str = ""
    _: KW_ONLY
    life: int = 0
    child: Child | None = None
    due_s: float = 0.0
    """When the next life begins."""
    is_done: bool = False

    @property
    def is_alive(self) -> bool:
        return self.child is not None and self.child.code is None


Player = TypeVar("Player", bound=Lives)


class Troupe(Generic[Player]):
    """A broker and its clients, in one directory."""

    def __init__(self, directory: Path, broker: Player, clients: list[Player]) -> None:
        self.directory = directory
        self.broker = broker
        self.clients = clients
        self.may_end = False
        """Whether clients may come to an end by themselves."""
        self._children: list[Child] = []

    def players(self) -> list[Player]:
        return [self.broker, *self.clients]

    def watch(self) -> None:
        """Notice who has ended, and start whoever is due."""
        for player in self.players():
            if player.child is not None and player.child.code is not None:
                self._on_end(player, player.child, player.child.code)
            if player.child is None and not player.is_done and time.monotonic() >= player.due_s:
                self._start(player)

    def stop_broker(self) -> None:
        """End the broker cleanly."""
        child = child_of(self.broker)
        child.signal(signal.SIGTERM)
        if (code := child.wait()) != Exit.OK:
            raise child.failed(f"was asked to stop and ended with exit code {code}")

    def close(self) -> None:
        for child in self._children:
            child.close()

    def _on_end(self, player: Player, child: Child, code: int) -> None:
        player.child = None
        player.due_s = time.monotonic() + self._dead_s()
        child.close()
        self._children.remove(child)
        if code == Exit.OK and self.may_end and player is not self.broker:
            player.is_done = True
        elif code not in child.expected:
            raise child.failed(f"(life {player.life}) ended with exit code {code}")

    def _dead_s(self) -> float:
        return DEAD_S

    def _start(self, player: Player) -> None:
        """Begin the next life of somebody."""
        player.life += 1
        player.child = self._spawn(player.name, self._command(player))

    def _command(self, player: Player) -> list[str]:
        """What to run for somebody."""
        raise NotImplementedError

    def _spawn(self, name: str, command: list[str], *, crash_at: str = "") -> Child:
        """Start a process that goes with the others."""
        with uninterrupted():  # Or a process that runs is not known here, and nobody ends it.
            child = Child(name, command, self.directory / "errors" / f"{name}.log", crash_at=crash_at)
            self._children.append(child)
        return child


def child_of(player: Lives) -> Child:
    """The process somebody has right now."""
    if player.child is None:
        raise TortureFailed(f"{player.name} does not run")
    return player.child

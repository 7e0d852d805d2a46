# SPDX-License-Identifier: Apache-2.0
"""The processes of `oncemq demo`: started, killed, started again, and gone in the end, whatever happens.

May not: kill anything but what it started itself, by its id; excuse a death that no kill explains.
The idea: a player has many lives. `watch` is called all the time and starts whoever was killed.
Next: roles.py for what clients do, director.py for who kills whom.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from oncemq.cli.demonstrating.roles import TOPIC
from oncemq.cli.exits import Exit
from oncemq.cli.torturing.processes import Child, TortureFailed
from oncemq.cli.torturing.roles import Part

PUBLISHERS = ("publisher-1", "publisher-2")
SUBSCRIBERS = ("plain", "live", "ledger")
BROKER = "broker"
_PUBLISHER_PAUSE_MS = 25
"""Between two puts, at most: tens of thousands of messages in the time of a demo, on two cores that also run Spark."""
_DEAD_S = 0.3
"""How long somebody stays dead, so that people see it."""


@dataclass
class Player:
    """Somebody with many lives."""

    name: str
    role: str
    life: int = 0
    kills: int = 0
    child: Child | None = None
    due_s: float = 0.0
    """When the next life begins."""
    is_done: bool = False

    @property
    def is_alive(self) -> bool:
        return self.child is not None and self.child.code is None


class Stage:
    """Everybody who plays, in one directory."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.address = "tcp://127.0.0.1:*"
        self._seed = seed
        self._children: list[Child] = []
        self._parents: list[Child] = []
        """Those with processes of their own, who have to end them."""
        self.broker = Player(BROKER, BROKER)
        self.publishers = [Player(name, "publish") for name in PUBLISHERS]
        self.subscribers = [Player(name, name) for name in SUBSCRIBERS]
        self.may_end = False

    def players(self) -> list[Player]:
        return [self.broker, *self.publishers, *self.subscribers]

    def open(self) -> None:
        """Start everybody: the broker, then the topic, then subscribers, then publishers."""
        self._start(self.broker)
        self.address = str(json.loads(_child(self.broker).first_line())["address"])  # From now on always this one.
        self.errand("prepare")
        for player in self.subscribers:
            self._start(player)
        for player in self.subscribers:
            _child(player).wait_until_ready()
        for player in self.publishers:
            self._start(player)

    def close(self) -> None:
        for child in self._parents:
            child.signal(signal.SIGTERM)
        for child in self._parents:
            with suppress(TortureFailed):
                child.wait()
        for child in self._children:
            child.close()

    def kill(self, player: Player) -> int | None:
        """kill -9; the id of the process that is gone, or None if it was not there."""
        if player.child is None or player.child.code is not None:
            return None
        player.child.kill()
        player.kills += 1
        return player.child.pid

    def watch(self) -> None:
        """Notice who has ended, and start whoever is due."""
        for player in self.players():
            if player.child is not None and player.child.code is not None:
                self._on_end(player, player.child, player.child.code)
            if player.child is None and not player.is_done and time.monotonic() >= player.due_s:
                self._start(player)

    def _on_end(self, player: Player, child: Child, code: int) -> None:
        player.child = None
        player.due_s = time.monotonic() + _DEAD_S
        child.close()
        self._children.remove(child)
        if code == Exit.OK and self.may_end and player is not self.broker:
            player.is_done = True
        elif code not in child.expected:
            raise child.failed(f"ended with exit code {code}")

    def errand(self, role: str) -> None:
        """Have something done through the public client."""
        child = self.spawn(role, self._command(Player("harness", role, 1)))
        if child.wait() != Exit.OK:
            raise child.failed("failed")

    def stop_broker(self) -> None:
        child = _child(self.broker)
        child.signal(signal.SIGTERM)
        if (code := child.wait()) != Exit.OK:
            raise child.failed(f"was asked to stop and ended with exit code {code}")

    def spawn(self, name: str, command: list[str], *, is_parent: bool = False) -> Child:
        """Start a process that goes with the stage. A parent is asked to end its own processes first."""
        child = Child(name, [sys.executable, "-m", *command], self.directory / "errors" / f"{name}.log")
        self._children.append(child)
        if is_parent:
            self._parents.append(child)
        return child

    def _start(self, player: Player) -> None:
        player.life += 1
        player.child = self.spawn(player.name, self._command(player))

    def _command(self, player: Player) -> list[str]:
        if player is self.broker:
            return [
                "oncemq",
                "serve",
                str(self.directory / BROKER),
                "--address",
                self.address,
                "--json",
                "--log-level",
                "warning",
            ]
        seed = f"{self._seed}-{player.name}-{player.life}"
        pause_ms = _PUBLISHER_PAUSE_MS
        part = Part(player.role, player.name, player.life, self.address, str(self.directory), (TOPIC,), seed, pause_ms)
        return ["oncemq.cli.demonstrating.roles", msgspec.json.encode(part).decode()]


def _child(player: Player) -> Child:
    if player.child is None:
        raise TortureFailed(f"{player.name} does not run")
    return player.child

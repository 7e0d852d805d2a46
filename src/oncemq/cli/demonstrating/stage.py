# SPDX-License-Identifier: Apache-2.0
"""The processes of `oncemq demo`: started, killed, started again, and gone in the end, whatever happens.

May not: kill anything but what it started itself, by its id; excuse a death that no kill explains.
The idea: a troupe like torture's (torturing/lives.py), whose kills people watch.
Next: roles.py for what clients do, director.py for who kills whom.
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from oncemq.cli.demonstrating.roles import TOPIC
from oncemq.cli.exits import Exit
from oncemq.cli.torturing.lives import Lives, Troupe, child_of
from oncemq.cli.torturing.processes import Child, TortureFailed
from oncemq.cli.torturing.roles import Part

PUBLISHERS = ("publisher-1", "publisher-2")
SUBSCRIBERS = ("plain", "live", "ledger")
BROKER = "broker"
_PUBLISHER_PAUSE_MS = 25
"""Between two puts, at most: tens of thousands of messages in the time of a demo, on two cores that also run Spark."""


@dataclass
class Player(Lives):
    """Somebody who is killed now and then."""

    kills: int = 0


class Stage(Troupe[Player]):
    """Everybody who plays in the demo."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.publishers = [Player(name, "publish") for name in PUBLISHERS]
        self.subscribers = [Player(name, name) for name in SUBSCRIBERS]
        super().__init__(directory, Player(BROKER, BROKER), [*self.publishers, *self.subscribers])
        self.address = "tcp://127.0.0.1:*"
        self._seed = seed
        self._parents: list[Child] = []
        """Those with processes of their own, who have to end them."""

    def open(self) -> None:
        """Start everybody: the broker, then the topic, then subscribers, then publishers."""
        self._start(self.broker)
        self.address = str(json.loads(child_of(self.broker).first_line())["address"])  # From now on always this one.
        self.errand("prepare")
        for player in self.subscribers:
            self._start(player)
        for player in self.subscribers:
            child_of(player).wait_until_ready()
        for player in self.publishers:
            self._start(player)

    def close(self) -> None:
        for child in self._parents:
            child.signal(signal.SIGTERM)
        for child in self._parents:
            with suppress(TortureFailed):
                child.wait()
        super().close()

    def kill(self, player: Player) -> int | None:
        """kill -9; the id of the process that is gone, or None if it was not there."""
        if player.child is None or player.child.code is not None:
            return None
        player.child.kill()
        player.kills += 1
        return player.child.pid

    def errand(self, role: str) -> None:
        """Have something done through the public client."""
        child = self._spawn(role, self._command(Player("harness", role, life=1)))
        if child.wait() != Exit.OK:
            raise child.failed("failed")

    def spawn(self, name: str, module: list[str], *, is_parent: bool = False) -> Child:
        """Start a program that goes with the stage. A parent is asked to end its own processes first."""
        child = self._spawn(name, [sys.executable, "-m", *module])
        if is_parent:
            self._parents.append(child)
        return child

    def _command(self, player: Player) -> list[str]:
        if player is self.broker:
            options = ["--address", self.address, "--json", "--log-level", "warning"]
            return [sys.executable, "-m", "oncemq", "serve", str(self.directory / BROKER), *options]
        seed = f"{self._seed}-{player.name}-{player.life}"
        pause_ms = _PUBLISHER_PAUSE_MS
        part = Part(player.role, player.name, player.life, self.address, str(self.directory), (TOPIC,), seed, pause_ms)
        return [sys.executable, "-m", "oncemq.cli.demonstrating.roles", msgspec.json.encode(part).decode()]

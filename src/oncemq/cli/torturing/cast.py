# SPDX-License-Identifier: Apache-2.0
"""Everybody who plays: the broker, its clients and the bad line. Whoever dies is started again.

May not: harm anybody; nemesis.py does. Excuse a death that no fault explains.
The idea: a troupe (lives.py) whose lives may be meant to end at a crash point, on a line and a disk that can be spoiled.
Next: lives.py for how they are watched, performance.py for the phases.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from oncemq.adapters.crash_hook import EXIT_CODE
from oncemq.cli.exits import Exit
from oncemq.cli.torturing.lives import DEAD_S, Lives, Troupe, child_of
from oncemq.cli.torturing.processes import Child
from oncemq.cli.torturing.recorder import history_of
from oncemq.cli.torturing.roles import FLEETING, Part
from oncemq.cli.torturing.store import Store
from oncemq.cli.torturing.wires import Loopback

TOPICS = ("orders", "payments", FLEETING)
SEGMENT_SIZE = "256KiB"
"""Small, so that segments roll and snapshots are cut while processes die."""
_PUBLISHERS = 3
_SUBSCRIPTIONS = (TOPICS, TOPICS[:2], TOPICS[1:])
_PAUSE_MS = 20
"""Between two puts of a publisher, at most: the load must fit into the memory of the judges."""
_BROKER = "broker"
AT = "at "
"""Before the name of a crash point, where deaths at it are counted."""


@dataclass
class Player(Lives):
    """Somebody who may be meant to end at a crash point."""

    topics: tuple[str, ...] = ()
    module: str = "roles"
    """Where its program is, beside this file."""
    own_ends: frozenset[int] = frozenset()
    """Exit codes with which it may end by itself."""
    crash_at: str = ""
    """Where the next life is to end."""
    dies_at: str = ""
    """Where this one is."""


@dataclass
class Place:
    """Where a run happens."""

    directory: Path
    store: Store
    wires: Loopback
    seed: int
    is_full: bool = False
    """Whether the broker's disk is full right now."""
    tally: Counter[str] = field(default_factory=Counter)
    database: str = ""
    """The database of those who have one."""


def crowd() -> list[Player]:
    """Who plays unless somebody else is wanted: three subscribers with different topics, and three publishers."""
    subscribers = [Player(f"sub{number}", "subscribe", topics) for number, topics in enumerate(_SUBSCRIPTIONS)]
    return subscribers + [Player(f"pub{number}", "publish", TOPICS) for number in range(_PUBLISHERS)]


class Cast(Troupe[Player]):
    def __init__(self, place: Place, random: Random, clients: list[Player]) -> None:
        super().__init__(place.directory, Player(_BROKER), clients)
        self.place = place
        self._random = random
        self.topics = tuple(dict.fromkeys(topic for client in clients for topic in client.topics))
        self.proxy: Child

    def open(self) -> None:
        """Start everybody: the broker, then topics, then subscribers, then publishers."""
        self._open_broker()
        self.proxy = self._spawn("proxy", self._proxy_command())
        self.proxy.wait_until_ready()
        self.errand("prepare")
        for client in self.clients:
            self._start(client)
            if client.role != "publish":
                child_of(client).wait_until_ready()

    def _open_broker(self) -> None:
        self._start(self.broker)
        child_of(self.broker).wait_until_ready()

    def errand(self, role: str, module: str = "roles") -> None:
        """Have something done through the public client, from where the clients are."""
        command = self._client_command(Player("harness", role, self.topics, module, life=1), self.place.wires.broker_address)
        child = self._spawn(f"harness-{role}", command)
        if child.wait() != Exit.OK:
            raise child.failed(f"could not {role}")

    # --- lives -----------------------------------------------------------------------------------------

    def _dead_s(self) -> float:
        return self._random.random() * DEAD_S

    def _on_end(self, player: Player, child: Child, code: int) -> None:
        super()._on_end(player, child, code)
        if code == EXIT_CODE:
            self.place.tally["crash_points"] += 1
            self.place.tally[f"{AT}{player.dies_at.partition(':')[0]}"] += 1
            self.count_kill(player)

    def count_kill(self, player: Player) -> None:
        self.place.tally["kills"] += 1
        self.place.tally["broker_kills" if player is self.broker else "client_kills"] += 1

    def _start(self, player: Player) -> None:
        player.life += 1
        player.dies_at, player.crash_at = player.crash_at, ""
        player.child = self._spawn(player.name, self._command(player), crash_at=player.dies_at)
        player.child.expected |= player.own_ends
        if player is self.broker and self.place.is_full:
            player.child.expected.add(Exit.DISK)  # It may start on a full disk, or say that it cannot.

    # --- commands --------------------------------------------------------------------------------------

    def _command(self, player: Player) -> list[str]:
        if player is self.broker:
            return self._broker_command()
        return self._client_command(player, self._random.choice([self.place.wires.broker_address, self._proxy_address]))

    def _broker_command(self) -> list[str]:
        wires = self.place.wires
        options = ["--address", wires.broker_address, "--segment-size", SEGMENT_SIZE, "--json"]
        return [*wires.beside_broker(), sys.executable, "-m", "oncemq", "serve", str(self.place.store.directory), *options]

    @property
    def _proxy_address(self) -> str:
        return f"tcp://127.0.0.1:{self.place.wires.proxy_port}"

    def _proxy_command(self) -> list[str]:
        wires = self.place.wires
        host, _, port = wires.broker_address.removeprefix("tcp://").rpartition(":")
        module = [sys.executable, "-m", "oncemq.cli.torturing.proxy"]
        return [*wires.beside_clients(), *module, str(wires.proxy_port), host, port]

    def _client_command(self, player: Player, address: str) -> list[str]:
        seed = f"{self.place.seed}-{player.name}-{player.life}"
        directory = str(self.place.directory)
        database = self.place.database
        part = Part(player.role, player.name, player.life, address, directory, player.topics, seed, _PAUSE_MS, database)
        module = [sys.executable, "-m", f"oncemq.cli.torturing.{player.module}", msgspec.json.encode(part).decode()]
        return [*self.place.wires.beside_clients(), *module]

    # --- how far things are ----------------------------------------------------------------------------

    def written_bytes(self) -> int:
        """How much the clients have written down: it grows while messages flow."""
        paths = [history_of(self.place.directory, client.name) for client in self.clients]
        return sum(path.stat().st_size for path in paths if path.exists())

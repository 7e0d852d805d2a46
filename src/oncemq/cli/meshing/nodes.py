# SPDX-License-Identifier: Apache-2.0
"""Nodes of a mesh as processes of this machine: started, killed with -9, started again on their directories, asked how they are.

May not: signal a process it did not start; leave one behind: `with Nodes(…)` ends all of them.
The idea: every node is `oncemq serve --mesh`, in a session of its own, at ports that are its own for all its lives. The first one
founds the mesh, the others join through a few earlier ones.
Next: crowd.py for the clients, cli/torturing/processes.py for a process.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import oncemq
from oncemq.cli.signals import uninterrupted
from oncemq.cli.torturing.ports import reserve_port
from oncemq.cli.torturing.processes import Child
from oncemq.core.packets import MeshStatusDone
from oncemq.errors import BrokerUnreachable, OnceMQError

CONTACTS = 3
"""Whom a node joins through: more than one, in case that one is down when it comes back."""
_STARTS_AT_ONCE = 4
"""More interpreters at a time than that only get in each other's way on two cores. measured: 30 nodes in 9 s."""
_PAUSE_S = 0.02


class Node:
    """One place in the mesh: a directory, two ports, and the process that runs there now, if any."""

    def __init__(self, number: int, directory: Path, port: int) -> None:
        self.number = number
        self.name = f"node-{number}"
        self.directory = directory / self.name
        self.address = f"tcp://127.0.0.1:{port}"
        self.mesh = f"tcp://127.0.0.1:{port + 1}"
        self.life = 0
        self._errors = directory / f"{self.name}.log"
        self._child: Child | None = None

    @property
    def is_up(self) -> bool:
        return self._child is not None and self._child.code is None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.code is None else None

    def start(self, join: Sequence[str], options: Sequence[str] = (), *, crash_at: str = "") -> None:
        """Start it without waiting until it serves."""
        self.life += 1
        command = [sys.executable, "-m", "oncemq", "serve", str(self.directory), "--address", self.address]
        command += ["--live-address", "tcp://127.0.0.1:*", "--mesh", self.mesh, "--json", *options]
        for contact in join:
            command += ["--join", contact]
        with uninterrupted():  # Or a node that runs is not known here, and nobody ends it.
            self._child = Child(self.name, command, self._errors, crash_at=crash_at)

    def wait_until_ready(self) -> None:
        if self._child is not None:
            self._child.wait_until_ready()

    def kill(self) -> None:
        """kill -9."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def ask_to_stop(self) -> None:
        """Ask for a clean end, without waiting for it."""
        if self._child is not None:
            self._child.signal(signal.SIGTERM)

    def wait_until_ended(self) -> int:
        """Wait for the end of a node that was asked to stop, or crashes; return its exit code."""
        if self._child is None:
            return 0
        code = self._child.wait()
        self.kill()
        return code

    def status(self) -> MeshStatusDone | None:
        """How it sees the mesh; None if it does not answer."""
        if not self.is_up:
            return None
        try:
            with oncemq.connect(self.address, offline=True) as client:
                return client.admin.mesh_status()
        except (BrokerUnreachable, OnceMQError):
            return None


class Nodes:
    """A mesh on this machine. `options` go to every node: `["--set", "heartbeat_ms=200"]`."""

    def __init__(self, directory: Path, count: int, options: Sequence[str] = ()) -> None:
        self.all = [Node(number, directory, reserve_port()) for number in range(count)]
        self._options = options

    def __getitem__(self, number: int) -> Node:
        return self.all[number]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def up(self) -> list[Node]:
        return [node for node in self.all if node.is_up]

    def contacts_of(self, node: Node) -> list[str]:
        """Through whom a node joins: earlier ones for a new node, any others for one that returns."""
        others = self.all[: node.number] if node.life == 0 else [each for each in self.all if each is not node]
        chance = random.Random(node.number)  # noqa: S311 - the same at every start
        return [each.mesh for each in chance.sample(others, min(CONTACTS, len(others)))]

    def start(self, nodes: Iterable[Node] | None = None) -> None:
        """Start these, a few at a time, and wait until they serve."""
        waiting: list[Node] = []
        for node in self.all if nodes is None else nodes:
            node.start(self.contacts_of(node), self._options)
            waiting.append(node)
            if len(waiting) >= _STARTS_AT_ONCE or node.number == 0:
                waiting.pop(0).wait_until_ready()
        for node in waiting:
            node.wait_until_ready()

    def kill(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            node.kill()

    def stop(self) -> None:
        """End all cleanly, all at once: none of them can wait for the others for long."""
        for node in self.up:
            node.ask_to_stop()
        for node in self.up:
            node.wait_until_ended()

    def views(self) -> dict[str, list[str]]:
        """Who counts whom as a neighbour, as far as nodes answer."""
        found = {node.mesh: node.status() for node in self.up}
        return {address: [each.address for each in status.neighbours] for address, status in found.items() if status is not None}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill(self.all)


def wait_until(is_so: Callable[[], bool], within_s: float) -> bool:
    """Call it again and again until it says yes; False when the time is over."""
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True

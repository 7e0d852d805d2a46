# SPDX-License-Identifier: Apache-2.0
"""What lies between clients and broker: the loopback, or two network namespaces that can be cut from each other.

May not: touch the machine's own network: nothing leaves the loopback or the namespaces made here.
The idea: broker and clients live in a namespace each, joined by a veth pair. A queue of length 0 at one end swallows every
packet without a word, which is what a partition does; at one end only it is a one-way partition.
Next: proxy.py for milder evils, nemesis.py for who decides.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from oncemq.cli.torturing.ports import reserve_port
from oncemq.cli.torturing.tools import NotPossible, do
from oncemq.limits import PORT_REQUEST

TO_BROKER, FROM_BROKER = "to_broker", "from_broker"
WAYS: dict[str, tuple[str, ...]] = {"to": (TO_BROKER,), "from": (FROM_BROKER,), "both": (TO_BROKER, FROM_BROKER)}


class Loopback:
    """Everybody in the machine's own namespace, at 127.0.0.1."""

    def __init__(self) -> None:
        self.broker_address = f"tcp://127.0.0.1:{reserve_port()}"
        self.proxy_port = reserve_port()

    def beside_broker(self) -> list[str]:
        """What to put before a command so that it runs where the broker runs."""
        return []

    def beside_clients(self) -> list[str]:
        return []

    def cut(self, way: str) -> None:
        raise NotPossible(f"the loopback cannot be cut ({way})")

    def heal(self) -> None:
        """Let everything through again."""


class Namespaces(Loopback):
    """Two namespaces and one cable."""

    def __init__(self) -> None:
        self._names = _names()
        self.broker_address = f"tcp://10.77.0.2:{PORT_REQUEST}"
        self.proxy_port = PORT_REQUEST + 1
        self._cut: set[str] = set()
        self._make()
        for way in WAYS:  # Whether it works is known only once it was done.
            self.cut(way)
            self.heal()

    def _make(self) -> None:
        clients, broker = self._names[TO_BROKER], self._names[FROM_BROKER]
        do("ip", "netns", "add", clients)
        do("ip", "netns", "add", broker)
        do("ip", "-n", clients, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", broker)
        for name, address in ((clients, "10.77.0.1/30"), (broker, "10.77.0.2/30")):
            do("ip", "-n", name, "address", "add", address, "dev", "cable")
            do("ip", "-n", name, "link", "set", "lo", "up")
            do("ip", "-n", name, "link", "set", "cable", "up")

    # nsenter instead of `ip netns exec`, which would give every process its own copy of all mounts: a client would then
    # hold the broker's file system, and no power cut could unmount it.
    def beside_broker(self) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self._names[FROM_BROKER]}"]

    def beside_clients(self) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self._names[TO_BROKER]}"]

    def cut(self, way: str) -> None:
        """Swallow what goes one way, or both."""
        for direction in set(WAYS[way]) - self._cut:
            do("tc", "-n", self._names[direction], "qdisc", "add", "dev", "cable", "root", "pfifo", "limit", "0")
            self._cut.add(direction)

    def heal(self) -> None:
        for direction in list(self._cut):
            do("tc", "-n", self._names[direction], "qdisc", "del", "dev", "cable", "root")
            self._cut.discard(direction)


def open_wires(faults: set[str], not_possible: dict[str, str]) -> Loopback:
    """Namespaces if a partition is wanted and possible, else the loopback."""
    if "partition" in faults:
        try:
            return Namespaces()
        except NotPossible as problem:
            not_possible["partition"] = str(problem)
            close_wires()
    return Loopback()


def close_wires() -> None:
    """Take away the namespaces of this run, if there are any."""
    for name in _names().values():
        if Path("/run/netns", name).exists():
            with suppress(NotPossible):
                do("ip", "netns", "delete", name)


def _names() -> dict[str, str]:
    """The namespaces, by the direction that their end of the cable sends to: clients to the broker, the broker back."""
    return {TO_BROKER: f"oncemq-{os.getpid()}-c", FROM_BROKER: f"oncemq-{os.getpid()}-b"}

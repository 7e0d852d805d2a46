# SPDX-License-Identifier: Apache-2.0
"""`oncemq.Broker(directory)`: a broker inside this process, for tests and scripts. Same engine, same promises.

May not: differ from `oncemq serve` in anything but where it runs.
The idea: the one loop runs in a thread of its own; the calling thread only starts and stops it.
Next: engine/loop.py.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict, Unpack

from oncemq.adapters.os_disk import OsDisk
from oncemq.adapters.system import SystemClock, SystemDice, SystemEntropy
from oncemq.adapters.zmq_mesh import ZmqLinks
from oncemq.adapters.zmq_network import ZmqNetwork
from oncemq.engine.loop import BrokerLoop, BrokerSettings
from oncemq.engine.mesh import MeshTerms
from oncemq.journal.journal import JournalSettings
from oncemq.limits import SEGMENT_BYTES
from oncemq.mesh.settings import MeshSettings
from oncemq.model.retention import retention_text
from oncemq.version import VERSION


@dataclass(frozen=True, slots=True)
class MeshPlace:
    """Where a node listens for other nodes, and through whom it joins them. `advertised` is how others reach it."""

    address: str
    join: tuple[str, ...] = ()
    advertised: str = ""
    settings: MeshSettings = field(default_factory=MeshSettings)


class BrokerOptions(TypedDict, total=False):
    """What a broker may be told; `retain` and `limit` are for topics that a subscription creates."""

    retain: str
    limit: str
    segment_bytes: int
    accept_loss: bool
    live_address: str
    mesh: MeshPlace | None


def open_broker(directory: str | Path, address: str, **options: Unpack[BrokerOptions]) -> tuple[BrokerLoop, ZmqNetwork]:
    """Recover a directory and listen at an address; nothing is served before `step` is called."""
    texts = (options.get("retain", ""), options.get("limit", ""))
    retain, limit = (retention_text(text) if text else "" for text in texts)
    disk = OsDisk(directory)
    network = ZmqNetwork(address, options.get("live_address", ""))
    segment_bytes, accept_loss = options.get("segment_bytes", SEGMENT_BYTES), options.get("accept_loss", False)
    journal = JournalSettings(segment_bytes=segment_bytes, accept_loss=accept_loss)
    settings, mesh = BrokerSettings(journal, retain, limit, VERSION), options.get("mesh")
    try:
        terms = _terms(network, mesh) if mesh is not None else None
        loop = BrokerLoop.open(disk, network, SystemClock(), SystemEntropy(), settings, terms)
    except BaseException:
        network.close()
        raise
    return loop, network


def _terms(network: ZmqNetwork, place: MeshPlace) -> MeshTerms:
    links = ZmqLinks(network, place.address, place.advertised)
    return MeshTerms(links, SystemDice(), place.join, place.settings)


class Broker:
    """A broker in a thread of this process.

    with oncemq.Broker("data") as broker, oncemq.connect(broker.address, id="me", state="me") as client:
        ...
    """

    def __init__(self, directory: str | Path, address: str = "tcp://127.0.0.1:*", **options: Unpack[BrokerOptions]) -> None:
        self._loop, self._network = open_broker(directory, address, **options)
        self.address = self._network.address
        """Where it listens; a free port unless an address was given."""
        self.live_address = self._network.live_address
        """Where it publishes to live subscribers; they are told, nobody needs to know it."""
        self._is_stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="oncemq-broker", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set() and self._loop.step(wait_ms_max=50):
                pass
            self._loop.depart()
            self._loop.stop()
        except BaseException as problem:
            self._loop.abandon()
            self._failure = problem
        finally:
            self._network.close()

    def stop(self) -> None:
        """Stop cleanly and raise what ended the broker before, if anything did."""
        self._is_stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

# SPDX-License-Identifier: Apache-2.0
"""`oncemq.Broker(directory)`: a broker inside this process, for tests and scripts. Same engine, same promises.

May not: differ from `oncemq serve` in anything but where it runs.
The idea: the one loop runs in a thread of its own; the calling thread only starts and stops it.
Next: engine/loop.py.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from oncemq.adapters.os_disk import OsDisk
from oncemq.adapters.system import SystemClock, SystemEntropy
from oncemq.adapters.zmq_network import ZmqNetwork
from oncemq.engine.loop import BrokerLoop, BrokerSettings
from oncemq.journal.journal import JournalSettings
from oncemq.limits import SEGMENT_BYTES
from oncemq.model.retention import retention_text
from oncemq.version import VERSION


def open_broker(
    directory: str | Path,
    address: str,
    *,
    retain: str = "",
    limit: str = "",
    segment_bytes: int = SEGMENT_BYTES,
    accept_loss: bool = False,
    live_address: str = "",
) -> tuple[BrokerLoop, ZmqNetwork]:
    """Recover a directory and listen at an address; nothing is served before `step` is called."""
    wanted = [retention_text(text) if text else "" for text in (retain, limit)]
    disk = OsDisk(directory)
    network = ZmqNetwork(address, live_address)
    settings = BrokerSettings(
        JournalSettings(segment_bytes=segment_bytes, accept_loss=accept_loss), wanted[0], wanted[1], VERSION
    )
    try:
        loop = BrokerLoop.open(disk, network, SystemClock(), SystemEntropy(), settings)
    except BaseException:
        network.close()
        raise
    return loop, network


class Broker:
    """A broker in a thread of this process.

    with oncemq.Broker("data") as broker, oncemq.connect(broker.address, id="me", state="me") as client:
        ...
    """

    def __init__(
        self,
        directory: str | Path,
        address: str = "tcp://127.0.0.1:*",
        *,
        retain: str = "",
        limit: str = "",
        segment_bytes: int = SEGMENT_BYTES,
        accept_loss: bool = False,
        live_address: str = "",
    ) -> None:
        self._loop, self._network = open_broker(
            directory,
            address,
            retain=retain,
            limit=limit,
            segment_bytes=segment_bytes,
            accept_loss=accept_loss,
            live_address=live_address,
        )
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

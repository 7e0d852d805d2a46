# SPDX-License-Identifier: Apache-2.0
"""A whole service in one process: a broker on a SimDisk, clients on theirs, and somebody who pulls plugs.

May not: contain a rule of the product. The broker is engine/loop.py, the clients are client/client.py, as shipped.
The idea: `world.run(lambda: ...)` runs ordinary blocking code as a simulated process and returns its result; brokers and clients
can be killed, cut from power, set back to older disks or paused between any two events.
Next: sim/scheduler.py for time, sim/network.py and sim/disk.py for what can go wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from oncemq.client.client import Client
from oncemq.client.gets import Gets
from oncemq.client.puts import Puts
from oncemq.client.session import Session
from oncemq.client.state import DirectoryState, NoState, State
from oncemq.core.publisher import Publisher
from oncemq.engine.loop import BrokerLoop, BrokerSettings
from oncemq.journal.journal import JournalSettings
from oncemq.model.names import EPHEMERAL_PREFIX
from oncemq.sim.disk import SimDisk
from oncemq.sim.network import SimLink, SimNetwork
from oncemq.sim.scheduler import Killed, Process, Scheduler, SimClock, SimEntropy

Result = TypeVar("Result")
_SMALL = JournalSettings(segment_bytes=64 * 1024, reserve_bytes=8 * 1024, segment_records_max=500)
"""Segments so small that ordinary runs roll, snapshot and trim many times."""


class SimClient(Client):
    """The shipped client, but for one thing: whoever was killed has closed nothing, and is not warned about."""

    def __del__(self) -> None:
        pass


class World:
    """One seeded world with one broker."""

    def __init__(
        self,
        seed: int = 0,
        *,
        settings: JournalSettings = _SMALL,
        retain: str = "",
        limit: str = "",
        scheduler: Scheduler | None = None,
    ) -> None:
        self.scheduler = scheduler or Scheduler(seed)
        self.clock = SimClock(self.scheduler)
        self.entropy = SimEntropy(self.scheduler.random("entropy"))
        self.network = SimNetwork(self.scheduler)
        self.disk = SimDisk(seed)
        self.sync_us_max = 0
        """How long a sync may take. Time passes in it, and whoever syncs may die meanwhile."""
        self.on_sync: Callable[[], None] = lambda: None
        """Called by whoever is about to sync: an instant at which much is lost with the power."""
        self.on_up: Callable[[], None] = lambda: None
        """Called when a broker has recovered and begins to serve."""
        self.on_turn: Callable[[BrokerLoop], None] = lambda _: None
        """Called after that, and whenever it has done all that had arrived: what it knows then is synced."""
        self.repair: Callable[[], None] = lambda: None
        """Called by an application that cannot get what it wants: an operator looks after the broker's disk."""
        self.topic_ids: dict[str, str] = {}
        """Of the topics that were there before anybody came: what an actor says of a put whose receipt is still to come."""
        self.restores = 0
        """How often the broker's directory was set back."""
        self._syncing = self.scheduler.random("sync")
        self.disk.before_sync = self._sync_takes_time
        self.disks: dict[str, SimDisk] = {}
        self.loop: BrokerLoop | None = None
        self.segment_bytes = settings.segment_bytes
        self._settings = BrokerSettings(settings, retain, limit, "sim")
        self._broker: Process | None = None

    # --- the broker ----------------------------------------------------------------------------------

    def start_broker(self) -> None:
        """Start a broker on the disk as it is now, and let it recover."""
        self.launch_broker()
        self.scheduler.wait_until(lambda: self.network.is_up or not self.is_broker_running)
        self.raise_broker_error()

    def launch_broker(self) -> None:
        """Start a broker without waiting until it has recovered."""
        self._broker = self.scheduler.spawn("broker", self._serve)

    def _serve(self) -> None:
        try:
            self.loop = self.open_loop()
            self.network.come_up()
            self.on_up()
            self.on_turn(self.loop)
            while self.loop.step():
                self.on_turn(self.loop)
            self.on_turn(self.loop)
            self.loop.stop()
        finally:
            self.network.go_down()
            self.disk.kill()  # However it ended, the process is gone, and its lock with it.

    def open_loop(self) -> BrokerLoop:
        """Recover the disk as it is now."""
        return BrokerLoop.open(self.disk, self.network, self.clock, self.entropy, self._settings)

    @property
    def is_broker_running(self) -> bool:
        return self._broker is not None and self._broker.is_running

    def raise_broker_error(self) -> None:
        """Raise what ended the broker, if it did not end well."""
        if self._broker is not None and self._broker.error is not None:
            raise self._broker.error

    @property
    def broker_error(self) -> BaseException | None:
        return self._broker.error if self._broker is not None else None

    def kill_broker(self) -> None:
        """kill -9: the cache survives."""
        self.scheduler.do(self._kill_broker)

    def _kill_broker(self) -> None:
        self.disk.kill()  # First: whatever the dying process still tries must reach nothing.
        if self._broker is not None:
            self._broker.kill()
        self.network.go_down()

    def cut_power(self) -> None:
        """The broker's machine dies: only what was synced is sure to be there."""
        self.kill_broker()
        self.disk.power_cut()

    def restart_broker(self, *, power_cut: bool = False) -> None:
        if power_cut:
            self.cut_power()
        else:
            self.kill_broker()
        self.start_broker()

    # --- clients -------------------------------------------------------------------------------------

    def client_disk(self, client: str) -> SimDisk:
        if client not in self.disks:
            self.adopt_disk(client, SimDisk(self.scheduler.seed))
        return self.disks[client]

    def adopt_disk(self, client: str, disk: SimDisk) -> None:
        """Give a client another disk: a new one, or a copy of somebody's."""
        disk.before_sync = self._sync_takes_time
        self.disks[client] = disk

    def _sync_takes_time(self) -> None:
        self.on_sync()
        if self.sync_us_max and self.scheduler.running is not None:
            self.scheduler.running.wait(self._syncing.randrange(self.sync_us_max))

    def connect(
        self,
        client: str | None = None,
        *,
        disk: SimDisk | None = None,
        in_doubt: str = "raise",
        takeover: bool = False,
        offline: bool = False,
        link: SimLink | None = None,
    ) -> Client:
        """What oncemq.connect does, on simulated ports. To be called inside `run` or a spawned process."""
        session_id = self.entropy.id16()
        state: State
        if client is None:
            state = NoState(EPHEMERAL_PREFIX + self.entropy.id16().hex())
        else:
            state = DirectoryState(disk or self.client_disk(client), client, client, session_id)
        link = link or SimLink(self.network, self.scheduler, client or "ephemeral")
        session = Session(link, self.clock, state, session_id=session_id, address="sim", takeover=takeover)
        made = SimClient(session, Puts(session, Publisher(session_id)), Gets(session, in_doubt=in_doubt))
        try:
            if not offline:
                session.ensure()
        except BaseException:
            made._abandon()
            raise
        return made

    def crash_client(self, client: Client, *, power_cut: bool = False) -> None:
        """Let a client die between two calls: kill -9, or with its whole machine."""
        disk = self.client_disk(client.id)
        disk.kill()
        client._forget()
        if power_cut:
            disk.power_cut()

    # --- running -------------------------------------------------------------------------------------

    def spawn(self, name: str, body: Callable[[], None]) -> Process:
        return self.scheduler.spawn(name, body)

    def run(self, body: Callable[[], Result], *, limit_us: int = 600_000_000) -> Result:
        """Run blocking code as a process of this world until it returns; raise what it raises."""
        box: list[Result] = []
        process = self.scheduler.spawn("script", lambda: box.append(body()))
        if not self.scheduler.run(until=lambda: not process.is_running, limit_us=limit_us):
            process.kill()
            raise TimeoutError("the script did not end within its simulated time")
        if process.error is not None:
            raise process.error
        return box[0]

    def pass_time(self, duration_ms: int) -> None:
        """Let the world go on for a while."""
        due_us = self.scheduler.time_us + duration_ms * 1000
        self.scheduler.after(duration_ms * 1000, lambda: None)
        self.scheduler.run(until=lambda: self.scheduler.time_us >= due_us)


__all__ = ["Killed", "World"]

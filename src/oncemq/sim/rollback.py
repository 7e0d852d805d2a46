# SPDX-License-Identifier: Apache-2.0
"""Somebody who restores backups: directories of broker and clients, and databases of applications, are set back to older copies.

May not: put back a copy that still knows the client's current session: nobody can tell that from a crash (docs/guarantees.md).
The idea: a copy is made now and takes the directory's place later. Whoever has seen what came between must be refused or told,
never served in silence: sim/forks.py is the law. A clone is a second directory that is started while the first is in use.
Next: sim/swarm.py, which calls; sim/actors.py for what an application does when it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from sqlite3 import Connection
from typing import Protocol

from oncemq.sim.actors import Actor, Publisher, Subscriber
from oncemq.sim.disk import SimDisk
from oncemq.sim.forks import BROKER
from oncemq.sim.history import History
from oncemq.sim.ledger import Ledger
from oncemq.sim.world import World

DELAY_US_MAX = 4_000_000
"""How old a copy gets before it is put back."""
LOOK_US, LOOKS_MAX = 20_000, 200
"""How often, and how many times, to look whether the broker is away."""


class Place(Protocol):
    """What is needed of a swarm."""

    world: World
    history: History
    actors: list[Actor]

    @property
    def is_healed(self) -> bool: ...

    def note(self, operation: str, **fields: str | int | bool | None) -> None: ...

    def give_life(self, actor: Actor) -> None: ...


@dataclass(frozen=True, slots=True)
class Copy:
    """A backup: the disk as it was, after how many events, and the life of its owner that must be over before it is put back."""

    disk: SimDisk
    copied: int
    life: int = 0


class Rollback:
    """The restorer of one world."""

    def __init__(self, place: Place, random: Random) -> None:
        self._place = place
        self._world = place.world
        self._random = random
        self._broker_copy: Copy | None = None
        self._is_set_back = False
        self._world.on_up = self._at_up

    # --- the broker's directory ------------------------------------------------------------------------

    def set_broker_back(self) -> None:
        """Copy the broker's directory now, and put the copy in its place later. One at a time.

        Not before everybody has subscribed: in an older copy what is put is rightly not stored, for want of interest.
        """
        if self._broker_copy is not None or self._place.is_healed:
            return
        if not all(actor.has_subscribed for actor in self._place.actors if isinstance(actor, Subscriber)):
            self._later(self.set_broker_back)
            return
        copy = self._world.disk.copy()
        if self._random.random() < 0.5:
            copy.power_cut()  # As a snapshot of the volume under a running broker is.
        self._broker_copy = Copy(copy, len(self._place.history.events))
        self._later(self._restore_broker)

    def _restore_broker(self) -> None:
        copy = self._broker_copy
        if copy is None or self._is_set_back or self._place.is_healed:
            return
        self._world.kill_broker()
        self._world.disk.set_back(copy.disk)
        self._world.restores += 1
        self._is_set_back = True

    def _at_up(self) -> None:
        """A broker serves. From now on, if its directory was set back, what came after the copy never happened."""
        if self._is_set_back and self._broker_copy is not None:
            self._place.note("set_back", name=BROKER, copied=self._broker_copy.copied)
            self._is_set_back, self._broker_copy = False, None

    # --- clients' directories --------------------------------------------------------------------------

    def set_client_back(self) -> None:
        """Copy a client's directory, half of the time while the broker is away, and put it back one or two lives later."""
        actors = self._place.actors
        if self._random.random() < 0.5:  # They have most to lose: what is on its way is in their directories only.
            actors = [actor for actor in actors if isinstance(actor, Publisher)]
        self._copy_client(self._random.choice(actors), self._random.choice([0, LOOKS_MAX]))

    def _copy_client(self, actor: Actor, looks: int) -> None:
        """Copy now, or look again soon: a directory is the more interesting the more is on its way."""
        if looks and self._world.network.is_up:
            self._world.scheduler.after(LOOK_US, partial(self._copy_client, actor, looks - 1))
            return
        copied, life = len(self._place.history.events), actor.life + self._random.randrange(2)
        self._later(partial(self._restore_client, actor, Copy(self._world.client_disk(actor.name).copy(), copied, life)))

    def clone_publisher(self) -> None:
        """Start a second process on a copy of a publisher's directory; put the first directory back some time later."""
        actor = self._random.choice([actor for actor in self._place.actors if isinstance(actor, Publisher)])
        if actor.is_done or actor.life_taken_over or actor.process is None or not actor.process.is_running:
            return
        actor.life_taken_over = True
        original = Copy(self._world.client_disk(actor.name), len(self._place.history.events), actor.life)
        self._place.note("taken_over", name=actor.name)
        self._world.adopt_disk(actor.name, original.disk.copy())
        self._place.give_life(actor)
        self._later(partial(self._restore_client, actor, original))

    def _restore_client(self, actor: Actor, copy: Copy) -> None:
        if self._place.is_healed or actor.is_done:
            return
        disk = self._world.client_disk(actor.name)
        disk.kill()
        if actor.process is not None and actor.process.is_running:
            actor.process.kill()
        if actor.welcomed_life <= copy.life:
            self._later(partial(self._restore_client, actor, copy))
            return
        disk.set_back(copy.disk)
        self._place.note("set_back", name=actor.name, copied=copy.copied)

    # --- databases of applications ---------------------------------------------------------------------

    def set_database_back(self) -> None:
        """Copy the database of an application now, and put the copy in its place later, while the application is dead."""
        ledgers = [actor for actor in self._place.actors if isinstance(actor, Ledger)]
        if not ledgers or self._place.is_healed:
            return
        ledger = self._random.choice(ledgers)
        copy = ledger.copy()
        if copy is None:
            self._world.scheduler.after(LOOK_US, self.set_database_back)
            return
        self._later(partial(self._restore_database, ledger, copy, len(self._place.history.events)))

    def _restore_database(self, ledger: Ledger, copy: Connection, copied: int) -> None:
        if self._place.is_healed or ledger.is_done:
            return
        self._world.client_disk(ledger.name).kill()
        if ledger.process is not None and ledger.process.is_running:
            ledger.process.kill()
        ledger.set_back(copy)
        self._place.note("set_back", name=ledger.name, copied=copied)

    def _later(self, action: Callable[[], None]) -> None:
        self._world.scheduler.after(self._random.randrange(DELAY_US_MAX), action)

# SPDX-License-Identifier: Apache-2.0
"""Who harms: one fault after the other, drawn from a seed, some of them lasting while others strike.

May not: harm anything but the processes, mounts and namespaces of its own run; go on after `heal`.
The idea: a stroke is a method that says whether it could strike. Lasting faults leave behind how to end them and when. Between
two strokes messages must have flowed, so that every stroke meets a load, unless a lasting fault keeps them from it.
Next: store.py, wires.py and proxy.py for the means; cast.py for the victims.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from random import Random

from oncemq.cli.exits import Exit
from oncemq.cli.torturing.cast import Cast, Player
from oncemq.cli.torturing.processes import Child
from oncemq.cli.torturing.recorder import Recorder
from oncemq.cli.torturing.tracer import fail_next_call
from oncemq.cli.torturing.wires import WAYS
from oncemq.crashpoints import POINTS

WEIGHTS: dict[str, int] = {
    "broker_kill": 6,
    "client_kill": 3,
    "crash_point": 3,
    "pause": 1,
    "partition": 1,
    "disk_full": 1,
    "io_error": 1,
    "power_cut": 1,
    "line": 1,
}
"""Every fault, and how often it is drawn."""
KILLS = ("broker_kill", "client_kill", "crash_point")
_COUNTED_AS = {"pause": "pauses", "partition": "partitions", "line": "line_faults"}
_BETWEEN_S = 0.25
_FLOW_BYTES = 4_000
_FLOW_S = 3.0
_LASTING_S = (1.0, 5.0)
_BEFORE_DEAD_DISK_S = 0.1
_POINTS = [point for point in POINTS if not point.endswith(("_commit", "_row"))]
"""Where the clients of a torture come by: they use no transactions (spread.py has those)."""
_RARE_HITS, _FREQUENT_HITS = 2, 40
"""A crash point ends a life at one of its first so many hits."""


class Nemesis:
    def __init__(self, cast: Cast, faults: list[str], random: Random, recorder: Recorder) -> None:
        self.cast = cast
        self.place = cast.place
        self._faults = faults
        self._random = random
        self._recorder = recorder
        self._strokes: dict[str, Callable[[], bool]] = {
            "broker_kill": self._kill_broker,
            "client_kill": self._kill_client,
            "crash_point": self._crash_point,
            "pause": self._pause,
            "partition": self._partition,
            "disk_full": self._disk_full,
            "io_error": self._io_error,
            "power_cut": self._power_cut,
            "line": self._line,
        }
        self._lasting: dict[str, tuple[float, Callable[[], None]]] = {}
        """When a lasting fault ends, and how."""
        self._due_s = time.monotonic()
        self._written_bytes = cast.written_bytes()
        self.strokes = 0
        self.last = ""

    def step(self) -> None:
        """Do what is due now: end lasting faults, start whoever died, strike."""
        self.cast.watch()
        for name, (due_s, _) in list(self._lasting.items()):
            if time.monotonic() >= due_s:
                self._end(name)
        waited_s = time.monotonic() - self._due_s
        has_flown = self.cast.written_bytes() - self._written_bytes > _FLOW_BYTES
        if waited_s >= 0 and (has_flown or waited_s > _FLOW_S):
            self._strike()

    def heal(self) -> None:
        """End everything that lasts."""
        for name in list(self._lasting):
            self._end(name)
        for player in self.cast.players():
            player.crash_at = ""

    def _end(self, name: str) -> None:
        _, undo = self._lasting.pop(name)
        undo()

    def _last(self, name: str, undo: Callable[[], None]) -> None:
        self._lasting[name] = time.monotonic() + self._random.uniform(*_LASTING_S), undo

    def _strike(self) -> None:
        possible = [name for name in self._faults if name not in self._lasting]
        if not possible:
            return
        name = self._random.choices(possible, [WEIGHTS[name] for name in possible])[0]
        if self._strokes[name]():
            self.strokes += 1
            self.last = name
            self.place.tally[_COUNTED_AS.get(name, "")] += 1
            self._recorder.note("ok", "fault", name=name)
        self._due_s = time.monotonic() + self._random.random() * _BETWEEN_S
        self._written_bytes = self.cast.written_bytes()

    # --- processes -------------------------------------------------------------------------------------

    def _kill_broker(self) -> bool:
        return self._kill(self.cast.broker)

    def _kill_client(self) -> bool:
        return self._kill(self._random.choice(self.cast.clients))

    def _kill(self, player: Player) -> bool:
        if player.child is None or not player.is_alive or player.child.is_to_crash():
            return False
        player.child.kill()
        self.cast.count_kill(player)
        return True

    def _crash_point(self) -> bool:
        """Kill somebody, and have the next life end at a crash point."""
        player = self._random.choice([self.cast.broker, self._random.choice(self.cast.clients)])
        is_broker = player is self.cast.broker
        point = self._random.choice([point for point in _POINTS if point.startswith("client.") != is_broker])
        is_rare = point.startswith("journal.") or point == "client.before_state_rename"
        if player.child is None or player.child.is_to_crash():
            return False
        player.crash_at = f"{point}:{self._random.randint(1, _RARE_HITS if is_rare else _FREQUENT_HITS)}"
        return self._kill(player)

    def _pause(self) -> bool:
        """Stop somebody who then goes on as if nothing had happened."""
        player = self._random.choice([self.cast.broker, self._random.choice(self.cast.clients)])
        child = player.child
        if child is None:
            return False
        child.signal(signal.SIGSTOP)
        self._last("pause", partial(child.signal, signal.SIGCONT))
        return True

    # --- network ---------------------------------------------------------------------------------------

    def _partition(self) -> bool:
        way = self._random.choice(list(WAYS))
        self.place.wires.cut(way)
        self.place.tally["one_way_partitions"] += way != "both"
        self._last("partition", self.place.wires.heal)
        return True

    def _line(self) -> bool:
        order = self._random.choice(
            ["reset", f"delay {self._random.randrange(5, 400)}", f"slice {self._random.randrange(1, 50)}"]
        )
        self.cast.proxy.order(order)
        self._last("line", partial(self.cast.proxy.order, "calm"))
        return True

    # --- disk ------------------------------------------------------------------------------------------

    def _disk_full(self) -> bool:
        if self.cast.broker.child is not None:
            self.cast.broker.child.expected.add(Exit.DISK)
        self.place.is_full = True
        self.place.store.fill()
        self.place.tally["disk_full"] += 1
        self._last("disk_full", self._free_disk)
        return True

    def _free_disk(self) -> None:
        self.place.store.free()
        self.place.is_full = False

    def _io_error(self) -> bool:
        """Have one write or sync of the broker fail; often the power goes as well, and takes what was never synced."""
        child = self.cast.broker.child
        if child is None or "pause" in self._lasting:
            return False
        child.expected.add(Exit.DISK)
        call = self._random.choices(["fdatasync", "pwritev", "fsync"], [7, 2, 1])[0]
        fail_next_call(child, call, self.place.directory)
        if child.code is None:
            return False  # It had nothing to write meanwhile.
        self.place.tally["io_errors"] += 1
        if "power_cut" in self._faults and self._random.random() < 0.5:
            self._lose_power()
        return True

    def _power_cut(self) -> bool:
        """Cut the power under a running broker; sometimes right after a kill, while the next one is just recovering."""
        if self._random.random() < 0.3 and self._kill(self.cast.broker):
            self.cast.watch()
            self.cast.broker.due_s = 0.0
            self.cast.watch()
            time.sleep(self._random.random())
        self._lose_power()
        return True

    def _lose_power(self) -> None:
        """Broker and disk at the same instant, or the disk alone, and the broker has to notice."""
        child, store = self.cast.broker.child, self.place.store
        if child is None:
            store.cut_power()
        elif self._random.random() < 0.5:
            child.shoot()  # A sync on its way may still be torn, but nobody hears of it any more.
            store.cut_power()
            child.kill()
        else:
            self._lose_disk(child)
        store.bring_back()
        self.place.tally["power_cuts"] += 1

    def _lose_disk(self, child: Child) -> None:
        """Cut the power of the disk alone, while no sync is on its way.

        Linux may report such a sync as done although it is lost with the file system: a bare loop of pwrite and fdatasync
        shows it in some of 60 cuts. No machine without power reports anything, so this must not happen to the broker.
        """
        child.expected.add(Exit.DISK)
        child.freeze()
        self.place.store.cut_power()
        child.signal(signal.SIGCONT)
        time.sleep(self._random.random() * _BEFORE_DEAD_DISK_S)
        child.kill()

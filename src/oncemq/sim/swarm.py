# SPDX-License-Identifier: Apache-2.0
"""One seed, one world gone wrong. Load with faults, heal, drain, judge.

May not: use any randomness but named streams of the seed: the same seed is the same history, to the byte.
The idea: the plan says who lives there and which faults are on; here they strike. After the load everything is healed; then every
promise must have been kept and everything must end.
Next: sim/plan.py for what is drawn, sim/people.py for who lives there, sim/checkers.py for who judges.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from oncemq import crashpoints
from oncemq.client.client import Client
from oncemq.core.packets import TopicInfo
from oncemq.errors import DiskFull, Gap, OnceMQError, SyncFailed, WorldError
from oncemq.model.message import Message
from oncemq.sim.actors import PADDING, Actor, Publisher, Subscriber
from oncemq.sim.callers import Caller
from oncemq.sim.checkers import check
from oncemq.sim.cursors import CursorWatch
from oncemq.sim.cuts import Cut
from oncemq.sim.disk import SimDisk
from oncemq.sim.history import Event, History
from oncemq.sim.network import DELIVER, DROP, TO_BROKER, TO_CLIENT, Transit, Verdict
from oncemq.sim.people import Place, create_topics, people_of
from oncemq.sim.plan import LINE_CLASSES, plan_of
from oncemq.sim.plug import Plug
from oncemq.sim.rollback import Rollback
from oncemq.sim.rot import Rot
from oncemq.sim.scheduler import Killed, Process, stream, without_collector
from oncemq.sim.sleepers import draw_settings
from oncemq.sim.stagers import Stager
from oncemq.sim.world import World

PATIENCE_US = 300_000_000
"""Simulated time after which a world that goes on is stuck; sound ones end within 70 s or so."""
LIVES_MAX = 100
"""Whoever begins as many lives gets nowhere: sound worlds have 16 of one actor at most, of a hundred and sixty looked at."""
EVENTS_MAX = 50_000
"""Who turns round and round in one life uses up events, and hardly any time; of 250 sound worlds the busiest had 9,300."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed gave."""

    seed: int
    digest: str
    messages: int
    faults: int
    crashes: int
    packets: int
    simulated_us: int
    violations: dict[str, list[str]]


class Swarm:
    """One run of one seed."""

    def __init__(self, seed: int, cut: Cut | None = None) -> None:
        self.seed = seed
        self._cut = cut or Cut()
        drawn = plan_of(partial(stream, seed))
        self.plan = self._cut.of(drawn)
        settings = draw_settings(stream(seed, "plan/journal"), is_sparse=bool(drawn.sleepers))
        self.world = World(seed, settings=settings)
        self.scheduler = self.world.scheduler
        self.history = History()
        self.random = self.scheduler.random("nemesis")
        self.line = self.scheduler.random("line")
        self.actors: list[Actor] = []
        self._readers: list[Subscriber] = []
        self._writers: list[Publisher | Stager | Caller] = []
        self._unfinished: list[Actor] = []
        self.strikes = 0
        """Faults drawn for instants; a cut may leave some out."""
        self.faults = 0
        self.crashes = 0
        self.is_healed = False
        self._is_hopeless = False
        self._is_cut_off = False
        self._crash_in = 0
        self._is_cut_in_sync = False
        self._broker_due_us: int | None = None
        self._disks: dict[Process, SimDisk] = {}
        """Whose directory is where: after a takeover two processes of one name have one each."""
        self._later = self.scheduler.random("nemesis/later")
        self._rollback = Rollback(self, self._later)
        self._rot = Rot(self.world.disk, self._later)
        self._blocked: tuple[str, str] | None = None
        """Direction and link of a one-way partition; no link means everybody's."""

    # --- phases --------------------------------------------------------------------------------------

    def run(self, *, is_judged: bool = True) -> Outcome:
        """Live this world to its end. Whoever only compares histories leaves the judgement to a twin."""
        with without_collector():
            return self._run(is_judged=is_judged)

    def _run(self, *, is_judged: bool) -> Outcome:
        crashpoints.install(self._at_crash_point)
        try:
            self._set_up()
            self._schedule_faults()
            is_over = self.scheduler.run(until=self._is_over, limit_us=PATIENCE_US) and not self._unfinished
            if is_over:
                self.world.run(self._read_logs)
        finally:
            crashpoints.install(None)
            self.scheduler.end()
        violations = check(self.history.events) if is_judged else {}
        if not is_over:
            stuck = [actor.name for actor in self.actors if not actor.is_done]
            violations["stuck"] = [
                f"{', '.join(stuck)} did not end within the simulated time, a hundred lives, or {EVENTS_MAX:,} events"
            ]
        return self._outcome(violations)

    def _is_over(self) -> bool:
        """Whether everybody is done, or never will be. Asked after every event: nobody is looked at again who was found done."""
        while self._unfinished and self._unfinished[-1].is_done:
            self._unfinished.pop()
        return not self._unfinished or self._is_hopeless or self.scheduler.events > EVENTS_MAX

    def _outcome(self, violations: dict[str, list[str]]) -> Outcome:
        messages = len({event["message"] for event in self.history.events if event["op"] == "put" and event["kind"] == "invoke"})
        return Outcome(
            self.seed,
            f"{self.history.digest()}-{self.world.network.trace.hexdigest()}",
            messages,
            self.faults,
            self.crashes,
            self.world.network.packets,
            self.scheduler.time_us,
            violations,
        )

    def _set_up(self) -> None:
        self.world.on_turn = CursorWatch(self.history, self.scheduler).look
        self.world.network.on_change = lambda is_up: self.note("up" if is_up else "down")
        self.world.repair = self._repair
        self.world.start_broker()
        self.world.run(self._create_topics)
        self.actors += people_of(self.plan, self._place, self.random)
        self._readers = [actor for actor in self.actors if isinstance(actor, Subscriber)]
        self._writers = [actor for actor in self.actors if isinstance(actor, Publisher | Stager | Caller)]
        self._unfinished = list(self.actors)
        for actor in self.actors:
            self.give_life(actor)
        publisher, plug = self.world.network.publisher, Plug(lambda: self.world.disk, self.scheduler.random("plug"), self.note)
        publisher.backlog_max, publisher.on_told = self.plan.backlog_max, plug.on_told
        self.world.network.rule = self._rule
        self.world.sync_us_max = self.plan.sync_us_max
        self.world.on_sync = self._at_sync

    def _place(self, name: str) -> Place:
        return self.world, self.history, name, self.scheduler.random(name)

    def _create_topics(self) -> None:
        client = self.world.connect()
        step_bytes = 2 * self.world.segment_bytes  # A drain that needs more than usual gets a larger segment.
        for terms in create_topics(self.plan, client, step_bytes):
            self.world.topic_ids[str(terms["name"])] = str(terms["topic_id"])
            self.note("created", **terms)
        client.close()

    def give_life(self, actor: Actor) -> None:
        actor.life += 1
        actor.process = self.world.spawn(actor.name, actor.live)
        actor.lives[actor.process] = actor.life
        self._disks[actor.process] = self.world.client_disk(actor.name)

    def _read_logs(self) -> None:
        """Read every topic from its low to its end, as the last word on what is stored."""
        client = self.world.connect()
        infos = client.topics()
        self.note("topics", number=len(infos))
        for info in infos:
            topic_id = str(info.topic_id)
            low, messages = self._read_log(client, info)
            for message in messages:
                text = message.value.rstrip(PADDING).decode()
                place: Event = {"topic_id": topic_id, "offset": message.offset, "message": text}
                place |= {"stream": message.source.stream.hex(), "number": message.put_number}
                self.note("log", **place, size_bytes=len(message.value))
            is_kept = info.retain == "forever" and not info.limit
            self.note("end", topic_id=topic_id, low=low, end=info.end, is_limited=bool(info.limit), is_kept=is_kept)
        client.close()

    @staticmethod
    def _read_log(client: Client, info: TopicInfo) -> tuple[int, list[Message]]:
        """The low, and every message from there on; the broker may trim once more while it is asked."""
        low = info.low
        while True:
            try:
                return low, list(client.read(info.topic, low, info.end))
            except Gap as gap:
                low = gap.end

    def note(self, operation: str, **fields: str | int | bool | None) -> None:
        self.history.add(self.scheduler.time_us, "harness", 1, "ok", operation, fields)

    # --- faults --------------------------------------------------------------------------------------

    def _schedule_faults(self) -> None:
        """Draw all faults beforehand, then heal, then watch until everybody is done."""
        span_us = self.plan.span_ms * 1000
        struck = [name for name in self.plan.classes if name not in LINE_CLASSES]
        strikes: list[tuple[str, int]] = []
        for _ in range(self.plan.faults if struck else 0):
            strikes.append((self.random.choice(struck), self.random.randrange(span_us)))
        strikes += [(name, self._later.randrange(span_us)) for name in self.plan.later]
        for number, (name, after_us) in enumerate(strikes):
            if self._cut.keeps(number):
                self.scheduler.after(after_us, partial(self._strike, name))
        self.strikes = len(strikes)
        self.scheduler.after(span_us, self._heal)
        self._watch()

    def _watch(self) -> None:
        """Whoever is dead is started again after a while; subscribers may end once all publishers have."""
        all_subscribed = all(reader.has_subscribed for reader in self._readers)
        may_end = self.is_healed and all(writer.is_done for writer in self._writers)
        for writer in self._writers:
            writer.may_begin = all_subscribed
        for reader in self._readers:
            reader.may_end = may_end
        for actor in self.actors:
            process = actor.process
            if process is not None and not process.is_running and not actor.is_done:
                self._raise_if_wrong(actor)
                self.world.client_disk(actor.name).kill()  # However it ended, its lock is gone with it.
                self.give_life(actor)
                self._is_hopeless = self._is_hopeless or actor.life > LIVES_MAX
        if not self.world.is_broker_running:
            self._bring_back()
        if not all(actor.is_done for actor in self.actors):
            self.scheduler.after(self.random.randrange(20_000, 400_000), self._watch)

    def _bring_back(self) -> None:
        """Start the broker again after a while, unless it died of something that must not happen."""
        error = self.world.broker_error
        if isinstance(error, WorldError) and self._rot.has_struck:
            self._repair()  # It refused to start, or to go on, and said why.
        elif error is not None and not isinstance(error, SyncFailed | DiskFull):
            raise error
        if self._broker_due_us is None:
            self._broker_due_us = self.scheduler.time_us + self.random.randrange(self.plan.downtime_us_max)
        if self.is_healed or self.scheduler.time_us >= self._broker_due_us:
            self._broker_due_us = None
            self._start_broker()

    def _raise_if_wrong(self, actor: Actor) -> None:
        """An actor that ended by an exception it did not expect is a finding by itself."""
        process = actor.process
        if process is not None and process.error is not None:
            raise process.error

    def _start_broker(self) -> None:
        """Start it in the background: recovery may itself be cut by a crash point."""
        self.world.launch_broker()

    def _strike(self, name: str) -> None:  # noqa: PLR0912 - one branch per fault, nothing else
        if self.is_healed:
            return
        self.faults += 1
        self.note("fault", name=name)
        match name:
            case "broker_kill":
                self._crash_broker(power_cut=False)
            case "broker_power_cut":
                self._crash_broker(power_cut=True)
            case "two_stage_crash":
                self._crash_broker(power_cut=False)
                self._start_broker()
                self.scheduler.after(self.random.randrange(3_000), lambda: self._crash_broker(power_cut=True))
            case "power_cut_in_sync":
                self._is_cut_in_sync = True
            case "failed_sync":
                self.world.disk.fail_next_sync()
            case "client_kill":
                self._crash_client(power_cut=False)
            case "client_os_crash":
                self._crash_client(power_cut=True)
            case "partition":
                self._is_cut_off = True
                self.scheduler.after(self.random.randrange(5_000_000), self._end_partition)
            case "crash_point":
                self._crash_in = self.random.randrange(1, 60)
            case "takeover":
                self._take_over()
            case "disk_full":
                self._fill_disk()
            case "broker_set_back":
                self._rollback.set_broker_back()
            case "client_set_back":
                self._rollback.set_client_back()
            case "database_set_back":
                self._rollback.set_database_back()
            case "client_cloned":
                self._rollback.clone_publisher()
            case "one_way_partition":
                link = self._later.choice(["", *(actor.name for actor in self.actors)])
                self._blocked = self._later.choice([TO_BROKER, TO_CLIENT]), link
                self.scheduler.after(self._later.randrange(5_000_000), self._end_partition)
            case "clean_stop":
                self.world.spawn("stopper", self._stop_broker)
            case "bit_rot":
                self._rot_a_bit()
            case "clock_jump":
                self.scheduler.wall_shift_us += self.random.choice([-1, 1]) * self.random.randrange(10**12)

    def _rot_a_bit(self) -> None:
        name, damaged = self._rot.strike()
        self.note("rot", name=name, is_traced=True)
        for value in damaged:
            self.note("rotten", message=value.rstrip(PADDING).decode())

    def _crash_broker(self, *, power_cut: bool) -> None:
        self.crashes += 1
        if power_cut:
            self.world.cut_power()
        else:
            self.world.kill_broker()

    def _crash_client(self, *, power_cut: bool) -> None:
        actor = self.random.choice(self.actors)
        if actor.process is None or not actor.process.is_running:
            return
        self.crashes += 1
        disk = self.world.client_disk(actor.name)
        disk.kill()
        actor.process.kill()
        actor.os_crashes += power_cut
        if power_cut:
            self.note("crash", name=actor.name, point="anywhere", power_cut=True)
            disk.power_cut()

    def _take_over(self) -> None:
        """Start a publisher again on a copy of its directory, while the old process goes on until it is fenced."""
        actor = self.random.choice([actor for actor in self.actors if isinstance(actor, Publisher)])
        if actor.is_done or actor.life_taken_over or actor.process is None or not actor.process.is_running:
            return
        actor.life_taken_over = True
        self.note("taken_over", name=actor.name)
        copy = self.world.client_disk(actor.name).copy()
        self.world.adopt_disk(actor.name, copy)
        actor.takeover = True
        self.give_life(actor)

    def _end_partition(self) -> None:
        self._is_cut_off = False
        self._blocked = None

    def _stop_broker(self) -> None:
        """Ask the broker to stop, as an operator does; nothing happens if it cannot be reached."""
        with suppress(OnceMQError):
            client = self.world.connect()
            client.admin.shutdown()

    def _fill_disk(self) -> None:
        disk = self.world.disk
        disk.capacity_bytes = disk.used_bytes() + self.random.randrange(4_096)
        self.scheduler.after(self.random.randrange(8_000_000), self._free_disk)

    def _free_disk(self) -> None:
        if self.world.disk.capacity_bytes is not None:
            self.world.disk.capacity_bytes = None
            self.note("freed")

    def _repair(self) -> None:
        if self._rot.repair():
            self.note("repaired")

    def _heal(self) -> None:
        self.is_healed = True
        self._is_cut_off = self._is_cut_in_sync = False
        self._crash_in = 0
        self._blocked = None
        self._repair()
        self._free_disk()
        self.world.disk.fail_next_sync(0)

    def _rule(self, transit: Transit) -> Verdict:
        """What becomes of a packet. It is written down whose was harmed: he may have to wait for it."""
        verdict = DELIVER if self.is_healed else self._draw_verdict(transit)
        if verdict is not DELIVER:
            self.note("harmed", name=transit.link)
        return verdict

    def _draw_verdict(self, transit: Transit) -> Verdict:
        """A partition swallows, a bad line loses, repeats or delays."""
        if self._is_cut_off or (self._blocked and self._is_blocked(transit)):
            return DROP
        rates, classes, draw = self.plan.rates, self.plan.classes, self.line.random()
        if "loss" in classes and draw < rates["loss"]:
            return DROP
        if "repeat" in classes and self.line.random() < rates["repeat"]:
            return Verdict(copies=2, delay_us=self.line.randrange(2_000_000))
        if "late" in classes and self.line.random() < rates["late"]:
            return Verdict(delay_us=self.line.randrange(10_000_000))
        return DELIVER

    def _is_blocked(self, transit: Transit) -> bool:
        return self._blocked in {(transit.direction, transit.link), (transit.direction, "")}

    def _at_crash_point(self, name: str) -> None:
        """Every so many crash points one is deadly, to whoever reaches it."""
        if not self._crash_in or self.scheduler.running is None or self.scheduler.running.name == "script":
            return
        self._crash_in -= 1
        if self._crash_in:
            return
        self._end(self.scheduler.running, name, power_cut=self.random.random() < 0.5)

    def _at_sync(self) -> None:
        """The power goes while a sync is on its way: some of what was written is on the disk, and some is not."""
        process = self.scheduler.running
        if self._is_cut_in_sync and process is not None and process.name == "broker":
            self._is_cut_in_sync = False
            self._end(process, "sync", power_cut=True)

    def _end(self, process: Process, place: str, *, power_cut: bool) -> None:
        """Let the running process die where it stands, with its machine or alone."""
        self.note("crash", name=process.name, point=place, power_cut=power_cut)
        self.crashes += 1
        process.is_killed = True
        disk = self.world.disk if process.name == "broker" else self._disks.get(process)
        if disk is not None:  # Who only asks the broker to stop has none.
            disk.kill()
        if process.name == "broker":
            self.world.network.go_down()
        for actor in self.actors:
            if actor.name == process.name:
                actor.os_crashes += power_cut
        if disk is not None and power_cut:
            disk.power_cut()
        raise Killed()


def run_seed(seed: int) -> Outcome:
    """Run one seed from beginning to verdict."""
    return Swarm(seed).run()

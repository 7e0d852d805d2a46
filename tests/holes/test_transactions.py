# SPDX-License-Identifier: Apache-2.0
"""Holes of transactions and receive(): commits without an answer, deaths at every point, two ways to consume (H26, H28, H29)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from oncemq.client.client import Client
from oncemq.core.broker import BrokerMachine as Machine
from oncemq.core.effects import Effects, Sender, refuse
from oncemq.core.packets import Ack, AckDone, Transact, TransactDone
from oncemq.errors import BrokerUnreachable, Damaged, Diverged, Fenced, Refused, Uncertain, WrongAuthority
from oncemq.limits import CLOSE_TIMEOUT_MS, JOIN_PATIENCE_MS
from oncemq.model.refusals import Code
from oncemq.sim.disk import SimDisk
from oncemq.sim.network import DROP, Verdict
from oncemq.sim.scheduler import Killed
from oncemq.sim.world import World
from tests.holes.helpers import (
    SECOND_US,
    be_quiet,
    crash_at,
    die_at,
    meddle,
    number,
    overhear,
    restore,
    started,
    stored_values,
    until_broker_dies,
    until_dead,
)

LATE = Verdict(delay_us=60 * SECOND_US)
EVERY = 1_000


def prepared(count: int = 5) -> World:
    """A worker that subscribes to "in", a reader of "out", and messages on "in"."""
    world = started()

    def script() -> None:
        with world.connect("worker") as worker, world.connect("reader") as reader, world.connect("pub") as pub:
            worker.subscribe("in")
            reader.subscribe("out")
            pub.put_many("in", number(count))

    world.run(script)
    return world


def work(client: Client) -> bytes | None:
    """One message from "in" to "out"."""
    with client.transaction() as transaction:
        message = transaction.get("in", timeout=0)
        if message is None:
            return None
        transaction.put("out", message.value)
        return message.value


def work_on(world: World, client: Client | None = None) -> None:
    """Work until nothing is left, then count: everything once, in order."""
    worker = client or world.connect("worker")
    while work(worker) is not None:
        pass
    worker.close()


@pytest.mark.parametrize("lost", [Transact, TransactDone])
def test_h28_a_commit_without_an_answer_is_uncertain_and_found_out_first(lost: type[Transact] | type[TransactDone]) -> None:
    """R17: whether the packet or its answer was lost, the next transaction asks for the outcome before it begins."""
    world = prepared()

    def script() -> None:
        worker = world.connect("worker")
        meddle(world, lost, DROP, times=EVERY)
        with pytest.raises(Uncertain):
            work(worker)
        be_quiet(world)
        assert work(worker) == b"1", "the first was committed when it was asked for"
        work_on(world, worker)
        assert stored_values(world, "out") == number(5)

    world.run(script)


def test_h28_puts_and_receives_find_out_first_too() -> None:
    world = prepared()

    def script() -> None:
        worker = world.connect("worker")
        meddle(world, TransactDone, DROP, times=EVERY)
        with pytest.raises(Uncertain):
            work(worker)
        with pytest.raises(Uncertain):
            worker.put("out", b"x")
        with pytest.raises(Uncertain), worker.receive("in", timeout=0):
            raise AssertionError
        be_quiet(world)
        worker.put("out", b"x")
        with worker.receive("in", timeout=0) as message:
            assert message is not None
            assert message.value == b"1"
        assert stored_values(world, "out") == [b"0", b"x"]

    world.run(script)


def test_h28_the_same_message_in_two_transactions_is_refused_by_the_second() -> None:
    """The acknowledgement says where the cursor must be: a copy that comes late, after the work was done again, does nothing."""
    world = prepared()

    def script() -> None:
        worker = world.connect("worker")
        meddle(world, Transact, LATE, times=EVERY)
        with pytest.raises(Uncertain):
            work(worker)
        be_quiet(world)
        world.crash_client(worker)
        work_on(world)
        world.clock.pause(120_000)
        assert stored_values(world, "out") == number(5)

    world.run(script)


def test_h28_a_zombie_cannot_commit() -> None:
    world = prepared()

    def script() -> None:
        zombie = world.connect("worker")
        with pytest.raises(Fenced), zombie.transaction() as transaction:
            message = transaction.get("in", timeout=0)
            assert message is not None
            transaction.put("out", b"of a zombie")
            successor = world.connect("worker", disk=SimDisk(7), takeover=True)
            assert work(successor) == b"0"
        world.crash_client(zombie)
        work_on(world, successor)
        assert stored_values(world, "out") == number(5)

    world.run(script)


POINTS = ["client.before_commit", "client.before_send", "client.after_send", "client.after_receive", "client.after_commit"]


@pytest.mark.parametrize("after", range(3))
@pytest.mark.parametrize("point", POINTS)
def test_h28_a_worker_that_dies_anywhere_does_its_work_once(point: str, after: int) -> None:
    world = prepared()
    victim = world.run(lambda: world.connect("worker"))
    die_at(world, point, lambda: work_on(world, victim), after=after)
    world.crash_client(victim)
    world.run(lambda: work_on(world))
    world.run(lambda: _assert_out(world, number(5)))


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("point", ["broker.before_append", "broker.after_append", "broker.after_sync", "broker.between_answers"])
@pytest.mark.parametrize("power_cut", [False, True])
def test_h28_a_broker_that_dies_anywhere_commits_all_or_nothing(point: str, after: int, power_cut: bool) -> None:
    world = prepared()
    worker = world.run(lambda: world.connect("worker"))
    with crash_at(point, after=after):
        process = world.spawn("worker", lambda: work_on(world, worker))
        until_broker_dies(world)
    world.restart_broker(power_cut=power_cut)
    until_dead(world, process)
    world.run(lambda: _assert_out(world, number(5)))


def _assert_out(world: World, expected: list[bytes]) -> None:
    assert stored_values(world, "out") == expected


def test_a_broker_set_back_does_not_commit_twice_in_silence() -> None:
    """What a restored broker has forgotten is told, not done again under the same number."""
    world = prepared()
    backup = world.disk.copy()

    def before() -> Client:
        worker = world.connect("worker")
        assert work(worker) == b"0"
        return worker

    worker = world.run(before)
    restore(world, backup)

    def after() -> None:
        with pytest.raises((Diverged, Refused)):
            work(worker)
        world.crash_client(worker)

    world.run(after)


def test_h26_a_message_of_receive_is_given_again_and_not_in_doubt() -> None:
    """The slot knows which way a message was handed out: after a crash receive gives it again, and counts."""
    world = prepared()

    def dies() -> None:
        with victim.receive("in", timeout=0):
            raise Killed

    victim = world.run(lambda: world.connect("worker"))
    until_dead(world, world.spawn("victim", dies))
    world.crash_client(victim)

    def script() -> None:
        worker = world.connect("worker")
        assert worker.in_doubt("in") == []
        with worker.receive("in", timeout=0) as message:
            assert message is not None
            assert (message.value, message.attempt) == (b"0", 2)
        with pytest.raises(WrongAuthority):
            worker.get("in", timeout=0)

    world.run(script)


def test_h26_an_acknowledgement_without_an_answer_is_told_again_with_the_next_request() -> None:
    world = prepared()

    def script() -> None:
        worker = world.connect("worker")
        meddle(world, AckDone, DROP, times=2)
        got = []
        while True:
            with worker.receive("in", timeout=0) as message:
                if message is None:
                    break
                got.append(message.value)
        assert got == number(5)

    world.run(script)


def test_h29_a_subscription_has_one_place_only() -> None:
    world = prepared()

    def script() -> None:
        worker = world.connect("worker")
        assert worker.get("in", timeout=0) is not None
        with pytest.raises(WrongAuthority), worker.transaction() as transaction:
            transaction.get("in", timeout=0)
        assert worker.get("in", timeout=0) is not None
        asked = overhear(world, Transact)
        assert asked == []

    world.run(script)


def test_h33_a_restored_broker_has_its_transactions_done_again_whole() -> None:
    """Whoever committed what is gone is told, though nothing is left to do; and its Get has not moved the cursor on."""
    world = prepared()

    def before() -> tuple[Client, SimDisk]:
        worker = world.connect("worker")
        copy = world.disk.copy()
        while work(worker) is not None:
            pass
        return worker, copy

    worker, copy = world.run(before)
    restore(world, copy)

    def after() -> None:
        with pytest.raises(Diverged, match="acknowledgements"):
            work(worker)
        world.crash_client(worker)
        work_on(world)
        assert stored_values(world, "out") == number(5)

    world.run(after)


def test_h26_an_acknowledgement_without_an_answer_is_finished_by_a_transaction() -> None:
    """A receive that was left and not answered, then a transaction: its compare-and-swap begins where the receive ended."""
    world = prepared()

    def script() -> None:
        worker = world.connect("worker")
        meddle(world, Ack, DROP, times=EVERY)
        with pytest.raises(BrokerUnreachable), worker.receive("in", timeout=0) as message:
            assert message is not None
        be_quiet(world)
        assert work(worker) == b"1"
        worker.close()

    world.run(script)


def flip_value(world: World, value: bytes) -> Callable[[], None]:
    """Let a byte of a stored value rot; return what puts it right."""
    for name in (name for name in world.disk.names() if name.startswith("segment-")):
        content = world.disk.open(name).read(0, world.disk.size_of(name))
        if value in content:
            return world.disk.flip(name, content.index(value))
    raise AssertionError(f"{value!r} is nowhere")


def taken(client: Client, way: str, connection: sqlite3.Connection, topic: str = "in") -> bytes | None:
    """The next message of a topic, finished."""
    if way == "receive":
        with client.receive(topic, timeout=0) as message:
            return message and message.value
    with client.transaction(connection, durable=False) if way == "database" else client.transaction() as transaction:
        message = transaction.get(topic, timeout=0)
        return message and message.value


@pytest.mark.parametrize("way", ["receive", "transaction", "database"])
def test_r19_damage_that_was_put_right_is_no_longer_told(way: str) -> None:
    """Damaged as long as it is so: a process that was told goes on once somebody has looked after the disk."""
    world = prepared(0)

    def script() -> None:
        with world.connect("pub") as pub:
            pub.put("in", b"worth keeping")
        put_right = flip_value(world, b"worth keeping")
        worker, connection = world.connect("worker"), sqlite3.connect(":memory:")
        for _ in range(2):
            with pytest.raises(Damaged):
                taken(worker, way, connection)
        put_right()
        assert [taken(worker, way, connection) for _ in range(2)] == [b"worth keeping", None]
        worker.close()

    world.run(script)


@pytest.mark.parametrize("verdict", [DROP, LATE])
@pytest.mark.parametrize("kind", [Transact, TransactDone])
def test_r17_what_was_collected_behind_a_commit_without_an_answer_stays_in_the_outbox(
    kind: type[Transact | TransactDone], verdict: Verdict
) -> None:
    """R17: close() said that it stays, but it had no number to stay under, and was lost. Whether the commit happened or not."""
    world = prepared()

    def script() -> None:
        worker = world.connect("worker")
        meddle(world, kind, verdict, times=EVERY)
        with pytest.raises(Uncertain):
            work(worker)
        for value in number(3):
            worker.put("out", b"behind " + value, wait=False)
        worker.put(["out", "in"], b"to both", wait=False)
        assert worker.close() == 4
        be_quiet(world)
        again = world.connect("worker")
        assert again.pending == 4
        assert again.flush() == 4
        world.clock.pause(120_000)
        while work(again) is not None:
            pass
        again.close()
        found = stored_values(world, "out")
        assert sorted(found) == sorted([*number(5), *(b"behind " + value for value in number(3)), b"to both", b"to both"])
        assert [value for value in found if value.startswith(b"behind")] == [b"behind " + value for value in number(3)]

    world.run(script, limit_us=3_600 * SECOND_US)


# --- how long it takes to be told -------------------------------------------------------------------------


def left_unknown(world: World) -> Client:
    """A worker whose commit nobody answered, because the broker went away, with a message collected behind it."""
    worker = world.connect("worker")
    transaction = worker.transaction()
    transaction.__enter__()
    assert transaction.get("in", timeout=0) is not None
    transaction.put("out", b"0")
    world.kill_broker()
    with pytest.raises(Uncertain):
        transaction.__exit__(None, None, None)
    worker.put("out", b"behind", wait=False)
    return worker


@pytest.mark.parametrize(("later_ms", "waits_ms"), [(0, 0), (60_000, CLOSE_TIMEOUT_MS)])
def test_r17_closing_behind_a_commit_without_an_answer_takes_no_longer_than_any_closing(later_ms: int, waits_ms: int) -> None:
    """It asked for the outcome with all patience (7.6 s) before it kept what followed."""
    world = prepared()

    def script() -> int:
        worker = left_unknown(world)
        world.clock.pause(later_ms)
        told_ms = world.clock.now().ticks_ms
        assert worker.close() == 1
        return world.clock.now().ticks_ms - told_ms

    assert world.run(script) == waits_ms
    world.start_broker()

    def next_life() -> None:
        with world.connect("worker") as again:
            assert again.flush() == 1
        work_on(world)
        assert sorted(stored_values(world, "out")) == [*number(5), b"behind"]

    world.run(next_life)


def test_r17_a_flush_has_its_time_also_behind_a_commit_without_an_answer() -> None:
    world = prepared()

    def script() -> list[int]:
        worker, took_ms = left_unknown(world), []
        for timeout in (0, 0.5, 3):
            begun_ms = world.clock.now().ticks_ms
            with pytest.raises(Uncertain):
                worker.flush(timeout)
            took_ms.append(world.clock.now().ticks_ms - begun_ms)
        world.start_broker()
        assert worker.flush(60) == 1
        worker.close()
        return took_ms

    assert world.run(script) == [0, 500, 3_000]
    world.run(lambda: work_on(world))
    assert sorted(world.run(lambda: stored_values(world, "out"))) == [*number(5), b"behind"]


@pytest.mark.parametrize("waits_ms", [3_000, 60_000])
def test_a_commit_refused_by_a_node_that_joins_is_waited_for_and_uncertain_in_the_end(
    waits_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker of this version does that. It would have been Refused, though the next call carries it out."""
    world = prepared()
    begun_ms = world.clock.now().ticks_ms
    take = Machine._on_transact

    def joining(machine: Machine, client: object, to: Sender, *rest: object) -> Effects:
        if world.clock.now().ticks_ms < begun_ms + waits_ms:
            return refuse(to, Code.JOINING)
        return take(machine, client, to, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Machine, "_on_transact", joining)

    def script() -> None:
        worker = world.connect("worker")
        if waits_ms < JOIN_PATIENCE_MS:
            assert work(worker) == b"0"
        else:
            with pytest.raises(Uncertain, match="try again in a moment"):
                work(worker)
            assert world.clock.now().ticks_ms < begun_ms + 2 * JOIN_PATIENCE_MS
            world.clock.pause(waits_ms)
        work_on(world, worker)
        assert stored_values(world, "out") == number(5)

    world.run(script)

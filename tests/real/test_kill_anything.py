# SPDX-License-Identifier: Apache-2.0
"""Kill -9 anything at any time: nothing is lost, nothing comes twice, order is kept.

May not: choose its victims by luck alone: the seed is fixed, and every named crash point is visited besides.
The idea: one publisher, two subscribers and a broker with small segments, so that segments roll, snapshots are cut and dead
files go while processes die. A publisher that died goes on with the next number, because it cannot know whether the
last one was kept: so confirmed ⊆ stored ⊆ tried, and what is stored comes to every subscriber once.
Next: test_full_disk.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from oncemq.crashpoints import POINTS
from oncemq.limits import KIB
from tests.real.harness import Process, Stage, until

pytestmark = pytest.mark.real

SEED = 20_260_401
KILLS = 12
SMALL_SEGMENTS = 256 * KIB
SUBSCRIBERS = {"one": ("--mode", "one"), "many": ("--mode", "many")}


def next_number(stage: Stage, publisher: str) -> int:
    return max(stage.facts(publisher).tried(), default=0) + 1


def let_flow(stage: Stage, chance: random.Random) -> None:
    """Wait until some more messages were put, and some more were got by somebody."""

    def counts() -> tuple[int, int]:
        return len(stage.facts("publisher").done()), sum(len(stage.facts(name).got()) for name in SUBSCRIBERS)

    done, got = counts()
    done, got = done + chance.randrange(5, 80), got + chance.randrange(5, 80)
    until(lambda: counts()[0] >= done and counts()[1] >= got, "messages flow")


def test_random_kills_of_broker_and_clients_lose_and_repeat_nothing(make_stage: Callable[..., Stage]) -> None:
    """Twelve kills in an order drawn from a seed, each under load; the load goes on before the next one."""
    chance = random.Random(SEED)
    stage = make_stage(segment_bytes=SMALL_SEGMENTS)
    stage.broker.start()
    stage.keep_everything()
    running = {name: stage.subscriber(*options, name=name) for name, options in SUBSCRIBERS.items()}
    running["publisher"] = stage.publisher(1, 100_000, "--size", "2000")
    for _ in range(KILLS):
        victim = chance.choice(["broker", "broker", *running])
        let_flow(stage, chance)
        if victim == "broker":
            stage.broker.kill()
            stage.broker.start()
        else:
            running[victim].kill()
            running[victim] = restarted(stage, victim)
    running["publisher"].kill()
    stage.publisher(0, -1).wait_for_success()  # One more life, only to confirm what the last one left.
    stage.put_end()
    for name in SUBSCRIBERS:
        running[name].wait_for_success()
        stage.assert_got_once(name)
    stage.assert_confirmed_is_stored()
    assert stage.broker.starts > 3


def restarted(stage: Stage, name: str) -> Process:
    if name == "publisher":
        return stage.publisher(next_number(stage, name), 100_000, "--size", "2000")
    return stage.subscriber(*SUBSCRIBERS[name], name=name)


# --- every named point ----------------------------------------------------------------------------------

LATER = {
    "broker.before_append": 12,
    "broker.after_append": 12,
    "broker.after_sync": 12,
    "broker.between_answers": 12,
    "journal.before_segment_rename": 2,  # The first is the start's own segment, the second the roll to the next.
    "journal.after_segment_rename": 2,
    "journal.before_snapshot_rename": 2,
    "journal.after_snapshot_rename": 2,
    "client.before_state_rename": 2,  # The first is the session tried, the second the one welcomed.
}
"""At which time a point is the more interesting one; the third where nothing is said."""


def words(instant: str) -> set[str]:
    """What a point is about."""
    point = instant.partition(":")[0].partition(".")[2]
    return {"hand_over"} if "hand_over" in point else set(point.split("_"))


OF_TRANSACTIONS = {"commit", "row"}
"""Words of points that tests/sim/test_crash_points.py visits: only a transaction comes by there."""
OF_CLEANER = {"move", "clean"}
"""Words of points that tests/holes/test_cleaner.py and tests/sim/test_crash_points.py visit: only sparse segments are cleaned."""
INSTANTS = [f"{point}:{LATER.get(point, 3)}" for point in POINTS if not OF_CLEANER & words(point)]
OF_BROKER = [instant for instant in INSTANTS if not instant.startswith("client.")]
AT_START = [
    f"{point}:1"
    for point in POINTS
    if point.startswith("journal.") and point != "journal.before_unlink" and not OF_CLEANER & words(point)
]
OF_PUBLISHER = [
    instant
    for instant in INSTANTS
    if instant.startswith("client.") and not {"hand_over", "live", *OF_TRANSACTIONS} & words(instant)
]
OF_LISTENER = [
    instant for instant in INSTANTS if instant.startswith("client.") and not {"outbox", *OF_TRANSACTIONS} & words(instant)
]
OF_SUBSCRIBER = [instant for instant in OF_LISTENER if "live" not in words(instant)]
LAST = 60


def test_every_crash_point_is_visited_here() -> None:
    """A point that somebody adds is visited too, or this list says that it is not."""
    visited = {instant.partition(":")[0] for instant in OF_BROKER + OF_PUBLISHER + OF_LISTENER}
    assert visited == {point for point in POINTS if not (OF_TRANSACTIONS | OF_CLEANER) & words(point)}


def subscribed(make_stage: Callable[..., Stage], **options: int) -> Stage:
    """A running broker at which the subscriber has its subscription, so that nothing of the publisher's is missed."""
    stage = make_stage(**options)
    stage.broker.start()
    with stage.client(id="subscriber", state=stage.directory / "subscriber.state") as client:
        client.subscribe("t")
    return stage


def finish(stage: Stage, subscriber: Process, last: int) -> None:
    """Have everything got, then compare. Nothing is retained here, so the subscriber's facts are what there is."""
    stage.put_end()
    subscriber.wait_for_success()
    got = stage.facts("subscriber").got()
    numbers = [int(entry.value.partition(":")[2]) for entry in got[:-1]]
    assert [entry.offset for entry in got] == list(range(len(got)))
    assert numbers == sorted(set(numbers)), "twice, or out of order"
    confirmed = {done.number for done in stage.facts("publisher").done()}
    assert confirmed <= set(numbers) <= set(stage.facts("publisher").tried())
    assert numbers[-1] == last


@pytest.mark.parametrize("instant", OF_BROKER)
def test_broker_dies_at(instant: str, make_stage: Callable[..., Stage]) -> None:
    """A broker that works through small segments dies at this instant; the next one goes on as if nothing had been."""
    stage = subscribed(make_stage, segment_bytes=64 * KIB)
    stage.broker.kill()
    stage.broker.start(crash_at=instant)
    subscriber = stage.role("subscribe", "subscriber", "--mode", "listen" if "live" in words(instant) else "one")
    publisher = stage.publisher(1, LAST, "--size", "8000")
    stage.broker.process.wait_for_crash()
    stage.broker.start()
    publisher.wait_for_success()
    assert len(stage.facts("publisher").done()) == LAST
    finish(stage, subscriber, LAST)


def test_broker_dies_again_and_again_while_it_starts(make_stage: Callable[..., Stage]) -> None:
    """At every instant of a start that writes, one start after the other; then one that is let live has everything."""
    stage = subscribed(make_stage, segment_bytes=64 * KIB)
    stage.publisher(1, LAST, "--size", "8000").wait_for_success()
    stage.broker.kill()
    for instant in AT_START:
        assert not stage.broker.start(crash_at=instant, may_die=True)
        stage.broker.process.wait_for_crash()
    stage.broker.start()
    finish(stage, stage.subscriber(), LAST)


@pytest.mark.parametrize("instant", OF_PUBLISHER)
def test_publisher_dies_at(instant: str, make_stage: Callable[..., Stage]) -> None:
    """A publisher dies at this instant; its next life first confirms what is in the outbox, then goes on."""
    stage = subscribed(make_stage)
    stage.publisher(1, 6, crash_at=instant).wait_for_crash()
    stage.publisher(next_number(stage, "publisher"), 6).wait_for_success()
    finish(stage, stage.subscriber(), 6)


@pytest.mark.parametrize("instant", OF_LISTENER)
def test_listener_dies_at(instant: str, make_stage: Callable[..., Stage]) -> None:
    """The same for a subscriber that listens: what was pushed to it and what it had got."""
    stage = subscribed(make_stage)
    listener = stage.role("subscribe", "subscriber", "--mode", "listen", crash_at=instant)
    stage.publisher(1, 6).wait_for_success()
    listener.wait_for_crash()
    finish(stage, stage.subscriber("--mode", "listen"), 6)
    assert len(stage.facts("subscriber").doubts()) <= 1


@pytest.mark.parametrize("instant", OF_SUBSCRIBER)
def test_subscriber_dies_at(instant: str, make_stage: Callable[..., Stage]) -> None:
    """A subscriber dies at this instant; its next life has what is missing, and in doubt at most one message."""
    stage = subscribed(make_stage)
    stage.publisher(1, 6).wait_for_success()
    stage.subscriber(crash_at=instant).wait_for_crash()
    finish(stage, stage.subscriber(), 6)
    assert len(stage.facts("subscriber").doubts()) <= 1

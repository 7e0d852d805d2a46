# SPDX-License-Identifier: Apache-2.0
"""hypothesis plays an application: it puts, gets, subscribes and pulls plugs in any order, and a model says what must come.

The model knows numbers only. A value is *sure* once its put was confirmed or kept while somebody subscribed; offsets are handed
out one after the other; what is in doubt after a death is what was handed out and not finished. hypothesis shortens what fails.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from oncemq.client.client import Client
from oncemq.errors import BrokerUnreachable, InDoubt, PutPending
from oncemq.model.message import Message
from oncemq.sim.bugs import planted
from oncemq.sim.world import World

Result = TypeVar("Result")
TOPICS = ("orders", "payments")
AHEAD = 1_000 + 4 * 10
"""What may be in doubt after the operating system died: the reservation."""
topics = st.sampled_from(TOPICS)
counts = st.integers(1, 5)


class Reading:
    """What the model knows of one subscription."""

    def __init__(self, start: int) -> None:
        self.expected = self.finished = start
        self.sure: set[int] = set()
        self.accounted: set[int] = set()
        """Values that were handed out, or seen in doubt and skipped."""
        self.values: dict[int, int] = {}
        self.death = ""
        """How the subscriber died since it was last asked: "", "kill" or "power"."""


class Application(RuleBasedStateMachine):
    """One publisher and one subscriber with state directories, in one world."""

    @initialize()
    def begin(self) -> None:
        self.world = World(1)
        self.world.start_broker()
        self.number = 0
        self.readings: dict[str, Reading] = {}
        self.waiting: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        """Values put and not yet known as kept."""
        self.pub = self.run(lambda: self.world.connect("pub"))
        self.sub = self.run(lambda: self.world.connect("sub"))
        for topic in TOPICS:
            self.run(partial(self.pub.admin.create_topic, topic))

    def run(self, body: Callable[[], Result]) -> Result:
        return self.world.run(body)

    def values(self, topic: str, count: int) -> list[int]:
        first, self.number = self.number, self.number + count
        self.waiting[topic] += range(first, self.number)
        return list(range(first, self.number))

    def kept(self, topic: str) -> None:
        """All values of a topic are confirmed, or kept in the outbox: whoever subscribes will get them."""
        if topic in self.readings:
            self.readings[topic].sure.update(self.waiting[topic])
        self.waiting[topic].clear()

    def all_kept(self) -> None:
        for topic in TOPICS:
            self.kept(topic)

    # --- puts ------------------------------------------------------------------------------------------

    @rule(topic=topics)
    def put(self, topic: str) -> None:
        value = self.values(topic, 1)[0]
        try:
            receipt = self.run(lambda: self.pub.put(topic, b"%d" % value))
        except PutPending:
            self.all_kept()
            return
        assert receipt.stored == (topic in self.readings)
        assert not receipt.duplicate
        self.kept(topic)

    @rule(topic=topics, count=counts)
    def put_many(self, topic: str, count: int) -> None:
        found = self.values(topic, count)
        try:
            self.run(lambda: self.pub.put_many(topic, [b"%d" % value for value in found]))
        except PutPending:
            pass
        except BrokerUnreachable:  # Without a session nothing of it is taken.
            del self.waiting[topic][-count:]
            return
        self.kept(topic)

    @rule(topic=topics, count=counts)
    def put_without_waiting(self, topic: str, count: int) -> None:
        for value in self.values(topic, count):
            self.run(partial(self.pub.put, topic, b"%d" % value, wait=False))

    @rule()
    def flush(self) -> None:
        with suppress(PutPending):
            self.run(self.pub.flush)
        self.all_kept()

    # --- gets ------------------------------------------------------------------------------------------

    @rule(topic=topics)
    def get(self, topic: str) -> None:
        self.take(topic, lambda: [self.sub.get(topic, timeout=0)])

    @rule(topic=topics, count=counts)
    def get_many(self, topic: str, count: int) -> None:
        self.take(topic, lambda: list(self.sub.get_many(topic, count, timeout=0)))

    @rule(topic=topics)
    def ack(self, topic: str) -> None:
        if topic in self.readings and not self.readings[topic].death:
            self.run(lambda: self.sub.ack(topic))
            self.readings[topic].finished = self.readings[topic].expected

    def take(self, topic: str, body: Callable[[], list[Message | None]]) -> bool:
        """Get from a topic; whatever comes must be what is next. False if nothing came."""
        reading = self.readings.get(topic)
        if reading is None:
            return False
        try:
            found = [message for message in self.run(body) if message is not None]
        except InDoubt as doubt:
            self.settle(topic, reading, doubt)
            return True
        except BrokerUnreachable:
            reading.finished = reading.expected  # The call finished what was handed out before it.
            return False
        assert not (reading.death == "kill" and reading.finished < reading.expected), "what was handed out is not in doubt"
        reading.death = ""
        reading.finished = reading.expected
        for message in found:
            self.handed(reading, message)
        return bool(found)

    @staticmethod
    def handed(reading: Reading, message: Message) -> None:
        value = int(message.value)
        assert message.offset == reading.expected
        assert reading.values.setdefault(message.offset, value) == value
        assert value in reading.accounted or all(value > other for at, other in reading.values.items() if at < message.offset)
        reading.accounted.add(value)
        reading.expected = message.offset + 1

    def settle(self, topic: str, reading: Reading, doubt: InDoubt) -> None:
        """Only a death leaves something in doubt, and after kill -9 exactly what was handed out and not finished."""
        assert reading.death
        assert doubt.first <= reading.expected
        if reading.death == "kill":
            assert (doubt.first, doubt.end) == (reading.finished, reading.expected)
        assert doubt.end - doubt.first <= AHEAD
        if not self.world.is_broker_running:
            self.world.start_broker()  # in_doubt() reads there.
        choice = "repeat" if self.number % 2 else "skip"
        if choice == "skip":
            reading.accounted.update(int(message.value) for message in self.run(lambda: self.sub.in_doubt(topic)))
        self.run(lambda: self.sub.settle(topic, choice))
        reading.expected = reading.finished = doubt.first if choice == "repeat" else doubt.end
        reading.death = ""

    # --- subscriptions ---------------------------------------------------------------------------------

    @precondition(lambda self: self.world.is_broker_running)
    @rule(topic=topics)
    def subscribe_or_leave(self, topic: str) -> None:
        """Nothing may be on its way meanwhile: the model would not know who gets it."""
        self.run(self.pub.flush)
        self.all_kept()
        if topic in self.readings:
            self.drain(topic)
            self.run(lambda: self.sub.unsubscribe(topic))
            self.check(self.readings.pop(topic))
        else:
            info = self.run(lambda: self.sub.subscribe(topic))
            self.readings[topic] = Reading(info.start)

    def drain(self, topic: str) -> None:
        while self.take(topic, lambda: [self.sub.get(topic, timeout=0)]):
            pass

    @staticmethod
    def check(reading: Reading) -> None:
        assert reading.sure <= reading.accounted, f"never came: {sorted(reading.sure - reading.accounted)}"

    # --- deaths ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.is_broker_running)
    @rule(power_cut=st.booleans(), stays_down=st.booleans())
    def broker_dies(self, power_cut: bool, stays_down: bool) -> None:
        if power_cut:
            self.world.cut_power()
        else:
            self.world.kill_broker()
        if not stays_down:
            self.world.start_broker()

    @precondition(lambda self: not self.world.is_broker_running)
    @rule()
    def broker_comes_back(self) -> None:
        self.world.start_broker()

    @rule(power_cut=st.booleans())
    def publisher_dies(self, power_cut: bool) -> None:
        """What was put without waiting may be lost; what is in the outbox survives kill -9, and a power cut if it was synced."""
        self.world.crash_client(self.pub, power_cut=power_cut)
        for waiting in self.waiting.values():
            waiting.clear()
        self.pub = self.run(lambda: self.world.connect("pub", offline=True))

    @precondition(lambda self: self.world.is_broker_running)
    @rule(power_cut=st.booleans())
    def subscriber_dies(self, power_cut: bool) -> None:
        self.world.crash_client(self.sub, power_cut=power_cut)
        for reading in self.readings.values():
            reading.death = "power" if power_cut or reading.death == "power" else "kill"
        self.sub = self.run(lambda: self.world.connect("sub"))

    # --- always, and in the end ------------------------------------------------------------------------

    @invariant()
    def the_broker_never_ends_by_itself(self) -> None:
        if hasattr(self, "world"):
            self.world.raise_broker_error()

    def teardown(self) -> None:
        """Heal, confirm and drain everything: then all that was sure has come."""
        if not hasattr(self, "sub"):
            return
        if not self.world.is_broker_running:
            self.world.start_broker()
        self.run(self.pub.flush)
        self.all_kept()
        for topic, reading in self.readings.items():
            self.drain(topic)
            self.check(reading)
        self.end(self.pub)
        self.end(self.sub)
        self.world.kill_broker()

    def end(self, client: Client) -> None:
        assert self.run(client.close) == 0


SETTINGS = settings(
    max_examples=150,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestApplication = Application.TestCase
TestApplication.settings = SETTINGS


@pytest.mark.parametrize("bug", ["keeps_nothing_in_the_outbox", "retries_with_a_new_number"])
def test_the_model_sees_a_bug(bug: str) -> None:
    unshortened = settings(SETTINGS, phases=[Phase.generate], print_blob=False, report_multiple_bugs=False)
    with planted(bug), pytest.raises(AssertionError):
        run_state_machine_as_test(Application, settings=unshortened)

# SPDX-License-Identifier: Apache-2.0
"""The live path where packets are lost: what is pushed comes once and in order, or is got (H1, H13, H16, H31, R1, R6, R18)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncemq.client.client import Client
from oncemq.core.packets import Get
from oncemq.errors import BrokerUnreachable, Diverged, Fenced, Gap, InDoubt, NotSubscribed
from oncemq.limits import LIVE_ACK_MS, LIVE_HEARTBEAT_MS
from oncemq.sim.network import DELIVER, DROP, Transit, Verdict
from oncemq.sim.transit import FROM_LISTENER, TO_BROKER, TO_LISTENER
from oncemq.sim.world import World
from oncemq.wire.codec import decode
from tests.holes.helpers import number, restore, started


def subscribed(world: World, client: str = "ear", topic: str = "t", **options: object) -> Client:
    made = world.connect(client, **options)  # type: ignore[arg-type]
    made.subscribe(topic)
    return made


def put(world: World, count: int, first: int = 0, topic: str = "t") -> None:
    """Put one by one, so that each is a packet of its own."""
    with world.connect("mouth") as client:
        for value in number(count, first):
            client.put(topic, value)


def heard(client: Client, *topics: str, timeout: float = 10) -> list[bytes]:
    return [message.value for message in client.listen(*topics, timeout=timeout)]


class Counted:
    """How many Gets a world has seen, and what the rule below does."""

    def __init__(self, world: World, rule: Callable[[Transit], Verdict] = lambda _: DELIVER) -> None:
        self.gets = 0
        self.pushed = 0
        self._rule = rule
        world.network.rule = self._judge

    def _judge(self, transit: Transit) -> Verdict:
        if transit.direction == TO_BROKER and isinstance(decode(transit.frames[0])[1], Get):
            self.gets += 1
        self.pushed += transit.direction == TO_LISTENER and len(transit.frames) > 1
        return self._rule(transit)


def test_what_is_stored_while_somebody_listens_is_pushed_and_not_got() -> None:
    world = started()

    def script() -> tuple[list[bytes], int, int]:
        client = subscribed(world)
        counted = Counted(world)
        listener = client.listen("t", timeout=5)
        assert listener.next(timeout=2) is None
        gets = counted.gets
        put(world, 20)
        return [message.value for message in listener], counted.gets - gets, counted.pushed

    assert world.run(script) == (number(20), 0, 20)


def test_h16_a_lost_tail_is_noticed_by_the_next_heartbeat() -> None:
    """The queue is full, the last packets are lost, and nothing follows them but the heartbeat."""
    world = started()

    def script() -> list[bytes]:
        client = subscribed(world)
        listener = client.listen("t")
        listener.next(timeout=2)
        world.network.publisher.backlog_max = 2
        put(world, 20)
        assert world.network.publisher.lost > 0
        found = []
        while (message := listener.next(timeout=2 * LIVE_HEARTBEAT_MS / 1000)) is not None:
            found.append(message.value)
        return found

    assert world.run(script) == number(20)


@pytest.mark.parametrize("lost", [{0}, {3}, {19}, {0, 1, 2}, {5, 7, 9, 11}, set(range(20))])
def test_r18_whatever_is_lost_on_the_way_is_got(lost: set[int]) -> None:
    world = started()
    seen = []

    def rule(transit: Transit) -> Verdict:
        if transit.direction != TO_LISTENER or len(transit.frames) < 2:
            return DELIVER
        seen.append(transit)
        return DROP if len(seen) - 1 in lost else DELIVER

    def script() -> list[bytes]:
        client = subscribed(world)
        listener = client.listen("t", timeout=5)
        listener.next(timeout=2)
        world.network.rule = rule
        put(world, 20)
        return [message.value for message in listener]

    assert world.run(script) == number(20)
    assert len(seen) == 20


def test_r18_a_channel_that_never_speaks_is_got_all_the_same() -> None:
    """A firewall in between: not one live packet arrives, nor does the subscription."""
    world = started()

    def script() -> list[bytes]:
        client = subscribed(world)
        Counted(world, lambda transit: DROP if transit.direction in {TO_LISTENER, FROM_LISTENER} else DELIVER)
        put(world, 5)
        first = heard(client, timeout=1)
        put(world, 5, first=5)
        return first + heard(client, timeout=8)

    assert world.run(script) == number(10)


@pytest.mark.parametrize("power_cut", [False, True])
def test_h31_a_listener_goes_on_after_a_restart_of_the_broker(*, power_cut: bool) -> None:
    """Its socket names the channels again, the new start is asked first, and then blocks are pushed as before."""
    world = started()

    def script() -> tuple[list[bytes], int]:
        client = subscribed(world)
        counted = Counted(world)
        listener = client.listen("t", timeout=5)
        listener.next(timeout=2)
        put(world, 3)
        found = [next(listener).value for _ in range(3)]
        world.restart_broker(power_cut=power_cut)
        put(world, 3, first=3)
        found += [next(listener).value for _ in range(3)]
        assert listener.next(timeout=3) is None
        pushed = counted.pushed
        put(world, 4, first=6)
        found += [message.value for message in listener]
        return found, counted.pushed - pushed

    assert world.run(script) == (number(10), 4)


def test_h31_channels_are_named_again_only_when_the_application_calls() -> None:
    """As libzmq does it: an application that computes for a while after a restart misses what is pushed, and gets it."""
    world = started()

    def script() -> list[bytes]:
        client = subscribed(world)
        listener = client.listen("t", timeout=5)
        listener.next(timeout=2)
        world.restart_broker()
        put(world, 5)
        world.clock.pause(60_000)
        assert world.loop is not None
        assert len(world.loop.machine.channels) == 0
        return [message.value for message in listener]

    assert world.run(script) == number(5)


def test_r01_a_broker_set_back_is_not_believed_whatever_it_pushes() -> None:
    """The restored broker's messages continue the offsets of those that are gone; only the bookmark tells."""
    world = started(retain="forever")

    def script() -> None:
        client = subscribed(world)
        listener = client.listen("t")
        listener.next(timeout=2)
        put(world, 3)
        copy = world.disk.copy()
        put(world, 2, first=3)
        assert [next(listener).value for _ in range(5)] == number(5)
        restore(world, copy)
        with world.connect("stranger") as stranger:
            for value in number(3, 100):
                stranger.put("t", value)
        with pytest.raises(Diverged):
            next(listener)

    world.run(script)


def test_r01_a_broker_that_lost_what_was_only_heard_of_is_told() -> None:
    """The listener had missed the messages that are gone; that they were there it knows from a heartbeat."""
    world = started(retain="forever")

    def script() -> None:
        client = subscribed(world)
        listener = client.listen("t")
        listener.next(timeout=2)
        put(world, 3)
        assert [next(listener).value for _ in range(3)] == number(3)
        assert listener.next(timeout=2) is None
        copy = world.disk.copy()
        is_cut = [True]

        def cut(transit: Transit) -> Verdict:
            """Heartbeats arrive, and nothing else."""
            is_ours = transit.link == "ear" and (len(transit.frames) > 1 or transit.direction == TO_BROKER)
            return DROP if is_cut and is_ours else DELIVER

        world.network.rule = cut
        put(world, 2, first=3)
        with pytest.raises(BrokerUnreachable):
            listener.next(timeout=1)  # It hears of 5, and cannot get what is missing.
        is_cut.clear()
        restore(world, copy)
        with pytest.raises(Diverged, match="the end it told"):
            listener.next(timeout=5)

    world.run(script)


def test_h01_what_was_pushed_is_not_acknowledged_before_it_is_finished() -> None:
    """A listener dies with a pushed block half handed out: nothing of the rest was trimmed."""
    world = started()

    def script() -> list[bytes]:
        client = subscribed(world)
        listener = client.listen("t")
        listener.next(timeout=2)
        with world.connect("mouth") as mouth:
            mouth.put_many("t", number(100))
        found = []
        for message in listener:
            found.append(message.value)
            world.clock.pause(LIVE_ACK_MS)  # Slow: it acknowledges behind every message.
            if len(found) == 10:
                break
        world.crash_client(client)
        again = world.connect("ear")
        with pytest.raises(InDoubt) as told:
            heard(again)
        assert (told.value.first, told.value.end) == (9, 10)
        again.settle("t", "skip")
        return found + heard(again)

    assert world.run(script) == number(100)


def test_h01_a_listener_acknowledges_so_that_messages_are_trimmed() -> None:
    world = started()

    def script() -> tuple[int, int]:
        client = subscribed(world)
        listener = client.listen("t", timeout=4)
        listener.next(timeout=2)
        put(world, 50)
        assert len(list(listener)) == 50
        row = client.admin.subscriptions("t")[0]
        return row.info.cursor, client.admin.topics("t")[0].low

    cursor, low = world.run(script)
    assert (cursor, low) == (50, 49)


def test_h13_a_listener_whose_session_is_taken_over_stops() -> None:
    """It sends no Get, so it would never be told; the sign of life is."""
    world = started()

    def script() -> None:
        client = subscribed(world)
        listener = client.listen("t")
        listener.next(timeout=2)
        successor = world.connect("ear", disk=world.client_disk("other"), takeover=True)
        with pytest.raises(Fenced):
            listener.next(timeout=20)
        successor.close()

    world.run(script)


@pytest.mark.parametrize("how", ["messages", "blocks"])
def test_h13_a_listener_that_always_finds_something_live_is_told_all_the_same(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never waits, and so would never look for the refusal of what it acknowledged."""
    monkeypatch.setattr("oncemq.core.live.LIVE_ACK_MESSAGES", 5)
    world = started()
    taken = 0

    def script() -> None:
        nonlocal taken
        client = subscribed(world)
        listener = client.listen("t") if how == "messages" else client.listen_blocks("t")
        listener.next(timeout=2)
        put(world, 1)
        assert listener.next(timeout=2) is not None
        successor = world.connect("ear", disk=world.client_disk("other"), takeover=True)
        put(world, 50, first=1)
        while listener.next(timeout=0) is not None:
            taken += 1
            world.clock.pause(50)
        successor.close()

    with pytest.raises(Fenced):
        world.run(script)
    assert 0 < taken < 20


def test_unsubscribing_inside_the_loop_ends_it_or_goes_on_with_the_others() -> None:
    world = started()

    def script() -> list[bytes]:
        client = subscribed(world)
        client.subscribe("u")
        put(world, 4)
        put(world, 2, first=10, topic="u")
        found = []
        for message in client.listen("t", "u", timeout=3):
            found.append(message.value)
            if message.value == b"1":
                client.unsubscribe("t")
                put(world, 1, first=12, topic="u")
            if message.value == b"12":
                client.unsubscribe("u")
        return found

    assert world.run(script) == [b"0", b"1", b"10", b"11", b"12"]


def test_a_subscription_deleted_by_somebody_else_is_told() -> None:
    """Nothing that is pushed tells it; the refused sign of life does."""
    world = started()

    def script() -> None:
        with world.connect() as admin:
            admin.admin.create_topic("t")
            client = subscribed(world)
            listener = client.listen("t")
            listener.next(timeout=2)
            admin.admin.delete_subscription(client.admin.subscriptions("t")[0].info.subscription_id)
        with pytest.raises(NotSubscribed):
            listener.next(timeout=20)

    world.run(script)


def test_putting_inside_the_loop_works_and_is_heard() -> None:
    world = started()

    def script() -> list[bytes]:
        client = subscribed(world)
        put(world, 1)
        found = []
        for message in client.listen("t", timeout=3):
            found.append(message.value)
            if len(found) < 30:
                client.put("t", b"%d" % len(found))
        return found

    assert world.run(script) == number(30)


def test_r07_each_step_finishes_the_message_before_on_whichever_topic() -> None:
    world = started()

    def script() -> list[tuple[str, int, int]]:
        client = subscribed(world)
        client.subscribe("u")
        put(world, 1)
        put(world, 1, topic="u")
        listener = client.listen("t", "u")
        assert [listener.next(timeout=2).value for _ in range(2)] == [b"0", b"0"]  # type: ignore[union-attr]
        world.crash_client(client)
        again = world.connect("ear")
        doubts = []
        for topic in ("t", "u"):
            try:
                assert again.get(topic, timeout=0) is None
            except InDoubt as doubt:
                doubts.append((topic, doubt.first, doubt.end))
        return doubts

    assert world.run(script) == [("u", 0, 1)]


def test_a_gap_is_told_once_and_the_listener_goes_on_behind_it() -> None:
    world = started(limit="size:20000")

    def script() -> tuple[int, bool]:
        client = subscribed(world)
        put(world, 1)
        listener = client.listen("t")
        first = listener.next(timeout=2)
        assert first is not None
        world.network.publisher.backlog_max = 2
        with world.connect("mouth") as mouth:
            for _ in range(40):
                mouth.put_many("t", [bytes(1_000)] * 10)
        world.clock.pause(5_000)
        last, gaps = first.offset, 0
        while True:
            try:
                message = listener.next(timeout=5)
            except Gap as gap:
                assert gap.first == last + 1
                last, gaps = gap.end - 1, gaps + 1
                continue
            if message is None:
                return gaps, last == 400
            assert message.offset == last + 1
            last = message.offset

    gaps, is_complete = world.run(script)
    assert gaps >= 1
    assert is_complete


def test_blocks_are_handed_out_whole_and_the_rest_of_one_that_was_begun() -> None:
    world = started()

    def script() -> tuple[list[list[bytes]], list[bytes]]:
        client = subscribed(world)
        with world.connect("mouth") as mouth:
            mouth.put_many("t", number(10))
        assert [client.get("t", timeout=1).offset for _ in range(3)] == [0, 1, 2]  # type: ignore[union-attr]
        with world.connect("mouth") as mouth:
            mouth.put("t", b"10", key=b"k", headers={"a": "b"})
        blocks = list(client.listen_blocks("t", timeout=3))
        assert [(block.first_offset, block.end_offset, len(block)) for block in blocks] == [(3, 10, 7), (10, 11, 1)]
        assert [message.value for block in blocks for message in block] == number(8, 3)
        (last,) = blocks[1]
        assert (last.key, last.headers) == (b"k", {"a": "b"})
        return [list(block.values) for block in blocks], heard(client, timeout=1)

    assert world.run(script) == ([number(7, 3), [b"10"]], [])


def test_a_block_in_doubt_is_in_doubt_as_a_whole() -> None:
    world = started()

    def script() -> tuple[int, int]:
        client = subscribed(world)
        with world.connect("mouth") as mouth:
            mouth.put_many("t", number(10))
        block = client.listen_blocks("t").next(timeout=2)
        assert block is not None
        world.crash_client(client)
        again = world.connect("ear")
        with pytest.raises(InDoubt) as told:
            again.listen("t").next(timeout=2)
        return told.value.first, told.value.end

    assert world.run(script) == (0, 10)


def test_two_listeners_share_a_channel_and_leave_it_with_the_last() -> None:
    world = started()

    def script() -> list[int]:
        client = subscribed(world)
        one, two = client.listen("t"), client.listen("t")
        found = []
        assert world.loop is not None
        for step in (lambda: one.next(timeout=2), one.close, two.close):
            step()
            world.clock.pause(10)
            found.append(len(world.loop.machine.channels))
        return found

    assert world.run(script) == [1, 1, 0]

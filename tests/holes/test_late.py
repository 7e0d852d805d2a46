# SPDX-License-Identifier: Apache-2.0
"""Holes of late packets and reused names: a copy that arrives after its successor must hit nobody (H6, H11, H12, H13)."""

from __future__ import annotations

import pytest

from oncemq.core.packets import (
    Ack,
    CommandDone,
    Get,
    Goodbye,
    Hello,
    Refused,
    Shutdown,
    Subscribe,
    SubscribeDone,
    Unsubscribe,
    Want,
    Welcome,
)
from oncemq.errors import Fenced, NoSuchTopic, NotSubscribed
from oncemq.model.refusals import Code
from oncemq.sim.disk import SimDisk
from oncemq.sim.network import DROP, Verdict
from tests.holes.helpers import (
    SECOND_US,
    Raw,
    be_quiet,
    crash_at,
    meddle,
    number,
    overhear,
    record_frames,
    started,
    until_broker_dies,
    values,
)

LATE = Verdict(delay_us=60 * SECOND_US)


def code_of(answer: object) -> str:
    assert isinstance(answer, Refused)
    return answer.code


# --- H6: a late command hits its successor --------------------------------------------------------------


def test_h06_a_late_unsubscribe_does_not_end_the_subscription_that_came_after_it() -> None:
    """R2, R5: the copy on the old connection arrives a minute after unsubscribe and subscribe were done."""
    world = started()

    def script() -> None:
        client = world.connect("sub")
        client.subscribe("t")
        meddle(world, Unsubscribe, LATE)
        client.unsubscribe("t")
        client.subscribe("t")
        world.clock.pause(120_000)
        with world.connect("pub") as pub:
            assert pub.put("t", b"x").stored
        assert values(client, "t") == [b"x"]
        client.close()

    world.run(script)


def test_h06_a_late_unsubscribe_of_an_earlier_session_is_refused() -> None:
    """R3: the same across a restart of the client: the session is not the current one any more."""
    world = started()
    frames = record_frames(world, Unsubscribe)

    def script() -> None:
        with world.connect("sub") as first:
            first.subscribe("t")
            first.unsubscribe("t")
        with world.connect("sub") as again:
            again.subscribe("t")
            assert code_of(Raw(world).replay(frames[0])) == Code.FENCED
            assert [row.client for row in again.admin.subscriptions("t")] == ["sub"]

    world.run(script)


def test_h06_a_repeated_command_is_carried_out_once_and_gets_its_reply_again() -> None:
    """R5: over a broker restart too; an older command is told that it is late."""
    world = started()
    raw = Raw(world)

    def first() -> None:
        raw.hello()
        done = raw.ask(Subscribe(raw.session, 1, "t"))
        assert isinstance(done, SubscribeDone)
        assert raw.ask(Subscribe(raw.session, 1, "t")) == done
        assert raw.ask(Unsubscribe(raw.session, 2, "t", done.subscription.subscription_id)) == CommandDone(2)

    def again() -> None:
        assert raw.ask(Unsubscribe(raw.session, 2, "t")) == CommandDone(2)
        assert code_of(raw.ask(Subscribe(raw.session, 1, "t"))) == Code.LATE_COMMAND
        assert world.loop is not None
        assert world.loop.machine.state.topics == {}

    world.run(first)
    world.restart_broker(power_cut=True)
    world.run(again)


@pytest.mark.parametrize("confirm", [False, True])
def test_h06_a_late_ack_does_not_move_the_cursor_of_a_topic_made_again(confirm: bool) -> None:
    """R2: the late Ack(100) names the old topic and subscription; the new one of that name keeps all its messages."""
    world = started()

    def script() -> None:
        raw, other = Raw(world), Raw(world, "other")
        raw.hello()
        other.hello()
        old = raw.subscribe("t")
        raw.put(1, "t", *number(100))
        raw.ask(Unsubscribe(raw.session, raw.next_command(), "t"))
        new = raw.subscribe("t")
        assert (new.topic_id, new.subscription_id) != (old.topic_id, old.subscription_id)
        raw.put(101, "t", *number(100))
        for topic_id in (old.topic_id, new.topic_id):
            for subscription_id in {old.subscription_id, new.subscription_id} - {new.subscription_id}:
                answer = raw.ask(Ack(raw.session, subscription_id, topic_id, 100, confirm=confirm))
                assert code_of(answer) in {Code.NO_SUCH_TOPIC, Code.NOT_SUBSCRIBED}
        assert code_of(raw.ask(Ack(raw.session, new.subscription_id, old.topic_id, 100))) == Code.NO_SUCH_TOPIC
        assert code_of(raw.ask(Ack(other.session, new.subscription_id, new.topic_id, 100))) == Code.NOT_SUBSCRIBED
        world.clock.pause(5_000)
        with world.connect() as admin:
            assert admin.admin.subscriptions("t")[0].info.cursor == 0

    world.run(script)


def test_h06_a_late_ack_never_moves_a_cursor_back() -> None:
    """R6: an old Ack behind a newer one changes nothing."""
    world = started()

    def script() -> None:
        raw = Raw(world)
        raw.hello()
        info = raw.subscribe("t")
        raw.put(1, "t", *number(10))
        for done in (8, 3):
            raw.ask(Ack(raw.session, info.subscription_id, info.topic_id, done, confirm=True))
        with world.connect() as admin:
            assert admin.admin.subscriptions("t")[0].info.cursor == 8

    world.run(script)


def test_h06_an_ack_beyond_the_end_is_refused_and_never_applied() -> None:
    """R2: `done > end` is refused, in Ack and in Get."""
    world = started()

    def script() -> None:
        raw = Raw(world)
        raw.hello()
        info = raw.subscribe("t")
        raw.put(1, "t", *number(10))
        ids = info.subscription_id, info.topic_id
        assert code_of(raw.ask(Ack(raw.session, *ids, 11, confirm=True))) == Code.BEYOND_END
        assert code_of(raw.ask(Get(raw.session, (Want(*ids, 0, 11),), 1000))) == Code.BEYOND_END
        assert code_of(raw.ask(Get(raw.session, (Want(*ids, 11),), 1000))) == Code.BEYOND_END
        world.clock.pause(5_000)
        with world.connect() as admin:
            assert admin.admin.subscriptions("t")[0].info.cursor == 0

    world.run(script)


def test_h06_a_late_shutdown_does_not_stop_the_restarted_broker() -> None:
    """R5: Shutdown names the start it is meant for."""
    world = started()
    frames = record_frames(world, Shutdown)

    def stop() -> None:
        with world.connect() as admin:
            admin.admin.shutdown()

    world.run(stop)
    world.pass_time(10)
    assert not world.is_broker_running
    world.start_broker()

    def late() -> None:
        assert code_of(Raw(world).replay(frames[0])) == Code.WRONG_START
        with world.connect() as admin:
            assert admin.topics() == []

    world.run(late)
    assert world.is_broker_running


# --- H11: a topic made again from 0 ------------------------------------------------------------------------


def test_h11_a_topic_made_again_is_another_topic() -> None:
    """R2: nobody who held a place in the old one can read the new one with it."""
    world = started()

    def script() -> None:
        client, pub = world.connect("sub"), world.connect("pub")
        old = client.subscribe("t")
        pub.put_many("t", number(50))
        assert client.get("t", timeout=0) is not None
        client.unsubscribe("t")
        assert pub.put("t", b"nobody").stored is False
        with world.connect("other") as other:
            other.subscribe("t")
        pub.put_many("t", number(100, 1000))
        with pytest.raises(NotSubscribed):
            client.get("t", timeout=0)
        new = client.subscribe("t", start="earliest")
        assert new.topic_id != old.topic_id
        assert values(client, "t") == number(100, 1000)
        pub.close()
        client.close()

    world.run(script)


def test_h11_a_slot_of_a_deleted_topic_is_not_used_for_its_successor() -> None:
    """R2: deleted and made again while the client was away; its old place (40) skips nothing of the new topic."""
    world = started()

    def script() -> None:
        with world.connect("sub") as client:
            client.subscribe("t")
            with world.connect("pub") as pub:
                pub.put_many("t", number(40))
            assert len(values(client, "t")) == 40
        with world.connect("pub") as pub:
            pub.admin.delete_topic("t")
            pub.admin.create_topic("t", retain="forever")
            pub.put_many("t", number(60, 100))
        with world.connect("sub") as client:
            with pytest.raises(NotSubscribed):
                client.get("t", timeout=0)
            client.subscribe("t", start="earliest")
            assert values(client, "t") == number(60, 100)

    world.run(script)


def test_h11_a_living_client_of_a_deleted_topic_is_told() -> None:
    """R2, G8: not a silent wait, and not the messages of the new topic."""
    world = started()

    def script() -> None:
        with world.connect("sub") as client, world.connect("pub") as pub:
            client.subscribe("t")
            pub.admin.delete_topic("t")
            with world.connect("other") as other:
                other.subscribe("t")
            pub.put("t", b"of another topic")
            with pytest.raises((NoSuchTopic, NotSubscribed)):
                client.get("t", timeout=5)

    world.run(script)


# --- H12: an answer from unsynced state ------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["broker.before_append", "broker.after_append"])
def test_h12_nothing_is_said_before_the_sync_not_even_to_a_repeat_in_the_same_drain(point: str) -> None:
    """R12: Subscribe and its repeat arrive together; the broker dies before the sync; neither was answered."""
    world = started()
    raw = Raw(world)
    world.run(raw.hello)
    heard = [overhear(world, kind) for kind in (SubscribeDone, Refused)]
    meddle(world, Subscribe, Verdict(copies=2))
    with crash_at(point):
        process = world.spawn("subscribe", lambda: raw.subscribe("t") and None)
        until_broker_dies(world)
    world.cut_power()
    assert heard == [[], []]
    process.kill()
    world.start_broker()
    again = world.run(lambda: raw.ask(Subscribe(raw.session, 1, "t")))
    assert isinstance(again, SubscribeDone)  # Whether or not the unsynced group survived: the same command, the same answer.


def test_h12_a_repeat_in_the_same_drain_gets_the_reply_of_the_first() -> None:
    """R5, R12: "already subscribed" would be taken for success or failure at random; both copies hear the same."""
    world = started()
    heard, refused = overhear(world, SubscribeDone), overhear(world, Refused)
    meddle(world, Subscribe, Verdict(copies=2))

    def script() -> None:
        with world.connect("sub") as client:
            client.subscribe("t")
            world.clock.pause(100)

    world.run(script)
    assert len(heard) == 2
    assert heard[0] == heard[1]
    assert refused == []


# --- H13: a dead process fences the living one --------------------------------------------------------------------


def test_h13_the_late_hello_of_a_dead_process_fences_nobody() -> None:
    """R3: A says Hello on a stalled connection and dies; B (same directory) works; A's Hello arrives and is refused."""
    world = started()

    def script() -> None:
        with world.connect("id") as first:
            first.subscribe("t")
        meddle(world, Hello, LATE, times=3)
        dead = world.connect("id", offline=True)
        dead._session.state.sync()
        process = world.spawn("a", dead._session.ensure)
        world.clock.pause(500)
        world.scheduler.do(process.kill)
        world.crash_client(dead)
        be_quiet(world)
        living = world.connect("id")
        refused = overhear(world, Refused)
        world.clock.pause(120_000)
        assert world.loop is not None
        assert world.loop.machine.counters[f"refused_{Code.FENCED}"] == 1
        assert refused == []  # Its connection is gone: nobody is there to hear it.
        assert living.put("t", b"x").stored
        assert values(living, "t") == [b"x"]
        living.close()

    world.run(script)


def test_h13_the_late_takeover_of_a_replaced_session_does_not_open_it_again() -> None:
    """R3: takeover skips the test of known sessions, so a session that was replaced once must be refused by name."""
    world = started()
    hellos = record_frames(world, Hello)

    def script() -> None:
        world.connect("id").close()
        first = world.connect("id", disk=SimDisk(), takeover=True)
        second = world.connect("id", disk=SimDisk(), takeover=True)
        assert code_of(Raw(world).replay(hellos[1])) == Code.FENCED
        second.put("t", b"x")
        with pytest.raises(Fenced):
            first.put("t", b"y")
        first.close()
        second.close()

    world.run(script)


def test_h13_a_repeated_hello_gets_the_same_welcome() -> None:
    """R3: the first Welcome is lost; the second tells the same: session, streams, and the session it replaced."""
    world = started()
    heard = overhear(world, Welcome)

    def script() -> None:
        with world.connect("id") as first:
            first.put("t", b"x")
        meddle(world, Welcome, DROP)
        world.connect("id").close()

    world.run(script)
    assert len(heard) == 2
    world = started()
    lost = overhear(world, Welcome)
    frames = record_frames(world, Hello)

    def compare() -> None:
        with world.connect("id") as first:
            first.put("t", b"x")
        with world.connect("id"):
            Raw(world).replay(frames[-1])
        assert lost[-1] == lost[-2]
        assert lost[-1].previous.last_number == 1  # type: ignore[attr-defined]

    world.run(compare)


def test_h13_a_late_goodbye_of_an_earlier_session_closes_nothing() -> None:
    """R3: every packet that changes something names the current session by equality."""
    world = started()
    frames = record_frames(world, Goodbye)

    def script() -> None:
        world.connect("id").close()
        with world.connect("id") as living:
            assert code_of(Raw(world).replay(frames[0])) == Code.FENCED
            living.put("t", b"x")

    world.run(script)


def test_h13_a_stranger_without_a_session_changes_nothing() -> None:
    """R3: an unknown session is refused, whatever it asks for."""
    world = started()

    def script() -> None:
        raw = Raw(world)
        raw.session = b"s" * 16
        assert code_of(raw.put(1, "t", b"x")) == Code.NO_SESSION
        assert code_of(raw.ask(Subscribe(raw.session, 1, "t"))) == Code.NO_SESSION
        assert code_of(raw.ask(Goodbye(raw.session))) == Code.NO_SESSION

    world.run(script)

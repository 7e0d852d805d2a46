# SPDX-License-Identifier: Apache-2.0
"""Holes of lost, cloned and restored directories, zombies and missing ids (H24, H25, H32, H33)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oncemq.adapters.os_disk import OsDisk
from oncemq.client.client import Client
from oncemq.client.state import DirectoryState
from oncemq.core import broker
from oncemq.core.packets import Welcome
from oncemq.errors import (
    DirectoryLocked,
    DirectoryUnusable,
    Diverged,
    Fenced,
    InDoubt,
    NoSuchTopic,
    NotSubscribed,
    PutPending,
    StateLost,
)
from oncemq.sim.disk import SimDisk
from oncemq.sim.network import DELIVER, DROP, TO_CLIENT
from oncemq.sim.world import World
from tests.holes.helpers import back_up, meddle, number, restore, started, stored_values, values


def with_messages(world: World, count: int, client: str = "sub") -> None:
    """Subscribe a client to "t" and put that many messages there."""
    with world.connect(client) as sub, world.connect("pub") as pub:
        sub.subscribe("t")
        pub.put_many("t", number(count))


# --- H24: state lost, subscriber side ---------------------------------------------------------------------


def test_h24_the_same_id_on_another_machine_is_refused_and_told_after_takeover() -> None:
    """R3: handed out on machine 1; machine 2 is StateLost, and with takeover [cursor, end) is in doubt, not given again."""
    world = started()

    def script() -> None:
        with_messages(world, 10)
        first = world.connect("sub")
        assert [first.get("t", timeout=0).value for _ in range(6)] == number(6)  # type: ignore[union-attr]
        first.ack("t")
        world.clock.pause(3_000)
        for _ in range(2):
            first.get("t", timeout=0)
        world.crash_client(first)
        elsewhere = SimDisk()
        with pytest.raises(StateLost):
            world.connect("sub", disk=elsewhere)
        second = world.connect("sub", disk=elsewhere, takeover=True)
        with pytest.raises(InDoubt) as told:
            second.get("t", timeout=0)
        assert (told.value.first, told.value.end) == (6, 10)
        assert [message.value for message in second.in_doubt("t")] == number(4, 6)
        second.settle("t", "skip")
        assert values(second, "t") == []
        second.close()

    world.run(script)


def test_h24_a_takeover_whose_first_welcome_is_lost_is_still_told_what_is_in_doubt() -> None:
    """R3: "the same Welcome again": the repeat must say that it took over, or everything is handed out twice in silence."""
    world = started()

    def script() -> None:
        with_messages(world, 5)
        first = world.connect("sub")
        first.get("t", timeout=0)
        world.crash_client(first)
        meddle(world, Welcome, DROP)
        second = world.connect("sub", disk=SimDisk(), takeover=True)
        with pytest.raises(InDoubt):
            second.get("t", timeout=0)
        second.close()

    world.run(script)


def test_h24_a_lost_welcome_before_a_broker_restart_is_repeated_as_it_was() -> None:
    """R3: what the Welcome said is part of the durable state, snapshots included."""
    world = started()

    def before() -> None:
        with_messages(world, 5)
        meddle(world, Welcome, DROP)
        world.client_disk("sub").kill()

    world.run(before)
    process = world.spawn("takeover", lambda: takeover(world))
    world.pass_time(300)
    world.restart_broker(power_cut=True)
    world.restart_broker()
    assert world.scheduler.run(until=lambda: not process.is_running)
    assert process.error is None


def takeover(world: World) -> None:
    second = world.connect("sub", disk=SimDisk(), takeover=True)
    with pytest.raises(InDoubt):
        second.get("t", timeout=0)
    second.close()


def test_h24_a_restored_directory_of_a_subscriber_is_refused() -> None:
    """R3: an older copy does not know the session that came after it."""
    world = started()

    def script() -> None:
        with_messages(world, 10)
        copy = world.client_disk("sub").copy()
        with world.connect("sub") as client:
            assert values(client, "t") == number(10)
        with pytest.raises(StateLost):
            world.connect("sub", disk=copy)

    world.run(script)


@pytest.mark.parametrize("handed", [3, 1500])
def test_h24_a_copy_taken_and_restored_inside_one_session_is_refused_if_the_broker_knows_better(handed: int) -> None:
    """R9: a broker cursor above what the slot has handed out proves an old copy, unless the machine died meanwhile."""
    world = started()

    def script() -> None:
        with_messages(world, 2000)
        first = world.connect("sub")
        first.get("t", timeout=0)
        copy = world.client_disk("sub").copy()
        for _ in range(handed):
            first.get("t", timeout=0)
        first.ack("t")
        world.clock.pause(3_000)
        world.crash_client(first)
        world.client_disk("sub").set_back(copy)
        with pytest.raises(StateLost):
            world.connect("sub")

    world.run(script)


# --- H25: zombies and the lock -------------------------------------------------------------------------------


def test_h25_a_directory_in_use_is_refused_with_the_process_that_holds_it(tmp_path: Path) -> None:
    """H25: a clear error with the pid; the holder is not disturbed, and when it lets go the next one may come."""
    holder = DirectoryState(OsDisk(tmp_path), str(tmp_path), "id", b"1" * 16)
    with pytest.raises(DirectoryLocked) as told:
        DirectoryState(OsDisk(tmp_path), str(tmp_path), "id", b"2" * 16)
    assert told.value.pid == os.getpid()
    assert str(os.getpid()) in str(told.value)
    holder.close()
    DirectoryState(OsDisk(tmp_path), str(tmp_path), "id", b"3" * 16).close()


def test_h25_a_second_process_on_one_directory_is_locked_out_while_the_first_works() -> None:
    """H25: two processes would share slot and outbox."""
    world = started()

    def script() -> None:
        with world.connect("id") as first:
            with pytest.raises(DirectoryLocked):
                world.connect("id")
            first.put("t", b"x")
        world.connect("id").close()

    world.run(script)


def test_h25_a_directory_of_another_client_is_refused_and_left_unlocked() -> None:
    """R1: a state directory belongs to one client id."""
    world = started()

    def script() -> None:
        disk = SimDisk()
        world.connect("one", disk=disk).close()
        with pytest.raises(DirectoryUnusable):
            world.connect("two", disk=disk)
        world.connect("one", disk=disk).close()

    world.run(script)


def test_h25_a_paused_zombie_is_fenced_in_everything_it_tries() -> None:
    """R3: two directories and a takeover; the continued zombie can neither put, get, ack nor command, and stays out for good."""
    world = started()

    def script() -> None:
        with_messages(world, 4)
        zombie = world.connect("sub")
        assert zombie.get("t", timeout=0) is not None
        zombie.ack("t")
        with world.connect("sub", disk=SimDisk(), takeover=True, in_doubt="repeat") as successor:
            assert values(successor, "t") == number(3, 1)
            for attempt in (
                lambda: zombie.put("t", b"x"),
                lambda: zombie.get_many("t", 100, timeout=1) and zombie.get("t", timeout=1),
                lambda: zombie.subscribe("u"),
                lambda: zombie.unsubscribe("t"),
                lambda: zombie.ack("t"),
                zombie.flush,
            ):
                with pytest.raises(Fenced):
                    attempt()
            successor.ack("t")
            world.clock.pause(3_000)
            assert [row.info.cursor for row in successor.admin.subscriptions("t")] == [4]
        assert zombie.close() == 1  # What it put is kept in its own directory, and told.
        assert stored_values(world, "t")[-1:] == number(1, 3)

    world.run(script)


def test_h25_whoever_was_told_that_it_is_fenced_hands_out_nothing_more_of_what_it_had_fetched() -> None:
    """R3, G3: its successor hands those out; the zombie knows it by then."""
    world = started()

    def script() -> None:
        with_messages(world, 100)
        zombie = world.connect("sub")
        assert [zombie.get("t", timeout=0).value for _ in range(3)] == number(3)  # type: ignore[union-attr]
        with world.connect("sub", disk=SimDisk(), takeover=True, in_doubt="repeat") as successor:
            assert len(values(successor, "t")) == 100
        with pytest.raises(Fenced):
            zombie.put("t", b"x")
        for get in (lambda: zombie.get("t", timeout=0), lambda: zombie.get(timeout=0), lambda: zombie.get_many("t", timeout=0)):
            with pytest.raises(Fenced):
                get()
        zombie.close()

    world.run(script)


# --- H32: client ids ---------------------------------------------------------------------------------------------


def test_h32_a_client_without_an_id_is_ephemeral_and_its_goodbye_leaves_nothing() -> None:
    """H32: no id, no directory; goodbye takes streams, subscriptions and the topics only they kept."""
    world = started()

    def script() -> None:
        with world.connect() as client:
            client.subscribe("t")
            client.put("t", b"x")
            assert [row.ephemeral for row in client.admin.clients()] == [True]
            assert values(client, "t") == [b"x"]
        assert world.loop is not None
        state = world.loop.machine.state
        assert (state.clients, state.sessions, state.topics, state.subscriptions) == ({}, {}, {}, {})

    world.run(script)


def test_h32_an_ephemeral_client_that_vanished_is_forgotten_after_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: sessions of durable clients never expire by silence; ephemeral ones have a lease, begun anew at a broker restart."""
    monkeypatch.setattr(broker, "EPHEMERAL_LEASE_MS", 60_000)
    world = started()

    def vanish() -> None:
        world.connect("durable").close()
        client = world.connect()
        client.subscribe("t")
        client._forget()

    def names() -> list[bool]:
        assert world.loop is not None
        return [client.ephemeral for client in world.loop.machine.state.clients.values()]

    world.run(vanish)
    world.pass_time(50_000)
    world.restart_broker()
    world.pass_time(50_000)
    assert names() == [False, True]
    world.pass_time(20_000)
    assert names() == [False]
    assert world.loop is not None
    assert world.loop.machine.state.topics == {}


def test_h32_an_ephemeral_put_without_an_answer_says_that_it_is_only_in_memory() -> None:
    """H27, H32: PutPending must not promise a directory that is not there."""
    world = started()

    def script() -> None:
        client = world.connect()
        world.kill_broker()
        with pytest.raises(PutPending) as told:
            client.put("t", b"x")
        assert not told.value.is_durable
        assert "memory" in str(told.value)
        client._forget()

    world.run(script)


def test_h32_a_durable_client_can_be_listed_and_forgotten() -> None:
    """H32: an id that is not used any more need not be known for ever; its directory is then told so."""
    world = started()

    def script() -> None:
        with world.connect("old") as old:
            old.subscribe("t")
        with world.connect() as admin:
            assert "old" in [row.client for row in admin.admin.clients()]
            admin.admin.forget_client("old")
            assert admin.topics() == []
        with pytest.raises(Diverged):
            world.connect("old")
        world.connect("old", takeover=True).close()

    world.run(script)


# --- H33: the broker's directory restored ----------------------------------------------------------------------------


def test_h33_a_subscriber_that_saw_more_than_the_restored_broker_is_told_even_when_it_has_refilled() -> None:
    """R1: backup at 80, client at 100, restored, refilled to 110: asking from 100 would skip 80…99 in silence."""
    world = started()

    def before() -> None:
        with world.connect("sub") as sub, world.connect("pub") as pub:
            sub.subscribe("t")
            pub.put_many("t", number(80))
        # Written one by one, so that the place seen last is a put of its own.

    world.run(before)
    sub = world.run(lambda: world.connect("sub"))
    world.run(lambda: values(sub, "t"))
    backup = back_up(world)

    def more() -> None:
        with world.connect("other") as pub:
            for value in number(20, 80):
                pub.put("t", value)
        assert values(sub, "t") == number(20, 80)

    world.run(more)
    restore(world, backup)

    def refill() -> None:
        with world.connect("another") as pub:
            for value in number(30, 1000):
                pub.put("t", value)
        with pytest.raises(Diverged):
            sub.get("t", timeout=1)
        sub.close()
        with pytest.raises(Diverged):  # Its directory has a bookmark that this broker cannot have given.
            world.connect("sub")
        with world.connect("sub", disk=SimDisk(), takeover=True, in_doubt="repeat") as fresh:
            assert values(fresh, "t")[-30:] == number(30, 1000)

    world.run(refill)


@pytest.mark.parametrize("death", ["close", "kill"])
def test_h33_who_received_what_a_restored_broker_has_not_is_told_in_its_next_life_too(death: str) -> None:
    """The broker keeps the place of receive(): one that was set back knows nothing of what was received. The client does."""
    world = started()

    def subscribed() -> Client:
        sub = world.connect("sub")
        sub.subscribe("t")
        return sub

    sub = world.run(subscribed)
    backup = back_up(world)

    def receive() -> None:
        with world.connect("pub") as pub:
            pub.put_many("t", number(8))
        for value in number(5):
            with sub.receive("t", timeout=1) as message:
                assert message is not None
                assert message.value == value
        if death == "close":
            sub.close()
        else:
            world.crash_client(sub)

    world.run(receive)
    restore(world, backup)

    def after() -> None:
        with world.connect("another") as pub:
            pub.put_many("t", number(8, 1000))
        with pytest.raises(Diverged):
            world.connect("sub")

    world.run(after)


def restored_under_a_publisher(world: World) -> object:
    """A publisher whose 80 puts the broker has, 20 more confirmed, and a broker set back to 80."""
    client = world.run(lambda: world.connect("pub"))

    def put(first: int, count: int) -> None:
        for value in number(count, first):
            client.put("t", value)

    world.run(lambda: put(0, 80))
    backup = back_up(world)
    world.run(lambda: put(80, 20))
    restore(world, backup)
    return client


def test_h33_a_living_publisher_of_a_restored_broker_is_told_and_not_asked_to_resend_for_ever() -> None:
    """R4: #101 meets a broker that expects #81; what is confirmed is not here any more, so it can only be Diverged."""
    world = started()
    client = restored_under_a_publisher(world)

    def script() -> None:
        with pytest.raises(Diverged):
            client.put("t", b"x")  # type: ignore[attr-defined]
        with pytest.raises(Diverged):
            client.flush()  # type: ignore[attr-defined]
        assert client.close() == 1  # type: ignore[attr-defined]

    world.run(script)


@pytest.mark.parametrize("death", ["close", "kill"])
def test_h33_a_publisher_that_comes_back_to_a_restored_broker_is_told_until_it_takes_over(death: str) -> None:
    """R4: Welcome shows less than what was confirmed. Told at every start, not only at the first."""
    world = started()
    client = restored_under_a_publisher(world)

    def script() -> None:
        if death == "close":
            client.close()  # type: ignore[attr-defined]
        else:
            world.crash_client(client)  # type: ignore[arg-type]
        for _ in range(3):
            with pytest.raises(Diverged):
                world.connect("pub")
        disk = SimDisk()
        with world.connect("pub", disk=disk, takeover=True) as again:
            again.put("t", b"x")
        with world.connect("pub", disk=disk) as again:
            again.put("t", b"y")

    world.run(script)


def test_h33_a_publisher_whose_welcome_is_lost_is_told_all_the_same() -> None:
    """R3, R4: the Welcome that shows the loss is dropped; its repeat shows it too."""
    world = started()
    client = restored_under_a_publisher(world)

    def script() -> None:
        client.close()  # type: ignore[attr-defined]
        meddle(world, Welcome, DROP)
        with pytest.raises(Diverged):
            world.connect("pub")

    world.run(script)


def test_h33_a_client_the_restored_broker_has_never_heard_of_is_told() -> None:
    """R1: it has a past with this log, the log has none with it."""
    world = started()
    world.run(lambda: with_messages(world, 3))
    backup = back_up(world)

    def newcomer() -> None:
        with world.connect("new") as client:
            client.subscribe("t")
            client.put("t", b"x")

    world.run(newcomer)
    restore(world, backup)

    def script() -> None:
        with pytest.raises(Diverged):
            world.connect("new")

    world.run(script)


def test_h33_a_client_whose_newer_session_the_restored_broker_has_lost_is_told() -> None:
    """R3: session ids go back with the broker; equality and the list of past sessions notice it, no epoch could."""
    world = started()
    world.run(lambda: with_messages(world, 3))
    backup = back_up(world)
    for _ in range(3):
        world.run(lambda: world.connect("sub").close())
    restore(world, backup)

    def script() -> None:
        with pytest.raises(Diverged):
            world.connect("sub")

    world.run(script)


def test_h33_a_subscription_the_restored_broker_has_lost_is_told_to_the_living_client() -> None:
    """R2: ids are not given again after a restore, so the old subscription is refused, never mistaken for another."""
    world = started()
    client = world.run(lambda: world.connect("sub"))
    backup = back_up(world)
    world.run(lambda: client.subscribe("t"))
    restore(world, backup)

    def script() -> None:
        with world.connect("other") as other:
            other.subscribe("t")
            other.put("t", b"x")
        with pytest.raises((NoSuchTopic, NotSubscribed)):
            client.get("t", timeout=1)
        client.close()

    world.run(script)


def test_h33_a_pending_put_after_a_restore_is_told_and_stored_once_where_it_still_can() -> None:
    """R4: nothing of it was confirmed, so the restored broker takes it as if nothing had happened."""
    world = started()
    world.run(lambda: with_messages(world, 1))
    backup = back_up(world)

    def keep() -> None:
        client = world.connect("late")
        world.kill_broker()
        with pytest.raises(PutPending):
            client.put("t", b"x")
        world.crash_client(client)

    world.run(keep)
    world.disk.set_back(backup)
    world.start_broker()

    def script() -> None:
        with pytest.raises(Diverged):
            world.connect("late")
        with world.connect("late", takeover=True) as again:
            again.flush()
        assert stored_values(world, "t") == [b"0", b"x"]

    world.run(script)


def test_h33_a_client_that_subscribes_at_every_start_is_told_that_the_broker_lost_its_subscription() -> None:
    """R1: the bookmark in Hello tells it before `subscribe` would begin anew at the end, in silence."""
    world = started()
    backup = world.disk.copy()

    def before() -> None:
        with world.connect("sub") as sub, world.connect("pub") as pub:
            sub.subscribe("t")
            pub.put_many("t", number(5))
            assert values(sub, "t") == number(5)

    world.run(before)
    restore(world, backup)

    def after() -> None:
        with pytest.raises(Diverged), world.connect("sub") as sub:
            sub.subscribe("t")

    world.run(after)


def test_h33_a_takeover_with_an_old_directory_does_not_store_its_pending_puts_again() -> None:
    """R4: what an old copy holds as pending may have been stored, and its stream forgotten, long ago."""
    world = started()

    def pending() -> None:
        with world.connect("other") as other:
            other.subscribe("t")
        pub = world.connect("pub")
        world.network.rule = lambda transit: DROP if transit.direction == TO_CLIENT else DELIVER
        with pytest.raises(PutPending):
            pub.put("t", b"once")
        world.network.rule = lambda _: DELIVER
        world.crash_client(pub)

    world.run(pending)
    old = world.client_disk("pub").copy()

    def after() -> None:
        for _ in range(2):  # The second Hello names nothing as pending: the broker forgets the stream.
            with world.connect("pub") as pub:
                pub.flush()
        with world.connect("pub", disk=old, takeover=True) as pub:
            pub.flush()
        with world.connect("other") as other:
            assert values(other, "t") == [b"once"]

    world.run(after)


@pytest.mark.parametrize("death", ["none", "kill"])
def test_h33_an_ended_subscription_that_a_restored_broker_has_again_is_told(death: str) -> None:
    """R1: the bookmark outlives the subscription, or what was handed out before it ended would be handed out again."""
    world = started()
    client = world.run(lambda: world.connect("sub"))

    def begin() -> None:
        client.subscribe("t")
        with world.connect("pub") as pub:
            pub.put("t", b"once")

    world.run(begin)
    backup = back_up(world)

    def more() -> None:
        with world.connect("other") as other:
            other.subscribe("t")
            other.put("t", b"lost")
        assert values(client, "t") == [b"once", b"lost"]
        client.unsubscribe("t")

    world.run(more)
    restore(world, backup)

    def after() -> None:
        if death == "kill":
            world.crash_client(client)
        with pytest.raises(Diverged):
            again = client if death == "none" else world.connect("sub")
            again.subscribe("t")
            again.get("t", timeout=1)

    world.run(after)


def test_h33_who_takes_over_goes_on_with_receive_at_the_broker_it_accepted() -> None:
    """The bookmark of what was received belongs to a history that is no more, as that of get() does."""
    world = started()

    def receive(count: int) -> None:
        with world.connect("pub") as pub, world.connect("sub") as sub:
            sub.subscribe("t")
            pub.put_many("t", number(count))
            for value in number(count):
                with sub.receive("t", timeout=1) as message:
                    assert message is not None
                    assert message.value == value

    world.run(lambda: receive(1))
    backup = back_up(world)
    world.run(lambda: receive(5))
    restore(world, backup)

    def after() -> None:
        with world.connect("another") as pub:
            pub.put_many("t", number(2, 1000))
        for takeover, value in zip((True, False), number(2, 1000), strict=True):  # The life after it takes nothing over.
            with world.connect("sub", takeover=takeover) as sub, sub.receive("t", timeout=1) as message:
                assert message is not None
                assert message.value == value

    world.run(after)


def test_h33_who_takes_over_is_not_told_again_because_of_a_subscription_that_the_broker_never_heard_of() -> None:
    """Begun after the backup it is nowhere, but its slot had the newest message that the directory knows of."""
    world = started()

    def got(topics: str, count: int) -> None:
        with world.connect("pub") as pub, world.connect("sub") as sub:
            for topic in topics:
                sub.subscribe(topic)
                pub.put_many(topic, number(count))
                for _ in range(count):
                    assert sub.get(topic, timeout=1) is not None

    world.run(lambda: got("t", 1))
    backup = back_up(world)
    world.run(lambda: got("tu", 5))
    restore(world, backup)

    def after() -> None:
        with world.connect("another") as pub:
            pub.put_many("t", number(2, 1000))
        for takeover, value in zip((True, False), number(2, 1000), strict=True):
            with world.connect("sub", takeover=takeover, in_doubt="repeat") as sub:
                message = sub.get("t", timeout=1)
                assert message is not None
                assert message.value == value

    world.run(after)

# SPDX-License-Identifier: Apache-2.0
"""What is left over when a broker or a slot goes back: puts that were kept, and places that were jumped to (H33, G8).

The idea: a put that was told `PutPending` is sent, once, also to a broker that was set back meanwhile; if nobody can tell whether
it was stored, that is told with a count. Nothing is dropped, and nothing is taken for granted, in silence.
"""

from __future__ import annotations

import pytest

from oncemq.client.client import Client
from oncemq.core.identity import Leftovers
from oncemq.errors import Diverged, Gap, InDoubt, PutPending
from oncemq.sim.disk import SimDisk
from oncemq.sim.network import DELIVER, DROP, TO_CLIENT
from oncemq.sim.world import World
from tests.holes.helpers import back_up, die_at, number, restore, started, stored_values, values


def subscribed(world: World) -> None:
    with world.connect("sub") as sub:
        sub.subscribe("t")


def put(world: World, value: bytes) -> None:
    with world.connect("pub") as pub:
        pub.put("t", value)


def kept_offline(world: World, *found: bytes) -> None:
    """A run of "pub" that does not reach the broker: what it puts is kept, and it is told so."""
    client = world.connect("pub", offline=True)
    for value in found:
        with pytest.raises(PutPending):
            client.put("t", value)
    world.crash_client(client)


def with_kept_puts(world: World, filling: bytes = b"") -> None:
    """A broker set back to before a confirmed put, and a directory with three kept ones of two runs that never reached it."""
    world.run(lambda: subscribed(world))
    world.run(lambda: put(world, b"1"))
    backup = back_up(world)
    world.run(lambda: put(world, b"2"))
    world.kill_broker()
    world.run(lambda: kept_offline(world, b"3" + filling, b"4" + filling))
    world.run(lambda: kept_offline(world, b"5" + filling))
    world.disk.set_back(backup)
    world.start_broker()


def test_h33_kept_puts_that_never_reached_a_restored_broker_are_sent_after_a_takeover() -> None:
    """G8: PutPending promised to send them. The stream they were numbered in is gone; they get numbers of the new one."""
    world = started()
    with_kept_puts(world)

    def script() -> None:
        with pytest.raises(Diverged, match="takeover=True"):
            world.connect("pub")
        with world.connect("pub", takeover=True) as again:
            assert again.leftovers == Leftovers(renumbered=3, unknown=0)
            again.put("t", b"6")
        with world.connect("pub") as again:
            assert again.pending == 0
            assert again.leftovers.renumbered == 3  # Told until there is something newer to tell.
        assert stored_values(world, "t") == [b"1", b"3", b"4", b"5", b"6"]

    world.run(script)


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("point", ["before_state_rename", "before_send", "after_send", "after_receive"])
@pytest.mark.parametrize("after", range(6))
def test_h33_a_takeover_that_dies_half_way_stores_nothing_twice(point: str, after: int, power_cut: bool) -> None:
    """G1: wherever it dies, what was moved is not moved again. What can no longer be proved is told."""
    world = started()
    with_kept_puts(world)

    def takeover() -> None:
        client = world.connect("pub", takeover=True)
        client.flush()

    def script() -> None:
        with world.connect("pub", takeover=True) as again:
            again.flush()
            told = again.leftovers.unknown
        stored = stored_values(world, "t")
        assert stored == sorted(set(stored))
        assert len(stored) + told == 4

    die_at(world, f"client.{point}", takeover, after=after)
    world.client_disk("pub").kill()
    if power_cut:
        world.client_disk("pub").power_cut()
    world.run(script)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("after", range(3))
def test_g8_a_power_cut_while_kept_puts_are_moved_loses_none_and_doubles_none(after: int, seed: int) -> None:
    """Each has a file of its own here: the old one must not go before the new one is durable, nor a later one be all there is."""
    world = started(seed)
    with_kept_puts(world, bytes(3 * 1024 * 1024))

    def takeover() -> None:
        with world.connect("pub", takeover=True) as again:
            again.flush()

    def script() -> None:
        takeover()
        assert [value[:1] for value in stored_values(world, "t")] == [b"1", b"3", b"4", b"5"]

    die_at(world, "client.after_outbox", takeover, after=after)
    world.client_disk("pub").kill()
    world.client_disk("pub").power_cut()
    world.run(script)


def test_h33_what_a_living_publisher_could_not_send_to_a_restored_broker_is_sent_after_a_takeover() -> None:
    """R4: the stream is known, but went back: what lies beyond its last number never arrived."""
    world = started()
    world.run(lambda: subscribed(world))
    client = world.run(lambda: world.connect("pub"))
    world.run(lambda: client.put("t", b"1"))
    backup = back_up(world)
    world.run(lambda: client.put("t", b"2"))
    restore(world, backup)

    def script() -> None:
        with pytest.raises(Diverged):
            client.put("t", b"3")
        assert client.close() == 1
        with pytest.raises(Diverged):
            world.connect("pub")
        with world.connect("pub", takeover=True) as again:
            assert again.leftovers == Leftovers(renumbered=1, unknown=0)
        assert stored_values(world, "t") == [b"1", b"3"]

    world.run(script)


def with_an_old_copy(world: World) -> SimDisk:
    """A directory that holds a put as pending which was stored, and forgotten, long ago."""

    def pending() -> None:
        subscribed(world)
        pub = world.connect("pub")
        world.network.rule = lambda transit: DROP if transit.direction == TO_CLIENT else DELIVER
        with pytest.raises(PutPending):
            pub.put("t", b"once")
        world.network.rule = lambda _: DELIVER
        world.crash_client(pub)

    world.run(pending)
    old = world.client_disk("pub").copy()
    for _ in range(2):  # The second Hello names nothing as pending: the broker forgets the stream.
        world.run(lambda: world.connect("pub").close())
    return old


def test_h33_puts_of_an_old_copy_that_may_have_been_stored_are_told_and_not_sent() -> None:
    """G1, G8: nobody can tell, so nobody guesses."""
    world = started()
    old = with_an_old_copy(world)

    def script() -> None:
        with world.connect("pub", disk=old, takeover=True) as pub:
            assert pub.leftovers == Leftovers(renumbered=0, unknown=1)
            assert pub.flush() == 0
        assert stored_values(world, "t") == [b"once"]

    world.run(script)


@pytest.mark.parametrize("after", range(1, 3))
def test_h33_an_old_copy_whose_takeover_died_does_not_store_its_puts_again_at_the_next_start(after: int) -> None:
    """G1: by then the directory knows the broker's session, but not what the takeover was told."""
    world = started()
    world.adopt_disk("pub", with_an_old_copy(world))
    die_at(world, "client.before_state_rename", lambda: world.connect("pub", takeover=True), after=after)
    world.client_disk("pub").kill()

    def script() -> None:
        with world.connect("pub") as pub:
            assert pub.leftovers == Leftovers(renumbered=0, unknown=1)
        assert stored_values(world, "t") == [b"once"]

    world.run(script)


def test_h33_a_subscriber_of_a_restored_broker_takes_over_with_its_own_directory() -> None:
    """R3: [cursor, end) is in doubt; the place it had in the history that is no more is forgotten."""
    world = started()
    world.run(lambda: subscribed(world))
    world.run(lambda: put(world, b"1"))
    backup = back_up(world)

    def later() -> None:
        put(world, b"2")
        with world.connect("sub") as sub:
            assert values(sub, "t") == [b"1", b"2"]

    world.run(later)
    restore(world, backup)

    def script() -> None:
        with pytest.raises(Diverged):
            world.connect("sub")
        with world.connect("sub", takeover=True) as sub:
            with pytest.raises(InDoubt) as told:
                sub.get("t", timeout=0)
            assert (told.value.first, told.value.end) == (0, 1)
            sub.settle("t", "skip")
            with world.connect("other") as other:
                other.put("t", b"new")
            assert values(sub, "t") == [b"new"]

    world.run(script)


# --- slots --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lost", "torn"])
def test_a_lost_or_doubly_torn_slot_of_a_consumed_subscription_is_in_doubt(how: str) -> None:
    """G3, G8: a slot is synced before the first Get, so that none means lost; what was handed out is not repeated untold."""
    world = started()

    def before() -> None:
        subscribed(world)
        with world.connect("pub") as pub:
            pub.put_many("t", number(10))
        with world.connect("sub") as sub:
            assert sub.get_many("t", 4, timeout=0)

    world.run(before)
    disk = world.client_disk("sub")
    (name,) = [name for name in disk.names() if name.startswith("slot-")]
    if how == "lost":
        disk.unlink(name)
    else:
        file = disk.map(name, 8192)
        file.write(0, b"\xff" * 8192)
        file.close()

    def after() -> None:
        with world.connect("sub") as sub:
            with pytest.raises(InDoubt) as told:
                sub.get("t", timeout=0)
            assert (told.value.first, told.value.end) == (4, 10)
            sub.settle("t", "repeat")
            assert values(sub, "t") == number(6, 4)

    world.run(after)


def test_a_subscription_that_was_never_consumed_needs_no_slot() -> None:
    """A death between Subscribe and the slot leaves nothing in doubt: nothing was handed out."""
    world = started()
    world.run(lambda: subscribed(world))
    disk = world.client_disk("sub")
    for name in disk.names():
        if name.startswith("slot-"):
            disk.unlink(name)

    def after() -> None:
        with world.connect("pub") as pub:
            pub.put_many("t", number(3))
        with world.connect("sub") as sub:
            assert values(sub, "t") == number(3)

    world.run(after)


def test_h33_a_broker_set_back_to_before_a_gap_that_was_told_is_noticed() -> None:
    """R1: the bookmark goes along with the jump; else offsets given again in between would be passed over in silence."""
    world = started()

    def begin() -> object:
        with world.connect("pub") as pub:
            pub.admin.create_topic("t", limit="2s")
            sub = world.connect("sub")
            sub.subscribe("t")
            pub.put_many("t", number(3))
            assert values(sub, "t") == number(3)
            sub.ack("t")
        return sub

    sub = world.run(begin)
    world.pass_time(2_000)
    backup = back_up(world)

    def gap() -> None:
        with world.connect("a") as other:
            other.put_many("t", number(7, 3))
            world.clock.pause(10_000)
            other.put("t", b"10")
        with pytest.raises(Gap) as told:
            sub.get("t", timeout=0)  # type: ignore[attr-defined]
        assert (told.value.first, told.value.end) == (3, 10)

    world.run(gap)
    restore(world, backup)

    def after() -> None:
        with world.connect("b") as other:
            other.put_many("t", [b"other"] * 10)
        with pytest.raises(Diverged):
            sub.get("t", timeout=0)  # type: ignore[attr-defined]
        sub.close()  # type: ignore[attr-defined]

    world.run(after)


def test_taking_up_many_subscriptions_costs_no_sync_for_each() -> None:
    """R8: the first hand-over reserves and syncs; until then an old slot says the same."""
    world = started()
    syncs = 0

    def count() -> None:
        nonlocal syncs
        syncs += 1

    def script() -> None:
        with world.connect("sub") as sub:
            for index in range(40):
                sub.subscribe(f"t{index}")
        world.on_sync = count
        with world.connect("sub"):
            assert 0 < syncs < 20
        assert syncs < 20

    world.run(script)


@pytest.mark.parametrize("death", ["clean", "kill"])
def test_what_a_later_run_handed_out_is_in_doubt_after_a_power_cut(death: str) -> None:
    """R8: taking up a slot is not synced, its first hand-over is; so nothing comes again untold."""
    world = started()

    def before() -> None:
        subscribed(world)
        with world.connect("pub") as pub:
            pub.put_many("t", number(10))
        first = world.connect("sub")
        assert first.get_many("t", 3, timeout=0)
        if death == "clean":
            first.ack("t")
            first.close()
        else:
            world.crash_client(first)
        second = world.connect("sub", in_doubt="skip")
        assert [second.get("t", timeout=0).value for _ in range(2)] == number(2, 3)  # type: ignore[union-attr]
        world.crash_client(second, power_cut=True)

    world.run(before)

    def after() -> None:
        with world.connect("sub") as third:
            with pytest.raises(InDoubt) as told:
                third.get("t", timeout=0)
            assert told.value.first <= 4
            assert told.value.end >= 5

    world.run(after)


def with_a_put_that_nobody_answered(world: World) -> Client:
    client = world.connect("shop")
    client.subscribe("t")
    world.kill_broker()
    with pytest.raises(PutPending):
        client.put("t", b"x")
    return client


def test_closing_does_not_wait_again_for_a_broker_that_was_just_found_away() -> None:
    """PutPending has taken seven seconds to say so; whoever closes then, as a command does, is not made to wait for five more."""
    world = started()

    def body() -> int:
        client = with_a_put_that_nobody_answered(world)
        told_ms = world.clock.now().ticks_ms
        assert client.close() == 1
        return world.clock.now().ticks_ms - told_ms

    assert world.run(body) == 0


def test_closing_long_after_tries_again() -> None:
    world = started()

    def body() -> int:
        client = with_a_put_that_nobody_answered(world)
        world.clock.pause(60_000)
        world.start_broker()
        return client.close()

    assert world.run(body) == 0

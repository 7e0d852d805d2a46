# SPDX-License-Identifier: Apache-2.0
"""Holes of handing out: what acknowledges, what finishes, what is in doubt, gone or refused (H1, H2, H22; R6, R7, R9, R10)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncemq.client.client import Client
from oncemq.core.packets import Ack, Get, Refused, Want
from oncemq.errors import BrokerUnreachable, Fenced, Gap, InDoubt, NoSuchTopic, NotSubscribed, OnceMQError, WrongAuthority
from oncemq.journal.journal import Journal
from oncemq.limits import GET_WAIT_MS_MAX, RESERVE_AHEAD_MESSAGES
from oncemq.model.refusals import Code
from oncemq.sim.disk import SimDisk
from oncemq.sim.network import DROP, Verdict
from oncemq.sim.world import World
from tests.holes.helpers import SECOND_US, Raw, be_quiet, die_at, number, overhear, started, values


def filled(world: World, count: int, topic: str = "t", *, size: int = 0) -> None:
    """A topic with a subscriber "sub" and that many messages, one block each. Inside `run`."""
    with world.connect("sub") as sub, world.connect("pub") as pub:
        sub.subscribe(topic)
        for value in number(count):
            pub.put(topic, value + bytes(size))


def cursor(world: World, topic: str = "t") -> int:
    """The broker's cursor, after anything on its way has been written. Inside `run`."""
    world.clock.pause(3_000)
    assert world.loop is not None
    state = world.loop.machine.state
    return next(entry.cursor for entry in state.subscriptions.values() if state.topics[entry.topic_id].name == topic)


def doubt_of(client: Client, topic: str = "t") -> tuple[int, int] | None:
    """What the next get says is in doubt, without consuming anything if nothing is."""
    doubt = client._held[topic].subscriber.doubt
    if doubt is None:
        return None
    with pytest.raises(InDoubt) as told:
        client.get(topic, timeout=0)
    return told.value.first, told.value.end


# --- H1: prefetch acknowledges nothing -------------------------------------------------------------------


def test_h01_prefetch_acknowledges_nothing_unseen() -> None:
    """R6: everything is fetched ahead, ten are handed out; the broker hears nine, and after kill -9 nothing is missing."""
    world = started()

    def script() -> None:
        with world.connect("sub") as sub, world.connect("pub") as pub:
            sub.subscribe("t")
            pub.put_many("t", [value + bytes(1000) for value in number(3000)])
        gets = overhear(world, Get)
        client = world.connect("sub")
        assert [client.get("t", timeout=0).offset for _ in range(10)] == list(range(10))  # type: ignore[union-attr]
        assert max(want.offset for get in gets for want in get.wants) >= 1000  # type: ignore[attr-defined]
        assert max(want.done for get in gets for want in get.wants) <= 9  # type: ignore[attr-defined]
        assert cursor(world) <= 9
        world.crash_client(client)
        world.clock.pause(5_000)
        with world.connect("sub", in_doubt="skip") as again:
            assert [value.rstrip(b"\0") for value in values(again, "t")] == number(2990, 10)

    world.run(script)


def test_h01_a_get_with_one_number_means_done_and_from_alike() -> None:
    """R6: the one-number form of plain request-reply clients acknowledges what lies below it; of two only `done` does."""
    world = started()

    def script() -> None:
        raw = Raw(world)
        raw.hello()
        info = raw.subscribe("t")
        raw.put(1, "t", *number(10))
        raw.ask(Get(raw.session, (Want(info.subscription_id, info.topic_id, 8, 3),), 1000))
        assert cursor(world) == 3
        raw.ask(Get(raw.session, (Want(info.subscription_id, info.topic_id, 5),), 1000))
        assert cursor(world) == 5

    world.run(script)


# --- H2: the in-doubt message is not lost by the default path ------------------------------------------------


def test_h02_the_message_in_doubt_is_told_until_it_is_settled_and_the_broker_keeps_it() -> None:
    """R7: get() after a crash raises, however often; `done` stays below it, so it can still be read minutes later."""
    world = started()

    def script() -> None:
        filled(world, 8)
        client = world.connect("sub")
        for _ in range(6):
            client.get("t", timeout=0)
        world.crash_client(client)
        for _ in range(2):  # Dying again in doubt changes nothing.
            client = world.connect("sub")
            for _ in range(3):
                assert doubt_of(client) == (5, 6)
            with pytest.raises(InDoubt):
                client.get(timeout=0)
            with pytest.raises(InDoubt):
                client.get_many("t", timeout=0)
            world.clock.pause(60_000)
            assert cursor(world) <= 5
            assert [message.value for message in client.in_doubt()] == number(1, 5)
            world.crash_client(client)
        with world.connect("sub") as client:
            client.settle("t", "repeat")
            assert values(client, "t") == number(3, 5)

    world.run(script)


@pytest.mark.parametrize(("choice", "expected"), [("repeat", number(3, 5)), ("skip", number(2, 6))])
def test_h02_the_choice_at_connect_repeats_or_skips(choice: str, expected: list[bytes]) -> None:
    """R7: `in_doubt=` at connect."""
    world = started()

    def script() -> None:
        filled(world, 8)
        client = world.connect("sub")
        for _ in range(6):
            client.get("t", timeout=0)
        world.crash_client(client)
        with world.connect("sub", in_doubt=choice) as again:
            assert values(again, "t") == expected

    world.run(script)


@pytest.mark.parametrize("choice", ["repeat", "skip"])
def test_h02_what_was_settled_stays_settled_after_a_power_cut(choice: str) -> None:
    """R7: the answer is synced before settle() returns; a repeat that was not handed out again is not in doubt."""
    for seed in range(5):
        world = started(seed)

        def script(world: World = world) -> None:
            filled(world, 3)
            client = world.connect("sub")
            client.get("t", timeout=0)
            world.crash_client(client)
            client = world.connect("sub")
            client.settle("t", choice)
            world.crash_client(client, power_cut=True)
            again = world.connect("sub")
            doubt = doubt_of(again)
            assert doubt is None or (choice == "repeat" and doubt[0] == 0) or doubt[0] >= 1
            if doubt is not None:
                again.settle("t", "repeat")
            assert values(again, "t") == number(3 if choice == "repeat" else 2, 0 if choice == "repeat" else 1)
            again.close()

        world.run(script)


@pytest.mark.parametrize(("point", "told"), [("client.before_hand_over", None), ("client.after_hand_over", (1, 2))])
def test_h02_a_client_that_dies_in_get_has_exactly_what_may_have_been_returned_in_doubt(
    point: str, told: tuple[int, int] | None
) -> None:
    """R7, R8: before the slot is written nothing new was handed out and the one before is unfinished; after it the new one."""
    world = started()
    world.run(lambda: filled(world, 3))
    victim = world.run(lambda: world.connect("sub"))
    world.run(lambda: victim.get("t", timeout=0))
    die_at(world, point, lambda: victim.get("t", timeout=0))
    world.crash_client(victim)

    def script() -> None:
        client = world.connect("sub")
        assert doubt_of(client) == (told or (0, 1))
        client.close()

    world.run(script)


# --- R7: what finishes a message --------------------------------------------------------------------------------


def finish_by_get(client: Client) -> None:
    client.get("t", timeout=0)
    client.get("t", timeout=0)
    assert client.get("t", timeout=0) is None


def finish_by_get_any(client: Client) -> None:
    client.get(timeout=0)
    client.get(timeout=0)
    assert client.get(timeout=0) is None


def finish_by_get_many(client: Client) -> None:
    assert len(client.get_many("t", timeout=0)) == 2
    assert client.get_many("t", timeout=0) == []


def finish_by_ack(client: Client) -> None:
    client.get_many("t", timeout=0)
    client.ack("t")


@pytest.mark.parametrize("finish", [finish_by_get, finish_by_get_any, finish_by_get_many, finish_by_ack])
def test_r07_the_next_call_finishes_a_message_even_if_it_brings_none(finish: Callable[[Client], None]) -> None:
    """R7, G4: in doubt is what lies between get() returning and the next call on that subscription; then kill -9."""
    world = started()

    def script() -> None:
        filled(world, 2)
        client = world.connect("sub")
        finish(client)
        world.crash_client(client)
        again = world.connect("sub")
        assert doubt_of(again) is None
        again.close()
        assert cursor(world) == 2

    world.run(script)


def test_r07_a_call_that_waits_has_finished_the_message_before() -> None:
    """R7: kill -9 while get() waits: the application had asked for the next one, so the one before is done."""
    world = started()
    world.run(lambda: filled(world, 1))
    victim = world.run(lambda: world.connect("sub"))
    world.run(lambda: victim.get("t", timeout=0))
    process = world.spawn("waiting", lambda: victim.get("t") and None)
    world.pass_time(5_000)
    process.kill()
    world.crash_client(victim)

    def script() -> None:
        assert cursor(world) == 1
        again = world.connect("sub")
        assert doubt_of(again) is None
        again.close()

    world.run(script)


def test_r07_leaving_the_with_block_cleanly_finishes_and_an_exception_does_not() -> None:
    """R7: the README's program: `with connect(...) as client: handle(client.get())`."""
    world = started()

    def script() -> None:
        filled(world, 3)
        with world.connect("sub") as client:
            client.get("t", timeout=0)
        with pytest.raises(RuntimeError), world.connect("sub") as client:
            assert doubt_of(client) is None
            client.get("t", timeout=0)
            raise RuntimeError("while handling")
        with world.connect("sub") as client:
            assert doubt_of(client) == (1, 2)
        with world.connect("sub") as client:
            assert doubt_of(client) == (1, 2)  # Leaving with something in doubt does not settle it.

    world.run(script)


def test_r07_close_alone_and_a_put_finish_nothing() -> None:
    """R7: never a put, never close()."""
    world = started()

    def script() -> None:
        filled(world, 1)
        client = world.connect("sub")
        client.get("t", timeout=0)
        client.put("t", b"x")
        client.flush()
        client.close()
        assert cursor(world) == 0
        again = world.connect("sub")
        assert doubt_of(again) == (0, 1)
        again.close()

    world.run(script)


def test_r07_an_unreachable_broker_and_lost_answers_repeat_nothing() -> None:
    """G3: answers are lost, late and doubled, a get gives up; what is handed out stays 0, 1, 2, … once each."""
    world = started()
    chance = world.scheduler.random("meddling")
    verdicts = [DROP, Verdict(copies=2), Verdict(delay_us=3 * SECOND_US)]

    def script() -> None:
        filled(world, 60)
        client = world.connect("sub")
        world.network.rule = lambda _: chance.choice(verdicts) if chance.random() < 0.4 else Verdict()
        found: list[bytes] = []
        while len(found) < 60:
            try:
                message = client.get("t", timeout=0.5)
            except BrokerUnreachable:
                continue
            found += [message.value] if message is not None else []
        be_quiet(world)
        assert found == number(60)
        assert client.get("t", timeout=0) is None
        client.close()

    world.run(script, limit_us=36_000 * SECOND_US)


# --- H22: get() over all topics -----------------------------------------------------------------------------------


def two_topics(world: World, count: int) -> list[bytes]:
    """Subscribe "sub" to a and b, and put into them in turn; return the values in append order. Inside `run`."""
    put: list[bytes] = []
    with world.connect("sub") as sub, world.connect("pub") as pub:
        for topic in ("a", "b"):
            sub.subscribe(topic)
        for index in range(count):
            topic = "ab"[index * 7 % 5 % 2]
            put.append(b"%s%d" % (topic.encode(), index))
            pub.put(topic, put[-1])
    return put


def test_h22_get_over_all_topics_hands_out_the_oldest_first_by_append_order() -> None:
    """H22: not by publish time (the publisher's clock runs backwards), not by topic; also what comes while it is consumed."""
    world = started()

    def script() -> None:
        put = two_topics(world, 20)
        client, pub = world.connect("sub"), world.connect("pub")
        found = [client.get(timeout=0).value for _ in range(5)]  # type: ignore[union-attr]
        world.scheduler.wall_shift_us = -3600 * SECOND_US
        for topic in ("b", "a", "b"):
            put.append(topic.encode() + b"new")
            pub.put(topic, put[-1])
        found += values(client)
        assert found == put
        pub.close()
        client.close()

    world.run(script)


def test_h22_what_was_fetched_ahead_of_one_topic_does_not_overtake_an_older_message_of_another() -> None:
    """H22: a1 is buffered since get("a"), b0 is older and was never asked for: get() hands out b0 first."""
    world = started()

    def script() -> None:
        with world.connect("sub") as sub, world.connect("pub") as pub:
            for topic in ("a", "b"):
                sub.subscribe(topic)
            for topic in ("b", "a", "a", "b"):
                pub.put(topic, topic.encode())
            assert sub.get("a", timeout=0).value == b"a"  # type: ignore[union-attr]
            assert values(sub) == [b"b", b"a", b"b"]

    world.run(script)


def test_h22_a_get_of_one_topic_does_not_finish_a_message_of_another() -> None:
    """R7: after kill -9 the message of b is in doubt although a was asked since, with and without a message there."""
    world = started()

    def script() -> None:
        filled(world, 1, "b")
        filled(world, 2, "a")
        client = world.connect("sub")
        assert client.get("b", timeout=0) is not None
        assert len(values(client, "a")) == 2
        client.ack("a")
        world.crash_client(client)
        again = world.connect("sub")
        assert doubt_of(again, "b") == (0, 1)
        assert doubt_of(again, "a") is None
        again.close()

    world.run(script)


def test_h22_a_get_over_all_does_not_finish_what_a_get_of_one_topic_handed_out() -> None:
    """R7: it finishes the message it handed out itself, on whichever topic, and no other."""
    world = started()

    def script() -> None:
        filled(world, 2, "a")
        filled(world, 2, "b")
        client = world.connect("sub")
        assert client.get(timeout=0).topic == "a"  # type: ignore[union-attr]
        assert client.get("a", timeout=0).offset == 1  # type: ignore[union-attr]
        assert client.get(timeout=0).topic == "b"  # type: ignore[union-attr]
        world.crash_client(client)
        again = world.connect("sub")
        assert doubt_of(again, "a") == (1, 2)
        assert doubt_of(again, "b") == (0, 1)
        again.close()

    world.run(script)


def test_h22_a_crash_between_the_two_slot_writes_leaves_both_in_doubt() -> None:
    """H22: the new hand-over is written first, then the old finish."""
    world = started()

    def before() -> None:
        filled(world, 1, "a")
        filled(world, 1, "b")

    world.run(before)
    victim = world.run(lambda: world.connect("sub"))
    assert world.run(lambda: victim.get(timeout=0)).topic == "a"  # type: ignore[union-attr]
    die_at(world, "client.after_hand_over", lambda: victim.get(timeout=0))
    world.crash_client(victim)

    def script() -> None:
        again = world.connect("sub")
        assert doubt_of(again, "a") == (0, 1)
        assert doubt_of(again, "b") == (0, 1)
        again.close()

    world.run(script)


# --- R9: one authority per subscription ---------------------------------------------------------------------------


def test_r09_the_first_consuming_call_fixes_how_a_subscription_is_consumed_for_good() -> None:
    """R9: kept by the broker over a power cut; any other kind of Get or Ack is refused and moves nothing."""
    world = started()
    raw = Raw(world)
    info = world.run(lambda: raw.hello() and raw.subscribe("t"))
    want = Want(info.subscription_id, info.topic_id, 0)

    def first() -> None:
        raw.put(1, "t", *number(5))
        assert not isinstance(raw.ask(Get(raw.session, (want,), 1000, authority="broker")), Refused)

    def other() -> None:
        for authority in ("local", "database", "", "nonsense"):
            moved = Want(info.subscription_id, info.topic_id, 3)
            for packet in (
                Get(raw.session, (moved,), 1000, authority=authority),
                Ack(raw.session, info.subscription_id, info.topic_id, 3, authority, True),
            ):
                answer = raw.ask(packet)
                assert isinstance(answer, Refused)
                assert answer.code == Code.WRONG_AUTHORITY
        assert cursor(world) == 0

    world.run(first)
    world.run(other)
    world.restart_broker(power_cut=True)
    world.run(other)


@pytest.mark.parametrize("authority", ["broker", "database"])
def test_r09_a_subscription_fixed_at_subscribe_refuses_plain_get(authority: str) -> None:
    """R9: `cursor=` at subscribe; get() is refused with that explanation, also by the next process."""
    world = started()

    def script() -> None:
        with world.connect("sub") as client:
            client.subscribe("t", cursor=authority)
            with pytest.raises(WrongAuthority):
                client.get("t", timeout=0)
        with world.connect("sub") as client, pytest.raises(WrongAuthority):
            client.get("t", timeout=0)

    world.run(script)


# --- R10: a limit cuts off, and a gap is told ----------------------------------------------------------------------


def cut_off(world: World, count: int = 2500, is_received: bool = False) -> None:
    """A subscription of "sub" that had one message; a limit has then taken away more than it had reserved. Inside `run`."""
    with world.connect("sub") as sub, world.connect("pub") as pub:
        pub.admin.create_topic("t", limit="100KB")
        sub.subscribe("t")
        pub.put("t", b"first")
        if is_received:
            with sub.receive("t", timeout=0) as message:
                assert message is not None
        else:
            assert sub.get("t", timeout=0) is not None
    with world.connect("pub") as pub:
        for value in number(count // 50):
            pub.put_many("t", [value + bytes(100)] * 50)
    world.clock.pause(5_000)
    assert world.loop is not None
    assert next(iter(world.loop.machine.state.topics.values())).low > RESERVE_AHEAD_MESSAGES


def test_r10_a_gap_is_raised_once_and_finished_by_the_next_get() -> None:
    """R10: handed over like a message. What follows begins at its end."""
    world = started()

    def script() -> None:
        cut_off(world)
        client = world.connect("sub")
        with pytest.raises(Gap) as told:
            client.get("t", timeout=0)
        assert told.value.first == 1
        message = client.get("t", timeout=0)
        assert message is not None
        assert message.offset == told.value.end
        world.crash_client(client)
        again = world.connect("sub")
        assert doubt_of(again) == (told.value.end, told.value.end + 1)
        again.settle("t", "skip")
        assert again.get("t", timeout=0).offset == told.value.end + 1  # type: ignore[union-attr]
        again.close()

    world.run(script)


def test_r10_a_gap_that_was_raised_but_not_finished_is_raised_again_after_a_crash() -> None:
    """R10: durable like a message: dying between the Gap and the next call must not swallow it."""
    world = started()

    def script() -> None:
        cut_off(world)
        for _ in range(3):
            client = world.connect("sub")
            with pytest.raises(Gap):
                client.get("t", timeout=0)
            world.crash_client(client)
        client = world.connect("sub")
        with pytest.raises(Gap):
            client.get("t", timeout=0)
        client.close()  # close() alone finishes nothing, a gap neither.
        with world.connect("sub") as client, pytest.raises(Gap):
            client.get("t", timeout=0)
        with world.connect("sub") as client:  # Left cleanly: the gap is finished.
            assert client.get("t", timeout=0) is not None

    world.run(script)


def test_r10_a_gap_told_by_receive_is_finished_by_the_next_call_whatever_it_is() -> None:
    """R10: also where the broker keeps the place. Dying before that next call must not swallow it."""
    world = started()

    def script() -> None:
        cut_off(world, is_received=True)
        for _ in range(2):
            client = world.connect("sub")
            with pytest.raises(Gap) as told, client.receive("t", timeout=0):
                pass
            world.crash_client(client)
        client = world.connect("sub")
        with pytest.raises(Gap) as again, client.receive("t", timeout=0):
            pass
        assert (again.value.first, again.value.end) == (told.value.first, told.value.end) == (1, told.value.end)
        with client.transaction() as transaction:
            assert transaction.get("t", timeout=0).offset == told.value.end  # type: ignore[union-attr]
        with client.receive("t", timeout=0) as message:
            assert message.offset == told.value.end + 1  # type: ignore[union-attr]
        assert cursor(world) == told.value.end + 2

    world.run(script)


@pytest.mark.parametrize("topic", ["t", None])
@pytest.mark.parametrize("seed", range(6))
def test_r10_a_gap_up_to_the_end_is_finished_by_a_get_that_brings_nothing(topic: str | None, seed: int) -> None:
    """R10: nothing is stored behind it; the next get() returns None, and no later process hears of the gap again."""
    world = started(seed)

    def script() -> None:
        with world.connect("sub") as sub, world.connect("pub") as pub:
            pub.admin.create_topic("t", limit="1s")
            sub.subscribe("t")
            pub.put_many("t", number(2000))
            world.clock.pause(10_000)
        client = world.connect("sub")
        with pytest.raises(Gap) as told:
            client.get(topic, timeout=0)
        assert (told.value.first, told.value.end) == (0, 2000)
        assert client.get(topic, timeout=0) is None
        assert cursor(world) == 2000
        world.crash_client(client, power_cut=True)
        with world.connect("sub") as again:
            assert again.get("t", timeout=0) is None

    world.run(script)


@pytest.mark.parametrize("topic", ["t", None])
@pytest.mark.parametrize("seed", range(8))
def test_r10_behind_a_gap_the_reservation_is_made_before_anything_is_handed_out(seed: int, topic: str | None) -> None:
    """R8, R10: the gap is larger than what was reserved; a power cut right behind it must not repeat a message in silence."""
    world = started(seed)

    def script() -> None:
        cut_off(world)
        client = world.connect("sub")
        with pytest.raises(Gap) as told:
            client.get("t", timeout=0)
        assert client.get(topic, timeout=0) is not None
        world.clock.pause(3_000)
        world.crash_client(client, power_cut=True)
        again = world.connect("sub")
        doubt = doubt_of(again)
        assert doubt is not None
        assert doubt[0] <= told.value.end < doubt[1]
        again.close()

    world.run(script)


def test_r10_retain_adds_to_interest_and_never_cuts_a_living_subscription_off() -> None:
    """R10: a message goes when both allow it: neither a short retention nor a fast reader alone takes it away."""
    world = started()

    def script() -> None:
        with world.connect("slow") as slow, world.connect("sub") as sub, world.connect("pub") as pub:
            pub.admin.create_topic("t", retain="1s")
            slow.subscribe("t")
            sub.subscribe("t")
            for value in number(60):
                pub.put_many("t", [value + bytes(100)] * 50)
            while sub.get_many("t", timeout=0):
                pass
            world.clock.pause(30_000)
            assert len(slow.get_many("t", 10_000, timeout=0)) + len(slow.get_many("t", 10_000, timeout=0)) == 3000

    world.run(script)


def stop(world: World) -> None:
    with world.connect() as admin:
        admin.admin.shutdown()
        world.clock.pause(10)
        admin._forget()


# --- rules §4.11: who loses the right to wait is told at once --------------------------------------------------------


def refused_while_waiting(act: Callable[[World], None], *, any_topic: bool = False) -> OnceMQError:
    """Park a Get for a long time, let something happen, and return what the waiting call raised; it must not have waited on."""
    world = started()
    world.run(lambda: filled(world, 0))
    client = world.run(lambda: world.connect("sub"))
    process = world.spawn("waiting", lambda: client.get(None if any_topic else "t", timeout=600) and None)
    world.pass_time(1_000)
    began_us = world.scheduler.time_us
    world.run(lambda: act(world))
    assert world.scheduler.run(until=lambda: not process.is_running)
    assert world.scheduler.time_us - began_us < 100_000 < GET_WAIT_MS_MAX * 1000
    client._forget()
    assert isinstance(process.error, OnceMQError)
    return process.error


def take_over(world: World) -> None:
    world.connect("sub", disk=SimDisk(), takeover=True).close()


def delete_topic(world: World) -> None:
    with world.connect() as admin:
        admin.admin.delete_topic("t")


def delete_subscription(world: World) -> None:
    with world.connect("other") as other:
        other.subscribe("t")
    with world.connect() as admin:
        found = next(row for row in admin.admin.subscriptions("t") if row.client == "sub")
        admin.admin.delete_subscription(found.info.subscription_id)


def forget_client(world: World) -> None:
    with world.connect() as admin:
        admin.admin.forget_client("sub")


@pytest.mark.parametrize("any_topic", [False, True])
@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (take_over, Fenced),
        (delete_topic, NoSuchTopic),
        (delete_subscription, NotSubscribed),
        (forget_client, OnceMQError),
    ],
)
def test_s411_a_parked_get_that_lost_its_right_is_refused_at_once(
    act: Callable[[World], None], expected: type[OnceMQError], any_topic: bool
) -> None:
    """Rules §4.11: fenced, topic deleted, unsubscribed, forgotten: refused within a drain, not after its time."""
    assert isinstance(refused_while_waiting(act, any_topic=any_topic), expected)


def test_s411_a_parked_get_is_served_by_the_put_it_waits_for() -> None:
    """The same wait ends well: a put wakes it at once, after the sync."""
    world = started()
    world.run(lambda: filled(world, 0))
    found: list[bytes] = []

    def wait() -> None:
        with world.connect("sub") as client:
            message = client.get("t", timeout=600)
            assert message is not None
            found.append(message.value)

    process = world.spawn("waiting", wait)
    world.pass_time(1_000)
    began_us = world.scheduler.time_us

    def put() -> None:
        with world.connect("pub") as pub:
            pub.put("t", b"x")

    world.run(put)
    assert world.scheduler.run(until=lambda: not process.is_running)
    assert found == [b"x"]
    assert world.scheduler.time_us - began_us < 100_000


@pytest.mark.parametrize("end", ["kill", "power cut", "clean stop"])
def test_s411_a_parked_get_survives_a_broker_restart(end: str) -> None:
    """Rules §4.3: sessions survive; the client asks again by itself, without another Hello, after a clean stop too."""
    world = started()
    world.run(lambda: filled(world, 0))
    client = world.run(lambda: world.connect("sub"))
    found: list[bytes] = []
    process = world.spawn("waiting", lambda: found.append(client.get("t", timeout=600).value))  # type: ignore[union-attr]
    world.pass_time(1_000)
    if end == "clean stop":
        world.run(lambda: stop(world))
        world.pass_time(100)
        assert not world.is_broker_running
    world.restart_broker(power_cut=end == "power cut")

    def put() -> None:
        with world.connect("pub") as pub:
            pub.put("t", b"x")

    world.run(put)
    assert world.scheduler.run(until=lambda: not process.is_running)
    assert (found, process.error) == ([b"x"], None)
    world.run(client.close)


# --- answers that bring nothing -----------------------------------------------------------------------


def test_answers_that_bring_nothing_are_not_asked_for_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has messages but cannot bring them is asked a few times, not a thousand times a second."""
    world = started()

    def script() -> None:
        with world.connect("sub") as sub, world.connect("pub") as pub:
            sub.subscribe("t")
            pub.put_many("t", number(3))
            asked = overhear(world, Get)
            with monkeypatch.context() as broken:
                broken.setattr(Journal, "read", lambda *_: [])
                before = world.clock.now().ticks_ms
                assert sub.get("t", timeout=10) is None
                assert world.clock.now().ticks_ms - before >= 10_000
            assert 3 < len(asked) < 20
            assert values(sub, "t") == number(3)

    world.run(script)

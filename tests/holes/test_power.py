# SPDX-License-Identifier: Apache-2.0
"""Holes of caches and disks: answers from the page cache, snapshots, full disks, torn slots, lost machines.

H4, H5, H9, H15, H23 and the slots of R8. H10 is told at the level of the journal, where its four cases can be made byte by
byte: test_case_1 to test_case_4 in tests/journal/test_recovery.py. What is here is the same promise seen by clients.
"""

from __future__ import annotations

import contextlib
import errno
from contextlib import suppress

import pytest

from oncemq.core.packets import PutDone, SubscriptionInfo
from oncemq.core.slot import PAGE_BYTES, SLOT_BYTES, Slot, decode_slot
from oncemq.core.state import BrokerState
from oncemq.core.subscriber import Subscriber
from oncemq.crashpoints import POINTS
from oncemq.errors import DiskFull, InDoubt, PutPending, StateLost, SyncFailed
from oncemq.journal.journal import JournalSettings
from oncemq.limits import RESERVE_AHEAD_MESSAGES
from oncemq.sim.network import DROP
from oncemq.sim.world import World
from tests.holes.helpers import (
    Raw,
    be_quiet,
    crash_at,
    meddle,
    number,
    overhear,
    started,
    stored_values,
    until_broker_dies,
    until_dead,
    values,
)

TINY = JournalSettings(segment_bytes=4096, reserve_bytes=2048, segment_records_max=12)
"""Segments so small that every few puts begin one, with its snapshot."""
ROOMY = JournalSettings(segment_bytes=64 * 1024, reserve_bytes=64 * 1024, segment_records_max=500)
"""A reserve that holds many drains of cursors and commands, as the real one does."""


def subscribed(world: World, *clients: str) -> None:
    def script() -> None:
        for name in clients or ("sub",):
            with world.connect(name) as client:
                client.subscribe("t")

    world.run(script)


# --- H4: a restart confirms from the page cache ------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_h04_what_a_restart_found_in_the_cache_survives_the_power_cut_that_follows(seed: int) -> None:
    """R11: killed after the write and before the sync; the retry is confirmed; power cut; it is still there."""
    world = started(seed)
    subscribed(world)
    client = world.run(lambda: world.connect("pub"))
    with crash_at("broker.after_append"):
        process = world.spawn("put", lambda: client.put("t", b"x") and None)
        until_broker_dies(world)
    world.restart_broker()
    until_dead(world, process)

    def deliver() -> None:
        with world.connect("sub") as sub:
            assert values(sub, "t") == [b"x"]

    world.run(deliver)
    world.restart_broker(power_cut=True)

    def look() -> None:
        assert client.put("t", b"y").offset == 1
        client.close()
        with world.connect("sub") as sub:
            assert values(sub, "t") == [b"y"]
        assert stored_values(world, "t") == [b"x", b"y"]

    world.run(look)


@pytest.mark.parametrize("seed", range(5))
def test_h04_after_a_failed_sync_nothing_was_told_and_what_is_told_later_is_on_the_disk(seed: int) -> None:
    """R11, G8: a failed sync stops the broker; the restart reads clean pages that never arrived, and writes them again first."""
    world = started(seed)
    subscribed(world)
    client = world.run(lambda: world.connect("pub"))
    confirmed = overhear(world, PutDone)
    world.disk.fail_next_sync(errno.EIO)
    process = world.spawn("put", lambda: client.put("t", b"x") and None)
    until_broker_dies(world)
    assert isinstance(world.broker_error, SyncFailed)
    assert confirmed == []
    world.restart_broker()
    until_dead(world, process)
    assert len(confirmed) == 1
    world.restart_broker(power_cut=True)

    def look() -> None:
        client.close()
        assert stored_values(world, "t") == [b"x"]

    world.run(look)


# --- H5: a snapshot ahead of the sync -------------------------------------------------------------------------


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith(("broker.", "journal."))])
def test_h05_a_broker_that_dies_anywhere_confirms_nothing_it_does_not_have(point: str, power_cut: bool) -> None:
    """R12, G1, G2: at every crash point of broker and journal, with a snapshot every few puts: all there, once."""
    world = started(3, settings=TINY)
    subscribed(world)
    offsets: dict[bytes, int | None] = {}

    def put() -> None:
        with world.connect("pub") as pub:
            for value in number(60):
                receipt = pub.put("t", value)
                assert receipt.stored
                offsets[value] = receipt.offset

    process = world.spawn("put", put)
    for visit in range(3):
        with crash_at(point, after=visit * 2):
            world.scheduler.run(until=lambda: not world.is_broker_running or not process.is_running)
        if process.is_running:
            world.restart_broker(power_cut=power_cut)
    until_dead(world, process)
    world.restart_broker(power_cut=power_cut)

    def look() -> None:
        with world.connect("sub") as sub:
            found = {}
            while (message := sub.get("t", timeout=0)) is not None:
                found[message.value] = message.offset
            assert list(found) == number(60)
            assert found == offsets

    world.run(look)


def test_h05_a_snapshot_restores_everything_a_broker_must_remember() -> None:
    """R12: what is dumped and restored is the same state; a field that is forgotten would be forgotten with its segment."""
    world = started()

    def script() -> None:
        raw = Raw(world)
        old = raw.hello().session
        raw.put(1, "t", b"nobody")
        raw.hello(known=(old,), pending=(old,))
        raw.subscribe("t")
        raw.put(1, "t", *number(3))
        with world.connect("sub") as sub:
            sub.subscribe("t")
            sub.admin.create_topic("kept", retain="forever", limit="1GB")

    world.run(script)
    assert world.loop is not None
    state, again = world.loop.machine.state, BrokerState()
    again.restore(state.dump())
    assert again.dump() == state.dump()
    assert set(again.sessions) == set(state.sessions)
    assert again.topic_ids == state.topic_ids
    assert set(again.subscriptions) == set(state.subscriptions)
    assert {name: client.previous for name, client in again.clients.items()} == {
        name: client.previous for name, client in state.clients.items()
    }


# --- H9: disk full -----------------------------------------------------------------------------------------------


def test_h09_on_a_full_disk_puts_are_refused_and_everything_else_goes_on() -> None:
    """R14: gets, acks, commands and Hellos go on from the reserve; a restart finds all of it; with space puts resume."""
    world = started(settings=ROOMY)
    subscribed(world)

    def fill() -> None:
        pub, sub = world.connect("pub"), world.connect("sub")
        pub.put_many("t", [bytes(1000)] * 20)
        world.disk.capacity_bytes = world.disk.used_bytes()
        with pytest.raises(PutPending):
            for _ in range(100):
                pub.put("t", bytes(1000))
        assert sub.get("t", timeout=0) is not None
        sub.ack("t")
        sub.subscribe("u")
        world.clock.pause(3_000)
        world.connect("new").close()
        for client in (pub, sub):
            world.crash_client(client)

    world.run(fill)
    world.restart_broker(power_cut=True)

    def look() -> None:
        with world.connect("sub") as sub:
            assert sub.subscriptions() == ["t", "u"]
            assert sub.get("t", timeout=0).offset == 1  # type: ignore[union-attr]
        world.disk.capacity_bytes = None
        with world.connect("pub") as pub:
            pub.flush()
        found = stored_values(world, "t")
        assert len(found) >= 21 - 1
        assert len(found) == len([value for value in found if len(value) == 1000])

    world.run(look)
    assert world.broker_error is None


@pytest.mark.parametrize("slack", [0, 1000, 10_000, 40_000, 90_000])
def test_h09_a_disk_that_is_full_at_any_instant_loses_and_repeats_nothing(slack: int) -> None:
    """R14: whatever room is left when it fills up, the broker neither applies what it cannot write nor stops."""
    world = started(settings=ROOMY)
    subscribed(world)

    def fill() -> int:
        pub = world.connect("pub")
        world.disk.capacity_bytes = world.disk.used_bytes() + slack
        confirmed = 0
        try:
            for value in number(400):
                pub.put("t", value + bytes(700))
                confirmed += 1
        except PutPending:
            pass
        world.crash_client(pub)
        return confirmed

    confirmed = world.run(fill)
    assert confirmed < 400
    assert world.broker_error is None
    world.restart_broker(power_cut=True)
    world.disk.capacity_bytes = None

    def look() -> None:
        with world.connect("pub") as pub:
            pub.put("t", b"last")
        with world.connect("sub") as sub:
            assert [value.rstrip(b"\0") for value in values(sub, "t")] == [*number(confirmed + 1), b"last"]

    world.run(look)


def test_h09_the_log_says_once_that_the_disk_is_full_and_once_that_space_is_back(caplog: pytest.LogCaptureFixture) -> None:
    """Gets that still fit in while a put does not are no news: the log tells people when to act, and not at every packet."""
    world = started(settings=ROOMY)
    subscribed(world)

    def fill() -> None:
        pub, sub = world.connect("pub"), world.connect("sub")
        world.disk.capacity_bytes = world.disk.used_bytes()
        with contextlib.suppress(PutPending):
            for value in number(400):
                pub.put("t", value + bytes(20_000))
        for _ in range(5):
            sub.get("t", timeout=0)
            with contextlib.suppress(PutPending):
                pub.flush()
        world.disk.capacity_bytes = None
        pub.flush()
        for client in (pub, sub):
            client.close()

    with caplog.at_level("WARNING", "oncemq.broker"):
        world.run(fill)
    told = [record.getMessage() for record in caplog.records if "space" in record.getMessage()]
    assert told == ["disk full: puts are refused until there is space", "space is back: puts are taken"]


def test_h09_a_write_that_fails_after_all_stops_the_broker_and_the_restart_has_everything_confirmed() -> None:
    """R14: ENOSPC after apply counts as a failed sync: stop, rather than append behind a torn half."""
    world = started(settings=ROOMY)
    subscribed(world)
    client = world.run(lambda: world.connect("pub"))
    world.run(lambda: client.put("t", b"0"))
    world.disk.fail_next_write(errno.ENOSPC)
    process = world.spawn("put", lambda: client.put("t", b"1") and None)
    until_broker_dies(world)
    assert isinstance(world.broker_error, SyncFailed | DiskFull)
    world.restart_broker()
    until_dead(world, process)

    def look() -> None:
        client.close()
        assert stored_values(world, "t") == number(2)

    world.run(look)


# --- H15: unsynced cursors used for trimming -----------------------------------------------------------------------


@pytest.mark.parametrize("settings", [TINY, ROOMY])
@pytest.mark.parametrize("seed", range(6))
def test_h15_a_message_is_trimmed_only_below_synced_cursors(seed: int, settings: JournalSettings) -> None:
    """R10: at any instant a power cut leaves a cursor at or above what is still stored: no Gap where nothing went wrong."""
    world = started(seed, settings=settings)
    subscribed(world)
    chance = world.scheduler.random("instants")
    pub, sub = world.run(lambda: (world.connect("pub"), world.connect("sub")))

    def work() -> None:
        for value in number(150):
            pub.put("t", value + bytes(200), wait=False)
            pub.flush()
            sub.get("t", timeout=0)
            sub.ack("t")
            world.clock.pause(50)

    process = world.spawn("work", work)
    for _ in range(4):
        world.pass_time(chance.randint(500, 2_500))
        world.restart_broker(power_cut=True)
        assert world.loop is not None
        topic = next(iter(world.loop.machine.state.topics.values()))
        cursor = min(entry.cursor for entry in topic.subscriptions.values())
        assert topic.low <= cursor
        if cursor < topic.end:
            assert world.loop.journal.read([(topic.topic_id, cursor, topic.end)], 1)
    process.kill()
    for client in (pub, sub):
        client._forget()


# --- H23: operating-system crash of the client ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("handed", [1, 7, 1500])
def test_h23_after_an_operating_system_crash_in_doubt_is_bounded_and_holds_all_that_was_not_surely_finished(
    handed: int, seed: int
) -> None:
    """R8: nothing is repeated in silence, nothing skipped, and in doubt are at most those reserved ahead."""
    world = started(seed)

    def script() -> None:
        with world.connect("sub") as sub, world.connect("pub") as pub:
            sub.subscribe("t")
            pub.put_many("t", number(4000))
        client = world.connect("sub")
        for _ in range(handed):
            client.get("t", timeout=0)
        world.crash_client(client, power_cut=True)
        again = world.connect("sub")
        with pytest.raises(InDoubt) as told:
            again.get("t", timeout=0)
        first, end = told.value.first, told.value.end
        assert first <= handed - 1
        assert handed <= end <= first + 2 * RESERVE_AHEAD_MESSAGES
        assert [message.value for message in again.in_doubt("t")] == number(end - first, first)
        again.settle("t", "skip")
        assert values(again, "t") == number(4000 - end, end)
        again.close()

    world.run(script)


@pytest.mark.parametrize("seed", range(10))
def test_h23_a_subscription_made_just_before_the_crash_is_told_as_well(seed: int) -> None:
    """R8: the slot's file has a durable name before anything is handed out; else it would be taken for a fresh one."""
    world = started(seed)

    def script() -> None:
        client, pub = world.connect("sub"), world.connect("pub")
        client.subscribe("t")
        pub.put_many("t", number(10))
        for _ in range(3):
            client.get("t", timeout=0)
        world.crash_client(client, power_cut=True)
        again = world.connect("sub")
        with pytest.raises(InDoubt) as told:
            again.get("t", timeout=0)
        assert (told.value.first, told.value.end) <= (2, 10)
        assert told.value.end >= 3
        again.close()
        pub.close()

    world.run(script)


@pytest.mark.parametrize("seed", range(6))
def test_h23_together_with_the_brokers_machine_nothing_is_lost_or_repeated_in_silence(seed: int) -> None:
    """R8: the same laptop: broker and client lose power at once, again and again; what is repeated was told before."""
    world = started(seed)
    seen: list[int] = []
    told: set[int] = set()

    def life() -> None:
        with world.connect("pub") as pub:
            pub.put_many("t", number(50))
        client = world.connect("sub")
        for topic in client.subscriptions():
            told.update(message.offset for message in client.in_doubt(topic))
            client.settle(topic, "repeat")
        for _ in range(40):
            message = client.get("t", timeout=0)
            assert message is not None
            seen.append(message.offset)
        world.crash_client(client, power_cut=True)

    subscribed(world)
    for _ in range(5):
        world.run(life)
        world.restart_broker(power_cut=True)
    repeated = {offset for offset in seen if seen.count(offset) > 1}
    assert repeated <= told
    assert set(seen) == set(range(max(seen) + 1))


def test_h23_the_reservation_is_synced_before_a_message_beyond_it_is_handed_out() -> None:
    """R8: one sync per thousand messages, each before the first message that needs it; if it fails, nothing is handed out."""
    world = started()

    def script() -> None:
        with world.connect("sub") as sub, world.connect("pub") as pub:
            sub.subscribe("t")
            pub.put_many("t", number(3000))
        client = world.connect("sub")
        disk = world.client_disk("sub")
        syncs = []
        for _ in range(3000):
            before = disk.syncs
            message = client.get("t", timeout=0)
            assert message is not None
            if disk.syncs > before:
                syncs.append(message.offset)
        assert syncs == [0, 1000, 2000]
        client.close()

    world.run(script)


def test_h23_a_reservation_that_could_not_be_synced_hands_nothing_out() -> None:
    """R8: the sync fails, get() raises; the next get() tries again instead of trusting the number in memory."""
    world = started()

    def script() -> None:
        with world.connect("sub") as sub, world.connect("pub") as pub:
            sub.subscribe("t")
            pub.put_many("t", number(5))
        client = world.connect("sub")
        disk = world.client_disk("sub")
        for _ in range(2):
            disk.fail_next_sync()
            with pytest.raises(SyncFailed):
                client.get("t", timeout=0)
        assert client.get("t", timeout=0).value == b"0"  # type: ignore[union-attr]
        world.crash_client(client, power_cut=True)
        again = world.connect("sub")
        with pytest.raises(InDoubt) as told:
            again.get("t", timeout=0)
        assert told.value.first == 0
        again.close()

    world.run(script)


@pytest.mark.parametrize("seed", range(8))
def test_h23_the_bookmark_names_one_start_whenever_the_power_goes(seed: int) -> None:
    """R1, R8: the reservation is written just when the first message of another broker start is due: no false Diverged."""
    world = started(seed)
    subscribed(world)

    def put(count: int) -> None:
        with world.connect("pub") as pub:
            pub.put_many("t", number(count))

    world.run(lambda: put(RESERVE_AHEAD_MESSAGES))
    world.restart_broker()
    world.run(lambda: put(10))
    client = world.run(lambda: world.connect("sub"))
    world.run(lambda: [client.get("t", timeout=0) for _ in range(RESERVE_AHEAD_MESSAGES)])
    world.client_disk("sub").fail_next_sync()

    def script() -> None:
        with pytest.raises(SyncFailed):
            client.get("t", timeout=0)
        world.crash_client(client)
        with world.connect("sub", in_doubt="skip") as again:
            assert values(again, "t") == number(10)

    world.run(script)


def test_h23_a_clean_stop_leaves_nothing_in_doubt_whatever_happens_to_the_machine() -> None:
    """R8: every slot is marked clean and synced by close()."""
    for seed in range(10):
        world = started(seed)

        def script(world: World = world) -> None:
            with world.connect("sub") as sub, world.connect("pub") as pub:
                sub.subscribe("t")
                pub.put_many("t", number(5))
                for _ in range(3):
                    sub.get("t", timeout=0)
            world.client_disk("sub").power_cut()
            with world.connect("sub") as sub:
                assert values(sub, "t") == number(2, 3)

        world.run(script)


# --- R8: slots torn at every byte --------------------------------------------------------------------------------------


def slot_at(finished: int) -> Slot:
    slot = Slot(7, 9, finished, finished + 1, finished + 1000, append_number=finished, start_id=b"s" * 16, session=b"c" * 16)
    slot.freeze()
    return slot


def test_r08_a_slot_torn_at_any_byte_is_the_old_one_or_the_new_one() -> None:
    """R8: two copies in two pages; whatever part of a write arrived, one of them is whole."""
    slot, pages = slot_at(0), bytearray(SLOT_BYTES)
    for finished in range(4):
        before = decode_slot(bytes(pages))
        slot.finished, slot.handed = finished, finished + 1
        at, content = slot.encode()
        assert at in {0, PAGE_BYTES}
        for arrived in range(len(content)):
            for start, end in ((0, arrived), (arrived, len(content))):
                torn = bytearray(pages)
                torn[at + start : at + end] = content[start:end]
                found = decode_slot(bytes(torn))
                assert (found and found.finished) in {before and before.finished, finished}
        pages[at : at + len(content)] = content
        whole = decode_slot(bytes(pages))
        assert whole is not None
        assert (whole.finished, whole.counter) == (finished, finished + 1)


def test_r08_no_flipped_byte_of_the_newer_slot_is_believed() -> None:
    """R8: the checksum covers every field; a bent copy counts for nothing and the older one speaks."""
    slot, pages = slot_at(0), bytearray(SLOT_BYTES)
    for finished in (1, 2):
        slot.finished = finished
        at, content = slot.encode()
        pages[at : at + len(content)] = content
    for index in range(len(content)):
        bent = bytearray(pages)
        bent[at + index] ^= 0x40
        found = decode_slot(bytes(bent))
        assert found is not None
        assert found.finished == 1


def test_r08_a_fresh_file_has_no_slot() -> None:
    """R8: zeros are not a slot at offset 0."""
    assert decode_slot(bytes(SLOT_BYTES)) is None


@pytest.mark.parametrize(
    ("is_os_crash", "cursor", "expected"),
    [
        (False, 10, (10, 12)),
        (False, 8, (10, 12)),
        (False, 12, (10, 12)),
        (True, 10, (10, 500)),
        (True, 40, (40, 500)),
        (False, 13, StateLost),
        (True, 1011, StateLost),
    ],
)
def test_r09_a_local_slot_wins_over_the_brokers_cursor_unless_that_is_impossible(
    is_os_crash: bool, cursor: int, expected: tuple[int, int] | type[StateLost]
) -> None:
    """R9: [finished, handed) after kill -9, up to `reserved` after a machine's death; a cursor beyond is an old copy."""
    slot = Slot(1, 2, 10, 12, 1010)
    slot.freeze()
    info = SubscriptionInfo(1, "t", 2, "local", 0, cursor, 0, 500)
    subscriber = Subscriber(info, slot)
    if isinstance(expected, type):
        with pytest.raises(expected):
            subscriber.resume(info, is_os_crash=is_os_crash, taken_over=False, client="c")
    else:
        subscriber.resume(info, is_os_crash=is_os_crash, taken_over=False, client="c")
        assert subscriber.doubt == expected


# --- the outbox and the machine's death -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_h03a_a_publisher_whose_machine_dies_again_and_again_stores_nothing_twice_and_never_gets_stuck(seed: int) -> None:
    """R4, R5: unsynced puts may be lost with the machine, confirmed ones are there once, in order, and the next life goes on."""
    world = started(seed)
    subscribed(world)
    confirmed: list[bytes] = []
    chance = world.scheduler.random("lives")

    def life(number_of_life: int) -> None:
        client = world.connect("pub")
        client.flush()
        for index in range(30):
            value = b"%d.%d" % (number_of_life, index)
            if chance.random() < 0.3:
                client.put("t", value)
                confirmed.append(value)
            else:
                client.put("t", value, wait=False)
                if chance.random() < 0.3:
                    client._puts.cut_all()
                    client._puts._push()
        if chance.random() < 0.5:
            meddle(world, PutDone, DROP, times=1000)
            with suppress(PutPending):
                client.flush()
            be_quiet(world)
        world.crash_client(client, power_cut=True)

    for number_of_life in range(6):
        world.run(lambda life_now=number_of_life: life(life_now))  # type: ignore[misc]

    def look() -> None:
        with world.connect("pub") as pub:
            pub.flush()
        found = stored_values(world, "t")
        assert len(set(found)) == len(found)
        assert [value for value in found if value in set(confirmed)] == confirmed
        assert sorted(found, key=lambda value: tuple(map(int, value.split(b".")))) == found

    world.run(look)

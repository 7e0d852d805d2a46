# SPDX-License-Identifier: Apache-2.0
"""Holes of the put stream: a used number swallows a new message, refusals tear the stream, a put is forgotten (H3, H7, H27)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from oncemq.core.packets import Hello, Put, PutDone, PutOutcome, Refused, Welcome
from oncemq.errors import Diverged, NoSubscribers, PutPending, StateLost
from oncemq.journal.journal import JournalSettings
from oncemq.limits import OUTCOMES_KEPT_BLOCKS, PUT_WINDOW_BLOCKS
from oncemq.model.refusals import Code
from oncemq.sim.disk import SimDisk
from oncemq.sim.network import DROP, Verdict
from oncemq.sim.world import World
from tests.holes.helpers import (
    SECOND_US,
    Raw,
    be_quiet,
    block_of,
    crash_at,
    die_at,
    meddle,
    number,
    overhear,
    record_frames,
    started,
    stored_values,
    until_broker_dies,
    values,
)

# --- H3: a used put number swallows a new message ---------------------------------------------------


def with_reader(world: World, topic: str = "t") -> None:
    """Make the topic, with somebody who wants everything in it."""
    world.run(lambda: subscribe_reader(world, topic))


def subscribe_reader(world: World, topic: str = "t") -> None:
    with world.connect("reader") as reader:
        reader.subscribe(topic)


@pytest.mark.parametrize("seed", range(6))
def test_h03a_after_a_power_cut_at_the_client_a_new_put_is_not_taken_for_an_old_one(seed: int) -> None:
    """R3, R4: the outbox lost confirmed numbers, but a new life is a new stream, so the new message gets a place of its own."""
    world = started(seed)
    with_reader(world)

    def script() -> None:
        first = world.connect("pub")
        for value in number(10):
            first.put("t", value)
        world.crash_client(first, power_cut=True)
        again = world.connect("pub", offline=True)
        again.put("t", b"new", wait=False)
        again.flush()
        again.put("t", b"newer")
        again.close()
        assert stored_values(world, "t") == [*number(10), b"new", b"newer"]

    world.run(script)


def test_h03b_a_container_without_its_volume_is_refused_and_after_takeover_its_puts_are_new() -> None:
    """R3: the same id with an empty directory is StateLost; taking over aloud begins another stream, nothing is swallowed."""
    world = started()
    with_reader(world)

    def script() -> None:
        with world.connect("pub") as first:
            first.put("t", b"old")
        with pytest.raises(StateLost):
            world.connect("pub", disk=SimDisk())
        with world.connect("pub", disk=SimDisk(), takeover=True) as again:
            receipt = again.put("t", b"new")
            assert (receipt.offset, receipt.duplicate) == (1, False)
        assert stored_values(world, "t") == [b"old", b"new"]

    world.run(script)


def test_h03c_a_state_directory_restored_from_last_night_is_refused() -> None:
    """R3: an old copy does not know the session that came after it."""
    world = started()
    with_reader(world)

    def script() -> None:
        with world.connect("pub") as first:
            first.put("t", b"0")
        copy = world.client_disk("pub").copy()
        with world.connect("pub") as second:
            second.put("t", b"1")
        with pytest.raises(StateLost):
            world.connect("pub", disk=copy)
        assert stored_values(world, "t") == [b"0", b"1"]

    world.run(script)


def test_h03d_numbers_of_a_commit_without_an_answer_are_not_given_again() -> None:
    """R4, R5: the answer is lost and the process dies; the next one asks for that outcome and begins its own stream."""
    world = started()
    with_reader(world)

    def script() -> None:
        first = world.connect("pub")
        meddle(world, PutDone, DROP, times=100)
        with pytest.raises(PutPending):
            first.put("t", b"old")
        world.crash_client(first)
        be_quiet(world)
        with world.connect("pub") as again:
            assert again.pending == 1
            receipt = again.put("t", b"new")
            assert (receipt.offset, receipt.duplicate) == (1, False)
        assert stored_values(world, "t") == [b"old", b"new"]

    world.run(script)


def test_h03e_a_process_that_uses_anothers_id_is_refused_and_swallows_nothing() -> None:
    """R3: while B works, A comes with B's id and a directory of its own; A is refused, B's stream goes on."""
    world = started()
    with_reader(world)

    def script() -> None:
        with world.connect("b") as rightful:
            rightful.put("t", b"0")
            with pytest.raises(StateLost):
                world.connect("b", disk=SimDisk())
            assert rightful.put("t", b"1").offset == 1
        assert stored_values(world, "t") == [b"0", b"1"]

    world.run(script)


def test_h03_a_directory_belongs_to_one_log() -> None:
    """R1: meeting another broker's log is refused, not begun afresh; not even a takeover moves a directory."""
    world, other = started(1), started(2)
    for each in (world, other):
        each.run(lambda here=each: here.connect("pub").close())  # type: ignore[misc]

    def script() -> None:
        for takeover in (False, True):
            with pytest.raises(Diverged):
                other.connect("pub", disk=world.client_disk("pub"), takeover=takeover)

    other.run(script)


@pytest.mark.parametrize("seed", range(20))
def test_h03_what_a_start_believed_confirmed_is_not_sent_again_after_a_power_cut(seed: int) -> None:
    """R4, R11: a confirmation read from the page cache is made durable before Hello lets the broker forget that stream.

    Otherwise: kept (synced), confirmed (not synced), next Hello names nothing, power cut, the entry is back: stored twice.
    """
    world = started(seed)
    with_reader(world)

    def keep() -> None:
        client = world.connect("pub")
        world.kill_broker()
        with pytest.raises(PutPending):
            client.put("t", b"once")
        world.start_broker()
        client.flush()
        client.close()
        next_life = world.connect("pub")
        world.crash_client(next_life, power_cut=True)
        with world.connect("pub") as last:
            last.flush()
        assert stored_values(world, "t") == [b"once"]

    world.run(keep)


# --- H7: refusals tear the put stream -----------------------------------------------------------------


def test_h07_a_refused_put_uses_its_number_up_and_the_stream_goes_on() -> None:
    """R5: a final refusal is an outcome. A late copy hears it again, even when the put would be welcome now."""
    world = started()
    frames = record_frames(world, Put)

    def script() -> None:
        client = world.connect("pub")
        with pytest.raises(NoSubscribers):
            client.put("a", b"refused", strict=True)
        with world.connect("reader") as reader:
            reader.subscribe("a")
            reader.subscribe("b")
        assert client.put("b", b"next").offset == 0
        late = Raw(world).replay(frames[0])
        assert isinstance(late, PutDone)
        assert (late.code, late.duplicate) == (Code.NO_SUBSCRIBERS, True)
        client.close()
        assert stored_values(world, "a") == []
        assert stored_values(world, "b") == [b"next"]

    world.run(script)


def test_h07_puts_in_flight_behind_a_refused_one_are_stored_in_order() -> None:
    """R5, G7: a refusal in the middle of a window neither renumbers nor drops nor blocks what comes after it."""
    world = started()
    with_reader(world, "b")

    def script() -> None:
        with world.connect("pub") as client:
            client.put("b", b"0", wait=False)
            client.put("nobody", b"x", strict=True, wait=False)
            client.put("b", b"1", wait=False, strict=True)
            with pytest.raises(NoSubscribers):
                client.flush()
            client.put("b", b"2")
            assert client.flush() >= 0  # Told once.
        assert stored_values(world, "b") == number(3)

    world.run(script)


def test_h07_a_refusal_that_put_has_raised_is_not_raised_again_by_flush() -> None:
    """G8: every refusal is told, and told once."""
    world = started()

    def script() -> None:
        with world.connect("pub") as client:
            with pytest.raises(NoSubscribers):
                client.put("nobody", b"x", strict=True)
            client.flush()

    world.run(script)


def test_h07_not_stored_stays_not_stored_although_somebody_subscribed_meanwhile() -> None:
    """R5: #1 finds no interest, its answer is lost, somebody subscribes, #1 comes again: one number, one outcome."""
    world = started()

    def script() -> None:
        client = world.connect("pub")
        meddle(world, PutDone, DROP, link="pub")
        world.spawn("subscribe", lambda: subscribe_reader(world))
        receipt = client.put("t", b"nobody wanted it")
        assert (receipt.stored, receipt.offset, receipt.duplicate) == (False, None, True)
        assert client.put("t", b"wanted").offset == 0
        client.close()

    world.run(script)


def test_h07_a_block_that_reaches_over_what_was_taken_is_neither_dropped_nor_stored_twice() -> None:
    """R5: 1–10 are stored, then 1–15 come as one block: refused as a gap that names 11; nothing of it is taken."""
    world = started()

    def script() -> None:
        raw = Raw(world)
        raw.hello()
        raw.subscribe("t")
        assert isinstance(raw.put(1, "t", *number(10)), PutDone)
        refused = raw.put(1, "t", *number(15))
        assert isinstance(refused, Refused)
        assert (refused.code, refused.expected) == (Code.GAP_IN_STREAM, 11)
        assert stored_values(world, "t") == number(10)
        assert raw.put(11, "t", *number(5, 10)).outcomes[0].first_offset == 10  # type: ignore[attr-defined]
        assert stored_values(world, "t") == number(15)

    world.run(script)


def test_h07_a_block_cut_in_another_way_under_used_numbers_is_a_conflict() -> None:
    """R5: a number inside a block that is still known cannot begin another block; "duplicate" would swallow it."""
    world = started()

    def script() -> None:
        raw = Raw(world)
        raw.hello()
        raw.subscribe("t")
        raw.put(1, "t", *number(10))
        for first, count in ((1, 3), (4, 3), (10, 1)):
            refused = raw.put(first, "t", *[b"other"] * count)
            assert isinstance(refused, Refused)
            assert refused.code == Code.CONFLICTING_PUT

    world.run(script)


# --- R5: one number, one durable outcome ----------------------------------------------------------------


def outcome_of(answer: object) -> tuple[bool, str, tuple[PutOutcome, ...]]:
    assert isinstance(answer, PutDone)
    return answer.duplicate, answer.code, answer.outcomes


def test_r05_a_repeat_gets_the_same_outcome_while_it_is_kept_and_only_duplicate_afterwards() -> None:
    """R5: over a broker restart and a power cut as well. The window of the shipped client fits twice into what is kept."""
    assert OUTCOMES_KEPT_BLOCKS >= 2 * PUT_WINDOW_BLOCKS
    world = started()
    raw = Raw(world)

    def fill() -> None:
        raw.hello()
        raw.subscribe("t")
        for index in range(OUTCOMES_KEPT_BLOCKS + 1):
            raw.put(index + 1, "t", b"%d" % index)

    def look() -> None:
        assert outcome_of(raw.put(1, "t", b"0")) == (True, "", ())
        oldest_kept = raw.put(2, "t", b"1")
        assert outcome_of(oldest_kept)[0]
        assert oldest_kept.outcomes[0].first_offset == 1  # type: ignore[attr-defined]
        assert len(stored_values(world, "t")) == OUTCOMES_KEPT_BLOCKS + 1

    world.run(fill)
    world.run(look)
    world.restart_broker(power_cut=True)
    world.run(look)


def test_r05_a_client_whose_put_is_older_than_what_is_kept_hears_duplicate_without_an_offset() -> None:
    """R5: the same through the public API: `duplicate=True, offset=None`, and nothing is stored twice."""
    world = started()
    with_reader(world)

    def script() -> None:
        first = world.connect("pub")
        meddle(world, PutDone, DROP, times=10_000)
        for index in range(OUTCOMES_KEPT_BLOCKS + 10):
            first.put("t", b"%d" % index, wait=False)
            first._puts.cut_all()
        with pytest.raises(PutPending):
            first.flush()
        sent = 0
        while sent < OUTCOMES_KEPT_BLOCKS + 10:  # A window at a time: each answer is lost, so the window has to be moved by hand.
            first._puts.publisher._sent = sent
            first._puts.publisher._sent_bytes = 0
            for entry in list(first._puts.publisher._entries)[sent : sent + PUT_WINDOW_BLOCKS]:
                first._session.send(entry.packet(first._session.id), entry.block)
            sent += PUT_WINDOW_BLOCKS
            world.clock.pause(10)
        world.crash_client(first)
        be_quiet(world)
        heard = overhear(world, PutDone)
        with world.connect("pub") as again:
            again.flush()
        assert all(outcome_of(answer)[0] for answer in heard)
        assert [bool(outcome_of(answer)[2]) for answer in heard] == [False] * 10 + [True] * OUTCOMES_KEPT_BLOCKS
        assert stored_values(world, "t") == number(OUTCOMES_KEPT_BLOCKS + 10)

    world.run(script)


def test_r05_the_same_number_with_other_bytes_is_a_conflict_and_stores_nothing() -> None:
    """R5: ConflictingPut, not "duplicate": the caller must not believe that its bytes are stored."""
    world = started()

    def script() -> None:
        raw = Raw(world)
        raw.hello()
        raw.subscribe("t")
        raw.put(1, "t", b"one")
        refused = raw.put(1, "t", b"two")
        assert isinstance(refused, Refused)
        assert refused.code == Code.CONFLICTING_PUT
        assert stored_values(world, "t") == [b"one"]

    world.run(script)


def test_r05_a_full_disk_consumes_no_number_and_blocks_the_stream_in_order() -> None:
    """R5, R14: #2 finds no room; the small #3 behind it would fit but must not overtake; with space both are stored, in order."""
    world = started()

    def script() -> None:
        raw = Raw(world)
        raw.hello()
        raw.subscribe("t")
        raw.put(1, "t", b"1")
        world.disk.capacity_bytes = world.disk.used_bytes()
        large = raw.put(2, "t", bytes(100_000))
        assert isinstance(large, Refused)
        assert large.code == Code.DISK_FULL
        small = raw.put(3, "t", b"3")
        assert isinstance(small, Refused)
        assert (small.code, small.expected) == (Code.GAP_IN_STREAM, 2)
        world.disk.capacity_bytes = None
        assert isinstance(raw.put(2, "t", bytes(100_000)), PutDone)
        assert isinstance(raw.put(3, "t", b"3"), PutDone)
        assert [len(value) for value in stored_values(world, "t")] == [1, 100_000, 1]

    world.run(script)


def test_r05_a_client_on_a_full_disk_keeps_its_puts_and_goes_on_by_itself() -> None:
    """R5: the same through the public API: PutPending while it is full, then everything once and in order."""
    world = started()
    with_reader(world)

    def script() -> None:
        client = world.connect("pub")
        world.disk.capacity_bytes = world.disk.used_bytes()
        with pytest.raises(PutPending):
            client.put("t", bytes(100_000))
        client.put("t", b"small", wait=False)
        world.disk.capacity_bytes = None
        client.flush()
        client.close()
        assert [len(value) for value in stored_values(world, "t")] == [100_000, 5]

    world.run(script)


def test_r05_a_lost_put_makes_the_window_go_back_once_and_nothing_is_reordered() -> None:
    """R5, rules §4.12: one lost block in a full window; every later one is refused as a gap, and one rewind sends them again."""
    world = started()
    with_reader(world)

    def script() -> None:
        meddle(world, Put, DROP)
        sent = overhear(world, Put)
        client = world.connect("pub")
        for value in number(20):
            client.put("t", value, wait=False)
            client._puts.cut_all()
        client.flush()
        client.close()
        assert len(sent) == 2 * 20
        assert stored_values(world, "t") == number(20)

    world.run(script)


@pytest.mark.parametrize("seed", range(4))
def test_r05_lost_and_repeated_packets_in_both_directions_store_everything_once_in_order(seed: int) -> None:
    """G1, G7: a random tenth is lost, a tenth comes twice, a tenth late."""
    world = started(seed)
    with_reader(world)
    chance = world.scheduler.random("meddling")
    verdicts = [DROP, Verdict(copies=2), Verdict(delay_us=3 * SECOND_US), Verdict(copies=2, delay_us=200_000)]
    world.network.rule = lambda _: chance.choice(verdicts) if chance.random() < 0.2 else Verdict()

    def script() -> None:
        client = world.connect("pub", offline=True)
        for value in number(300):
            client.put("t", value, wait=False)
            if chance.random() < 0.3:
                client._puts.cut_all()
        while client.pending:
            try:
                client.flush()
            except PutPending:
                continue
        be_quiet(world)
        client.close()
        assert stored_values(world, "t") == number(300)

    world.run(script, limit_us=36_000 * SECOND_US)


# --- several topics, strict (rules §4.1) -----------------------------------------------------------------


def test_s41_a_put_to_several_topics_has_an_outcome_per_topic_and_consecutive_numbers() -> None:
    """Rules §4.1: one number per copy; where nobody is interested the copy is not stored, which is no refusal."""
    world = started()
    with_reader(world, "a")
    with_reader(world, "c")

    def script() -> None:
        with world.connect("pub") as client:
            receipts = client.put(["a", "b", "c"], b"x")
            assert [receipt.topic for receipt in receipts] == ["a", "b", "c"]
            assert [receipt.stored for receipt in receipts] == [True, False, True]
            assert [receipt.offset for receipt in receipts] == [0, None, 0]
            assert all(after.number == before.number + 1 for before, after in pairwise(receipts))
            assert client.put("a", b"y").number == receipts[-1].number + 1
        with world.connect("reader") as reader:
            assert values(reader, "a") == [b"x", b"y"]
            assert values(reader, "c") == [b"x"]

    world.run(script)


def test_s41_strict_refuses_all_topics_if_one_has_no_subscriber() -> None:
    """Rules §4.1: nothing is stored anywhere; the next put goes on."""
    world = started()
    with_reader(world, "a")

    def script() -> None:
        with world.connect("pub") as client:
            with pytest.raises(NoSubscribers):
                client.put(["a", "b"], b"x", strict=True)
            assert client.put("a", b"y", strict=True).offset == 0
        assert stored_values(world, "a") == [b"y"]

    world.run(script)


# --- H27: put() raised, the application puts again ---------------------------------------------------------


def test_h27_a_put_without_an_answer_is_kept_and_sent_later_once() -> None:
    """R5: PutPending says what is kept; flush() sends it, once, although the first copy had arrived as well."""
    world = started()
    with_reader(world)

    def script() -> None:
        client = world.connect("pub")
        meddle(world, PutDone, DROP, times=100)
        with pytest.raises(PutPending) as told:
            client.put("t", b"x")
        assert (told.value.number, told.value.pending, told.value.is_durable) == (1, 1, True)
        be_quiet(world)
        assert client.flush() == 1
        assert client.pending == 0
        client.close()
        assert stored_values(world, "t") == [b"x"]

    world.run(script)


@pytest.mark.parametrize("seed", range(5))
def test_h27_what_is_pending_survives_a_power_cut_of_the_client(seed: int) -> None:
    """Settled details: the outbox is synced before PutPending is raised; the next process sends it before its own."""
    world = started(seed)
    with_reader(world)

    def script() -> None:
        client = world.connect("pub")
        world.kill_broker()
        with pytest.raises(PutPending):
            client.put("t", b"first")
        world.crash_client(client, power_cut=True)
        world.start_broker()
        with world.connect("pub") as again:
            assert again.pending == 1
            again.put("t", b"second")
        assert stored_values(world, "t") == [b"first", b"second"]

    world.run(script)


def test_h27_close_says_how_many_messages_stay_and_they_are_sent_by_the_next_run() -> None:
    """H31: close() flushes up to its time-out and reports what stays."""
    world = started()
    with_reader(world)

    def script() -> None:
        client = world.connect("pub")
        world.kill_broker()
        for value in number(3):
            client.put("t", value, wait=False)
        assert client.close() == 3
        world.start_broker()
        with world.connect("pub") as again:
            assert again.flush() == 3
        assert stored_values(world, "t") == number(3)

    world.run(script)


@pytest.mark.parametrize("point", ["client.after_outbox", "client.before_send", "client.after_send", "client.after_receive"])
def test_h27_a_publisher_that_dies_at_any_instant_after_keeping_a_put_has_it_stored_once(point: str) -> None:
    """G1: whatever was kept before kill -9 is stored once by the next process; what was not kept is not."""
    world = started()
    with_reader(world)
    victim = world.run(lambda: world.connect("pub"))
    die_at(world, point, lambda: victim.put("t", b"x"))
    world.crash_client(victim)

    def script() -> None:
        with world.connect("pub") as again:
            again.put("t", b"y")
        assert stored_values(world, "t") == [b"x", b"y"]

    world.run(script)


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize(
    "point",
    [
        "broker.after_receive",
        "broker.before_append",
        "broker.after_append",
        "broker.after_sync",
        "broker.between_answers",
        "broker.after_answers",
    ],
)
def test_h27_a_broker_that_dies_at_any_instant_of_a_put_stores_it_once(point: str, power_cut: bool) -> None:
    """G1, G2: the client sends again until it hears; whether the first copy was stored or not, there is one in the end."""
    world = started()
    with_reader(world)
    client = world.run(lambda: world.connect("pub"))
    with crash_at(point):
        process = world.spawn("put", lambda: client.put("t", b"x") and None)
        until_broker_dies(world)
    world.restart_broker(power_cut=power_cut)
    assert world.scheduler.run(until=lambda: not process.is_running)
    assert process.error is None

    def script() -> None:
        client.put("t", b"y")
        client.close()
        assert stored_values(world, "t") == [b"x", b"y"]

    world.run(script)


def test_r04_a_put_of_a_stream_that_was_not_named_pending_is_refused() -> None:
    """R4: a stream never outlives the directory that numbered it: the late put of a finished life is not taken."""
    world = started()
    frames = record_frames(world, Put)

    def script() -> None:
        with world.connect("reader") as reader:
            reader.subscribe("t")
        with world.connect("pub") as first:
            first.put("t", b"0")
            first.put("t", b"1")
        with world.connect("pub"):
            late = Raw(world).replay(frames[0])
            assert isinstance(late, Refused)
            assert late.code == Code.FENCED
        raw = Raw(world, "raw")
        old = raw.hello().session
        raw.hello(known=(old,))
        answer = raw.ask(Put(raw.session, old, 1, 1, ("t",)), block_of(b"x"))
        assert isinstance(answer, Refused)
        assert answer.code == Code.UNKNOWN_STREAM
        assert isinstance(raw.ask(Hello("raw", world.entropy.id16(), known=(raw.session,), pending=(old,))), Welcome)

    world.run(script)


def test_a_retained_topic_that_nobody_subscribes_to_survives_snapshots_and_restarts() -> None:
    world = started(settings=JournalSettings(segment_bytes=16 * 1024, reserve_bytes=8 * 1024, segment_records_max=5))

    def fill() -> None:
        with world.connect("pub") as pub:
            pub.admin.create_topic("t", retain="forever")
            for value in number(30):
                pub.put("t", value)

    world.run(fill)
    for power_cut in (False, True):
        world.restart_broker(power_cut=power_cut)
        assert world.run(lambda: stored_values(world, "t")) == number(30)

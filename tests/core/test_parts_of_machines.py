# SPDX-License-Identifier: Apache-2.0
"""The small machines by themselves: retention, waiting gets, put streams, slots, identities, and the client's two halves."""

from __future__ import annotations

import pytest

from oncemq.core import publisher as publishing
from oncemq.core.gets import Parked
from oncemq.core.identity import FORMAT, Identity, decode_identity, encode_identity, hello, trying, welcomed
from oncemq.core.packets import NOBODY, Get, PutDone, PutOutcome, StreamInfo, SubscriptionInfo, Want
from oncemq.core.parking import Parking
from oncemq.core.publisher import Entry, OpenBlock, Publisher
from oncemq.core.retention import Timeline, new_low
from oncemq.core.slot import PAGE_BYTES, SLOT_BYTES, Slot, decode_slot
from oncemq.core.streams import Kept, Stream
from oncemq.core.subscriber import Span, Subscriber
from oncemq.core.topics import Subscription, Topic
from oncemq.errors import Damaged, DirectoryUnusable, Diverged, Gap, InDoubt, MessageTooLarge, StateLost, UsageError
from oncemq.limits import (
    BLOCK_CUT_BYTES,
    BLOCK_CUT_MESSAGES,
    CLOCK_JUMP_US_MAX,
    HEADERS_BYTES_MAX,
    KEY_BYTES_MAX,
    OUTCOMES_KEPT_BLOCKS,
    PAST_SESSIONS_MAX,
    RESERVE_AHEAD_MESSAGES,
    VALUE_BYTES_MAX,
)
from oncemq.model.message import Source
from tests.core.helpers import LOG, OTHER, SESSION, START, TO, FakeStore, Held, at, block_of

# --- retention ---------------------------------------------------------------------------------------------

DAY_US = 86_400_000_000
HELD = [Held(3, 30, 1 * DAY_US), Held(6, 30, 2 * DAY_US), Held(9, 30, 3 * DAY_US)]


@pytest.mark.parametrize(
    ("retain", "limit", "cursor", "low"),
    [
        ("", "", None, 9),
        ("", "", 9, 8),
        ("", "", 1, 0),
        ("", "", 0, 0),
        ("forever", "", 9, 0),
        ("age:86400", "", 9, 6),  # The clock says day 3 and a bit: the first two segments are older than a day.
        ("age:172800", "", 9, 3),
        ("age:172800", "", 2, 1),
        ("size:30", "", 9, 6),
        ("size:60", "", 9, 3),
        ("size:61", "", 9, 0),
        ("size:90", "", 9, 0),
        ("", "size:90", 0, 0),
        ("", "size:89", 0, 3),
        ("", "size:30", 0, 6),
        ("", "size:1", 0, 6),  # The last segment is still written to: it goes as a whole only when it can be spared.
        ("", "age:86400", 0, 6),
        ("", "forever", 0, 0),
    ],
)
def test_how_far_a_topics_low_may_move(retain: str, limit: str, cursor: int | None, low: int) -> None:
    topic = Topic(1, "t", explicit=True, retain=retain, limit=limit)
    topic.end = 9
    if cursor is not None:
        topic.subscriptions[1] = Subscription(1, 1, "c", "", cursor)
        topic.subscriptions[2] = Subscription(2, 1, "d", "", 9)
    store = FakeStore(list(HELD))

    assert new_low(topic, store, wall_us=3 * DAY_US + 1) == low
    topic.low = 8
    assert new_low(topic, store, wall_us=3 * DAY_US + 1) == max(low, 8)


def test_a_topic_may_outlive_all_of_its_messages() -> None:
    topic = Topic(1, "t", explicit=True, retain="", limit="age:86400")
    topic.end = 9
    topic.subscriptions[1] = Subscription(1, 1, "c", "", 0)

    assert new_low(topic, FakeStore(list(HELD)), wall_us=5 * DAY_US) == 9


def test_a_clock_that_jumps_ages_nothing_and_one_that_drifts_is_believed() -> None:
    timeline = Timeline()
    begin = timeline.trusted_us(at(0))

    assert timeline.trusted_us(at(1_000)) == begin + 1_000_000
    assert timeline.trusted_us(at(2_000, CLOCK_JUMP_US_MAX)) == begin + 2_000_000 + CLOCK_JUMP_US_MAX
    assert timeline.trusted_us(at(3_000, 2 * CLOCK_JUMP_US_MAX + 1)) == begin + 3_000_000 + CLOCK_JUMP_US_MAX
    assert timeline.trusted_us(at(4_000, -1)) == begin + 4_000_000 + CLOCK_JUMP_US_MAX
    assert timeline.trusted_us(at(5_000)) == begin + 5_000_000


# --- waiting gets ------------------------------------------------------------------------------------------


def waiting(due_ms: int, *topic_ids: int) -> Parked:
    return Parked(TO, Get(SESSION, tuple(Want(1, topic_id, 0) for topic_id in topic_ids), 1, 1), "c", due_ms)


def test_who_is_woken_or_due_is_taken_out_everywhere() -> None:
    parking = Parking()
    first, second, third = waiting(10, 1, 2), waiting(20, 2), waiting(5, 3)
    for entry in (first, second, third):
        parking.add(entry)

    assert parking.next_due_ms() == 5
    assert parking.take_due(4) == []
    assert parking.take_due(5) == [third]
    assert (parking.waits_for(3), parking.waits_for(2), len(parking)) == (False, True, 2)
    assert parking.take_waiting_for([1]) == [first]
    assert (parking.waits_for(1), parking.waits_for(2)) == (False, True)
    assert parking.next_due_ms() == 20
    assert parking.take_due(15) == []
    assert parking.take_waiting_for([2, 2, 9]) == [second]
    assert (len(parking), parking.next_due_ms()) == (0, None)


def test_those_who_wait_for_the_same_topic_are_woken_in_the_order_they_came() -> None:
    parking = Parking()
    entries = [waiting(30 - number, 1) for number in range(3)]
    for entry in entries:
        parking.add(entry)
    assert parking.take_due(28) == [entries[2]]
    parking.add(entries[2])
    assert parking.take_waiting_for([1]) == entries
    parking.add(entries[0])
    assert parking.take_all() == [entries[0]]
    assert parking.take_due(99) == []


def test_a_get_that_is_woken_often_and_waits_on_leaves_nothing_behind() -> None:
    """Whoever opens a session wakes all that wait: thousands of times a second, and each may wait for half a minute."""
    parking = Parking()
    entries = [waiting(30_000 + number, 1) for number in range(10)]
    for entry in entries:
        parking.add(entry)
    for _ in range(1_000):
        for entry in parking.take_all():
            parking.add(entry)

    assert len(parking._due) < 100
    assert parking.next_due_ms() == 30_000
    assert [entry for due_ms in range(30_000, 30_010) for entry in parking.take_due(due_ms)] == entries


# --- put streams at the broker -----------------------------------------------------------------------------


def test_a_stream_knows_where_blocks_began_as_long_as_they_are_kept() -> None:
    stream = Stream()
    for number in range(OUTCOMES_KEPT_BLOCKS + 1):
        stream.settle(Kept(1 + 2 * number, 2, 0, "", ()))

    assert stream.last == 2 * (OUTCOMES_KEPT_BLOCKS + 1)
    assert stream.outcome_at(1) is None
    assert stream.outcome_at(3) is not None
    assert stream.outcome_at(4) is None
    inside = [stream.is_inside(number) for number in (1, 2, 3, 4, stream.last, stream.last + 1)]
    assert inside == [False, False, False, True, True, False]
    assert not Stream(9).is_inside(5)


# --- the publishing half -----------------------------------------------------------------------------------


def entry_of(first_number: int, count: int = 1, topics: tuple[str, ...] = ("t",), stream: bytes = SESSION) -> Entry:
    return Entry(stream, first_number, count, topics, strict=False, block=block_of(count))


def done(entry: Entry, *, duplicate: bool = False, outcomes: tuple[PutOutcome, ...] = ()) -> PutDone:
    return PutDone(entry.stream, entry.first_number, entry.numbers, duplicate, "", outcomes)


def filled(*counts: int) -> tuple[Publisher, list[Entry]]:
    machine, entries = Publisher(SESSION), []
    for count in counts:
        block = OpenBlock(("t",), strict=False)
        for _ in range(count):
            block.add(b"v", 1)
        entries.append(machine.cut(block))
        machine.add(entries[-1])
    return machine, entries


def test_blocks_are_numbered_without_gaps_and_leave_in_order() -> None:
    machine, (first, second, third) = filled(2, 3, 1)
    assert [entry.first_number for entry in (first, second, third)] == [1, 3, 6]
    assert (machine.next_number, machine.messages, len(machine)) == (7, 6, 3)
    assert machine.to_send() == [first, second, third]
    assert machine.on_put_done(done(second)) == []
    assert machine.on_put_done(done(second)) == []
    assert machine.on_put_done(done(first)) == [first, second]
    assert (machine.confirmed[SESSION], machine.floor(SESSION), machine.settled, machine.messages) == (5, 5, 2, 1)
    assert machine.on_put_done(done(first)) == []
    assert machine.on_put_done(done(third)) == [third]
    assert (len(machine), first.block) == (0, b"")


def test_an_outcome_counts_once_everything_before_it_has_one() -> None:
    """A broker set back between two answers takes both blocks again, and gives the second another place than it had said."""
    machine, (first, second) = filled(1, 1)
    machine.to_send()
    machine.on_put_done(done(second, outcomes=(PutOutcome(7, True, 41),)))
    assert not machine.has_left(second)
    machine.rewind()
    assert machine.to_send() == [first, second]
    assert machine.on_put_done(done(first, outcomes=(PutOutcome(7, True, 29),))) == [first]
    assert machine.on_put_done(done(second, outcomes=(PutOutcome(7, True, 30),))) == [second]
    assert (machine.has_left(second), second.outcomes()[0].first_offset) == (True, 30)


def test_the_window_bounds_blocks_and_bytes_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "PUT_WINDOW_BLOCKS", 2)
    machine, entries = filled(1, 1, 1)
    assert machine.to_send() == entries[:2]
    assert (machine.is_window_full, machine.to_send()) == (True, [])
    machine.on_put_done(done(entries[0]))
    assert not machine.is_window_full
    assert machine.to_send() == entries[2:]
    machine.rewind()
    assert machine.to_send() == entries[1:]
    monkeypatch.setattr(publishing, "PUT_WINDOW_BLOCKS", 9)
    monkeypatch.setattr(publishing, "PUT_WINDOW_BYTES", 2 * len(block_of(1)))
    machine, entries = filled(1, 1, 1)
    assert machine.to_send() == entries[:2]
    machine.on_put_done(done(entries[0]))
    assert machine.to_send() == entries[2:]


def test_streams_of_older_runs_come_first_and_are_named() -> None:
    machine = Publisher(SESSION)
    old = [entry_of(5, 2, stream=OTHER), entry_of(7, stream=OTHER)]
    for entry in old:
        machine.adopt(entry)
    assert machine.streams() == (OTHER,)
    assert (machine.floor(OTHER), machine.floor(SESSION)) == (4, 0)
    assert machine.to_send() == old
    machine.on_put_done(done(old[0]))
    machine.on_put_done(done(old[1]))
    assert machine.streams() == ()


@pytest.mark.parametrize(("last", "confirmed", "is_told"), [(3, 3, False), (2, 3, True), (0, 0, False), (4, 3, False)])
def test_a_broker_that_has_less_than_was_confirmed_is_told(last: int, confirmed: int, *, is_told: bool) -> None:
    for streams, previous in (((StreamInfo(OTHER, last),), StreamInfo(NOBODY, 0)), ((), StreamInfo(OTHER, last))):
        machine = Publisher(SESSION)
        if is_told:
            with pytest.raises(Diverged):
                machine.on_welcome(streams, previous, {OTHER: confirmed})
        else:
            assert machine.on_welcome(streams, previous, {OTHER: confirmed}) == []


def test_what_lies_behind_a_hole_in_the_outbox_can_never_be_sent() -> None:
    machine = Publisher(SESSION)
    entries = [entry_of(3, 2, stream=OTHER), entry_of(5, stream=OTHER), entry_of(7, stream=OTHER), entry_of(1, stream=b"x" * 16)]
    for entry in entries:
        machine.adopt(entry)

    assert machine.on_welcome((StreamInfo(OTHER, 3),), StreamInfo(NOBODY, 0), {}) == entries[2:]
    assert machine.to_send() == entries[:2]


def test_outcomes_are_one_per_topic_and_unknown_where_the_broker_forgot_them() -> None:
    entry = entry_of(5, 2, ("t", "u"))
    entry.done = done(entry, outcomes=(PutOutcome(7, True, 40), PutOutcome(0, False, None)))
    first, second = entry.outcomes()
    assert (first.topic, first.topic_id, first.first_number, first.count) == ("t", 7, 5, 2)
    assert (first.stored, first.first_offset) == (True, 40)
    assert (second.topic, second.first_number, second.stored, second.first_offset) == ("u", 7, False, None)
    assert not second.duplicate
    entry.done = done(entry, duplicate=True)
    assert [(each.stored, each.first_offset, each.duplicate) for each in entry.outcomes()] == [(True, None, True)] * 2
    assert (entry.numbers, entry.last_number) == (4, 8)


def test_a_message_over_a_limit_leaves_the_block_as_it_was() -> None:
    block = OpenBlock(("t",), strict=False)
    block.add(b"one", 1)
    for value, key, headers, part in (
        (bytes(VALUE_BYTES_MAX + 1), None, None, "value"),
        (b"", bytes(KEY_BYTES_MAX + 1), None, "key"),
        (b"", None, {"h": bytes(HEADERS_BYTES_MAX)}, "headers"),
    ):
        with pytest.raises(MessageTooLarge, match=part):
            block.add(value, 1, key, headers)
    with pytest.raises(UsageError, match="key must be bytes"):
        block.add(b"", 1, "text")  # type: ignore[arg-type]
    for wrong in (["a"], {1: "a"}, {"a": 1}):
        with pytest.raises(UsageError, match="headers"):
            block.add(b"", 1, None, wrong)  # type: ignore[arg-type]
    assert (block.values, list(block.times_us), block.keys, block.headers, block.size_bytes) == ([b"one"], [1], None, None, 3)
    block.add(bytes(VALUE_BYTES_MAX), 2)
    block.add(b"", 2, bytes(KEY_BYTES_MAX))


def test_a_block_is_full_by_messages_or_by_bytes() -> None:
    block = OpenBlock(("t",), strict=False)
    for _ in range(BLOCK_CUT_MESSAGES - 1):
        block.add(b"", 1)
    assert not block.is_full
    block.add(b"", 1)
    assert block.is_full
    block = OpenBlock(("t",), strict=False)
    block.add(bytes(BLOCK_CUT_BYTES - 2), 1)
    assert not block.is_full
    block.add(b"", 1, b"kk")
    assert block.is_full
    block.drop_last()
    assert not block.is_full


# --- the receiving half ------------------------------------------------------------------------------------


def info_at(cursor: int, end: int) -> SubscriptionInfo:
    return SubscriptionInfo(1, "t", 2, "local", 0, cursor, 0, end)


def subscriber_at(finished: int, handed: int | None = None, reserved: int = 0) -> Subscriber:
    handed = finished if handed is None else handed
    slot = Slot(1, 2, finished, handed, max(reserved, handed))
    slot.freeze()
    return Subscriber(info_at(finished, handed), slot)


def source_at(first_offset: int, append_number: int = 1, start_id: bytes = START) -> Source:
    return Source("t", 2, "p", SESSION, 1, first_offset, append_number, 1, start_id)


@pytest.mark.parametrize(
    ("finished", "handed", "reserved", "cursor", "end", "crash", "doubt"),
    [
        (3, 3, 9, 3, 20, False, None),
        (3, 5, 9, 3, 20, False, Span(3, 5)),
        (3, 5, 9, 5, 20, False, Span(3, 5)),
        (3, 5, 9, 6, 20, False, StateLost),
        (3, 5, 9, 6, 20, True, Span(6, 9)),
        (3, 5, 9, 3, 7, True, Span(3, 7)),
        (3, 5, 9, 9, 20, True, None),
        (3, 5, 9, 10, 20, True, StateLost),
    ],
)
def test_what_is_in_doubt_after_a_crash(
    finished: int, handed: int, reserved: int, cursor: int, end: int, crash: bool, doubt: Span | type[StateLost] | None
) -> None:
    machine = subscriber_at(finished, handed, reserved)
    if doubt is StateLost:
        with pytest.raises(StateLost):
            machine.resume(info_at(cursor, end), is_os_crash=crash, taken_over=False, client="c")
        return
    machine.resume(info_at(cursor, end), is_os_crash=crash, taken_over=False, client="c")

    assert machine.doubt == doubt
    if isinstance(doubt, Span):
        with pytest.raises(InDoubt):
            machine.raise_if_blocked()
        assert (machine.slot.finished, machine.slot.handed, machine.next_offset) == (doubt.first, doubt.end, doubt.end)
        assert machine.slot.reserved >= doubt.end


def test_after_a_takeover_everything_from_the_cursor_on_is_in_doubt() -> None:
    machine = subscriber_at(0)
    machine.resume(info_at(4, 20), is_os_crash=False, taken_over=True, client="c")
    assert machine.doubt == Span(4, 20)
    assert not machine.finish()
    machine.settle("repeat")
    assert (machine.next_offset, machine.slot.finished, machine.slot.handed, machine.doubt) == (4, 4, 4, None)
    machine.resume(info_at(4, 20), is_os_crash=False, taken_over=True, client="c")
    machine.settle("skip")
    assert (machine.next_offset, machine.slot.finished, machine.slot.reserved) == (20, 20, 20)


def test_messages_are_handed_out_in_order_and_each_finishes_the_one_before() -> None:
    machine = subscriber_at(0, reserved=100)
    assert machine.on_block(source_at(0), block_of(3), 3)
    assert not machine.on_block(source_at(0), block_of(3), 3)
    assert not machine.on_block(source_at(4), block_of(3), 3)
    assert machine.on_block(source_at(2, 2), block_of(3), 3)  # It began before: one of its messages is here already.
    assert machine.next_offset == 5
    assert machine.head() == 1
    places = []
    while machine.has_message():
        message = machine.take()
        machine.given = machine.slot.handed
        places.append((message.offset, machine.slot.finished, machine.slot.handed, machine.slot.append_number))
    assert places == [(0, 0, 1, 1), (1, 1, 2, 1), (2, 2, 3, 1), (3, 3, 4, 2), (4, 4, 5, 2)]
    assert machine.finish()
    assert not machine.finish()
    assert (machine.slot.finished, machine.slot.handed) == (5, 5)


def test_a_gap_is_told_once_and_finished_by_the_next_call() -> None:
    machine = subscriber_at(2)
    machine.on_part(2, 9, 5, None)
    machine.raise_if_blocked()
    machine.on_part(4, 9, 5, None)
    with pytest.raises(Gap) as told:
        machine.raise_if_blocked()
    assert (told.value.first, told.value.end) == (2, 4)
    machine.pass_over(Span(2, 4))
    machine.raise_if_blocked()
    assert (machine.next_offset, machine.slot.finished) == (4, 2)
    assert machine.finish()
    assert (machine.slot.finished, machine.slot.handed) == (4, 4)
    machine.on_part(6, 9, 5, None)
    machine.pass_over(Span(2, 4))  # Another task was told of it as well, and is slower: nothing is undone.
    assert (machine.given, machine.gap) == (4, Span(4, 6))


@pytest.mark.parametrize("bent", [-1, 4, 5, 6, 7], ids=["a value", *("its count",) * 4])
def test_a_damaged_block_stands_in_the_way_until_it_is_settled(bent: int) -> None:
    """Its record says how far it goes. If its own count were believed, a skip could pass over what nobody has put yet."""
    machine = subscriber_at(0, reserved=100)
    broken = bytearray(block_of(3))
    broken[bent] ^= 32
    machine.on_block(source_at(0), bytes(broken), 3)
    assert not machine.has_message()
    with pytest.raises(Damaged) as told:
        machine.raise_if_blocked()
    assert (told.value.first, told.value.end) == (0, 3)
    assert not machine.on_block(source_at(0), block_of(3), 3)
    machine.settle("skip")
    assert (machine.next_offset, machine.slot.finished) == (3, 3)


@pytest.mark.parametrize(("choice", "following"), [("skip", None), ("repeat", Span(0, 3))])
def test_a_gap_is_seen_from_where_a_settled_subscription_goes_on(choice: str, following: Span | None) -> None:
    """What was told as damaged and skipped is not told again when it is trimmed meanwhile."""
    machine = subscriber_at(0, reserved=100)
    machine.on_part(0, 6, 0, Span(0, 3))
    machine.on_part(3, 6, 0, None)
    machine.settle(choice)
    machine.raise_if_blocked()
    machine.on_part(3, 6, 0, None)
    assert machine.gap == following


def test_what_is_repeated_and_gone_is_told_as_a_gap_from_its_beginning() -> None:
    machine = subscriber_at(0, reserved=100)
    machine.on_block(source_at(0), block_of(3), 3)
    assert machine.has_message()
    machine.doubt = Span(0, 3)
    machine.on_part(5, 6, 0, None)
    assert machine.gap == Span(3, 5)
    machine.settle("repeat")
    machine.on_part(5, 6, 0, None)
    assert machine.gap == Span(0, 5)


def test_damage_elsewhere_does_not_concern_what_is_next() -> None:
    for span in (Span(5, 9), Span(0, 4)):
        machine = subscriber_at(4)
        machine.on_part(0, 9, 0, span)
        assert machine.damaged is None


def test_a_reservation_is_raised_ahead_of_what_is_handed_out() -> None:
    machine = subscriber_at(0)
    machine.on_block(source_at(0), block_of(5), 5)
    assert machine.has_message()
    assert machine.needs_reserve()
    machine.reserve()
    assert machine.slot.reserved == RESERVE_AHEAD_MESSAGES
    assert not machine.needs_reserve(RESERVE_AHEAD_MESSAGES)
    assert machine.needs_reserve(RESERVE_AHEAD_MESSAGES + 1)
    machine.reserve(RESERVE_AHEAD_MESSAGES)
    assert machine.slot.reserved == 4 * RESERVE_AHEAD_MESSAGES


def test_what_is_wanted_names_the_place_the_bookmark_and_what_is_done() -> None:
    machine = subscriber_at(2, reserved=100)
    machine.on_block(source_at(2, 7, OTHER), block_of(3), 3)
    wanted = machine.want()
    assert (wanted.subscription_id, wanted.topic_id, wanted.offset, wanted.done) == (1, 2, 5, 2)
    assert (wanted.start_id, wanted.append_number) == (OTHER, 7)
    assert machine.told == 2
    machine.drop_buffer()
    wanted = machine.want()
    assert (wanted.offset, wanted.append_number, machine.head(), machine.buffered_bytes) == (2, 0, None, 0)


# --- slot and identity -------------------------------------------------------------------------------------


def test_a_slot_survives_a_torn_write_by_the_copy_before() -> None:
    slot = Slot(1, 2, 3, 4, 5, 6, START, SESSION, OTHER, True, 1)
    slot.freeze()
    pages = bytearray(SLOT_BYTES)
    for finished in (7, 8):
        slot.finished = finished
        position, content = slot.encode()
        pages[position : position + len(content)] = content
    newest = decode_slot(bytes(pages))
    assert newest is not None
    assert (newest.finished, newest.handed, newest.reserved, newest.append_number, newest.counter) == (8, 4, 5, 6, 2)
    assert (newest.subscription_id, newest.topic_id, newest.start_id, newest.session, newest.boot) == (
        1,
        2,
        START,
        SESSION,
        OTHER,
    )
    assert (newest.is_clean, newest.mode) == (True, 1)
    assert position in {0, PAGE_BYTES}
    pages[position + 10] ^= 1
    before = decode_slot(bytes(pages))
    assert before is not None
    assert before.finished == 7
    pages[(position ^ PAGE_BYTES) + 10] ^= 1
    assert decode_slot(bytes(pages)) is None
    assert decode_slot(b"") is None


def test_an_identity_is_read_back_and_refused_where_it_is_not_ours() -> None:
    identity = trying(welcomed(Identity("c", confirmed={"00" * 16: 5}), SESSION, LOG), OTHER)
    assert decode_identity(encode_identity(identity), "d", "c") == identity
    assert (identity.log, identity.welcomed, identity.tried, identity.confirmed) == (LOG.hex(), SESSION.hex(), (OTHER.hex(),), {})
    assert Identity("c", confirmed={"00" * 16: 5}).confirmed_numbers() == {bytes(16): 5}
    for content, reason in (
        (b"{", "cannot be read"),
        (encode_identity(identity), "belongs to client"),
        (b'{"client": "x", "format": %d}' % (FORMAT + 1), "newer version"),
        (encode_identity(Identity("x")).replace(b'"log": ""', b'"log": "00"'), "checksum is wrong"),
    ):
        with pytest.raises(DirectoryUnusable, match=reason):
            decode_identity(content, "d", "x")


def test_sessions_that_were_welcomed_become_past_up_to_a_bound() -> None:
    identity = Identity("c")
    for number in range(PAST_SESSIONS_MAX + 3):
        identity = welcomed(identity, number.to_bytes(16, "big"), LOG)
    assert len(identity.past) == PAST_SESSIONS_MAX
    assert identity.past[-1] == (PAST_SESSIONS_MAX + 1).to_bytes(16, "big").hex()
    said = hello(trying(identity, OTHER), OTHER, (SESSION,), (START, 7), ephemeral=False, takeover=True)
    assert said.known == ((PAST_SESSIONS_MAX + 2).to_bytes(16, "big"),)
    assert (said.log_id, said.session, said.pending, said.takeover, said.ephemeral) == (LOG, OTHER, (SESSION,), True, False)
    assert (said.start_id, said.append_number, len(said.past)) == (START, 7, PAST_SESSIONS_MAX)
    assert hello(Identity("c"), OTHER, (), (NOBODY, 0), ephemeral=True, takeover=False).log_id == NOBODY


def test_whole_blocks_are_handed_out_quickly_only_where_nothing_else_is_due() -> None:
    machine = subscriber_at(0, reserved=7)
    for first in (0, 3, 6, 9):
        machine.on_block(source_at(first, first + 1), block_of(3), 3)
    handed = []
    while (block := machine.ready_block()) is not None:
        handed.append((block.first_offset, len(block), block.values[0]))
        machine.take_block(block)
        machine.given = block.end_offset
    assert [place[:2] for place in handed] == [(0, 3), (3, 3)], "the third lies beyond what is reserved"
    machine.reserve(RESERVE_AHEAD_MESSAGES, 10)
    assert machine.slot.reserved == 6 + 10 * RESERVE_AHEAD_MESSAGES
    assert machine.ready_block() is not None
    machine.doubt = Span(0, 1)
    assert machine.ready_block() is None


def test_single_messages_are_handed_out_quickly_only_as_far_as_is_reserved() -> None:
    machine = subscriber_at(0, reserved=3)
    machine.on_block(source_at(0), block_of(5), 5)
    assert machine.take_ready() is None, "the first of a block moves the whole bookmark"
    assert machine.has_message()
    machine.take()
    machine.given = 1
    handed = []
    while (message := machine.take_ready()) is not None:
        handed.append(message.offset)
        machine.given += 1
    assert handed == [1, 2], "after a power cut nobody would be told of the fourth"
    assert (machine.slot.handed, machine.slot.reserved) == (3, 3)


def test_a_damaged_block_is_never_handed_out_whole() -> None:
    broken = bytearray(block_of(3))
    broken[5] ^= 32
    machine = subscriber_at(0, reserved=100)
    machine.on_block(source_at(0), bytes(broken), 3)
    machine.on_block(source_at(3, 2), block_of(3), 3)
    assert machine.ready_block() is None
    assert machine.next_block() is None
    assert machine.damaged is not None
    assert machine.damaged[0] == Span(0, 3)

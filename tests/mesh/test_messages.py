# SPDX-License-Identifier: Apache-2.0
"""Vectors, floods, anti-entropy and the node that holds them: what is stored, told, asked for and given up."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.errors import InvariantViolated
from oncemq.mesh import packets as p
from oncemq.mesh.arrivals import EarlyMessages, weight_of
from oncemq.mesh.broadcast import Flood
from oncemq.mesh.effects import HandOver, Serve, TellGap
from oncemq.mesh.node import Life
from oncemq.mesh.packets import Had, Origin, Priority, Range, Reason
from oncemq.mesh.records import BaselineTaken, GivenUp, StartedNode, Taken
from oncemq.mesh.state import NodeState
from oncemq.mesh.vectors import Watermarks
from oncemq.wire.mesh_codec import decode, encode
from tests.mesh.helpers import BLOCK, ME, Alone, X, Y, sent, spread, tied

ORIGINS = [Origin(bytes([index]) * 16, b"s" * 16) for index in range(5)]
VECTORS = st.dictionaries(st.sampled_from(ORIGINS), st.integers(1, 9))


def marks(entries: dict[Origin, int]) -> Watermarks:
    had = Watermarks()
    for origin, number in entries.items():
        had.raise_to(origin, number)
    return had


# --- vectors --------------------------------------------------------------------------------------------


@given(VECTORS, VECTORS)
def test_digests_are_equal_exactly_when_vectors_are(one: dict[Origin, int], other: dict[Origin, int]) -> None:
    assert (marks(one).digest == marks(other).digest) == (one == other)


@given(VECTORS, st.randoms())
def test_a_digest_does_not_depend_on_the_way(target: dict[Origin, int], dice: random.Random) -> None:
    steps = [origin for origin, number in target.items() for _ in range(number)]
    dice.shuffle(steps)
    had = Watermarks()
    for origin in steps:
        had.raise_to(origin, had[origin] + 1)
    assert had.digest == marks(target).digest


@given(VECTORS, VECTORS, st.integers(1, 3))
def test_packets_of_a_vector_find_out_all_that_is_lacking(ours: dict[Origin, int], theirs: dict[Origin, int], cut: int) -> None:
    """However many packets it takes, and also for origins they have never heard of."""
    found = [had for packet in marks(theirs).packets(cut) for had in marks(ours).lacking(packet)]
    assert {had.origin: had.number for had in found} == {o: n for o, n in ours.items() if n > theirs.get(o, 0)}


def test_a_watermark_never_goes_back() -> None:
    had = marks({X: 5})
    with pytest.raises(InvariantViolated):
        had.raise_to(X, 4)


# --- state ----------------------------------------------------------------------------------------------


def test_a_number_out_of_order_is_a_bug_of_ours() -> None:
    state = NodeState()
    with pytest.raises(InvariantViolated):
        state.apply(Taken(X, 2, ("t",), (), "p", 1, BLOCK))


def test_state_is_nothing_but_its_records() -> None:
    records = [StartedNode(Origin(ME, b"1" * 16)), BaselineTaken((Had(X, 3),)), Taken(X, 4, ("t",), (), "p", 1), GivenUp(X, 5, 7)]
    one, other = NodeState(), NodeState()
    for record in records:
        one.apply(record)
        other.apply(record)
    assert one.had.digest == other.had.digest
    assert one.had[X] == 7 and one.given_up == 3


# --- floods ---------------------------------------------------------------------------------------------


def test_a_flood_tells_everybody_but_the_source() -> None:
    flood = Flood(1_000, 10)
    for name in ("a", "b", "c"):
        assert flood.up(0, name) == []
    assert flood.targets(0, (X, 1), "b") == ["a", "c"]
    assert flood.targets(0, (X, 2), "") == ["a", "b", "c"]


def test_what_a_dead_neighbour_was_told_is_handed_to_its_replacement() -> None:
    flood = Flood(1_000, 10)
    flood.up(0, "a")
    flood.targets(0, (X, 1), "")
    flood.targets(900, (X, 2), "")
    flood.down(1_500, "a", Reason.FAILED)
    assert flood.up(1_600, "b") == [(X, 2)], "and only what is recent"
    assert flood.up(3_000, "c") == []


def test_whoever_went_in_good_order_needs_no_replacement() -> None:
    flood = Flood(1_000, 10)
    flood.up(0, "a")
    flood.targets(0, (X, 1), "")
    flood.down(0, "a", Reason.EVICTED)
    assert flood.up(0, "b") == []


def test_what_is_held_is_bounded() -> None:
    flood = Flood(1_000, 10)
    for name in ("a", "b"):
        flood.up(0, name)
    for number in range(100):
        flood.targets(0, (X, number), "b" if number % 2 else "a")
    flood.down(0, "a", Reason.FAILED)
    flood.down(0, "b", Reason.FAILED)
    assert len(flood.up(0, "c")) == 10


def _never(_origin: Origin) -> bool:
    return False


def test_early_messages_are_bounded_by_count_and_bytes() -> None:
    early = EarlyMessages(2, 2 * (len(BLOCK) + weight_of(spread(2))), _never)
    assert early.add(spread(2), BLOCK, "a", Watermarks())
    assert early.add(spread(3), BLOCK, "a", Watermarks())
    assert not early.add(spread(4), BLOCK, "a", Watermarks())
    early.drop_through(X, 2)
    assert not early.add(spread(4), BLOCK * 2, "a", Watermarks())
    assert early.lowest() == [(X, 3, "a")]


def test_what_is_tied_comes_out_as_a_whole_or_not_at_all() -> None:
    early = EarlyMessages(10, 10_000, _never)
    assert early.add(tied(2), BLOCK, "a", Watermarks())
    assert early.add(spread(5), BLOCK, "b", Watermarks())
    assert early.pop_whole(X, 2) == []
    assert early.lowest() == [(X, 4, "a")], "the hole reaches to what is missing of the transaction"
    assert early.add(tied(3), BLOCK, "a", Watermarks())
    assert early.pop_whole(X, 2) == []
    assert early.add(spread(4), BLOCK, "a", Watermarks())
    assert early.lowest() == [(X, 2, "a")]
    assert [each.packet.number for each in early.pop_whole(X, 2)] == [2, 3, 4]
    assert [each.packet.number for each in early.pop_whole(X, 5)] == [5]
    assert (early.count, early.size_bytes) == (0, 0)


# --- a node ---------------------------------------------------------------------------------------------


def test_a_put_is_stored_and_told_to_all_neighbours() -> None:
    alone = Alone()
    alone.befriend("a", "b")
    speech = alone.do(alone.node.put(0, ("t", "u"), "billing", 1, BLOCK))
    assert [(to, packet.number, packet.topics) for to, packet in sent(speech, p.Spread)] == [
        ("a", 1, ("t", "u")),
        ("b", 1, ("t", "u")),
    ]
    assert alone.numbers(alone.node.own_origin) == [1]


def test_h37_every_start_is_an_origin_of_its_own() -> None:
    before = Alone()
    before.do(before.node.put(0, ("t",), "p", 1, BLOCK))
    after = Alone(records=tuple(before.records))
    assert after.node.own_origin == Origin(ME, b"2" * 16)
    assert after.records[0] == StartedNode(after.node.own_origin), "written before anything is said"


def test_h37_own_messages_of_former_starts_are_taken_back() -> None:
    former = Origin(ME, b"1" * 16)
    alone = Alone(records=(BaselineTaken(()), Taken(former, 1, ("t",), (), "p", 1)), contacts=("a",))
    alone.befriend("a")
    alone.hear("a", spread(2, former, is_copy=True), BLOCK)
    assert alone.numbers(former) == [2]


def test_a_message_is_stored_once_told_on_once_and_not_to_its_sender() -> None:
    alone = Alone()
    alone.befriend("a", "b", "c")
    speech = alone.hear("a", spread(1), BLOCK)
    assert [to for to, _ in sent(speech, p.Spread)] == ["b", "c"]
    assert sent(alone.hear("b", spread(1), BLOCK), p.Spread) == []
    assert alone.numbers(X) == [1]


def test_h39_what_comes_early_waits_outside_the_vector_and_is_told_on_once() -> None:
    alone = Alone()
    alone.befriend("a", "b")
    digest = alone.state.had.digest
    assert [to for to, _ in sent(alone.hear("a", spread(3), BLOCK), p.Spread)] == ["b"]
    assert sent(alone.hear("b", spread(3), BLOCK), p.Spread) == []
    assert alone.numbers(X) == [] and alone.state.had.digest == digest
    alone.hear("a", spread(2), BLOCK)
    alone.hear("a", spread(1), BLOCK)
    assert alone.numbers(X) == [1, 2, 3]


def test_what_does_not_fit_into_memory_is_not_told_on() -> None:
    """Or it would go round for ever between nodes that cannot remember it."""
    alone = Alone(early_messages=1)
    alone.befriend("a", "b")
    alone.hear("a", spread(3), BLOCK)
    assert sent(alone.hear("a", spread(4), BLOCK), p.Spread) == []


def test_p1_a_block_whose_bytes_are_wrong_is_not_taken() -> None:
    alone = Alone()
    alone.befriend("a", "b")
    assert sent(alone.hear("a", spread(1), BLOCK[:-1] + b"?"), p.Spread) == []
    assert alone.numbers(X) == []
    assert alone.node.counters["unsound"] == 1


def test_a_message_under_our_own_name_is_a_lie() -> None:
    alone = Alone()
    alone.befriend("a")
    alone.hear("a", spread(1, alone.node.own_origin), BLOCK)
    assert alone.numbers(alone.node.own_origin) == []


# --- the topic filter -----------------------------------------------------------------------------------


def test_a_node_hands_over_what_it_subscribes_to_and_relays_the_rest() -> None:
    alone = Alone()
    alone.befriend("a", "b")
    alone.do(alone.node.want("t"))
    speech = alone.hear("a", spread(1, topics=("t", "u")), BLOCK)
    assert [each for each in speech if isinstance(each, HandOver)] == [HandOver(X, 1, ("t",))]
    speech = alone.hear("a", spread(2, topics=("u",)), BLOCK)
    assert [each for each in speech if isinstance(each, HandOver)] == []
    assert len(sent(speech, p.Spread)) == 1
    alone.do(alone.node.unwant("t"))
    assert [each for each in alone.hear("a", spread(3), BLOCK) if isinstance(each, HandOver)] == []


# --- anti-entropy ---------------------------------------------------------------------------------------


def test_neighbours_in_step_exchange_digests_and_nothing_else() -> None:
    alone = Alone()
    alone.befriend("a")
    alone.hear("a", spread(1), BLOCK)
    for _ in range(10):
        alone.now_ms += 1_000
        assert sent(alone.beat("a", alone.state.had.digest), p.Vector) == []


def test_h45_a_digest_that_differs_is_given_a_grace_before_a_vector_is_sent() -> None:
    alone = Alone(digest_grace_ms=3_000, heartbeat_timeout_ms=60_000)
    alone.befriend("a")
    vectors = []
    for _ in range(8):
        vectors.append(len(sent(alone.beat("a", b"other!!!"), p.Vector)))
        alone.now_ms += 1_000
    assert vectors == [0, 0, 0, 1, 0, 0, 1, 0]


def test_a_neighbour_that_lags_is_left_to_ask_for_itself() -> None:
    alone = Alone(heartbeat_timeout_ms=60_000)
    alone.befriend("a", "b")
    lagging = alone.state.had.digest
    alone.hear("b", spread(1), BLOCK)
    for _ in range(10):
        assert sent(alone.beat("a", lagging), p.Vector) == []
        alone.now_ms += 1_000


def test_a_new_link_compares_at_once() -> None:
    alone = Alone()
    alone.befriend("a")
    assert [packet.is_urgent for _, packet in sent(alone.speech, p.Heartbeat)] == [True]
    assert len(sent(alone.beat("a", b"other!!!", is_urgent=True), p.Vector)) == 1


def test_a_vector_is_answered_with_what_the_other_lacks_and_asks_for_what_we_lack() -> None:
    alone = Alone()
    alone.befriend("a")
    alone.hear("a", spread(1, Y), BLOCK)
    speech = alone.hear("a", p.Vector((Had(X, 2),)))
    assert sent(speech, p.Vector) == [("a", p.Vector((Had(Y, 1),), is_answer=True))]
    assert sent(speech, p.Request) == [("a", p.Request((Range(X, 1, 2),)))]
    assert sent(alone.hear("a", p.Vector((Had(X, 2),), is_answer=True)), p.Request) == [], "it is on its way already"


def test_whoever_lacks_thousands_of_origins_is_answered_in_packets_that_can_be_read() -> None:
    alone = Alone()
    alone.befriend("a")
    for number in range(2_500):
        alone.state.had.raise_to(Origin(number.to_bytes(16, "big"), b"1" * 16), 1)
    answers = sent(alone.hear("a", p.Vector(())), p.Vector)
    heard = [entry for _, answer in answers for entry in decode([encode("m", answer)])[1].entries]
    assert heard == list(alone.state.had.entries())
    assert all(answer.is_answer for _, answer in answers), "none of them asks for an answer"


def test_long_absences_are_made_up_for_in_portions() -> None:
    alone = Alone(request_messages=2)
    alone.befriend("a")
    alone.hear("a", p.Vector((Had(X, 5),)))
    portions = []
    for number in range(1, 6):
        speech = alone.hear("a", spread(number, is_copy=True), BLOCK)
        portions += [packet.ranges[0] for _, packet in sent(speech, p.Request)]
    assert portions == [Range(X, 3, 4), Range(X, 5, 5)]


def test_a_request_without_an_answer_goes_to_somebody_else() -> None:
    alone = Alone(request_timeout_ms=2_000)
    alone.befriend("a", "b")
    alone.hear("a", p.Vector((Had(X, 1),)))
    alone.hear("b", p.Vector((Had(X, 1),)))
    assert sent(alone.tick(2_500), p.Request) == [("b", p.Request((Range(X, 1, 1),)))]


def test_a_copy_is_not_told_on_but_neighbours_are_urged_to_compare() -> None:
    alone = Alone()
    alone.befriend("a", "b")
    alone.now_ms = 1_000
    speech = alone.hear("a", spread(1, is_copy=True), BLOCK)
    assert sent(speech, p.Spread) == []
    assert {to for to, packet in sent(speech, p.Heartbeat) if packet.is_urgent} == {"a", "b"}


def test_a_request_is_served_from_the_store_and_the_rest_is_denied() -> None:
    alone = Alone()
    alone.befriend("a")
    for number in (1, 2, 3):
        alone.hear("a", spread(number), BLOCK)
    alone.shelf.low = 2
    speech = alone.hear("b", p.Request((Range(X, 1, 5),)))
    assert [each for each in speech if isinstance(each, Serve)] == [Serve("b", X, 2, 3, True)]
    assert sent(speech, p.Denied) == [
        ("b", p.Denied(Range(X, 1, 1), True, True)),
        ("b", p.Denied(Range(X, 4, 5), False, False)),
    ]


def test_what_its_own_node_has_no_more_is_denied_for_good() -> None:
    alone = Alone()
    alone.do(alone.node.put(0, ("t",), "p", 1, BLOCK))
    alone.shelf.low = 2
    speech = alone.hear("b", p.Request((Range(alone.node.own_origin, 1, 1),)))
    assert sent(speech, p.Denied) == [("b", p.Denied(Range(alone.node.own_origin, 1, 1), True, True))]


# --- holes ----------------------------------------------------------------------------------------------


def test_a_hole_is_asked_for_after_a_grace_first_of_who_sent_what_waits_behind_it() -> None:
    alone = Alone(hole_grace_ms=500)
    alone.befriend("a", "b")
    assert sent(alone.hear("b", spread(3), BLOCK), p.Request) == []
    alone.now_ms = 600
    assert sent(alone.hear("b", spread(4), BLOCK), p.Request) == [("b", p.Request((Range(X, 1, 2),)))]


def test_r25_a_hole_that_all_deny_is_given_up_after_the_retention_and_told() -> None:
    alone = Alone(retention_ms=10_000, heartbeat_timeout_ms=60_000)
    alone.befriend("a", "b")
    alone.hear("a", spread(3), BLOCK)
    given_up_ms, speech = 0, []
    while not given_up_ms and alone.now_ms < 30_000:
        speech = alone.tick(500)
        while requests := sent(speech, p.Request):
            to, packet = requests[0]
            if to in ("a", "b"):
                speech = alone.hear(to, p.Denied(packet.ranges[0], False, False))
            else:
                break
            if any(isinstance(each, TellGap) for each in speech):
                given_up_ms = alone.now_ms
    assert 10_000 <= given_up_ms <= 16_000
    assert [record for record in alone.records if isinstance(record, GivenUp)] == [GivenUp(X, 1, 2)]
    assert alone.numbers(X) == [3]
    alone.hear("a", spread(1), BLOCK)
    assert alone.numbers(X) == [3], "a later copy is dropped"


def test_r25_a_hole_is_given_up_at_once_if_its_own_node_says_so_and_no_neighbour_has_it() -> None:
    alone = Alone(retention_ms=10**9)
    alone.befriend("a")
    alone.hear("a", p.Vector((Had(X, 5),)))
    alone.hear("a", p.Denied(Range(X, 1, 2), True, True))
    alone.now_ms = 1_000
    alone.hear("a", spread(3, is_copy=True), BLOCK)
    assert [record for record in alone.records if isinstance(record, GivenUp)] == [GivenUp(X, 1, 2)]


# --- the life of a node ---------------------------------------------------------------------------------


def test_r27_a_joiner_takes_a_baseline_before_it_takes_messages_or_subscriptions() -> None:
    alone = Alone(contacts=("a",))
    assert alone.node.life is Life.JOINING
    alone.befriend("a")
    assert [to for to, _ in sent(alone.speech, p.AskBaseline)] == ["a"]
    assert not alone.node.may_subscribe
    with pytest.raises(InvariantViolated):
        alone.node.want("t")
    alone.hear("a", spread(8), BLOCK)
    alone.hear("a", p.Baseline((Had(X, 7),), 0, False))
    assert not alone.node.may_subscribe
    alone.hear("a", p.Baseline((Had(Y, 2),), 1, True))
    assert alone.node.life is Life.MEMBER and alone.node.may_subscribe
    alone.hear("a", spread(8), BLOCK)
    assert alone.numbers(X) == [8]
    assert alone.state.had[Y] == 2


def test_r27_a_baseline_is_given_by_members_only() -> None:
    joiner, member = Alone(contacts=("a",)), Alone()
    assert sent(joiner.hear("q", p.AskBaseline()), p.Baseline) == []
    assert sent(member.hear("q", p.AskBaseline()), p.Baseline) == [("q", p.Baseline((), 0, True))]


def test_a_node_that_returns_has_its_baseline() -> None:
    alone = Alone(contacts=("a",), records=(BaselineTaken((Had(X, 7),)),))
    assert alone.node.life is Life.MEMBER
    alone.befriend("a")
    alone.hear("a", p.Baseline((Had(X, 9),)))
    assert alone.state.had[X] == 7, "what it missed it gets, instead of skipping it"


def test_r27_a_clean_leave_waits_until_a_neighbour_has_all() -> None:
    alone = Alone()
    alone.befriend("a")
    alone.do(alone.node.put(0, ("t",), "p", 1, BLOCK))
    assert sent(alone.do(alone.node.leave(0)), p.Disconnect) == []
    speech = alone.beat("a", alone.state.had.digest, leaver=p.Leaver.RECEIVER)
    assert [(to, packet.reason) for to, packet in sent(speech, p.Disconnect)] == [("a", Reason.LEFT)]
    assert alone.node.life is Life.LEFT


def test_a_silent_neighbour_is_dropped_and_what_it_was_told_is_handed_on() -> None:
    alone = Alone(heartbeat_ms=1_000, heartbeat_timeout_ms=3_000)
    alone.befriend("a")
    alone.now_ms = 2_000
    alone.do(alone.node.put(alone.now_ms, ("t",), "p", 1, BLOCK))
    for _ in range(4):
        alone.tick(1_000)
    assert "a" not in alone.node.membership.active
    speech = alone.hear("b", p.Neighbour(7, Priority.LOW))
    assert [each for each in speech if isinstance(each, Serve)] == [Serve("b", alone.node.own_origin, 1, 1, False)]

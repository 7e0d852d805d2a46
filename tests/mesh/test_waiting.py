# SPDX-License-Identifier: Apache-2.0
"""What waits must not wait for ever: full memory, tied messages, what is gone or damaged elsewhere, leaving under load."""

from __future__ import annotations

from typing import Any

import pytest

from oncemq.mesh import packets as p
from oncemq.mesh.node import Life
from oncemq.mesh.packets import Had, Origin, Range
from oncemq.mesh.records import GivenUp
from tests.mesh.helpers import BLOCK, Alone, X, Y, sent, spread

SMALLER = Origin(b"a" * 16, b"1" * 16)


def part(number: int, origin: Origin, *, has_more: bool) -> p.Spread:
    return p.Spread(origin, number, ("t",), "p", 1, is_copy=True, has_more=has_more)


def given_up(alone: Alone) -> list[Any]:
    return [record for record in alone.records if isinstance(record, GivenUp)]


# --- memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", [X, Y], ids=["of the same origin", "of another origin"])
def test_memory_full_of_what_is_far_from_its_turn_does_not_keep_a_transaction_out(origin: Origin) -> None:
    alone = Alone(early_messages=3)
    alone.befriend("a")
    for number in (10, 11, 12):
        alone.hear("a", spread(number, X), BLOCK)
    for number in (1, 2, 3):
        alone.hear("a", part(number, origin, has_more=number < 3), BLOCK)
    assert alone.numbers(origin) == [1, 2, 3]
    assert alone.node.early.count <= 3


def test_of_two_transactions_that_do_not_both_fit_one_gets_through_and_then_the_other() -> None:
    alone = Alone(early_messages=3)
    alone.befriend("a")
    for _ in range(2):  # What was forgotten is asked for again.
        for number in (1, 2, 3):
            for origin in (X, SMALLER):
                alone.hear("a", part(number, origin, has_more=number < 3), BLOCK)
    assert alone.numbers(SMALLER) == alone.numbers(X) == [1, 2, 3]
    assert alone.node.early.count == 0


@pytest.mark.parametrize("came", [2, 3])
def test_what_came_of_a_transaction_whose_rest_nobody_has_gives_way_to_one_that_is_whole(came: int) -> None:
    """Its node died while it told it. It comes again once there is room, and is whole when that node returns."""
    alone = Alone(early_messages=4, heartbeat_timeout_ms=10**9)
    alone.befriend("a")
    for number in range(1, came + 1):
        alone.hear("a", part(number, SMALLER, has_more=True), BLOCK)
    _deny_the_rest(alone, came + 1)
    for _ in range(2):  # What was forgotten is asked for again, and takes nothing from what may be whole.
        for number in range(1, 5):
            alone.hear("a", part(number, X, has_more=number < 4), BLOCK)
            alone.hear("a", part(min(number, came), SMALLER, has_more=True), BLOCK)
    assert (alone.numbers(X), alone.numbers(SMALLER)) == ([1, 2, 3, 4], [])
    for number in range(1, 5):
        alone.hear("a", part(number, SMALLER, has_more=number < 4), BLOCK)
    assert alone.numbers(SMALLER) == [1, 2, 3, 4]


def _deny_the_rest(alone: Alone, first: int) -> None:
    """Answer for a while as a neighbour that has only what came."""
    for _ in range(4):
        for to, packet in sent(alone.tick(500), p.Request):
            assert packet.ranges[0].first == first
            alone.hear(to, p.Denied(Range(SMALLER, first, first), is_gone=False, is_final=False))


def test_what_is_not_in_line_takes_nobody_s_place() -> None:
    alone = Alone(early_messages=2)
    alone.befriend("a")
    for number in (5, 6, 7):
        alone.hear("a", spread(number), BLOCK)
    assert [(X, number) in alone.node.early for number in (5, 6, 7)] == [True, True, False]


# --- what is gone ---------------------------------------------------------------------------------------


def deny_all(alone: Alone, speech: list[Any], *, last: int, is_final: bool, neighbours: tuple[str, ...] = ("a",)) -> list[str]:
    """Answer requests of a node as its neighbours would that have nothing; return who else was asked."""
    others = []
    while requests := sent(speech, p.Request):
        speech = []
        for to, packet in requests:
            if to in neighbours:
                first = packet.ranges[0].first
                speech += alone.hear(to, p.Denied(Range(X, first, max(first, last)), True, is_final))
            else:
                others.append(to)
    return others


def test_r25_what_was_kept_long_enough_is_given_up_only_after_others_were_asked_too() -> None:
    """Nodes may keep messages for different times: the neighbour's time is over, another one may still have them."""
    alone = Alone(retention_ms=10**9, heartbeat_timeout_ms=10**9, active=1)
    alone.befriend("a")
    alone.node.membership.reserve.learn([f"other-{number}" for number in range(8)])
    asked = deny_all(alone, alone.hear("a", p.Vector((Had(X, 2_000),))), last=1_999, is_final=True)
    while not given_up(alone) and alone.now_ms < 60_000:
        asked += deny_all(alone, alone.tick(500), last=1_999, is_final=True)
    assert len(set(asked)) == 5, "different ones"
    assert given_up(alone) == [GivenUp(X, 1, 1_999)], "all of it at once, however much"


def test_who_gave_the_next_of_what_is_missing_is_asked_on_for_the_rest() -> None:
    """All neighbours joined later, and of the many in reserve one has it: it is not searched for again with every portion."""
    alone = Alone(retention_ms=10**9, heartbeat_timeout_ms=10**9, active=1, request_messages=2)
    alone.befriend("a")
    alone.node.membership.reserve.learn([f"other-{number}" for number in range(30)])
    deny_all(alone, alone.hear("a", p.Vector((Had(X, 9),))), last=9, is_final=False)
    giver = _next_asked(alone)
    for came in (spread(1, is_copy=True), spread(2, is_copy=True)), (part(3, X, has_more=True),), (part(4, X, has_more=False),):
        for packet in came:
            alone.hear(giver, packet, BLOCK)
        assert _next_asked(alone) == giver
    assert alone.numbers(X) == [1, 2, 3, 4]
    assert _next_asked(alone) != giver, "it gave nothing more"


def _next_asked(alone: Alone) -> str:
    """Who is asked next that is no neighbour."""
    asked: list[str] = []
    while not asked and alone.now_ms < 60_000:
        asked = deny_all(alone, alone.tick(500), last=9, is_final=False)
    return asked[0]


def test_of_what_is_gone_all_is_denied_at_once() -> None:
    alone = Alone()
    alone.befriend("a")
    for number in range(1, 9):
        alone.hear("a", spread(number), BLOCK)
    alone.shelf.low = 7
    denied = sent(alone.hear("b", p.Request((Range(X, 1, 3),))), p.Denied)
    assert denied == [("b", p.Denied(Range(X, 1, 6), is_gone=True, is_final=True))]
    alone.shelf.low = 99
    assert sent(alone.hear("b", p.Request((Range(X, 1, 3),))), p.Denied) == [("b", p.Denied(Range(X, 1, 8), True, True))]


def test_what_waits_here_is_not_given_up_though_everybody_else_has_let_it_go() -> None:
    alone = Alone(retention_ms=10**9, heartbeat_timeout_ms=10**9)
    alone.befriend("a")
    alone.hear("a", spread(3), BLOCK)
    deny_all(alone, alone.hear("a", p.Vector((Had(X, 9),))), last=9, is_final=True)
    deny_all(alone, alone.tick(1_000), last=9, is_final=True)
    assert given_up(alone)[:1] == [GivenUp(X, 1, 2)]
    assert alone.numbers(X) == [3]


def test_h38_a_copy_that_is_damaged_where_it_is_stored_counts_as_denied() -> None:
    alone = Alone(retention_ms=10_000, heartbeat_timeout_ms=10**9)
    alone.befriend("a")
    alone.hear("a", p.Vector((Had(X, 2),)))
    while not given_up(alone) and alone.now_ms < 60_000:
        for to, packet in sent(alone.tick(500), p.Request):
            damaged = BLOCK[:-1] + b"?"
            for number in range(packet.ranges[0].first, packet.ranges[0].last + 1):
                alone.hear(to, spread(number, is_copy=True), damaged if number == 1 else BLOCK)
        if not alone.numbers(X):
            alone.hear("a", spread(2, is_copy=True), BLOCK)
    assert given_up(alone) == [GivenUp(X, 1, 1)]
    assert alone.numbers(X) == [2]


def test_h38_what_is_damaged_inside_a_transaction_is_asked_for_now_and_then_and_given_up_alone() -> None:
    """Whoever has the beginning, and denies the rest, was asked for the beginning at once again, for ever."""
    alone = Alone(retention_ms=10_000, heartbeat_timeout_ms=10**9)
    alone.befriend("a")
    asked = _serve(alone, alone.hear("a", p.Vector((Had(X, 5),))), damaged=(3,), tied=3)
    while not given_up(alone) and alone.now_ms < 60_000:
        asked += _serve(alone, alone.tick(500), damaged=(3,), tied=3)
    assert given_up(alone) == [GivenUp(X, 3, 3)]
    assert alone.numbers(X) == [1, 2, 4, 5]
    assert len(asked) < 10
    assert asked[1] == Range(X, 3, 3), "what is here is not asked for again"


def test_what_its_node_told_while_it_died_is_given_up_with_the_rest_of_its_transaction() -> None:
    """Nobody has it whole, and half of it is delivered nowhere."""
    alone = Alone(retention_ms=10_000, heartbeat_timeout_ms=10**9)
    alone.befriend("a")
    for number in (1, 2):
        alone.hear("a", p.Spread(X, number, ("t",), "p", 1, is_copy=False, has_more=True), BLOCK)
    while not given_up(alone) and alone.now_ms < 60_000:
        deny_all(alone, alone.tick(500), last=3, is_final=False)
    assert (given_up(alone), alone.numbers(X)) == ([GivenUp(X, 1, 3)], [])


def test_nothing_is_given_up_while_somebody_in_reserve_gives_more_of_it() -> None:
    """The neighbours never had it, and memory is small: it takes longer than the retention to come, bit by bit."""
    alone = Alone(retention_ms=10_000, heartbeat_timeout_ms=10**9, active=1)
    alone.befriend("a")
    alone.node.membership.reserve.learn(["giver"])
    asked = deny_all(alone, alone.hear("a", p.Vector((Had(X, 9),))), last=9, is_final=False)
    for number in range(1, 9):
        while "giver" not in asked:
            asked += deny_all(alone, alone.tick(500), last=9, is_final=False)
        for _ in range(12):
            deny_all(alone, alone.tick(500), last=9, is_final=False)
        assert given_up(alone) == []
        alone.hear("giver", part(number, X, has_more=True), BLOCK)
        asked = []
    alone.hear("giver", part(9, X, has_more=False), BLOCK)
    assert alone.now_ms > 40_000
    assert alone.numbers(X) == list(range(1, 10))


@pytest.mark.parametrize(("answers", "asks"), [(True, 8), (False, 24)], ids=["once if it denies", "thrice if it is silent"])
def test_whoever_is_known_is_asked_before_anything_is_given_up(answers: bool, asks: int) -> None:
    """However old it is: nobody who was asked had it, and the next one may. An answer may be lost."""
    alone = Alone(retention_ms=1_000, heartbeat_timeout_ms=10**9, active=1)
    alone.befriend("a")
    others = [f"other-{number}" for number in range(8)]
    alone.node.membership.reserve.learn(others)
    asked = deny_all(alone, alone.hear("a", p.Vector((Had(X, 9),))), last=9, is_final=False)
    while not given_up(alone) and alone.now_ms < 120_000:
        news = deny_all(alone, alone.tick(500), last=9, is_final=False)
        for other in news if answers else ():
            alone.hear(other, p.Denied(Range(X, 1, 9), is_gone=False, is_final=False))
        asked += news
    assert given_up(alone) == [GivenUp(X, 1, 9)]
    assert sorted(asked) == sorted(others * (asks // 8))


def test_who_was_asked_and_is_a_neighbour_now_is_not_counted_for_one_who_was_not_asked() -> None:
    alone = Alone(retention_ms=10**9, heartbeat_timeout_ms=10**9, active=2)
    alone.befriend("a")
    alone.node.membership.reserve.learn(["b"])
    asked = deny_all(alone, alone.hear("a", p.Vector((Had(X, 9),))), last=9, is_final=False)
    while not asked:
        asked = deny_all(alone, alone.tick(500), last=9, is_final=False)
    alone.befriend("b")
    alone.node.membership.reserve.learn(["c"])
    while not given_up(alone) and alone.now_ms < 120_000:
        asked += deny_all(alone, alone.tick(500), last=9, is_final=True, neighbours=("a", "b"))
    assert (given_up(alone), asked) == ([GivenUp(X, 1, 9)], ["b", "c"])


def test_what_somebody_gives_and_there_is_no_room_for_is_not_lost() -> None:
    """Memory is full of a transaction that nobody has whole. Once that is given up, the other one comes."""
    alone = Alone(retention_ms=10_000, heartbeat_timeout_ms=10**9, active=1, early_messages=2)
    alone.befriend("a")
    alone.node.membership.reserve.learn(["giver"])
    for number in (1, 2):
        alone.hear("a", p.Spread(SMALLER, number, ("t",), "p", 1, is_copy=False, has_more=True), BLOCK)
    said = alone.hear("a", p.Vector((Had(X, 2),)))
    while not alone.numbers(X) and alone.now_ms < 120_000:
        for to, packet in sent(said, p.Request):
            wanted = packet.ranges[0]
            if (to, wanted.origin) == ("giver", X):
                for number in range(wanted.first, 3):
                    alone.hear(to, part(number, X, has_more=number < 2), BLOCK)
            else:
                alone.hear(to, p.Denied(wanted, is_gone=wanted.origin == X, is_final=False))
        said = alone.tick(500)
    assert (given_up(alone), alone.numbers(X)) == ([GivenUp(SMALLER, 1, 3)], [1, 2])


def test_what_is_known_to_be_missing_counts_as_seen() -> None:
    """A neighbour has nine, of which the fifth is damaged: this node is five behind until it gives it up."""
    alone = Alone(heartbeat_timeout_ms=10**9)
    alone.befriend("a")
    _serve(alone, alone.hear("a", p.Vector((Had(X, 9),))), damaged=(5,), tied=0)
    alone.hear("a", spread(3, Y), BLOCK)
    alone.tick(1_000)
    assert (alone.numbers(X), alone.node.seen) == ([1, 2, 3, 4], {X: 9, Y: 3})


@pytest.mark.parametrize("damaged", [(3, 4), (1, 5)], ids=["one behind the other", "apart"])
def test_h38_of_two_damaged_messages_the_second_does_not_hide_the_first(damaged: tuple[int, ...]) -> None:
    """Each is denied by itself; whoever remembered the last denial only asked for the first at once again, for ever."""
    alone = Alone(retention_ms=10_000, heartbeat_timeout_ms=10**9, early_messages=64)
    alone.befriend("a")
    asked = _serve(alone, alone.hear("a", p.Vector((Had(X, 9),))), damaged=damaged, tied=0)
    while alone.state.had[X] < 9 and alone.now_ms < 60_000:
        asked += _serve(alone, alone.tick(500), damaged=damaged, tied=0)
    lost = [number for record in given_up(alone) for number in range(record.first, record.last + 1)]
    assert lost == list(damaged)
    assert alone.numbers(X) == [number for number in range(1, 10) if number not in damaged]
    assert len(asked) < 20


def test_what_is_denied_further_on_ends_no_request_for_what_is_next() -> None:
    """What was asked for is on its way: asked for again at every such denial, it would come many times."""
    alone = Alone()
    alone.befriend("a")
    assert len(sent(alone.hear("a", p.Vector((Had(X, 9),))), p.Request)) == 1
    for number in (4, 6, 8):
        assert sent(alone.hear("a", p.Denied(Range(X, number, number), is_gone=True, is_final=False)), p.Request) == []
    asked = [each for number in (1, 2, 3) for each in sent(alone.hear("a", spread(number, is_copy=True), BLOCK), p.Request)]
    assert asked == [("a", p.Request((Range(X, 4, 9),)))], "then it goes on"


def _serve(alone: Alone, speech: list[Any], *, damaged: tuple[int, ...], tied: int) -> list[Range]:
    """Answer requests as a neighbour would at which some messages are damaged; the first ones are a transaction."""
    asked: list[Range] = []
    while (requests := sent(speech, p.Request)) and len(asked) < 100:
        speech = []
        for to, packet in requests:
            asked += packet.ranges
            for number in range(packet.ranges[0].first, packet.ranges[0].last + 1):
                denied = p.Denied(Range(X, number, number), is_gone=True, is_final=False)
                is_damaged = number in damaged
                speech += alone.hear(to, denied) if is_damaged else alone.hear(to, part(number, X, has_more=number < tied), BLOCK)
    return asked


# --- joining and leaving --------------------------------------------------------------------------------


def test_pieces_of_two_baselines_are_not_mixed() -> None:
    """A new origin moves all cuts: piece 0 of the new answer and piece 1 of the old one would skip what is between."""
    alone = Alone(contacts=("a",))
    alone.befriend("a")
    alone.hear("a", p.Baseline((Had(X, 1), Had(Y, 2)), 0, False))
    alone.hear("a", p.Baseline((Had(SMALLER, 1), Had(X, 1)), 0, False))
    alone.hear("b", p.Baseline((), 1, True))
    assert not alone.node.may_subscribe, "another node's piece"
    alone.hear("a", p.Baseline((), 2, True))
    assert not alone.node.may_subscribe, "a piece is missing"
    alone.hear("a", p.Baseline((Had(Y, 2),), 1, True))
    assert [alone.state.had[origin] for origin in (SMALLER, X, Y)] == [1, 1, 2]


def test_r27_a_leave_ends_though_messages_of_others_never_end() -> None:
    alone = Alone()
    alone.befriend("a")
    alone.do(alone.node.put(0, ("t",), "p", 1, BLOCK))
    before = alone.state.had.digest
    alone.hear("a", spread(1), BLOCK)
    alone.do(alone.node.leave(0))
    covered = alone.state.had.digest
    alone.hear("a", spread(2), BLOCK)
    alone.beat("a", before, leaver=p.Leaver.RECEIVER)
    assert alone.node.life is Life.LEAVING
    alone.beat("a", covered, leaver=p.Leaver.RECEIVER)
    assert alone.node.life is Life.LEFT, "it has what we had when we began, and what came since is not ours"


@pytest.mark.parametrize(
    "leaver", [p.Leaver.SENDER, p.Leaver.NOBODY], ids=["it leaves too", "it may leave before it hears of us"]
)
def test_r27_a_node_that_leaves_counts_only_on_who_knows_it_and_stays(leaver: p.Leaver) -> None:
    """Two who leave at once would both go with what only they have, each because the other has it."""
    alone = Alone()
    alone.befriend("a")
    alone.do(alone.node.put(0, ("t",), "p", 1, BLOCK))
    alone.beat("a", alone.state.had.digest, leaver=leaver)
    beats = sent(alone.do(alone.node.leave(0)), p.Heartbeat)
    assert [(to, packet.leaver) for to, packet in beats] == [("a", p.Leaver.SENDER)], "it is told at once"
    alone.beat("a", alone.state.had.digest, leaver=leaver)
    assert alone.node.life is Life.LEAVING
    assert alone.node.antientropy.is_covered_by_leavers() == (leaver is p.Leaver.SENDER)
    alone.befriend("b")
    alone.beat("b", alone.state.had.digest, leaver=p.Leaver.RECEIVER)
    assert alone.node.life is Life.LEFT


def test_r27_who_hears_that_a_neighbour_leaves_answers_at_once_that_it_knows() -> None:
    alone = Alone()
    alone.befriend("a", "b")
    answers = sent(alone.beat("a", bytes(8), leaver=p.Leaver.SENDER), p.Heartbeat)
    assert [(to, packet.leaver) for to, packet in answers] == [("a", p.Leaver.RECEIVER)]
    assert sent(alone.beat("a", bytes(8), leaver=p.Leaver.SENDER), p.Heartbeat) == [], "once; then with every heartbeat"
    beats = sent(alone.tick(2_000), p.Heartbeat)
    assert {to: packet.leaver for to, packet in beats} == {"a": p.Leaver.RECEIVER, "b": p.Leaver.NOBODY}


def test_r27_a_node_that_leaves_gives_no_baseline() -> None:
    """Whoever takes one has our vector without our messages, and would let us go with what nobody else has stored."""
    alone = Alone()
    alone.befriend("a")
    assert sent(alone.hear("a", p.AskBaseline()), p.Baseline) != []
    alone.do(alone.node.leave(0))
    assert sent(alone.hear("a", p.AskBaseline()), p.Baseline) == []

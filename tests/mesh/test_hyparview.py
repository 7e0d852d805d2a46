# SPDX-License-Identifier: Apache-2.0
"""Membership packet by packet: the paper's rules, and one test for each hole of its pseudo-code that practice has found.

Letters are those of the design notes: a to l.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from oncemq.mesh import packets as p
from oncemq.mesh.effects import Down, Up
from oncemq.mesh.hyparview import Membership
from oncemq.mesh.packets import Priority, Reason
from tests.mesh.helpers import SETTINGS, Wired, befriend, changed, machine, said

FIVE = ("a", "b", "c", "d", "e")


# --- joining --------------------------------------------------------------------------------------------


def test_a_joiner_asks_its_contact_and_is_taken_in() -> None:
    joiner, contact = machine("j", contacts=("c",)), machine("c")
    [(to, join)] = said(joiner)
    assert (to, type(join)) == ("c", p.Join)
    contact.hear(0, "j", join)
    assert list(contact.active) == ["j"]
    [(to, reply)] = said(contact)
    assert (to, reply) == ("j", p.NeighbourReply(join.link, True))
    joiner.hear(0, "c", reply)
    assert changed(joiner) == [Up("c")]
    assert joiner.active["c"].number == contact.active["j"].number == join.link


def test_a_full_contact_drops_somebody_and_sends_it_to_the_joiner() -> None:
    """No hole opens: the edge is split, and both ends have a link to the joiner (differs from the paper)."""
    contact = machine("k")
    numbers = befriend(contact, *FIVE)
    contact.hear(0, "j", p.Join(7))
    [dropped] = [change.address for change in changed(contact) if isinstance(change, Down)]
    sends = dict(said(contact))
    assert sends[dropped] == p.Disconnect(numbers[dropped], Reason.EVICTED, "j", ())
    victim = machine(dropped)
    befriend(victim, "x", "y", "z", "w")
    victim.hear(0, "k", p.Join(numbers[dropped]))
    victim.sends.clear()
    victim.hear(0, "k", sends[dropped])
    assert [(to, packet.priority) for to, packet in said(victim) if isinstance(packet, p.Neighbour)] == [("j", Priority.LOW)]
    assert "k" in victim.passive


def test_a_join_starts_walks_of_full_length() -> None:
    contact = machine("c", walks=2)
    befriend(contact, "a", "b", "d")
    contact.hear(0, "j", p.Join(7))
    walks = [(to, packet) for to, packet in said(contact) if isinstance(packet, p.ForwardJoin)]
    assert len(walks) == 2
    assert {packet for _, packet in walks} == {p.ForwardJoin("j", 6)}
    assert {to for to, _ in walks} <= {"a", "b", "d"}


def test_a_walk_goes_on_to_anybody_but_its_sender_and_its_joiner() -> None:
    node = machine()
    befriend(node, "a", "b", "j")
    node.hear(0, "a", p.ForwardJoin("j", 4))
    assert said(node) == [("b", p.ForwardJoin("j", 3))]
    assert "j" not in node.passive


def test_a_walk_leaves_the_joiner_in_the_passive_view_at_its_turn() -> None:
    node = machine()
    befriend(node, "a", "b")
    node.hear(0, "a", p.ForwardJoin("j", 3))
    assert "j" in node.passive


@pytest.mark.parametrize(("neighbours", "ttl"), [(("a", "b", "c"), 0), (("a",), 5), ((), 5)])
def test_a_e_f_a_walk_ends_by_asking_the_joiner_who_is_no_neighbour_before_it_answers(neighbours, ttl) -> None:
    """At its end, with one neighbour or none (the sender may have gone), and where nobody is left to forward to."""
    node = machine()
    befriend(node, *neighbours)
    node.hear(0, "a", p.ForwardJoin("j", ttl))
    [(to, ask)] = said(node)
    assert (to, ask.priority) == ("j", Priority.LOW)
    assert "j" not in node.active
    node.hear(0, "j", p.NeighbourReply(ask.link, True))
    assert "j" in node.active


def test_a_full_node_at_the_end_of_a_walk_brings_one_of_its_own_along() -> None:
    node = machine()
    befriend(node, *FIVE)
    node.hear(0, "a", p.ForwardJoin("j", 0))
    [(_, ask)] = said(node)
    assert ask.priority is Priority.WALK
    assert len(node.active) == 5, "nobody goes before the joiner has answered"
    node.hear(0, "j", p.NeighbourReply(ask.link, True))
    [(dropped, disconnect)] = said(node)
    assert disconnect.hint == "j"
    assert "j" in node.active and dropped not in node.active


def test_a_joiner_with_one_place_left_refuses_a_walk_that_needs_two() -> None:
    node = machine()
    befriend(node, "a", "b", "c", "d")
    node.hear(0, "w", p.Neighbour(7, Priority.WALK))
    assert said(node)[-1][1].is_accepted is False
    node.lost(0, "a")
    node.sends.clear()


def test_b_a_join_is_answered_also_to_one_we_still_count_as_a_neighbour() -> None:
    node = machine()
    befriend(node, "a", "b")
    node.hear(0, "a", p.Join(77))
    assert changed(node) == [Down("a", Reason.RESTARTED), Up("a")]
    assert ("a", p.NeighbourReply(77, True)) in said(node)
    assert node.active["a"].number == 77


# --- asking and being asked -----------------------------------------------------------------------------


def test_low_is_accepted_only_with_a_free_place() -> None:
    node = machine()
    befriend(node, *FIVE)
    node.hear(0, "q", p.Neighbour(7, Priority.LOW))
    assert said(node)[-1][1].is_accepted is False
    assert "q" in node.passive


def test_high_is_always_accepted() -> None:
    node = machine()
    befriend(node, *FIVE)
    node.hear(0, "q", p.Neighbour(7, Priority.HIGH))
    assert "q" in node.active
    assert len(node.active) == 5


def test_c_an_id_is_in_one_view_only() -> None:
    node = machine()
    node.hear(0, "x", p.ShuffleReply(("q",)))
    assert "q" in node.passive or "q" in node._asked
    node.hear(0, "q", p.Neighbour(7, Priority.LOW))
    node.hear(0, "q", p.Neighbour(7, Priority.LOW))
    if "q" in node.active:
        assert "q" not in node.passive


def test_an_ask_names_our_neighbours_and_whoever_shares_one_refuses() -> None:
    node = machine()
    befriend(node, "a", "b")
    node.hear(0, "q", p.Neighbour(7, Priority.LOW, ("b", "x")))
    assert said(node)[-1][1].is_accepted is False
    node.hear(0, "r", p.Neighbour(8, Priority.LOW, ("x", "y")))
    assert said(node)[-1][1].is_accepted is True


def test_a_refusal_names_the_one_who_asked_before() -> None:
    node = machine()
    befriend(node, *FIVE)
    node.hear(0, "q", p.Neighbour(7, Priority.LOW))
    node.hear(0, "r", p.Neighbour(8, Priority.LOW))
    assert [packet.hint for _, packet in said(node)] == ["", "q"]


def test_i_refusals_and_goodbyes_carry_ids_that_help() -> None:
    node = machine()
    befriend(node, *FIVE)
    node.hear(0, "x", p.ShuffleReply(("p1", "p2", "p3")))
    node.hear(0, "q", p.Neighbour(7, Priority.LOW))
    assert set(said(node)[-1][1].sample) <= {"p1", "p2", "p3"}
    node.hear(0, "j", p.Join(9))
    [goodbye] = [packet for _, packet in said(node) if isinstance(packet, p.Disconnect)]
    assert goodbye.sample


def test_a_hint_is_asked_next_and_does_not_end_the_search() -> None:
    node = machine()
    node.hear(0, "x", p.ShuffleReply(("p1", "p2", "p3", "p4", "p5", "p6", "p7")))
    first = said(node)
    ask = first[0][1]
    node.hear(0, first[0][0], p.NeighbourReply(ask.link, False, "h"))
    assert said(node)[0][0] == "h"
    assert node.search.paused_until_ms is None


def test_both_ask_at_once_and_one_link_comes_of_it() -> None:
    one, other = machine("a"), machine("b")
    one.hear(0, "x", p.ShuffleReply(("b",)))
    other.hear(0, "x", p.ShuffleReply(("a",)))
    wired = Wired(one, other)
    wired.settle()
    assert wired.links() == {("a", "b"), ("b", "a")}
    assert one.active["b"].number == other.active["a"].number
    assert not one._asked and not other._asked


def test_an_acceptance_that_comes_too_late_is_given_back() -> None:
    """Places are counted with those asked, but a slow ask does not hold its place for ever."""
    node = machine()
    node.hear(0, "x", p.ShuffleReply(("p1",)))
    [(to, ask)] = said(node)
    node.tick(150)
    befriend(node, "a", "b", "c", "d", now_ms=150)
    node.hear(150, "h", p.Neighbour(5, Priority.HIGH))
    node.sends.clear()
    node.hear(160, to, p.NeighbourReply(ask.link, True))
    assert said(node) == [(to, p.Disconnect(ask.link, Reason.SURPLUS))]
    assert len(node.active) == 5


def test_whoever_is_asked_by_one_name_and_answers_by_another_is_a_neighbour_by_its_own() -> None:
    """`--join` names a number, and the node there calls itself by the name of its machine."""
    node = machine(contacts=("10.0.0.5",))
    [(to, ask)] = said(node)
    assert to == "10.0.0.5"
    node.hear(5, "host", p.NeighbourReply(ask.link, True))
    assert list(node.active) == ["host"] and not node._asked
    node.hear(5, "host", p.Heartbeat(ask.link, bytes(8)))
    for now_ms in range(1_000, 20_000, 1_000):
        node.tick(now_ms)
    assert said(node) == [], "no goodbye, and the other name is not asked beside it"


def test_a_reply_to_an_ask_of_somebody_else_changes_nothing_for_a_neighbour() -> None:
    node = machine(contacts=("c",))
    [(_, ask)] = said(node)
    numbers = befriend(node, "a")
    node.hear(5, "a", p.NeighbourReply(ask.link, True))
    assert node.active["a"].number == numbers["a"] and "c" in node._asked


def test_an_acceptance_nobody_waits_for_is_given_back() -> None:
    node = machine()
    node.hear(0, "q", p.NeighbourReply(99, True))
    assert said(node) == [("q", p.Disconnect(99, Reason.ONE_SIDED))]


# --- goodbyes -------------------------------------------------------------------------------------------


def test_d_a_goodbye_starts_the_search_for_a_replacement() -> None:
    node = machine()
    numbers = befriend(node, *FIVE)
    node.hear(0, "x", p.ShuffleReply(("p1",)))
    node.hear(0, "a", p.Disconnect(numbers["a"], Reason.EVICTED))
    asked = [to for to, packet in said(node) if isinstance(packet, p.Neighbour)]
    assert asked == ["p1"], "whoever dropped us is not asked at once"
    assert "a" in node.passive


def test_g_whoever_leaves_is_kept_nowhere() -> None:
    node = machine()
    numbers = befriend(node, "a", "b")
    node.hear(0, "x", p.ShuffleReply(("a",)))
    node.hear(0, "a", p.Disconnect(numbers["a"], Reason.LEFT))
    assert changed(node)[-1] == Down("a", Reason.LEFT)
    assert "a" not in node.passive and "a" not in node.reserve.cold
    node.hear(0, "x", p.ShuffleReply(("a",)))
    assert "a" not in node.passive, "nor believed from others for a while"


def test_leaving_names_each_neighbour_another_one() -> None:
    node = machine()
    befriend(node, "a", "b", "c")
    node.leave()
    hints = {to: packet.hint for to, packet in said(node)}
    assert hints == {"a": "b", "b": "c", "c": "a"}


def test_h_a_late_goodbye_of_an_older_link_is_ignored() -> None:
    node = machine()
    numbers = befriend(node, "a")
    node.hear(0, "a", p.Join(77))
    changed(node)
    node.hear(0, "a", p.Disconnect(numbers["a"], Reason.EVICTED))
    assert changed(node) == []
    assert "a" in node.active


def test_k_whoever_counts_us_as_a_neighbour_and_is_none_is_told() -> None:
    node = machine()
    numbers = befriend(node, "a")
    node.hear(0, "q", p.Heartbeat(5, bytes(8)))
    assert said(node) == [("q", p.Disconnect(5, Reason.ONE_SIDED))]
    node.hear(0, "a", p.Heartbeat(numbers["a"], bytes(8)))
    assert said(node) == []


def test_k_a_heartbeat_on_a_link_we_asked_for_is_its_lost_answer() -> None:
    node = machine()
    node.hear(0, "x", p.ShuffleReply(("q",)))
    [(_, ask)] = said(node)
    node.hear(10, "q", p.Heartbeat(ask.link, bytes(8)))
    assert changed(node) == [Up("q")]


def test_an_ask_without_an_answer_is_taken_back_so_that_the_other_side_is_not_left_alone() -> None:
    node = machine()
    node.hear(0, "x", p.ShuffleReply(("q",)))
    [(_, ask)] = said(node)
    node.tick(1_000)
    assert ("q", p.Disconnect(ask.link, Reason.ONE_SIDED)) in said(node)
    assert not node._asked and "q" not in node.passive


# --- failures -------------------------------------------------------------------------------------------


def test_a_dead_neighbour_is_replaced_out_of_the_passive_view() -> None:
    node = machine()
    befriend(node, *FIVE)
    node.hear(0, "x", p.ShuffleReply(("p1",)))
    node.lost(0, "a")
    assert changed(node) == [Down("a", Reason.FAILED)]
    [(to, ask)] = said(node)
    assert (to, ask.priority) == ("p1", Priority.REPLACE)


def test_a_full_node_that_is_asked_in_a_crash_wave_sees_whether_its_own_neighbours_live() -> None:
    """Only those who know of a death have places; everybody else believes to be full, and would refuse for ever."""
    node = machine()
    befriend(node, *FIVE)
    node.hear(5_000, "q", p.Neighbour(7, Priority.REPLACE))
    assert {to for to, packet in said(node) if isinstance(packet, p.Probe)} == set(FIVE)
    node.hear(5_500, "r", p.Neighbour(8, Priority.REPLACE))
    assert [to for to, packet in said(node) if isinstance(packet, p.Probe)] == [], "at most once per time-out"
    node.lost(5_600, "a")
    assert said(node)[0][0] in ("q", "r"), "whoever asked gets the place"


def test_whoever_is_nearly_alone_and_refused_by_all_in_a_crash_wave_offers_a_swap_at_once() -> None:
    node = machine(refusals_max=2)
    befriend(node, *FIVE)
    node.hear(0, "x", p.ShuffleReply(("p1", "p2", "p3")))
    for dead in ("a", "b", "c", "d"):
        node.lost(0, dead)
    priorities = []
    for _ in range(8):
        for to, ask in said(node):
            if isinstance(ask, p.Neighbour):
                priorities.append(ask.priority)
                node.hear(0, to, p.NeighbourReply(ask.link, False))
    assert priorities[0] is Priority.REPLACE and priorities[-1] is Priority.HIGH
    assert node.search.paused_until_ms is not None


def test_a_node_without_neighbours_asks_with_high_priority() -> None:
    node = machine()
    befriend(node, "a")
    node.hear(0, "x", p.ShuffleReply(("p1", "p2")))
    node.sends.clear()
    node._asked.clear()
    node.lost(0, "a")
    assert {packet.priority for _, packet in said(node)} == {Priority.HIGH}


def test_a_dead_candidate_is_forgotten_and_the_next_one_asked() -> None:
    node = machine()
    befriend(node, "a", "b", "c", "d")
    node.hear(0, "x", p.ShuffleReply(("p1", "p2")))
    [(first, _)] = said(node)
    node.lost(0, first)
    [(second, _)] = said(node)
    assert {first, second} == {"p1", "p2"}
    assert first not in node.passive


def test_ids_proven_dead_are_replaced_out_of_the_cold_list() -> None:
    node = machine(passive=2)
    befriend(node, *FIVE)
    node.hear(0, "x", p.ShuffleReply(("p1", "p2", "p3", "p4")))
    gone = node.passive.ids[0]
    node.lost(0, gone)
    assert len(node.passive) == 2
    assert gone not in node.passive


def test_an_id_proven_dead_is_not_believed_until_it_speaks() -> None:
    node = machine()
    befriend(node, *FIVE)
    node.lost(0, "q")
    node.hear(0, "x", p.ShuffleReply(("q",)))
    assert "q" not in node.passive
    node.hear(0, "q", p.Neighbour(7, Priority.LOW))
    assert "q" in node.passive


def test_dials_are_staggered_and_bounded() -> None:
    """Thirty dead ids one after the other, a second each, would be half a minute."""
    node = machine(dials_max=5)
    befriend(node, "a", "b", "c", "d")
    node.hear(0, "x", p.ShuffleReply(tuple(f"p{i}" for i in range(20))))
    assert len(said(node)) == 1
    for passed_ms in (100, 200, 300, 400):
        assert node.due_ms <= passed_ms
        node.tick(passed_ms)
    assert len(node._asked) == 5


def test_l_a_search_that_everybody_refuses_pauses_longer_each_time() -> None:
    node = machine(refusals_max=3)
    befriend(node, "a", "b", "c", "d")
    node.hear(0, "x", p.ShuffleReply(tuple(f"p{i}" for i in range(20))))
    now_ms, pauses, asked = 0, [], 0
    for _ in range(5):
        while node.search.paused_until_ms is None:
            for to, packet in said(node):
                asked += 1
                node.hear(now_ms, to, p.NeighbourReply(packet.link, False))
        pauses.append(node.search.paused_until_ms - now_ms)
        now_ms = node.search.paused_until_ms
        node.tick(now_ms)
    assert asked == 15
    assert all(later > 1.2 * earlier for earlier, later in pairwise(pauses))


def test_the_third_search_does_not_mind_triangles() -> None:
    """A small mesh has no room for five neighbours each without them."""
    node = machine(refusals_max=1)
    befriend(node, "a", "b", "c", "d")
    node.hear(0, "x", p.ShuffleReply(("q",)))
    named = []
    now_ms = 0
    for _ in range(3):
        [(to, ask)] = said(node)
        named.append(ask.active)
        node.hear(now_ms, to, p.NeighbourReply(ask.link, False))
        now_ms = node.search.paused_until_ms
        node.tick(now_ms)
    assert named == [("a", "b", "c", "d"), ("a", "b", "c", "d"), ()]


def test_an_isolated_node_that_knows_nobody_joins_again() -> None:
    node = machine("j", contacts=("c",))
    node.sends.clear()
    node.lost(0, "c")
    assert said(node)[-1][0] == "c"
    node.lost(0, "c")
    due_ms = node.due_ms
    node.tick(due_ms)
    assert [type(packet) for to, packet in said(node) if to == "c"] == [p.Join]


def test_a_slow_neighbour_is_expelled_and_kept_in_reserve() -> None:
    node = machine()
    numbers = befriend(node, *FIVE)
    node.expel(0, "a")
    assert changed(node) == [Down("a", Reason.SLOW)]
    assert said(node)[0] == ("a", p.Disconnect(numbers["a"], Reason.SLOW))
    assert "a" in node.passive


def test_a_stall_of_our_own_is_no_silence_of_theirs() -> None:
    node = machine(heartbeat_timeout_ms=5_000)
    befriend(node, "a")
    assert node.silent(5_001) == ["a"]
    assert node.silent(60_000, stall_ms=58_000) == []


# --- shuffles -------------------------------------------------------------------------------------------


def test_a_shuffle_names_us_three_neighbours_and_four_others() -> None:
    node = machine(shuffle_ms=5_000)
    befriend(node, *FIVE)
    node.hear(0, "x", p.ShuffleReply(tuple(f"p{i}" for i in range(10))))
    node.tick(10_000)
    [(to, shuffle)] = said(node)
    assert to in FIVE and to not in shuffle.ids
    assert shuffle.ttl == 5 and shuffle.origin == "m" and len(shuffle.ids) == 8
    assert len(set(shuffle.ids) & set(FIVE)) == 3


def test_a_shuffle_is_decremented_first_and_goes_on() -> None:
    node = machine()
    befriend(node, "a", "b")
    node.hear(0, "a", p.Shuffle("o", ("o", "q"), 2))
    assert said(node) == [("b", p.Shuffle("o", ("o", "q"), 1))]


@pytest.mark.parametrize(("neighbours", "ttl"), [(("a", "b"), 1), (("a",), 5), (("a", "o"), 5)])
def test_f_a_shuffle_ends_with_an_answer_to_its_origin_never_in_silence(neighbours, ttl) -> None:
    node = machine()
    befriend(node, *neighbours)
    node.hear(0, "a", p.ShuffleReply(("p1",)))
    node.sends.clear()
    node.hear(0, "a", p.Shuffle("o", ("q", "r"), ttl))
    replies = [(to, packet) for to, packet in said(node) if isinstance(packet, p.ShuffleReply)]
    assert [to for to, _ in replies] == ["o"]
    assert {"q", "r"} <= set(node.passive.ids) | set(node._asked)


def test_a_full_passive_view_gives_first_what_the_other_side_got() -> None:
    node = machine(passive=4)
    befriend(node, *FIVE)
    node.hear(0, "a", p.ShuffleReply(("p1", "p2", "p3", "p4")))
    node.hear(0, "a", p.Shuffle("o", ("q", "r"), 1))
    [answer] = [packet.ids for _, packet in said(node) if isinstance(packet, p.ShuffleReply)]
    assert set(node.passive.ids) == {"q", "r", "p1", "p2", "p3", "p4"} - set(answer)


def test_j_a_shuffle_reply_fills_free_places() -> None:
    node = machine()
    befriend(node, "a")
    node.hear(0, "a", p.ShuffleReply(("q",)))
    assert [to for to, packet in said(node) if isinstance(packet, p.Neighbour)] == ["q"]


# --- healing --------------------------------------------------------------------------------------------


def test_nodes_that_started_at_once_and_missed_each_other_try_again_without_contacts() -> None:
    """Each found the other dead, and would not believe in it for a minute."""
    node = Membership("m", SETTINGS, random.Random(0), remembered=("b",))
    node.join(0)
    assert [to for to, _ in said(node)] == ["b"]
    node.lost(10, "b")
    assert said(node) == []
    asked = []
    for now_ms in range(10, 20_000, 10):
        if now_ms >= node.due_ms:
            node.tick(now_ms)
        for to, packet in said(node):
            asked.append((now_ms, to, packet.priority))
            node.lost(now_ms, to)
    assert 3 <= len(asked) <= 6, "less and less often"
    assert {(to, priority) for _, to, priority in asked} == {("b", Priority.HIGH)}


def test_somebody_of_another_island_is_bridged_two_links_for_two() -> None:
    node = machine(heal_ms=1_000)  # Without heartbeats every name is settled.
    numbers = befriend(node, *FIVE)
    node.hear(0, "x", p.ShuffleReply(("far",)))
    node.tick(1_300)
    assert [(to, type(packet)) for to, packet in said(node)] == [("far", p.Probe)]
    node.hear(1_310, "far", p.ProbeReply(node.island.number + 1, ()))
    [(to, ask)] = said(node)
    assert (to, ask.priority) == ("far", Priority.BRIDGE)
    node.hear(1_320, "far", p.NeighbourReply(ask.link, True))
    assert said(node) == [(ask.partner, p.Disconnect(numbers[ask.partner], Reason.EVICTED, "", ("far",)))]
    assert "far" in node.active and ask.partner not in node.active


def test_the_far_end_of_a_bridge_sends_whom_it_drops_to_the_partner() -> None:
    node = machine()
    befriend(node, *FIVE)
    node.hear(0, "near", p.Neighbour(7, Priority.BRIDGE, ("u", "v"), "u"))
    [goodbye] = [packet for _, packet in said(node) if isinstance(packet, p.Disconnect)]
    assert goodbye.hint == "u"


def test_nobody_of_our_own_island_is_bridged() -> None:
    node = machine(heal_ms=1_000)
    befriend(node, *FIVE)
    node.hear(0, "x", p.ShuffleReply(("far",)))
    node.tick(1_300)
    node.sends.clear()
    node.hear(1_310, "far", p.ProbeReply(node.island.number, ()))
    assert said(node) == []


# --- small and odd --------------------------------------------------------------------------------------


def test_a_node_never_links_to_itself() -> None:
    node = machine("m", contacts=("m",))
    assert said(node) == []
    node.hear(0, "m", p.Join(5))
    node.hear(0, "x", p.ShuffleReply(("m", "m")))
    node.hear(0, "x", p.ForwardJoin("m", 0))
    assert said(node) == [] and not node.active and "m" not in node.passive


def test_two_nodes_that_join_through_each_other_are_one_mesh() -> None:
    wired = Wired(machine("a", contacts=("b",)), machine("b", contacts=("a",)))
    wired.settle()
    wired.tick(2_000)
    assert wired.links() == {("a", "b"), ("b", "a")}


@pytest.mark.parametrize("count", [3, 6, 7, 12, 21])
def test_small_meshes_become_quiet_symmetric_and_as_full_as_parity_allows(count: int) -> None:
    wired = Wired(machine("n0", seed=0))
    for index in range(1, count):
        wired.nodes[f"n{index}"] = machine(f"n{index}", contacts=("n0",), seed=index, shuffle_ms=5_000)
        wired.settle()
    for _ in range(40):
        wired.tick(6_000)
    assert wired.is_symmetric()
    missing = sum(min(5, count - 1) - len(node.active) for node in wired.nodes.values())
    assert missing <= 2

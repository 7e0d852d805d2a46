# SPDX-License-Identifier: Apache-2.0
"""The short form of `oncemq sim --bugs`: known mistakes planted in the product, each with seeds whose judges see it at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain

import pytest

from oncemq.sim.bugs import all_bugs, planted
from oncemq.sim.hunt import NEEDS, hunt
from oncemq.sim.worker import outcome_of

CAUGHT_BY: dict[str, tuple[int, ...]] = {
    "finishes_a_message_at_hand_over": (217, 160),
    "begins_what_is_in_doubt_too_late": (4, 7, 8),
    "resumes_at_the_brokers_cursor": (106, 100),
    "resubscribes_at_the_end": (217, 4),
    "retries_with_a_new_number": (469, 9),
    "retires_the_outbox_when_sending": (298, 3),
    "retires_too_much": (372, 8),
    "keeps_nothing_in_the_outbox": (180,),
    "does_not_sync_the_reservation": (100,),
    "does_not_sync_a_slots_name": (217, 149),
    "writes_the_slot_after_the_hand_over": (100,),
    "hands_out_a_block_from_its_beginning": (106, 302),
    "takes_any_block_that_arrives": (454, 489),
    "gives_up_a_put_that_was_refused_for_now": (39, 465, 73),
    "answers_before_the_sync": (217, 101, 128),
    "does_not_sync": (451, 264, 160),
    "ignores_a_failed_sync": (466, 69, 56),
    "serves_the_page_cache_after_a_restart": (466, 160, 264),
    "forgets_streams_in_snapshots": (466, 407, 107),
    "leaves_unheard_topics_out_of_snapshots": (0, 23, 26),
    "de_duplicates_by_a_window": (469, 147, 9),
    "repeats_another_outcome": (160, 489, 469),
    "trims_what_one_subscriber_still_needs": (489, 306, 253),
    "trims_what_is_kept_for_ever": (3, 5, 6),
    "acknowledges_what_was_only_prefetched": (57, 303),
    "accepts_every_hello": (175, 68, 168),
    "serves_fenced_sessions": (53, 69, 106),
    "honours_late_commands": (633, 88),
    "cuts_snapshots_ahead_of_the_sync": (217, 128, 101),
    "drops_the_tail_after_a_restart": (35, 264),
    "keeps_less_than_was_asked_for": (1, 16, 26),
    "takes_more_than_its_limit_says": (0, 2, 17),
    "lets_puts_take_the_reserve": (225, 281, 369),
    "wakes_gets_before_the_sync": (264, 106, 310),
    "restarts_offsets_from_a_stale_counter": (160,),
    "moves_cursors_back": (217, 469, 306),
    "believes_a_bookmark_of_any_start": (747, 829),
    "trims_by_unsynced_cursors": (217, 7),
    "takes_a_gap_in_a_stream": (106, 9),
    "takes_over_in_silence": (838, 595, 809),
    "takes_a_directory_that_does_not_know_the_session": (890,),
    "renumbers_for_a_broker_that_went_back": (540, 562),
    "answers_a_lost_state_by_taking_over": (767,),
    "answers_an_older_batch_as_a_repeat": (454, 492, 281),
    "commits_a_batch_again": (489,),
    "forgets_the_last_batch_in_snapshots": (492,),
    "names_parts_by_attempt": (452, 466, 443),
    "shows_parts_before_their_commit": (128, 143, 35),
    "moves_blocks_to_other_offsets": (652, 744),
    "reads_from_segments_that_are_gone": (652, 744),
    "forgets_a_moved_block_in_the_index": (652, 744),
    "unlinks_a_segment_after_its_first_slice": (38, 67, 21),
    "unlinks_what_is_staged": (1, 5),
    "tells_the_applied_end_in_heartbeats": (0, 2),
    "publishes_before_the_sync": (0, 2),
    "does_not_notice_a_gap_in_what_it_hears": (3, 4),
    "does_not_notice_a_lost_tail": (3, 5),
    "takes_a_live_block_behind_a_gap": (4, 5),
    "does_not_slice_what_overlaps": (2,),
    "begins_streams_that_an_old_copy_names": (1907,),
    "passes_over_a_gap_in_silence": (4, 3),
    "runs_a_commit_without_an_answer_again": (12, 59),
    "moves_the_row_after_the_commit": (176, 441),
    "reads_on_although_the_row_was_rolled_back": (249, 443),
    "finishes_what_was_left_by_an_exception": (443, 267),
    "does_not_count_what_is_given_again": (443, 267),
    "cuts_off_what_is_young": (71, 107, 130),
    "acknowledges_what_it_hands_out": (5, 7, 23),
    "forgets_cursors_in_snapshots": (4, 7, 8),
    "doubts_what_was_finished": (76, 71, 149),
    "moves_everybodys_cursor": (9, 5, 7),
    "waits_for_the_slowest": (66, 22, 44),
    "takes_the_topic_along": (55, 121),
    "forgets_what_it_refused": (8,),
    "forgets_a_transaction_it_refused": (8,),
    "repeats_a_refusal_as_stored": (112,),
    "commits_what_nobody_hears": (8,),
    "refuses_in_silence": (8,),
    "pauses_longer_after_every_loss": (3, 7, 10),
    "waits_for_an_answer_that_cannot_come": (0, 1, 2),
    "counts_as_sent_what_was_lost": (0, 1, 2),
    "forgets_who_waits_when_somebody_acknowledges": (0, 1, 3),
    "starves_who_comes_back_until_the_next_put": (24, 0, 5),
    "trusts_a_silent_channel": (17, 19, 34),
}
"""Small worlds in which a bug shows itself. Whoever changes the product's timing changes the worlds: then others are tried."""

SLOW = {
    "tells_damage_to_the_end_of_the_topic": "few worlds have good blocks behind it; tests/holes/test_unreadable.py has them",
    "acknowledges_what_it_heard": "needs a listener that dies between hearing a message and handing it out",
    "believes_a_welcome_that_shows_less": "needs a publisher that starts anew between a restore and its next put",
    "takes_the_whole_records_of_a_torn_group": "no world is told of half a group; crash images see it: tests/sim/test_images.py",
    "does_not_sync_what_is_pending": "worlds seldom cut the power behind a promise; crash images do: tests/sim/test_images.py",
    "takes_torn_groups": "worlds seldom tear a write in the middle of a block; crash images do: tests/sim/test_images.py",
    "believes_a_topics_name": "needs a Get that is under way while its topic is deleted and made again",
}
"""Bugs that only `oncemq sim --bugs` hunts, and why not here."""

MORE = range(500, 540)
"""Tried in turn if a bug's own seeds no longer see it."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What a broken broker says in a simulated world is nobody's news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_planted_bug_is_seen_by_the_judges(name: str) -> None:
    for seed in chain(CAUGHT_BY[name], MORE):
        with planted(name):
            if outcome_of(seed).violations:
                return
    pytest.fail(f"nobody sees {name} any more: `oncemq sim --bugs` tells whether a longer hunt does")


def test_the_worlds_of_the_planted_bugs_are_sound_without_them() -> None:
    seeds = sorted({seeds[0] for seeds in CAUGHT_BY.values()})

    assert [(seed, outcome_of(seed).violations) for seed in seeds] == [(seed, {}) for seed in seeds]


def test_every_planted_bug_is_hunted_here_or_says_why_not() -> None:
    assert sorted([*CAUGHT_BY, *SLOW]) == sorted(all_bugs())


def test_a_hunt_takes_crash_images_along_and_looks_where_a_bug_can_be() -> None:
    assert hunt("takes_torn_groups").law == "crash-image"
    assert set(NEEDS) <= set(all_bugs())

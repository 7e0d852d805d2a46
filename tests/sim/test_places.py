# SPDX-License-Identifier: Apache-2.0
"""The judge of cursors: what it must see, and what it must not call a crime."""

from __future__ import annotations

from oncemq.sim.checkers import check
from oncemq.sim.cursors import CursorWatch
from oncemq.sim.forks import BROKER, Event
from oncemq.sim.history import History
from oncemq.sim.world import World


def event(process: str, operation: str, **fields: str | int | bool | None) -> Event:
    return {"t": 0, "process": process, "life": 1, "kind": "ok", "op": operation} | fields


def of_lane(operation: str, **fields: str | int | bool | None) -> Event:
    return event("sub", operation, subscription="sub", topic_id="1", **fields)


def cursor(at: int, subscription_id: str = "7", start: int = 0, subscription: str = "sub") -> Event:
    seen: Event = {"topic_id": "1", "subscription_id": subscription_id, "start": start, "cursor": at}
    return event(BROKER, "cursor", subscription=subscription, **seen)


def handed(*offsets: int) -> list[Event]:
    return [of_lane("deliver", offset=offset, message=f"m{offset}") for offset in offsets]


def done(end: int) -> Event:
    return of_lane("done", end=end)


def in_doubt(first: int, end: int) -> Event:
    return of_lane("in_doubt", first=first, end=end, bound=100)


KILLED = event("harness", "crash", name="sub", point="anywhere", power_cut=False)
UNPLUGGED = event("harness", "crash", name="sub", point="anywhere", power_cut=True)


def set_back(name: str, copied: int) -> Event:
    return event("harness", "set_back", name=name, copied=copied)


def witnesses(*events: Event) -> list[str]:
    return check(list(events)).get("cursors", [])


# --- the broker is never ahead ------------------------------------------------------------------------


def test_a_cursor_may_come_as_far_as_the_application_had_got_when_it_called() -> None:
    assert witnesses(cursor(0), *handed(0, 1), done(2), cursor(2)) == []
    assert witnesses(cursor(0), *handed(0, 1), done(2), *handed(2), cursor(1), cursor(2)) == []


def test_what_the_application_holds_is_not_the_brokers_to_count() -> None:
    told = witnesses(cursor(0), *handed(0, 1), done(2), *handed(2), cursor(3))
    assert told == ["the cursor of ('sub', '1') is at 3, and no more than 2 is finished"]


def test_a_subscription_begins_where_it_was_told_to_and_no_further() -> None:
    assert witnesses(cursor(40, start=40)) == []
    assert witnesses(cursor(41, start=40)) != []


def test_another_subscription_of_the_same_name_begins_anew() -> None:
    assert witnesses(cursor(0), done(30), cursor(30), cursor(10, "8", start=10)) == []
    assert witnesses(cursor(0), done(30), cursor(30), cursor(20, "8", start=10)) != []


def test_what_another_one_has_finished_is_not_ones_own() -> None:
    assert witnesses(cursor(0), cursor(0, "8", subscription="other"), done(5), cursor(5, "8", subscription="other")) != []


def test_a_block_may_be_acknowledged_from_its_end_on_and_a_gap_as_soon_as_it_is_told() -> None:
    assert witnesses(cursor(0), of_lane("leaving", offset=3), cursor(4)) == []
    assert witnesses(cursor(0), of_lane("leaving", offset=3), cursor(5)) != []
    assert witnesses(cursor(0), of_lane("missed", first=0, end=9), cursor(9)) == []
    assert witnesses(cursor(0), of_lane("missed", first=0, end=9), cursor(10)) != []


def test_what_is_in_doubt_is_not_acknowledged_until_it_is_skipped() -> None:
    begun = [cursor(0), *handed(0), done(1), *handed(1, 2), KILLED, in_doubt(1, 3)]
    assert witnesses(*begun, cursor(1)) == []
    assert witnesses(*begun, cursor(3)) != []
    assert witnesses(*begun, done(3), of_lane("skip", first=1, end=3), cursor(3)) == []


def test_who_repeats_what_is_in_doubt_has_to_finish_it_again() -> None:
    begun = [cursor(0), *handed(0), done(1), *handed(1, 2), done(3), KILLED, in_doubt(1, 3), of_lane("repeat", first=1, end=3)]
    assert witnesses(*begun, cursor(3)) != []
    assert witnesses(*begun, *handed(1, 2), done(3), cursor(3)) == []


# --- neither goes back --------------------------------------------------------------------------------


def test_a_cursor_never_goes_back() -> None:
    told = witnesses(cursor(0), *handed(0, 1, 2), done(3), cursor(3), event("harness", "crash", name=BROKER), cursor(1))
    assert told == ["the cursor of ('sub', '1') went back from 3 to 1"]


def test_a_broker_that_was_set_back_has_the_cursors_that_its_copy_had() -> None:
    begun = [cursor(0), done(3), cursor(3), done(5), cursor(5)]
    assert witnesses(*begun, set_back(BROKER, 4), cursor(3)) == []
    assert witnesses(*begun, set_back(BROKER, 4), cursor(2)) == ["the cursor of ('sub', '1') went back from 3 to 2"]
    assert witnesses(*begun, set_back(BROKER, 4), cursor(6)) != []


def test_a_broker_that_was_set_back_may_know_an_older_subscription_of_that_name() -> None:
    begun = [cursor(0), done(3), cursor(3), cursor(3, "8", start=3), done(9), cursor(9, "8", start=3)]
    assert witnesses(*begun, set_back(BROKER, 3), cursor(3)) == []
    assert witnesses(*begun, cursor(3)) == ["the cursor of ('sub', '1') is at 3, and no more than 0 is finished"]


def test_what_a_later_call_has_finished_is_never_in_doubt_again() -> None:
    begun = [cursor(0), *handed(0), done(1), *handed(1, 2), done(3), *handed(3)]
    assert witnesses(*begun, KILLED, in_doubt(3, 4)) == []
    assert witnesses(*begun, KILLED, in_doubt(2, 4)) == ["('sub', '1') went back to 2, and up to 3 was finished"]


def test_a_call_that_nobody_saw_the_end_of_may_have_finished_nothing() -> None:
    begun = [cursor(0), *handed(0), done(1), *handed(1, 2), done(3)]
    assert witnesses(*begun, KILLED, in_doubt(1, 3)) == []
    assert witnesses(*begun, KILLED, in_doubt(0, 3)) != []


def test_who_died_twice_in_a_call_may_have_finished_nothing_both_times() -> None:
    back = [done(2), KILLED, in_doubt(1, 2)]

    assert witnesses(cursor(0), *handed(0), done(1), *handed(1), *back, *back) == []
    assert witnesses(cursor(0), *handed(0), done(1), *handed(1), *back, *back[:2], in_doubt(0, 2)) != []


def test_who_lost_his_power_may_have_forgotten_but_not_what_the_broker_was_told() -> None:
    begun = [cursor(0), *handed(0), done(1), *handed(1, 2), done(3), cursor(1), *handed(3)]
    assert witnesses(*begun, UNPLUGGED, in_doubt(1, 9)) == []
    assert witnesses(*begun, UNPLUGGED, in_doubt(0, 9)) == ["('sub', '1') is at 0 again, and its cursor is at 1"]


def test_a_directory_that_was_set_back_has_forgotten_what_came_since() -> None:
    begun = [cursor(0), *handed(0), done(1), *handed(1), done(2), *handed(2)]
    assert witnesses(*begun, set_back("sub", 1), in_doubt(0, 9)) == []
    assert witnesses(*begun, set_back("other", 1), in_doubt(0, 9)) != []


def test_a_history_in_which_nobody_looked_at_cursors_is_not_judged() -> None:
    assert witnesses(*handed(0), done(1), *handed(1), KILLED, in_doubt(0, 1)) == []


# --- who looks ----------------------------------------------------------------------------------------


def test_every_cursor_is_written_down_when_it_is_new_and_when_it_has_moved() -> None:
    world, history = World(1), History()
    world.on_turn = CursorWatch(history, world.scheduler).look
    world.start_broker()
    client = world.run(lambda: world.connect("reader"))
    world.run(lambda: client.subscribe("orders", "earliest"))
    world.run(lambda: client.put_many("orders", [b"1", b"2", b"3"]))
    world.run(lambda: [client.get("orders", timeout=1) for _ in range(3)])
    world.run(client.close)
    world.restart_broker(power_cut=True)

    assert len({entry["topic_id"] for entry in history.events}) == 1
    assert [(entry["op"], entry["subscription"], entry["start"], entry["cursor"]) for entry in history.events] == [
        ("cursor", "reader", 0, 0),
        ("cursor", "reader", 0, 2),
    ]

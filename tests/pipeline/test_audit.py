# SPDX-License-Identifier: Apache-2.0
"""The audit agrees with the judges of the simulator, on sound worlds, on seeded bugs and on histories bent at random.

All histories are runs of one audit: Spark pays per question, not per history. Every seventh is written as Parquet.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncemq.cli import main
from oncemq.cli.exits import Exit
from oncemq.errors import UsageError
from oncemq.sim.checkers import check
from oncemq.sim.history import Event
from tests.pipeline.histories import booked_and_damaged, damaged_and_trimmed, gap_told_again, relaying, simulated, written
from tests.sim.test_bugs import CAUGHT_BY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("spark")]

SOUND = 4
"""Worlds without a bug, that are then bent."""
EVENTS_MAX = 1_000
IN_MEMORY_ONLY = {
    "effects",
    "receptions",
    "relayed",
    "told-too-much",
    "in-doubt-place",
    "kept-too-little",
    "cursors",
    "reconnect",
    "progress",
}
"""Laws that Spark does not judge; docs/archive.md says so."""
ENDLESS = {"takes_a_gap_in_a_stream"}
"""With this bug the first world in which it shows does not come to an end."""
UNBROKEN = {"skipped-unput", "told-too-early"}
"""Laws that none of these histories breaks: that they are broken alike is not shown here."""
BENT_PER_WORLD = 150
ALIKE_MAX = 4
"""How many histories are kept of those that break the same laws."""


# --- bending ------------------------------------------------------------------------------------------


def _removed(events: list[Event], at: int, _: random.Random) -> None:
    del events[at]


def _repeated(events: list[Event], at: int, _: random.Random) -> None:
    events.insert(at, dict(events[at]))


def _moved(events: list[Event], at: int, dice: random.Random) -> None:
    """Something happens at another time than it did."""
    event = events.pop(at)
    to = dice.randrange(len(events))
    events.insert(to, {**event, "t": events[to]["t"]})


def _shifted(events: list[Event], at: int, dice: random.Random) -> None:
    for name in ("offset", "first", "end", "start", "low", "number", "bound", "life"):
        if isinstance(events[at].get(name), int):
            events[at] = {**events[at], name: max(0, int(events[at][name] or 0) + dice.choice([-2, -1, 1, 2]))}
            return


def _told_otherwise(events: list[Event], at: int, dice: random.Random) -> None:
    _repeated(events, at, dice)
    _shifted(events, at, dice)


def _renamed(events: list[Event], at: int, dice: random.Random) -> None:
    if "message" in events[at]:
        events[at] = {**events[at], "message": dice.choice([event["message"] for event in events if event.get("message")])}


def _made_up(events: list[Event], at: int, dice: random.Random) -> None:
    """Somebody is told something that never was."""
    lane = dice.choice([event for event in events if event["op"] == "deliver"])
    common = {name: lane[name] for name in ("process", "life", "subscription", "topic_id")} | {"t": events[at]["t"], "kind": "ok"}
    first = dice.randrange(20)
    lies: list[Event] = [
        {"op": "told", "name": "Diverged"},
        {"op": "gap", "first": first, "end": first + 1},
        {"op": "in_doubt", "first": first, "end": first + 3, "bound": dice.randrange(5)},
    ]
    events.insert(at, common | dice.choice(lies))


def _failed(events: list[Event], at: int, _: random.Random) -> None:
    if events[at]["op"] == "put":
        events[at] = {**events[at], "kind": "fail"}


Way = Callable[[list[Event], int, random.Random], None]
WAYS: tuple[Way, ...] = (_removed, _repeated, _moved, _shifted, _told_otherwise, _renamed, _failed, _made_up)
OPERATIONS = "put log deliver kept end drained in_doubt welcome subscribe gap skip repeat effect relaying booking"
TARGETS = frozenset(OPERATIONS.split())


def bent(events: list[Event], seed: int) -> list[Event]:
    """A history with one to three lies in it, on any kind of event with even odds."""
    dice, lies = random.Random(seed), list(events)
    for _ in range(dice.randrange(1, 4)):
        operation = dice.choice(sorted({str(event["op"]) for event in lies if event["op"] in TARGETS}))
        at = dice.choice([place for place, event in enumerate(lies) if event["op"] == operation])
        dice.choice(WAYS)(lies, at, dice)
    return lies


# --- many runs at once --------------------------------------------------------------------------------


def _is_judged(events: list[Event]) -> bool:
    """Runs in which a directory was set back are left to the judges in memory; docs/archive.md says so."""
    return len(events) <= EVENTS_MAX and all(event["op"] != "set_back" for event in events)


@pytest.fixture(scope="module")
def worlds() -> dict[str, list[Event]]:
    """Histories by name: the small worlds in which planted bugs show themselves, with their bug and without, and bent ones."""
    buggy = {f"{name}-{seeds[0]}": simulated(seeds[0], name) for name, seeds in CAUGHT_BY.items() if name not in ENDLESS}
    seeds = sorted({seeds[0] for seeds in CAUGHT_BY.values()})
    sound = {f"seed-{seed}": simulated(seed) for seed in seeds}
    chosen = dict(list({name: events for name, events in sound.items() if _is_judged(events)}.items())[:SOUND])
    chosen |= {"relaying": relaying()}
    lies = {f"bent-{name}-{number}": bent(chosen[name], number) for name in chosen for number in range(BENT_PER_WORLD)}
    rare = {"gap-told-again": gap_told_again(), "damaged-and-trimmed": damaged_and_trimmed()}
    rare |= {"booked": booked_and_damaged(), "booked-from-another-topic": booked_and_damaged("2")}
    return chosen | rare | _telling({name: events for name, events in (buggy | lies).items() if _is_judged(events)})


def _telling(histories: dict[str, list[Event]]) -> dict[str, list[Event]]:
    """A few of each kind: those that break the same laws are alike."""
    kinds: Counter[frozenset[str]] = Counter()
    kept = {}
    for name, events in histories.items():
        kind = frozenset(check(events))
        kinds[kind] += 1
        if kinds[kind] <= ALIKE_MAX:
            kept[name] = events
    return kept


@pytest.fixture(scope="module")
def broken(spark: SparkSession, worlds: dict[str, list[Event]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The laws each history breaks, as Spark sees it."""
    from pyspark.sql import DataFrame

    from oncemq.pipeline.audit import LAWS, counted
    from oncemq.pipeline.audit_events import audit_session, read_histories
    from oncemq.pipeline.audit_laws import places, places_exactly

    place = tmp_path_factory.mktemp("runs")
    for number, (name, events) in enumerate(worlds.items()):
        written(place / name, events, as_table=number % 7 == 0)
    histories = read_histories(audit_session(spark, [str(place)]), [str(place)])
    laws_exactly = [places_exactly if law is places else law for law in LAWS]
    findings = reduce(DataFrame.unionByName, (counted(law(histories.events)) for law in laws_exactly))
    laws: dict[str, set[str]] = defaultdict(set)
    for row in findings.where("violations > 0").select("run", "law").distinct().collect():
        laws[Path(histories.runs[row["run"]]).name].add(row["law"])
    histories.close()
    return laws


@pytest.mark.timeout(600)
def test_spark_and_the_judges_break_the_same_laws_of_every_history(
    broken: dict[str, set[str]], worlds: dict[str, list[Event]]
) -> None:
    assert check(worlds["gap-told-again"]) == check(worlds["damaged-and-trimmed"]) == check(worlds["booked"]) == {}
    assert set(check(worlds["booked-from-another-topic"])) == {"lost-accept"}
    by_the_judges = {name: set(check(events)) - IN_MEMORY_ONLY for name, events in worlds.items()}
    assert {name: broken.get(name, set()) for name in worlds} == by_the_judges


def test_the_histories_break_every_law_there_is(worlds: dict[str, list[Event]]) -> None:
    """Otherwise the test above would prove less than it says."""
    from oncemq.sim.checkers import JUDGES

    broken = set().union(*(check(events) for events in worlds.values()))
    assert broken - IN_MEMORY_ONLY >= set(JUDGES) - IN_MEMORY_ONLY - UNBROKEN


# --- one run ------------------------------------------------------------------------------------------


def _delivered(offset: int, message: str) -> Event:
    place: Event = {"subscription": "s", "topic_id": "1", "offset": offset, "message": message}
    return {"t": 50 + offset, "process": "s", "life": 1, "kind": "ok", "op": "deliver", **place}


def _small() -> Iterator[Event]:
    yield {"t": 1, "process": "s", "life": 1, "kind": "ok", "op": "subscribe", "subscription": "s", "topic_id": "1", "start": 0}
    for offset in range(4):
        put: Event = {"t": 10, "process": "p", "life": 1, "op": "put", "message": f"m{offset}"}
        yield {**put, "kind": "invoke"}
        yield {**put, "t": 20, "kind": "ok", "topic_id": "1", "offset": offset, "stored": True, "duplicate": False}
    for offset in (0, 1, 1, 3):  # 1 twice, 2 never
        yield {**_delivered(offset, f"m{offset}"), "t": 60}
    yield {"t": 90, "process": "s", "life": 1, "kind": "ok", "op": "drained", "subscription": "s", "topic_id": "1", "end": 5}


@pytest.mark.usefixtures("spark")
def test_the_command_says_what_became_of_each_message(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Run in this process: the session is there already."""
    run, page = written(tmp_path / "run", _small()), tmp_path / "report" / "report.html"
    capfd.readouterr()

    code = main.run(["pipeline", "audit", str(run), "--report", str(page.parent), "--json"])

    told = json.loads(capfd.readouterr().out)
    assert (code, told["violations"], told["put"], told["delivered"]) == (Exit.FAILED, 3, 4, 4)
    guilty = {one["verdict"]: (one["subscription"], one["violations"]) for one in told["verdicts"] if one["violations"]}
    assert guilty == {"duplicated": ("s", 1), "lost": ("s", 2)}  # 2 was jumped over, 4 was never seen
    assert [one["witness"] for one in told["verdicts"] if one["violations"] == 1] == ["s got 1 of topic 1 where 2 was next"]
    assert [(one["messages"], one["max_ms"]) for one in told["latency"]] == [(3, 0.05)]  # Of 1 only the first time counts.
    assert page.read_text().count("data:image/png;base64,") == 2


def test_files_without_an_event_are_no_proof(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A wrong file must not look like a run in which every law held."""
    (tmp_path / "notes.jsonl").write_text("hello\nworld\n")
    assert main.run(["pipeline", "audit", str(tmp_path)]) == Exit.USAGE
    assert "no event in these files" in capfd.readouterr().err


def test_a_history_that_is_not_there_is_told(tmp_path: Path) -> None:
    from oncemq.pipeline.audit_events import files_of

    with pytest.raises(UsageError, match="there is no history"):
        files_of([str(tmp_path / "none")])
    with pytest.raises(UsageError, match=r"has no \.jsonl"):
        files_of([str(tmp_path)])

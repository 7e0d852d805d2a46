# SPDX-License-Identifier: Apache-2.0
"""Judges over a history, independent of the product: each returns witnesses of what must never happen.

May not: import the product, or excuse anything. Names are Jepsen's where it has one.
The idea: values are unique and offsets give the order, so every law is a dictionary or one sort.
A witness is a sentence with the ids in it; an empty list is a verdict of innocence for this history only.
Next: docs/history.md for the events, tests/sim/ for the seeded bugs each judge must see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from oncemq.sim.bounds import in_doubt_place, kept_too_little, told_too_much
from oncemq.sim.evidence import SEEN, Evidence, Place, place_of
from oncemq.sim.forks import BROKER, Event
from oncemq.sim.once import effects, receptions, relayed
from oncemq.sim.places import cursors
from oncemq.sim.progress import progress, reconnect


def check(events: list[Event]) -> dict[str, list[str]]:
    """Run every judge; return the witnesses by law, laws that hold left out."""
    evidence = Evidence(events)
    found = {law: list(judge(evidence)) for law, judge in JUDGES.items()}
    return {law: witnesses for law, witnesses in found.items() if witnesses}


def lost_write(evidence: Evidence) -> Iterator[str]:
    """S1: a confirmed message is where its receipt says, in the log at the end.

    A topic that is gone without anybody having left it was lost with all that was confirmed there.
    """
    log, low, forks = evidence.log, evidence.lows, evidence.forks
    for index, event in evidence.steps("put"):
        if event["kind"] != "ok" or not event["stored"] or event["offset"] is None:
            continue
        place = place_of(event)
        is_trimmed = place[1] < low[place[0]] if place[0] in low else not evidence.has_gone(place[0])
        is_there = is_trimmed or log.get(place) == event["message"]
        if not is_there and not forks.may_be_gone(str(event["process"]), index, str(event["message"])):
            yield f"{event['message']} was confirmed at {place}, the log has {log.get(place)}"


def lost_accept(evidence: Evidence) -> Iterator[str]:
    """S2: what a client kept for a topic (confirmed, or told pending) is stored there exactly once at the end, if it was wanted.

    A limit may take what nobody has read yet, of its own topic and no other; whoever missed it is told a gap, which `deliveries`
    checks. Where it is not said which topic a message was kept for, it may have been any.

    A takeover says that the old directory is given up, with what was kept in it alone; and so does a new directory.
    What was stored and then told as damaged may be trimmed unread, like everything that was told.
    """
    shown = (*SEEN, "effect")  # A row of a database was handed out to its application, whatever became of the message since.
    stored = {(str(e.get("topic_id")), str(e["message"])) for operation in shown for e in evidence.of(operation)}
    stored |= _damaged(evidence)
    anywhere, fleeting = {message for _, message in stored}, evidence.fleeting
    given_up = {str(event["name"]) for event in evidence.of("taken_over")}
    anew = {str(event["process"]): index for index, event in evidence.steps("anew")}
    forks = evidence.forks
    for index, event in evidence.steps("kept"):
        process, message = str(event["process"]), str(event["message"])
        topic = event.get("topic_id")
        is_excused = (message in anywhere or fleeting) if topic is None else ((topic, message) in stored or topic in fleeting)
        if is_excused or process in given_up or index < anew.get(process, 0):
            continue
        if not forks.may_be_dropped(process, index, message):
            yield f"{message} was kept in an outbox{f' for topic {topic}' if topic else ''} and is nowhere"


def _damaged(evidence: Evidence) -> set[tuple[str, str]]:
    """Messages whose receipts name a place that some subscription was told is damaged."""
    spans = [(str(event["topic_id"]), int(event["first"] or 0), int(event["end"] or 0)) for event in evidence.of("damaged")]
    told = {(topic, offset) for topic, first, end in spans for offset in range(first, end)}
    puts = (event for event in evidence.of("put") if event["kind"] == "ok" and event["offset"] is not None)
    damaged = (event for event in puts if (str(event["topic_id"]), event["offset"]) in told)
    return {(str(event["topic_id"]), str(event["message"])) for event in damaged} if told else set()


def duplicate(evidence: Evidence) -> Iterator[str]:
    """S3: no message twice in a topic, no (stream, number) twice anywhere."""
    places: dict[tuple[object, object], Place] = {}
    numbers: dict[tuple[object, object], Place] = {}
    for event in evidence.of("log"):
        place = place_of(event)
        other = places.setdefault((event["topic_id"], event["message"]), place)
        if other != place:
            yield f"{event['message']} is stored at {other} and at {place}"
        other = numbers.setdefault((event["stream"], event["number"]), place)
        if other != place:
            yield f"put number {event['number']} of stream {event['stream']} is stored at {other} and at {place}"


def unexpected(evidence: Evidence) -> Iterator[str]:
    """S4: nothing is stored or delivered that nobody put, or that was refused for good."""
    invoked = evidence.invoked
    failed = {str(event["message"]) for event in evidence.of("put", "fail")}
    for operation in SEEN:
        for event in evidence.of(operation):
            if event["message"] not in invoked or event["message"] in failed:
                yield f"{event['message']} at {place_of(event)} ({operation}) was never put"


def inconsistent_offsets(evidence: Evidence) -> Iterator[str]:
    """S5 and S7: one (topic, offset) means one message, for everybody, for ever, and in the log at the end."""
    log, forks = evidence.log, evidence.forks
    seen: dict[Place, tuple[object, int]] = {}
    has_restores = bool(forks.broker)
    for index, event in evidence.steps("put", *SEEN, "set_back"):
        if event["op"] == "set_back":
            if event["name"] == BROKER:
                seen = {place: entry for place, entry in seen.items() if entry[1] < int(event["copied"] or 0)}
        elif event["kind"] == "ok" and event.get("offset") is not None:
            place, message = place_of(event), event["message"]
            if log.get(place, message) != message and not forks.may_be_gone(str(event["process"]), index, str(message)):
                yield f"{place} was {message} ({event['op']} of {event['process']}), and is {log[place]} in the log"
            elif has_restores and forks.is_stale(str(event["process"]), index):
                continue
            elif seen.setdefault(place, (message, index))[0] != message:
                yield f"{place} was {seen[place][0]} and later {message} ({event['op']})"


def gap_in_log(evidence: Evidence) -> Iterator[str]:
    """S6: offsets at the end are low, low + 1, ... without a hole."""
    log = evidence.log
    for event in evidence.of("end"):
        topic, low, end = str(event["topic_id"]), int(event["low"] or 0), int(event["end"] or 0)
        missing = [offset for offset in range(low, end) if (topic, offset) not in log]
        if missing:
            yield f"topic {topic} has no {missing[:5]} in [{low}, {end})"


def nonmonotonic_send(evidence: Evidence) -> Iterator[str]:
    """S8: of one stream and topic, later put numbers have higher offsets."""
    last: dict[tuple[str, str], tuple[int, int]] = {}
    for event in sorted(evidence.of("log"), key=place_of):
        key = str(event["topic_id"]), str(event["stream"])
        number = int(event["number"] or 0)
        if key in last and number <= last[key][0]:
            yield f"stream {key[1][:8]} has number {number} behind {last[key][0]} in topic {key[0]}"
        last[key] = number, int(event["offset"] or 0)


def two_answers(evidence: Evidence) -> Iterator[str]:
    """S9: a message has one offset in a topic, whatever retry it was told by."""
    told: dict[tuple[str, str], tuple[int, int]] = {}
    for index, event in evidence.steps("put", "set_back"):
        if event["op"] == "set_back" and event["name"] == BROKER:
            told = {key: entry for key, entry in told.items() if entry[1] < int(event["copied"] or 0)}
        if event["op"] == "put" and event["kind"] == "ok" and event["stored"] and event["offset"] is not None:
            key, offset = (str(event["topic_id"]), str(event["message"])), int(event["offset"])
            if told.setdefault(key, (offset, index))[0] != offset:
                yield f"{event['message']} was told {told[key][0]} and {offset}"


def real_time_order(evidence: Evidence) -> Iterator[str]:
    """S10: a put confirmed before another began has the lower offset in their topic."""
    confirmed: list[tuple[int, str, int]] = []
    highest: dict[str, int] = {}
    floor: dict[tuple[str, str, int], dict[str, int]] = {}
    for index, event in evidence.steps("put", "set_back"):
        if event["op"] == "set_back" and event["name"] == BROKER:
            confirmed = [entry for entry in confirmed if entry[0] < int(event["copied"] or 0)]
            floor, highest = {}, {}
            for _, topic, offset in confirmed:
                highest[topic] = max(highest.get(topic, -1), offset)
        if event["op"] != "put":
            continue
        key = str(event["process"]), str(event["message"]), int(event["life"] or 0)
        if event["kind"] == "invoke":
            floor[key] = highest
        elif event["kind"] == "ok" and event["stored"] and event["offset"] is not None and not event["duplicate"]:
            topic, offset = str(event["topic_id"]), int(event["offset"])
            if offset <= floor.get(key, {}).get(topic, -1):
                yield f"{event['message']} got {offset} in {topic}, below one that was confirmed before it began"
            if key in floor:  # Else it is news from before a directory was set back.
                confirmed.append((index, topic, offset))
                highest = highest | {topic: max(highest.get(topic, -1), offset)}  # Another one: floors keep theirs.


_OF_SUBSCRIPTIONS = ("crash", "set_back", "told", "start_over", "subscribe", "deliver", "gap", "skip", "repeat", "drained")
Lane = tuple[str, str]
"""Subscription and topic id."""


class _Renewals:
    """Which subscriptions may go on at the broker's cursor when they are taken up again.

    Who begins anew after being told that the broker was set back; and who lost his own memory with his power meanwhile, whom
    nobody could tell. To whoever lost only his own directory every repeat must have been in doubt.
    """

    def __init__(self) -> None:
        self._ids: dict[Lane, object] = {}
        self._taken_up: dict[str, set[str]] = {}
        """Of whom was told something: the topics taken up again since."""
        self._anew: set[str] = set()
        self._is_broker_older = False
        self._powerless: set[Lane] = set()
        self._older: set[Lane] = set()
        """Whose client lost its power, and whose broker was set back, since they were last taken up."""

    def on_event(self, event: Event) -> None:
        match event["op"]:
            case "set_back" if event["name"] == BROKER:
                self._is_broker_older = True
                self._older |= set(self._ids)
            case "crash" if event.get("power_cut"):
                self._powerless |= {lane for lane in self._ids if lane[0] == event["name"]}
            case "told":
                self._taken_up[str(event["process"])] = set()
                self._anew.discard(str(event["process"]))
            case "start_over":
                self._anew.add(str(event["subscription"]))

    def take_up(self, lane: Lane, event: Event, *, is_new: bool) -> Literal["goes on", "may go on", "stays"]:
        """A subscription is taken up; say whether it goes on at the cursor that the event names.

        Who lost his power may have lost his memory with it or not: only what he is handed next will show.
        """
        name, topic = lane
        is_other = self._ids.get(lane, event.get("subscription_id")) != event.get("subscription_id")
        self._ids[lane] = event.get("subscription_id")
        is_told = topic not in self._taken_up.get(name, topic)
        is_blank = lane in self._powerless and lane in self._older
        goes_on = is_new or (is_told and (is_other or (name in self._anew and self._is_broker_older)))
        if goes_on or is_blank:
            self._taken_up.setdefault(name, set()).add(topic)
        self._powerless.discard(lane)
        self._older.discard(lane)
        return "goes on" if goes_on else "may go on" if is_blank else "stays"


def deliveries(evidence: Evidence) -> Iterator[str]:
    """S11 to S14: a subscription is handed every message from its start on, in order, once; repeats only if in doubt."""
    expected: dict[Lane, int] = {}
    possible: dict[Lane, int] = {}
    """Where a subscription may go on instead, as long as it was handed nothing since it was taken up."""
    gaps: dict[Lane, tuple[int, int, int]] = {}
    """The gap that each was told last: from where to where, and which of its lives."""
    renewals = _Renewals()
    for index, event in evidence.steps(*_OF_SUBSCRIPTIONS):
        lane = str(event.get("subscription")), str(event.get("topic_id"))
        if possible and event["op"] in {"deliver", "gap", "skip", "repeat"} and lane in possible:
            is_new = event["op"] == "deliver" and not _was_handed(evidence, index, event)
            expected[lane] = _taken_up(event, possible.pop(lane), expected[lane], is_new=is_new)
        match event["op"]:
            case "deliver" if expected.get(lane) == event["offset"]:
                expected[lane] += 1
            case "subscribe":
                cursor = int(event.get("cursor", event["start"]) or 0)
                match renewals.take_up(lane, event, is_new=lane not in expected):
                    case "goes on":
                        expected[lane] = cursor
                    case "may go on":
                        possible[lane] = cursor
            case "deliver":
                yield from _delivered(event, lane, expected)
            case "gap" | "skip":
                yield from _passed_over(event, lane, expected, gaps)
            case "repeat":
                yield from _left_out(event, lane, expected)
                expected[lane] = int(event["first"] or 0)
            case "drained":
                yield from _drained(event, lane, expected)
            case _:
                renewals.on_event(event)


def _taken_up(event: Event, cursor: int, due: int, *, is_new: bool) -> int:
    """What is due to whom nobody could tell that the broker was set back: he shows by what comes first what he remembers.

    All of it, or nothing, or the part that was synced. Where the log ends before what he was handed since, that is not even
    in doubt: what comes there now is new to him. And if something is in doubt, what he skips ends where the log does.
    """
    at = int(event.get("offset", event.get("first")) or 0)
    return at if at == cursor or (at < due and (is_new or event["op"] == "skip")) else due


def _was_handed(evidence: Evidence, index: int, event: Event) -> bool:
    """Whether the subscription was handed the same message at the same place before."""
    names = "subscription", "topic_id", "offset", "message"
    same = [event[name] for name in names]
    return any([earlier[name] for name in names] == same for number, earlier in evidence.steps("deliver") if number < index)


def _delivered(event: Event, key: Lane, expected: dict[Lane, int]) -> Iterator[str]:
    offset = int(event["offset"] or 0)
    if key not in expected:
        yield f"{key} got {offset} without a subscription"
    elif offset < expected[key]:
        yield f"{key} got {offset} again: nonmonotonic-poll"
    elif offset > expected[key]:
        yield f"{key} got {offset} where {expected[key]} was next: poll-skip"
    expected[key] = offset + 1


def _passed_over(event: Event, key: Lane, expected: dict[Lane, int], gaps: dict[Lane, tuple[int, int, int]]) -> Iterator[str]:
    """A gap or a skip is told; a gap begins where the next message was due.

    Whoever dies before the next call is told the gap again from its beginning: nobody knows whether it was heard.
    """
    first, end, life = int(event["first"] or 0), int(event["end"] or 0), int(event["life"] or 0)
    due = expected.get(key)
    if event["op"] == "gap":
        told_first, told_end, told_life = gaps.get(key, (-1, -1, life))
        is_again = (told_first, told_end) == (first, due) and told_life < life
        if first != due and not is_again:
            yield f"{key} was told a gap [{first}, {end}) where {due} was next"
        gaps[key] = first, end, life
    else:
        yield from _left_out(event, key, expected)
    expected[key] = max(end, due or 0)


def _drained(event: Event, key: Lane, expected: dict[Lane, int]) -> Iterator[str]:
    """Nothing is left, so all of the topic was handed out; and the topic is still there."""
    if event["end"] is None:
        yield f"{key} is subscribed to a topic that is gone"
    elif expected.get(key, 0) < int(event["end"] or 0):
        yield f"{key} was handed up to {expected.get(key)} of {event['end']}: unseen"


def _left_out(event: Event, key: Lane, expected: dict[Lane, int]) -> Iterator[str]:
    """What is in doubt, or damaged, begins where the next message was due, or before: else what lies between is lost unseen."""
    first, due = int(event["first"] or 0), expected.get(key, 0)
    if first > due:
        yield f"{key} was asked about {first} and behind where {due} was next: unseen"


def retention_law(evidence: Evidence) -> Iterator[str]:
    """S16: only a limit takes what a subscription still needs; without one there is nothing to be told.

    And nothing at all takes what is kept for ever, whether anybody still needs it or not.
    """
    for event in evidence.of("end"):
        if event.get("is_kept") and event["low"]:
            yield f"topic {event['topic_id']} is kept for ever, and begins at {event['low']}"
    for index, event in evidence.steps("gap", "missed"):
        # A database that was set back, or begun anew because the broker was, asks for what was rightly forgotten.
        is_older = event["op"] == "missed" and evidence.forks.was_touched(str(event["process"]), index)
        if str(event["topic_id"]) not in evidence.limited and not is_older:
            yield f"{event['subscription']} lost [{event['first']}, {event['end']}) of {event['topic_id']}, which has no limit"


def in_doubt_bound(evidence: Evidence) -> Iterator[str]:
    """S23: what is in doubt was handed out, or reserved before an operating-system crash; never more than that allows."""
    for event in evidence.of("in_doubt"):
        size = int(event["end"] or 0) - int(event["first"] or 0)
        if size > int(event["bound"] or 0):
            yield f"{event['subscription']} has {size} messages in doubt, {event['bound']} at most are possible"


def fencing(evidence: Evidence) -> Iterator[str]:
    """S17: what an older life of a client began after a newer one was welcomed is never told ok. A late answer is no offence."""
    welcomed: list[tuple[int, str, int]] = []
    newest: dict[str, int] = {}
    too_late: set[tuple[str, int, str]] = set()
    for index, event in evidence.steps("welcome", "put", "set_back"):
        name, life, message = str(event["process"]), int(event["life"] or 0), str(event.get("message"))
        if event["op"] == "set_back" and event["name"] == BROKER:
            welcomed = [entry for entry in welcomed if entry[0] < int(event["copied"] or 0)]
            newest = {}
            for _, process, number in welcomed:
                newest[process] = max(number, newest.get(process, 0))
            too_late = {late for late in too_late if late[1] < newest.get(late[0], 0)}  # Nobody newer is known there any more.
        elif event["op"] == "welcome" and event["kind"] == "ok":
            welcomed.append((index, name, life))
            newest[name] = max(life, newest.get(name, 0))
        elif event["op"] == "put" and event["kind"] == "invoke" and life < newest.get(name, 0):
            too_late.add((name, life, message))
        elif event["op"] == "put" and event["kind"] == "ok" and (name, life, message) in too_late:
            yield f"{name} life {life} put {message} and was told ok, after a newer life was welcomed"


def skipped_unput(evidence: Evidence) -> Iterator[str]:
    """A gap or a skip passes over what was there when it was told, never over what was put later.

    At a broker that was set back a place may be passed over twice; then it is the last time that counts.
    """
    log, invoked = evidence.log, evidence.invoked
    passed: dict[tuple[str, Place], int] = {}
    for index, event in evidence.steps("gap", "skip"):
        name, topic = str(event["subscription"]), str(event["topic_id"])
        passed |= {(name, (topic, offset)): index for offset in range(int(event["first"] or 0), int(event["end"] or 0))}
    if not passed:
        return
    delivered = {(str(event["subscription"]), *place_of(event), str(event["message"])) for event in evidence.of("deliver")}
    for (name, place), index in passed.items():
        message = log.get(place, "")
        if invoked.get(message, -1) > index and (name, *place, message) not in delivered:
            yield f"{name} never got {message} at {place}, put after that place was passed over"


def told_for_nothing(evidence: Evidence) -> Iterator[str]:
    """Nobody is told of a directory set back, a takeover or damage unless there was one."""
    forks = evidence.forks
    given_up = {str(event["name"]) for event in evidence.of("taken_over")}
    is_rotten = False
    for index, event in evidence.steps("rot", "told", "damaged"):
        if event["op"] == "rot":
            is_rotten = True
        elif event["op"] == "told" and event["process"] not in given_up and not forks.was_touched(str(event["process"]), index):
            yield f"{event['process']} was told {event['name']} although nothing was set back"
        elif event["op"] == "damaged" and not is_rotten:
            yield f"{event['process']} was told that [{event['first']}, {event['end']}) is damaged, and nothing was"


def told_too_early(evidence: Evidence) -> Iterator[str]:
    """S7 for listeners: an end that was told is synced, so a broker that comes back has at least that much."""
    for event in evidence.of("recovered"):
        if int(event["told"] or 0) > int(event["end"] or 0):
            yield f"topic {event['topic_id']} was told to end at {event['told']}, and came back ending at {event['end']}"


JUDGES: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "lost-write": lost_write,
    "lost-accept": lost_accept,
    "duplicate": duplicate,
    "unexpected": unexpected,
    "inconsistent-offsets": inconsistent_offsets,
    "gap-in-log": gap_in_log,
    "nonmonotonic-send": nonmonotonic_send,
    "two-answers": two_answers,
    "real-time-order": real_time_order,
    "deliveries": deliveries,
    "cursors": cursors,
    "retention-law": retention_law,
    "kept-too-little": kept_too_little,
    "in-doubt-bound": in_doubt_bound,
    "in-doubt-place": in_doubt_place,
    "fencing": fencing,
    "skipped-unput": skipped_unput,
    "relayed": relayed,
    "effects": effects,
    "receptions": receptions,
    "told-for-nothing": told_for_nothing,
    "told-too-early": told_too_early,
    "told-too-much": told_too_much,
    "reconnect": reconnect,
    "progress": progress,
}

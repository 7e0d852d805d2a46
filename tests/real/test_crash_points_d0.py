# SPDX-License-Identifier: Apache-2.0
"""The crash points and holes that the earlier designs named, each with real processes that die exactly there.

May not: count on luck: every test proves from facts on disk that the death came where it should.
The idea: publisher, broker and subscriber are processes; one of them dies at a named instant and is started again; then
everything put is stored once and got once. Rows D0.11, D0.12 and D2.8 of the coverage page point here.
Next: test_kill_anything.py, where they die anywhere.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real import roles
from tests.real.harness import Done, Process, Stage, connections_given_up, until

pytestmark = pytest.mark.real

LAST = 5


def at_the_gate(stage: Stage, number: int, *options: str) -> tuple[Process, Path]:
    """A publisher that waits before its put `number`, with everything before confirmed, and the file that lets it go on."""
    gate = stage.directory / "gate"
    publisher = stage.publisher(1, LAST, "--gate", str(number), "--gate-file", str(gate), *options)
    until(lambda: stage.facts("publisher").has(f"gate {number}"), "the publisher comes to its gate")
    return publisher, gate


def open_gate(stage: Stage, gate: Path, number: int) -> None:
    gate.touch()
    until(lambda: number in stage.facts("publisher").tried(), "the publisher puts")


def finish(stage: Stage, *, subscriber: Process | None = None, last: int = LAST) -> None:
    """Drain everything and check: stored once, got once, in order, and where the publisher was told."""
    stage.put_end()
    (subscriber or stage.subscriber()).wait_for_success()
    stage.assert_stored_once(range(1, last + 1))
    stage.assert_confirmed_is_stored()
    stage.assert_got_once()


def confirmed(stage: Stage) -> list[int]:
    return [done.number for done in stage.facts("publisher").done()]


# --- D0.11: five crash points ---------------------------------------------------------------------------


def flushed(stage: Stage) -> int:
    """How many messages the next run found in the outbox and had confirmed.

    The one that was open, and perhaps the one before: that it was confirmed is written down while the next answer is on its way.
    """
    return int(stage.facts("publisher").rows("flushed")[-1][0])


def test_client_dies_before_it_sends(stage: Stage) -> None:
    """1: the put is in the outbox and nowhere else; the next run sends it first."""
    stage.publisher(1, LAST, crash_at="client.before_send:4").wait_for_crash()  # Hello and two puts were sent.
    assert (stage.facts("publisher").tried(), confirmed(stage)) == ([1, 2, 3], [1, 2])
    stage.assert_stored_once(range(1, 3))
    stage.publisher(4, LAST).wait_for_success()
    assert flushed(stage) in {1, 2}
    finish(stage)


def test_request_is_lost_when_the_broker_dies_before_deciding(stage: Stage) -> None:
    """2: the broker had received the put and died; the client sends it again and it is new to the next broker."""
    publisher, gate = at_the_gate(stage, 3)
    stage.broker.kill()
    open_gate(stage, gate, 3)
    stage.broker.start(crash_at="broker.after_receive:1")
    stage.broker.process.wait_for_crash()
    assert confirmed(stage) == [1, 2]
    stage.broker.start()
    publisher.wait_for_success()
    assert Done(3, 2, duplicate=False) in stage.facts("publisher").done()
    finish(stage)


def test_server_is_down_when_the_client_sends(stage: Stage) -> None:
    """3: nobody receives the put; the client tries again until the broker is back."""
    publisher, gate = at_the_gate(stage, 3)
    stage.broker.kill()
    open_gate(stage, gate, 3)
    stage.broker.start()
    publisher.wait_for_success()
    assert Done(3, 2, duplicate=False) in stage.facts("publisher").done()
    finish(stage)


def test_server_stays_down_and_a_later_run_continues(stage: Stage) -> None:
    """3, with a client that gives up after three tries: the put is pending, and the next run has it confirmed."""
    publisher, gate = at_the_gate(stage, 3, "--give-up")
    stage.broker.kill()
    open_gate(stage, gate, 3)
    assert publisher.wait() == roles.GAVE_UP
    assert stage.facts("publisher").has("pending 3 1")
    stage.broker.start()
    stage.publisher(4, LAST).wait_for_success()
    assert flushed(stage) in {1, 2}
    finish(stage)


def test_reply_is_lost_when_the_broker_dies_after_the_sync(stage: Stage) -> None:
    """4: the put is on disk, its answer was never sent; the repeat is told its first offset."""
    publisher, gate = at_the_gate(stage, 3)
    stage.broker.kill()
    open_gate(stage, gate, 3)
    stage.broker.start(crash_at="broker.after_sync:2")  # The first sync is the start's own.
    stage.broker.process.wait_for_crash()
    assert confirmed(stage) == [1, 2]
    stage.broker.start()
    publisher.wait_for_success()
    assert Done(3, 2, duplicate=True) in stage.facts("publisher").done()
    finish(stage)


def test_client_dies_before_it_takes_the_answer_to_a_put(stage: Stage) -> None:
    """5: the answer arrived and was not looked at; the next run asks again and stores nothing twice."""
    stage.publisher(1, LAST, crash_at="client.after_receive:4").wait_for_crash()  # Welcome and two answers were taken.
    assert (stage.facts("publisher").tried(), confirmed(stage)) == ([1, 2, 3], [1, 2])
    stage.assert_stored_once(range(1, 4))
    stage.publisher(4, LAST).wait_for_success()
    assert flushed(stage) in {1, 2}
    finish(stage)


def test_client_dies_before_it_takes_the_answer_to_a_get(stage: Stage) -> None:
    """5, on the other side: messages arrived and were handed to nobody, so nothing is in doubt."""
    stage.publisher(1, LAST).wait_for_success()
    stage.subscriber(crash_at="client.after_receive:3").wait_for_crash()  # Welcome and SubscribeDone were taken.
    assert stage.facts("subscriber").got() == []
    finish(stage)
    assert stage.facts("subscriber").doubts() == []


# --- D0.12: holes ---------------------------------------------------------------------------------------


def test_client_dies_between_receipt_and_saving_its_state(stage: Stage) -> None:
    """The third message was taken and its slot not written: it comes, and the second, already handled, is in doubt."""
    stage.publisher(1, LAST).wait_for_success()
    stage.subscriber(crash_at="client.before_hand_over:3").wait_for_crash()
    assert [entry.offset for entry in stage.facts("subscriber").got()] == [0, 1]
    finish(stage)
    assert stage.facts("subscriber").doubts() == [(1, 2, "skip")]


def test_client_dies_between_saving_its_state_and_returning(stage: Stage) -> None:
    """The slot says handed out, the application never saw it: in doubt, and repeated because the application says so."""
    stage.publisher(1, LAST).wait_for_success()
    stage.subscriber(crash_at="client.after_hand_over:3").wait_for_crash()
    assert [entry.offset for entry in stage.facts("subscriber").got()] == [0, 1]
    finish(stage)
    assert stage.facts("subscriber").doubts() == [(2, 3, "repeat")]


def test_a_slow_reply_to_a_put_does_not_store_twice(stage: Stage) -> None:
    """The broker sleeps beyond the client's patience: it then finds the put twice, on a dead connection and a new one."""
    publisher, gate = at_the_gate(stage, 3)
    with stage.broker.paused():
        open_gate(stage, gate, 3)
        until(lambda: connections_given_up(stage.broker.port) > 0, "the client renews its connection")
    publisher.wait_for_success()
    with stage.client() as client:
        assert client.admin.stats().values["count_duplicates"] > 0, "only one copy of the put came to the broker"
    finish(stage)


def test_a_slow_reply_to_a_get_is_not_delivered_twice(stage: Stage) -> None:
    """The same with a Get: both copies are answered, one message comes."""
    subscriber = stage.subscriber()
    with stage.broker.paused():
        until(lambda: connections_given_up(stage.broker.port) > 0, "the subscriber renews its connection")
    stage.publisher(1, LAST).wait_for_success()
    finish(stage, subscriber=subscriber)
    assert stage.facts("subscriber").doubts() == []


# --- D2.8: holes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("instant", ["broker.after_sync:4", "broker.between_answers:2", "broker.after_answers:2"])
def test_server_dies_after_storing_and_before_replying(stage: Stage, instant: str) -> None:
    """Several blocks are on their way; some are stored and answered, some only stored, some not yet there."""
    stage.broker.kill()
    stage.broker.start(crash_at=instant)
    publisher = stage.publisher(1, 20_000, "--mode", "many")
    stage.broker.process.wait_for_crash()
    stage.broker.start()
    publisher.wait_for_success()
    finish(stage, last=20_000)


@pytest.mark.parametrize(("choice", "times", "doubts"), [("raise", 1, [(2, 3, "skip")]), ("repeat", 2, []), ("skip", 1, [])])
def test_client_dies_before_acknowledging(stage: Stage, choice: str, times: int, doubts: list[tuple[int, int, str]]) -> None:
    """It handled the third message and never called get again: what then happens is what it chose at connect."""
    stage.publisher(1, LAST).wait_for_success()
    stage.subscriber("--in-doubt", choice, "--die-after", "3").wait_for_crash()
    stage.put_end()
    stage.subscriber("--in-doubt", choice).wait_for_success()
    facts = stage.facts("subscriber")
    assert [entry.offset for entry in facts.got()] == [0, 1] + [2] * times + [3, 4, 5]
    assert facts.doubts() == doubts

# SPDX-License-Identifier: Apache-2.0
"""receive() and transaction(): given again until it is done, and done together or not at all. A real broker, real sockets."""

from __future__ import annotations

import pytest

import oncemq
from tests.client.conftest import Connect


class Trouble(Exception):
    """What the application runs into."""


def received(client: oncemq.Client, topic: str) -> tuple[bytes, int] | None:
    with client.receive(topic, timeout=0) as message:
        return None if message is None else (message.value, message.attempt)


# --- receive ----------------------------------------------------------------------------------------


def test_a_message_that_was_received_is_not_given_again(worker: oncemq.Client, topic: str) -> None:
    assert [received(worker, topic) for _ in range(6)] == [*[(b"%d" % number, 1) for number in range(5)], None]


def test_a_message_is_given_again_after_an_exception_and_counted(worker: oncemq.Client, topic: str) -> None:
    attempts = []
    for _ in range(3):
        with pytest.raises(Trouble), worker.receive(topic, timeout=5) as message:
            assert message is not None
            attempts.append((message.value, message.attempt))
            raise Trouble
    assert attempts == [(b"0", 1), (b"0", 2), (b"0", 3)]
    assert received(worker, topic) == (b"0", 4)
    assert received(worker, topic) == (b"1", 1)


def test_attempts_are_counted_across_processes(worker: oncemq.Client, connect: Connect, topic: str) -> None:
    with pytest.raises(Trouble), worker.receive(topic, timeout=5):
        raise Trouble
    worker.close()
    again = connect("worker")
    assert received(again, topic) == (b"0", 2)
    again.close()
    assert received(connect("worker"), topic) == (b"1", 1)


def test_a_receive_that_was_refused_takes_nothing_from_get(connect: Connect, topic: str) -> None:
    """It looked as if receive() had the subscription: get() over all left it out, and leaving the block finished nothing."""
    with connect("reader") as reader:
        reader.subscribe(topic)
        assert reader.get(topic, timeout=0) is None
        with pytest.raises(oncemq.WrongAuthority), reader.receive(topic, timeout=0):
            pass
        reader.put_many(topic, [b"0", b"1"])
        message = reader.get(timeout=5)
        assert message is not None
        assert message.value == b"0"
    with connect("reader") as reader:
        message = reader.get(topic, timeout=5)
        assert message is not None
        assert message.value == b"1"


@pytest.mark.usefixtures("impatient")
def test_a_get_without_an_answer_may_have_fixed_how_a_subscription_is_consumed(connect: Connect, topic: str) -> None:
    with connect("reader") as reader:
        reader.subscribe(topic)
        heard, reader._session.on_blocks = reader._session.on_blocks, lambda *_: None
        with pytest.raises(oncemq.BrokerUnreachable):
            reader.get(topic, timeout=0)
        reader._session.on_blocks = heard
        with pytest.raises(oncemq.WrongAuthority), reader.receive(topic, timeout=0):
            pass
        assert reader.get(timeout=0) is None


def test_a_subscription_is_consumed_in_one_way(worker: oncemq.Client, topic: str) -> None:
    assert received(worker, topic) == (b"0", 1)
    with pytest.raises(oncemq.WrongAuthority):
        worker.get(topic, timeout=0)
    with worker.transaction() as transaction:
        message = transaction.get(topic, timeout=0)
        assert message is not None
        assert message.value == b"1"


@pytest.mark.parametrize("call", ["ack", "get", "get_many", "listen"])
def test_a_call_that_does_not_consume_it_leaves_the_attempts_counted(worker: oncemq.Client, topic: str, call: str) -> None:
    """ack() was taken, and all of them began the count anew: whoever gives up after five times never would."""
    with pytest.raises(Trouble), worker.receive(topic, timeout=5):
        raise Trouble
    with pytest.raises(oncemq.WrongAuthority):
        if call == "ack":
            worker.ack(topic)
        elif call == "listen":
            next(worker.listen(topic, timeout=0))
        else:
            getattr(worker, call)(topic, timeout=0)
    assert received(worker, topic) == (b"0", 2)


@pytest.mark.parametrize("again", [False, True])
def test_a_subscription_that_ends_inside_a_transaction_is_told(worker: oncemq.Client, topic: str, again: bool) -> None:
    with pytest.raises((oncemq.NotSubscribed, oncemq.NoSuchTopic)), worker.transaction() as transaction:
        assert transaction.get(topic, timeout=5) is not None
        worker.unsubscribe(topic)
        if again:
            worker.subscribe(topic)
        transaction.get(topic, timeout=5)
    worker.subscribe(topic)
    worker.put(topic, b"5")
    assert received(worker, topic) == (b"5", 1)


def test_what_get_consumes_is_not_received(worker: oncemq.Client, topic: str) -> None:
    worker.get(topic, timeout=5)
    with pytest.raises(oncemq.WrongAuthority), worker.receive(topic, timeout=0):
        raise AssertionError


def test_leaving_the_client_does_not_acknowledge_what_a_receive_gave_back(
    connect: Connect, worker: oncemq.Client, topic: str
) -> None:
    with worker, pytest.raises(Trouble), worker.receive(topic, timeout=5):
        raise Trouble
    assert received(connect("worker"), topic) == (b"0", 2)


def test_receive_needs_a_subscription(worker: oncemq.Client) -> None:
    with pytest.raises(oncemq.NoSuchTopic), worker.receive("nothing-of-that-name", timeout=0):
        raise AssertionError


# --- transaction ------------------------------------------------------------------------------------


@pytest.fixture
def target(connect: Connect, topic: str) -> str:
    name = topic + "-out"
    connect("reader").subscribe(name)
    return name


def stored(client: oncemq.Client, topic: str) -> list[bytes]:
    return [message.value for message in client.read(topic, 0, 1000)]


def test_consume_process_produce(worker: oncemq.Client, topic: str, target: str) -> None:
    for _ in range(2):
        with worker.transaction() as transaction:
            messages = transaction.get_many(topic, 2, timeout=5)
            for message in messages:
                transaction.put(target, b"did " + message.value, key=b"k")
        assert [receipt.stored for receipt in transaction.receipts] == [True, True]
    with worker.transaction() as transaction:
        assert [message.value for message in transaction.get_many(topic, 2, timeout=5)] == [b"4"]
    assert stored(worker, target) == [b"did 0", b"did 1", b"did 2", b"did 3"]
    with worker.transaction() as transaction:
        assert transaction.get(topic, timeout=0) is None
        assert transaction.get_many(topic, timeout=0) == []


def test_after_an_exception_nothing_happened(worker: oncemq.Client, topic: str, target: str) -> None:
    for attempt in (1, 2):
        with pytest.raises(Trouble), worker.transaction() as transaction:
            transaction.put(target, b"never")
            messages = transaction.get_many(topic, 3, timeout=5)
            assert [(message.value, message.attempt) for message in messages] == [
                (b"0", attempt),
                (b"1", attempt),
                (b"2", attempt),
            ]
            raise Trouble
    assert stored(worker, target) == []
    with worker.transaction() as transaction:
        message = transaction.get(topic, timeout=5)
        assert message is not None
        assert (message.value, message.attempt) == (b"0", 3)
    with worker.transaction() as transaction:
        following = transaction.get_many(topic, 4, timeout=5)
    assert [(following[0].value, following[0].attempt)] == [(b"1", 1)]


def test_several_topics_in_and_out(connect: Connect, worker: oncemq.Client, topic: str, target: str) -> None:
    other = topic + "-too"
    worker.subscribe(other)
    connect("second").put(other, b"x")
    with worker.transaction() as transaction:
        first, second = transaction.get(topic, timeout=5), transaction.get(other, timeout=5)
        assert first is not None and second is not None
        transaction.put([target, other], first.value + second.value)
        transaction.put(target, b"last", headers={"a": "b"})
    assert [receipt.offset for receipt in transaction.receipts] == [0, 1, 1]
    assert stored(worker, target) == [b"0x", b"last"]
    assert received(worker, other) == (b"0x", 1)


def test_a_transaction_stands_behind_the_puts_before_it(worker: oncemq.Client, topic: str, target: str) -> None:
    worker.put(target, b"before", wait=False)
    with worker.transaction() as transaction:
        transaction.get(topic, timeout=5)
        transaction.put(target, b"inside")
    worker.put(target, b"after", wait=False)
    worker.put(target, b"last")
    assert stored(worker, target) == [b"before", b"inside", b"after", b"last"]


def test_a_transaction_that_did_nothing_commits_nothing(worker: oncemq.Client, topic: str) -> None:
    with worker.transaction():
        pass
    assert received(worker, topic) == (b"0", 1)


def test_strict_puts_refuse_the_whole(worker: oncemq.Client, topic: str) -> None:
    with pytest.raises(oncemq.NotCommitted, match="nobody subscribes"), worker.transaction() as transaction:
        transaction.get(topic, timeout=5)
        transaction.put("nobody-at-all", b"x", strict=True)
    assert received(worker, topic) == (b"0", 2)


def test_one_transaction_at_a_time_and_only_inside_its_block(worker: oncemq.Client, topic: str) -> None:
    with worker.transaction() as transaction:
        with pytest.raises(oncemq.UsageError, match="one transaction at a time"), worker.transaction():
            raise AssertionError
        with pytest.raises(oncemq.UsageError, match="its own get"):
            worker.receive(topic)
        with pytest.raises(oncemq.UsageError, match="at least 1"):
            transaction.get_many(topic, 0)
    for call in (lambda: transaction.get(topic), lambda: transaction.put(topic, b"x")):
        with pytest.raises(oncemq.UsageError, match="over"):
            call()


def test_a_transaction_too_large_is_refused_here(worker: oncemq.Client, topic: str, target: str) -> None:
    with pytest.raises(oncemq.MessageTooLarge, match="transaction"), worker.transaction() as transaction:
        transaction.get(topic, timeout=5)
        for _ in range(3):
            transaction.put(target, bytes(15 << 20))
    assert received(worker, topic) == (b"0", 2)
    assert stored(worker, target) == []


# --- one at a time, and interrupted ---------------------------------------------------------------------


def test_a_topic_is_received_by_one_block_at_a_time(connect: Connect, worker: oncemq.Client, topic: str) -> None:
    """What is acknowledged is everything up to a place: a second block would finish the first one's message."""
    with pytest.raises(Trouble), worker.receive(topic, timeout=5):
        with pytest.raises(oncemq.UsageError, match="being received already"), worker.receive(topic, timeout=5):
            raise AssertionError
        with pytest.raises(oncemq.UsageError, match="being received already"), worker.transaction() as transaction:
            transaction.get(topic, timeout=5)
        raise Trouble
    worker.close()
    assert received(connect("worker"), topic) == (b"0", 2)


def test_a_receive_and_a_transaction_are_used_once(worker: oncemq.Client, topic: str) -> None:
    transaction, receive = worker.transaction(), worker.receive(topic, timeout=5)
    with transaction:
        pass
    with receive:
        pass
    with pytest.raises(oncemq.UsageError, match="used once"), transaction:
        raise AssertionError
    with pytest.raises(oncemq.UsageError, match="used once"):
        receive.__exit__(None, None, None)


@pytest.mark.parametrize("call", ["took", "_apply", "_keep_refusal"])
def test_an_interrupt_at_the_end_of_a_commit_leaves_the_stream_usable(
    worker: oncemq.Client, topic: str, target: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers are used up whatever happens afterwards: the next call asks for the outcome and goes on behind them."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    owner = worker._puts if call == "took" else worker._transactions
    with monkeypatch.context() as patch:
        patch.setattr(owner, call, interrupted)
        with pytest.raises(KeyboardInterrupt), worker.transaction() as transaction:
            transaction.get(topic, timeout=5)
            transaction.put(target, b"once")
    for value in (b"p0", b"p1"):
        worker.put(target, value)
    with worker.transaction() as transaction:
        message = transaction.get(topic, timeout=5)
        assert message is not None
        transaction.put(target, message.value)
    values = stored(worker, target)
    assert values.count(b"once") == 1
    assert values[:3] == [b"once", b"p0", b"p1"]


@pytest.mark.parametrize("bad", [5, None, ["a", 5]])
def test_odd_topics_and_counts_are_refused_in_our_words(worker: oncemq.Client, topic: str, bad: object) -> None:
    with worker.transaction() as transaction:
        with pytest.raises(oncemq.UsageError):
            transaction.put(bad, b"x")  # type: ignore[arg-type]
        with pytest.raises(oncemq.UsageError):
            transaction.put(topic, b"x", strict="yes")  # type: ignore[arg-type]
        for count in (2.5, "a", 0):
            with pytest.raises(oncemq.UsageError):
                transaction.get_many(topic, count)  # type: ignore[arg-type]


def test_a_refusal_found_out_by_a_put_is_told_to_the_next_transaction(
    worker: oncemq.Client, topic: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no news of the put, which is stored."""

    def away(*_: object) -> None:
        raise oncemq.Uncertain("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(worker._transactions, "_ask", away)
        with pytest.raises(oncemq.Uncertain), worker.transaction() as transaction:
            transaction.get(topic, timeout=5)
            transaction.put("nobody-at-all", b"x", strict=True)
    assert worker.put(target, b"stored").stored
    with pytest.raises(oncemq.NotCommitted), worker.transaction():
        raise AssertionError
    assert received(worker, topic) == (b"0", 2)


def test_a_transaction_that_cannot_be_read_is_over_and_holds_nothing_up(
    worker: oncemq.Client, topic: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No copy of it will ever be taken: the next call must not send it again, nor the one after that."""
    with pytest.raises(oncemq.NotCommitted) as told, worker.transaction() as transaction:
        transaction.get(topic, timeout=5)
        transaction.put(target, b"bent")
        (block,) = transaction._blocks.values()
        monkeypatch.setattr(block.__class__, "cut", lambda _: bytearray(b"no block"))
    assert told.value.code == "corrupt_block"
    monkeypatch.undo()
    assert worker.put(target, b"stored").stored
    with worker.transaction() as transaction:
        message = transaction.get(topic, timeout=5)
        assert message is not None
        transaction.put(target, message.value)
    assert stored(worker, target) == [b"stored", b"0"]

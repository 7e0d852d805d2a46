# SPDX-License-Identifier: Apache-2.0
"""A process that forks keeps its clients; the child has none of them, whatever it tries, and can make its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

import oncemq
from tests.client.conftest import Connect

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # Forking beside threads, on purpose.


class Child:
    """A forked process that does something, says what came of it, and lives until it is let go."""

    def __init__(self, work: Callable[[], Any]) -> None:
        said, say = os.pipe()
        wait, self._end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._end)
                os.write(say, json.dumps(work()).encode() + b"\n")
                os.read(wait, 1)
            finally:
                os._exit(0)
        os.close(say)
        os.close(wait)
        with os.fdopen(said, "rb") as lines:
            self.said = json.loads(lines.readline())

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._end)
        os.waitpid(self._pid, 0)


def _told(call: Callable[[], Any]) -> str:
    try:
        return repr(call())
    except oncemq.OnceMQError as problem:
        return type(problem).__name__


def test_a_child_has_none_of_its_parents_clients(connect: Connect, topic: str) -> None:
    client = connect("one")
    client.subscribe(topic)
    client.put_many(topic, [b"0", b"1", b"2", b"3"])
    assert client.get(topic, timeout=5) is not None  # The others were fetched with it.
    client.put(topic, b"4", wait=False)
    listener = client.listen(topic)
    tries: list[Callable[[], Any]] = [
        lambda: client.get(topic, timeout=1),
        lambda: next(listener),
        lambda: client.put(topic, b"x"),
        lambda: client.put(topic, b"x", wait=False),
        lambda: client.put_many(topic, [b"x"]),
        lambda: client.ack(topic),
        client.transaction,
        client.close,
    ]
    with Child(lambda: [_told(call) for call in tries]) as child:
        assert child.said == ["ClientClosed"] * 7 + ["0"]
    assert client.flush() >= 1
    assert [message.value for message in client.get_many(topic, 9, timeout=5)] == [b"1", b"2", b"3"]
    assert [message.value for message in client.get_many(topic, 9, timeout=5)] == [b"4"]


def test_a_child_makes_its_own_and_does_not_hold_its_parents_lock(connect: Connect, broker: oncemq.Broker, topic: str) -> None:
    client = connect("one")
    client.subscribe(topic)

    def work() -> bool:
        with oncemq.connect(broker.address) as own:
            return own.put(topic, b"from the child").stored

    with Child(work) as child:
        assert child.said is True
        client.close()
        again = connect("one")  # While the child lives.
        message = again.get(topic, timeout=5)
        assert message is not None
        assert message.value == b"from the child"

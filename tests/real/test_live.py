# SPDX-License-Identifier: Apache-2.0
"""Listening in real processes: kill -9 on both sides, hundreds of listeners on one topic, and one that stands still."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

import oncemq
from oncemq.limits import MIB
from tests.real.harness import DEADLINE_S, Stage, until

pytestmark = pytest.mark.real

LISTENERS = 200
QUEUES_BYTES_MAX = 120 * MIB
"""What a listener that stands still may cost: its queues at the broker and at its own end, with room for the allocator."""


def rss_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


@pytest.mark.parametrize("mode", ["listen", "blocks"])
def test_kill_9_of_broker_and_listener_while_it_listens(make_stage: Callable[..., Stage], mode: str) -> None:
    stage = make_stage()
    stage.broker.start()
    stage.keep_everything()
    listener = stage.subscriber("--mode", mode)
    publisher = stage.publisher(1, 400)
    for death in range(4):
        seen = len(stage.facts("subscriber").got())
        until(lambda seen=seen: len(stage.facts("subscriber").got()) >= seen + 20 or not publisher.is_alive, "more is heard")
        if death % 2:
            listener.kill()
            listener = stage.subscriber("--mode", mode)
        else:
            stage.broker.kill()
            stage.broker.start()
    publisher.wait_for_success()
    stage.put_end()
    listener.wait_for_success()
    stage.assert_got_once()


def test_hundreds_of_listeners_on_one_topic_each_get_everything_pushed(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage()
    stage.broker.start()
    with ExitStack() as stack:
        clients = [stack.enter_context(oncemq.connect(stage.broker.address)) for _ in range(LISTENERS)]
        for client in clients:
            client.subscribe("t")
        listeners = [client.listen("t", timeout=DEADLINE_S) for client in clients]
        for listener in listeners:
            listener.next(timeout=0)
        publisher = stack.enter_context(oncemq.connect(stage.broker.address))
        until(lambda: publisher.admin.stats().values["channels_followed"] == 1, "somebody follows")
        for number in range(20):
            publisher.put("t", b"%d" % number)
        for listener in listeners:
            assert [next(listener).value for _ in range(20)] == [b"%d" % number for number in range(20)]
        pushed = publisher.admin.stats().values["count_live_blocks"]
    assert pushed == 20, "each block leaves once, whatever the number of listeners"


def test_a_listener_that_stands_still_costs_bounded_memory_and_gets_everything_later(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(segment_bytes=64 * MIB)
    stage.broker.start()
    stage.keep_everything()
    listener = stage.subscriber("--mode", "blocks")
    with stage.client(id="publisher", state=stage.directory / "publisher.state") as client:
        values = [f"x:{number}".encode().ljust(1_000, b".") for number in range(500)]
        client.put_many("t", values)
        until(lambda: len(stage.facts("subscriber").got()) >= 500, "the first are heard")
        before = rss_bytes(stage.broker.process.pid), rss_bytes(listener.pid)
        listener.signal(signal.SIGSTOP)
        try:
            for _ in range(600):  # 300 MB, in blocks of half a megabyte.
                client.put_many("t", values)
            grown = rss_bytes(stage.broker.process.pid) - before[0]
        finally:
            listener.signal(signal.SIGCONT)
        assert grown < QUEUES_BYTES_MAX + 60 * MIB, f"the broker grew by {grown // MIB} MiB"
    stage.put_end()
    sizes = [before[1]]

    def has_ended() -> bool:
        with suppress(OSError, StopIteration):  # It may end while it is looked at.
            sizes.append(rss_bytes(listener.pid))
        return not listener.is_alive

    until(has_ended, "it catches up", within_s=120)
    assert max(sizes) - before[1] < QUEUES_BYTES_MAX, f"the listener grew by {(max(sizes) - before[1]) // MIB} MiB"
    got = stage.facts("subscriber").got()
    assert [entry.offset for entry in got] == list(range(601 * 500 + 1))

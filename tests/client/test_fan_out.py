# SPDX-License-Identifier: Apache-2.0
"""What a block costs the broker's loop does not depend on how many listen to it.

May not: measure time. The calls that the loop makes for one block are counted: they are the same on every machine.
The idea: the loop says a packet once, and ZeroMQ copies it to whoever listens. Listeners acknowledge once a second, which is no
part of a block's cost, so bare sockets listen here.
Next: `oncemq bench fanout` for how long it takes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import zmq

import oncemq
from oncemq.client.broker import open_broker
from oncemq.core.channels import channel_of
from oncemq.engine.loop import BrokerLoop

BLOCKS = 20
Result = TypeVar("Result")


def beside(loop: BrokerLoop, action: Callable[[], Result], calls: Counter[int] | None = None) -> Result:
    """Do something in another thread while the loop runs in this one; count the calls of each step that published a block."""
    made = 0

    def count(_frame: object, what: str, _argument: object) -> None:
        nonlocal made
        made += what in {"call", "c_call"}

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(action)
        while not done.done():
            made, blocks = 0, loop.machine.counters["live_blocks"]
            sys.setprofile(count)
            loop.step(10)
            sys.setprofile(None)
            if calls is not None and loop.machine.counters["live_blocks"] == blocks + 1:
                calls[made] += 1
        return done.result()


@contextmanager
def listening(address: str, channel: bytes, count: int) -> Iterator[list[zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets = [context.socket(zmq.SUB) for _ in range(count)]
    try:
        for socket in sockets:
            socket.setsockopt(zmq.SUBSCRIBE, channel)
            socket.connect(address)
        yield sockets
    finally:
        context.destroy(linger=0)


def test_a_block_costs_the_loop_the_same_for_one_listener_and_for_a_hundred(tmp_path: Path) -> None:
    usual: dict[int, int] = {}
    loop, network = open_broker(tmp_path / "data", "tcp://127.0.0.1:*")
    client = beside(loop, lambda: oncemq.connect(network.address))
    topic = beside(loop, lambda: client.admin.create_topic("busy", retain="forever"))
    for count in (1, 10, 100):
        calls: Counter[int] = Counter()
        with listening(network.live_address, channel_of(topic.topic_id), count) as sockets:
            while not all(socket.poll(0) for socket in sockets):
                beside(loop, lambda: client.put("busy", b"does everybody hear this?"))
            beside(loop, lambda: [client.put("busy", b"block") for _ in range(BLOCKS)], calls)
        usual[count] = calls.most_common(1)[0][0]
    beside(loop, client.close)
    loop.stop()
    network.close()

    assert usual[1] == usual[10] == usual[100] > 0

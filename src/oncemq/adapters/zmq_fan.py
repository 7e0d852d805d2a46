# SPDX-License-Identifier: Apache-2.0
"""The barest XPUB and SUB there can be: what fanning out costs without anything of ours around it.

May not: be used by the product. It is the floor that `oncemq bench fanout` measures against.
The idea: the options of adapters/zmq_live.py, and nothing but taking frames. Here and not in cli/: only adapters know ZeroMQ.
Next: cli/benchmarks/bare_ears.py, which holds the many ends.
"""

from __future__ import annotations

import zmq

from oncemq.adapters.zmq_frames import EVENTS, MORE, NOW, READABLE, receive_frames
from oncemq.limits import LIVE_RECEIVE_BACKLOG_PACKETS, LIVE_SEND_BACKLOG_PACKETS

_CHANNEL = b"fan-out:"


class Fan:
    """One socket that says everything once."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.SNDHWM, LIVE_SEND_BACKLOG_PACKETS)
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind("tcp://127.0.0.1:*")
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def await_followers(self, count: int) -> None:
        """Wait until so many have begun to follow."""
        for _ in range(count):
            self._socket.recv()

    def say(self, body: bytes) -> None:
        self._socket.send(_CHANNEL, MORE)
        self._socket.send(body, NOW)

    def close(self) -> None:
        self._socket.close()
        self._context.term()


class FanEar:
    """One socket that hears it."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
        self._socket = context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, LIVE_RECEIVE_BACKLOG_PACKETS)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SUBSCRIBE, _CHANNEL)
        self._socket.connect(address)

    def take(self) -> bool:
        """Take one packet if there is one."""
        if not int(self._socket.get(EVENTS)) & READABLE:
            return False
        receive_frames(self._socket)
        return True


def open_ears(address: str, count: int) -> list[FanEar]:
    """So many ears with one context, as the clients of one process have."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    return [FanEar(context, address) for _ in range(count)]

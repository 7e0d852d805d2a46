# SPDX-License-Identifier: Apache-2.0
"""A client's connection to one broker, for an event loop: the same socket, waited for without stopping the loop.

May not: receive anything while it waits: a wait that is cancelled must leave every packet in the socket.
The idea: ZeroMQ's file descriptor only says "look again", and any call into the socket may use that up. So whoever sends, looks.
Next: adapters/zmq_link.py, client/bridge.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import zmq

from oncemq.adapters.zmq_frames import EVENTS, READABLE
from oncemq.adapters.zmq_link import ZmqLink


class ZmqLoopLink(ZmqLink):
    """A link that can be waited for on asyncio, by one task at a time."""

    _watch: asyncio.Future[None] | None = None

    async def until_readable(self, timeout_ms: int) -> None:
        """Return when there may be something to receive, or when the time is over."""
        if self._is_readable():
            return
        loop, descriptor = asyncio.get_running_loop(), int(self._socket.get(zmq.FD))
        watch = self._watch = loop.create_future()
        loop.add_reader(descriptor, self._look_again)
        try:
            await asyncio.wait((watch,), timeout=timeout_ms / 1000)
        finally:
            loop.remove_reader(descriptor)
            self._watch = None

    def send(self, frames: Sequence[bytes | bytearray | memoryview]) -> bool:
        is_sent = super().send(frames)
        if self._watch is not None and self._is_readable():
            self._look_again()  # Sending has used up the sign that something had arrived.
        return is_sent

    def reset(self) -> None:
        self._look_again()  # Whoever waits on the old socket would wait in vain.
        super().reset()

    def _is_readable(self) -> bool:
        return bool(int(self._socket.get(EVENTS)) & READABLE)

    def _look_again(self) -> None:
        if self._watch is not None and not self._watch.done():
            self._watch.set_result(None)

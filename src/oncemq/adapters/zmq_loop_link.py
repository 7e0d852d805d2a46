# SPDX-License-Identifier: Apache-2.0
"""A client's connection to one broker, for an event loop: the same sockets, waited for without stopping the loop.

May not: receive anything while it waits: a wait that is cancelled must leave every packet in the socket.
The idea: ZeroMQ's file descriptor only says "look again", and any call into the socket may use that up. So whoever calls, looks.
Next: adapters/zmq_link.py and adapters/zmq_live.py, client/bridge.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import zmq

from oncemq.adapters.zmq_frames import EVENTS, READABLE
from oncemq.adapters.zmq_link import ZmqLink
from oncemq.adapters.zmq_live import ZmqLiveLink, as_reached


class Waitable:
    """What makes a socket one that a task can wait for on asyncio; one task at a time."""

    _socket: zmq.Socket[bytes]
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

    def _is_readable(self) -> bool:
        return bool(int(self._socket.get(EVENTS)) & READABLE)

    def _look_again(self) -> None:
        if self._watch is not None and not self._watch.done():
            self._watch.set_result(None)

    def _look_if_readable(self) -> None:
        """After a call into the socket, which may have used up the sign that something had arrived."""
        if self._watch is not None and self._is_readable():
            self._look_again()


class ZmqLoopLink(Waitable, ZmqLink):
    """A link that can be waited for on asyncio."""

    def send(self, frames: Sequence[bytes | bytearray | memoryview]) -> bool:
        is_sent = super().send(frames)
        self._look_if_readable()
        return is_sent

    def reset(self) -> None:
        self._look_again()  # Whoever waits on the old socket would wait in vain.
        super().reset()

    def close(self, *, linger_ms: int = 0) -> None:
        self._look_again()
        super().close(linger_ms=linger_ms)

    def open_live(self, address: str) -> ZmqLoopLiveLink:
        return ZmqLoopLiveLink(self._context, as_reached(address, self._address), lambda: self._socket)


class ZmqLoopLiveLink(Waitable, ZmqLiveLink):
    """A live link that can be waited for on asyncio."""

    def follow(self, channel: bytes) -> None:
        super().follow(channel)
        self._look_if_readable()

    def leave(self, channel: bytes) -> None:
        super().leave(channel)
        self._look_if_readable()

    def close(self) -> None:
        self._look_again()
        super().close()

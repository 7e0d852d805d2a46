# SPDX-License-Identifier: Apache-2.0
"""A client's connection to one broker: a DEALER socket that can be thrown away.

May not: be trusted. Packets vanish with the connection, may come late, or twice; core's machines know.
The idea: `reset` closes the socket with everything queued in it and opens a fresh one (Lazy Pirate done right): an old
connection's packets may still reach the broker, which recognises them by number.
Next: adapters/zmq_network.py for the other end.
"""

from __future__ import annotations

from collections.abc import Sequence

import zmq

from oncemq.adapters.zmq_frames import EVENTS, MORE, NOW, READABLE, let_it_leave, receive_frames
from oncemq.adapters.zmq_live import ZmqLiveLink, as_reached, check_port
from oncemq.errors import UsageError
from oncemq.limits import NETWORK_BACKLOG_PACKETS
from oncemq.ports import Frames


class ZmqLink:
    def __init__(self, address: str) -> None:
        check_port(address)
        self._address = address
        # The process's own context, which outlives every client: one that is collected with its socket open would wait for ever.
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        try:
            self._socket = self._open()
        except zmq.ZMQError as problem:
            raise UsageError(f"{address!r} is not an address ({problem}): use one like tcp://127.0.0.1:5556") from problem

    def _open(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)  # What is not confirmed is in the outbox, not in a closed socket.
        socket.setsockopt(zmq.SNDHWM, NETWORK_BACKLOG_PACKETS)
        socket.setsockopt(zmq.RCVHWM, NETWORK_BACKLOG_PACKETS)
        socket.setsockopt(zmq.RECONNECT_IVL, 20)  # A broker is back in well under a second.
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
        socket.setsockopt(zmq.IPV6, 1)
        try:
            socket.connect(self._address)
        except zmq.ZMQError:
            socket.close()
            raise
        return socket

    def send(self, frames: Sequence[bytes | bytearray | memoryview]) -> bool:
        send = self._socket.send
        try:
            for frame in frames[:-1]:
                send(frame, MORE)
            send(frames[-1], NOW)
        except zmq.Again:
            return False
        let_it_leave()
        return True

    def receive(self, timeout_ms: int) -> Frames | None:
        socket = self._socket
        if not int(socket.get(EVENTS)) & READABLE and (timeout_ms <= 0 or not socket.poll(timeout_ms)):
            return None
        try:
            return receive_frames(socket)
        except zmq.Again:
            return None

    def reset(self) -> None:
        old, self._socket = self._socket, self._open()  # In one step: whatever interrupts this, there is a socket to use.
        old.close()

    def open_live(self, address: str) -> ZmqLiveLink:
        return ZmqLiveLink(self._context, as_reached(address, self._address), lambda: self._socket)

    def close(self, *, linger_ms: int = 0) -> None:
        self._socket.close(linger=linger_ms)

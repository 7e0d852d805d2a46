# SPDX-License-Identifier: Apache-2.0
"""The barest ROUTER and DEALER there can be: what ZeroMQ costs without anything of ours around it.

May not: be used by the product. It is the floor that `oncemq bench latency` measures against.
The idea: blocking calls, no polling, no options but those that let it end. Here and not in cli/: only adapters know ZeroMQ.
Next: cli/benchmarks/echo.py, which runs the two ends in two processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import zmq


def serve_echo(reply: bytes, *, on_bound: Callable[[str], None], before_reply: Callable[[], None]) -> None:
    """Answer every request with `reply`, after calling `before_reply`; an empty request ends it."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.bind("tcp://127.0.0.1:*")
        on_bound(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        while True:
            identity, *frames = socket.recv_multipart()
            if not any(frames):
                return
            before_reply()
            socket.send_multipart([identity, reply])


class EchoCaller:
    """The other end: one request, one answer."""

    def __init__(self, address: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.RCVTIMEO, 10_000)  # A server that died must not hang whoever waits for it.
        self._socket.setsockopt(zmq.LINGER, 1_000)  # Nor may it hold up the end of a process that was interrupted.
        self._socket.connect(address)

    def call(self, frames: Sequence[bytes]) -> None:
        self._socket.send_multipart(frames)
        self._socket.recv_multipart()

    def close(self) -> None:
        """End the server and let go of the socket."""
        self._socket.send_multipart([b""])
        self._socket.close()
        self._context.term()

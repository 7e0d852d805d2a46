# SPDX-License-Identifier: Apache-2.0
"""A client of bare sockets: it says exactly the frames it is told to, right or wrong.

May not: use the client under test.
The idea: what docs/protocol.md says is enough to talk to a broker; this is that, in a few lines.
Next: test_plain_clients.py and test_hostile_packets.py.
"""

from __future__ import annotations

import os
from array import array
from types import TracebackType
from typing import Self, TypeVar

import zmq

from oncemq.core import packets as p
from oncemq.model.block import cut_block
from oncemq.wire.codec import decode, encode

TIMEOUT_MS = 60_000
Answer = TypeVar("Answer", bound=p.Packet)


def block_of(*values: bytes) -> bytes:
    return bytes(cut_block(values, array("q", [1_700_000_000_000_000]) * len(values)))


class Raw:
    """One socket, DEALER or REQ, with a session once it has said hello."""

    def __init__(self, address: str, kind: int = zmq.DEALER, *, routing_id: bytes = b"") -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        if routing_id:
            self.socket.setsockopt(zmq.ROUTING_ID, routing_id)
        self.socket.connect(address)
        self.session = b""
        self._request = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.socket.close()
        self._context.term()

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def receive(self) -> list[bytes]:
        """The frames of the next answer; fails if none comes."""
        assert self.socket.poll(TIMEOUT_MS), "no answer"
        return self.socket.recv_multipart()

    def say(self, packet: p.Packet, *blocks: bytes) -> tuple[p.Packet, list[bytes]]:
        """Say a packet and return the answer to it, with the frames behind it."""
        self._request += 1
        self.send(encode(self._request, packet), *blocks)
        frames = self.receive()
        request, answer = decode(frames[0])
        assert request == self._request
        return answer, frames[1:]

    def ask(self, packet: p.Packet, kind: type[Answer], *blocks: bytes) -> Answer:
        """Say a packet that must be answered by one of that kind."""
        answer, _ = self.say(packet, *blocks)
        assert isinstance(answer, kind), answer
        return answer

    def refused(self, packet: p.Packet, *blocks: bytes) -> str:
        """Say a packet that must be refused; return the code."""
        return self.ask(packet, p.Refused, *blocks).code

    def is_silent(self) -> bool:
        """Whether nothing was answered before the broker answered somebody else who asked later."""
        return not self.socket.poll(0)

    def hello(self, client: str = "") -> p.Welcome:
        """Open a session, as a client nobody has heard of unless one is named; said again, it is the same session."""
        self.session = self.session or os.urandom(16)
        return self.ask(p.Hello(client or self.session.hex(), self.session), p.Welcome)

    def put(self, number: int, *topics: str, block: bytes, count: int = 1) -> p.PutDone:
        return self.ask(p.Put(self.session, self.session, number, count, topics), p.PutDone, block)

# SPDX-License-Identifier: Apache-2.0
"""A whole client without the library, written from docs/protocol.md and docs/journal-format.md alone: port it to your language.

It imports nothing of oncemq: a ZeroMQ socket, msgpack and a CRC32C are all it takes. It is a plain request-reply client
without a state directory, so it repeats after a crash what it had not finished; docs/protocol.md says what a directory adds.

    oncemq serve data &
    python examples/another_language.py tcp://127.0.0.1:5556
"""

from __future__ import annotations

import os
import struct
import sys
import time
from itertools import pairwise
from typing import Any

import msgspec
import zmq
from crc32c import crc32c

HELLO, PUT, SUBSCRIBE, GET = 1, 3, 4, 6
REFUSED = 127


class PlainClient:
    def __init__(self, address: str, name: str) -> None:
        self.socket = zmq.Context.instance().socket(zmq.REQ)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, 10_000)
        self.socket.connect(address)
        self.request = 0
        self.last_number = 0
        self.command = 0
        self.session = os.urandom(16)
        self.ask(HELLO, [name, self.session, bytes(16), [], [], [], True])  # True: ephemeral, and so its name says.

    def ask(self, kind: int, fields: list[Any], *frames: bytes) -> tuple[list[Any], bytes]:
        """One packet out, its answer back: eight fixed bytes, then one msgpack array; blocks in a second frame."""
        self.request += 1
        head = struct.pack("<BBHI", 1, kind, 0, self.request)
        self.socket.send_multipart([head + msgspec.msgpack.encode(fields), *frames])
        answer = self.socket.recv_multipart()
        found: list[Any] = msgspec.msgpack.decode(answer[0][8:])
        if answer[0][1] == REFUSED:
            raise SystemExit(f"refused: {found[0]}: {found[1]}")
        return found, answer[1] if len(answer) > 1 else b""

    def subscribe(self, topic: str) -> list[Any]:
        self.command += 1
        answer, _ = self.ask(SUBSCRIBE, [self.session, self.command, topic, "earliest", 0, "broker"])
        return list(answer[1])  # subscription_id, topic, topic_id, authority, start, cursor, low, end

    def put(self, topic: str, values: list[bytes]) -> None:
        """Numbers go up by one per message. To repeat after a lost answer, send the same bytes under the same numbers."""
        first = self.last_number + 1
        self.ask(PUT, [self.session, self.session, first, len(values), [topic]], block_of(values))
        self.last_number += len(values)

    def get(self, subscription: list[Any], offset: int) -> list[tuple[int, bytes]]:
        """Messages from `offset` on; asking from there also says that everything below is finished."""
        want = [subscription[0], subscription[2], offset, offset]
        _, records = self.ask(GET, [self.session, [want], 1 << 20, 2_000, "broker"])
        return [message for message in messages_of(records) if message[0] >= offset]


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def block_of(values: list[bytes]) -> bytes:
    """Head, publish times, then the value column: offsets and bytes, each padded to a multiple of eight."""
    count, data = len(values), b"".join(values)
    ends = [sum(map(len, values[:index])) for index in range(count + 1)]
    body = struct.pack("<IIII", len(data), 0, 0, 0) + struct.pack(f"<{count}q", *[time.time_ns() // 1_000] * count)
    body += padded(struct.pack(f"<{count + 1}i", *ends)) + padded(data)
    head = struct.pack("<BBHII", 1, 0, 0, count, 16 + len(body))
    return head + struct.pack("<I", crc32c(body, crc32c(head))) + body


def messages_of(records: bytes) -> list[tuple[int, bytes]]:
    """Walk over stored records: frame (16 bytes), header, block, padding."""
    found, at = [], 0
    while at < len(records):
        length, _, header_length, crc = struct.unpack_from("<I4sII", records, at)
        header = records[at + 16 : at + 16 + header_length]
        if crc32c(header, crc32c(records[at : at + 12])) != crc:
            raise SystemExit("a record arrived damaged: ask again")
        first_offset = struct.unpack_from("<q", header, 88)[0]
        block = records[at + 16 + header_length : at + 16 + length]
        found += [(first_offset + index, value) for index, value in enumerate(values_of(block))]
        at += 16 + length + -length % 8
    return found


def values_of(block: bytes) -> list[bytes]:
    count = struct.unpack_from("<I", block, 4)[0]
    offsets = struct.unpack_from(f"<{count + 1}i", block, 32 + 8 * count)
    data = 32 + 8 * count + len(padded(bytes(4 * (count + 1))))
    return [block[data + start : data + end] for start, end in pairwise(offsets)]


def main(address: str) -> None:
    client = PlainClient(address, f"$ephemeral.{os.urandom(8).hex()}")
    subscription = client.subscribe("example.plain")
    client.put("example.plain", [b"one", b"two", b"three"])
    offset = subscription[5]
    for number, value in client.get(subscription, offset):
        print(number, value.decode())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:5556")

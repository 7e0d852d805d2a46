# SPDX-License-Identifier: Apache-2.0
"""A bad line: a TCP proxy between clients and broker that delays, slices and resets what passes.

May not: change, repeat or drop a byte inside a connection: TCP does not either. Connections it may end at any time.
The idea: orders come as lines on stdin ("delay 50", "slice 3", "reset", "calm"), and it ends with it.
Run as `python -m oncemq.cli.torturing.proxy PORT TARGET_HOST TARGET_PORT`.
Next: nemesis.py, which gives the orders.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from contextlib import suppress
from random import Random

_CHUNK_BYTES = 64 * 1024
_SLICED_BYTES = 4096
"""A sliced line sends this much of each chunk in small pieces; the rest follows whole, or nothing would ever end."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Line:
    """What happens to bytes right now, and the connections it happens to."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)  # noqa: S311 - a fault, not a secret
        self._delay_ms = 0
        self._slice_bytes = 0
        self._writers: set[asyncio.StreamWriter] = set()

    def obey(self, order: str) -> None:
        word, _, number = order.partition(" ")
        match word:
            case "delay":
                self._delay_ms = int(number)
            case "slice":
                self._slice_bytes = int(number)
            case "reset":
                self._reset()
            case "calm":
                self._delay_ms = self._slice_bytes = 0

    def _reset(self) -> None:
        """End every connection with a reset instead of a goodbye."""
        for writer in list(self._writers):
            end = writer.get_extra_info("socket")
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes one way until either end goes."""
        self._writers.add(writer)
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                if self._delay_ms:
                    await asyncio.sleep(self._random.random() * self._delay_ms / 1000)
                await self._write(writer, chunk)
        except OSError:
            pass  # A connection that ended is what this is for.
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _write(self, writer: asyncio.StreamWriter, chunk: bytes) -> None:
        size = self._slice_bytes
        if size:
            for start in range(0, min(len(chunk), _SLICED_BYTES), size):
                writer.write(chunk[start : min(start + size, _SLICED_BYTES)])
                await writer.drain()
                await asyncio.sleep(0)
            chunk = chunk[_SLICED_BYTES:]
        writer.write(chunk)
        await writer.drain()


async def serve(port: int, host: str, target_port: int) -> None:
    line = Line(f"{port}")

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, target_port)
        except OSError:
            writer.close()  # Nobody is there, and whoever asked shall know.
            return
        _without_delay(writer)
        _without_delay(far_writer)
        await asyncio.gather(line.carry(reader, far_writer), line.carry(far_reader, writer))

    async with await asyncio.start_server(on_connection, "127.0.0.1", port):
        print("ready", flush=True)
        orders = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        while order := await orders.readline():
            line.obey(order.decode().strip())
    # Connections that are still open end with the process.


def _without_delay(writer: asyncio.StreamWriter) -> None:
    """Send small pieces as they are: the kernel would put slices together again."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def main() -> None:
    port, host, target_port = sys.argv[1:]
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(int(port), host, int(target_port)))


if __name__ == "__main__":
    main()

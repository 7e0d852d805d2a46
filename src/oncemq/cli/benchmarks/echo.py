# SPDX-License-Identifier: Apache-2.0
"""The floor under `bench latency`: one bare round trip between two processes, with one write and one fdatasync on the way.

May not: do less than a durable put must: frames of the same sizes, and the bytes the broker's journal writes for one put.
The idea: run as a module this is the server; `Echo` starts it and calls it.

    python -m oncemq.cli.benchmarks.echo DIRECTORY GROUP_BYTES REPLY_BYTES

Next: latency.py, which takes turns with it.
"""

from __future__ import annotations

import json
import os
import sys

from oncemq.adapters.os_disk import OsDisk
from oncemq.adapters.starter import end_with_starter
from oncemq.adapters.zmq_echo import EchoCaller, serve_echo
from oncemq.cli.benchmarks.workplace import Workplace, read_first_line
from oncemq.limits import SEGMENT_BYTES


class Echo:
    """A running echo server and a caller of it. Requests have the sizes of a Put's frames."""

    def __init__(self, place: Workplace, *, group_bytes: int, reply_bytes: int, request_sizes: tuple[int, int]) -> None:
        self._frames = [os.urandom(size) for size in request_sizes]
        sizes = (str(group_bytes), str(reply_bytes))
        process = place.start_python("-m", "oncemq.cli.benchmarks.echo", str(place.directory / "echo"), *sizes)
        self._caller = EchoCaller(str(read_first_line(process)["address"]))

    def call(self) -> None:
        self._caller.call(self._frames)

    def close(self) -> None:
        """End the server too; the workplace would anyway."""
        self._caller.close()


def serve(directory: str, group_bytes: int, reply_bytes: int) -> None:
    """Write and sync `group_bytes` for every request, one behind the other as a journal does, then answer."""
    file = OsDisk(directory).open("echo", create=True)
    file.allocate(SEGMENT_BYTES)
    file.sync()
    parts, position = [os.urandom(group_bytes)], 0

    def write_and_sync() -> None:
        nonlocal position
        file.write(position, parts)
        file.sync()
        position = (position + group_bytes) % (SEGMENT_BYTES - group_bytes)

    def say(address: str) -> None:
        print(json.dumps({"address": address, "pid": os.getpid()}), flush=True)

    serve_echo(bytes(reply_bytes), on_bound=say, before_reply=write_and_sync)
    file.close()


if __name__ == "__main__":
    end_with_starter()
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

# SPDX-License-Identifier: Apache-2.0
"""The listeners of `bench fanout`: one process that holds many subscribers, each with its own id, directory and live socket.

May not: count a block that does not continue the one before, or outlive whoever started it.
The idea: subscribers take turns in one thread; each writes how far it is into its own eight bytes of a shared file.

    python -m oncemq.cli.benchmarks.ears ADDRESS DIRECTORY FIRST COUNT

Next: fanout.py, which starts these and reads the file.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from pathlib import Path

import oncemq
from oncemq.cli.benchmarks.workplace import TOPIC

PROGRESS = "progress"
TURN_BLOCKS = 48
"""Blocks one subscriber takes before it is the next one's turn."""


def open_progress(directory: Path) -> mmap.mmap:
    with (directory / PROGRESS).open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def listen_for_ever(address: str, directory: Path, first: int, count: int) -> None:
    """Subscribe, say so, and take blocks until the process is ended."""
    progress = open_progress(directory)
    names = [f"ear-{number}" for number in range(first, first + count)]
    clients = [oncemq.connect(address, id=name, state=directory / name) for name in names]
    for client in clients:
        client.subscribe(TOPIC)
    listeners = [client.listen_blocks(TOPIC) for client in clients]
    for listener in listeners:
        listener.next(timeout=0)
    print(json.dumps({"address": address, "pid": os.getpid()}), flush=True)
    places = [0] * count
    while os.getppid() > 1:
        for number, listener in enumerate(listeners):
            place = places[number]
            for _ in range(TURN_BLOCKS):
                block = listener.next(timeout=0)
                if block is None:
                    break
                if block.first_offset != place:
                    raise oncemq.UsageError(f"expected message {place}, got {block.first_offset}")
                place = block.end_offset
            if place != places[number]:
                places[number] = place
                progress[8 * (first + number) : 8 * (first + number) + 8] = place.to_bytes(8, "little")


if __name__ == "__main__":
    listen_for_ever(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))

# SPDX-License-Identifier: Apache-2.0
"""The floor under `bench fanout`: as many bare sockets in as many processes, which take the same packets and no more.

May not: decode, check, write or hand out anything.
The idea: as ears.py, whose shape and turns it has: how far each is, in packets, goes into its own eight bytes of a shared file.

    python -m oncemq.cli.benchmarks.bare_ears ADDRESS DIRECTORY FIRST COUNT

Next: fanout.py, which starts these and says everything once.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from oncemq.adapters.zmq_fan import open_ears
from oncemq.cli.benchmarks.ears import TURN_BLOCKS, open_progress


def listen_for_ever(address: str, directory: Path, first: int, count: int) -> None:
    """Take packets until the process is ended."""
    progress, ears, places = open_progress(directory), open_ears(address, count), [0] * count
    print(json.dumps({"address": address, "pid": os.getpid()}), flush=True)
    while os.getppid() > 1:
        for number, ear in enumerate(ears):
            place = places[number]
            for _ in range(TURN_BLOCKS):
                if not ear.take():
                    break
                place += 1
            if place != places[number]:
                places[number] = place
                progress[8 * (first + number) : 8 * (first + number) + 8] = place.to_bytes(8, "little")


if __name__ == "__main__":
    listen_for_ever(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))

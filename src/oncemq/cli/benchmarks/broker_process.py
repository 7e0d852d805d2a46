# SPDX-License-Identifier: Apache-2.0
"""A broker and nothing else, for benchmarks.

May not: be used by anybody else: `oncemq serve` is the command.
Next: workplace.py, which starts it.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from oncemq.client.broker import open_broker


def main(directory: str) -> None:
    """Serve until SIGTERM."""
    loop, network = open_broker(directory, "tcp://127.0.0.1:*")
    print(json.dumps({"address": network.address, "pid": os.getpid()}), flush=True)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    while not stopping and loop.step(50):
        pass
    loop.stop()
    network.close()


if __name__ == "__main__":
    main(sys.argv[1])

# SPDX-License-Identifier: Apache-2.0
"""The load under which `bench restart` kills its broker: a publisher that puts until it is killed itself.

May not: outlive its broker for long: a put that stays unconfirmed ends it.
The idea: a process, not a thread: nobody can tell a thread that its broker will not come back to that address.

    python -m oncemq.cli.benchmarks.load ADDRESS STATE_DIRECTORY

Next: restart.py, which starts and ends it.
"""

from __future__ import annotations

import json
import os
import sys

import oncemq
from oncemq.adapters.starter import end_with_starter
from oncemq.cli.benchmarks.workplace import TOPIC, repeated, values_of

VALUE_BYTES = 1_024
BLOCK_MESSAGES = 1_000
_PUT_BLOCKS = 20


def put_for_ever(address: str, state: str) -> None:
    """Put blocks, a few in flight at any time; say so once the first are confirmed."""
    values = repeated(values_of(VALUE_BYTES), _PUT_BLOCKS * BLOCK_MESSAGES)
    with oncemq.connect(address, id=f"load-{os.getpid()}", state=state) as client:
        client.put_many(TOPIC, values)
        print(json.dumps({"address": address, "pid": os.getpid()}), flush=True)
        while True:
            client.put_many(TOPIC, values)


if __name__ == "__main__":
    end_with_starter()
    put_for_ever(sys.argv[1], sys.argv[2])

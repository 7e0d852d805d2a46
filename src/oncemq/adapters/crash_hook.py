# SPDX-License-Identifier: Apache-2.0
"""Lets a real process die at a named crash point: ONCEMQ_CRASH_AT=broker.after_sync:3 is "at the third time".

May not: be reachable without that environment variable.
The idea: `os._exit` is as abrupt as kill -9: no flush, no finally, no goodbye.
Next: crashpoints.py for the names.
"""

from __future__ import annotations

import os

from oncemq.crashpoints import NODE_POINTS, POINTS, install
from oncemq.errors import UsageError

VARIABLE = "ONCEMQ_CRASH_AT"
EXIT_CODE = 137


def install_from_environment() -> None:
    """Arm the crash point named in the environment, if any."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    name, _, times = wanted.partition(":")
    if name not in (*POINTS, *NODE_POINTS) or not (times or "1").isdigit():
        raise UsageError(f"{VARIABLE}={wanted!r}: use NAME or NAME:COUNT with one of {', '.join(POINTS)}")
    remaining = int(times or "1")

    def hook(reached: str) -> None:
        nonlocal remaining
        if reached == name:
            remaining -= 1
            if remaining == 0:
                os._exit(EXIT_CODE)

    install(hook)

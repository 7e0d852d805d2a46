# SPDX-License-Identifier: Apache-2.0
"""Has a process end with the one that started it: what a demo or a trial starts is of no use once that was killed.

May not: end a process that was not told to in its environment: a broker of yours outlives the shell it was started from.
The idea: Linux kills a process whose parent ends, if it asks for that, also one that stands still. Asking is the first thing it
does, and may be too late: so it looks whether its parent is still the one that it was told.
Next: cli/torturing/processes.py, which starts such processes.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "ONCEMQ_ENDS_WITH"
_PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def ends_with_us() -> dict[str, str]:
    """What to add to the environment of a process that ends with this one. Start it in a thread that lives as long."""
    return {VARIABLE: str(os.getpid())}


def end_with_starter() -> None:
    """From here on this process ends with its parent, if it was told to."""
    starter = os.environ.pop(VARIABLE, "")  # Whoever is started from here on has another parent.
    if not starter:
        return
    import ctypes  # noqa: PLC0415 - slow to load, and most processes were told nothing

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if str(os.getppid()) != starter:
        os._exit(1)

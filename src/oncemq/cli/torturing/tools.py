# SPDX-License-Identifier: Apache-2.0
"""Running the system's own tools (mount, ip, tc, strace) and saying why one of them does not work here.

May not: hide a failure: whatever a machine does not allow becomes a sentence in the report.
Next: store.py and wires.py, which need them.
"""

from __future__ import annotations

import subprocess

_PATIENCE_S = 30.0


class NotPossible(Exception):
    """This machine does not allow it; the text says why."""


def do(*command: str) -> str:
    """Run a tool to its end, Ctrl-C or not, and return what it says; NotPossible with its own words if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed tools with arguments of ours
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False, start_new_session=True
        )
    except (FileNotFoundError, PermissionError):
        raise NotPossible(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise NotPossible(f"{command[0]} does not come back") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise NotPossible(f"'{' '.join(command[:4])} …' says: {words[-1] if words else f'exit code {done.returncode}'}")
    return done.stdout

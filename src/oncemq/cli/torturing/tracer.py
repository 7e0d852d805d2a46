# SPDX-License-Identifier: Apache-2.0
"""Input/output errors for a running process: strace attaches to it and has its next write or sync fail.

May not: trace anything but a process of the run, or hold on to it longer than for that one call.
The idea: the call is not carried out and returns EIO, so the process is told the truth: it is not on the disk.
Next: nemesis.py, which decides when.
"""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

from oncemq.cli.torturing.processes import Child
from oncemq.cli.torturing.tools import NotPossible

_CALL_S = 2.0
_PROBE_S = 0.5


def fail_next_call(child: Child, call: str, directory: Path) -> None:
    """Have the next `call` of a process fail with EIO; come back when it ended, or did not call in time."""
    _trace(child, ["-e", f"trace={call}", "-e", f"inject={call}:error=EIO:when=1"], directory, _CALL_S)


def check_tracing(child: Child, directory: Path) -> None:
    """Find out whether a process can be traced here at all."""
    if shutil.which("strace") is None:
        raise NotPossible("strace is not installed")
    if not _trace(child, ["-e", "inject=fdatasync:error=EIO:when=60000"], directory, _PROBE_S):
        raise NotPossible(f"strace cannot attach: {(directory / 'errors' / 'strace.log').read_text().strip()[-200:]}")


def _trace(child: Child, options: list[str], directory: Path, seconds: float) -> bool:
    """Trace until the process ends or the time is over; whether the tracer held out that long."""
    command = ["strace", "-f", "-qq", "-o", "/dev/null", *options, "-p", str(child.pid)]
    strace = Child("strace", command, directory / "errors" / "strace.log")
    try:
        deadline = time.monotonic() + seconds
        while child.code is None and strace.code is None and time.monotonic() < deadline:
            time.sleep(0.005)
        held_out = strace.code is None or child.code is not None
        strace.signal(signal.SIGTERM)  # So that it lets go of the process before it ends.
        strace.wait()
    finally:
        strace.close()
    return held_out

# SPDX-License-Identifier: Apache-2.0
"""Every exit code of `oncemq`, and which error ends in which.

May not: be written anywhere else; `oncemq --help` prints this table and a test compares docs/commands.md with it.
The idea: a script branches on the number, a person reads the line on stderr, a program reads the error's name with --json.
Next: output.py, which says it; errors.py for the tree of what can go wrong.
"""

from __future__ import annotations

import re
from enum import IntEnum

from oncemq import errors


class Exit(IntEnum):
    """How a command can end."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    TOLD = 5
    PENDING = 6
    DIRECTORY = 7
    DISK = 8
    INTERRUPTED = 130


MEANINGS: dict[Exit, str] = {
    Exit.OK: "done",
    Exit.FAILED: "nothing there (no messages), or it failed",
    Exit.USAGE: "the command or a name in it is wrong; nothing was sent",
    Exit.UNREACHABLE: "no answer from the broker",
    Exit.REFUSED: "the broker said no",
    Exit.TOLD: "told: in doubt, gap, damaged, diverged or state lost",
    Exit.PENDING: "the put is not confirmed yet; do not put it again",
    Exit.DIRECTORY: "the directory is locked, unusable, too new or damaged",
    Exit.DISK: "the disk failed or is full",
    Exit.INTERRUPTED: "interrupted from the keyboard",
}

_BY_ERROR: tuple[tuple[type[errors.OnceMQError], Exit], ...] = (
    (errors.UsageError, Exit.USAGE),
    (errors.BrokerUnreachable, Exit.UNREACHABLE),
    (errors.Refused, Exit.REFUSED),
    (errors.TransactionError, Exit.REFUSED),
    (errors.PutPending, Exit.PENDING),
    (errors.Told, Exit.TOLD),
    (errors.DirectoryLocked, Exit.DIRECTORY),
    (errors.DirectoryUnusable, Exit.DIRECTORY),
    (errors.DirectoryTooNew, Exit.DIRECTORY),
    (errors.JournalDamaged, Exit.DIRECTORY),
    (errors.SyncFailed, Exit.DISK),
    (errors.DiskFull, Exit.DISK),
)
"""The first line that fits decides."""


def exit_of(error: errors.OnceMQError) -> Exit:
    """Return the exit code an error ends in."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILED)


def name_of(error: errors.OnceMQError) -> str:
    """Return the stable name of an error: the refusal's code, or the class as snake_case."""
    if isinstance(error, errors.Refused):
        return error.code
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()


def table_text() -> str:
    """The table as `oncemq --help` shows it."""
    rows = [f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items()]
    return "\n".join(["Exit codes:", *rows])

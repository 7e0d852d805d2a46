# SPDX-License-Identifier: Apache-2.0
"""`oncemq inspect`: everything a data directory says, as JSON that people can read.

May not: change or lock anything; it may run beside the broker.
Next: journal/inspect.py, which reads the directory.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from oncemq.cli.options import DataDirectory, Json
from oncemq.cli.output import json_text, output_of
from oncemq.errors import JournalDamaged

if TYPE_CHECKING:
    from oncemq.adapters.read_only_disk import ReadOnlyDisk

_TRIES = 10


def inspect(context: typer.Context, directory: DataDirectory, _json: Json = False) -> None:
    """Print the whole state of a data directory: topics, subscriptions, cursors, clients, put streams, starts, files.

    It only reads, so it may run beside the broker. With --json everything is on one line.

    oncemq inspect data
    oncemq inspect data --json | jq .topics
    """
    from oncemq.adapters.read_only_disk import ReadOnlyDisk

    output = output_of(context)
    disk = ReadOnlyDisk(directory)
    found = _looked_into(disk)
    shown = {"directory": str(directory), "running": disk.is_locked()} | found
    output.line(json_text(shown) if output.is_json else json.dumps(shown, indent=2, ensure_ascii=False))


def _looked_into(disk: ReadOnlyDisk) -> dict[str, object]:
    """Read the directory. Beside a running broker files come and go, so a look that failed is tried again."""
    from oncemq.journal.inspect import look_into

    for _ in range(_TRIES if disk.is_locked() else 0):
        try:
            return look_into(disk)
        except (FileNotFoundError, JournalDamaged):
            continue
    return look_into(disk)

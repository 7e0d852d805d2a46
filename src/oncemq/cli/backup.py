# SPDX-License-Identifier: Apache-2.0
"""`oncemq backup`: copy a stopped broker's data directory, durably, so that the copy can be served.

May not: copy what a broker is writing: the directory is locked while it is copied.
Next: journal/backup.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oncemq.cli.options import DataDirectory, Json
from oncemq.cli.output import output_of
from oncemq.errors import DirectoryUnusable


def backup(
    context: typer.Context,
    directory: DataDirectory,
    target: Annotated[Path, typer.Argument(metavar="TO", help="A new or empty directory for the copy.")],
    _json: Json = False,
) -> None:
    """Copy the data directory of a stopped broker. An interrupted copy cannot be mistaken for a whole one.

    Whoever is served from the copy later is told that history went back (diverged): what came after it is not in it.

    oncemq backup data /backup/2026-08-01
    """
    from oncemq.adapters.os_disk import OsDisk
    from oncemq.journal.backup import copy_to
    from oncemq.journal.recovery import read_identity

    source = OsDisk(directory, create=False)
    if read_identity(source) is None:  # Looked at before the target is made.
        raise DirectoryUnusable(str(directory), "there is no journal in it")
    copied = copy_to(source, OsDisk(target))
    row = {"directory": str(directory), "target": str(target), "bytes": copied}
    output_of(context).result(row, f"{directory} copied to {target}: {copied:,} bytes; check it with 'oncemq verify {target}'")

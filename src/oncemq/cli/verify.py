# SPDX-License-Identifier: Apache-2.0
"""`oncemq verify`: check every checksum of a data directory, without changing a byte.

May not: write, lock, or stop at the first problem.
Next: journal/verify.py, which does the checking.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from oncemq.cli.exits import Exit
from oncemq.cli.options import DataDirectory, Json
from oncemq.cli.output import Output, output_of

if TYPE_CHECKING:
    from oncemq.adapters.read_only_disk import ReadOnlyDisk
    from oncemq.journal.finding import Finding


def verify(context: typer.Context, directory: DataDirectory, _json: Json = False) -> int:
    """Check a stopped broker's data directory, or a client's state directory: every checksum, and whether anything is missing.

    Exit code 7 if anything is wrong.

    oncemq verify data
    oncemq verify ~/.local/state/oncemq/clients/127.0.0.1_5556/billing
    """
    from oncemq.adapters.read_only_disk import ReadOnlyDisk

    output = output_of(context)
    disk = ReadOnlyDisk(directory)
    if disk.is_locked():
        output.warn("a broker is using this directory: files may change while they are read; stop it for a sound answer")
    findings = list(_watched(output, disk))
    problems = [finding for finding in findings if finding.problem]
    remarks = [finding for finding in findings if finding.remark]
    checked = sum(finding.bytes_checked for finding in findings)
    files = len(findings) - len(remarks)
    row = {
        "directory": str(directory),
        "files": files,
        "bytes": checked,
        "problems": [{"file": each.name, "position": each.position, "problem": each.problem} for each in problems],
        "remarks": [{"file": each.name, "remark": each.remark} for each in remarks],
    }
    for each in remarks:
        output.note(f"{each.name}: {each.remark}")
    for each in [] if output.is_json else problems:
        output.failure("damaged", f"{each.name} at byte {each.position}: {each.problem}")
    verdict = f"{len(problems)} of them damaged" if problems else "nothing is wrong"
    output.result(row, f"{files} files, {checked:,} bytes: {verdict}")
    return Exit.DIRECTORY if problems else Exit.OK


def _watched(output: Output, disk: ReadOnlyDisk) -> Iterator[Finding]:
    """Yield the findings, with a bar on the terminal: large journals take a while."""
    from oncemq.core.state import BrokerState
    from oncemq.journal.verify import verify as findings_of

    if not output.has_watcher:
        yield from findings_of(disk, BrokerState())
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=output.console(stderr=True), transient=True) as progress:
        sizes = disk.sizes()
        task = progress.add_task("checking", total=sum(sizes.values()))
        for finding in findings_of(disk, BrokerState()):
            progress.update(task, advance=sizes.pop(finding.name, 0), description=finding.name)
            yield finding

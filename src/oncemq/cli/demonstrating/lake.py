# SPDX-License-Identifier: Apache-2.0
"""Spark's part of `oncemq demo`: the topic becomes a Delta table while it grows; then the audit reads all histories.

May not: be told how many messages there are. It reads the broker, the table and the histories.
The idea: one process with one Spark for both, because starting it takes longer than either.
Run as `python -m oncemq.cli.demonstrating.lake DIRECTORY ADDRESS REPORT`; says "ready", and in the end one Findings as JSON.
Next: pipeline/archive.py and pipeline/audit.py, which do the work.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from oncemq.adapters.starter import end_with_starter
from oncemq.cli.demonstrating.director import LAKE_ROWS, Facts
from oncemq.cli.demonstrating.roles import TOPIC
from oncemq.cli.pipeline_spark import start_spark
from oncemq.cli.torturing.roles import MAY_END
from oncemq.errors import BrokerUnreachable
from oncemq.limits import ARCHIVE_POLL_MS

if TYPE_CHECKING:
    from oncemq.pipeline.audit import Audit

FACTS = "facts.json"
"""A file of the demo's directory: what the director saw. Its being there means that everybody is done."""
_MASTER = "local[2]"


class Findings(msgspec.Struct, frozen=True):
    """What Spark found."""

    put: int
    confirmed: int
    rows: int
    violations: int
    subscriptions: dict[str, dict[str, int]]
    seconds: float
    page: str


def archive(directory: Path, address: str, spark: object) -> None:
    """Have the table follow the topic until no more will come and it has all."""
    from oncemq.pipeline.archive import Archive, on_spark
    from oncemq.pipeline.archive_tables import open_table

    table = open_table(directory / "lake", "delta")
    rows = 0
    with Archive(address, [TOPIC], table, on_spark(spark), subscription="lake") as running:  # type: ignore[arg-type]
        print("ready", flush=True)
        while True:
            is_last = (directory / MAY_END).exists()
            try:
                done = running.step()
            except BrokerUnreachable:
                continue  # It was killed: it will be back.
            rows += done
            _tell(directory, rows)
            if is_last and not done:
                return
            if not done:
                time.sleep(ARCHIVE_POLL_MS / 1000)


def _tell(directory: Path, rows: int) -> None:
    """In one step, so that whoever looks sees a number."""
    draft = directory / f"{LAKE_ROWS}.new"
    draft.write_text(str(rows))
    draft.rename(directory / LAKE_ROWS)


def judge(directory: Path, spark: object, report: Path) -> Findings:
    from oncemq.pipeline.audit import audit
    from oncemq.pipeline.demo_page import write_demo_page

    started = time.monotonic()
    found = audit(spark, [str(directory / "histories")], archive=directory / "lake")  # type: ignore[arg-type]
    seconds = time.monotonic() - started
    facts = msgspec.json.decode((directory / FACTS).read_bytes(), type=Facts)
    page = write_demo_page(found, msgspec.to_builtins(facts), report)
    rows = int((directory / LAKE_ROWS).read_text())
    totals = found.totals
    return Findings(totals.put, totals.confirmed, rows, found.violations, _by_subscription(found), seconds, str(page))


def _by_subscription(found: Audit) -> dict[str, dict[str, int]]:
    """Got, lost, twice and in doubt of each subscription."""
    names = {"lost": "lost", "duplicated": "twice"}
    figures: dict[str, dict[str, int]] = {}
    for verdict in found.verdicts:
        if verdict.law == "deliveries" and verdict.subscription:
            row = figures.setdefault(verdict.subscription, {"got": 0, "lost": 0, "twice": 0, "in_doubt": 0})
            row["got"] = max(row["got"], verdict.checked)
            if verdict.verdict in names:
                row[names[verdict.verdict]] += verdict.violations
    for name, count in found.in_doubt.items():
        figures.setdefault(name, {"got": 0, "lost": 0, "twice": 0})["in_doubt"] = count
    return figures


def main() -> None:
    end_with_starter()
    directory, address, report = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    spark = start_spark(_MASTER)
    archive(directory, address, spark)
    while not (directory / FACTS).exists():
        time.sleep(0.05)
    print(json.dumps(msgspec.to_builtins(judge(directory, spark, report))), flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The two forms of an archive: a Delta table, and plain Parquet files with a small file that says how far they count.

May not: add a row twice. The table is its own checkpoint (R23): what is committed and how far it goes is one atomic write.
The idea: a Delta commit carries, per log and topic id, a transaction whose version is the end offset. Delta checks nothing of
that by itself, so the version is compared on the very handle that commits: if somebody else committed meanwhile, delta-rs finds
the conflict. Bookmarks ride along in the commit, so that a restored broker is told from the one that was archived.
Next: archive.py for the order of things; archive_files.py for the files.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from oncemq.errors import OnceMQError, UsageError
from oncemq.pipeline.archive_files import PARTITIONS, SCHEMA, Written, sync_all
from oncemq.pipeline.offsets import Offsets, from_json

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction

_METADATA = "oncemq"
_DELTA_LOG = "_delta_log"
_RECENT = 50
"""Commits looked through for bookmarks before the whole history is."""


class AnotherWriter(OnceMQError):
    """Somebody else has added to this archive since it was opened."""

    def __init__(self, place: str, what: str) -> None:
        self.place, self.what = place, what
        super().__init__(f"{place}: {what}; nothing was added. Let one archive at a time write to it, and start this one again")


class Table(Protocol):
    """Where an archive is kept."""

    place: Path

    def load(self) -> Offsets | None:
        """How far each topic is archived; None if nothing is."""

    def commit(self, files: Sequence[Written], before: Offsets, after: Offsets) -> None:
        """Add files, and say how far it goes now, at once and durably."""

    def compact(self) -> int:
        """Merge small files; return how many are gone."""

    def files(self, version: int | None = None) -> list[str]:
        """All files that count."""

    def version(self) -> int:
        """Which state of the table this is."""


def open_table(place: Path, form: str) -> Table:
    """Open or begin an archive: `delta` or `parquet`. The other form in the same place is refused."""
    is_delta, is_parquet = (place / _DELTA_LOG).is_dir(), (place / ParquetFiles.MANIFEST).exists()
    if (form == "delta" and is_parquet) or (form == "parquet" and is_delta):
        raise UsageError(f"{place} is an archive of the other format: use --format {'delta' if is_delta else 'parquet'}")
    if not is_delta and not is_parquet and place.exists() and any(place.iterdir()):
        raise UsageError(f"{place} is not empty and no archive: use a new directory")
    table = DeltaLake(place.absolute()) if form == "delta" else ParquetFiles(place.absolute())
    table.create()  # Before anything else lies there, so that the next start knows what this is.
    return table


def find_table(place: Path) -> Table:
    """Open an archive that exists, whatever its form."""
    if (place / _DELTA_LOG).is_dir():
        return DeltaLake(place.absolute())
    if (place / ParquetFiles.MANIFEST).exists():
        return ParquetFiles(place.absolute())
    raise UsageError(f"{place} is no archive: make one with 'oncemq pipeline archive --topics ... --to {place}'")


def application(offsets: Offsets, topic_id: int) -> str:
    """Who commits, in Delta's words: one log's topic."""
    return f"oncemq:{offsets.log_id.hex()}:{topic_id}"


class DeltaLake:
    """A Delta table, through delta-rs."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def create(self) -> None:
        from deltalake import DeltaTable  # noqa: PLC0415 - only archives need it

        if not DeltaTable.is_deltatable(str(self.place)):
            DeltaTable.create(self.place, SCHEMA, mode="ignore", partition_by=list(PARTITIONS), name="oncemq archive")
            self._sync(0)

    def _open(self, version: int | None = None) -> DeltaTable:
        from deltalake import DeltaTable  # noqa: PLC0415 - as above

        return DeltaTable(self.place, version=version)

    def load(self) -> Offsets | None:
        table = self._open()
        for limit in (_RECENT, None):
            for commit in table.history(limit):
                if _METADATA in commit:
                    return from_json(json.loads(commit[_METADATA]))
        return None

    def commit(self, files: Sequence[Written], before: Offsets, after: Offsets) -> None:
        from deltalake.exceptions import CommitFailedError  # noqa: PLC0415 - as above

        table = self._open()
        for topic, mark in after.topics.items():
            # Checked and committed on one handle: a commit in between is a conflict that delta-rs sees (and nothing else would).
            self._check(table, topic, before, application(after, mark.topic_id))
        try:
            table.create_write_transaction(
                [_action(file) for file in files],
                "append",
                SCHEMA,
                list(PARTITIONS),
                commit_properties=_properties(after, before),
            )
        except CommitFailedError as problem:
            raise AnotherWriter(str(self.place), f"another commit came between ({problem})") from problem
        self._sync(table.version())

    def _check(self, table: DeltaTable, topic: str, before: Offsets, name: str) -> None:
        known, version = before.topics[topic], table.transaction_version(name)
        if version is not None and version != known.next_offset:
            raise AnotherWriter(str(self.place), f"it has topic {topic!r} up to {version}, not {known.next_offset}")

    def compact(self) -> int:
        from deltalake import WriterProperties  # noqa: PLC0415 - as above

        offsets, table = self.load(), self._open()
        writer = WriterProperties(compression="ZSTD", compression_level=1)
        done = table.optimize.compact(writer_properties=writer, commit_properties=_properties(offsets) if offsets else None)
        self._sync(table.version())
        return int(done["numFilesRemoved"]) - int(done["numFilesAdded"])

    def files(self, version: int | None = None) -> list[str]:
        return sorted(self._open(version).file_uris())

    def version(self) -> int:
        return self._open().version()

    def _sync(self, version: int) -> None:
        """delta-rs leaves that to the operating system; the broker will let go of what is archived."""
        sync_all([self.place / _DELTA_LOG / f"{version:020d}.json"])


def _action(file: Written) -> AddAction:
    from deltalake.transaction import AddAction  # noqa: PLC0415 - as above

    bounds = {"offset": file.first}, {"offset": file.end - 1}
    stats = {"numRecords": file.rows, "minValues": bounds[0], "maxValues": bounds[1], "nullCount": {"offset": 0}}
    partition = {"topic": file.topic, "day": file.day}
    return AddAction(file.path, file.size_bytes, partition, 0, True, json.dumps(stats))


def _properties(after: Offsets, before: Offsets | None = None) -> CommitProperties:
    from deltalake import CommitProperties, Transaction  # noqa: PLC0415 - as above

    moved = [mark for topic, mark in after.topics.items() if before is not None and before.topics.get(topic) != mark]
    transactions = [Transaction(application(after, mark.topic_id), mark.next_offset) for mark in moved]
    # No silent retry: it would commit on another state than the one that was checked.
    return CommitProperties(
        custom_metadata={_METADATA: json.dumps(after.to_json())}, max_commit_retries=0, app_transactions=transactions
    )


class ParquetFiles:
    """Plain files. What counts is in the manifest; files of a broken attempt lie beside it until the next start removes them."""

    MANIFEST = "_oncemq/offsets.json"
    LOCK = "_oncemq/lock"

    def __init__(self, place: Path) -> None:
        self.place = place

    def create(self) -> None:
        if not (self.place / self.MANIFEST).exists():
            self._write({"offsets": None, "files": []})

    def load(self) -> Offsets | None:
        with self._alone():
            document = self._document()
            found = {path.relative_to(self.place).as_posix() for path in self.place.rglob("*.parquet")}
            for leftover in found - set(document["files"]):
                (self.place / leftover).unlink()
        return from_json(document["offsets"]) if document["offsets"] is not None else None

    def commit(self, files: Sequence[Written], before: Offsets, after: Offsets) -> None:
        with self._alone():
            document = self._document()
            if document["offsets"] is not None and document["offsets"] != before.to_json():
                raise AnotherWriter(str(self.place), "its manifest is not the one that was read")
            if not all((self.place / file.path).exists() for file in files):
                # To another archive that was started meanwhile they were leftovers, and it has removed them.
                raise AnotherWriter(str(self.place), "another archive began here while this one was writing")
            self._write({"offsets": after.to_json(), "files": [*document["files"], *(file.path for file in files)]})

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Have the manifest to oneself, from reading to replacing it. The lock of one who dies is gone with him."""
        with (self.place / self.LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def compact(self) -> int:
        raise UsageError("--compact is for Delta tables: plain Parquet has no way to replace files at once")

    def files(self, version: int | None = None) -> list[str]:
        return [str(self.place / path) for path in self._document()["files"][:version]]

    def version(self) -> int:
        return len(self.files())

    def _document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.place / self.MANIFEST).read_text(encoding="utf-8"))
        return found

    def _write(self, document: dict[str, Any]) -> None:
        path = self.place / self.MANIFEST
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(document), encoding="utf-8")
        sync_all([new])
        new.replace(path)
        sync_all([path])

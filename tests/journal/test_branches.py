# SPDX-License-Identifier: Apache-2.0
"""Branches of the journal's room that only interruptions, odd bytes and files of others take."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress

import pytest

from oncemq.core.state import BrokerState
from oncemq.errors import DirectoryUnusable, SyncFailed
from oncemq.journal import outbox as outboxes
from oncemq.journal.backup import copy_to
from oncemq.journal.codec import BadRecord, seal_parts
from oncemq.journal.inspect import look_into
from oncemq.journal.journal import Journal, JournalSettings
from oncemq.journal.outbox import OutboxEntry
from oncemq.journal.space import Plan, make_segment
from oncemq.journal.verify import verify
from oncemq.limits import PENDING_STREAMS_MAX
from oncemq.model.block import checksum
from oncemq.sim.disk import SimDisk, SimFile
from tests.journal.helpers import LOG_ID, Ledger, numbers_read, open_journal, put, stored
from tests.journal.test_outbox import A, B, _entry, _files, _numbers, _open


class Interrupted(BaseException):
    """Ctrl-C, at the worst instant."""


class Brittle(SimDisk):
    """A disk whose next creation, or next write, ends in what a test says."""

    def __init__(self, problem: BaseException | None = None) -> None:
        super().__init__()
        self.problem = problem

    def open(self, name: str, *, create: bool = False) -> SimFile:
        if create and self.problem is not None:
            raise self.problem
        return super().open(name, create=create)


# --- outbox ---------------------------------------------------------------------------------------------


def test_an_interrupted_first_write_begins_again() -> None:
    disk = SimDisk()
    outbox = _open(disk)
    write, outbox._write_group = outbox._write_group, _interrupt  # type: ignore[method-assign, assignment]
    with pytest.raises(Interrupted):
        outbox.append(_entry(1))
    outbox._write_group = write  # type: ignore[method-assign]
    outbox.append(_entry(1))
    disk.kill()

    assert _numbers(_open(disk, 2)) == [1]
    assert len(_files(disk)) == 1


def _interrupt(*_: object) -> None:
    raise Interrupted


def test_an_entry_takes_the_place_of_what_waits_in_another_stream() -> None:
    disk = SimDisk()
    outbox = _open(disk)
    outbox.append(_entry(1, A))
    outbox.replace(A, 1, _entry(1, B))
    disk.kill()
    again = _open(disk, 2)

    assert [
        (entry.stream, entry.first_number) for entry in again.entries if entry.first_number > again.confirmed.get(entry.stream, 0)
    ] == [(B, 1)]


def test_an_entry_that_cannot_be_written_takes_nobodys_place() -> None:
    disk = SimDisk()
    outbox = _open(disk)
    outbox.append(_entry(1, A))
    disk.fail_next_write(errno.EIO)
    with pytest.raises(SyncFailed):
        outbox.replace(A, 1, _entry(1, B))

    assert outbox.confirmed[A] == 0


def test_what_was_replaced_makes_room() -> None:
    disk = SimDisk()
    outbox = _open(disk)
    for number in range(1, 6):
        outbox.append(_entry(number, A, size=3000))
    assert len(_files(disk)) == 5
    outbox.replace(A, 5, _entry(1, B, size=3000))
    assert len(_files(disk)) == 6, "what took its place is not synced yet"
    outbox.sync()

    assert len(_files(disk)) == 2, "the newest, and one to be used again"


def test_a_failed_sync_is_never_followed_by_one_that_looks_right() -> None:
    disk = SimDisk()
    outbox = _open(disk)
    outbox.append(_entry(1))
    disk.fail_next_sync(errno.EIO)
    for _ in range(2):
        with pytest.raises(SyncFailed):
            outbox.sync()
    assert disk.syncs == 1, "the disk is not asked again: it would say yes"
    with pytest.raises(SyncFailed):
        outbox.append(_entry(2))


def test_proofs_that_are_interrupted_for_ever_do_not_outgrow_their_segment() -> None:
    disk = SimDisk()
    outbox = _open(disk)
    outbox.append(_entry(1))
    (name,) = _files(disk)
    for _ in range(100):
        disk.before_sync = _interrupt_the_second()
        with suppress(Interrupted):
            outbox.sync()
    disk.before_sync = lambda: None
    outbox.sync()
    assert disk.size_of(name) == 4096
    disk.power_cut()

    assert _numbers(_open(disk, 2)) == [1]


def _interrupt_the_second() -> Callable[[], None]:
    syncs = iter([False, True])
    return lambda: _interrupt() if next(syncs) else None


def test_the_longest_finished_stream_is_forgotten_and_none_that_waits() -> None:
    outbox = _open(SimDisk())
    outbox.append(_entry(1, A, numbers=2))
    outbox.append(_entry(3, A))
    outbox.retire(A, 2)
    others = [number.to_bytes(16, "big") for number in range(PENDING_STREAMS_MAX)]
    for stream in others:
        outbox.retire(stream, 1)

    assert list(outbox.confirmed) == [A, *others[1:]]


def test_where_every_stream_waits_none_is_forgotten() -> None:
    outbox = _open(SimDisk(), segment_bytes=1 << 20)
    streams = [number.to_bytes(16, "big") for number in range(PENDING_STREAMS_MAX + 1)]
    for stream in streams:
        outbox.append(_entry(1, stream))
        outbox.append(_entry(2, stream))
        outbox.retire(stream, 1)

    assert list(outbox.confirmed) == streams


@pytest.mark.parametrize(
    ("code", "header", "reason"),
    [(99, b"", "record type"), (outboxes._ENTRY_CODE, b"\xc1", "byte"), (outboxes._CONFIRMED_CODE, b"\xc1", "byte")],
)
def test_bytes_that_are_no_record_of_an_outbox_are_refused(code: int, header: bytes, reason: str) -> None:
    content = b"".join(bytes(part) for part in seal_parts(code, header))
    with pytest.raises(BadRecord, match=reason):
        outboxes._check(content, 0)


def test_an_entry_with_a_block_of_another_size_is_refused() -> None:
    head = outboxes._Head(A, 1, 1, ("t",), False, 7, 0)
    content = b"".join(bytes(part) for part in seal_parts(outboxes._ENTRY_CODE, outboxes._ENCODER.encode(head), b"12345678"))
    with pytest.raises(BadRecord, match="another size"):
        outboxes._check(content, 0)


# --- verify and inspect ---------------------------------------------------------------------------------


def test_an_outbox_without_an_identity_is_verified_and_a_block_that_is_none_is_said() -> None:
    disk = SimDisk()
    outbox = _open(disk)
    odd = bytearray(32)
    odd[12:16] = checksum(odd).to_bytes(4, "little")
    outbox.append(OutboxEntry(A, 1, 1, ("t",), False, bytes(odd)))
    disk.kill()

    assert [finding.problem for finding in verify(disk, Ledger()) if "is not a block" in finding.problem] != []


def test_a_file_of_zeros_is_an_outbox_that_was_about_to_be() -> None:
    disk = SimDisk()
    file = disk.open("outbox-0000000000000001", create=True)
    file.write(0, [bytes(4096)])

    assert [finding.problem for finding in verify(disk, Ledger()) if finding.name.startswith("outbox")] == [""]
    disk.flip("outbox-0000000000000001", 3)
    assert [bool(finding.problem) for finding in verify(disk, Ledger()) if finding.name.startswith("outbox")] == [True]


def test_a_directory_without_a_journal_cannot_be_looked_into() -> None:
    with pytest.raises(DirectoryUnusable, match="no journal"):
        look_into(SimDisk())


def test_a_journal_to_which_nothing_was_put_is_shown_as_such() -> None:
    disk = SimDisk()
    Journal.open(disk, start_id=A, new_log_id=LOG_ID, state=BrokerState()).close()
    found = look_into(disk)

    assert [found[name] for name in ("log_id", "last_append", "topics", "missing")] == [LOG_ID.hex(), None, [], []]


# --- space ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "is_told"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_segment_whose_file_cannot_be_made(number: int, is_told: bool) -> None:
    disk = Brittle(OSError(number, os.strerror(number)))
    plan = Plan(LOG_ID, A, 1, 0, 0, [])
    if is_told:
        with pytest.raises(OSError, match=os.strerror(number)):
            make_segment(disk, plan, 4096)
    else:
        assert make_segment(disk, plan, 4096) is None


def test_the_unused_end_of_a_segment_takes_no_space_in_a_backup() -> None:
    disk, copy = SimDisk(), SimDisk()
    journal, ledger = open_journal(disk, settings=JournalSettings(segment_bytes=4 << 20, reserve_bytes=0))
    for number in range(1, 5):
        put(journal, ledger, stored(number, number - 1))
    disk.kill()
    copy_to(disk, copy)
    assert disk.used_bytes() > 4 << 20 > 2 << 20 > copy.used_bytes()
    again, _ = open_journal(copy, 2)

    assert numbers_read(again) == [1, 2, 3, 4]

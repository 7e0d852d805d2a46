# SPDX-License-Identifier: Apache-2.0
"""Files that are gone: found by a start and by verify from what the others prove, told to whoever reads (G8)."""

from __future__ import annotations

from random import Random

import pytest

from oncemq.errors import JournalDamaged, JournalIncomplete
from oncemq.journal.finding import Finding
from oncemq.journal.index import Totals
from oncemq.journal.journal import Journal, JournalSettings
from oncemq.journal.reading import DamagedRead
from oncemq.journal.verify import verify
from oncemq.journal.whole import Extent, holes_between
from oncemq.sim.disk import SimDisk
from tests.journal.helpers import LOG_ID, SMALL, Claim, Ledger, delivered, numbers_read, put, stored

COUNT = 199


class Knowing(Ledger):
    """A ledger that knows which messages of topic 1 must be there, as a broker's state does."""

    low = 0

    @property
    def topics(self) -> dict[int, Extent]:  # type: ignore[override]
        return {1: Claim("orders", self.low, len(self.records))}

    @topics.setter
    def topics(self, _: object) -> None:
        pass


def _open(disk: SimDisk, start: int, *, low: int = 0, accept_loss: bool = False) -> tuple[Journal, Knowing]:
    ledger = Knowing()
    ledger.low = low
    settings = JournalSettings(SMALL.segment_bytes, SMALL.segment_records_max, SMALL.reserve_bytes, accept_loss=accept_loss)
    return Journal.open(disk, start_id=start.to_bytes(16, "big"), new_log_id=LOG_ID, state=ledger, settings=settings), ledger


def _written(*, clean: bool = True) -> SimDisk:
    """A journal of several segments with one message per block."""
    disk = SimDisk(1)
    journal, ledger = _open(disk, 1)
    for number in range(1, COUNT + 1):
        put(journal, ledger, stored(number, number - 1))
    if clean:
        journal.close()
    disk.kill()
    return disk


def _files(disk: SimDisk, prefix: str) -> list[str]:
    return [name for name in disk.names() if name.startswith(prefix)]


def _held(disk: SimDisk) -> list[tuple[int, int]]:
    """What each segment holds of topic 1, oldest first."""
    journal, _ = _open(disk.copy(), 99)
    return [(each.first_offset, each.end_offset) for each in journal.holdings(1)]


def _problems(disk: SimDisk, low: int = 0) -> list[Finding]:
    ledger = Knowing()
    ledger.low = low
    return [finding for finding in verify(disk, ledger) if finding.problem]


@pytest.mark.parametrize("clean", [True, False])
def test_each_segment_that_is_gone_refuses_the_start_and_is_found_by_verify(clean: bool) -> None:
    for name in _files(_written(), "segment-"):
        disk = _written(clean=clean)
        disk.unlink(name)
        before = {each: disk.open(each).read(0, 1 << 20) for each in disk.names()}
        with pytest.raises(JournalIncomplete, match="restore a backup") as told:
            _open(disk, 2)
        assert told.value.name == name
        assert [finding.name for finding in _problems(disk)] == [name]
        assert {each: disk.open(each).read(0, 1 << 20) for each in disk.names()} == before


def test_the_refusal_names_the_topic_and_the_offsets_and_what_to_do() -> None:
    disk = _written()
    first, end = _held(disk)[1]
    disk.unlink(_files(disk, "segment-")[1])
    with pytest.raises(JournalIncomplete, match="--accept-loss") as told:
        _open(disk, 2)
    assert told.value.lost == f"messages {first} to {end - 1} of topic 'orders'"
    assert told.value.may_go_on


@pytest.mark.parametrize("is_there", [False, True])
def test_without_a_right_index_a_lost_segment_is_found_all_the_same(is_there: bool) -> None:
    disk = _written()
    first, end = _held(disk)[1]
    disk.unlink(_files(disk, "segment-")[1])
    if is_there:
        disk.flip(_files(disk, "index-")[1], 20)
    else:
        disk.unlink(_files(disk, "index-")[1])
    with pytest.raises(JournalIncomplete) as told:
        _open(disk, 2)
    assert (told.value.name, told.value.lost) == ("a segment", f"messages {first} to {end - 1} of topic 'orders'")
    assert [finding.name for finding in _problems(disk)] == ["a segment"]


def test_several_lost_segments_are_counted_and_all_listed() -> None:
    disk = _written()
    lost = [_files(disk, "segment-")[number] for number in (0, 2)]
    for name in lost:
        disk.unlink(name)
    with pytest.raises(JournalIncomplete, match="1 more such range") as told:
        _open(disk, 2)
    assert (told.value.name, told.value.more) == (lost[0], 1)
    assert [finding.name for finding in _problems(disk)] == lost


def test_the_newest_segment_is_missed_though_its_snapshot_is_gone_too() -> None:
    """The index of the one before was written when the newest had its name: it proves that there was one."""
    disk = _written()
    newest = _files(disk, "segment-")[-1]
    disk.unlink(newest)
    disk.unlink(newest.replace("segment-", "snapshot-"))
    with pytest.raises(JournalIncomplete) as told:
        _open(disk, 2)
    assert (told.value.name, told.value.may_go_on) == (newest, False)
    assert [finding.name for finding in _problems(disk)] == [newest]


def test_a_loss_of_state_cannot_be_accepted() -> None:
    disk = _written()
    disk.unlink(_files(disk, "segment-")[-1])
    with pytest.raises(JournalIncomplete, match=r"backup$"):
        _open(disk, 2, accept_loss=True)


@pytest.mark.parametrize("left", ["index-", "reserve"])
def test_an_emptied_directory_does_not_begin_anew(left: str) -> None:
    disk = _written()
    for name in disk.names():
        if not name.startswith((left, "identity")):
            disk.unlink(name)
    with pytest.raises(Exception, match="snapshot"):
        _open(disk, 2)


def test_what_lies_below_the_low_offset_may_be_gone() -> None:
    disk = _written()
    low = _held(disk)[1][1]
    for name in _files(disk, "segment-")[:2]:
        disk.unlink(name)
    assert _problems(disk, low) == []
    journal, _ = _open(disk, 2, low=low)
    assert numbers_read(journal) == list(range(low + 1, COUNT + 1))


def test_an_accepted_loss_is_told_to_whoever_reads_it_and_the_rest_can_be_read() -> None:
    disk = _written()
    first, end = _held(disk)[1]
    disk.unlink(_files(disk, "segment-")[1])
    journal, _ = _open(disk, 2, accept_loss=True)
    assert [(each.topic, each.first, each.end) for each in journal.missing] == [("orders", first, end)]
    assert len(journal.read([(1, 0, COUNT)], 1 << 20)) == first
    with pytest.raises(DamagedRead) as told:
        journal.read([(1, first + 1, COUNT)], 1 << 20)
    assert (told.value.first, told.value.end) == (first + 1, end)
    assert len(journal.read([(1, end, COUNT)], 1 << 20)) == COUNT - end
    put(journal, journal._state, stored(COUNT + 1, COUNT))  # type: ignore[arg-type]
    journal.close()
    with pytest.raises(JournalIncomplete):
        _open(disk, 3)


def test_a_hole_is_told_at_once_also_to_those_who_read_several_topics() -> None:
    disk = _written()
    journal, ledger = _open(disk, 2)
    put(journal, ledger, stored(COUNT + 1, 0, topic=2))
    with pytest.raises(DamagedRead) as told:
        journal.read([(2, 0, 1), (1, COUNT, COUNT + 5)], 1 << 20)
    assert (told.value.topic_id, told.value.first, told.value.end) == (1, COUNT, COUNT + 5)
    assert [delivered(each) for each in journal.read([(2, 0, 1), (1, COUNT - 1, COUNT + 5)], 1 << 20)] == [COUNT]


def test_a_segment_that_got_shorter_refuses_the_start() -> None:
    disk = _written()
    name = _files(disk, "segment-")[0]
    disk.open(name).truncate(disk.open(name).size() - 1)
    with pytest.raises(Exception, match="shorter"):
        _open(disk, 2)


def test_holes_are_what_nothing_covers() -> None:
    for seed in range(200):
        chance = Random(seed)
        low = chance.randrange(20)
        end = low + chance.randrange(20)
        spans = [(first, first + chance.randrange(1, 9)) for first in chance.sample(range(40), 5)]
        held = [Totals(1, 1, first, stop, 0, 0) for first, stop in spans]
        covered = {offset for first, stop in spans for offset in range(first, stop)}
        found = holes_between(low, end, held)
        assert {offset for first, stop in found for offset in range(first, stop)} == set(range(low, end)) - covered
        assert all(first < stop for first, stop in found)


# --- what is gone and comes again, or can be done without -----------------------------------------------


def _remarks(disk: SimDisk) -> list[str]:
    return [finding.name for finding in verify(disk, Knowing()) if finding.remark]


def test_an_index_that_is_gone_is_remarked_and_made_again() -> None:
    disk = _written()
    assert _remarks(disk) == []
    name = _files(disk, "index-")[0]
    disk.unlink(name)
    assert (_remarks(disk), _problems(disk)) == ([name], [])
    _open(disk, 2)[0].close()
    assert (_remarks(disk), _problems(disk)) == ([], [])


def test_one_snapshot_where_two_are_kept_is_remarked_and_another_made() -> None:
    disk = _written()
    disk.unlink(_files(disk, "snapshot-")[0])
    assert (_remarks(disk), _problems(disk)) == (["snapshot"], [])
    _open(disk, 2)[0].close()
    assert (_remarks(disk), _problems(disk)) == ([], [])


def test_a_segment_whose_header_is_damaged_can_be_moved_away() -> None:
    """Only one older than the snapshot: those behind it hold state, and the way out is a backup."""
    disk = _written()
    oldest, newest = _files(disk, "segment-")[0], _files(disk, "segment-")[-1]
    put_right = disk.flip(newest, 8)
    with pytest.raises(JournalDamaged, match=r"restore a backup$"):
        _open(disk, 2, accept_loss=True)
    put_right()
    disk.flip(oldest, 8)
    with pytest.raises(JournalDamaged, match="move that file away") as told:
        _open(disk, 2, accept_loss=True)
    assert told.value.name == oldest
    disk.unlink(oldest)
    journal, _ = _open(disk, 2, accept_loss=True)
    assert [missing.file for missing in journal.missing] == [oldest]


def test_a_disk_that_does_not_answer_is_told_apart_from_wrong_bytes() -> None:
    disk = _written()
    journal, _ = _open(disk, 2)
    assert journal.read([(1, 0, 10)], 1 << 20)
    disk.kill()  # Handles that were open give nothing but an OSError from now on.
    with pytest.raises(DamagedRead, match="the disk did not give them"):
        journal.read([(1, 0, 10)], 1 << 20)

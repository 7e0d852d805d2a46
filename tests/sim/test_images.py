# SPDX-License-Identifier: Apache-2.0
"""The short form of `oncemq sim --images`: some recorded runs, the laws of their disk, and bugs they must see."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest

from oncemq.sim.bugs import planted
from oncemq.sim.images import explore
from oncemq.sim.platter import SECTOR_BYTES, Platter
from oncemq.sim.subject_journal import JournalSubject
from oncemq.sim.tape import Image, Sync, Tape, Write

A, B = b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES


@pytest.mark.parametrize("seed", range(6))
def test_every_image_of_a_run_keeps_what_was_promised(seed: int) -> None:
    recorded = explore(seed, sample=20, images_max=1_000)

    assert recorded.violations == []
    assert recorded.images > 100


def test_a_run_in_which_a_reused_file_gave_old_entries_back() -> None:
    """The head of a new group, then the power: behind it lay an older body of the same size, whole, and was taken for its own."""
    assert explore(13, sample=20).violations == []


@pytest.mark.parametrize(
    ("bug", "seed"),
    [
        ("takes_torn_groups", 0),
        ("takes_the_whole_records_of_a_torn_group", 0),
        ("does_not_sync", 0),
        ("serves_the_page_cache_after_a_restart", 0),
        ("drops_the_tail_after_a_restart", 0),
        ("forgets_streams_in_snapshots", 0),
        ("restarts_offsets_from_a_stale_counter", 0),
        ("does_not_sync_what_is_pending", 1),
        ("retires_too_much", 4),
        ("does_not_sync_a_slots_name", 2),
        ("does_not_sync_the_reservation", 2),
    ],
)
def test_images_see_a_recovery_that_was_broken(bug: str, seed: int) -> None:
    with planted(bug):
        assert explore(seed, images_max=1_500).violations


def test_a_run_that_was_killed_and_read_from_the_cache_needs_two_deaths_to_be_found_out() -> None:
    """Kill, restart, power cut: no image of a single life shows that a restart believes the page cache."""
    with planted("drops_the_tail_after_a_restart"):
        violations = explore(3, images_max=1_500).violations

    assert "kill -9" in violations[0]


# --- the disk they are recorded on ------------------------------------------------------------------


def played(tape: Tape) -> Platter:
    platter = Platter()
    for step in tape.steps:
        platter.play(step)
    return platter


def images_of(platter: Platter) -> list[Image]:
    return list(platter.images(Random(1), all_up_to=1_000, sample=0))


def contents(images: list[Image], name: str = "file") -> set[bytes]:
    return {image[name][0].ljust(image[name][1], b"\0") for image in images if name in image}


def tape_with_synced_file(content: bytes) -> Tape:
    tape = Tape()
    file = tape.open("file", create=True)
    file.write(0, [content])
    file.sync()
    tape.sync_names()
    return tape


def test_what_is_synced_is_in_every_image() -> None:
    assert contents(images_of(played(tape_with_synced_file(A)))) == {A}


def test_a_file_without_a_synced_name_may_be_missing_although_its_content_is_synced() -> None:
    tape = Tape()
    file = tape.open("file", create=True)
    file.write(0, [A])
    file.sync()

    assert {"file" in image for image in images_of(played(tape))} == {True, False}


def test_sectors_of_one_write_arrive_in_any_combination() -> None:
    tape = tape_with_synced_file(A + A)
    tape.open("file").write(0, [B + B])

    assert contents(images_of(played(tape))) == {A + A, A + B, B + A, B + B}


def test_a_sector_never_holds_the_second_of_two_writes_without_the_first() -> None:
    tape = tape_with_synced_file(A)
    tape.open("file").write(0, [b"1"])
    tape.open("file").write(1, [b"2"])

    assert contents(images_of(played(tape))) == {A, b"1" + A[1:], b"12" + A[2:]}


def test_a_process_may_die_between_the_pieces_of_one_write() -> None:
    tape = Tape(parts_per_write=2)
    tape.open("file", create=True).write(3, [b"a", b"b", b"c"])
    caches = []
    platter = Platter()
    for step in tape.steps:
        platter.play(step)
        caches.append(platter.cache()["file"][0])

    assert caches == [b"", b"\0\0\0ab", b"\0\0\0abc"]
    assert tape.open("file").read(0, 99) == caches[-1]


def test_runs_have_groups_of_several_blocks_and_pieces_and_several_groups_in_a_sync() -> None:
    several_groups = several_pieces = 0
    for seed in (0, 3, 6, 9):
        tape = Tape(parts_per_write=1)
        JournalSubject(Random(f"{seed}/work")).work(tape)
        heads = pieces = 0
        for step in tape.steps:
            match step:
                case Write(_, _, content):
                    heads += content[:4] == b"1grp"
                    pieces += 1
                case Sync():
                    several_groups += heads > 1
                    several_pieces += pieces > heads > 0
                    heads = pieces = 0

    assert several_groups > 10
    assert several_pieces > 10


def test_a_size_may_arrive_without_what_was_written() -> None:
    tape = tape_with_synced_file(b"")
    tape.open("file").write(0, [A])

    assert contents(images_of(played(tape))) == {b"", A, bytes(SECTOR_BYTES)}


def test_names_arrive_in_their_order() -> None:
    tape = Tape()
    for name in ("one", "two"):
        tape.open(name, create=True)
    tape.rename("one", "three")

    assert {tuple(sorted(image)) for image in images_of(played(tape))} == {(), ("one",), ("one", "two"), ("three", "two")}


def test_after_kill_9_everything_is_there_and_what_was_pending_is_pending_still() -> None:
    tape = tape_with_synced_file(A)
    tape.open("file").write(0, [B])
    platter = played(tape)
    after = platter.after_kill()

    assert after.open("file").read(0, SECTOR_BYTES) == B
    after.open("other", create=True)
    platter = platter.fork()
    platter.play(after.steps[0])
    assert contents(images_of(platter)) == {A, B}
    assert {"other" in image for image in images_of(platter)} == {True, False}


def test_every_sample_is_one_of_all_images() -> None:
    tape = tape_with_synced_file(A + A)
    file = tape.open("file")
    file.write(100, [B])
    tape.open("other", create=True).write(0, [B])
    file.truncate(700)
    platter = played(tape)
    everything = {tuple(sorted(image.items())) for image in images_of(platter)}
    random = Random(2)
    samples = {tuple(sorted(platter.sample(random).items())) for _ in range(300)}

    assert samples <= everything
    assert len(samples) > len(everything) // 2


def run_images(hash_seed: str) -> str:
    program = "from oncemq.sim.images import explore; print([explore(seed, images_max=400) for seed in range(3)])"
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=540
    ).stdout


def test_one_seed_is_one_run_whatever_the_hash_seed() -> None:
    assert run_images("1") == run_images("2")

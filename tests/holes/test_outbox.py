# SPDX-License-Identifier: Apache-2.0
"""Outboxes with something missing or bent: what was kept is sent, or it is told by name and with counts (G8)."""

from __future__ import annotations

import pytest

from oncemq.client.state import DirectoryState
from oncemq.errors import OutboxDamaged, PutPending
from oncemq.journal.outbox import Outbox, OutboxEntry
from oncemq.model.block import checksum
from oncemq.sim.disk import SimDisk
from oncemq.sim.network import DROP
from oncemq.sim.world import World
from tests.holes.helpers import be_quiet, block_of, started, stored_values

LARGE = 3 * 1024 * 1024
"""So large that every put gets a file of its own in the outbox."""


def kept_in_three_files(world: World) -> list[str]:
    """Leave three puts of a dead client in its outbox, one file each, synced as PutPending says. Inside `run`."""
    with world.connect("sub") as sub:
        sub.subscribe("t")
    client = world.connect("pub")
    world.network.rule = lambda _: DROP
    for letter in (b"a", b"b", b"c"):
        with pytest.raises(PutPending):
            client.put("t", letter * LARGE)
    world.crash_client(client, power_cut=True)
    be_quiet(world)
    files = [name for name in world.client_disk("pub").names() if name.startswith("outbox-")]
    assert len(files) == 3
    return files


def letters(world: World) -> bytes:
    return b"".join(value[:1] for value in stored_values(world, "t"))


def test_what_put_pending_promised_is_sent_by_the_next_run() -> None:
    world = started()

    def script() -> None:
        kept_in_three_files(world)
        with world.connect("pub") as client:
            client.flush()
        assert letters(world) == b"abc"

    world.run(script)


def test_one_bit_of_what_put_pending_promised_is_told_and_nothing_is_sent_or_changed() -> None:
    world = started()

    def script() -> None:
        files = kept_in_three_files(world)
        disk = world.client_disk("pub")
        disk.flip(files[2], 1_000_000, 1)
        for _ in range(2):
            with pytest.raises(OutboxDamaged, match="state directory") as told:
                world.connect("pub")
            assert (told.value.name, told.value.readable) == (files[2], 2)
        assert letters(world) == b""
        disk.flip(files[2], 1_000_000, 1)
        with world.connect("pub") as client:
            client.flush()
        assert letters(world) == b"abc"

    world.run(script)


@pytest.mark.parametrize(("gone", "left"), [(0, b"bc"), (1, b"ac"), (2, b"ab")])
def test_puts_behind_a_hole_are_sent_all_the_same(gone: int, left: bytes) -> None:
    """They were promised; that others before them are gone with their file is no reason to drop them."""
    world = started()

    def script() -> None:
        world.client_disk("pub").unlink(kept_in_three_files(world)[gone])
        for _ in range(2):
            with world.connect("pub") as client:
                client.flush()
        assert letters(world) == left

    world.run(script)


def test_an_entry_that_is_no_block_is_told() -> None:
    """Right by its checksum, and yet nothing a broker would take: written by somebody else's hand."""
    disk = SimDisk(1)
    outbox = Outbox.open(disk, start_id=b"1" * 16)
    forged = bytearray(block_of(b"one"))
    forged[0] = 99
    forged[12:16] = checksum(forged).to_bytes(4, "little")
    outbox.append(OutboxEntry(b"s" * 16, 1, 1, ("t",), False, block_of(b"zero")))
    outbox.append(OutboxEntry(b"s" * 16, 2, 1, ("t",), False, bytes(forged)))
    disk.kill()
    with pytest.raises(OutboxDamaged, match="put 2 is not a block") as told:
        DirectoryState(disk, "pub", "pub", b"2" * 16).entries()
    assert told.value.readable == 1

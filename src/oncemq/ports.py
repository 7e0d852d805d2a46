# SPDX-License-Identifier: Apache-2.0
"""The windows to the world: Clock, Entropy, Disk, Network. Nothing else may touch it.

May not: import anything of the project, do anything. Only shapes.
The idea: every machine, journal and loop is handed these, so that the same code runs on real hardware
(adapters/) and in a seeded world (sim/). A `Disk` is one directory; names in it are plain file names.
Next: adapters/os_disk.py for the real disk, sim/disk.py for the one that loses what was not synced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

Frames = list[bytes | memoryview]
"""The parts of a packet. Large ones come as views of the memory they were received into, so that they are not copied."""


class Instant(msgspec.Struct, frozen=True, gc=False):
    """One reading of both clocks: `ticks_ms` never jumps, `wall_us` is what people call the time."""

    ticks_ms: int
    wall_us: int


class Clock(Protocol):
    def now(self) -> Instant: ...

    def wall_us(self) -> int:
        """The wall clock alone: what a publisher stamps on every message."""

    def pause(self, duration_ms: int) -> None:
        """Let that much time pass (a client between two tries)."""


class Entropy(Protocol):
    def id16(self) -> bytes:
        """Return 16 random bytes that nobody drew before."""


class Dice(Protocol):
    """Random choices that need not be secret; a seeded generator in the simulator."""

    def random(self) -> float:
        """Return a number in [0, 1)."""


class File(Protocol):
    """An open file. Positions and sizes are bytes. Nothing is durable before `sync` has returned."""

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return up to `size_bytes` from `position`; fewer only at the end of the file."""

    def write(self, position: int, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write all parts one behind the other, or raise OSError (then anything may be there)."""

    def sync(self) -> None: ...

    def allocate(self, size_bytes: int) -> None:
        """Reserve real blocks up to `size_bytes` (ENOSPC now rather than later)."""

    def truncate(self, size_bytes: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class MappedFile(Protocol):
    """A small file that lives in memory shared with the operating system: writes survive kill -9."""

    def read(self, position: int, size_bytes: int) -> bytes: ...

    def write(self, position: int, content: bytes) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One directory, private to this process while `lock` is held."""

    def lock(self) -> None:
        """Take the directory or raise DirectoryLocked."""

    def unlock(self) -> None: ...

    def names(self) -> list[str]:
        """Return the file names in this directory, sorted."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open for reading and writing; `create` makes it anew (emptied if it is there)."""

    def map(self, name: str, size_bytes: int) -> MappedFile:
        """Open or make a mapped file of exactly that size, with real blocks behind it."""

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, name: str) -> None: ...

    def sync_names(self) -> None:
        """Make creations, renames and removals durable."""

    def boot_id(self) -> str:
        """Name this start of the operating system; "" where that cannot be known."""


class Network(Protocol):
    """What a broker speaks through: packets from and to many addresses, none of them reliable."""

    dropped: int
    """Packets that could not be handed over, and peers that were not believed."""

    def wait(self, timeout_ms: int) -> bool:
        """Wait until a packet may be there; False when the time is over."""

    def receive(self) -> tuple[bytes, Frames] | None:
        """Return (address, frames) of one packet, or None when nothing is waiting."""

    def send(self, address: bytes, frames: Sequence[bytes | bytearray | memoryview]) -> bool:
        """Hand a packet over; False if it was dropped (unknown address, full queue)."""

    live_address: str
    """Where `publish` can be heard; empty if nowhere."""

    def publish(self, frames: Sequence[bytes | bytearray | memoryview]) -> None:
        """Say this once to everybody who follows the channel that the first frame begins with; who cannot take it loses it."""

    def followings(self) -> list[tuple[bytes, bool]]:
        """Return what changed since the last call: (channel, True) somebody began to follow, (channel, False) nobody does."""

    def close(self) -> None: ...


class Links(Protocol):
    """What a node of a mesh speaks through: packets to and from other nodes by their addresses, none of them reliable."""

    address: str
    """How other nodes reach this one."""

    def receive(self) -> Frames | None:
        """Return the frames of a packet, or of several that came together; None when nothing is waiting.

        Never waits: the broker's Network waits for both.
        """

    def send(self, address: str, frames: Sequence[bytes | bytearray | memoryview]) -> bool:
        """Queue a packet; False if the queue to that node is full, and the packet dropped."""

    def drop(self, address: str) -> None:
        """Forget all that waits for that node, and what it is sent through. The next packet goes by a new way."""

    def room_bytes(self, address: str) -> int:
        """How many bytes the queue to that node can still take; 0 once half of its places are taken."""

    def broken(self) -> list[str]:
        """Return whom a connection could not be made to, or broke, since the last call."""

    def close(self) -> None: ...


class LiveLink(Protocol):
    """What a client hears live: packets on the channels it follows. Any of them may be lost, none comes out of order."""

    def follow(self, channel: bytes) -> None: ...

    def leave(self, channel: bytes) -> None: ...

    def receive(self) -> Frames | None:
        """Return one packet, or None when nothing is waiting. Never waits."""

    def wait(self, timeout_ms: int) -> None:
        """Wait until something may be here, or on the link this listener was opened beside; or until the time is over."""

    def close(self) -> None: ...


class Link(Protocol):
    """What a client speaks through: one broker, packets may vanish, come late or twice."""

    def send(self, frames: Sequence[bytes | bytearray | memoryview]) -> bool: ...

    def receive(self, timeout_ms: int) -> Frames | None: ...

    def reset(self) -> None:
        """Throw the connection away and start a fresh one (Lazy Pirate)."""

    def open_live(self, address: str) -> LiveLink:
        """Listen to the live channels at an address this link's broker named."""

    def close(self) -> None: ...

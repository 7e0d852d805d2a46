# SPDX-License-Identifier: Apache-2.0
"""Where the broker's directory lies: a plain directory, a small tmpfs that can be filled, or an ext4 that can lose power.

May not: leave a mount or a ballast behind; touch a file system it did not make.
The idea: an ext4 in a file, mounted through a loop device. The shutdown ioctl without flushing the journal makes it forget
everything that was not synced, as if the power had gone; the next mount replays what had reached the disk.
Next: nemesis.py, which fills, frees and cuts.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import suppress
from pathlib import Path

from oncemq.cli.torturing.tools import NotPossible, do

_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN."""
_WITHOUT_FLUSH = struct.pack("I", 2)
_SMALLEST_CHUNK_BYTES = 4096
_UNMOUNT_TRIES = 50


class Store:
    """A plain directory: nothing can be done to it."""

    kind = "directory"

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)

    @property
    def directory(self) -> Path:
        """The broker's data directory."""
        return self.place / "broker"

    def cut_power(self) -> None:
        """From now on nothing reaches the disk, and what was not synced never did."""
        raise NotPossible("this file system cannot lose power")

    def bring_back(self) -> None:
        """Mount it again after a power cut. Nobody may be using it any more."""
        raise NotPossible("this file system cannot lose power")

    def fill(self) -> None:
        """Take all space that is left."""
        descriptor = os.open(self._ballast, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _take_everything(descriptor)
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Give all of it back, for good: a power cut must not bring the ballast back, which nobody expects any more."""
        self._ballast.unlink(missing_ok=True)
        descriptor = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Let go of it. What a plain directory holds stays."""

    @property
    def _ballast(self) -> Path:
        return self.place / "ballast"


class Mounted(Store):
    """A file system of our own."""

    def close(self) -> None:
        unmount(self.place)


class Tmpfs(Mounted):
    """A small file system in memory."""

    kind = "tmpfs"

    def __init__(self, place: Path, size_bytes: int) -> None:
        super().__init__(place)
        do("mount", "-t", "tmpfs", "-o", f"size={size_bytes},nosuid,nodev", "tmpfs", str(place))


class Ext4(Mounted):
    """A real file system in a file, whose power can be cut."""

    kind = "ext4 on a loop device"

    def __init__(self, place: Path, size_bytes: int) -> None:
        super().__init__(place)
        self._image = place.with_suffix(".image")
        with self._image.open("wb") as image:
            image.truncate(size_bytes)
        do("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self._mount()
        try:
            self.cut_power()  # Whether it works is known only once it was done.
            self.bring_back()
        except NotPossible:
            self.close()
            raise

    def _mount(self) -> None:
        # A device of its own each time: a namespace that anybody made meanwhile (another run) has a copy of the mount and keeps
        # the file system without power alive, and whoever mounts the same device again gets that one.
        device = do("losetup", "--find", "--show", str(self._image)).strip()
        try:
            do("mount", "-t", "ext4", "-o", "nosuid,nodev", device, str(self.place))
        finally:
            do("losetup", "--detach", device)  # Once nobody uses it any more.

    def cut_power(self) -> None:
        descriptor = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_FLUSH)
        except OSError as problem:
            raise NotPossible(f"the shutdown ioctl of ext4 says: {problem.strerror}") from problem
        finally:
            os.close(descriptor)

    def bring_back(self) -> None:
        self.close()
        self._mount()


def open_store(place: Path, faults: set[str], size_bytes: int, not_possible: dict[str, str]) -> Store:
    """The mildest place that allows the wanted faults; why a fault is not possible goes into `not_possible`."""
    if "power_cut" in faults:
        try:
            return Ext4(place, size_bytes)
        except NotPossible as problem:
            not_possible["power_cut"] = str(problem)
    if "disk_full" in faults:
        try:
            return Tmpfs(place, size_bytes)
        except NotPossible as problem:
            not_possible["disk_full"] = str(problem)
    return Store(place)


def unmount(place: Path) -> None:
    """Take away whatever is mounted there; nothing if nothing is."""
    for _ in range(_UNMOUNT_TRIES):
        if not place.is_mount():
            return
        with suppress(NotPossible):
            do("umount", str(place))
            return
        time.sleep(0.1)  # A process that was killed may still be going.
    do("umount", "-l", str(place))


def _take_everything(descriptor: int) -> None:
    """Allocate ever smaller pieces until not even the smallest is left."""
    chunk_bytes = 1 << 30
    end = os.fstat(descriptor).st_size
    while chunk_bytes >= _SMALLEST_CHUNK_BYTES:
        try:
            os.posix_fallocate(descriptor, end, chunk_bytes)
        except OSError:
            chunk_bytes //= 2
        else:
            end += chunk_bytes

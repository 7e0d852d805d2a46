# SPDX-License-Identifier: Apache-2.0
"""A disk in memory that forgets like a real one: cache and platter are kept apart.

May not: be kinder than ext4. What no sync has covered may be lost, in any mixture that the page cache allows.
The idea:

    handle ──write──▶ cache (what every process reads) ──sync──▶ platter (what a power cut leaves)
                        └─ pending operations, in order           └─ names: a log of its own, made durable by sync_names

`kill` ends a process: handles die, the lock is freed, the cache stays. `power_cut` ends the machine: of each file a
legal mixture of 512-byte sectors survives, of the names a prefix of their log. A failed sync marks pages clean though
they never arrived: the cache still shows them, no later sync writes them (the trap of fsyncgate).
Next: adapters/os_disk.py for the real one, tests/journal/test_disks.py for what both must do alike.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from oncemq.errors import DirectoryLocked

Part = bytes | bytearray | memoryview

SECTOR_BYTES = 512
_PENDING_MAX = 1000  # Then the older half is written back, as a kernel does sooner or later.
_SURVIVALS = ("none", "all", "prefix", "prefix", "mixture", "mixture", "mixture")


class _Write(NamedTuple):
    position: int
    content: bytes


class _Resize(NamedTuple):
    size_bytes: int
    grows_only: bool


_Operation = _Write | _Resize


class _Image:
    """Bytes of a file at one level. `content` may be shorter than `size`: the rest reads as zeros and costs nothing."""

    __slots__ = ("content", "size")

    def __init__(self, content: bytearray | None = None, size: int = 0) -> None:
        self.content = bytearray() if content is None else content
        self.size = size

    def copy(self) -> _Image:
        return _Image(bytearray(self.content), self.size)

    def read(self, position: int, size_bytes: int) -> bytes:
        end = min(position + size_bytes, self.size)
        found = bytes(self.content[position:end])
        return found + bytes(max(0, end - position - len(found)))

    def apply(self, operation: _Operation) -> None:
        if isinstance(operation, _Write):
            position, content = operation
            end = position + len(content)
            if position > len(self.content):
                self.put(position, content)
            else:
                self.content[position:end] = content
            self.size = max(self.size, end)
        elif not (operation.grows_only and operation.size_bytes <= self.size):
            del self.content[operation.size_bytes :]
            self.size = operation.size_bytes

    def put(self, position: int, content: bytes) -> None:
        missing = position - len(self.content)
        if missing > 0:
            self.content.extend(bytes(missing))
        self.content[position : position + len(content)] = content


class _Inode:
    """One file whatever it is called: two images and what lies between them."""

    __slots__ = ("allocated", "cache", "pending", "platter")

    def __init__(self) -> None:
        self.cache = _Image()
        self.platter = _Image()
        self.pending: list[_Operation] = []
        self.allocated = 0

    def copy(self) -> _Inode:
        other = _Inode()
        other.cache, other.platter = self.cache.copy(), self.platter.copy()
        other.pending, other.allocated = list(self.pending), self.allocated
        return other

    def change(self, operation: _Operation) -> None:
        self.cache.apply(operation)
        pending = self.pending
        pending.append(operation)
        if len(pending) > _PENDING_MAX:
            self._write_back(_PENDING_MAX // 2)

    def sync(self) -> None:
        self._write_back(len(self.pending))

    def flip(self, position: int, mask: int) -> None:
        for image in (self.cache, self.platter):
            if position < image.size:
                image.put(position, bytes([image.read(position, 1)[0] ^ mask]))

    def _write_back(self, count: int) -> None:
        apply = self.platter.apply
        for operation in self.pending[:count]:
            apply(operation)
        del self.pending[:count]

    def lose_power(self, random: Random) -> None:
        """Leave a legal mixture of what was pending on the platter, and nothing in the cache but that."""
        _survive(self.platter, self.pending, random)
        self.pending.clear()
        self.cache = self.platter.copy()
        self.allocated = self.platter.size


def _survive(platter: _Image, pending: list[_Operation], random: Random) -> None:
    """Each sector holds some earlier state of itself in the cache, independent of its neighbours and of the size."""
    survival = random.choice(_SURVIVALS)
    sizes_kept = _kept(len(pending), survival, random)
    chosen = _choose_sectors(pending, survival, random)
    seen: dict[int, int] = {}
    size = _Image(size=platter.size)
    for number, operation in enumerate(pending):
        if number < sizes_kept:
            size.apply(_resize_of(operation))
        if isinstance(operation, _Write):
            _put_chosen(platter, operation, chosen, seen)
        elif number < sizes_kept:
            platter.apply(operation)
    del platter.content[size.size :]
    platter.size = size.size


def _resize_of(operation: _Operation) -> _Resize:
    if isinstance(operation, _Write):
        return _Resize(operation.position + len(operation.content), grows_only=True)
    return operation


def _kept(count: int, survival: str, random: Random) -> int:
    return {"none": 0, "all": count}.get(survival, random.randint(0, count))


def _choose_sectors(pending: list[_Operation], survival: str, random: Random) -> dict[int, int]:
    """How many of the writes that touched a sector it has seen. Never the second without the first."""
    touched: dict[int, int] = {}
    for operation in pending:
        if isinstance(operation, _Write):
            for sector in _sectors(operation):
                touched[sector] = touched.get(sector, 0) + 1
    if survival == "prefix":
        return _choose_prefix(pending, random)
    return {sector: _kept(count, survival, random) for sector, count in touched.items()}


def _choose_prefix(pending: list[_Operation], random: Random) -> dict[int, int]:
    """All writes before one instant, and part of the one that was under way."""
    writes = [operation for operation in pending if isinstance(operation, _Write)]
    chosen: dict[int, int] = {}
    whole = random.randint(0, len(writes))
    for operation in writes[:whole]:
        for sector in _sectors(operation):
            chosen[sector] = chosen.get(sector, 0) + 1
    for operation in writes[whole : whole + 1]:
        sectors = _sectors(operation)
        for sector in sectors[: random.randint(0, len(sectors))]:
            chosen[sector] = chosen.get(sector, 0) + 1
    return chosen


def _sectors(operation: _Write) -> range:
    end = operation.position + len(operation.content)
    return range(operation.position // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES)


def _put_chosen(platter: _Image, operation: _Write, chosen: dict[int, int], seen: dict[int, int]) -> None:
    end = operation.position + len(operation.content)
    for sector in _sectors(operation):
        seen[sector] = seen.get(sector, 0) + 1
        if seen[sector] <= chosen.get(sector, 0):
            start = max(operation.position, sector * SECTOR_BYTES)
            stop = min(end, (sector + 1) * SECTOR_BYTES)
            platter.put(start, operation.content[start - operation.position : stop - operation.position])


class SimFile:
    """ports.File and ports.MappedFile over an inode; dead once its process is."""

    __slots__ = ("_disk", "_inode", "_life")

    def __init__(self, disk: SimDisk, inode: _Inode) -> None:
        self._disk, self._inode, self._life = disk, inode, disk.life

    def alive(self) -> _Inode:
        if self._life != self._disk.life:
            raise OSError(errno.EBADF, "this handle belongs to a process that died")
        return self._inode

    def read(self, position: int, size_bytes: int) -> bytes:
        return self.alive().cache.read(position, size_bytes)

    def write(self, position: int, parts: Sequence[Part]) -> None:
        self._disk.write(self.alive(), position, b"".join(parts))

    def sync(self) -> None:
        self._disk.sync(self.alive())

    def allocate(self, size_bytes: int) -> None:
        inode = self.alive()
        self._disk.take_space(inode, size_bytes)
        inode.change(_Resize(size_bytes, grows_only=True))

    def truncate(self, size_bytes: int) -> None:
        inode = self.alive()
        inode.allocated = min(inode.allocated, size_bytes)
        inode.change(_Resize(size_bytes, grows_only=False))

    def size(self) -> int:
        return self.alive().cache.size

    def close(self) -> None:
        self._life = -1


class SimMappedFile:
    """ports.MappedFile: the same inode, seen as memory."""

    __slots__ = ("_file",)

    def __init__(self, file: SimFile) -> None:
        self._file = file

    def read(self, position: int, size_bytes: int) -> bytes:
        return self._file.read(position, size_bytes)

    def write(self, position: int, content: bytes) -> None:
        """Change memory: the space is allocated already, and no write can fail."""
        inode = self._file.alive()
        if position < 0 or position + len(content) > inode.cache.size:
            raise IndexError("outside the mapped file")
        inode.change(_Write(position, content))

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class SimDisk:
    """ports.Disk in memory, with a seed. `life` counts processes and `boots` machines that used it."""

    def __init__(self, seed: int = 0, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.life = 0
        self.boots = 1
        self.syncs = 0
        self._random = Random(seed)
        self._names: dict[str, _Inode] = {}
        self._platter_names: dict[str, _Inode] = {}
        self._name_log: list[tuple[str, _Inode | None, str | None]] = []
        self._is_locked = False
        self._sync_error = 0
        self._write_error = 0
        self.before_sync: Callable[[], None] = lambda: None
        """Called before a sync takes effect: a world lets time pass here, and processes may die in it."""

    def __str__(self) -> str:
        return "sim-disk"

    # --- ports.Disk ---------------------------------------------------------------------------------

    def lock(self) -> None:
        if self._is_locked:
            raise DirectoryLocked(str(self), self.life)
        self._is_locked = True

    def unlock(self) -> None:
        self._is_locked = False

    def names(self) -> list[str]:
        return sorted(self._names)

    def open(self, name: str, *, create: bool = False) -> SimFile:
        if create and name not in self._names:
            self._name(name, _Inode())
        elif name not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        file = SimFile(self, self._names[name])
        if create and file.size():
            file.truncate(0)
        return file

    def map(self, name: str, size_bytes: int) -> SimMappedFile:
        file = self.open(name, create=name not in self._names)
        file.allocate(size_bytes)
        if file.size() != size_bytes:
            file.truncate(size_bytes)
        return SimMappedFile(file)

    def rename(self, source: str, target: str) -> None:
        inode = self._inode(source)
        del self._names[source]
        self._names[target] = inode
        self._log_name(target, inode, source)

    def unlink(self, name: str) -> None:
        self._inode(name)
        del self._names[name]
        self._log_name(name, None, None)

    def sync_names(self) -> None:
        self._replay_names(len(self._name_log))

    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    def _inode(self, name: str) -> _Inode:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._names[name]

    def _name(self, name: str, inode: _Inode) -> None:
        self._names[name] = inode
        self._log_name(name, inode, None)

    def _log_name(self, target: str, inode: _Inode | None, source: str | None) -> None:
        self._name_log.append((target, inode, source))
        if len(self._name_log) > _PENDING_MAX:
            self._replay_names(_PENDING_MAX // 2)

    def _replay_names(self, count: int) -> None:
        """Make the first `count` operations of the log durable; a rename is one operation."""
        for target, inode, source in self._name_log[:count]:
            if source is not None:
                self._platter_names.pop(source, None)
            if inode is None:
                self._platter_names.pop(target, None)
            else:
                self._platter_names[target] = inode
        del self._name_log[:count]

    # --- what handles call --------------------------------------------------------------------------

    def write(self, inode: _Inode, position: int, content: bytes) -> None:
        """Write what fits; a full disk leaves half of it there and raises."""
        if self._write_error:
            number, self._write_error = self._write_error, 0
            inode.change(_Write(position, content[: len(content) // 2]))
            raise OSError(number, os.strerror(number))
        fits = self._fitting(inode, position + len(content)) - position
        if fits < len(content):
            inode.change(_Write(position, content[: max(0, fits)]))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        inode.allocated = max(inode.allocated, position + len(content))
        inode.change(_Write(position, content))

    def sync(self, inode: _Inode) -> None:
        self.before_sync()
        self.syncs += 1
        if self._sync_error:
            number, self._sync_error = self._sync_error, 0
            # The pages count as clean from now on, though they never arrived.
            inode.pending.clear()
            raise OSError(number, os.strerror(number))
        inode.sync()

    def take_space(self, inode: _Inode, size_bytes: int) -> None:
        if self._fitting(inode, size_bytes) < size_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        inode.allocated = max(inode.allocated, size_bytes)

    def _fitting(self, inode: _Inode, size_bytes: int) -> int:
        """How long this file could get, at most `size_bytes`."""
        if self.capacity_bytes is None or size_bytes <= inode.allocated:
            return size_bytes
        return min(size_bytes, inode.allocated + max(0, self.capacity_bytes - self.used_bytes()))

    # --- what a test or a nemesis does --------------------------------------------------------------

    def used_bytes(self) -> int:
        """Bytes that are taken on this disk, by names that are visible now."""
        return sum(inode.allocated for inode in self._names.values())

    def kill(self) -> None:
        """The process dies. Whatever it wrote is in the cache and stays visible."""
        self.life += 1
        self._is_locked = False

    def power_cut(self) -> None:
        """The machine dies. Only the platter is left, with a random legal part of what was on its way there."""
        self.kill()
        self.boots += 1
        self._replay_names(_kept(len(self._name_log), self._random.choice(_SURVIVALS), self._random))
        self._name_log.clear()
        self._names = dict(self._platter_names)
        for inode in dict.fromkeys(self._names.values()):
            inode.lose_power(self._random)

    def fail_next_sync(self, number: int = errno.EIO) -> None:
        """The next File.sync raises this errno; what it should have written is clean in the cache and never arrives."""
        self._sync_error = number

    def fail_next_write(self, number: int = errno.EIO) -> None:
        """The next File.write raises this errno half-way."""
        self._write_error = number

    def size_of(self, name: str) -> int:
        return self._inode(name).cache.size

    def flip(self, name: str, position: int, mask: int = 0xFF) -> Callable[[], None]:
        """Rot: change one byte behind everybody's back, in the cache and on the platter.

        Returns what puts it right, unless the file is gone or somebody has written there since.
        """
        inode = self._inode(name)
        if position >= inode.cache.size:
            raise IndexError(f"{name} ends before {position}")
        inode.flip(position, mask)
        rotten = inode.cache.read(position, 1)

        def put_right() -> None:
            if self._names.get(name) is inode and inode.cache.read(position, 1) == rotten:
                inode.flip(position, mask)

        return put_right

    def copy(self) -> SimDisk:
        """Clone the whole directory as it is now, cache and platter. Handles and the lock are not part of it."""
        other = SimDisk(capacity_bytes=self.capacity_bytes)
        other._become(self)
        return other

    def set_back(self, older: SimDisk) -> None:
        """Become an older copy: the directory was restored from a backup. Whoever had it open is dead."""
        self.kill()
        self._become(older)

    def _become(self, source: SimDisk) -> None:
        inodes = [*source._names.values(), *source._platter_names.values(), *(entry[1] for entry in source._name_log)]
        clones = {id(inode): inode.copy() for inode in inodes if inode is not None}
        self._names = {name: clones[id(inode)] for name, inode in source._names.items()}
        self._platter_names = {name: clones[id(inode)] for name, inode in source._platter_names.items()}
        self._name_log = [(target, clones.get(id(inode)), origin) for target, inode, origin in source._name_log]
        self._random.setstate(source._random.getstate())
        self.boots = max(self.boots, source.boots)

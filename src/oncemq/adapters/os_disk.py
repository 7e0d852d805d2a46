# SPDX-License-Identifier: Apache-2.0
"""The real disk: one directory of the operating system, private to its owner.

May not: decide anything. It does what ports.Disk says and lets OSError through; only directories that cannot be used
at all get an error of ours.
The idea: files 0600 in a directory 0700, positions explicit (pread, pwritev), so that no file has a hidden place.
`sync` is fdatasync: contents and size, but not names; names are made durable by `sync_names`.
Next: ports.py for the contract, sim/disk.py for the same contract with power cuts.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from oncemq.errors import DirectoryLocked, DirectoryUnusable, DiskFull

Part = bytes | bytearray | memoryview

PARTS_PER_WRITE_MAX = 1024  # IOV_MAX of Linux; writev(2).
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
_LOCK_NAME = "lock"
_BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
_HIDDEN_NAMES = frozenset({"lost+found"})  # Every fresh ext4 has one at its root; it is nobody's file.


def _raise_full(error: OSError) -> NoReturn:
    """A used-up quota is a full disk to everybody above, so that one errno has to be known there."""
    if error.errno == errno.EDQUOT:
        raise OSError(errno.ENOSPC, error.strerror, error.filename) from error
    raise error


class OsFile:
    """ports.File over a descriptor."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, position: int, size_bytes: int) -> bytes:
        found = os.pread(self._descriptor, size_bytes, position)
        if len(found) == size_bytes or not found:
            return found
        return self._read_rest(position, size_bytes, found)

    def _read_rest(self, position: int, size_bytes: int, found: bytes) -> bytes:
        """A read may stop early at a signal or at 2 GiB; only an empty one means the end of the file."""
        pieces, done = [found], len(found)
        while done < size_bytes:
            piece = os.pread(self._descriptor, size_bytes - done, position + done)
            if not piece:
                break
            pieces.append(piece)
            done += len(piece)
        return b"".join(pieces)

    def write(self, position: int, parts: Sequence[Part]) -> None:
        total = sum(map(len, parts))
        try:
            done = os.pwritev(self._descriptor, parts[:PARTS_PER_WRITE_MAX], position)
            if done != total:
                self._write_rest(position, parts, done)
        except OSError as error:
            _raise_full(error)

    def _write_rest(self, position: int, parts: Sequence[Part], done: int) -> None:
        """Go on after a short write, or after the first 1,024 parts."""
        rest: list[memoryview] = []
        skip = done
        for part in parts:
            if skip < len(part):
                rest.append(memoryview(part)[skip:])
            skip = max(0, skip - len(part))
        while rest:
            written = os.pwritev(self._descriptor, rest[:PARTS_PER_WRITE_MAX], position + done)
            done += written
            while rest and written >= len(rest[0]):
                written -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][written:]

    def sync(self) -> None:
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._descriptor)
        else:
            os.fsync(self._descriptor)

    def allocate(self, size_bytes: int) -> None:
        if size_bytes <= 0:
            return
        try:
            _allocate(self._descriptor, size_bytes)
        except OSError as error:
            _raise_full(error)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _allocate(descriptor: int, size_bytes: int) -> None:
    """Reserve real blocks; where the file system cannot, at least make the file that long."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        else:
            return
    if os.fstat(descriptor).st_size < size_bytes:
        os.ftruncate(descriptor, size_bytes)


class OsMappedFile:
    """ports.MappedFile over a shared mapping: what is written is the operating system's at once."""

    __slots__ = ("_map",)

    def __init__(self, mapping: mmap.mmap) -> None:
        self._map = mapping

    def read(self, position: int, size_bytes: int) -> bytes:
        return self._map[position : position + size_bytes]

    def write(self, position: int, content: bytes) -> None:
        self._map[position : position + len(content)] = content

    def sync(self) -> None:
        self._map.flush()

    def close(self) -> None:
        self._map.close()


class OsDisk:
    """ports.Disk over one directory."""

    def __init__(self, directory: str | Path, *, create: bool = True) -> None:
        self.directory = Path(directory)
        self._lock_descriptor = -1
        try:
            self._make_directory(create=create)
            self._check_directory()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(str(directory)) from error
            raise DirectoryUnusable(str(directory), error.strerror or str(error)) from error

    def __str__(self) -> str:
        return str(self.directory)

    def _make_directory(self, *, create: bool) -> None:
        if not create or self.directory.exists():
            return
        for missing in reversed([path for path in (self.directory, *self.directory.parents) if not path.exists()]):
            missing.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)  # Private too, the parents we make: they name brokers and clients.
            _sync_directory(missing.parent)

    def _check_directory(self) -> None:
        if not self.directory.exists():
            raise DirectoryUnusable(str(self), "it does not exist")
        if not self.directory.is_dir():
            raise DirectoryUnusable(str(self), "it is a file, not a directory")
        if not os.access(self.directory, os.R_OK | os.W_OK | os.X_OK):
            raise DirectoryUnusable(str(self), "this user may not write there")

    def lock(self) -> None:
        descriptor = self._open(_LOCK_NAME, os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).strip()
            os.close(descriptor)
            raise DirectoryLocked(str(self), int(holder) if holder.isdigit() else None) from None
        self._lock_descriptor = descriptor
        with suppress(OSError):  # Who holds it is only told to people; on a full disk the lock holds all the same.
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)

    def unlock(self) -> None:
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1

    def names(self) -> list[str]:
        return sorted(name for name in os.listdir(self.directory) if name not in _HIDDEN_NAMES)

    def open(self, name: str, *, create: bool = False) -> OsFile:
        return OsFile(self._open(name, os.O_CREAT | os.O_TRUNC if create else 0))

    def _open(self, name: str, flags: int) -> int:
        try:
            return os.open(self.directory / name, os.O_RDWR | os.O_CLOEXEC | flags, _FILE_MODE)
        except OSError as error:
            _raise_full(error)

    def map(self, name: str, size_bytes: int) -> OsMappedFile:
        descriptor = self._open(name, os.O_CREAT)
        try:
            _allocate(descriptor, size_bytes)
            os.ftruncate(descriptor, size_bytes)
            return OsMappedFile(mmap.mmap(descriptor, size_bytes))
        except OSError as error:
            _raise_full(error)
        finally:
            os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        try:
            os.rename(self.directory / source, self.directory / target)
        except OSError as error:
            _raise_full(error)

    def unlink(self, name: str) -> None:
        os.unlink(self.directory / name)

    def sync_names(self) -> None:
        _sync_directory(self.directory)

    def boot_id(self) -> str:
        try:
            return Path(_BOOT_ID_FILE).read_text(encoding="ascii").strip()
        except OSError:
            return ""


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

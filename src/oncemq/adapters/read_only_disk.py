# SPDX-License-Identifier: Apache-2.0
"""A directory that is only looked at: no file is made, changed or locked, whoever else is using it.

May not: open anything for writing, or hold a lock, not even for an instant: a broker starting just then would be refused.
The idea: the same port as the real disk, so that recovery and verification run on it unchanged; whatever would write
is refused by the operating system's own error.
Next: os_disk.py for the one that writes.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

from oncemq.adapters.os_disk import OsFile, OsMappedFile
from oncemq.errors import DirectoryUnusable

_HIDDEN_NAMES = frozenset({"lost+found"})
_LOCK_NAME = "lock"
_LOCKS_FILE = "/proc/locks"


def _refuse(name: str) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)


class ReadOnlyDisk:
    """ports.Disk over one directory, reading only."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        try:
            names = os.listdir(self.directory)
        except NotADirectoryError:
            raise DirectoryUnusable(str(directory), "it is a file, not a directory") from None
        except FileNotFoundError:
            raise DirectoryUnusable(str(directory), "it does not exist") from None
        except OSError as error:
            raise DirectoryUnusable(str(directory), error.strerror or str(error)) from error
        if not names:
            raise DirectoryUnusable(str(directory), "it is empty")

    def __str__(self) -> str:
        return str(self.directory)

    def is_locked(self) -> bool:
        """Whether a process holds the directory's lock, as far as this system tells (Linux: proc(5), /proc/locks)."""
        try:
            status = os.stat(self.directory / _LOCK_NAME)
            held = Path(_LOCKS_FILE).read_text(encoding="ascii")
        except OSError:
            return False
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        return any(device in line.split() and "FLOCK" in line for line in held.splitlines())

    def sizes(self) -> dict[str, int]:
        """Bytes of each file, space that was allocated ahead included, as a measure of how much there is to read."""
        return {name: os.stat(self.directory / name).st_size for name in self.names()}

    # --- ports.Disk ----------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(name for name in os.listdir(self.directory) if name not in _HIDDEN_NAMES)

    def open(self, name: str, *, create: bool = False) -> OsFile:
        if create:
            _refuse(name)
        return OsFile(os.open(self.directory / name, os.O_RDONLY | os.O_CLOEXEC))

    def lock(self) -> None:
        _refuse(_LOCK_NAME)

    def unlock(self) -> None:
        pass

    def map(self, name: str, size_bytes: int) -> OsMappedFile:
        _refuse(f"{name} of {size_bytes} bytes")

    def rename(self, source: str, target: str) -> None:
        _refuse(f"{source} to {target}")

    def unlink(self, name: str) -> None:
        _refuse(name)

    def sync_names(self) -> None:
        _refuse(str(self.directory))

    def boot_id(self) -> str:
        return ""

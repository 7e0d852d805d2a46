# SPDX-License-Identifier: Apache-2.0
"""A disk that writes down every change asked of it, so that each instant of a run can be looked at as a power cut.

May not: know what is written on it. It is a second disk beside sim/disk.py, with the same laws and none of its code.
The idea: the production code works on a Tape as on any disk; afterwards the tape is played, step by step, onto a Platter.
Next: sim/platter.py for what a power cut may leave, sim/images.py, which recovers from it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

from oncemq.errors import DirectoryLocked

Part = bytes | bytearray | memoryview
PARTS_PER_WRITE_MAX = 1024
"""As on Linux; a recorded run may be given fewer, so that small groups are written in several pieces as well."""
Image = dict[str, tuple[bytes, int]]
"""Name to content and size of every file; content beyond what is there is zeros."""


class Write(NamedTuple):
    """Bytes were handed to the page cache."""

    node: int
    position: int
    content: bytes


class Resize(NamedTuple):
    """A file was truncated, or allocated."""

    node: int
    size_bytes: int
    grows_only: bool


class Sync(NamedTuple):
    """Everything written to that file is on the platter."""

    node: int


class Link(NamedTuple):
    """A name was given (`source`: taken from another name), or, without a node, removed."""

    target: str
    node: int | None
    source: str | None


class SyncNames(NamedTuple):
    """All names so far are on the platter."""


class Mark(NamedTuple):
    """From here on this is promised to whoever recovers."""

    promise: int


Change = Write | Resize
Step = Write | Resize | Sync | Link | SyncNames | Mark


class Node:
    """The page cache of one file. Bytes of an image are shared until somebody writes."""

    __slots__ = ("content", "number", "size")

    def __init__(self, number: int, content: bytes | bytearray = b"", size: int = 0) -> None:
        self.number = number
        self.content = content
        self.size = size

    def apply(self, change: Change) -> None:
        if isinstance(change, Write):
            self.put(change.position, change.content)
            self.size = max(self.size, change.position + len(change.content))
        elif not (change.grows_only and change.size_bytes <= self.size):
            self.content = self.content[: change.size_bytes]
            self.size = change.size_bytes

    def put(self, position: int, content: bytes) -> None:
        if isinstance(self.content, bytes):
            self.content = bytearray(self.content)
        missing = position - len(self.content)
        if missing > 0:
            self.content.extend(bytes(missing))
        self.content[position : position + len(content)] = content


class TapeFile:
    """ports.File and, with `content` instead of parts, ports.MappedFile."""

    __slots__ = ("_node", "_tape")

    def __init__(self, tape: Tape, node: Node) -> None:
        self._tape, self._node = tape, node

    def read(self, position: int, size_bytes: int) -> bytes:
        node = self._node
        end = min(position + size_bytes, node.size)
        found = bytes(node.content[position:end])
        missing = end - position - len(found)
        return found + bytes(missing) if missing > 0 else found

    def write(self, position: int, parts: Sequence[Part] | bytes) -> None:
        """Write so many parts at a time as the operating system takes; the process may die between two of them."""
        pieces, many = ([parts], 1) if isinstance(parts, bytes) else (parts, self._tape.parts_per_write)
        for first in range(0, len(pieces), many):
            content = b"".join(pieces[first : first + many])
            self._tape.change(self._node, Write(self._node.number, position, content))
            position += len(content)

    def sync(self) -> None:
        self._tape.steps.append(Sync(self._node.number))

    def allocate(self, size_bytes: int) -> None:
        self._tape.change(self._node, Resize(self._node.number, size_bytes, grows_only=True))

    def truncate(self, size_bytes: int) -> None:
        self._tape.change(self._node, Resize(self._node.number, size_bytes, grows_only=False))

    def size(self) -> int:
        return self._node.size

    def close(self) -> None:
        pass


class Tape:
    """ports.Disk that starts as an image and records what becomes of it."""

    def __init__(self, image: Image | None = None, boots: int = 1, *, parts_per_write: int = PARTS_PER_WRITE_MAX) -> None:
        files = (image or {}).items()
        self.steps: list[Step] = []
        self.parts_per_write = parts_per_write
        self._boots = boots
        self._names = {name: Node(number, *file) for number, (name, file) in enumerate(files)}
        self._nodes = len(self._names)
        self._is_locked = False

    @classmethod
    def after_kill(cls, cache: Image, numbers: dict[str, int], nodes: int) -> Tape:
        """The disk as the next process finds it if only a process has died: every file keeps its number."""
        tape = cls()
        tape._names = {name: Node(numbers[name], *file) for name, file in cache.items()}
        tape._nodes = nodes
        return tape

    def __str__(self) -> str:
        return "tape"

    def mark(self, promise: int) -> None:
        """Note what is promised from now on, as a number the subject understands."""
        self.steps.append(Mark(promise))

    def change(self, node: Node, change: Change) -> None:
        node.apply(change)
        self.steps.append(change)

    def cache(self) -> Image:
        """What a process that starts after kill -9 finds."""
        return {name: (bytes(node.content), node.size) for name, node in self._names.items()}

    def kill(self) -> None:
        """The process that had it is gone, and its lock with it."""
        self._is_locked = False

    # --- ports.Disk ---------------------------------------------------------------------------------

    def lock(self) -> None:
        if self._is_locked:
            raise DirectoryLocked(str(self), 0)
        self._is_locked = True

    def unlock(self) -> None:
        self._is_locked = False

    def names(self) -> list[str]:
        return sorted(self._names)

    def open(self, name: str, *, create: bool = False) -> TapeFile:
        node = self._names.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            node = self._names[name] = Node(self._nodes)
            self._nodes += 1
            self.steps.append(Link(name, node.number, None))
        file = TapeFile(self, node)
        if create and node.size:
            file.truncate(0)
        return file

    def map(self, name: str, size_bytes: int) -> TapeFile:
        file = self.open(name, create=name not in self._names)
        if file.size() != size_bytes:
            file.allocate(size_bytes)
            file.truncate(size_bytes)
        return file

    def rename(self, source: str, target: str) -> None:
        node = self._found(source)
        del self._names[source]
        self._names[target] = node
        self.steps.append(Link(target, node.number, source))

    def unlink(self, name: str) -> None:
        self._found(name)
        del self._names[name]
        self.steps.append(Link(name, None, None))

    def sync_names(self) -> None:
        self.steps.append(SyncNames())

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def _found(self, name: str) -> Node:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._names[name]

# SPDX-License-Identifier: Apache-2.0
"""What a power cut may leave: a tape played step by step, and at any step every legal outcome, or a sample of them.

May not: know what is written on it, or who recovers from it.
The idea:

    Platter  plays a tape, and knows what is sure and what is pending after each step
    Image    one legal outcome: of every pending sector some earlier state, of the names a prefix of their changes

Sectors of 512 bytes are independent of each other, of the size of their file and of names; a sector never holds the second of
two writes without the first. Where few things are pending all images can be had, else a sample.
Next: sim/images.py, which recovers from each image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import NamedTuple

from oncemq.sim.tape import Change, Image, Link, Mark, Node, Resize, Step, Sync, SyncNames, Tape, Write

SECTOR_BYTES = 512
_STRATEGIES = ("none", "all", "prefix", "prefix", "but one", "one", "mixture", "mixture", "mixture")


class Pending(NamedTuple):
    """What is on its way to one file: in how many steps its size may have arrived, and how often each sector was written."""

    changes: tuple[Change, ...]
    sizes: tuple[int, ...]
    sectors: tuple[tuple[int, int], ...]

    @property
    def outcomes(self) -> int:
        """How many there can be."""
        found = len(self.sizes)
        for _, times in self.sectors:
            found *= times + 1
        return found


class Kept(NamedTuple):
    """One outcome for one file: how many changes of size arrived, and how many writes of each sector."""

    sizes: int
    sectors: dict[int, int]


class Platter:
    """What is on the platter after some steps of a tape, and what is not there yet."""

    def __init__(self, image: Image | None = None) -> None:
        names = image or {}
        self._files: dict[int, tuple[bytes, int]] = {number: names[name] for number, name in enumerate(names)}
        self._names: dict[str, int] = {name: number for number, name in enumerate(names)}
        self._changes: dict[int, list[Change]] = {}
        self._name_log: list[Link] = []
        self._nodes = len(names)
        self._known: dict[int, Pending] = {}

    def fork(self) -> Platter:
        """The same, to be played on by itself."""
        other = Platter()
        other._files, other._names, other._known = dict(self._files), dict(self._names), dict(self._known)
        other._changes = {number: list(changes) for number, changes in self._changes.items()}
        other._name_log, other._nodes = list(self._name_log), self._nodes
        return other

    def cache(self) -> Image:
        """What a process that starts after kill -9 finds: nothing is lost but the process."""
        return self.image(len(self._name_log), {number: _everything(self._pending(number)) for number in self._changes})

    def after_kill(self) -> Tape:
        """The same as a disk that goes on recording. What was pending is pending still."""
        return Tape.after_kill(self.cache(), self._names_after(len(self._name_log)), self._nodes)

    def play(self, step: Step) -> None:
        match step:
            case Write(node) | Resize(node):
                self._changes.setdefault(node, []).append(step)
                self._known.pop(node, None)
            case Sync(node):
                self._sync(node)
            case Link(_, node):
                self._name_log.append(step)
                self._nodes = max(self._nodes, 0 if node is None else node + 1)
            case SyncNames():
                self._names = self._names_after(len(self._name_log))
                self._name_log.clear()
            case Mark():
                pass

    def _sync(self, number: int) -> None:
        node = Node(number, *self._files.get(number, (b"", 0)))
        for change in self._changes.pop(number, ()):
            node.apply(change)
        self._files[number] = bytes(node.content), node.size
        self._known.pop(number, None)

    def _names_after(self, count: int) -> dict[str, int]:
        names = dict(self._names)
        for link in self._name_log[:count]:
            if link.source is not None:
                names.pop(link.source, None)
            if link.node is None:
                names.pop(link.target, None)
            else:
                names[link.target] = link.node
        return names

    def _pending(self, number: int) -> Pending:
        """Worked out once per change of a file."""
        found = self._known.get(number)
        if found is None:
            changes = tuple(self._changes.get(number, ()))
            sectors: dict[int, int] = {}
            for change in changes:
                for sector in _sectors(change):
                    sectors[sector] = sectors.get(sector, 0) + 1
            size = self._files.get(number, (b"", 0))[1]
            found = self._known[number] = Pending(changes, _sizes(changes, size), tuple(sectors.items()))
        return found

    # --- images --------------------------------------------------------------------------------------

    def images(self, random: Random, *, all_up_to: int, sample: int) -> Iterator[Image]:
        """Every image there can be if there are at most `all_up_to`, else a sample; the first is the whole cache."""
        yield self.image(len(self._name_log), {number: _everything(self._pending(number)) for number in self._changes})
        if self._count() <= all_up_to:
            for kept in range(len(self._name_log) + 1):
                yield from self._every(kept)
        else:
            for _ in range(sample):
                yield self.sample(random)

    def _count(self) -> int:
        total = 0
        for kept in range(len(self._name_log) + 1):
            found = 1
            for number in self._unsure(kept):
                found *= self._pending(number).outcomes
            total += found
        return total

    def _unsure(self, names_kept: int) -> list[int]:
        """Files that have a name then, and changes on their way."""
        return [number for number in dict.fromkeys(self._names_after(names_kept).values()) if number in self._changes]

    def _every(self, names_kept: int) -> Iterator[Image]:
        numbers = self._unsure(names_kept)
        for outcome in product(*(_all_kept(self._pending(number)) for number in numbers)):
            yield self.image(names_kept, dict(zip(numbers, outcome, strict=True)))

    def sample(self, random: Random) -> Image:
        """One legal image, drawn so that plain losses and odd mixtures both come up often."""
        strategy = random.choice(_STRATEGIES)
        names_kept = {"none": 0, "one": 0}.get(strategy, random.randint(0, len(self._name_log)))
        if strategy in {"all", "but one", "prefix"} or random.random() < 0.3:
            names_kept = len(self._name_log)
        numbers = self._unsure(names_kept)
        return self.image(names_kept, {number: _draw(self._pending(number), strategy, random) for number in numbers})

    def image(self, names_kept: int, outcomes: dict[int, Kept]) -> Image:
        """Put an image together; files without an outcome are as they are on the platter."""
        return {name: self._file(number, outcomes.get(number)) for name, number in sorted(self._names_after(names_kept).items())}

    def _file(self, number: int, kept: Kept | None) -> tuple[bytes, int]:
        """Each write leaves those of its sectors that arrived; the size is what its own steps say."""
        on_platter = self._files.get(number, (b"", 0))
        if kept is None:
            return on_platter
        node, size = Node(number, *on_platter), on_platter[1]
        left = dict(kept.sectors)
        for index, change in enumerate(self._pending(number).changes):
            if index < kept.sizes:
                size = _size_after(change, size)
            if isinstance(change, Write):
                _put_sectors(node, change, left)
            elif index < kept.sizes:
                node.apply(change)
        return bytes(node.content[:size]), size


def _sectors(change: Change) -> range:
    if isinstance(change, Resize):
        return range(0)
    end = change.position + len(change.content)
    return range(change.position // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES)


def _put_sectors(node: Node, change: Write, left: dict[int, int]) -> None:
    end = change.position + len(change.content)
    for sector in _sectors(change):
        if left.get(sector, 0) > 0:
            left[sector] -= 1
            start, stop = max(change.position, sector * SECTOR_BYTES), min(end, (sector + 1) * SECTOR_BYTES)
            node.put(start, change.content[start - change.position : stop - change.position])


def _size_after(change: Change, size: int) -> int:
    if isinstance(change, Write):
        return max(size, change.position + len(change.content))
    return max(size, change.size_bytes) if change.grows_only else change.size_bytes


def _sizes(changes: Sequence[Change], size: int) -> tuple[int, ...]:
    """How many changes may have reached the size: only those counts that make a difference."""
    found = [0]
    for index, change in enumerate(changes):
        after = _size_after(change, size)
        if after != size or (isinstance(change, Resize) and not change.grows_only):
            found.append(index + 1)
        size = after
    return tuple(found)


def _everything(pending: Pending) -> Kept:
    return Kept(len(pending.changes), dict(pending.sectors))


def _all_kept(pending: Pending) -> Iterator[Kept]:
    names = [sector for sector, _ in pending.sectors]
    for sizes in pending.sizes:
        for counts in product(*(range(times + 1) for _, times in pending.sectors)):
            yield Kept(sizes, dict(zip(names, counts, strict=True)))


def _draw(pending: Pending, strategy: str, random: Random) -> Kept:
    match strategy:
        case "none":
            return Kept(0, {})
        case "all":
            return _everything(pending)
        case "prefix":
            return _draw_prefix(pending, random)
        case "but one" | "one" if pending.sectors:
            odd, times = random.choice(pending.sectors)
            sectors = {odd: times} if strategy == "one" else dict(pending.sectors) | {odd: times - 1}
            return Kept(random.choice((len(pending.changes), *pending.sizes)), sectors)
        case _:
            return Kept(random.choice(pending.sizes), {sector: random.randint(0, times) for sector, times in pending.sectors})


def _draw_prefix(pending: Pending, random: Random) -> Kept:
    """All changes before one instant, and part of the one under way."""
    whole = random.randint(0, len(pending.changes))
    sectors: dict[int, int] = {}
    for index, change in enumerate(pending.changes[: whole + 1]):
        touched = list(_sectors(change))
        for sector in touched if index < whole else touched[: random.randint(0, len(touched))]:
            sectors[sector] = sectors.get(sector, 0) + 1
    return Kept(whole, sectors)

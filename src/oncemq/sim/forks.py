# SPDX-License-Identifier: Apache-2.0
"""What a history says of directories that were set back to an older copy: what may be gone, and who must have been told.

May not: import the product, or forgive silence.
The idea: what happened after a copy was made is gone once the copy takes the directory's place. That is no offence if whoever
had seen it is told before going on. Or has done nothing since, or lost its own memory with the power: then nobody could know.
Who takes over aloud has said that it takes the broker as it is.

    copied ............ lost ............ set back ....... told ....... goes on
       └─ events before it are in the copy and bind for ever

Next: sim/checkers.py, whose judges ask here; sim/rollback.py, which sets directories back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

Event = dict[str, str | int | bool | None]

BROKER = "broker"


class Forks:
    """Everything about set-back directories in one history; places in it are numbers of events."""

    OPERATIONS = ("set_back", "crash", "told", "start_over", "welcome", "put", "drained")
    """What it has to be shown, if any directory was set back."""

    def __init__(self, steps: Iterable[tuple[int, Event]]) -> None:
        self._set_back: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """Whose directory: (when it was set back, when the copy was made)."""
        self._told: dict[str, list[int]] = defaultdict(list)
        self._power_cuts: dict[str, list[int]] = defaultdict(list)
        self._acts: dict[str, list[int]] = defaultdict(list)
        """Beginnings of what only somebody does who believes that all is well."""
        self._renewals: dict[str, list[int]] = defaultdict(list)
        """From these on, a process remembers nothing but what its directory says."""
        self._confirmed: dict[tuple[str, str], int] = {}
        """When a process was last told where a message of its own is."""
        self._receipts: dict[str, list[int]] = defaultdict(list)
        begun: dict[tuple[str, int, str, str], int] = {}
        for index, event in steps:
            self._read(index, event, begun)

    def _read(self, index: int, event: Event, begun: dict[tuple[str, int, str, str], int]) -> None:
        process = str(event["process"])
        operation = str(event["op"])
        key = process, int(event["life"] or 0), operation, str(event.get("message"))
        match operation, event["kind"]:
            case "set_back", _:
                self._set_back[str(event["name"])].append((index, int(event["copied"] or 0)))
            case "crash", _ if event.get("power_cut"):
                self._power_cuts[str(event["name"])].append(index)
            case (("told" | "start_over"), _):
                self._told[process].append(index)
                self._renewals[process].append(index)
            case (("welcome" | "put"), "invoke"):
                begun[key] = index
            case (("welcome" | "put" | "drained"), "ok"):
                self._acts[process].append(begun.get(key, index))
                if operation == "put":
                    self._confirmed[process, str(event["message"])] = index
                    self._receipts[process].append(index)
                if operation == "welcome":
                    self._renewals[process].append(index)

    @property
    def broker(self) -> list[tuple[int, int]]:
        """When the broker was set back, and when each of those copies was made."""
        return self._set_back[BROKER]

    def was_touched(self, process: str, index: int) -> bool:
        """Whether the broker's directory, or this process's own, was set back before that event."""
        return any(at < index for name in (BROKER, process) for at, _ in self._set_back[name])

    def is_stale(self, process: str, index: int) -> bool:
        """Whether a process may at that event still speak from what it held in memory when the broker was set back."""
        if not self.broker:
            return False
        last = max((at for at, _ in self.broker if at < index), default=None)
        return last is not None and not _any_between(self._renewals[process], last, index)

    def may_be_gone(self, process: str, index: int, message: str = "") -> bool:
        """Whether what this process saw or was confirmed at that event may be missing from the broker at the end.

        Who does the same again (a batch that runs once more) and is told another place of that message has been told.
        """
        again = self._confirmed.get((process, message), -1)
        return any(
            self._is_answered_for(process, index, at, copied) or (copied <= index < at < again) for at, copied in self.broker
        )

    def may_be_dropped(self, process: str, index: int, message: str) -> bool:
        """The same of what the process had kept in its own directory, until the broker had it."""
        own = any(self._is_answered_for(process, index, at, copied) for at, copied in self._set_back[process])
        return own or any(
            self._left_by(process, index, message, at) >= copied and self._was_told(process, index, at)
            for at, copied in self.broker
        )

    def _left_by(self, process: str, index: int, message: str, at: int) -> int:
        """When a message that was kept may at the latest have left for a broker that was set back at `at`.

        At its receipt. Without one it was pending, and left before the next receipt: that is told once all before it have left.
        """
        if index >= at or (process, message) in self._confirmed:
            return index
        return min(next((place for place in self._receipts[process] if place > index), at), at)

    def _is_answered_for(self, process: str, index: int, at: int, copied: int) -> bool:
        return index >= copied and self._was_told(process, index, at)  # Else it is in the copy.

    def _was_told(self, process: str, index: int, at: int) -> bool:
        """Whether who saw something at `index`, which a directory set back at `at` lacks, was told, or could not be."""
        if index > at and _any_between(self._renewals[process], at, index):
            return False  # It came after the copy was put in its place.
        since = max(index, at)
        if _any_after(self._told[process], since) or _any_after(self._power_cuts[process], index):
            return True
        return not _any_after(self._acts[process], since)


def _any_between(places: Iterable[int], first: int, end: int) -> bool:
    return any(first < place < end for place in places)


def _any_after(places: Iterable[int], index: int) -> bool:
    return any(place > index for place in places)

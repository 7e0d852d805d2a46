# SPDX-License-Identifier: Apache-2.0
"""Seeded bugs: ways to break the product on purpose, one at a time, to prove that the judges would see it.

May not: touch the product but through a Patch, which takes everything back.
The idea: each is a mistake somebody could make, most of them taken from the holes the design was made to close. A simulator
that misses one of them is the bug to mend first. `oncemq sim --bugs` runs seeds against each until it is caught.
Next: sim/bugs_broker.py and its neighbours for the bugs, sim/hunt.py for the hunt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

FILES = (
    "broker",
    "cleaner",
    "client",
    "cursors",
    "isolation",
    "live",
    "once",
    "progress",
    "refusals",
    "restored",
    "staging",
)
"""sim/bugs_*.py."""


class Patch:
    """Replaces attributes, and puts them back."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        self._undo.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def undo(self) -> None:
        for owner, name, value in reversed(self._undo):
            setattr(owner, name, value)


class Without:
    """Something, but for one method that does nothing. For calls in which other processes may run: a Patch would hit them."""

    def __init__(self, target: Any, method: str) -> None:
        self._target = target
        self._method = method

    def __getattr__(self, name: str) -> Any:
        return (lambda *_, **__: None) if name == self._method else getattr(self._target, name)


Bug = Callable[[Patch], None]
BUGS: dict[str, Bug] = {}


def bug(function: Bug) -> Bug:
    """Register a bug under its name."""
    BUGS[function.__name__] = function
    return function


def all_bugs() -> dict[str, Bug]:
    """Every bug there is."""
    for name in FILES:
        import_module(f"oncemq.sim.bugs_{name}")  # They register themselves here.
    return BUGS


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run with one bug in the product."""
    with Patch() as patch:
        all_bugs()[name](patch)
        yield

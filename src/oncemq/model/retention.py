# SPDX-License-Identifier: Apache-2.0
"""How long messages are kept: `retain` adds to what subscribers still need, `limit` may take from it.

May not: look at a clock: ages are compared by whoever has one.
The idea: one small text form, `forever`, `age:SECONDS` or `size:BYTES`, stored and sent as it is;
people may write `7d` or `10GiB`.
Next: core/retention.py, which decides what may go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oncemq.errors import UsageError

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_UNITS_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_READABLE_S = {unit: _UNITS_S[unit] for unit in ("d", "h", "m", "s")}
_READABLE_BYTES = {unit: _UNITS_BYTES[unit] for unit in ("TiB", "GiB", "TB", "GB", "MiB", "MB", "KiB", "KB", "B")}


@dataclass(frozen=True, slots=True)
class Retention:
    """At most one of: forever, a time, a size. None of them: nothing beyond interest (or no limit)."""

    is_forever: bool = False
    age_us: int | None = None
    size_bytes: int | None = None

    @property
    def is_set(self) -> bool:
        return self.is_forever or self.age_us is not None or self.size_bytes is not None


def _is_within_bounds(text: str) -> bool:
    number = text.partition(":")[2]
    return number.isascii() and number.isdigit() and len(number) <= 18 and int(number) > 0


def read_retention(text: str) -> Retention:
    """Read the stored form; raise UsageError if it is none."""
    kind, _, number = text.partition(":")
    if not text:
        return Retention()
    if text == "forever":
        return Retention(is_forever=True)
    if kind in {"age", "size"} and _is_within_bounds(text):
        return Retention(age_us=int(number) * 1_000_000) if kind == "age" else Retention(size_bytes=int(number))
    raise UsageError(f"{text!r} is not a retention: use 'forever', a time like '7d' or '12h', or a size like '10GiB'")


def retention_text(text: str) -> str:
    """Turn what a person writes (`7d`, `10GiB`, `forever`) into the stored form; raise UsageError if it is none."""
    if not isinstance(text, str):
        raise UsageError(f"{text!r} is not a retention: use 'forever', a time like '7d' or '12h', or a size like '10GiB'")
    found = re.fullmatch(r"([0-9]{1,12})([A-Za-z]+)", text)
    if found is None:
        read_retention(text)
        return text
    number, unit = int(found[1]), found[2]
    stored = ""
    if unit in _UNITS_S:
        stored = f"age:{number * _UNITS_S[unit]}"
    elif unit in _UNITS_BYTES:
        stored = f"size:{number * _UNITS_BYTES[unit]}"
    if not stored or not _is_within_bounds(stored):
        raise UsageError(f"{text!r} is not a retention: use 'forever', a time like '7d' or '12h', or a size like '10GiB'")
    return stored


def readable(stored: str) -> str:
    """Return the stored form as a person would write it: `7d` for `age:604800`."""
    kind, _, number = stored.partition(":")
    units = {"age": _READABLE_S, "size": _READABLE_BYTES}.get(kind)
    if units is None:
        return stored
    return next(f"{int(number) // size}{unit}" for unit, size in units.items() if int(number) % size == 0)

# SPDX-License-Identifier: Apache-2.0
"""What callers may say: every argument of the client's calls, checked and turned into what the machines take.

May not: let anything else through: what cannot be is a UsageError in our words, and nothing has left this process.
Next: client/client.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from oncemq.errors import UsageError
from oncemq.limits import OFFSET_MAX

_FOR_EVER_S = 1e9
"""Some thirty years: a longer time is as good as none, and fits into every clock."""


def as_bytes(value: object) -> bytes:
    """Accept bytes-like values only: guessing an encoding would change what is stored."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise UsageError(f"a value must be bytes, not {type(value).__name__}: encode it first, for example text.encode()")


def milliseconds(timeout: object) -> int | None:
    """Turn seconds as a caller gives them into milliseconds; None is for ever."""
    if timeout is None:
        return None
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout >= 0:  # The last also refuses NaN.
        raise UsageError(f"a timeout is a number of seconds and cannot be negative, not {timeout!r}")
    return None if timeout > _FOR_EVER_S else int(timeout * 1000)


def flags(**given: object) -> None:
    """True or False, and nothing that merely counts as one: it goes into packets, and "no" counts as true."""
    for name, value in given.items():
        if type(value) is not bool:
            raise UsageError(f"{name} is True or False, not {value!r}"[:200])


def as_topics(topic: object) -> tuple[str, ...]:
    """The topics of a put, as plain text: one, or a list or tuple of them."""
    names = (topic,) if isinstance(topic, str) else topic
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"a topic is text, or several in a list or tuple, not {topic!r}"[:200])
    return tuple(map(str.__str__, names))


def with_keys(values: Iterable[bytes], keys: Sequence[bytes | None] | None) -> tuple[Iterable[bytes], list[bytes | None] | None]:
    """The values of a put_many with one key, or None, each; without keys the values as they come."""
    if keys is None:
        return values, None
    if not isinstance(keys, Iterable):
        raise UsageError(f"keys are a list with one key (or None) per value, not {type(keys).__name__}")
    known, given = list(values), list(keys)
    if len(known) != len(given):
        raise UsageError(f"{len(known)} values and {len(given)} keys: give one key (or None) per value")
    return known, given


def whole(number: object, what: str, lowest: int) -> int:
    """A whole number of at least that much."""
    if not isinstance(number, int) or isinstance(number, bool) or number < lowest:
        raise UsageError(f"{what} must be a whole number of at least {lowest}, not {number!r}")
    return int(number)


def _wall_us(time: datetime) -> int:
    """Microseconds since 1970; what is before that is as good as the beginning."""
    try:
        return max(0, int(time.timestamp() * 1_000_000))
    except (ValueError, OverflowError):  # Too far from 1970 for the clock of this machine: nothing was stored before it.
        return 0


def start_of(start: str | int | datetime) -> tuple[str, int]:
    """Turn what a caller says into what the wire says."""
    match start:
        case "new":
            return "new", 0
        case "earliest":
            return "earliest", 0
        case bool():
            raise UsageError("start must be 'new', 'earliest', an offset or a datetime")
        case int() if 0 <= start <= OFFSET_MAX:
            return "offset", int(start)
        case datetime():
            return "time", _wall_us(start)
        case _:
            raise UsageError("start must be 'new', 'earliest', an offset or a datetime")

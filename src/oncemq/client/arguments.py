# SPDX-License-Identifier: Apache-2.0
"""What callers may say: every argument of the client's calls, checked and turned into what the machines take.

May not: let anything else through: what cannot be is a UsageError in our words, and nothing has left this process.
Next: client/client.py.
"""

from __future__ import annotations

from datetime import datetime

from oncemq.errors import UsageError
from oncemq.limits import OFFSET_MAX


def as_bytes(value: object) -> bytes:
    """Accept bytes-like values only: guessing an encoding would change what is stored."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise UsageError(f"a value must be bytes, not {type(value).__name__}: encode it first, for example text.encode()")


def milliseconds(timeout: object) -> int | None:
    """Turn seconds as a caller gives them into milliseconds; None is for ever."""
    if timeout is None:
        return None
    if not isinstance(timeout, int | float) or not timeout >= 0:  # The second also refuses NaN.
        raise UsageError(f"a timeout is a number of seconds and cannot be negative, not {timeout!r}")
    return None if timeout == float("inf") else int(timeout * 1000)


def as_topics(topic: object) -> tuple[str, ...]:
    """The topics of a put: one as text, or a list or tuple of them."""
    if isinstance(topic, str):
        return (topic,)
    if not isinstance(topic, list | tuple) or not all(isinstance(name, str) for name in topic):
        raise UsageError(f"a topic is text, or several in a list or tuple, not {topic!r}"[:200])
    return tuple(topic)


def whole(number: object, what: str, lowest: int) -> int:
    """A whole number of at least that much."""
    if not isinstance(number, int) or isinstance(number, bool) or number < lowest:
        raise UsageError(f"{what} must be a whole number of at least {lowest}, not {number!r}")
    return number


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
            return "offset", start
        case datetime():
            return "time", _wall_us(start)
        case _:
            raise UsageError("start must be 'new', 'earliest', an offset or a datetime")

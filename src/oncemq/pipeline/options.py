# SPDX-License-Identifier: Apache-2.0
"""The options of `format("oncemq")`: read once, checked at once, and every complaint names the option and what it may be.

May not: ask a broker anything; accept an option it does not know: a misspelt rate limit would be no rate limit.
The idea: Spark lower-cases names of options and hands over text. Here they become two frozen values, one for reading and one
for writing, which travel to executors inside the pickled reader or writer.
Next: docs/pipeline.md has the same as a table; source.py and sink.py use them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from oncemq.client.connect import DEFAULT_ADDRESS
from oncemq.errors import InvalidName, UsageError
from oncemq.limits import OFFSET_MAX
from oncemq.model.names import check_client, check_topic
from oncemq.pipeline.arrow import COLUMNS, TYPES

EARLIEST, LATEST = -2, -1
"""What these words are as numbers, as in Kafka's JSON."""

Value = TypeVar("Value")
Place = int | datetime
"""An offset (or EARLIEST, LATEST), or the time from which on messages count."""

SOURCE = (
    "address", "subscribe", "subscription", "startingOffsets", "endingOffsets", "maxOffsetsPerTrigger", "maxBytesPerTrigger",
    "minPartitions", "failOnDataLoss", "includeHeaders", "columns",
)  # fmt: skip
SINK = ("address", "topic", "transactionId")
FROM_SPARK = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Options that Spark itself hands to a sink."""


class BadOption(UsageError):
    def __init__(self, option: str, given: object, allowed: str) -> None:
        self.option, self.given, self.allowed = option, given, allowed
        said = "it is missing" if given is None else f"{str(given)[:80]!r} is not one of them"
        super().__init__(f"option {option!r} of format 'oncemq' must be {allowed}; {said}")


class Places(msgspec.Struct, frozen=True):
    """Where to start or end: one place for all topics, or one for each that is named."""

    everywhere: Place | None
    each: dict[str, Place] = {}

    def of(self, topic: str) -> Place:
        found = self.each.get(topic, self.everywhere)
        return EARLIEST if found is None else found


class SourceOptions(msgspec.Struct, frozen=True):
    """What to read."""

    address: str
    topics: tuple[str, ...]
    subscription: str
    starting: Places
    ending: Places
    rows_per_trigger: int | None
    bytes_per_trigger: int | None
    partitions_min: int | None
    fail_on_data_loss: bool
    columns: tuple[str, ...]


class SinkOptions(msgspec.Struct, frozen=True):
    """Where to write."""

    address: str
    topic: str | None
    transaction: str | None


# --- reading them -----------------------------------------------------------------------------------


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read and check the options of a source; raise BadOption."""
    _refuse_unknown(given, SOURCE, frozenset())
    topics = _read(given, "subscribe", _topics, "the name of a topic, or several separated by commas", needed=True)
    if streaming and given.get("endingoffsets") is not None:
        raise BadOption("endingOffsets", given["endingoffsets"], "left out with readStream: a stream has no end (use trigger)")
    return SourceOptions(
        given.get("address", DEFAULT_ADDRESS),
        topics,
        _subscription(given, streaming=streaming),
        _places(given, "startingOffsets", topics, EARLIEST),
        _places(given, "endingOffsets", topics, LATEST),
        _read(given, "maxOffsetsPerTrigger", _positive, "a whole number above 0"),
        _read(given, "maxBytesPerTrigger", _size, "a whole number of bytes above 0, or one with k, m or g behind it"),
        _read(given, "minPartitions", _positive, "a whole number above 0"),
        _truth(given, "failOnDataLoss", default=True),
        columns_of(given),
    )


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Read and check the options of a sink; raise BadOption."""
    _refuse_unknown(given, SINK, FROM_SPARK)
    if streaming and given.get("transactionid") is not None:
        raise BadOption("transactionId", given["transactionid"], "left out with writeStream: the query's id is used")
    return SinkOptions(
        given.get("address", DEFAULT_ADDRESS),
        _read(given, "topic", check_topic, "the name of a topic"),
        _read(given, "transactionId", check_client, "dot-separated words of ASCII letters, digits, '_' and '-'"),
    )


def _read(given: Mapping[str, str], option: str, read: Callable[[str], Value], allowed: str, *, needed: bool = False) -> Any:
    text = given.get(option.lower())
    if text is None:
        if needed:
            raise BadOption(option, None, allowed)
        return None
    try:
        return read(text)
    except (ValueError, TypeError, InvalidName) as problem:
        raise BadOption(option, text, allowed) from problem


def _refuse_unknown(given: Mapping[str, str], known: tuple[str, ...], others: frozenset[str]) -> None:
    names = {option.lower() for option in known} | others
    for option in given:
        if option.lower() not in names:
            raise UsageError(f"format 'oncemq' has no option {option!r} here; it knows {', '.join(known)}")


def _subscription(given: Mapping[str, str], *, streaming: bool) -> str:
    allowed = (
        "a name of its own for every streaming query, such as 'orders-to-lake': the broker keeps messages for that name"
        if streaming
        else "left out with read: only readStream has a subscription"
    )
    if not streaming and given.get("subscription") is not None:
        raise BadOption("subscription", given["subscription"], allowed)
    return _read(given, "subscription", check_client, allowed, needed=streaming) or ""


# --- one kind each ----------------------------------------------------------------------------------


def _topics(text: str) -> tuple[str, ...]:
    names = json.loads(text) if text.lstrip().startswith("[") else [name.strip() for name in text.split(",")]
    if not names or len(set(names)) != len(names):
        raise ValueError("no topic, or one twice")
    return tuple(sorted(check_topic(name) for name in names))


def _places(given: Mapping[str, str], option: str, topics: tuple[str, ...], default: int) -> Places:
    allowed = (
        f"earliest, latest, a time such as 2026-01-31T12:00:00Z, or JSON such as {{{json.dumps(topics[0])}: 17}} with an offset, "
        "-2 (earliest), -1 (latest) or a time for each of the topics"
    )
    found = _read(given, option, _place_or_places, allowed) or Places(default)
    if set(found.each) - set(topics):
        raise BadOption(option, given[option.lower()], f"about topics of option 'subscribe' only ({', '.join(topics)})")
    if found.each and set(found.each) != set(topics):
        missing = ", ".join(sorted(set(topics) - set(found.each)))
        raise BadOption(option, given[option.lower()], f"about every topic of option 'subscribe' (missing: {missing})")
    return found


def _place_or_places(text: str) -> Places:
    if not text.lstrip().startswith("{"):
        return Places(_place(text.strip()))
    return Places(None, {check_topic(topic): _place(place) for topic, place in json.loads(text).items()})


def _place(given: object) -> Place:
    match given:
        case "earliest" | "latest":
            return EARLIEST if given == "earliest" else LATEST
        case str():
            found = datetime.fromisoformat(given)
            return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        case bool():
            raise ValueError(given)
        case int() if EARLIEST <= given <= OFFSET_MAX:
            return given
        case _:
            raise ValueError(given)


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(text)
    return number


def _size(text: str) -> int:
    factor = {"k": 1024, "m": 1024**2, "g": 1024**3}.get(text[-1:].lower(), 1)
    return _positive(text[:-1] if factor > 1 else text) * factor


def _truth(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    words = {"true": True, "false": False}
    found = _read(given, option, lambda text: words.get(text.lower(), text), "true or false")
    if found is not None and not isinstance(found, bool):
        raise BadOption(option, found, "true or false")
    return default if found is None else found


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """Which columns are asked for."""
    with_headers = _truth(given, "includeHeaders", default=False)
    allowed = f"one or more of {', '.join(TYPES)}, separated by commas"
    names = _read(given, "columns", lambda text: tuple(name.strip() for name in text.split(",")), allowed)
    if names is None:
        return tuple(name for name in COLUMNS if with_headers or name != "headers")
    if not set(names) <= set(TYPES) or len(set(names)) != len(names):
        raise BadOption("columns", given["columns"], allowed)
    return tuple(names)

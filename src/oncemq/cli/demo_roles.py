# SPDX-License-Identifier: Apache-2.0
"""The publisher and the subscribers of `oncemq demo`, each a process of its own with a real state directory.

May not: know how many messages the others have seen; keep in memory what it should have written down as a fact.
The idea: values are unique numbers. The publisher writes a number down once its put is confirmed, a subscriber writes
down every number it is handed, twice if it comes twice. Lost and twice are then counted, never assumed.
Next: demo_stage.py, which starts and kills; demo.py, which counts.
"""

from __future__ import annotations

import select
import sys
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from oncemq.client.connect import connect
from oncemq.errors import BrokerUnreachable, PutPending

if TYPE_CHECKING:
    from oncemq.client.client import Client

TOPIC = "demo"
_TURN_S = 0.3
_PUT_TOGETHER = 20
"""Messages of one put: few enough that a kill meets many puts on their way, enough to be done in seconds."""


def publish(address: str, directory: Path, messages: int, marks: frozenset[int]) -> None:
    """Put the numbers 0, 1, 2 …, some at a time; say so on stdout whenever one of `marks` is reached, and go on."""
    with connect(address, id="publisher", state=directory / "state") as client, _facts(directory) as confirmed:
        for first in range(0, messages, _PUT_TOGETHER):
            numbers = range(first, min(first + _PUT_TOGETHER, messages))
            for mark in sorted(marks.intersection(numbers)):
                print(mark, flush=True)
            _put_surely(client, [b"%d" % number for number in numbers])
            confirmed.write(b"".join(b"%d\n" % number for number in numbers))


def _put_surely(client: Client, values: list[bytes]) -> None:
    """Put once. What gets no answer is kept by the client and must not be put again, only waited for."""
    try:
        client.put_many(TOPIC, values, strict=True)
    except PutPending:
        while client.pending:
            with suppress(PutPending):
                client.flush()


def listen(address: str, directory: Path) -> None:
    """Write down every message until stdin is closed and the topic has no more."""
    with connect(address, id=directory.name, state=directory / "state") as client, _facts(directory) as got:
        client.subscribe(TOPIC)
        print("ready", flush=True)
        while True:
            # Asked before the get: whatever was confirmed before stdin was closed is then in the topic.
            is_ending = bool(select.select([sys.stdin], [], [], 0)[0])
            try:
                message = client.get(TOPIC, timeout=_TURN_S)
            except BrokerUnreachable:
                continue
            if message is not None:
                got.write(message.value + b"\n")
            elif is_ending:
                return


def facts_in(directory: Path) -> Path:
    """Where a role writes down what happened to it."""
    return directory / "facts"


def _facts(directory: Path) -> FileIO:
    """Unbuffered: a fact is a fact once it happened, whatever happens next."""
    return facts_in(directory).open("wb", buffering=0)


def main() -> None:
    """`python -m oncemq.cli.demo_roles publish ADDRESS DIR MESSAGES MARK…` or `… listen ADDRESS DIR`."""
    role, address, directory, *rest = sys.argv[1:]
    if role == "listen":
        listen(address, Path(directory))
    else:
        publish(address, Path(directory), int(rest[0]), frozenset(map(int, rest[1:])))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Small programs that tests start as real processes: a publisher and a subscriber.

May not: decide whether a test passes. They do what an application does and write down what happened, one fact per line.
The idea: a fact is one `write` to a file opened for appending, so it survives kill -9 the moment it is written. The
subscriber settles what is in doubt as a careful application would: it looks up in its own facts whether it has seen it.
Next: harness.py, which starts these and reads the facts.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path

import oncemq
from oncemq.adapters.crash_hook import install_from_environment
from oncemq.client import puts, session

GAVE_UP, TORN = 3, 9
PATIENT_TRIES = 7
"""Two minutes instead of seven seconds: a broker that comes back on a busy machine takes longer than those."""
END = b"end"
"""The value after which a subscriber goes home."""


class Facts:
    """What happened, one line each, on the disk cache at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, *lines: str) -> None:
        """Write lines down in one go: all of them survive, or none."""
        os.write(self._descriptor, "".join(f"{line}\n" for line in lines).encode())

    def offsets_seen(self) -> set[int]:
        words = (line.split() for line in self._path.read_text().splitlines())
        return {int(entry[1]) for entry in words if entry and entry[0] == "got"}


def value_of(client: str, number: int, size_bytes: int) -> bytes:
    """The value a publisher puts as its `number`th: its name and number, filled up to a size."""
    return f"{client}:{number}".encode().ljust(size_bytes, b".")


def wait_for(path: Path) -> None:
    """Go on once a file is there."""
    pause = threading.Event()
    while not path.exists():
        pause.wait(0.005)


# --- publisher ------------------------------------------------------------------------------------------


def publish(options: argparse.Namespace) -> int:
    """Put numbered messages; what an earlier run left behind is confirmed first."""
    facts = Facts(options.facts)
    if not options.give_up:
        puts.REQUEST_TRIES = session.REQUEST_TRIES = PATIENT_TRIES  # type: ignore[misc]
    client = oncemq.connect(options.address, id=options.id, state=options.state, offline=True)
    numbers = range(options.first, options.last + 1)
    facts.note(f"start {client.pending}")
    facts.note(f"flushed {_confirm(client, facts)}")
    if options.mode == "one":
        for number in numbers:
            if number == options.gate:
                facts.note(f"gate {number}")
                wait_for(options.gate_file)
            if not _put_one(client, facts, number, options):
                return GAVE_UP
    else:
        _put_together(client, facts, numbers, options)
    left = client.close()
    facts.note(f"closed {left}")
    return 0


def _put_one(client: oncemq.Client, facts: Facts, number: int, options: argparse.Namespace) -> bool:
    facts.note(f"try {number}")
    try:
        receipt = client.put(options.topic, value_of(options.id, number, options.size))
    except oncemq.PutPending as problem:
        facts.note(f"pending {number} {problem.pending}")
        if options.give_up:
            return False
        _confirm(client, facts)
        facts.note(f"done {number} ? 1")
        return True
    facts.note(f"done {number} {receipt.offset} {int(receipt.duplicate)}")
    return True


def _put_together(client: oncemq.Client, facts: Facts, numbers: range, options: argparse.Namespace) -> None:
    """Put all of them at once: in bulk, or one by one without waiting."""
    facts.note(*(f"try {number}" for number in numbers))
    values = [value_of(options.id, number, options.size) for number in numbers]
    if options.mode == "many":
        try:
            client.put_many(options.topic, values)
        except oncemq.PutPending:
            _confirm(client, facts)
    else:
        for value in values:
            client.put(options.topic, value, wait=False)
        _confirm(client, facts)
    facts.note(*(f"done {number} ? 0" for number in numbers))


def _confirm(client: oncemq.Client, facts: Facts) -> int:
    """Flush until everything is confirmed, however long the broker is away."""
    while True:
        try:
            return client.flush()
        except oncemq.PutPending as problem:
            facts.note(f"waiting {problem.pending}")


# --- subscriber -----------------------------------------------------------------------------------------


def subscribe(options: argparse.Namespace) -> int:
    """Write down every message of a topic until the last one."""
    facts = Facts(options.facts)
    with _connected(options) as client:
        for topic in options.topic.split(","):
            _subscribe(client, topic)
        facts.note("subscribed")
        count = 0
        while True:
            messages = _next_messages(client, facts, options)
            lines = [f"got {message.offset} {message.topic} {_name_of(message.value)}" for message in messages]
            facts.note(*lines)
            count += len(messages)
            if options.die_after and count >= options.die_after:
                os._exit(137)  # Handled and written down, but the next get was never called.
            if any(message.value == END for message in messages):
                return 0


def _subscribe(client: oncemq.Client, topic: str) -> None:
    while True:
        try:
            client.subscribe(topic, start="earliest")
        except oncemq.BrokerUnreachable:
            continue  # It died meanwhile, and takes its time to come back.
        return


def _connected(options: argparse.Namespace) -> oncemq.Client:
    while True:
        try:
            return oncemq.connect(options.address, id=options.id, state=options.state, in_doubt=options.in_doubt)
        except oncemq.BrokerUnreachable:
            continue


def _next_messages(client: oncemq.Client, facts: Facts, options: argparse.Namespace) -> list[oncemq.Message]:
    try:
        if options.mode == "listen":
            options.listener = options.listener or client.listen(*options.topic.split(","))
            heard = options.listener.next(timeout=0.1)
            return [heard] if heard is not None else []
        if options.mode == "blocks":
            options.listener = options.listener or client.listen_blocks(*options.topic.split(","))
            return list(options.listener.next(timeout=0.1) or [])
        if options.mode == "many":
            return client.get_many(options.topic, 100, timeout=0.1)
        message = client.get(None if options.mode == "any" else options.topic, timeout=0.1)
        return [message] if message is not None else []
    except oncemq.BrokerUnreachable:
        return []
    except oncemq.InDoubt as doubt:
        _settle(client, facts, doubt)
        return []


def _settle(client: oncemq.Client, facts: Facts, doubt: oncemq.InDoubt) -> None:
    """Resolve what is in doubt from what this application knows: seen and written down, or not."""
    offsets = [message.offset for message in client.in_doubt(doubt.topic)]
    seen = facts.offsets_seen() & set(offsets)
    if offsets != list(range(doubt.first, doubt.end)) or 0 < len(seen) < len(offsets):
        facts.note(f"torn {doubt.first} {doubt.end}")
        os._exit(TORN)
    choice = "skip" if seen else "repeat"
    facts.note(f"doubt {doubt.first} {doubt.end} {choice}")
    client.settle(doubt.topic, choice)


def _name_of(value: bytes) -> str:
    return value.rstrip(b".").decode()


# --- command line ---------------------------------------------------------------------------------------


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="roles")
    roles = parser.add_subparsers(required=True)
    for name, run in (("publish", publish), ("subscribe", subscribe)):
        role = roles.add_parser(name)
        role.set_defaults(run=run, listener=None)
        role.add_argument("--address", required=True)
        role.add_argument("--id", required=True)
        role.add_argument("--state", type=Path, required=True)
        role.add_argument("--facts", type=Path, required=True)
        role.add_argument("--topic", default="t")
        role.add_argument("--mode", default="one")
        role.add_argument("--first", type=int, default=1)
        role.add_argument("--last", type=int, default=0)
        role.add_argument("--size", type=int, default=0)
        role.add_argument("--gate", type=int, default=0)
        role.add_argument("--gate-file", type=Path, default=None)
        role.add_argument("--give-up", action="store_true")
        role.add_argument("--in-doubt", default="raise")
        role.add_argument("--die-after", type=int, default=0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    install_from_environment()
    chosen = _options(sys.argv[1:])
    sys.exit(chosen.run(chosen))

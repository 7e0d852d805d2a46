# SPDX-License-Identifier: Apache-2.0
"""What a topic or a client may be called.

May not: be lenient. A name is checked where it enters (client, wire) and trusted afterwards.
The idea: dot-separated words of ASCII letters, digits, '_' and '-': safe in URLs, shells, SQL and on every screen.
Names never become file names.
Next: model/message.py.
"""

from __future__ import annotations

import re

from oncemq.errors import InvalidName
from oncemq.limits import NAME_BYTES_MAX

_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*", re.ASCII)

EPHEMERAL_PREFIX = "$ephemeral."
"""Clients without an id get a name that no application can choose, because '$' is reserved."""


def is_valid_name(name: str) -> bool:
    return len(name) <= NAME_BYTES_MAX and _NAME.fullmatch(name) is not None


def check_topic(name: object) -> str:
    """Return `name` if it may name a topic, else raise InvalidName."""
    return _checked(name, "topic")


def check_client(name: object) -> str:
    """Return `name` if it may be a durable client's id, else raise InvalidName."""
    return _checked(name, "client id")


def check_client_on_the_wire(name: object) -> str:
    """The same for the id of any client that a broker may know."""
    text = _plain(name)
    if not is_client_on_the_wire(text):
        raise InvalidName("client id", text or str(name))
    return text


def _checked(name: object, kind: str) -> str:
    text = _plain(name)
    if not is_valid_name(text):
        raise InvalidName(kind, text or str(name))
    return text


def _plain(name: object) -> str:
    """The name as plain text: a member of a StrEnum, say, is no key of ours, and cannot be written to the wire."""
    return str.__str__(name) if isinstance(name, str) else ""


def is_client_on_the_wire(name: str) -> bool:
    """Durable ids are names; ephemeral ones carry the reserved prefix and a hexadecimal id."""
    return is_valid_name(name.removeprefix(EPHEMERAL_PREFIX))

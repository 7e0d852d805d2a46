# SPDX-License-Identifier: Apache-2.0
"""How a message is written: its bytes and a newline, or one JSON object on a line.

May not: lose a byte: what is no text is written as base64, and says so.
Next: getting.py.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from oncemq.cli.output import Row, json_text

if TYPE_CHECKING:
    from oncemq.model.message import Message


def as_line(message: Message, *, is_json: bool) -> bytes:
    """The message with its line end."""
    return (json_text(as_row(message)).encode() if is_json else message.value) + b"\n"


def as_row(message: Message) -> Row:
    value, encoding = readable(message.value)
    key, key_encoding = (None, None) if message.key is None else readable(message.key)
    return {
        "topic": message.topic,
        "offset": message.offset,
        "value": value,
        "encoding": encoding,
        "key": key,
        "key_encoding": key_encoding,
        "headers": {name: _header(content) for name, content in message.headers.items()},
        "publisher": message.publisher,
        "put_number": message.put_number,
        "publish_time": _time(message.publish_time_us),
        "append_time": _time(message.append_time_us),
    }


def readable(content: bytes) -> tuple[str, str]:
    """The content as text where it is text, else as base64; and which of the two."""
    try:
        return content.decode("utf-8"), "text"
    except UnicodeDecodeError:
        return base64.b64encode(content).decode("ascii"), "base64"


def _header(content: str | bytes) -> object:
    return content if isinstance(content, str) else {"base64": base64.b64encode(content).decode("ascii")}


def _time(time_us: int) -> str | None:
    """A time in the one form everybody reads; None if a publisher's clock was beyond what a calendar has."""
    try:
        return datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000).isoformat()
    except (ValueError, OverflowError, OSError):
        return None

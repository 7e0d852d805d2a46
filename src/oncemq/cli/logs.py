# SPDX-License-Identifier: Apache-2.0
"""The broker's log on stderr: coloured lines for people, or a JSON object per line for machines.

May not: log anything itself.
The idea: the engine logs through the standard library; this decides how a line looks.
Next: serve.py, which sets it up.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

from oncemq.cli.output import json_text

_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
"""Select Graphic Rendition, ECMA-48: faint, green, yellow, red, bold red."""


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class TextFormatter(logging.Formatter):
    """`12:34:56.789 info    topic 'orders' created`, the level in colour on a terminal."""

    def __init__(self, *, is_coloured: bool) -> None:
        super().__init__()
        self._is_coloured = is_coloured

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        level = f"{record.levelname.lower():<7}"
        if self._is_coloured:
            time, level = f"\x1b[2m{time}\x1b[0m", f"\x1b[{_COLOURS.get(record.levelname, '0')}m{level}\x1b[0m"
        trace = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return f"{time} {level} {record.getMessage()}{trace}"


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {"time": time, "level": record.levelname.lower(), "text": record.getMessage()}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json_text(line)


def set_up(level: LogLevel, form: LogFormat) -> None:
    """Send the broker's log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else TextFormatter(is_coloured=sys.stderr.isatty()))
    root = logging.getLogger("oncemq")
    root.addHandler(handler)
    root.setLevel(level.upper())

# SPDX-License-Identifier: Apache-2.0
"""The broker's log as people read it: the time, the level, and what happened; in colour at a terminal only."""

from __future__ import annotations

import logging

import pytest

from oncemq.cli.logs import TextFormatter

RECORD = logging.LogRecord("oncemq.broker", logging.WARNING, "", 0, "the disk is %s", ("full",), None)


@pytest.mark.parametrize("is_coloured", [False, True])
def test_a_line_is_readable_and_coloured_at_a_terminal(is_coloured: bool) -> None:
    line = TextFormatter(is_coloured=is_coloured).format(RECORD)
    assert line.endswith(" the disk is full")
    assert "warning" in line
    assert ("\x1b[" in line) == is_coloured

# SPDX-License-Identifier: Apache-2.0
"""Asking a person before something is gone.

May not: ask a script: without a terminal the command was meant.
Next: topics.py.
"""

from __future__ import annotations

import sys

import typer


def is_agreed(question: str, *, yes: bool) -> bool:
    """Whether to go on: --yes was given, nobody is there to ask, or the person there says so."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    return bool(typer.confirm(question, err=True))

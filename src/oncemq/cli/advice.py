# SPDX-License-Identifier: Apache-2.0
"""What to type next, for errors whose own text speaks to programs.

May not: change what an error says; it adds one line in the words of the command line.
Next: output.py, which prints both.
"""

from __future__ import annotations

from oncemq import errors


def advice_for(error: errors.OnceMQError) -> str:
    """Return what to do about an error from a shell; "" if its text says so already."""
    match error:
        case errors.InDoubt():
            return "the same command with '--in-doubt repeat' writes them again, with '--in-doubt skip' counts them as handled"
        case errors.Gap():
            return "they were cut off by a limit; get goes on behind them"
        case errors.Damaged():
            return "'--skip-damaged' goes on behind them"
        case errors.StateLost():
            return "name the directory with --state, or add '--takeover'"
        case errors.Diverged():
            return "add '--takeover' once; with another broker, name another '--state' directory"
        case errors.PutPending(is_durable=True):
            return "the next command with the same --id sends it"
        case errors.PutPending():
            return "nobody knows whether it was stored: with --id it would be kept and sent exactly once"
        case _:
            return ""

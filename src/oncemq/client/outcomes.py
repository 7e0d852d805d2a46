# SPDX-License-Identifier: Apache-2.0
"""What whoever put is told of blocks that have their outcome.

May not: wait for one, or leave a refusal out.
Next: client/puts.py, which waits.
"""

from __future__ import annotations

from oncemq.core.publisher import Entry
from oncemq.errors import MessageTooLarge, OnceMQError
from oncemq.limits import VALUE_BYTES_MAX
from oncemq.model.message import Outcome
from oncemq.model.refusals import Code, to_error

REFUSALS_NAMED = 10
"""How many blocks that were refused are told by name; the others are counted."""


def outcomes_of(entries: list[Entry]) -> list[Outcome]:
    """One outcome per block and topic, in order."""
    return [outcome for entry in entries for outcome in entry.outcomes()]


def final_error(entries: list[Entry]) -> OnceMQError:
    """What tells that these were refused for good: the first, with the others as notes."""
    problem = _error(entries[0])
    for entry in entries[1:REFUSALS_NAMED]:
        problem.add_note(f"and {_error(entry)}")
    if len(entries) > REFUSALS_NAMED:
        problem.add_note(f"and {len(entries) - REFUSALS_NAMED} more blocks")
    return problem


def _error(entry: Entry) -> OnceMQError:
    code = entry.done.code if entry.done is not None else ""
    name = f"put {entry.first_number} to {', '.join(entry.topics)}"
    if code == Code.TOO_LARGE:
        return MessageTooLarge(f"a value in {name}", VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX)
    return to_error(code, f"{name} was refused: {code.replace('_', ' ')}")

# SPDX-License-Identifier: Apache-2.0
"""Named places where a process may be made to die. Nothing happens there in production.

May not: import anything of the project, decide anything.
The idea: engine, journal and client runners call `reach("engine.after_sync")` at the instants where exactly-once
is usually lost. A test installs a hook: the simulator raises there, a real process exits without a word.
The one piece of module state in the project, because a crash point must cost nothing and be reachable from everywhere.
Next: adapters/crash_hook.py for real processes, tests/real/ for the tests that use it.
"""

from __future__ import annotations

from collections.abc import Callable

POINTS: tuple[str, ...] = (
    "broker.after_receive",
    "broker.before_append",
    "broker.after_append",
    "broker.after_sync",
    "broker.between_answers",
    "broker.after_answers",
    "broker.after_live",
    "journal.before_segment_rename",
    "journal.after_segment_rename",
    "journal.before_snapshot_rename",
    "journal.after_snapshot_rename",
    "journal.before_unlink",
    "journal.after_move",
    "journal.before_clean_unlink",
    "journal.after_clean_unlink",
    "client.before_outbox",
    "client.after_outbox",
    "client.before_send",
    "client.after_send",
    "client.after_receive",
    "client.after_live",
    "client.before_row",
    "client.after_row",
    "client.before_database_commit",
    "client.after_database_commit",
    "client.before_commit",
    "client.after_commit",
    "client.before_hand_over",
    "client.after_hand_over",
    "client.before_state_rename",
)
"""Every crash point of a broker and its clients, so that tests can visit each one and a misspelt name is found."""

NODE_POINTS: tuple[str, ...] = ("mesh.between_packets",)
"""Those that only a node of a mesh comes by."""

_hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Say that this instant was reached."""
    if _hook is not None:
        _hook(name)


def install(hook: Callable[[str], None] | None) -> Callable[[str], None] | None:
    """Have `hook` called at every crash point; None takes it away. Returns the one before."""
    global _hook
    before, _hook = _hook, hook
    return before

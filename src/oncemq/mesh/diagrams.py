# SPDX-License-Identifier: Apache-2.0
"""The state diagrams of docs/mesh.md, drawn from the tables that the machines run on.

May not: know a transition that is not in a table. A test compares the page with what is drawn here.
Next: standing.py, antientropy.py and node.py for the tables.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from oncemq.mesh import antientropy, node, standing


def mermaid(table: Mapping[Any, enum.Enum], start: enum.Enum) -> str:
    """A table of (state, cause) to state as a diagram, in the order of the table; ways between the same two share an arrow."""
    ways: dict[tuple[str, str], list[str]] = {}
    for (before, cause), after in table.items():
        ways.setdefault((_name(before), _name(after)), []).append(str(cause.value))
    lines = ["stateDiagram-v2", f"    [*] --> {_name(start)}"]
    lines += [f"    {before} --> {after}: {' / '.join(causes)}" for (before, after), causes in ways.items()]
    return "\n".join(lines)


def _name(state: enum.Enum) -> str:
    return str(state.value).replace(" ", "_")


def diagrams() -> dict[str, str]:
    """Every diagram of the mesh, by its heading."""
    return {
        "What another node is to this one": mermaid(standing.TRANSITIONS, standing.Standing.STRANGER),
        "Anti-entropy with one neighbour": mermaid(antientropy.TRANSITIONS, antientropy.Phase.IN_STEP),
        "The life of a node": mermaid(node.LIFE, node.Life.STOPPED),
    }

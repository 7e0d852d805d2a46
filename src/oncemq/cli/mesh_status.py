# SPDX-License-Identifier: Apache-2.0
"""`oncemq mesh status`: how the mesh looks from one node: its views, its vector, what it misses, what it counted.

May not: change what it looks at: it opens no session.
Next: engine/mesh.py, `status`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from oncemq.cli.connecting import asking
from oncemq.cli.options import DEFAULT_ADDRESS, Address, Json
from oncemq.cli.output import Output, Row, output_of

if TYPE_CHECKING:
    from oncemq.core.packets import MeshStatusDone


def status(context: typer.Context, address: Address = DEFAULT_ADDRESS, _json: Json = False) -> None:
    """Show a node's neighbours, its reserve, what it has of every origin, how much it knows to miss, and its counters.

    oncemq mesh status
    oncemq mesh status --address tcp://127.0.0.1:5566 --json
    """
    output = output_of(context)
    with asking(output, address) as client:
        found = client.admin.mesh_status()
    if output.is_json:
        output.card(as_row(found))
    else:
        _print(output, found)


def lag_of(found: MeshStatusDone) -> int:
    """Messages that somebody has and this node lacks, as far as it knows."""
    return sum(each.seen - each.had for each in found.origins)


def as_row(found: MeshStatusDone) -> Row:
    return {
        **_summary(found),
        "neighbours": [{"address": each.address, "silent_ms": each.silent_ms, "phase": each.phase} for each in found.neighbours],
        "passive": list(found.passive),
        "vector": _vector(found),
        "counters": dict(found.counters),
    }


def _summary(found: MeshStatusDone) -> dict[str, object]:
    return {
        "address": found.address,
        "node": found.node.hex(),
        "start_id": found.start_id.hex(),
        "life": found.life,
        "cold": found.cold,
        "lag": lag_of(found),
        "early": found.early,
        "lost": found.lost,
    }


def _vector(found: MeshStatusDone) -> list[dict[str, object]]:
    return [
        {"node": each.node.hex(), "start_id": each.start_id.hex(), "low": each.low, "had": each.had, "lag": each.seen - each.had}
        for each in found.origins
    ]


def _print(output: Output, found: MeshStatusDone) -> None:
    output.card(_summary(found) | {"passive": len(found.passive)})
    rows: list[Row] = [
        {"neighbour": each.address, "silent_ms": each.silent_ms, "what_it_has": each.phase} for each in found.neighbours
    ]
    output.rows("neighbours", rows, empty="no neighbours")
    output.rows("vector", _vector(found), empty="nothing was put in this mesh yet")
    output.card(dict(found.counters))

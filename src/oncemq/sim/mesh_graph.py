# SPDX-License-Identifier: Apache-2.0
"""What an overlay is like, measured by igraph, and what a random graph of the same degree would be like, in closed form.

May not: build overlays. Needs the extra `lab`.
The idea: views become one undirected graph of the links that both ends know. Paths are exact, over all pairs.
Next: sim/mesh_paper.py for the papers' values beside these.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from oncemq.errors import UsageError
from oncemq.mesh.packets import Address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class LabMissing(UsageError):
    def __init__(self) -> None:
        super().__init__("measuring overlays needs igraph: pip install 'oncemq[lab]'")


def graph_of(views: Mapping[Address, Sequence[Address]]) -> Any:
    """The links between living nodes as a graph; vertices are in the order of the views."""
    try:
        import igraph  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    except ImportError as problem:
        raise LabMissing from problem
    number_of = {name: number for number, name in enumerate(views)}
    edges = [
        (number_of[name], number_of[other])
        for name, view in views.items()
        for other in view
        if name < other and other in number_of and name in views[other]
    ]
    return igraph.Graph(len(number_of), edges)


def is_symmetric(views: Mapping[Address, Sequence[Address]]) -> bool:
    links = {(name, other) for name, view in views.items() for other in view}
    return all((other, name) in links for name, other in links)


def measure(views: Mapping[Address, Sequence[Address]]) -> dict[str, Any]:
    """The figures of the papers' tables."""
    graph = graph_of(views)
    lengths = graph.path_length_hist(directed=False)
    counts = [count for _, _, count in lengths.bins()]
    return {
        "clustering": round(graph.transitivity_avglocal_undirected(mode="zero"), 6),
        "mean_path": round(sum((hops + 1) * count for hops, count in enumerate(counts)) / max(sum(counts), 1), 5),
        "max_hops": len(counts),
        "mean_degree": round(2 * graph.ecount() / max(graph.vcount(), 1), 4),
        "links": graph.ecount(),
        "symmetric": is_symmetric(views),
        "connected": graph.is_connected(),
    }


def sizes_by_node(views: Mapping[Address, Sequence[Address]]) -> dict[Address, int]:
    """How many nodes, itself included, each node's floods reach over living links."""
    islands = graph_of(views).connected_components()
    sizes, membership = islands.sizes(), islands.membership
    return {name: sizes[membership[number]] for number, name in enumerate(views)}


# --- closed forms -----------------------------------------------------------------------------------------


def random_mean_path(nodes: int, degree: int) -> float:
    """Mean distance in a random regular graph, mean-field: the sum of the shares not reached after 0, 1, 2 … hops."""
    alone = 1 - 1 / nodes
    edge_missed, total, missed = alone, 0.0, alone
    while missed > 0.1 / nodes:
        total += missed
        missed = alone * edge_missed**degree
        edge_missed = alone * edge_missed ** (degree - 1)
    return total


def random_clustering(nodes: int, degree: int) -> float:
    return (degree - 1) ** 2 / (degree * nodes)


def giant_share(failed: float, degree: int) -> float:
    """Share of survivors in the largest island of a random regular graph, without repair (site percolation)."""
    missed, alive = 0.0, 1 - failed
    for _ in range(10_000):
        missed = failed + alive * missed ** (degree - 1)
    return 1 - missed**degree


def knowledge_share(failed: float, known: float) -> float:
    """Share of survivors in the largest island if everybody links to whom it knows, `known` ids each, in either direction."""
    share = 1.0
    for _ in range(10_000):
        share = 1 - math.exp(-known * (1 - failed) * share)
    return share

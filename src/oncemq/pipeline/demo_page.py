# SPDX-License-Identifier: Apache-2.0
"""The page of `oncemq demo`: the audit's verdicts, and how the run looked while processes died.

May not: compute anything but differences of what was counted.
Next: report.py for the page of any audit, drawing.py for tables and axes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from oncemq.pipeline.audit import Audit
from oncemq.pipeline.drawing import axes_of, image_of, legend_of, page_of, plain_numbers, png_of, table_of
from oncemq.pipeline.report import flow_plot, latency_plot, latency_table, verdict_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Kills = Sequence[tuple[float, str]]
_BEHIND = {"plain": "-", "live": "--", "ledger": "-.", "lake": ":"}
_PUBLISHERS = "publisher"
_LAG_LINEAR = 100
"""Messages; above it lags are drawn to the logarithm, so that a table that is far behind hides nobody who is close."""


class Facts(TypedDict):
    """What was seen of the run; times in seconds since it began."""

    at_s: list[float]
    counts: dict[str, list[int]]
    kills: list[tuple[float, str]]
    overlay: dict[str, list[str]]


def write_demo_page(audit: Audit, facts: Facts, directory: Path) -> Path:
    """Write index.html and its plots; return where the page is."""
    directory.mkdir(parents=True, exist_ok=True)
    kills = facts["kills"]
    images = {name: png_of(figure) for name, figure in _plots(audit, facts).items()}
    for name, image in images.items():
        (directory / f"{name}.png").write_bytes(image)
    held = "Every law held." if not audit.violations else f"{audit.violations:,} violations."
    said = f"{audit.totals.put:,} messages were put while {len(kills)} processes were killed with kill -9."
    parts = [
        f"<h1>OnceMQ demo</h1><p class='verdict'>{held}</p><p>{said}</p>",
        *(image_of(name, image) for name, image in images.items()),
        latency_table(audit),
        verdict_table(audit),
        table_of("Killed", ["after (s)", "process"], [[round(second, 1), name] for second, name in kills]),
    ]
    page = directory / "index.html"
    page.write_text(page_of("OnceMQ demo", parts), encoding="utf-8")
    return page


def _plots(audit: Audit, facts: Facts) -> dict[str, Figure]:
    throughput = flow_plot(audit.flow)
    _mark_kills(throughput.axes[0], facts["kills"])
    return {
        "throughput": throughput,
        "latency": latency_plot(audit.latencies),
        "lag": lag_plot(facts["at_s"], facts["counts"], facts["kills"]),
        "overlay": overlay_plot(facts["overlay"]),
    }


def overlay_plot(overlay: Mapping[str, Sequence[str]]) -> Figure:
    """The nodes of the mesh on a circle, and a line between neighbours."""
    figure, axes = axes_of("The mesh: who is whose neighbour", "", "")
    turn = 2 * math.pi / max(len(overlay), 1)
    places = {name: (math.sin(turn * place), math.cos(turn * place)) for place, name in enumerate(sorted(overlay))}
    for name, neighbours in overlay.items():
        for other in neighbours:
            if other in places:
                axes.plot(*zip(places[name], places[other], strict=True), "-", color="0.4", zorder=1)
    for name, (across, up) in places.items():
        axes.text(across, up, name, ha="center", va="center", zorder=2, bbox={"boxstyle": "round,pad=0.6", "fc": "white"})
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.margins(0.3)
    return figure


def lag_plot(at_s: Sequence[float], counts: Mapping[str, Sequence[int]], kills: Kills) -> Figure:
    """How many messages each reader was behind what had been put."""
    figure, axes = axes_of("Lag", "time since the run began (s)", "messages behind what was put")
    put = [sum(found) for found in zip(*(counts[name] for name in counts if name.startswith(_PUBLISHERS)), strict=True)]
    for name, dashes in _BEHIND.items():
        if any(counts.get(name, ())):
            behind = [max(0, total - got) for total, got in zip(put, counts[name], strict=True)]
            axes.plot(at_s, behind, dashes, color="black", linewidth=1.5, label=name)
    axes.set_yscale("symlog", linthresh=_LAG_LINEAR)
    axes.set_ylim(bottom=0)
    plain_numbers(axes.yaxis)
    _mark_kills(axes, kills)
    return figure


def _mark_kills(axes: Axes, kills: Kills) -> None:
    """A line for each kill; those of the broker, which everybody feels, are thicker."""
    for place, is_broker in enumerate((True, False)):
        label = "broker killed" if is_broker else "client killed"
        times = [second for second, name in kills if (name == "broker") == is_broker]
        for second in times:
            axes.axvline(second, color="0.6", linewidth=2.5 - 1.7 * place, zorder=0, label=label if second == times[0] else None)
    legend_of(axes)

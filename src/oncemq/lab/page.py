# SPDX-License-Identifier: Apache-2.0
"""What an experiment leaves behind: figures as PNG and SVG, the statistics as CSV, and one HTML page with all of it.

May not: compute anything that Spark has not summed up.
Next: figures.py; docs/experiments/ for a full run.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from oncemq.lab.figures import draw_all
from oncemq.lab.statistics import Statistic, write_csv
from oncemq.lab.trials import Experiment
from oncemq.pipeline.drawing import image_of, page_of, png_of, svg_of, table_of
from oncemq.version import VERSION

WORDS = {
    Experiment.RECEIVED: (
        "Every node puts so many messages; counted are all packets with a message that arrive anywhere. "
        "A flood over an overlay at rest costs exactly 2 × links − (nodes − 1) receptions per message."
    ),
    Experiment.CONVERGENCE: (
        "Nodes join through one contact, one every 200 ms, or all at once. "
        "Converged is an overlay that is symmetric, connected, of members only, with 4.9 neighbours in the mean."
    ),
    Experiment.MEMBERSHIP: (
        "Packets of membership in the first minute, nodes joining one every 200 ms. The bound is that of HyParView as published: "
        "four walks of seven hops per join, a shuffle of five hops and an answer per node and five seconds."
    ),
    Experiment.RELIABILITY: (
        "A share of all nodes fails at once. Thousands of nodes, as in the papers: whom do messages reach right after it? "
        "Small meshes, with disks: every node puts 20 messages and the share is killed half way; survivors must end up with "
        "everything that any of them holds, and everybody with everything once the killed are back."
    ),
    Experiment.OVERLAY: "Nodes join one by one through one contact, then 50 cycles of shuffles: HyParView's table 1.",
    Experiment.HEALING: "After the failures, cycles of shuffles until ten random senders reach every survivor: HyParView 5.3.",
}
_COLUMNS = ("measure", "mode", "nodes", "at", "seeds", "never", "mean", "low", "high", "p95", "worst", "paper", "closed_form")
_TRACED = ("degree_",)
"""Beginnings of measures that are curves over time: drawn, and in the CSV, not in the tables."""


def write_results(statistics: Sequence[Statistic], directory: Path, command: str) -> Path:
    """Write figures, statistics.csv and index.html; return where the page is."""
    directory.mkdir(parents=True, exist_ok=True)
    write_csv(statistics, directory / "statistics.csv")
    images: dict[str, bytes] = {}
    for name, figure in draw_all(statistics).items():
        images[name] = png_of(figure)
        (directory / f"{name}.png").write_bytes(images[name])
        (directory / f"{name}.svg").write_bytes(svg_of(figure))
    target = directory / "index.html"
    target.write_text(_page(statistics, images, command), encoding="utf-8")
    return target


def _page(statistics: Sequence[Statistic], images: dict[str, bytes], command: str) -> str:
    parts = [f"<h1>Experiments</h1><p>oncemq {VERSION}: <code>{escape(command)}</code></p>"]
    for experiment in Experiment:
        rows = [_row(each) for each in statistics if each.experiment == experiment and not each.measure.startswith(_TRACED)]
        if rows:
            parts.append(f"<h2>{experiment.value.capitalize()}</h2><p>{escape(WORDS[experiment])}</p>")
            parts.append(image_of(experiment, images[experiment]))
            parts.append(table_of("mean with 95 % interval (low, high), p95 and worst over all seeds", _COLUMNS, rows))
    return page_of("Experiments", parts)


def _row(statistic: Statistic) -> list[object]:
    values = statistic._asdict()
    return [_readable(values[name]) for name in _COLUMNS]


def _readable(value: object) -> object:
    if value is None:
        return "–"
    return float(f"{value:.5g}") if isinstance(value, float) else value

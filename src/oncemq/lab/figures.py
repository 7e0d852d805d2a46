# SPDX-License-Identifier: Apache-2.0
"""The figures of the experiments: ours with its confidence interval, the papers' values and the closed forms in one picture.

May not: draw what Spark has not summed up.
The idea: black and white: lines differ by dashes and marks. Ours is drawn with full marks, papers with hollow ones, closed forms
as lines without marks. Whatever was not run is not drawn.
Next: page.py, which shows them; pipeline/drawing.py for axes and images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oncemq.lab import anchors
from oncemq.lab.statistics import Statistic, line_of
from oncemq.lab.trials import REAL, SIMULATED, Experiment
from oncemq.pipeline.drawing import legend_of, panels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Statistics = Sequence[Statistic]
_MARKS = {SIMULATED: "o", REAL: "s"}


class Style(NamedTuple):
    """How a line looks."""

    line: str
    mark: str
    label: str


def draw_all(statistics: Statistics) -> dict[str, Figure]:
    """Every figure for which there is something to draw, by name."""
    there = {each.experiment for each in statistics}
    return {name.value: draw(statistics) for name, draw in _FIGURES.items() if name in there}


# --- pieces -----------------------------------------------------------------------------------------------


def _ours(axes: Axes, statistics: Statistics, place: tuple[str, str, str, int | None], style: Style) -> None:
    """A measure of ours, with its confidence interval."""
    line = line_of(statistics, *place)
    if line.at:
        axes.errorbar(
            line.at, line.means, yerr=line.errors, fmt=style.line + style.mark, color="black", capsize=3, label=style.label
        )


def _paper(axes: Axes, at: Sequence[float], values: Sequence[float], label: str) -> None:
    axes.plot(at, values, "D", color="black", markerfacecolor="white", markersize=8, label=label, zorder=1)


def _formula(axes: Axes, at: Sequence[float], values: Sequence[float], label: str, line: str = ":") -> None:
    axes.plot(at, values, line, color="0.35", linewidth=2, label=label, zorder=0)


def _sizes(statistics: Statistics, experiment: str, measure: str, mode: str = SIMULATED) -> list[int]:
    return sorted(
        {each.nodes for each in statistics if (each.experiment, each.measure, each.mode) == (experiment, measure, mode)}
    )


def _places(statistics: Statistics, experiment: str, measure: str) -> list[float]:
    return sorted({each.at for each in statistics if (each.experiment, each.measure) == (experiment, measure)})


def _legend(axes: Axes, **options: Any) -> None:
    """Long handles, so that dashes can be told apart."""
    legend_of(axes, handlelength=3.5, **options)


def _ticks(axes: Axes, *, across: Sequence[float] = (), up: Sequence[float] = ()) -> None:
    """Marks where there are values, written as plain numbers."""
    if across:
        axes.set_xticks(across, [f"{value:,g}" for value in across])
    if up:
        axes.set_yticks(up, [f"{value:,g}" for value in up])
        axes.minorticks_off()


# --- one function per figure ------------------------------------------------------------------------------


def _received(statistics: Statistics) -> Figure:
    figure, (left, right) = panels_of(
        "Messages received: what a broadcast costs",
        ("messages put per node", "packets with a message received, all nodes"),
        ("messages put per node", "receptions per message put"),
    )
    name, measure = Experiment.RECEIVED, "receptions"
    per_node = _places(statistics, name, measure)
    nodes = max(each.nodes for each in statistics if each.experiment == name)
    for mode in (SIMULATED, REAL):
        style = Style("", _MARKS[mode], f"ours, {mode}")
        _ours(left, statistics, (name, measure, mode, nodes), style)
        line = line_of(statistics, name, measure, mode, nodes)
        if line.at:
            each = [mean / at / nodes for at, mean in zip(line.at, line.means, strict=True)]
            right.plot(line.at, each, _MARKS[mode], color="black", label=f"ours, {mode}")
    flood = anchors.flood_receptions(nodes)
    _formula(left, per_node, [flood * nodes * at for at in per_node], "2 × links − (nodes − 1) per message")
    _formula(left, per_node, [(nodes - 1) * nodes * at for at in per_node], "a tree: nodes − 1 per message", "--")
    _formula(right, per_node, [flood] * len(per_node), f"2 × links − (nodes − 1) = {flood:.0f}, degree 5")
    _formula(right, per_node, [nodes - 1] * len(per_node), f"a tree: nodes − 1 = {nodes - 1}", "--")
    for axes, place in ((left, "upper left"), (right, "center right")):
        axes.set_ylim(bottom=0)
        _ticks(axes, across=per_node)
        _legend(axes, loc=place, fontsize=9)
    left.yaxis.set_major_formatter("{x:,.0f}")
    return figure


def _convergence(statistics: Statistics) -> Figure:
    figure, (left, right) = panels_of(
        "Convergence: from the last join to an overlay that is symmetric, connected and full",
        ("nodes", "seconds after the last join"),
        ("seconds since all joined at once", "mean number of neighbours"),
    )
    name = Experiment.CONVERGENCE
    for mode in (SIMULATED, REAL):
        for way, line, label in (("one_by_one", "-", "full, one by one"), ("at_once", "--", "full, all at once")):
            style = Style(line, _MARKS[mode], f"{label}, {mode}")
            _ours(left, statistics, (name, f"seconds_to_full_views_{way}", mode, None), style)
    _ours(left, statistics, (name, "seconds_to_one_island_at_once", SIMULATED, None), Style("-.", "^", "one island, all at once"))
    marks = "osv^"
    for mode in (SIMULATED, REAL):
        for place, nodes in enumerate(_sizes(statistics, name, "degree_at_once", mode)):
            degrees = line_of(statistics, name, "degree_at_once", mode, nodes)
            dashes, mark = ("-", "--", "-.", ":")[place % 4], marks[place % 4]
            (drawn,) = right.plot(degrees.at, degrees.means, dashes + mark, color="black", label=f"{nodes} nodes, {mode}")
            drawn.set_markevery(15)
    left.axhline(anchors.CONVERGENCE_LIMIT_S, color="0.35", linestyle=":", label="lashup's test allows 60 s")
    left.axhline(anchors.WALK_S, color="0.35", linestyle="--", label=f"longest way of a join: {anchors.WALK_S:g} s")
    right.axhline(5, color="0.35", linestyle=":", label="a full view: 5")
    left.set_yscale("log")
    _ticks(left, across=_places(statistics, name, "seconds_to_full_views_at_once"), up=(0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 60))
    _legend(left, fontsize=8, loc="upper right", bbox_to_anchor=(1.0, 0.95))
    _legend(right)
    return figure


_KINDS = ("join", "forward_join", "neighbour", "neighbour_reply", "disconnect", "shuffle", "shuffle_reply")


def _membership(statistics: Statistics) -> Figure:
    figure, (left, right) = panels_of(
        "Packets of membership in the first minute",
        ("nodes", "packets, heartbeats not counted"),
        ("", "packets per node, largest mesh"),
    )
    name = Experiment.MEMBERSHIP
    for mode in (SIMULATED, REAL):
        sizes = _sizes(statistics, name, "packets_join", mode)
        totals = [sum(_mean(statistics, name, f"packets_{kind}", mode, nodes) for kind in _KINDS) for nodes in sizes]
        if sizes:
            left.plot(sizes, totals, "-" + _MARKS[mode], color="black", label=f"ours, {mode}")
    sizes = _sizes(statistics, name, "packets_join") or _sizes(statistics, name, "packets_join", REAL)
    budget = [sum(anchors.membership_packets(kind, nodes) or 0 for kind in _KINDS) for nodes in sizes]
    _formula(left, sizes, budget, "HyParView as published, at most\n(joins and shuffles, no repair)")
    left.set_ylim(bottom=0)
    left.yaxis.set_major_formatter("{x:,.0f}")
    _ticks(left, across=sizes)
    _legend(left)
    _bars(right, statistics, sizes[-1])
    return figure


def _bars(axes: Axes, statistics: Statistics, nodes: int) -> None:
    """One group of bars per kind of packet: ours, and what the paper's algorithm sends at most."""
    name = Experiment.MEMBERSHIP
    modes = [mode for mode in (SIMULATED, REAL) if nodes in _sizes(statistics, name, "packets_join", mode)]
    width, hatches = 0.8 / (len(modes) + 1), {SIMULATED: "///", REAL: "..."}
    for place, mode in enumerate(modes):
        values = [_mean(statistics, name, f"packets_{kind}", mode, nodes) / nodes for kind in _KINDS]
        offsets = [index + place * width for index in range(len(_KINDS))]
        axes.bar(offsets, values, width, color="white", edgecolor="black", hatch=hatches[mode], label=f"ours, {mode}")
    limits = [anchors.membership_packets(kind, nodes) for kind in _KINDS]
    known = [(index, limit / nodes) for index, limit in enumerate(limits) if limit is not None]
    offsets = [index + len(modes) * width for index, _ in known]
    axes.bar(offsets, [value for _, value in known], width, color="0.75", edgecolor="black", label="as published, at most")
    axes.set_xticks([index + 0.4 - width / 2 for index in range(len(_KINDS))])
    axes.set_xticklabels([kind.replace("_", " ") for kind in _KINDS], rotation=25, ha="right", rotation_mode="anchor")
    _legend(axes, title=f"{nodes} nodes")


def _mean(statistics: Statistics, experiment: str, measure: str, mode: str, nodes: int) -> float:
    line = line_of(statistics, experiment, measure, mode, nodes)
    return line.means[0] if line.means else 0.0


def _reliability(statistics: Statistics) -> Figure:
    figure, (left, middle, right) = panels_of(
        "Reliability when a share of all nodes fails at once",
        ("nodes failed (%)", "survivors reached by the first message"),
        ("nodes failed (%)", "survivors reached, mean of 100 messages"),
        ("nodes failed (%)", "share of what any survivor holds"),
    )
    name = Experiment.RELIABILITY
    sizes = _sizes(statistics, name, "first_with_hold")
    for nodes, mark in zip(sizes, "o^sv", strict=False):
        _ours(left, statistics, (name, "first_with_hold", SIMULATED, nodes), Style("-", mark, f"held and handed on, {nodes:,}"))
        _ours(left, statistics, (name, "first_without_hold", SIMULATED, nodes), Style("--", mark, f"not held, {nodes:,}"))
        _ours(middle, statistics, (name, "heartbeat_mean", SIMULATED, nodes), Style("-", mark, f"heartbeats, {nodes:,}"))
        _ours(middle, statistics, (name, "send_mean", SIMULATED, nodes), Style("--", mark, f"sending only, {nodes:,}"))
    failed = _places(statistics, name, "first_with_hold")
    if failed:
        shares = list(range(10, 96))
        closed = [anchors.closed_form(name, "first_without_hold", sizes[-1], at) or 0 for at in shares]
        _formula(left, shares, closed, "not held, closed form")
        _paper(
            middle, failed, [anchors.paper_value(name, "send_mean", sizes[-1], at) or 0 for at in failed], "paper, 10,000 nodes"
        )
        ceiling = [anchors.closed_form(name, "send_mean", sizes[-1], at) or 0 for at in shares]
        _formula(middle, shares, ceiling, "ceiling of 35 known ids")
    for mode in (SIMULATED, REAL):
        for nodes in _sizes(statistics, name, "survivors_have", mode):
            label = f"survivors, {mode}, {nodes}"
            _ours(right, statistics, (name, "survivors_have", mode, nodes), Style("-", _MARKS[mode], label))
            _ours(right, statistics, (name, "all_have", mode, nodes), Style("--", "x", f"all, once back, {mode}, {nodes}"))
    killed = _places(statistics, name, "survivors_have")
    _paper(right, killed, [1.0] * len(killed), "earlier design: 100 %")
    for axes in (left, middle, right):
        axes.set_ylim(-0.03, 1.08)
        _ticks(axes, across=(10, 25, 50, 75, 90))
        _legend(axes, fontsize=8, loc="lower left")
    return figure


def _overlay(statistics: Statistics) -> Figure:
    figure, (left, middle, right) = panels_of(
        "The overlay, and a random graph of degree 5",
        ("nodes", "mean path (hops)"),
        ("nodes", "clustering coefficient"),
        ("nodes", "receptions of a flood, per node"),
    )
    name, mode = Experiment.OVERLAY, SIMULATED
    sizes = sorted({*_sizes(statistics, name, "mean_path"), anchors.PAPER_NODES})
    _ours(left, statistics, (name, "mean_path", mode, None), Style("", "o", "ours, mean"))
    _ours(left, statistics, (name, "max_hops", mode, None), Style("", "^", "ours, longest"))
    _ours(middle, statistics, (name, "clustering", mode, None), Style("", "o", "ours"))
    line = line_of(statistics, name, "flood_receptions", mode)
    right.plot(line.at, [mean / at for at, mean in zip(line.at, line.means, strict=True)], "o", color="black", label="ours")
    for axes, measure in ((left, "mean_path"), (middle, "clustering")):
        values = [anchors.closed_form(name, measure, nodes, nodes) or 0 for nodes in sizes]
        _formula(axes, sizes, values, "closed form, random graph")
    _formula(right, sizes, [anchors.flood_receptions(nodes) / nodes for nodes in sizes], "(2 × links − (nodes − 1)) / nodes")
    for axes, measure in ((left, "mean_path"), (left, "max_hops"), (middle, "clustering"), (right, "flood_receptions")):
        value = anchors.paper_value(name, measure, anchors.PAPER_NODES, 0) or 0
        shown = value / (anchors.PAPER_NODES if axes is right else 1)
        _paper(axes, [anchors.PAPER_NODES], [shown], f"paper, {measure.replace('_', ' ')}: {value:,g}")
    middle.set_yscale("symlog", linthresh=1e-4)
    middle.set_ylim(bottom=-2e-5)
    right.set_ylim(3.9, 4.1)
    left.set_ylim(0, 13)
    for axes in (left, middle, right):
        axes.set_xscale("log")
        _legend(axes, fontsize=8)
    return figure


def _healing(statistics: Statistics) -> Figure:
    figure, (axes,) = panels_of(
        "Healing: cycles until ten random senders reach every survivor",
        ("nodes failed (%)", "cycles (one shuffle of every node)"),
    )
    name = Experiment.HEALING
    for nodes, mark in zip(_sizes(statistics, name, "told_cycles"), "o^sv", strict=False):
        _ours(axes, statistics, (name, "told_cycles", SIMULATED, nodes), Style("-", mark, f"told of the dead, {nodes:,} nodes"))
        _ours(axes, statistics, (name, "send_cycles", SIMULATED, nodes), Style("--", mark, f"sending only, {nodes:,} nodes"))
    _paper(axes, list(anchors.HEAL_CYCLES), list(anchors.HEAL_CYCLES.values()), "paper: 1–2 below 80 %, 4 at 90 %")
    axes.set_ylim(-0.2, 5.5)
    _ticks(axes, across=_places(statistics, name, "told_cycles"), up=range(6))
    _legend(axes)
    return figure


_FIGURES: dict[Experiment, Callable[[Statistics], Figure]] = {
    Experiment.RECEIVED: _received,
    Experiment.CONVERGENCE: _convergence,
    Experiment.MEMBERSHIP: _membership,
    Experiment.RELIABILITY: _reliability,
    Experiment.OVERLAY: _overlay,
    Experiment.HEALING: _healing,
}

# SPDX-License-Identifier: Apache-2.0
"""The audit as one page: verdicts, figures and plots in a single HTML file that needs nothing beside it.

May not: compute anything that Spark has not counted; load anything from elsewhere.
The idea: plots are drawn for black and white: lines differ by dashes and marks, axes say what and in which unit.
Next: audit.py for what is told here, drawing.py for tables and axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oncemq.pipeline.audit import Audit
from oncemq.pipeline.audit_figures import QUANTILES, Flow, Latency
from oncemq.pipeline.drawing import axes_of, image_of, legend_of, page_of, plain_numbers, png_of, table_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DASHES = ("-", "--", "-.", ":")
_LINES_MAX = 8
"""More lines than this nobody can tell apart: the slowest subscriptions are drawn."""


def write_report(audit: Audit, directory: Path) -> Path:
    """Write report.html and its plots; return where the page is."""
    directory.mkdir(parents=True, exist_ok=True)
    plots = {"latency": latency_plot(audit.latencies), "throughput": flow_plot(audit.flow)}
    images = {name: png_of(figure) for name, figure in plots.items()}
    for name, image in images.items():
        (directory / f"{name}.png").write_bytes(image)
    page = directory / "report.html"
    page.write_text(_page(audit, images), encoding="utf-8")
    return page


# --- plots --------------------------------------------------------------------------------------------


def latency_plot(latencies: Sequence[Latency]) -> Figure:
    """The share of messages that took longer than a time: the tail is what people look for."""
    figure, axes = axes_of("Time from put to get", "time from put to get (ms)", "share of messages that took at least so long")
    slowest = sorted(latencies, key=lambda one: -one.quantile_us(0.99))[:_LINES_MAX]
    for place, one in enumerate(slowest):
        above, times, shares = one.messages, [], []
        for upper_us, count in one.counts:
            times.append(upper_us / 1000)
            shares.append(above / one.messages)
            above -= count
        mark, every = "osv^Dx+*"[place % 8], max(1, len(times) // 8)
        (line,) = axes.plot(times, shares, _DASHES[place % 4], color="black", marker=mark, label=one.subscription)
        line.set_markevery(every)
    if slowest:
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_numbers(axes.xaxis)
        legend_of(axes, title="subscription")
    return figure


def flow_plot(flow: Flow) -> Figure:
    """Messages per second over time."""
    title = f"Throughput (mean of each {flow.width_s:g} s)"
    figure, axes = axes_of(title, "time since the run began (s)", "messages per second")
    axes.plot(flow.at_s, flow.confirmed, "-", color="black", label="confirmed puts")
    axes.plot(flow.at_s, flow.delivered, ":", color="black", linewidth=2, label="deliveries")
    axes.set_ylim(bottom=0)
    plain_numbers(axes.yaxis)
    legend_of(axes)
    return figure


# --- page ---------------------------------------------------------------------------------------------


def _page(audit: Audit, images: dict[str, bytes]) -> str:
    held = "Every law held." if not audit.violations else f"{audit.violations:,} violations."
    counts = audit.totals
    facts = {
        "runs": audit.runs,
        "events": counts.events,
        "put": counts.put,
        "confirmed": counts.confirmed,
        "delivered": counts.delivered,
        "in doubt": sum(audit.in_doubt.values()),
    }
    parts = [
        f"<h1>Audit</h1><p class='verdict'>{held}</p>",
        table_of("What was judged", list(facts), [list(facts.values())]),
        verdict_table(audit),
        latency_table(audit),
        *(image_of(name, image) for name, image in images.items()),
    ]
    if audit.in_doubt:
        parts.append(
            table_of("Told to be in doubt", ["subscription", "messages"], [list(pair) for pair in audit.in_doubt.items()])
        )
    return page_of("Audit", parts)


def latency_rows(latencies: Sequence[Latency]) -> list[list[object]]:
    """One row per subscription: messages, quantiles and the longest, in milliseconds."""
    rows: list[list[object]] = []
    for one in latencies:
        times = [*(one.quantile_us(share) for share in QUANTILES.values()), float(one.longest_us)]
        rows.append([one.subscription, one.messages, *(round(time / 1000, 3) for time in times)])
    return rows


def latency_table(audit: Audit) -> str:
    columns = ["subscription", "messages", *QUANTILES, "max"]
    return table_of("Time from put to get, in ms", columns, latency_rows(audit.latencies))


def verdict_table(audit: Audit) -> str:
    columns = ["verdict", "law", "subscription", "checked", "violations", "witness"]
    rows = [[one.verdict, one.law, one.subscription or "all", one.checked, one.violations, one.witness] for one in audit.verdicts]
    return table_of("Verdicts", columns, rows, [verdict.is_guilty for verdict in audit.verdicts])

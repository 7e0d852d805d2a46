# SPDX-License-Identifier: Apache-2.0
"""Pages and plots that need nothing beside them: one HTML file with tables, and pictures inside it.

May not: know what is drawn; load anything from elsewhere.
The idea: everything is drawn for black and white: lines differ by dashes and marks, axes say what and in which unit.
Next: report.py for the page of an audit, lab/page.py for that of an experiment.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .2rem .8rem; text-align: left; border-bottom: 1px solid #ccc; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } tr.guilty { font-weight: bold; }
img { max-width: 100%; } .verdict { font-size: 1.3rem; } caption { text-align: left; font-weight: bold; }
"""


def axes_of(title: str, across: str, up: str) -> tuple[Figure, Axes]:
    """An empty plot with its title and the names of its axes."""
    figure, (axes,) = panels_of(title, (across, up))
    return figure, axes


def panels_of(title: str, *names: tuple[str, str]) -> tuple[Figure, list[Axes]]:
    """Several empty plots side by side, each with the names of its axes (across, up), under one title."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - a second of start-up that only a report needs

    figure = Figure(figsize=(max(9.0, 5.0 * len(names)), 4.5), layout="constrained")
    figure.suptitle(title)
    panels: list[Axes] = []
    for place, (across, up) in enumerate(names, 1):
        axes = figure.add_subplot(1, len(names), place)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.grid(visible=True, color="0.85")
        axes.spines[["top", "right"]].set_visible(False)
        panels.append(axes)
    return figure, panels


def legend_of(axes: Axes, **options: Any) -> None:
    """What the lines mean, on white ground: no line may cross a word."""
    axes.legend(frameon=True, facecolor="white", edgecolor="none", framealpha=0.9, **options)
    axes.set_axisbelow(True)


def plain_numbers(*directions: Axis) -> None:
    """Write numbers out, with commas: 20,000 and not 10⁴ or 20000."""
    for axis in directions:
        axis.set_major_formatter(lambda value, _place: f"{value:,g}")


def png_of(figure: Figure) -> bytes:
    """A plot as a file."""
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=130)
    return target.getvalue()


def svg_of(figure: Figure) -> bytes:
    """A plot as lines; without the date that would make every copy another file."""
    from matplotlib import rc_context  # noqa: PLC0415 - as above

    target = io.BytesIO()
    with rc_context({"svg.hashsalt": "oncemq", "svg.fonttype": "none"}):
        figure.savefig(target, format="svg", metadata={"Date": None})
    return target.getvalue()


def page_of(title: str, parts: Sequence[str]) -> str:
    """A whole page of these parts, one below the other."""
    head = f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title><style>{_STYLE}</style>"
    return f"{head}<body>{chr(10).join(parts)}</body></html>"


def table_of(caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]], guilty: Sequence[bool] = ()) -> str:
    head = "".join(f"<th>{escape(name.replace('p99_9', 'p99.9'))}</th>" for name in columns)
    lines = []
    for place, row in enumerate(rows):
        mark = " class='guilty'" if place < len(guilty) and guilty[place] else ""
        lines.append(f"<tr{mark}>{''.join(map(_cell, row))}</tr>")
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{''.join(lines)}</table>"


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        return f"<td class='number'>{value:,}</td>"
    return f"<td>{escape(str(value))}</td>"


def image_of(name: str, image: bytes) -> str:
    return f"<p><img alt='{name}' src='data:image/png;base64,{base64.b64encode(image).decode()}'></p>"

"""What all pictures have in common: colours, type, margins, and how they become files.

Drawn with matplotlib's objects, without its global state. Colours are the ones of Okabe and Ito,
which people with colour blindness can tell apart.
"""

from __future__ import annotations

import io
import itertools
import zlib
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from berth.families import FAMILIES
from berth.lab.run.store import ResultDirectory

__all__ = [
    "COLOURS",
    "DASHES",
    "GRID",
    "INK",
    "STYLE",
    "Picture",
    "finish",
    "line_looks",
    "margins",
    "new_figure",
    "on_white",
    "save_figure",
    "short_number",
    "to_png",
    "to_svg",
]

INK, GRID = "#1f2933", "#d9dee5"
"""Text and grid; the report puts its own colours in their place, so that pictures follow dark mode."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D46", "#7A5CC7")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))

LOOKS = len(COLOURS) * len(DASHES)
"""Pairs of a colour and dashes."""

NEAR = 0.007
"""Curves closer than this share of the picture's height are drawn over each other: about the width of a line."""

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round",
}


class Picture(Figure):
    """A figure that notebooks show by themselves, whether pyplot was imported or not."""

    def _repr_png_(self) -> bytes:
        return to_png(self)


def short_number(value: float, place: object = None) -> str:
    """A number for an axis: 1500 → 1.5k.

    >>> short_number(250000.0), short_number(-1500.0), short_number(0.0), short_number(3e6)
    ('250k', '−1.5k', '0', '3M')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}".replace("-", "−")
    return f"{value:g}".replace("-", "−")


def line_looks(*groups: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and dashes of each policy: different within a group, and the same in every report as far as possible.

    A built-in policy has those of its place in the list of its family. Another name has those of its checksum; if
    these are taken in one of its groups, it gets the next free ones, with a free colour if there is one. Dashes change
    after every fourth place, for prints without colour.

    >>> line_looks(["drf", "fairness"])["drf"] == line_looks(["ogasched", "drf"])["drf"]
    True
    >>> looks = line_looks(["drf", "drf:a=1", "mine:A"])
    >>> len({look["color"] for look in looks.values()})
    3
    """
    names = list(dict.fromkeys(itertools.chain(*groups)))
    fixed = {
        name: place
        for family in FAMILIES.values()
        for place, name in enumerate(dict.fromkeys(family.policies))
        if name in names
    }
    places: dict[str, int] = {}
    for name in sorted(names, key=lambda name: name not in fixed):
        taken = {places.get(other) for group in groups if name in group for other in group} - {None}
        colours = {place % len(COLOURS) for place in taken if place is not None}
        wanted = fixed.get(name, zlib.crc32(name.encode()) % LOOKS)
        ring = [(wanted + step) % LOOKS for step in range(LOOKS)] + list(range(LOOKS, LOOKS + len(names)))
        free = [place for place in ring if place not in taken]
        other_colour = [] if name in fixed else [place for place in free if place % len(COLOURS) not in colours]
        places[name] = (other_colour or free)[0]
    return {
        name: {
            "color": COLOURS[places[name] % len(COLOURS)],
            "linestyle": DASHES[(places[name] // 4 + places[name] // 16) % len(DASHES)],
        }
        for name in names
    }


def _coincide(axes: Axes, one: Line2D, other: Line2D) -> bool:
    """Whether two curves are less than a line's width apart in nine tenths of what the axes show."""
    if not np.array_equal(one.get_xdata(), other.get_xdata()):
        return False
    axes.get_ylim()  # limits are set late: transforms before do not know them
    place = axes.transScale + axes.transLimits
    heights = np.array([place.transform(line.get_xydata())[:, 1] for line in (one, other)])
    with np.errstate(invalid="ignore"):
        shown = ((heights >= 0) & (heights <= 1)).any(axis=0)
    apart = np.abs(heights[0] - heights[1])[shown]
    return bool(apart.size) and float(np.mean(apart < NEAR)) >= 0.9


def _tell_apart(axes: Axes) -> None:
    """Keep curves that coincide visible: the lower one is wider, and the label of the upper one names it."""
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    names = [str(line.get_label()) for line in lines]
    for upper, line in enumerate(lines):
        below = [lower for lower in range(upper) if _coincide(axes, lines[lower], line)]
        for lower in below:
            lines[lower].set_linewidth(lines[lower].get_linewidth() + 1.8)
        if below:
            line.set_label(f"{names[upper]} (coincides with {names[below[0]]})")


def new_figure(
    width: float = 7.2, height: float = 3.9, columns: int = 1, rows: int = 1, **more: Any
) -> tuple[Figure, Any]:
    """A figure of this size in inches and its axes, (rows, columns)."""
    figure = Picture(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **more)


def margins(figure: Figure, left: float, right: float, top: float, bottom: float, between: float = 0.0) -> None:
    """Margins in inches. Given, not measured: measuring every text takes longer than drawing it."""
    width, height = figure.get_size_inches()
    figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height, wspace=between)


def finish(figure: Figure, axes: Axes, top: float = 0.15, between: float = 0.0, bottom: float = 0.0) -> None:
    """Margins, and the legend below the picture, where it covers nothing; curves that coincide are told apart."""
    for each in figure.axes:
        _tell_apart(each)
    handles, labels = axes.get_legend_handles_labels()
    width, height = figure.get_size_inches()
    columns = max(1, min(len(labels), int((width - 0.4) / (0.6 + 0.075 * max(map(len, labels), default=1)))))
    lines = -(-len(labels) // columns)
    room = 0.21 * lines + 0.1 + bottom
    figure.set_size_inches(width, height + room)
    margins(figure, 0.85, 0.2, top, 0.48 + room, between)
    figure.legend(
        handles, labels, loc="lower center", ncols=columns, fontsize=9, bbox_to_anchor=(0.5, 0.0), borderaxespad=0.2
    )


def to_svg(figure: Figure, salt: str) -> str:
    """The figure as SVG text; the same figure and salt give the same text."""
    buffer = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def on_white(svg: str) -> str:
    """An SVG with a white ground, as a file of its own."""
    return svg.replace("<defs>", '<rect width="100%" height="100%" fill="#ffffff"/>\n <defs>', 1)


def save_figure(figure: Figure, directory: ResultDirectory, stem: str) -> str:
    """Write a figure to DIR/plots as PNG and SVG; the SVG text for a report, where its ground is clear."""
    text, image = to_svg(figure, stem), to_png(figure)
    directory.write_text(f"plots/{stem}.svg", on_white(text))
    directory.write(f"plots/{stem}.png", lambda path: path.write_bytes(image))
    return text


def to_png(figure: Figure, dots: int = 120) -> bytes:
    """The figure as PNG on white."""
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="png", dpi=dots, facecolor="white")
    return buffer.getvalue()

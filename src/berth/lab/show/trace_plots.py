"""A trace in one picture: when jobs come, how large they are, how long they run and wait."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from berth.errors import InvalidInput
from berth.lab.show.canvas import COLOURS, INK, STYLE, new_figure, short_number, to_png, to_svg
from berth.traces.lint import Findings
from berth.traces.summary import DAY, HOUR, Spread

__all__ = ["draw_trace", "picture_kind", "save_trace_plot"]

BINS = 40
KINDS = ("png", "svg")


def picture_kind(path: Path) -> str:
    """png or svg, by the suffix of the file."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in KINDS:
        raise InvalidInput("a name that ends in .png or .svg", value=path.name, key="out")
    return kind


def save_trace_plot(findings: Findings, path: Path) -> None:
    """Draw a trace into a file, which appears whole or not at all."""
    kind = picture_kind(path)
    figure = draw_trace(findings)
    name = Path(findings.source.files[0]).name if findings.source.files else "trace"
    data = to_png(figure) if kind == "png" else _white(to_svg(figure, name)).encode()
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as place:
            whole = Path(place) / path.name
            whole.write_bytes(data)
            os.replace(whole, path)
    except OSError as error:
        raise InvalidInput("a file that can be written", found=error.strerror or str(error), file=path) from error


def _white(text: str) -> str:
    return text.replace("<defs>", '<rect width="100%" height="100%" fill="#ffffff"/>\n <defs>', 1)


def draw_trace(findings: Findings) -> Figure:
    """Six small pictures; those of which the trace tells nothing say so."""
    with mpl.rc_context(STYLE):
        figure, grid = new_figure(10.2, 5.6, columns=3, rows=2)
        figure.subplots_adjust(left=0.065, right=0.985, top=0.87, bottom=0.1, wspace=0.27, hspace=0.5)
        name = Path(findings.source.files[0]).name if findings.source.files else "trace"
        words = f"{name}: {findings.usable:,} usable jobs of {findings.rows:,}"
        figure.suptitle(words, x=0.065, y=0.975, ha="left", fontsize=11.5, color=INK)
        _over_time(grid[0][0], findings)
        _by_hour(grid[0][1], findings)
        _spread(grid[0][2], findings.spreads["pieces"], "Pieces of a job", COLOURS[2], "pieces")
        _spread(grid[1][0], findings.spreads["run_s"], "Run times", COLOURS[0], "seconds")
        _spread(grid[1][1], findings.spreads["wait_s"], "Waits", COLOURS[3], "seconds")
        _demand(grid[1][2], findings)
    return figure


def _over_time(axes: Axes, findings: Findings) -> None:
    axes.set_title("Arrivals over time")
    times = findings.arrivals.times()
    if not len(times):
        _nothing(axes)
        return
    unit, word = (DAY, "day") if findings.arrivals.span_s > 2 * DAY else (HOUR, "hour")
    edges, counts = findings.arrivals.over_time(BINS * 2)
    width = np.diff(edges)
    rate = np.divide(counts * HOUR, width, out=np.zeros_like(counts), where=findings.arrivals.span_s > 0)
    axes.stairs(rate, (edges - edges[0]) / unit, fill=True, color=COLOURS[0], alpha=0.85)
    axes.set_xlabel(f"{word}s since the first")
    axes.set_ylabel("jobs an hour")
    axes.yaxis.set_major_formatter(FuncFormatter(short_number))
    axes.margins(x=0.01)


def _by_hour(axes: Axes, findings: Findings) -> None:
    axes.set_title("Arrivals by hour of the day")
    counts = findings.arrivals.by_hour()
    if not counts.sum():
        _nothing(axes)
        return
    axes.bar(np.arange(24), 100 * counts / counts.sum(), width=0.85, color=COLOURS[4])
    axes.axhline(100 / 24, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
    axes.set_xticks([0, 6, 12, 18, 23])
    axes.set_xlabel("hour (dashes: all alike)")
    axes.set_ylabel("per cent of jobs")


def _spread(axes: Axes, spread: Spread, title: str, colour: str, unit: str) -> None:
    axes.set_title(title)
    if not spread.count:
        _nothing(axes)
        return
    edges, counts = spread.histogram(BINS)
    axes.stairs(100 * counts / spread.count, edges, fill=True, color=colour, alpha=0.85)
    middle = spread.percentile(50)
    if middle is not None and middle > 0:
        axes.axvline(middle, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
    if edges[0] > 0:
        axes.set_xscale("log")
    axes.set_xlabel(f"{unit} (dashes: median)")
    axes.set_ylabel("per cent of jobs")


def _demand(axes: Axes, findings: Findings) -> None:
    """How many jobs take at least so much of each resource."""
    axes.set_title("Demand of a whole job")
    drawn = False
    for place, resource in enumerate(findings.resources):
        values, counts = findings.spreads[resource.name].values()
        if not len(values) or values[-1] <= 0:
            continue
        drawn = True
        above = 100 * (1 - (np.cumsum(counts) - counts) / counts.sum())
        label = f"{resource.name} ({resource.unit})" if resource.unit else resource.name
        shown = values > 0
        axes.plot(values[shown], above[shown], drawstyle="steps-pre", color=COLOURS[place % len(COLOURS)], label=label)
    if not drawn:
        _nothing(axes)
        return
    axes.set_xscale("log")
    axes.set_xlabel("at least so much")
    axes.set_ylabel("per cent of jobs")
    axes.legend(fontsize=8.5, loc="best")


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "not given", transform=axes.transAxes, ha="center", va="center", color=INK)
    axes.set_xticks([])
    axes.set_yticks([])

"""A trace in the terminal and in one picture: findings of the linter, arrivals, sizes, run times and waits."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from berth.errors import InvalidInput
from berth.lab.show.canvas import COLOURS, INK, STYLE, new_figure, on_white, short_number, to_png, to_svg
from berth.model import Floats
from berth.traces.lint import Findings, Problem
from berth.traces.rules import DROPPED, REPAIRED
from berth.traces.summary import DAY, HOUR, PERCENTILES, Spread

__all__ = ["bars", "draw_trace", "picture_kind", "print_check", "print_info", "save_trace_plot", "spoken_time"]

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 18
MISSING = "–"
STYLES = {DROPPED: "red", REPAIRED: "yellow"}


def bars(counts: Floats) -> str:
    """A histogram in a line; bins that hold nothing are blank.

    >>> bars(np.array([0.0, 1.0, 4.0, 8.0]))
    ' ▁▄█'
    """
    top = counts.max(initial=0.0)
    return "".join(BARS[max(0, int(np.ceil(8 * count / top)) - 1)] if count > 0 else " " for count in counts)


def spoken_time(seconds: float | None) -> str:
    """Seconds in the unit that suits them.

    >>> spoken_time(0.25), spoken_time(90.0), spoken_time(5400.0), spoken_time(200000.0), spoken_time(None)
    ('0.25 s', '90 s', '1.5 h', '2.3 d', '–')
    """
    if seconds is None:
        return MISSING
    for least, unit, letter in ((2 * 86400.0, 86400.0, "d"), (3600.0, 3600.0, "h"), (120.0, 60.0, "min")):
        if abs(seconds) >= least:
            return f"{seconds / unit:.1f} {letter}"
    return f"{seconds:.3g} s"


def _amount(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _head(findings: Findings, console: Console) -> None:
    source, arrivals = findings.source, findings.arrivals
    name = Path(source.files[0]).name if source.files else "trace"
    console.print(Text.assemble((name, "bold"), f"  ({source.format})"))
    lost = sum(problem.count for problem in findings.skipped)
    parts = [f"{findings.rows:,} rows read", f"{findings.usable:,} usable"]
    if lost:
        parts.insert(1, f"{lost:,} unreadable")
    table = Table.grid(padding=(0, 2))
    table.add_row("jobs", ", ".join(parts))
    rate, cv2 = arrivals.jobs_per_hour, arrivals.cv2
    if rate is not None and cv2 is not None:
        table.add_row(
            "arrivals", f"{spoken_time(arrivals.span_s)}, {_amount(rate)} an hour, CV² {cv2:.2g} between arrivals"
        )
    units = {resource.name: resource.unit for resource in findings.resources}
    if findings.machines:
        have = ", ".join(
            f"{key} {_amount(value)} {units.get(key, '')}".strip() for key, value in findings.capacity.items()
        )
        table.add_row("machines", escape(f"{findings.machines:,}" + (f" with {have}" if have else "")))
    if findings.load:
        parts = [f"{name} {load:.3g}" for name, load in findings.load.items()]
        most = f"; {findings.dominant} dominates" if len(parts) > 1 else ""
        table.add_row("offered load", escape(", ".join(parts) + most))
    elif findings.busy:
        parts = [f"{name} {_amount(busy)} {units[name]}".strip() for name, busy in findings.busy.items()]
        table.add_row("in use", escape(", ".join(parts) + " on average; machines unknown"))
    console.print(table)


def print_check(findings: Findings, console: Console) -> None:
    """What was found, rule by rule with the first example of each, and what is missing."""
    _head(findings, console)
    problems = [("unreadable", problem) for problem in findings.skipped]
    problems += [(problem.action, problem) for problem in findings.problems]
    if problems:
        console.print()
        table = Table(box=None, pad_edge=False, title_justify="left")
        table.add_column("rows", justify="right")
        table.add_column("what")
        table.add_column("done")
        table.add_column("first of them", overflow="fold", style="dim")
        for action, problem in problems:
            style = STYLES.get(problem.action, "")
            table.add_row(f"{problem.count:,}", Text(problem.reason, style), _done(action, problem), _first(problem))
        console.print(table)
    there = {name: count for name, count in findings.missing.items() if 0 < count < findings.rows}
    empty = [name for name, count in findings.missing.items() if count == findings.rows]
    if there or empty:
        console.print()
    if there:
        parts = [f"{name} {100 * count / findings.rows:.3g} %" for name, count in there.items()]
        console.print(Text(f"not given for some rows: {', '.join(parts)}", style="dim"))
    if empty and findings.rows:
        console.print(Text(f"not given at all: {', '.join(empty)}", style="dim"))
    if findings.clean:
        console.print(Text("Every row could be read and can be used.", style="green"))
    else:
        lost = sum(problem.count for problem in findings.skipped) + findings.rows - findings.usable
        console.print(Text(f"{lost:,} row{'s' if lost > 1 else ''} cannot be used.", style="red"))


def _done(action: str, problem: Problem) -> str:
    return problem.remedy if action in (DROPPED, REPAIRED) else action


def _first(problem: Problem) -> Text:
    """Where the first of them stands, and what stood there."""
    if not problem.examples:
        return Text("")
    example = problem.examples[0]
    shown = example.found if example.found is not None else repr(example.value)
    place = "" if example.line is None else f"line {example.line}:"
    return Text(" ".join(part for part in (place, example.key, shown) if part))


def print_info(findings: Findings, console: Console) -> None:
    """Numbers and small histograms of what the usable jobs are like."""
    _head(findings, console)
    console.print()
    units = {resource.name: resource.unit for resource in findings.resources}
    table = Table(box=None, pad_edge=False)
    table.add_column("a job's")
    for percent in PERCENTILES:
        table.add_column(f"p{percent}", justify="right")
    table.add_column("largest", justify="right")
    table.add_column("smallest to largest (log)")
    for name, spread in findings.spreads.items():
        if not spread.count:
            continue
        timed = name.endswith("_s")
        words = {"run_s": "run time", "wait_s": "wait"}.get(name, name)
        title = words if timed or not units.get(name) else f"{words}, {units[name]}"
        table.add_row(escape(title), *_row(spread, timed), Text(bars(spread.histogram(WIDTH)[1]), style="cyan"))
    console.print(table)
    console.print()
    by_hour = findings.arrivals.by_hour()
    if by_hour.sum():
        console.print(Text.assemble("arrivals by hour of the day   0 ", (bars(by_hour), "cyan"), " 23"))
        busiest = int(by_hour.argmax())
        share = by_hour[busiest] / by_hour.sum()
        console.print(Text(f"most between {busiest} and {busiest + 1} o'clock: {100 * share:.1f} %", style="dim"))


def _row(spread: Spread, timed: bool) -> list[str]:
    values = [*(spread.percentile(percent) for percent in PERCENTILES), spread.high]
    return [spoken_time(value) if timed else _amount(value) for value in values]


COLUMNS = 40
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
    data = to_png(figure) if kind == "png" else on_white(to_svg(figure, name)).encode()
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as place:
            whole = Path(place) / path.name
            whole.write_bytes(data)
            os.replace(whole, path)
    except OSError as error:
        raise InvalidInput("a file that can be written", found=error.strerror or str(error), file=path) from error


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
    edges, counts = findings.arrivals.over_time(COLUMNS * 2)
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
    edges, counts = spread.histogram(COLUMNS)
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

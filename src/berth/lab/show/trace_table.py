"""What the linter found in a trace, in the terminal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from berth.model import Floats
from berth.traces.lint import Findings, Problem
from berth.traces.rules import DROPPED, REPAIRED
from berth.traces.summary import PERCENTILES, Spread

__all__ = ["bars", "print_check", "print_info", "spoken_time"]

BARS = "▁▂▃▄▅▆▇█"
BINS = 18
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
        table.add_row(escape(title), *_row(spread, timed), Text(bars(spread.histogram(BINS)[1]), style="cyan"))
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

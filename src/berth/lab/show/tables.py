"""Comparisons and sweeps in the terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from berth.lab.run.results import Comparison, Row, spoken
from berth.lab.run.sweep import Sweep
from berth.lab.show.words import MISSING, in_words, mean_of, needs, number, percent, plus_minus, verdict
from berth.statistics import Estimate

__all__ = ["as_table", "fitted", "print_comparison", "print_sweep", "stacked", "tables_as_text"]

NARROW = 96
"""Below this many characters a line, the table keeps to what decides."""
WIDE = 132
"""From this many on, it has differences and regret in full."""
LINES = 60
"""Lines of a sweep that are printed."""


def as_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    texts: int = 1,
    *,
    title: str | None = None,
    wrap: bool = False,
    least: int | None = None,
    stack: int = 0,
) -> Table:
    """A plain table: `texts` columns that fold, the first at least `least` wide, then numbers, aligned right.

    Numbers are never cut, unless `wrap` lets them wrap. `stack` breaks heads into lines of this many characters.
    """
    heads = [stacked(head, stack) for head in heads] if stack else heads
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for place, head in enumerate(heads):
        if place < texts:
            table.add_column(escape(head), overflow="fold", min_width=None if place else least)
        else:
            table.add_column(escape(head), justify="right", no_wrap=not wrap)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def fitted(console: Console, table: Callable[[bool], Table]) -> Table:
    """`table(False)`, or if that is wider than the console `table(True)`, with its heads stacked."""
    whole = table(False)
    needed = console.measure(whole, options=console.options.update(max_width=10 * console.width)).maximum
    return whole if needed <= console.width else table(True)


def stacked(head: str, width: int = 12) -> str:
    """A head on lines of at most `width` characters if possible, broken only behind a space, hyphen, dot or slash.

    >>> stacked("trace-google-2011-placement").splitlines()
    ['trace-', 'google-2011-', 'placement']
    """
    lines = [""]
    for part in re.findall(r"[^ ./-]*[ ./-]?", head):
        if lines[-1] and len((lines[-1] + part).rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def print_comparison(comparison: Comparison, console: Console) -> None:
    """One table for each information setting, then the verdict."""
    _print_tables(comparison, console)
    for line in verdict(comparison):
        console.print(Text(line, style="yellow" if line in comparison.remarks else ""))
    if len(comparison.seeds) > 1:
        console.print(Text("± is half of the 95 % interval over seeds, paired where two are compared.", style="dim"))
    else:
        console.print(Text("One seed: no intervals. --seeds 4 gives them.", style="dim"))


def tables_as_text(comparison: Comparison, width: int = 80) -> str:
    """The tables of a comparison as plain text, at most `width` characters a line."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    with console.capture() as shown:
        _print_tables(comparison, console)
        for what, failure in comparison.failures.items():
            console.print(f"failed: {what}: {failure.error}", markup=False)
    return "\n".join(line.rstrip() for line in shown.get().splitlines()).rstrip()


def _print_tables(comparison: Comparison, console: Console) -> None:
    for information in comparison.information:
        rows = [row for row in comparison.rows if row.information == information]
        console.print(_table(comparison, information, rows, console.width < NARROW, console.width >= WIDE))
        for item in comparison.unsupported:
            if item.information in (information, "oracle"):
                console.print(Text(f"not here: {needs(item)}", style="dim"))
        console.print()


def _estimate(value: Estimate | None) -> Text:
    mean, half = plus_minus(value)
    return Text.assemble(mean, (f" {half}", "dim")) if half else Text(mean)


def _share(value: Estimate | None, sign: bool = False) -> Text:
    if value is None:
        return Text(MISSING)
    mean = percent(value.mean - 1 if sign else value.mean, sign=sign)
    style = ""
    if sign and value.low is not None and value.high is not None:
        style = "green" if value.low > 1 else "red" if value.high < 1 else ""
    return Text.assemble((mean, style), (f" ± {100 * value.half:.1f}", "dim") if value.half is not None else "")


def _table(comparison: Comparison, information: str, rows: list[Row], narrow: bool, wide: bool) -> Table:
    family = comparison.family
    stationary, slot = "stationary" in comparison.oracles, "slot" in comparison.oracles
    regret = "slot" in comparison.regretted and (wide or (family.logarithmic and not narrow))
    broken = any(row.violations for row in comparison.rows)
    heads = ["policy", "reward a slot", f"vs {comparison.baseline}", *(["difference"] if wide else [])]
    for oracle in comparison.oracles:
        words = family.oracle_words[oracle]
        heads.append(f"of {words.narrow if narrow else words.short}")
    if regret:
        heads += ["regret", "grows", *(["ln R²"] if family.logarithmic else [])]
    if broken:
        heads += ["broken"] if narrow else ["slots broken", "claimed"]
    heads += [] if narrow else ["µs"]
    lines: list[list[Text]] = []
    for place, row in enumerate(rows):
        same = row.policy == comparison.baseline
        cells = [
            Text(row.policy, style="bold" if place == 0 else ""),
            Text(number(mean_of(row.reward))) if narrow else _estimate(row.reward),
            Text(MISSING) if same else _share(row.ratio, sign=True),
        ]
        cells += [Text(MISSING) if same else _estimate(row.difference)] if wide else []
        cells += [Text(percent(mean_of(row.fraction_of_stationary)))] if stationary else []
        cells += [Text(percent(mean_of(row.fraction_of_oracle)))] if slot else []
        cells += [Text(percent(mean_of(row.fraction_of_information)))] if "information" in comparison.oracles else []
        if regret:
            growth, fit = row.regret_growth, row.regret_log_fit
            cells += [_estimate(row.regret), Text(MISSING if growth is None else f"T^{growth:.2f}")]
            cells += [Text(MISSING if fit is None else f"{fit:.3f}")] if family.logarithmic else []
        if broken:
            cells.append(Text(percent(row.violating_slots), style="yellow") if row.violations else Text(MISSING))
            cells += [] if narrow else [Text(number(mean_of(row.claimed)), style="dim")]
        cells += [] if narrow else [Text(number(row.decide_microseconds, 3))]
        lines.append(cells)
    for best in comparison.oracle_rows:
        reward = Text(number(mean_of(best.reward))) if narrow else _estimate(best.reward)
        reward.stylize("dim")
        line = [Text(family.oracle_words[best.oracle].short, style="dim"), reward]
        if best.fraction_of_oracle is not None:
            line += [Text("")] * (heads.index("of oracle") - 2)
            line.append(Text(percent(best.fraction_of_oracle.mean), style="dim"))
        lines.append(line)
    return as_table(heads, lines, title=spoken(information), wrap=True)


def print_sweep(result: Sweep, console: Console) -> None:
    """One line for each point and policy, the best reward of a point first; long sweeps are cut."""
    several = len({row.information for rows in result.rows.values() for row in rows}) > 1
    texts = [*result.keys, *(["arrivals"] if several else []), "policy"]
    lines = [
        [
            *(_shown(point.changes.get(key)) if place == 0 else "" for key in result.keys),
            *([row.information] if several else []),
            row.policy,
            in_words(row.reward),
            percent(None if row.ratio is None else row.ratio.mean - 1, sign=True),
            percent(mean_of(row.fraction_of_oracle)),
        ]
        for point in result.points
        for place, row in enumerate(result.rows.get(point.number, ()))
    ]
    heads = [*texts, "reward a slot", "vs baseline", "of oracle"]
    if all(line[-1] == MISSING for line in lines):
        heads, lines = heads[:-1], [line[:-1] for line in lines]
    table = partial(as_table, heads, lines[:LINES], len(texts))
    console.print(fitted(console, lambda narrow: table(stack=11 if narrow else 0)))
    if len(lines) > LINES:
        console.print(Text(f"… and {len(lines) - LINES:,} more lines; all are in the table file.", style="dim"))
    for reason in dict.fromkeys(f"{who}: {why}" for found in result.left_out.values() for who, why in found.items()):
        console.print(Text(f"not here: {reason}", style="dim"))


def _shown(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)

"""A comparison in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from berth.lab.run.results import Comparison, Row, spoken
from berth.lab.show.words import MISSING, mean_of, needs, number, percent, plus_minus, verdict
from berth.statistics import Estimate

__all__ = ["print_comparison"]

NARROW = 96
"""Below this many characters a line, the table keeps to what decides."""
WIDE = 132
"""From this many on, it has differences and regret in full."""


def print_comparison(comparison: Comparison, console: Console) -> None:
    """One table for each information setting, then the verdict."""
    narrow, wide = console.width < NARROW, console.width >= WIDE
    for information in comparison.information:
        rows = [row for row in comparison.rows if row.information == information]
        console.print(_table(comparison, information, rows, narrow, wide))
        for item in comparison.unsupported:
            if item.information in (information, "oracle"):
                console.print(Text(f"not here: {needs(item)}", style="dim"))
        console.print()
    for line in verdict(comparison):
        console.print(Text(line))
    if len(comparison.seeds) > 1:
        console.print(Text("± is half of the 95 % interval over seeds, paired where two are compared.", style="dim"))
    else:
        console.print(Text("One seed: no intervals. --seeds 4 gives them.", style="dim"))


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
    table = Table(title=spoken(information), title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("policy", overflow="fold")
    table.add_column("reward a slot", justify="right")
    table.add_column(f"vs {escape(comparison.baseline)}", justify="right")
    if wide:
        table.add_column("difference", justify="right")
    stationary, slot = "stationary" in comparison.oracles, "slot" in comparison.oracles
    family = comparison.family
    regret = "slot" in comparison.regretted and (wide or (family.logarithmic and not narrow))
    broken = any(row.violations for row in comparison.rows)
    for oracle in comparison.oracles:
        words = family.oracle_words[oracle]
        table.add_column(f"of {words.narrow if narrow else words.short}", justify="right")
    if regret:
        for head in ("regret", "grows", *(("ln R²",) if family.logarithmic else ())):
            table.add_column(head, justify="right")
    if broken:
        table.add_column("slots broken" if not narrow else "broken", justify="right")
        if not narrow:
            table.add_column("claimed", justify="right", style="dim")
    if not narrow:
        table.add_column("µs", justify="right")
    for place, row in enumerate(rows):
        same = row.policy == comparison.baseline
        cells: list[str | Text] = [
            Text(row.policy, style="bold" if place == 0 else ""),
            Text(number(mean_of(row.reward))) if narrow else _estimate(row.reward),
            Text(MISSING) if same else _share(row.ratio, sign=True),
        ]
        cells += [Text(MISSING) if same else _estimate(row.difference)] if wide else []
        cells += [Text(percent(mean_of(row.fraction_of_stationary)))] if stationary else []
        cells += [Text(percent(mean_of(row.fraction_of_oracle)))] if slot else []
        if regret:
            growth, fit = row.regret_growth, row.regret_log_fit
            cells += [
                _estimate(row.regret),
                Text(MISSING if growth is None else f"T^{growth:.2f}"),
            ]
            cells += [Text(MISSING if fit is None else f"{fit:.3f}")] if family.logarithmic else []
        if broken:
            cells.append(Text(percent(row.violating_slots), style="yellow") if row.violations else Text(MISSING))
            if not narrow:
                cells.append(Text(number(mean_of(row.claimed))))
        if not narrow:
            cells.append(Text(number(row.decide_microseconds, 3)))
        table.add_row(*cells)
    for best in comparison.oracle_rows:
        words = family.oracle_words[best.oracle]
        reward = Text(number(mean_of(best.reward))) if narrow else _estimate(best.reward)
        table.add_row(words.short, reward, style="dim")
    return table

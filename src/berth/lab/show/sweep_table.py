"""A sweep in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from berth.lab.run.sweep import Sweep
from berth.lab.show.words import number, percent, plus_minus

__all__ = ["print_sweep"]

LINES = 60


def print_sweep(result: Sweep, console: Console) -> None:
    """One line for each point and policy, the best reward of a point first; long sweeps are cut."""
    table = Table(box=None, pad_edge=False)
    for key in result.keys:
        table.add_column(escape(key), overflow="fold")
    several = len({row.information for rows in result.rows.values() for row in rows}) > 1
    for name in (*(("arrivals",) if several else ()), "policy"):
        table.add_column(name, overflow="fold")
    for name in ("reward a slot", "vs baseline", "of oracle"):
        table.add_column(name, justify="right", no_wrap=True)
    lines = 0
    for point in result.points:
        for place, row in enumerate(result.rows.get(point.number, ())):
            lines += 1
            if lines > LINES:
                continue
            mean, half = plus_minus(row.reward)
            share = None if row.fraction_of_oracle is None else row.fraction_of_oracle.mean
            ratio = None if row.ratio is None else row.ratio.mean - 1
            table.add_row(
                *(_shown(point.changes.get(key)) if place == 0 else "" for key in result.keys),
                *((row.information,) if several else ()),
                escape(row.policy),
                f"{mean} {half}".strip(),
                percent(ratio, sign=True),
                percent(share),
            )
    console.print(table)
    if lines > LINES:
        console.print(Text(f"… and {lines - LINES:,} more lines; all are in the table file.", style="dim"))
    for reason in dict.fromkeys(f"{who}: {why}" for found in result.left_out.values() for who, why in found.items()):
        console.print(Text(f"not here: {reason}", style="dim"))


def _shown(value: object) -> str:
    return number(value) if isinstance(value, float) else escape(str(value))

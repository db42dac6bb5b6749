"""Forms of an answer: tables for people; JSON, YAML and CSV for programs."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Output",
    "OutputOption",
    "ResultOption",
    "ResultOutput",
    "WideOption",
    "WideOutput",
    "answered",
    "print_json",
    "print_table",
    "terminal",
    "terminal_width",
]

GAP = 2
"""Spaces between two columns."""
NARROWEST = 8
"""Characters below which a column is not narrowed."""


class Output(StrEnum):
    """The form of an answer."""

    table = "table"
    json = "json"
    csv = "csv"
    yaml = "yaml"


class ResultOutput(StrEnum):
    """The form of results that papers print."""

    table = "table"
    latex = "latex"
    json = "json"
    csv = "csv"
    yaml = "yaml"


class WideOutput(StrEnum):
    """The form of an answer whose table has more columns when asked."""

    table = "table"
    wide = "wide"
    json = "json"
    csv = "csv"
    yaml = "yaml"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Print a table, or JSON, CSV or YAML.")]
ResultOption = Annotated[
    ResultOutput, typer.Option("--output", "-o", help="Print a table, or the table as LaTeX, or JSON, CSV or YAML.")
]
WideOption = Annotated[
    WideOutput, typer.Option("--output", "-o", help="Print a table, a table with more columns, or JSON, CSV or YAML.")
]


def answered(value: Any, output: str, rows: Iterable[Mapping[str, Any]] | None = None) -> bool:
    """Print `value` for programs, and return False where a table is asked for (also as LaTeX).

    CSV has `rows`; without them, the items of a list, or the value as a single row.
    """
    if output == Output.json:
        print_json(value)
    elif output == Output.yaml:
        import yaml

        plain = json.loads(json.dumps(value, allow_nan=False))
        typer.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip())
    elif output == Output.csv:
        _print_csv(rows if rows is not None else value if isinstance(value, list) else [value])
    return output not in (WideOutput.table, WideOutput.wide, ResultOutput.latex)


def print_json(value: Any) -> None:
    """Print a value as JSON; NaN and infinities are refused."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def _print_csv(rows: Iterable[Mapping[str, Any]]) -> None:
    import csv
    import io

    flat = [dict(_flat(row)) for row in rows]
    columns = list(dict.fromkeys(column for row in flat for column in row))
    parents = {column for column in columns if any(other.startswith(f"{column}.") for other in columns)}
    kept = [column for column in columns if column not in parents or any(row.get(column) is not None for row in flat)]
    written = io.StringIO()
    writer = csv.DictWriter(written, kept, restval="", extrasaction="ignore", lineterminator="\n")
    if kept:
        writer.writeheader()
    writer.writerows(flat)
    typer.echo(written.getvalue(), nl=False)


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The cells of a row: a mapping becomes the columns `key.inner`, a list becomes JSON."""
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple) else value


def terminal(output: str = Output.table) -> Console:
    """Standard output for tables: colours on a terminal only, and none with NO_COLOR; LaTeX if `output` says so."""
    if output == ResultOutput.latex:
        from berth.lab.show.latex import LatexConsole

        return LatexConsole()
    from rich.console import Console

    return Console(highlight=False)


def terminal_width() -> int | None:
    """Characters in a line of the terminal; None where standard output is no terminal."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else None


def print_table(rows: Sequence[Mapping[str, str]], columns: Sequence[str], width: int | None = None) -> None:
    """Print plain columns, as wide as their longest cell.

    On a terminal (or with `width`), long cells fold inside their column. Elsewhere each row is one line, easy to cut.
    """
    widths = [max([len(column), *(len(row.get(column, "")) for row in rows)]) for column in columns]
    limit = terminal_width() if width is None else width
    if limit is not None:
        _narrow(widths, [max(len(column), NARROWEST) for column in columns], limit - GAP * (len(columns) - 1))
    for cells in (
        [column.upper() for column in columns],
        *([row.get(column, "") for column in columns] for row in rows),
    ):
        folded = [_folded(cell, size) for cell, size in zip(cells, widths, strict=True)]
        for line in range(max(map(len, folded))):
            parts = [(part[line] if line < len(part) else "") for part in folded]
            typer.echo((" " * GAP).join(map(str.ljust, parts, widths)).rstrip())


def _narrow(widths: list[int], least: list[int], room: int) -> None:
    """Take from the widest column until all of them fit, or none can be narrower."""
    while sum(widths) > room:
        place = max(range(len(widths)), key=lambda place: widths[place] - least[place])
        if widths[place] <= least[place]:
            return
        widths[place] -= 1


def _folded(cell: str, width: int) -> list[str]:
    return textwrap.wrap(cell, width, break_on_hyphens=False) if len(cell) > width else [cell]

"""Options and output that the commands for a running service share."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from berth.live.client import DEFAULT_URL

__all__ = ["Format", "FormatOption", "UrlOption", "shown", "table"]


class Format(StrEnum):
    """How a command answers."""

    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"


FormatOption = Annotated[Format, typer.Option("--output", "-o", help="How to answer; wide shows more columns.")]
UrlOption = Annotated[
    str | None, typer.Option("--url", envvar="BERTH_URL", help=f"Where the service is; {DEFAULT_URL} by default.")
]


def shown(value: Any, how: Format) -> bool:
    """Print for programs, where that was asked for; False where a table is wanted."""
    if how is Format.json:
        typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
    elif how is Format.yaml:
        import yaml

        typer.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip())
    return how in (Format.json, Format.yaml)


def table(rows: list[dict[str, str]], columns: tuple[str, ...]) -> None:
    """Plain columns, wide enough for their longest cell: made for people, easy to cut."""
    widths = {column: max([len(column), *(len(row.get(column, "")) for row in rows)]) for column in columns}
    typer.echo("  ".join(column.upper().ljust(widths[column]) for column in columns).rstrip())
    for row in rows:
        typer.echo("  ".join(row.get(column, "").ljust(widths[column]) for column in columns).rstrip())

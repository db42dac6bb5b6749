"""`berth sweep`: a comparison at each of many settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from berth.cli.common import (
    Output,
    OutputOption,
    QuietOption,
    WorkersOption,
    cell_progress,
    print_json,
    told_when_stopped,
)

__all__ = ["sweep_command"]


def sweep_command(
    file: Annotated[Path, typer.Argument(help="The sweep file (YAML): a scenario, and what is changed in it.")],
    out: Annotated[Path, typer.Option("--out", help="Where cells and tables go; the same command goes on there.")],
    on: Annotated[str, typer.Option("--on", help="local: processes of this machine; ray: a Ray cluster.")] = "local",
    address: Annotated[
        str | None,
        typer.Option("--address", help="Of the Ray cluster, as 10.0.0.1:6379; without, one is started."),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="How many seeds, instead of the file's.")] = None,
    workers: WorkersOption = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Run a sweep; stop it at any time, the same command goes on.

    Exit code: 0 everything done, 1 some cells failed, 2 bad input.
    """
    from berth.lab.run.sweep import sweep

    with told_when_stopped(), cell_progress(quiet) as show:
        result = sweep(file, out=out, workers=workers, on=on, address=address, seeds=seeds, progress=show)
    if output is Output.json:
        print_json(result.as_dict())
    else:
        from rich.console import Console

        from berth.lab.show.sweep_table import print_sweep

        print_sweep(result, Console(highlight=False))
        typer.echo(f"\nTable: {(out / 'summary.parquet').resolve()}")
    failures = [(point, cell, error) for point, found in result.failed.items() for cell, error in found.items()]
    for point, cell, error in failures:
        typer.echo(f"berth: failed: point {point}, {cell}: {error}", err=True)
    if failures:
        raise typer.Exit(1)

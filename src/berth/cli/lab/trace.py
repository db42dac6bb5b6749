"""`berth trace`: look at workload traces, check them, bring them into berth's own format."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.common import Output, OutputOption, QuietOption, print_json, told_when_stopped

if TYPE_CHECKING:
    import polars as pl

    from berth.traces.formats import Reading

__all__ = ["trace_app"]

trace_app = typer.Typer(
    help="Workload traces: check them, look at them, convert and draw them.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

FileArgument = Annotated[Path, typer.Argument(help="The trace: its main table, plain or gzip.")]
FormatOption = Annotated[
    str | None, typer.Option("--format", help="Its format, where that is not recognised (see: berth trace formats).")
]
MachinesOption = Annotated[
    Path | None, typer.Option("--machines", help="Its table of machines, where that does not lie beside it.")
]
STEP_SECONDS, FIRST_SECONDS = 10.0, 1.0


@trace_app.callback()
def _help(context: typer.Context) -> None:
    """Workload traces: check them, look at them, convert and draw them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@trace_app.command()
def check(
    file: FileArgument,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a trace with any row that cannot be read or used.")
    ] = False,
    format: FormatOption = None,
    machines: MachinesOption = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Check a trace: what it holds, which rows are impossible, what is done about them.

    Exit code: 0 every row can be read and used (if repaired), 1 some rows cannot, 2 bad input, or --strict refused.
    """
    from berth.traces.formats import open_trace
    from berth.traces.lint import lint

    with _progress(open_trace(file, format, machines=machines, strict=strict), quiet) as reading:
        findings = lint(reading)
    if output is Output.json:
        print_json(findings.as_dict())
    else:
        from rich.console import Console

        from berth.lab.show.traces import print_check

        print_check(findings, Console(highlight=False))
    if not findings.clean:
        raise typer.Exit(1)


@trace_app.command()
def info(
    file: FileArgument,
    format: FormatOption = None,
    machines: MachinesOption = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Sum up a trace: load, percentiles and small histograms of its usable jobs."""
    from berth.traces.formats import open_trace
    from berth.traces.lint import lint

    with _progress(open_trace(file, format, machines=machines), quiet) as reading:
        findings = lint(reading)
    if output is Output.json:
        print_json(findings.as_dict())
        return
    from rich.console import Console

    from berth.lab.show.traces import print_info

    print_info(findings, Console(highlight=False))


@trace_app.command()
def convert(
    file: FileArgument,
    out: Annotated[Path, typer.Argument(help="Where to write: NAME.csv, NAME.csv.gz or NAME.parquet.")],
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a trace with any row that cannot be read.")] = False,
    format: FormatOption = None,
    machines: MachinesOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write a trace in the generic format: jobs to OUT, machines and outages beside it.

    Rows are written as they stand, also impossible ones. Exit code: 0 all rows were written, 1 some could not be read
    and are left out, 2 bad input; then nothing is written.
    """
    from berth.traces.formats import open_trace
    from berth.traces.formats.generic import write_trace

    read = open_trace(file, format, machines=machines, strict=strict)
    rows: list[int] = []
    with _progress(read, quiet, f"; {out} was not written", rows) as reading:
        written = write_trace(reading, out, overwrite=force)
    typer.echo(f"{sum(rows):,} rows: {', '.join(str(path) for path in written)}")
    lost = reading.report.skipped
    for reason, count in lost.items():
        typer.echo(f"berth: left out: {reason} ({count:,}), first {reading.report.examples[reason][0]}", err=True)
    if lost:
        raise typer.Exit(1)


@trace_app.command()
def plot(
    file: FileArgument,
    out: Annotated[Path, typer.Option("--out", help="Where to draw: a .png or .svg.")],
    format: FormatOption = None,
    machines: MachinesOption = None,
    quiet: QuietOption = False,
) -> None:
    """Draw arrivals over time and by hour of the day, sizes, run times, waits and demand."""
    from berth.lab.show.traces import picture_kind, save_trace_plot
    from berth.traces.formats import open_trace
    from berth.traces.lint import lint

    picture_kind(out)  # before a long file is read
    with _progress(open_trace(file, format, machines=machines), quiet, f"; {out} was not written") as reading:
        findings = lint(reading)
    save_trace_plot(findings, out)
    typer.echo(f"Picture: {out.resolve()}")


@trace_app.command()
def formats(output: OutputOption = Output.table) -> None:
    """List the formats that can be read."""
    from berth.traces.formats import format_names, trace_format

    titles = {name: trace_format(name).title for name in format_names()}
    if output is Output.json:
        print_json([{"name": name, "title": title} for name, title in titles.items()])
        return
    width = max(map(len, titles))
    for name, title in titles.items():
        typer.echo(f"{name:<{width}}  {title}")


@contextmanager
def _progress(reading: Reading, quiet: bool, lost: str = "", sizes: list[int] | None = None) -> Iterator[Reading]:
    """Shows on stderr how many rows a long file has given so far; Ctrl-C says that, and what is `lost`.

    `sizes` gets the number of rows of each table.
    """
    rows, shown = 0, False
    due = time.monotonic() + FIRST_SECONDS
    terminal = sys.stderr.isatty()

    def counted(jobs: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        nonlocal rows, shown, due
        for chunk in jobs:
            yield chunk
            rows += len(chunk)
            if sizes is not None:
                sizes.append(len(chunk))
            if not quiet and time.monotonic() >= due:
                shown, due = True, time.monotonic() + (0.2 if terminal else STEP_SECONDS)
                typer.echo(f"\r{rows:,} rows" if terminal else f"berth: {rows:,} rows", err=True, nl=not terminal)

    reading.jobs = counted(reading.jobs)
    with told_when_stopped():
        try:
            yield reading
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped after {rows:,} rows{lost}") from None
        finally:
            if shown and terminal:
                typer.echo("\r\033[K", err=True, nl=False)

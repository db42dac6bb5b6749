"""`berth trace`: check, summarise, convert and plot workload traces."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.answers import Output, OutputOption, answered, print_table, terminal
from berth.cli.common import PlaceArgument, QuietOption, file_to_write, told_when_stopped, write_any
from berth.cli.help import examples

if TYPE_CHECKING:
    import polars as pl

    from berth.traces.formats import Reading
    from berth.traces.lint import Findings

__all__ = ["trace_app"]

trace_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)

FileArgument = Annotated[Path, typer.Argument(help="A trace: its main table, plain or gzip.")]
FormatOption = Annotated[
    str | None, typer.Option("--format", help="Format of the trace, if not recognised (see: berth trace formats).")
]
MachinesOption = Annotated[Path | None, typer.Option("--machines", help="Table of machines, if not beside the trace.")]
STEP_SECONDS, FIRST_SECONDS = 10.0, 1.0


@trace_app.callback(epilog=examples("berth trace check jobs.swf.gz", "berth trace info jobs.csv"))
def _help(context: typer.Context) -> None:
    """Check, summarise, convert or plot a workload trace."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@trace_app.command(epilog=examples("berth trace check jobs.swf.gz", "berth trace check jobs.csv --strict -o json"))
def check(
    file: FileArgument,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a trace with rows that cannot be read or used.")
    ] = False,
    format: FormatOption = None,
    machines: MachinesOption = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Check a trace for rows that cannot be read or used.

    The table says what is done about them.

    Exit code: 0 every row can be read and used (if repaired), 1 some rows cannot, 2 bad input, or --strict refused.
    """
    from berth.traces.formats import open_trace
    from berth.traces.lint import lint

    with _progress(open_trace(file, format, machines=machines, strict=strict), quiet) as reading:
        findings = lint(reading)
    problems = [problem.as_dict() for problem in (*findings.skipped, *findings.problems)]
    if not answered(findings.as_dict(), output, problems):
        from berth.lab.show.traces import print_check

        print_check(findings, terminal())
    if not findings.clean:
        raise typer.Exit(1)


@trace_app.command(epilog=examples("berth trace info jobs.swf.gz", "berth trace info jobs.csv -o yaml"))
def info(
    file: FileArgument,
    format: FormatOption = None,
    machines: MachinesOption = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Summarise a trace.

    The tables have the load, and percentiles and histograms of the usable jobs.
    """
    from berth.traces.formats import open_trace
    from berth.traces.lint import lint

    with _progress(open_trace(file, format, machines=machines), quiet) as reading:
        findings = lint(reading)
    if not answered(findings.as_dict(), output, _spreads(findings)):
        from berth.lab.show.traces import print_info

        print_info(findings, terminal())


def _spreads(findings: Findings) -> list[dict[str, Any]]:
    """The rows of the CSV of `berth trace info`."""
    return [{"name": name, **spread} for name, spread in findings.as_dict()["spreads"].items()]


@trace_app.command(epilog=examples("berth trace convert jobs.swf.gz --out jobs.parquet"))
def convert(
    file: FileArgument,
    place: PlaceArgument = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="File to write: NAME.csv, NAME.parquet or NAME.swf; .csv.gz and .swf.gz too."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a trace with rows that cannot be read.")] = False,
    format: FormatOption = None,
    machines: MachinesOption = None,
    quiet: QuietOption = False,
) -> None:
    """Convert a trace to the generic format or to SWF.

    Jobs go to --out, machines and outages beside it. Rows are not repaired. SWF holds less: a line tells what was left
    out, and jobs that it cannot hold are an error. Exit code: 0 all rows were written, 1 some could not be read and
    were skipped, 2 bad input and nothing was written.
    """
    from berth.traces.formats import open_trace

    to = file_to_write(out, place)
    read = open_trace(file, format, machines=machines, strict=strict)
    rows: list[int] = []
    with _progress(read, quiet, f"; {to} was not written", rows) as reading:
        written = write_any(reading, to, force)
    typer.echo(f"{sum(rows):,} rows: {', '.join(str(path) for path in written)}")
    lost = reading.report.skipped
    for reason, count in lost.items():
        typer.echo(f"berth: left out: {reason} ({count:,}), first {reading.report.examples[reason][0]}", err=True)
    if lost:
        raise typer.Exit(1)


@trace_app.command(epilog=examples("berth trace plot jobs.swf.gz --out jobs.png"))
def plot(
    file: FileArgument,
    out: Annotated[Path, typer.Option("--out", help="File to write: NAME.png or NAME.svg.")],
    format: FormatOption = None,
    machines: MachinesOption = None,
    quiet: QuietOption = False,
) -> None:
    """Plot arrivals, sizes, run times, waits and demand."""
    from berth.lab.show.traces import picture_kind, save_trace_plot
    from berth.traces.formats import open_trace
    from berth.traces.lint import lint

    picture_kind(out)  # before a long file is read
    with _progress(open_trace(file, format, machines=machines), quiet, f"; {out} was not written") as reading:
        findings = lint(reading)
    save_trace_plot(findings, out)
    typer.echo(f"Picture: {out.resolve()}")


@trace_app.command(epilog=examples("berth trace formats"))
def formats(output: OutputOption = Output.table) -> None:
    """List the formats that berth reads."""
    from berth.traces.formats import format_names, trace_format

    rows = [{"name": name, "title": trace_format(name).title} for name in format_names()]
    if not answered(rows, output):
        print_table(rows, ("name", "title"))


@contextmanager
def _progress(reading: Reading, quiet: bool, lost: str = "", sizes: list[int] | None = None) -> Iterator[Reading]:
    """Show on stderr how many rows of a long file were read; Ctrl-C prints that, and what is `lost`.

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

"""`berth workload`: workloads fitted to traces. Thin, and nothing heavy is imported before a command runs."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.common import Output, OutputOption, print_json

if TYPE_CHECKING:
    from berth.traces.fitting.closeness import Closeness
    from berth.traces.fitting.workload import Workload
    from berth.traces.trace import Trace

__all__ = ["app"]

app = typer.Typer(help="Workloads fitted to public traces, or to your own.", rich_markup_mode=None)

FormatOption = Annotated[str | None, typer.Option("--format", help="Format of the trace, where it is not recognised.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Which draw.")]
TraceArgument = Annotated[Path, typer.Argument(help="A trace in any format that berth reads.")]
WorkloadArgument = Annotated[str, typer.Argument(help="Name of a workload, or a workload file.")]


@app.command("list")
def list_command(output: OutputOption = Output.table) -> None:
    """The workloads that come with berth, and where they come from."""
    from berth.traces.fitting.generate import job_rate, offered_load
    from berth.traces.fitting.workload import load_workload, workload_names

    found = [load_workload(name) for name in workload_names()]
    if output is Output.json:
        print_json([_summary(workload) for workload in found])
        return
    width = shutil.get_terminal_size((80, 24)).columns
    typer.echo(f"{'name':<16} {'machines':>8} {'jobs/h':>8} {'load':>5}  title")
    for workload in found:
        machines = sum(machine.count for machine in workload.machines)
        rate, load = 3600 * job_rate(workload), float(offered_load(workload).max())
        line = f"{workload.name:<16} {machines:>8} {_short(rate):>8} {load:>5.2g}  {workload.title}"
        typer.echo(line if len(line) <= width else line[: width - 1] + "…")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


@app.command("show")
def show_command(workload: WorkloadArgument, output: OutputOption = Output.table) -> None:
    """Where a workload comes from, what was supposed, and its classes of jobs."""
    from berth.traces.fitting.workload import load_workload

    found = load_workload(workload)
    if output is Output.json:
        print_json(_summary(found))
        return
    origin = found.provenance
    typer.echo(found.title)
    listed = [("source", origin.source), ("terms", origin.licence), ("rows", f"{origin.rows:,}")]
    listed += [("file", f"{file.name} sha256 {file.sha256}") for file in origin.files]
    listed += [("supposed", text) for text in origin.assumed]
    width = shutil.get_terminal_size((80, 24)).columns
    for name, value in listed:
        lines = textwrap.wrap(value, max(width - 10, 20), break_on_hyphens=False) or [""]
        typer.echo("\n".join(f"{name if not place else '':<9} {line}" for place, line in enumerate(lines)))
    typer.echo(f"{'class':<24} {'share':>6} {'pieces':>8} {'run s':>9}   (means)")
    for entry in found.classes:
        typer.echo(f"{entry.name:<24} {entry.share:>6.1%} {entry.pieces.mean():>8.2f} {entry.run_s.mean():>9.4g}")


@app.command("fit")
def fit_command(
    file: TraceArgument,
    out: Annotated[Path, typer.Option("--out", help="The workload file to write.")],
    name: Annotated[str | None, typer.Option("--name", help="The file's name where left out.")] = None,
    format: FormatOption = None,
    machines: Annotated[Path | None, typer.Option("--machines", help="Its table of machines.")] = None,
    machine: Annotated[
        str | None,
        typer.Option("--machine", help="What a machine has where the trace names none, such as cpu=64,gpu=8."),
    ] = None,
    load: Annotated[float, typer.Option("--load", help="The mean load of such machines.")] = 0.7,
    licence: Annotated[str, typer.Option("--terms", help="The terms of the trace, to be kept with the fit.")] = "",
    overwrite: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Fit a workload to a trace and write it as a small file: shares and quantiles, none of its rows."""
    from berth.about import VERSION
    from berth.errors import InvalidInput
    from berth.traces.fitting.fit import fit
    from berth.traces.fitting.workload import Provenance
    from berth.traces.formats import open_trace

    shape = _amounts(machine)
    if out.exists() and not overwrite:
        raise InvalidInput("a new name, or --force", found="a file that is there", file=out)
    if not out.parent.is_dir():
        raise InvalidInput("a directory to write to", found="none there", file=out.parent)
    reading = open_trace(file, format, machines=machines)
    trace = reading.trace()
    for reason, count in reading.report.skipped.items():
        typer.echo(f"berth: left out: {reason} ({count:,}), first {reading.report.examples[reason][0]}", err=True)
    origin = Provenance(source=file.name, licence=licence, berth=VERSION)
    found = fit(trace, name or out.stem, provenance=origin, machine=shape, load=load)
    found.save(out)
    typer.echo(f"{out}: {found.provenance.rows:,} jobs, {len(found.classes)} classes, {out.stat().st_size:,} bytes")


@app.command("generate")
def generate_command(
    workload: WorkloadArgument,
    out: Annotated[Path, typer.Argument(help="A CSV or Parquet file for the jobs; machines go beside it.")],
    jobs: Annotated[int | None, typer.Option("--jobs", min=0, help="How many jobs.")] = None,
    hours: Annotated[float | None, typer.Option("--hours", min=0, help="Or those of so many hours.")] = None,
    load: Annotated[float | None, typer.Option("--load", help="Mean share of the scarcest resource taken.")] = None,
    machines: Annotated[int | None, typer.Option("--machines", min=1, help="How many machines.")] = None,
    seed: SeedOption = 0,
    overwrite: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> None:
    """Write jobs of a workload, in the format that berth reads itself."""
    from berth.traces.fitting.generate import generate
    from berth.traces.fitting.workload import load_workload
    from berth.traces.formats.generic import write_trace

    given = jobs if jobs is not None or hours is not None else 10_000
    trace = generate(load_workload(workload), jobs=given, hours=hours, load=load, machines=machines, seed=seed)
    files = write_trace(trace, out, overwrite=overwrite)
    number = int(trace.machines["count"].sum())
    typer.echo(f"{', '.join(map(str, files))}: {len(trace):,} jobs on {number:,} machines{_drawn_load(trace)}")


@app.command("compare")
def compare_command(
    file: TraceArgument,
    workload: Annotated[
        str | None, typer.Argument(help="Name of a workload, or a workload file; a fit of the trace where left out.")
    ] = None,
    format: FormatOption = None,
    machines: Annotated[Path | None, typer.Option("--machines", help="Its table of machines.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw distribution functions into this image.")] = None,
    seed: SeedOption = 0,
    output: OutputOption = Output.table,
) -> None:
    """How close a fit is to a trace: Kolmogorov–Smirnov statistics and Wasserstein distances, marginal by marginal."""
    from berth.traces.fitting.closeness import compared, held_out, plot_closeness
    from berth.traces.fitting.fit import fit
    from berth.traces.fitting.workload import load_workload
    from berth.traces.formats import load_trace

    trace = load_trace(file, format, machines=machines)
    found = fit(trace, file.stem) if workload is None else load_workload(workload)
    made, rows = compared(trace, found, seed)
    forecast, halves = held_out(trace, seed)
    if plot is not None:
        plot_closeness(trace, made, plot)
    if output is Output.json:
        named = {"fit": rows, "fit_of_first_half_against_second": forecast, "first_half_against_second": halves}
        print_json({name: [vars(row) for row in listed] for name, listed in named.items()})
        return
    _print(rows, forecast, halves)
    if plot is not None:
        typer.echo(f"Plot: {plot}")


def _drawn_load(trace: Trace) -> str:
    """What load came out, in words: with heavy tails not quite what was asked for."""
    from berth.families.placement.trace_world import offered

    share = offered(trace)
    return "" if share is None else f", offered load {share:.3g}"


def _amounts(text: str | None) -> dict[str, float] | None:
    from berth.errors import InvalidInput

    if text is None:
        return None
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals or not found[name.strip()] > 0:
            raise InvalidInput("resources and amounts > 0, such as cpu=64,gpu=8", value=text, key="--machine")
    return found


def _summary(workload: Workload) -> dict[str, object]:
    from berth.traces.fitting.generate import job_rate, offered_load

    return {
        "name": workload.name,
        "title": workload.title,
        "provenance": workload.provenance.model_dump(mode="json"),
        "resources": [entry.model_dump(mode="json") for entry in workload.resources],
        "machines": sum(machine.count for machine in workload.machines),
        "jobs_per_hour": 3600 * job_rate(workload),
        "load": dict(zip([entry.name for entry in workload.resources], offered_load(workload).tolist(), strict=True)),
        "classes": [
            {"name": e.name, "share": e.share, "mean_pieces": e.pieces.mean(), "mean_run_s": e.run_s.mean()}
            for e in workload.classes
        ],
    }


def _print(rows: list[Closeness], forecast: list[Closeness], halves: list[Closeness]) -> None:
    """The table: the fit, and how far the trace is from itself."""
    typer.echo(f"{'':<22} {'fit and trace':^22} {'fit of 1st half, 2nd':>21} {'1st, 2nd half':>14}")
    head = f"{'marginal':<22} {'KS':>5} {'p':>8} {'apart':>7}"
    typer.echo(head + f" {'KS':>12} {'apart':>8} {'KS':>7} {'apart':>6}")
    others = {row.name: (row, half) for row, half in zip(forecast, halves, strict=False)}
    for row in rows:
        chance = "" if row.p is None else f"{row.p:.2g}"
        line = f"{row.name:<22} {row.ks:>5.3f} {chance:>8} {row.distance:>7.3f}"
        if row.name in others:
            one, other = others[row.name]
            line += f" {one.ks:>12.3f} {one.distance:>8.3f} {other.ks:>7.3f} {other.distance:>6.3f}"
        typer.echo(line)
    least = min(min(row.sizes) for row in rows)
    typer.echo("Apart: Wasserstein distance of natural logarithms (0.1: about 10 %); of hours of the day in hours.")
    if least > 10_000:
        typer.echo(f"With {least:,} jobs and more, p says little: it is small for differences that matter to nobody.")

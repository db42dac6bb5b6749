"""`berth workload`: workloads fitted to traces. Thin, and nothing heavy is imported before a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.common import Output, OutputOption, print_json

if TYPE_CHECKING:
    from berth.traces.closeness import Closeness
    from berth.traces.workload import Workload

__all__ = ["app"]

app = typer.Typer(help="Workloads fitted to public traces, or to your own.", rich_markup_mode=None)

FormatOption = Annotated[str | None, typer.Option("--format", help="Format of the trace, where it is not recognised.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Which draw.")]
TraceArgument = Annotated[Path, typer.Argument(help="A trace in any format that berth reads.")]
WorkloadArgument = Annotated[str, typer.Argument(help="Name of a workload, or a workload file.")]


@app.command("list")
def list_command(output: OutputOption = Output.table) -> None:
    """The workloads that come with berth, and where they come from."""
    from berth.traces.generate import job_rate, offered_load
    from berth.traces.workload import load_workload, workload_names

    found = [load_workload(name) for name in workload_names()]
    if output is Output.json:
        print_json([_summary(workload) for workload in found])
        return
    typer.echo(f"{'name':<16} {'machines':>8} {'jobs/h':>8} {'load':>5}  title")
    for workload in found:
        machines = sum(machine.count for machine in workload.machines)
        rate, load = 3600 * job_rate(workload), float(offered_load(workload).max())
        typer.echo(f"{workload.name:<16} {machines:>8} {rate:>8.4g} {load:>5.2f}  {workload.title}")


@app.command("show")
def show_command(workload: WorkloadArgument, output: OutputOption = Output.table) -> None:
    """Where a workload comes from, what was supposed, and its classes of jobs."""
    from berth.traces.workload import load_workload

    found = load_workload(workload)
    if output is Output.json:
        print_json(_summary(found))
        return
    origin = found.provenance
    typer.echo(found.title)
    for name, value in (("source", origin.source), ("terms", origin.licence), ("rows", f"{origin.rows:,}")):
        typer.echo(f"{name:<9} {value}")
    for file in origin.files:
        typer.echo(f"{'file':<9} {file.name}  sha256 {file.sha256}")
    for text in origin.assumed:
        typer.echo(f"{'supposed':<9} {text}")
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
) -> None:
    """Fit a workload to a trace and write it as a small file: shares and quantiles, none of its rows."""
    import berth
    from berth.traces.fit import fit
    from berth.traces.formats import load_trace
    from berth.traces.workload import Provenance

    shape = _amounts(machine)
    trace = load_trace(file, format, machines=machines)
    origin = Provenance(source=file.name, licence=licence, berth=berth.__version__)
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
    from berth.traces.generate import generate
    from berth.traces.generic import write_trace
    from berth.traces.workload import load_workload

    given = jobs if jobs is not None or hours is not None else 10_000
    trace = generate(load_workload(workload), jobs=given, hours=hours, load=load, machines=machines, seed=seed)
    files = write_trace(trace, out, overwrite=overwrite)
    number = int(trace.machines["count"].sum())
    typer.echo(f"{', '.join(map(str, files))}: {len(trace):,} jobs on {number:,} machines")


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
    from berth.traces.closeness import compared, held_out, plot_closeness
    from berth.traces.fit import fit
    from berth.traces.formats import load_trace
    from berth.traces.workload import load_workload

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
    from berth.traces.generate import job_rate, offered_load

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
    typer.echo(f"{'':<24} {'fit and trace':^24} {'fit of 1st half, 2nd':^22} {'1st and 2nd half':^20}")
    head = f"{'marginal':<24} {'KS':>6} {'p':>8} {'distance':>9}"
    typer.echo(head + f" {'KS':>11} {'distance':>10} {'KS':>9} {'distance':>10}")
    others = {row.name: (row, half) for row, half in zip(forecast, halves, strict=False)}
    for row in rows:
        chance = "" if row.p is None else f"{row.p:.2g}"
        line = f"{row.name:<24} {row.ks:>6.3f} {chance:>8} {row.distance:>9.3f}"
        if row.name in others:
            one, other = others[row.name]
            line += f" {one.ks:>11.3f} {one.distance:>10.3f} {other.ks:>9.3f} {other.distance:>10.3f}"
        typer.echo(line)
    least = min(min(row.sizes) for row in rows)
    typer.echo("Distances are of natural logarithms (0.1: about 10 %); that of the hour of the day is in hours.")
    if least > 10_000:
        typer.echo(f"With {least:,} jobs and more, p says little: it is small for differences that matter to nobody.")

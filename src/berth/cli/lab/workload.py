"""`berth workload`: list, fit and generate workloads."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.answers import Output, OutputOption, answered, print_table
from berth.cli.common import PlaceArgument, file_to_write, write_any
from berth.cli.help import examples

if TYPE_CHECKING:
    from berth.traces.fitting.closeness import Closeness
    from berth.traces.fitting.workload import Workload
    from berth.traces.trace import Trace

__all__ = ["app"]

app = typer.Typer(
    help="Fit a workload to a trace, or generate jobs from one.",
    epilog=examples("berth workload list", "berth workload generate philly --out jobs.csv --jobs 1000"),
    rich_markup_mode=None,
)

MachinesOption = Annotated[Path | None, typer.Option("--machines", help="Table of machines, if not beside the trace.")]
FormatOption = Annotated[str | None, typer.Option("--format", help="Format of the trace, if not recognised.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed for the jobs that are drawn.")]
TraceArgument = Annotated[Path, typer.Argument(help="A trace in any format that berth reads.")]
WorkloadArgument = Annotated[str, typer.Argument(help="Name of a workload, or a workload file.")]


@app.command("list", epilog=examples("berth workload list"))
def list_command(output: OutputOption = Output.table) -> None:
    """List the workloads that come with berth."""
    from berth.traces.fitting.generate import job_rate, offered_load
    from berth.traces.fitting.workload import load_workload, workload_names

    found = [load_workload(name) for name in workload_names()]
    rows = [
        {
            "name": workload.name,
            "machines": str(sum(machine.count for machine in workload.machines)),
            "jobs/h": _short(3600 * job_rate(workload)),
            "load": f"{float(offered_load(workload).max()):.2g}",
            "title": workload.title,
        }
        for workload in found
    ]
    if not answered([_summary(workload) for workload in found], output, rows):
        print_table(rows, ("name", "machines", "jobs/h", "load", "title"))


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


@app.command("show", epilog=examples("berth workload show philly"))
def show_command(workload: WorkloadArgument, output: OutputOption = Output.table) -> None:
    """Print the source, assumptions and job classes of a workload."""
    from berth.traces.fitting.workload import load_workload

    found = load_workload(workload)
    summary = _summary(found)
    if answered(summary, output, summary["classes"]):
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


@app.command(
    "fit",
    epilog=examples(
        "berth workload fit jobs.csv --out my-cluster.json",
        "berth workload fit jobs.swf.gz --machine cpu=64 --load 0.8 --out my-cluster.json",
    ),
)
def fit_command(
    file: TraceArgument,
    out: Annotated[Path, typer.Option("--out", help="File to write: NAME.json.")],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the workload. Default: the name of the file.")
    ] = None,
    format: FormatOption = None,
    machines: MachinesOption = None,
    machine: Annotated[
        str | None,
        typer.Option("--machine", help="Resources of a machine if the trace names no machines, such as cpu=64,gpu=8."),
    ] = None,
    load: Annotated[float, typer.Option("--load", help="Offered load of the machines of --machine.")] = 0.7,
    licence: Annotated[str, typer.Option("--terms", help="Keep these terms of use of the trace with the fit.")] = "",
    overwrite: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Fit a workload to a trace.

    The file has shares and quantiles, and none of the rows of the trace.
    """
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


@app.command(
    "generate",
    epilog=examples(
        "berth workload generate philly --out jobs.csv --jobs 1000",
        "berth workload generate openb --out jobs.parquet --hours 24 --scale-to 200 --load 0.9",
    ),
)
def generate_command(
    workload: WorkloadArgument,
    place: PlaceArgument = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="File for the jobs: NAME.csv, NAME.csv.gz, NAME.parquet or NAME.swf; machines go beside it."
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=0, help="Generate this many jobs. Default: 10000.")] = None,
    hours: Annotated[float | None, typer.Option("--hours", min=0, help="Generate the jobs of this many hours.")] = None,
    load: Annotated[
        float | None, typer.Option("--load", help="Offered load: the mean share in use of the scarcest resource.")
    ] = None,
    machines: Annotated[
        int | None, typer.Option("--scale-to", min=1, help="Scale the workload to this many machines.")
    ] = None,
    seed: SeedOption = 0,
    overwrite: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Generate jobs of a workload, as a trace."""
    from berth.traces.fitting.generate import generate
    from berth.traces.fitting.workload import load_workload

    to = file_to_write(out, place)
    given = jobs if jobs is not None or hours is not None else 10_000
    trace = generate(load_workload(workload), jobs=given, hours=hours, load=load, machines=machines, seed=seed)
    files = write_any(trace, to, overwrite)
    number = int(trace.machines["count"].sum())
    typer.echo(f"{', '.join(map(str, files))}: {len(trace):,} jobs on {number:,} machines{_drawn_load(trace, load)}")


@app.command(
    "compare",
    epilog=examples("berth workload compare jobs.csv", "berth workload compare jobs.csv philly --plot closeness.png"),
)
def compare_command(
    file: TraceArgument,
    workload: Annotated[
        str | None, typer.Argument(help="Name of a workload, or a workload file. Default: a fit of the trace.")
    ] = None,
    format: FormatOption = None,
    machines: MachinesOption = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Plot the distribution functions into this file.")] = None,
    seed: SeedOption = 0,
    output: OutputOption = Output.table,
) -> None:
    """Measure how close a workload is to a trace.

    The table has a Kolmogorov–Smirnov statistic and a Wasserstein distance for each marginal distribution. A second
    one compares the estimates of users. The last line names what is far from the trace, if anything is.
    """
    from berth.traces.fitting.closeness import compared, estimate_facts, held_out, misfits, plot_closeness
    from berth.traces.fitting.fit import fit
    from berth.traces.fitting.workload import load_workload
    from berth.traces.formats import load_trace

    trace = load_trace(file, format, machines=machines)
    found = fit(trace, file.stem) if workload is None else load_workload(workload)
    made, rows = compared(trace, found, seed)
    forecast, halves = held_out(trace, seed)
    if plot is not None:
        plot_closeness(trace, made, plot)
    named = {"fit": rows, "fit_of_first_half_against_second": forecast, "first_half_against_second": halves}
    compared_rows = {name: [vars(row) for row in listed] for name, listed in named.items()}
    facts = {"trace": estimate_facts(trace), "fit": estimate_facts(made)}
    poor = misfits(rows, halves, facts["trace"], facts["fit"])
    answer = {**compared_rows, "estimates": facts, "poor": poor}
    flat = [{"compared": name, **row} for name, listed in compared_rows.items() for row in listed]
    if answered(answer, output, flat):
        return
    _print(rows, forecast, halves)
    _print_estimates(facts["trace"], facts["fit"])
    typer.echo(f"Poor fit. {'; '.join(poor)}." if poor else "No marginal is far from the trace.")
    if plot is not None:
        typer.echo(f"Plot: {plot}")


def _drawn_load(trace: Trace, asked: float | None) -> str:
    """The offered load in words, and why it differs from the requested one or says little."""
    from berth.traces.load import TOLERANCE, offered, uneven

    share = offered(trace)
    if share is None:
        return "" if asked is None else f"; too few jobs for an offered load of {asked:g}"
    missed = asked is not None and abs(share / asked - 1) > TOLERANCE
    wanted = f", not {asked:g}: no arrival rate comes nearer" if missed else ""
    reason = uneven(trace)
    return f", offered load {share:.3g}{wanted}" + (f" ({reason})" if reason else "")


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


def _summary(workload: Workload) -> dict[str, Any]:
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


def _print_estimates(real: dict[str, float] | None, made: dict[str, float] | None) -> None:
    if real is None or made is None:
        return
    typer.echo(f"{'estimates':<28} {'trace':>10} {'fit':>10}")
    for name, truth in real.items():
        title = name.removesuffix("_s").replace("_", " ") + (", s" if name.endswith("_s") else "")
        shown = [f"{v:,.0f}" if v >= 1 and "share" not in name else f"{v:.3f}" for v in (truth, made[name])]
        typer.echo(f"{title:<28} {shown[0]:>10} {shown[1]:>10}")

"""`berth replay`: simulate a trace under other policies."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.answers import ResultOption, ResultOutput, answered, terminal
from berth.cli.common import QuietOption, complete_live_policy, progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["replay_command"]

FIRST_SECONDS = 2.0


def replay_command(
    file: Annotated[
        Path, typer.Argument(help="A trace: its main table, plain or gzip (formats: berth trace formats).")
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="Run this policy, such as easy, fcfs:backfill=any,fit=best or completion (repeat). "
            "Default: fcfs, sjf, easy and conservative; others where jobs share GPUs; that of the --cluster file.",
            autocompletion=complete_live_policy,
        ),
    ] = None,
    processors: Annotated[
        float | None,
        typer.Option(
            "--processors", help="Replay on one pool of this many processors, instead of the trace's machines."
        ),
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option("--resource", help="Resource of the pool: cpu, gpu, … Default: the first that jobs ask for."),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Tell policies the exact run times instead of the users' estimates.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End jobs when their estimate is over.")] = False,
    outages: Annotated[
        bool, typer.Option("--outages", help="Apply the outages of the trace; interrupted jobs start again.")
    ] = False,
    first: Annotated[
        int | None, typer.Option("--first", min=1, max=10**9, help="Replay only the first N jobs.")
    ] = None,
    load: Annotated[
        float | None,
        typer.Option("--load", help="Rescale inter-arrival times to this offered load, such as 0.9."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", help="Replay only jobs submitted from here: 30d after the first, or a date (1998-05-01)."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Replay only jobs submitted before: a time or date, as --since.")
    ] = None,
    warm_up: Annotated[
        str | None,
        typer.Option("--warm-up", help="Play the first jobs without counting them: 2d, or 5% of the jobs."),
    ] = None,
    cool_down: Annotated[
        str | None,
        typer.Option("--cool-down", help="Play the last jobs without counting them: 2d, or 5% of the jobs."),
    ] = None,
    windows: Annotated[
        int | None,
        typer.Option("--windows", min=1, help="Replay this many windows of the log, each on an empty cluster."),
    ] = None,
    window_jobs: Annotated[int | None, typer.Option("--window-jobs", min=1, help="Length of a window in jobs.")] = None,
    window_length: Annotated[
        str | None, typer.Option("--window-length", help="Length of a window in time, such as 7d.")
    ] = None,
    window_start: Annotated[
        list[str] | None,
        typer.Option(
            "--window-start",
            help="Start a window at this job (from 0) or time (repeat). Default: at random, without overlap.",
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            min=1,
            help="Replay this many workloads drawn from a fit: of the trace, or of a workload given instead of it.",
        ),
    ] = None,
    slowdown_bound: Annotated[
        float | None,
        typer.Option("--slowdown-bound", help="Threshold of bounded slowdowns in seconds. Default: 10."),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            help="Size of a job in a log of the Standard Workload Format: requested, allocated, or larger of the two. "
            "Default: requested.",
        ),
    ] = None,
    zero_run_times: Annotated[
        bool, typer.Option("--zero-run-times", help="Play jobs of zero run time. Default: leave them out.")
    ] = False,
    types: Annotated[
        str | None,
        typer.Option(
            "--types",
            help="Columns that tell the type of a job: user, group, kind, script, needs or size, joined by +. "
            "Policies learn by type.",
        ),
    ] = None,
    speeds: Annotated[
        str | None,
        typer.Option(
            "--speeds", help="True speeds by type of job and class of machine: gavel, or a YAML or CSV file of them."
        ),
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option(
            "--cluster", help="Configuration of a service: play the log under its queues, and on its servers if any."
        ),
    ] = None,
    whole_gpus: Annotated[
        bool, typer.Option("--whole-gpus", help="Give each job that shares a GPU a whole one.")
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            help="Compare the other policies with this one, by windows or replicas. Default: the first.",
            autocompletion=complete_live_policy,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed for randomised policies, window starts and replicas.")
    ] = 0,
    format: Annotated[
        str | None, typer.Option("--format", help="Format of the trace, if not recognised (see: berth trace formats).")
    ] = None,
    machines: Annotated[
        Path | None,
        typer.Option("--machines", help="Table of machines, or a cluster file (YAML)."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a trace with rows that cannot be read.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Directory for tables, plots and manifest.")] = None,
    output: ResultOption = ResultOutput.table,
    quiet: QuietOption = False,
) -> None:
    """Simulate a trace under other policies.

    The table has waits, slowdowns, utilisation and fairness. With several windows or replicas, a second table has the
    differences between policies with confidence intervals. With -o json, one policy gives an object and several give
    a list of objects; left_out counts the jobs that could not be played or were repaired, by reason.
    """
    from berth.lab.replay import Measurement, ReplaySetting, replay

    measure = Measurement(
        since,
        until,
        warm_up,
        cool_down,
        windows,
        window_jobs,
        window_length,
        tuple(window_start or ()),
        replicas,
        slowdown_bound,
    )
    setting = ReplaySetting(
        processors,
        resource,
        exact,
        stop,
        outages,
        first,
        load,
        seed,
        size,
        zero_run_times,
        types,
        speeds,
        None if cluster is None else str(cluster),
        whole_gpus,
    )
    with progress(quiet, _moments, "moments") as show:
        result = replay(
            file,
            policy,
            setting,
            measure,
            baseline=baseline,
            format=format,
            machines=machines,
            strict=strict,
            out=out,
            progress=show,
        )
    one = len(result.rows) == 1 and len(policy or ()) == 1
    rows = [{**row, "left_out": dict(result.left_out)} for row in result.rows]
    if answered(rows[0] if one else rows, output):
        for name, reason in result.refused.items():
            typer.echo(f"berth: not here: {name}: {reason}", err=True)
        if result.unreadable:
            typer.echo(f"berth: lines were left out, the first: {result.unreadable}", err=True)
        return
    from berth.lab.replay.results import print_replay

    print_replay(result, terminal(output))
    if out is not None:
        typer.echo(f"\nReport: {(out / 'report.html').resolve()}", err=output == ResultOutput.latex)


def _moments(bar: Bar) -> Callable[[str, int, int], None]:
    """Show which policy runs and how far it is; short replays show nothing."""
    tasks: dict[str, Any] = {}
    due = time.monotonic() + FIRST_SECONDS
    told: set[str] = set()

    def show(policy: str, done: int, total: int) -> None:
        if policy not in tasks:
            tasks[policy] = bar.add_task(policy, total=total)
        if policy not in told and not bar.console.is_terminal and time.monotonic() >= due:
            told.add(policy)
            bar.console.print(f"berth: {policy}: {done:,} of {total:,} moments")
        if done % 64 == 0 or done == total:
            bar.update(tasks[policy], completed=done)

    return show

"""`berth replay`: simulate a trace under other policies."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.answers import Output, OutputOption, answered, terminal
from berth.cli.common import QuietOption, complete_policy, progress

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
            help="Run this policy of the placement family, such as easy or fcfs:backfill=any,fit=best (repeat). "
            "Default: fcfs, sjf, easy and conservative; others where jobs share GPUs.",
            autocompletion=complete_policy,
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
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed for randomised policies.")] = 0,
    format: Annotated[
        str | None, typer.Option("--format", help="Format of the trace, if not recognised (see: berth trace formats).")
    ] = None,
    machines: Annotated[
        Path | None, typer.Option("--machines", help="Table of machines, if not beside the trace.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a trace with rows that cannot be read.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Directory for tables, plots and manifest.")] = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Simulate a trace under batch policies.

    The table has waits, slowdowns, utilisation and fairness. With -o json, one policy gives an object and several give
    a list of objects; left_out counts the jobs that could not be played or were repaired, by reason.
    """
    from berth.lab.replay import ReplaySetting, replay

    setting = ReplaySetting(processors, resource, exact, stop, outages, first, load, seed)
    with progress(quiet, _moments, "moments") as show:
        result = replay(file, policy, setting, format=format, machines=machines, strict=strict, out=out, progress=show)
    one = len(result.rows) == 1 and len(policy or ()) == 1
    rows = [{**row, "left_out": dict(result.left_out)} for row in result.rows]
    if answered(rows[0] if one else rows, output):
        for name, reason in result.refused.items():
            typer.echo(f"berth: not here: {name}: {reason}", err=True)
        if result.unreadable:
            typer.echo(f"berth: lines were left out, the first: {result.unreadable}", err=True)
        return
    from berth.lab.replay.results import print_replay

    print_replay(result, terminal())
    if out is not None:
        typer.echo(f"\nTables and pictures: {out.resolve()}")


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

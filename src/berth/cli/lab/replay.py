"""`berth replay`: play a trace again under other policies."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.common import Output, OutputOption, QuietOption, complete_policy, print_json, progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["replay_command"]

FIRST_SECONDS = 2.0


def replay_command(
    file: Annotated[
        Path, typer.Argument(help="The trace: its main table, plain or gzip, in any format that is known.")
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="A policy of the placement family, such as easy or fcfs:backfill=any,fit=best (repeat). Default: the "
            "classic ones.",
            autocompletion=complete_policy,
        ),
    ] = None,
    processors: Annotated[
        float | None,
        typer.Option("--processors", help="Play it on one pool of so many, instead of on the trace's machines."),
    ] = None,
    resource: Annotated[
        str | None, typer.Option("--resource", help="What the pool has: cpu, gpu, … Default: what jobs ask for first.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Policies know how long jobs run, instead of what users said.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Jobs are ended when their estimate is over.")] = False,
    outages: Annotated[
        bool, typer.Option("--outages", help="Machines are away when the trace says so; their jobs start again.")
    ] = False,
    first: Annotated[int | None, typer.Option("--first", min=1, max=10**9, help="Only the first so many jobs.")] = None,
    load: Annotated[
        float | None,
        typer.Option("--load", help="Draw submissions together or apart until the offered load is this, such as 0.9."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of policies that draw.")] = 0,
    format: Annotated[
        str | None, typer.Option("--format", help="Of the trace, where it is not recognised (berth trace formats).")
    ] = None,
    machines: Annotated[
        Path | None, typer.Option("--machines", help="Its table of machines, where that does not lie beside it.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a trace with lines that cannot be read.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Directory for tables, pictures and manifest.")] = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Play a trace under batch policies: waits, slowdowns, utilisation, fairness.

    With -o json and one policy the answer is an object, with several a list of such objects.
    """
    from berth.lab.replay import ReplaySetting, replay

    setting = ReplaySetting(processors, resource, exact, stop, outages, first, load, seed)
    with progress(quiet, _moments) as show:
        result = replay(file, policy, setting, format=format, machines=machines, strict=strict, out=out, progress=show)
    if output is Output.json:
        print_json(result.rows[0] if len(result.rows) == 1 and len(policy or ()) == 1 else result.rows)
        for name, reason in result.refused.items():
            typer.echo(f"berth: not here: {name}: {reason}", err=True)
        if result.unreadable:
            typer.echo(f"berth: lines were left out, the first: {result.unreadable}", err=True)
        return
    from rich.console import Console

    from berth.lab.replay.results import print_replay

    print_replay(result, Console(highlight=False))
    if out is not None:
        typer.echo(f"\nTables and pictures: {out.resolve()}")


def _moments(bar: Bar) -> Callable[[str, int, int], None]:
    """What shows which policy is being played and how far it is; short replays show nothing."""
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

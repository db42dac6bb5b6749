"""`berth rehearse`: try policies on a simulated copy of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.answers import Output, OutputOption, answered, terminal
from berth.cli.common import QuietOption, UrlOption, WorkersOption, cell_progress, complete_live_policy

if TYPE_CHECKING:
    from berth.live.core.jobs import Server
    from berth.live.twin.rehearse import Rehearsal, Row
    from berth.statistics import Estimate

__all__ = ["rehearse_command", "table_of"]

KIND = "berth rehearsal"


def rehearse_command(
    file: Annotated[Path, typer.Argument(help="A rehearsal file: servers, a stream of jobs, policies.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="Rehearse this policy instead of those of the file (repeat).",
            autocompletion=complete_live_policy,
        ),
    ] = None,
    service: Annotated[
        bool, typer.Option("--service", help="Use the servers of a running service instead of those of the file.")
    ] = False,
    url: UrlOption = None,
    cluster: Annotated[
        Path | None,
        typer.Option(
            "--cluster", help="Configuration of a service: jobs wait in its queues, and run on its servers if any."
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Run seeds 0 to N-1 instead of those of the file.")
    ] = None,
    workers: WorkersOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Directory for results; finished runs are not repeated.")
    ] = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Rehearse policies on a simulated copy of a cluster.

    The scheduler of the service runs in virtual time, beside a plain one. All schedulers get the same jobs at the same
    times. Ratios are taken within each seed.
    """
    from berth.lab.rehearsal import flat, played, write_rehearsal
    from berth.lab.replay.cluster_file import read_cluster_file
    from berth.lab.run.runner import worker_count
    from berth.lab.run.store import opened, versions
    from berth.live.twin.rehearse import rows_of
    from berth.live.twin.settings import read_rehearsal

    settings = read_rehearsal(file)
    if service:
        settings = settings.on(_servers(url))
    changes = {key: value for key, value in (("policies", policy), ("seeds", seeds)) if value is not None}
    file_of_service = None if cluster is None else read_cluster_file(cluster)
    if file_of_service is not None:
        settings = settings.on(there) if (there := file_of_service.there()) else settings
        changes = {**file_of_service.policies(), **changes}
    settings = settings.changed(**changes)
    plan, added = settings.plan(), {} if file_of_service is None else file_of_service.queues_as_written()
    if file_of_service is not None:
        plan = replace(plan, served=file_of_service.served())
    facts = {"rehearsal": settings.model_dump(mode="json"), "file": str(file), **added}
    with opened(out, KIND) as directory, cell_progress(quiet) as show:
        if directory is not None:
            directory.create({**facts, "versions": versions()})
        runs = played(plan, {**settings.played(), **added}, directory, worker_count(workers), show)
        rows = rows_of(plan, runs)
        if directory is not None:
            write_rehearsal(directory, plan, runs, rows, facts)
    if answered([row.as_dict() for row in rows], output, flat(rows)):
        return
    terminal().print(table_of(plan, rows))
    for row in rows:
        if row.refused:
            refused = f"{row.refused:,} decisions of {row.runner} were refused, and made by the fallback"
            typer.echo(f"berth: {refused}", err=True)
    if out is not None:
        typer.echo(f"\nTables and picture: {out.resolve()}")


def _servers(url: str | None) -> list[Server]:
    """The servers of a running service."""
    from berth.files.quantities import amounts
    from berth.live.client import Client, path
    from berth.live.core.jobs import Server

    return [
        Server(one["name"], amounts(one["capacity"]), one["labels"], one["speed"])
        for one in Client(url).get(path("servers"))
    ]


def table_of(plan: Rehearsal, rows: Sequence[Row]) -> Any:
    """The table of a rehearsal."""
    from berth.files.wording import counted
    from berth.lab.show.tables import as_table

    scale, unit = _unit(max(row.turnaround.mean for row in rows if row.turnaround))
    lines = [
        (
            row.runner,
            *(_mean(found, ".2f", scale) for found in (row.turnaround, row.wait, row.longest_wait)),
            _mean(row.servers, ".2f"),
            _said(row.ratio, ".3f"),
            _said(row.share, ".0%"),
        )
        for row in rows
    ]
    heads = ("scheduler", "turnaround", "wait", "longest", "servers", f"/ {plan.plain}", "share")
    return as_table(heads, lines, title=f"Times in {unit}, {counted(len(plan.seeds), 'seed')}")


def _unit(seconds: float) -> tuple[float, str]:
    return (3600.0, "h") if seconds >= 7200 else (1.0, "s")


def _mean(found: Estimate | None, form: str, scale: float = 1.0) -> str:
    return "–" if found is None else f"{found.mean / scale:{form}}"


def _said(found: Estimate | None, form: str) -> str:
    if found is None:
        return "–"
    return f"{found.mean:{form}}" + ("" if found.half is None else f" ± {found.half:{form}}")

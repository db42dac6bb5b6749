"""`berth rehearse`: try policies on a simulated copy of a cluster."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.answers import Output, OutputOption, answered, terminal
from berth.cli.common import QuietOption, UrlOption, WorkersOption, complete_live_policy, progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from berth.lab.run.store import ResultDirectory
    from berth.live.core.jobs import Server
    from berth.live.twin.rehearse import Rehearsal, Row
    from berth.live.twin.runs import Run
    from berth.live.twin.streams import Gang
    from berth.statistics import Estimate

__all__ = ["played", "rehearse_command", "table_of"]

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
    from berth.lab.replay.cluster_file import read_cluster_file
    from berth.lab.run.plans import worker_count
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
    with opened(out, KIND) as directory, progress(quiet, _runs, "runs") as show:
        if directory is not None:
            directory.create({**facts, "versions": versions()})
        runs = played(plan, {**settings.played(), **added}, directory, worker_count(workers), show)
        rows = rows_of(plan, runs)
        if directory is not None:
            _write(directory, plan, runs, rows, facts)
    if answered([row.as_dict() for row in rows], output, _flat(rows)):
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


def _key(settings: Any, runner: str, seed: int, gangs: Sequence[Gang]) -> str:
    """The name of a run: a hash of all that its numbers depend on; the file of a trace may have other jobs now."""
    from berth.lab.run.cells import code_hash

    jobs = hashlib.sha256(repr([*gangs]).encode()).hexdigest()
    parts = [settings, runner, seed, jobs, code_hash("live")]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def played(
    plan: Rehearsal,
    settings: Any,
    directory: ResultDirectory | None,
    workers: int,
    show: Callable[[int, int], None] | None = None,
) -> list[Run]:
    """All runs of a rehearsal; those that the directory has are read, new ones are kept there as soon as they end."""
    import polars as pl

    from berth.live.twin.rehearse import rehearse
    from berth.live.twin.runs import Run

    keys = {}
    for seed in plan.seeds if directory is not None else ():
        gangs = plan.stream.gangs(seed)
        keys.update({(str(one), seed): _key(settings, str(one), seed, gangs) for one in plan.all})
    kept = {}
    for name, key in keys.items():
        assert directory is not None
        path = directory.path / "cells" / f"{key}.parquet"
        if path.is_file():
            try:
                kept[name] = Run.of(pl.read_parquet(path))
            except Exception:  # whatever a damaged file makes the reader raise, the run counts as not there
                continue
    count = len(plan.all) * len(plan.seeds), len(kept)

    def done(made: Run) -> None:
        if directory is not None:
            directory.write_table(f"cells/{keys[made.runner, made.seed]}.parquet", made.frame())
        if show is not None:
            show(*count)

    return rehearse(plan, workers=workers, kept=kept, done=done)


def _flat(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows for a table file: an estimate becomes three columns."""
    return [
        {key: value if not isinstance(value, dict) else value["mean"] for key, value in row.as_dict().items()}
        | {
            f"{key}_{end}": value[end]
            for key, value in row.as_dict().items()
            if isinstance(value, dict)
            for end in ("low", "high")
        }
        for row in rows
    ]


def _write(directory: ResultDirectory, plan: Rehearsal, runs: Sequence[Run], rows: Sequence[Row], facts: Any) -> None:
    import polars as pl

    from berth.lab.run.store import now, versions

    about = {"settings": json.dumps(facts, sort_keys=True), "berth": versions()["berth"]}
    flat = _flat(rows)
    told = {name: pl.lit(text) for name, text in about.items()}
    directory.write_table("jobs.parquet", pl.concat(made.frame() for made in runs).with_columns(**told))
    directory.write_table("summary.parquet", pl.DataFrame(flat, infer_schema_length=None).with_columns(**told))
    directory.write("plots/turnaround.png", lambda path: path.write_bytes(_picture(plan, runs)))
    directory.write_json("manifest.json", directory.described({**facts, "versions": versions()}, finished=now()))


def _picture(plan: Rehearsal, runs: Sequence[Run]) -> bytes:
    """Turnaround relative to the plain scheduler as jobs come: a learner gets better."""
    import numpy as np

    from berth.lab.show.canvas import COLOURS, finish, new_figure, to_png

    figure, axes = new_figure(7.0)
    axis = axes[0][0]
    by = {str(one): np.mean([made.turnaround for made in runs if made.runner == str(one)], axis=0) for one in plan.all}
    width = max(len(by[str(plan.plain)]) // 12, 1)
    smooth = {name: np.convolve(values, np.ones(width) / width, "valid") for name, values in by.items()}
    for number, (name, values) in enumerate(smooth.items()):
        axis.plot(
            np.arange(width, width + len(values)),
            values / smooth[str(plan.plain)],
            color=COLOURS[number % 8],
            label=name,
        )
    axis.set(
        xlabel="jobs seen",
        ylabel=f"turnaround / {plan.plain}",
        title=f"Mean of {width} jobs and {len(plan.seeds)} seeds",
    )
    finish(figure, axis)
    return to_png(figure)


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


def _runs(bar: Bar) -> Callable[[int, int], None]:
    """Counts runs."""
    tasks: list[Any] = []

    def show(total: int, reused: int) -> None:
        if not tasks:
            tasks.append(bar.add_task("runs", total=total, completed=reused))
        bar.advance(tasks[0])

    return show

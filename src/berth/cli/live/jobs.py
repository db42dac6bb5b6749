"""`berth jobs` and `berth job …`: jobs of a running service."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from berth.cli.answers import Output, OutputOption, WideOption, WideOutput, answered, print_table
from berth.cli.common import QueueOption, TeamOption, TypeOption, UrlOption
from berth.cli.help import examples
from berth.live.client import Client, Code, ServiceRefused, ServiceSilent, path

__all__ = ["job_app", "jobs_command"]

job_app = typer.Typer(
    help="Show, explain, cancel or wait for a job, or print its output.",
    epilog=examples("berth job explain train-1", "berth job cancel train-1"),
    rich_markup_mode=None,
)

MOST_LINES = 100_000
"""Lines of each task that `berth job logs` prints at most."""
ENDED = ("finished", "failed", "cancelled")
SHORTEST_LOOK, LONGEST_LOOK = 0.1, 2.0
"""Seconds between two polls of `berth job wait`."""
COLUMNS = ("id", "type", "phase", "user", "queue", "tasks", "submitted", "where")
WIDE = (*COLUMNS, "team", "priority", "attempt", "started", "ended", "resources", "reason")


class PhaseName(StrEnum):
    """The phase of a job."""

    waiting = "waiting"
    starting = "starting"
    running = "running"
    ending = "ending"
    finished = "finished"
    failed = "failed"
    cancelled = "cancelled"


def _row(job: dict[str, Any]) -> dict[str, str]:
    tasks = sum(role["count"] for role in job["roles"].values())
    where = ",".join(dict.fromkeys(place["server"] for place in job["places"]))
    resources = ";".join(
        f"{name}:{','.join(f'{k}={v}' for k, v in role['resources'].items())}" for name, role in job["roles"].items()
    )
    return {
        **{key: str(job[key] if job[key] is not None else "") for key in job},
        "tasks": str(tasks),
        "where": where,
        "resources": resources,
    }


def jobs_command(
    phase: Annotated[list[PhaseName] | None, typer.Option("--phase", help="List jobs in this phase (repeat).")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="List jobs of this user.")] = None,
    team: TeamOption = None,
    queue: QueueOption = None,
    type: TypeOption = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="List ended jobs too.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="List at most this many jobs.")] = 100,
    url: UrlOption = None,
    output: WideOption = WideOutput.table,
) -> None:
    """List jobs, the latest first.

    Without --all and --phase, it lists jobs that have not ended.
    """
    alive = (PhaseName.waiting, PhaseName.starting, PhaseName.running, PhaseName.ending)
    phases = [name.value for name in (phase or (() if everything else alive))]
    client, after = Client(url), None
    listed: list[dict[str, Any]] = []
    while len(listed) < limit:
        page = client.get(
            path("jobs"),
            phase=phases,
            user=user,
            team=team,
            queue=queue,
            type=type,
            after=after,
            limit=min(limit - len(listed), 1000),
        )
        listed += page["jobs"]
        after = page["after"]
        if after is None:
            break
    rows = [_row(job) for job in listed]
    if answered(listed, output, _cut(rows)):
        return
    if not listed:
        typer.echo("no jobs")
        return
    print_table(rows, WIDE if output is WideOutput.wide else COLUMNS)


def _cut(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows of the CSV of jobs: the columns of the wide table."""
    return [{column: row.get(column, "") for column in WIDE} for row in rows]


JobArgument = Annotated[str, typer.Argument(help="Id of a job.")]
JobsArgument = Annotated[list[str], typer.Argument(metavar="JOB", help="Ids of jobs.")]


@job_app.command("show", epilog=examples("berth job show train-1", "berth job show train-1 -o json"))
def show(job: JobArgument, url: UrlOption = None, output: OutputOption = Output.table) -> None:
    """Print everything about a job, as YAML by default."""
    record = Client(url).get(path("jobs", job))
    answered(record, Output.yaml if output is Output.table else output)


@job_app.command("cancel", epilog=examples("berth job cancel train-1 train-2"))
def cancel(
    jobs: JobsArgument,
    url: UrlOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Cancel jobs.

    Exit code: 0 all of them; else that of the first that was refused, such as 5 for a job that does not exist.
    """
    client = Client(url)
    cancelled, code = [], 0
    for job in jobs:
        try:
            cancelled.append(client.ask("DELETE", path("jobs", job), repeat=True))
        except (ServiceRefused, ServiceSilent) as error:  # the others are to end nevertheless
            typer.echo(f"berth: error: {error}", err=True)
            code = code or error.code
    if not answered(cancelled, output, _cut([_row(job) for job in cancelled])):
        for ended in cancelled:
            typer.echo(f"{ended['id']} {ended['phase']}")
    if code:
        raise typer.Exit(code)


@job_app.command("wait", epilog=examples("berth job wait train-1 train-2 --timeout 2h"))
def wait(
    jobs: JobsArgument,
    timeout: Annotated[str | None, typer.Option("--timeout", help="Wait at most this long, such as 10m.")] = None,
    url: UrlOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Wait until jobs have ended.

    Exit code: 0 all of them finished; 8 one of them failed or was cancelled; 9 not all of them ended in time.
    """
    import time

    from berth.files.quantities import parse_duration

    client = Client(url)
    end_by = time.monotonic() + (parse_duration(timeout, "--timeout") if timeout is not None else float("inf"))
    ended: dict[str, dict[str, Any]] = {}
    pause = SHORTEST_LOOK
    while True:
        for job in jobs:
            if job not in ended:
                try:
                    record = client.get(path("jobs", job))
                except (ServiceRefused, ServiceSilent) as error:
                    if error.code != Code.not_now:
                        raise
                    break  # the service is in trouble: look again later
                if record["phase"] in ENDED:
                    ended[job] = record
        if len(ended) == len(set(jobs)) or time.monotonic() >= end_by:
            break
        time.sleep(min(pause, max(end_by - time.monotonic(), 0.0)))
        pause = min(1.5 * pause, LONGEST_LOOK)
    if not answered(list(ended.values()), output, _cut([_row(job) for job in ended.values()])):
        for record in ended.values():
            why = ": ".join(part for part in (record["reason"], record.get("last_output")) if part)
            typer.echo(f"{record['id']} {record['phase']}{f' ({why})' if why else ''}")
    if len(ended) < len(set(jobs)):
        left = [job for job in dict.fromkeys(jobs) if job not in ended]
        typer.echo(f"berth: not ended within {timeout}: {', '.join(left)}", err=True)
        raise typer.Exit(Code.not_in_time)
    if any(record["phase"] != "finished" for record in ended.values()):
        raise typer.Exit(Code.job_failed)


@job_app.command("logs", epilog=examples("berth job logs train-1", "berth job logs train-1 --task 3 --tail 20"))
def logs(
    job: JobArgument,
    task: Annotated[int | None, typer.Option("--task", min=0, help="Number of a task. Default: all tasks.")] = None,
    tail: Annotated[int, typer.Option("--tail", min=1, max=MOST_LINES, help="Last lines of each task.")] = 1000,
    url: UrlOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Print what a job wrote to its standard output and standard error.

    The lines of each task begin with its role and rank if there are several. Only the last attempt is shown.

    Exit code: 0 printed; 4 not the caller's job; 5 no such job, or no logs of it; 7 the cluster does not answer now.
    """
    answer = Client(url).get(path("jobs", job, "logs"), task=task, tail=tail)
    if not answered(answer, output):
        typer.echo(answer["text"], nl=False)


@job_app.command("explain", epilog=examples("berth job explain train-1"))
def explain(job: JobArgument, url: UrlOption = None, output: OutputOption = Output.table) -> None:
    """Explain why a job waits.

    The answer has everything in its way, the smallest change that would help, and when it may start.
    """
    explanation = Client(url).get(path("jobs", job, "explain"))
    if not answered(explanation, output):
        typer.echo(explanation["text"])

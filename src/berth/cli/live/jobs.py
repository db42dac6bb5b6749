"""`berth submit`, `berth jobs`, `berth job …`, `berth plan`: jobs of a running service."""

from __future__ import annotations

import inspect
import os
import sys
import uuid
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from berth.cli.live.common import Format, FormatOption, UrlOption, shown, table
from berth.errors import BerthError, InvalidInput
from berth.live.client import Client, Code, ServiceRefused, ServiceSilent, path

__all__ = ["job_app", "jobs_command", "plan_command", "submit_command"]

job_app = typer.Typer(help="One job: how it stands, why it waits, and its end.", rich_markup_mode=None)

MOST = 16 * 2**20
"""Bytes of a file of jobs."""
ENDED = ("finished", "failed", "cancelled")
SHORTEST_LOOK, LONGEST_LOOK = 0.1, 2.0
"""Seconds between two looks at jobs that are waited for."""
COLUMNS = ("id", "type", "phase", "user", "queue", "tasks", "submitted", "where")
WIDE = (*COLUMNS, "team", "priority", "attempt", "started", "ended", "resources", "reason")


class NotSubmitted(BerthError):
    """The service did not accept jobs, or did not say so."""

    code = Code.not_now


class PhaseName(StrEnum):
    """How a job stands."""

    waiting = "waiting"
    starting = "starting"
    running = "running"
    ending = "ending"
    finished = "finished"
    failed = "failed"
    cancelled = "cancelled"


Command = TypeVar("Command", bound=Callable[..., None])
KEYWORD = inspect.Parameter.KEYWORD_ONLY
FileOption = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="A YAML manifest, or a script with #BERTH lines; - reads standard input."),
]
TypeOption = Annotated[str | None, typer.Option("--type", help="Jobs of one type are expected to run alike.")]
QueueOption = Annotated[str | None, typer.Option("--queue", "-q", help="Where it waits.")]
TeamOption = Annotated[str | None, typer.Option("--team", help="Whose share it counts against.")]
SUBMIT_OPTIONS: dict[str, Any] = {
    "name": Annotated[str | None, typer.Option("--name", "-J", help="Id of the job. Default: a new one.")],
    "type": TypeOption,
    "tasks": Annotated[int | None, typer.Option("--tasks", "-n", min=1, help="Tasks that start together.")],
    "minimum": Annotated[int | None, typer.Option("--minimum", min=1, help="Tasks that are enough to start.")],
    "per_server": Annotated[
        int | None, typer.Option("--per-server", min=1, help="The most tasks on one server; as many as fit by default.")
    ],
    "resources": Annotated[
        str | None, typer.Option("--resources", "-r", help="Of each task, such as cpu=4,memory=16Gi,gpu=1.")
    ],
    "queue": QueueOption,
    "team": TeamOption,
    "priority": Annotated[int | None, typer.Option("--priority", help="Higher comes first.")],
    "needs": Annotated[list[str] | None, typer.Option("--needs", help="A label of its servers, label=value (repeat).")],
    "work": Annotated[str | None, typer.Option("--work", help="How long it runs at speed 1, such as 2h.")],
    "estimate": Annotated[str | None, typer.Option("--estimate", help="How long it will run, as far as you know.")],
    "limit": Annotated[
        str | None, typer.Option("--time", "-t", help="Time limit, such as 2h: the job is ended when it runs longer.")
    ],
    "retries": Annotated[int | None, typer.Option("--retries", min=0, help="Started again so often after it failed.")],
    "workdir": Annotated[
        str | None,
        typer.Option("--chdir", "-D", metavar="DIRECTORY", help="Where it runs; by default where you are now."),
    ],
}
"""Options of `berth submit`, by the key of a job's manifest that each stands for."""
PLAN_OPTIONS = {key: option for key, option in SUBMIT_OPTIONS.items() if key not in ("name", "retries", "workdir")}
CommandArgument = Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", help="What it runs.")]


def _with_options(options: Mapping[str, Any]) -> Callable[[Command], Command]:
    """Give a command these options, after `file`; it takes them as `**job`."""

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        given = [inspect.Parameter(key, KEYWORD, default=None, annotation=options[key]) for key in options]
        own = [parameter.replace(kind=KEYWORD) for name, parameter in signature.parameters.items() if name != "job"]
        place = [parameter.name for parameter in own].index("file") + 1
        command.__signature__ = signature.replace(parameters=[*own[:place], *given, *own[place:]])  # type: ignore[attr-defined]
        return command

    return decorate


def _read(file: Path) -> list[dict[str, Any]]:
    from berth.live.core.specs import read_manifests, read_script

    name = "standard input" if str(file) == "-" else str(file)
    try:
        raw = sys.stdin.buffer.read(MOST + 1) if str(file) == "-" else _bytes(file)
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput("text in UTF-8", found=f"byte {error.start}", file=name) from None
    except OSError as error:
        raise InvalidInput("a file that can be read", found=str(error.strerror), file=name) from None
    if len(raw) > MOST:
        raise InvalidInput(f"at most {MOST // 2**20} MiB", found="more", file=name)
    script = text.startswith("#!") or _has_options(text)
    specs = [read_script(text, name)] if script else read_manifests(text, name)
    return [spec.model_dump(exclude_defaults=True) for spec in specs]


def _bytes(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(MOST + 1)


def _has_options(text: str) -> bool:
    return any(line.startswith("#BERTH") for line in text.splitlines()[:50])


def _look_at_command(command: list[str]) -> None:
    """A script that was meant to be read, and would be taken for a command, is refused or hinted at."""
    if len(command) != 1:
        return
    name = command[0]
    try:
        text = _bytes(Path(name)).decode("utf-8", "replace") if Path(name).is_file() else ""
    except OSError:
        return
    if _has_options(text):
        raise InvalidInput(f"-f {name} to submit the script (sh {name} to ignore its #BERTH lines)", found=name)
    if text.startswith("#!"):
        typer.echo(f"berth: hint: {name} is taken for a command; to submit the script itself: -f {name}", err=True)


def _specs(file: Path | None, changes: dict[str, Any], command: list[str] | None) -> list[dict[str, Any]]:
    """Jobs of a file, or of the options alone; options stand above what the file says."""
    from berth.files.wording import plain_words
    from berth.live.core.specs import JobSpec

    if file is None and command:
        _look_at_command(command)
    specs = [{}] if file is None else _read(file)
    said = {key: value for key, value in changes.items() if value is not None}
    if file is None and not command and not said:
        raise InvalidInput("a COMMAND, options such as --resources, or a file (-f)", found="nothing")
    if command:
        said["command"] = command
    if "needs" in said:
        pairs = [text.partition("=") for text in said["needs"]]
        if not all(equals and key for key, equals, _ in pairs):
            raise InvalidInput("label=value", value=said["needs"], key="--needs")
        said["needs"] = {key: value for key, _, value in pairs}
    from pydantic import ValidationError

    made_specs = []
    for spec in specs:
        try:
            made = JobSpec.model_validate({**spec, **said})
            made.job(made.name or "job", "nobody")  # what the service would refuse is refused here
            made_specs.append(made.model_dump(mode="json", exclude_defaults=True))
        except ValidationError as error:
            raise plain_words(error.errors()[0]) from None
    return made_specs


def _at_home(spec: dict[str, Any]) -> dict[str, Any]:
    """What runs something runs where it was submitted, unless told otherwise."""
    if "command" not in spec and "script" not in spec:
        return spec
    return {**spec, "workdir": os.path.abspath(spec.get("workdir") or ".")}


@_with_options(SUBMIT_OPTIONS)
def submit_command(
    command: CommandArgument = None,
    file: FileOption = None,
    key: Annotated[
        str | None, typer.Option("--key", help="An idempotency key: the same twice is accepted once.")
    ] = None,
    parsable: Annotated[bool, typer.Option("--parsable", help="Print ids alone, one a line.")] = False,
    url: UrlOption = None,
    output: FormatOption = Format.table,
    **job: Any,
) -> None:
    """Submit a job, or those of a file. What is printed was accepted, and is not lost any more.

    Exit code: 0 accepted; 2 bad input; 3 no service; 4 not allowed; 6 in conflict with an earlier job; 7 not now.
    """
    specs = [_at_home(spec) for spec in _specs(file, job, command)]
    answer = _submit(Client(url), specs, key or f"cli-{uuid.uuid4().hex}")
    for warning in answer.get("warnings", ()):
        typer.echo(f"berth: warning: {warning}", err=True)
    if shown(answer["jobs"], output):
        return
    for record in answer["jobs"]:
        typer.echo(record["id"] if parsable else f"submitted {record['id']}")


def _submit(client: Client, specs: list[dict[str, Any]], key: str) -> Any:
    """Send jobs under a key, so that they can be sent again without being submitted twice."""
    try:
        return client.ask("POST", path("jobs"), specs, headers={"Idempotency-Key": key}, repeat=True)
    except (ServiceRefused, ServiceSilent) as error:
        if error.code != Code.not_now:
            raise
        doubt = isinstance(error, ServiceSilent)
        what = "it is not known whether this was submitted" if doubt else "not submitted"
        raise NotSubmitted(f"{what}: {error}; repeat it safely with --key {key}") from None


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
    phase: Annotated[list[PhaseName] | None, typer.Option("--phase", help="How they stand (repeat).")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Whose.")] = None,
    team: TeamOption = None,
    queue: QueueOption = None,
    type: TypeOption = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also those that have ended.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")] = 100,
    url: UrlOption = None,
    output: FormatOption = Format.table,
) -> None:
    """List jobs, the latest first: those that have not ended, unless told otherwise."""
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
    if shown(listed, output):
        return
    if not listed:
        typer.echo("no jobs")
        return
    table([_row(job) for job in listed], WIDE if output is Format.wide else COLUMNS)


@job_app.command("show")
def show(job: str, url: UrlOption = None, output: FormatOption = Format.table) -> None:
    """All that is known of a job."""
    record = Client(url).get(path("jobs", job))
    shown(record, Format.yaml if output in (Format.table, Format.wide) else output)


@job_app.command("cancel")
def cancel(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...")],
    url: UrlOption = None,
    output: FormatOption = Format.table,
) -> None:
    """End jobs.

    Exit code: 0 all of them; else that of the first that was refused, such as 5 for a job that is not there.
    """
    client = Client(url)
    cancelled, code = [], 0
    for job in jobs:
        try:
            cancelled.append(client.ask("DELETE", path("jobs", job), repeat=True))
        except (ServiceRefused, ServiceSilent) as error:  # the others are to end nevertheless
            typer.echo(f"berth: error: {error}", err=True)
            code = code or error.code
    if not shown(cancelled, output):
        for ended in cancelled:
            typer.echo(f"{ended['id']} {ended['phase']}")
    if code:
        raise typer.Exit(code)


@job_app.command("wait")
def wait(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...")],
    timeout: Annotated[str | None, typer.Option("--timeout", help="At most so long, such as 10m.")] = None,
    url: UrlOption = None,
    output: FormatOption = Format.table,
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
    if not shown(list(ended.values()), output):
        for record in ended.values():
            why = ": ".join(part for part in (record["reason"], record.get("last_output")) if part)
            typer.echo(f"{record['id']} {record['phase']}{f' ({why})' if why else ''}")
    if len(ended) < len(set(jobs)):
        raise typer.Exit(Code.not_in_time)
    if any(record["phase"] != "finished" for record in ended.values()):
        raise typer.Exit(Code.job_failed)


@job_app.command("explain")
def explain(job: str, url: UrlOption = None, output: FormatOption = Format.table) -> None:
    """Why a job waits: everything in its way, the smallest change that would help, and when it may start."""
    explanation = Client(url).get(path("jobs", job, "explain"))
    if not shown(explanation, output):
        typer.echo(explanation["text"])


@_with_options(PLAN_OPTIONS)
def plan_command(
    file: FileOption = None,
    url: UrlOption = None,
    output: FormatOption = Format.table,
    **job: Any,
) -> None:
    """Where would a job go now, or what would it wait for? Nothing is submitted.

    Exit code: 0 it would start now; 10 it would wait; 2 bad input; 3 no service.
    """
    client = Client(url)
    plans = [client.ask("POST", path("plan"), spec) for spec in _specs(file, job, None)]
    if not shown(plans if len(plans) > 1 else plans[0], output):
        for plan in plans:
            typer.echo(plan["text"])
    if not all(plan["starts"] for plan in plans):
        raise typer.Exit(Code.would_wait)

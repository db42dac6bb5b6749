"""`berth submit` and `berth plan`: jobs of options, manifests and scripts."""

from __future__ import annotations

import inspect
import os
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from berth.cli.answers import Output, OutputOption, answered
from berth.cli.common import QueueOption, TeamOption, TypeOption, UrlOption
from berth.cli.live.kubernetes import ContextOption, FromOption, KubeconfigOption, Source, kubernetes_plans
from berth.errors import BerthError, InvalidInput
from berth.live.client import Client, Code, ServiceRefused, ServiceSilent, path

__all__ = ["NotSubmitted", "plan_command", "submit_command"]

Command = TypeVar("Command", bound=Callable[..., None])
KEYWORD = inspect.Parameter.KEYWORD_ONLY
MOST = 16 * 2**20
"""Bytes of a file of jobs."""
FileOption = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Read a YAML manifest, or a script with #BERTH lines; - reads standard input."),
]
SUBMIT_OPTIONS: dict[str, Any] = {
    "name": Annotated[str | None, typer.Option("--name", "-J", help="Id of the job. Default: a new one.")],
    "type": TypeOption,
    "tasks": Annotated[int | None, typer.Option("--tasks", "-n", min=1, help="Start this many tasks together.")],
    "minimum": Annotated[int | None, typer.Option("--minimum", min=1, help="Start with at least this many tasks.")],
    "per_server": Annotated[
        int | None,
        typer.Option("--per-server", min=1, help="Put at most this many tasks on a server. Default: as many as fit."),
    ],
    "resources": Annotated[
        str | None, typer.Option("--resources", "-r", help="Resources of each task, such as cpu=4,memory=16Gi,gpu=1.")
    ],
    "queue": QueueOption,
    "team": TeamOption,
    "priority": Annotated[int | None, typer.Option("--priority", help="Priority; higher values come first.")],
    "needs": Annotated[
        list[str] | None, typer.Option("--needs", help="Use only servers with this label, label=value (repeat).")
    ],
    "work": Annotated[str | None, typer.Option("--work", help="Run time at speed 1, such as 2h.")],
    "estimate": Annotated[str | None, typer.Option("--estimate", help="Expected run time, such as 2h.")],
    "limit": Annotated[
        str | None, typer.Option("--time", "-t", help="End the job when it runs longer than this, such as 2h.")
    ],
    "retries": Annotated[
        int | None, typer.Option("--retries", min=0, help="Start the job again up to this often after failures.")
    ],
    "workdir": Annotated[
        str | None,
        typer.Option("--chdir", "-D", metavar="DIRECTORY", help="Run in this directory. Default: the current one."),
    ],
    "image": Annotated[str | None, typer.Option("--image", help="Image that the tasks run in, on Kubernetes.")],
}
"""Options of `berth submit`, by the key of a job's manifest that each stands for."""
NOT_PLANNED = ("name", "retries", "workdir", "image")
PLAN_OPTIONS = {key: option for key, option in SUBMIT_OPTIONS.items() if key not in NOT_PLANNED}
CommandArgument = Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="Command line of the job.")]


class NotSubmitted(BerthError):
    """The service did not accept jobs, or did not say so."""

    code = Code.not_now


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


def _text(file: Path | None) -> tuple[str, str] | None:
    """The text of a file and its name in messages."""
    if file is None:
        return None
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
    return text, name


def _read(text: str, name: str) -> list[dict[str, Any]]:
    from berth.live.core.specs import read_manifests, read_script

    specs = [read_script(text, name)] if _is_script(text) else read_manifests(text, name)
    return [spec.model_dump(exclude_defaults=True) for spec in specs]


def _is_script(text: str) -> bool:
    return text.startswith("#!") or _has_options(text)


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


def _specs(file: tuple[str, str] | None, changes: dict[str, Any], command: list[str] | None) -> list[dict[str, Any]]:
    """Jobs of the text of a file, or of the options alone; options stand above what the file says."""
    from berth.files.wording import plain_words
    from berth.live.core.specs import JobSpec

    if file is None and command:
        _look_at_command(command)
    specs = [{}] if file is None else _read(*file)
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
    """What runs something runs where it was submitted, unless told otherwise; an image has a directory of its own."""
    in_image = "workdir" not in spec and ("image" in spec or "pod" in spec)
    if in_image or ("command" not in spec and "script" not in spec):
        return spec
    return {**spec, "workdir": os.path.abspath(spec.get("workdir") or ".")}


@_with_options(SUBMIT_OPTIONS)
def submit_command(
    command: CommandArgument = None,
    file: FileOption = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Idempotency key: repeating it does not submit twice.")
    ] = None,
    parsable: Annotated[bool, typer.Option("--parsable", help="Print only ids, one a line.")] = False,
    url: UrlOption = None,
    output: OutputOption = Output.table,
    **job: Any,
) -> None:
    """Submit a job, or the jobs of a file.

    Jobs that are printed are accepted and durable.

    Exit code: 0 accepted; 2 bad input; 3 no service; 4 not allowed; 6 in conflict with an earlier job; 7 not now.
    """
    specs = [_at_home(spec) for spec in _specs(_text(file), job, command)]
    answer = _submit(Client(url), specs, key or f"cli-{uuid.uuid4().hex}")
    for warning in answer.get("warnings", ()):
        typer.echo(f"berth: warning: {warning}", err=True)
    if answered(answer["jobs"], output):
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


@_with_options(PLAN_OPTIONS)
def plan_command(
    file: FileOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    from_: FromOption = None,
    url: UrlOption = None,
    output: OutputOption = Output.table,
    **job: Any,
) -> None:
    """Forecast when and where a job would start.

    Nothing is submitted. With --kubeconfig, --context or --from, the answer is for a Kubernetes cluster and needs no
    service; the file may then have a Pod, a Job, a JobSet or pods of one group.

    Exit code: 0 it would start now; 10 it would wait; 2 bad input; 3 no service or cluster; 4 not allowed.
    """
    given = _text(file)
    if kubeconfig or context or from_:
        source = Source(kubeconfig, context, from_)
        script = given is not None and _is_script(given[0])
        plans = kubernetes_plans(source, None if script else given, job, lambda: _specs(given, job, None))
    else:
        client = Client(url)
        plans = [client.ask("POST", path("plan"), spec) for spec in _specs(given, job, None)]
    if not answered(plans if len(plans) > 1 else plans[0], output):
        for plan in plans:
            typer.echo(plan["text"])
    if not all(plan["starts"] for plan in plans):
        raise typer.Exit(Code.would_wait)

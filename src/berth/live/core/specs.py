"""Jobs as people write them: what the API takes, YAML manifests, and scripts with `#BERTH` lines.

A spec has roles, or, for the common case of one, `tasks` and `resources` at its top. Quantities are written as
Kubernetes and Slurm write them, durations as `90s`, `15m`, `2h`, `1-12:00:00` or a number of seconds.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from berth.errors import InvalidInput
from berth.files.quantities import amounts, parse_duration, slurm_amounts
from berth.files.wording import NAME, Spec, by, checked
from berth.files.yaml_tree import Key, Place, Tree, read_documents
from berth.live.core.jobs import UNTYPED, Job, Role

__all__ = ["Duration", "JobSpec", "RoleSpec", "read_manifests", "read_script", "sbatch_lines"]

MARK = "#BERTH"
INTERPRETER = re.compile(r"python[\d.]*|bash|sh|zsh|perl|ruby|node|julia|Rscript|torchrun", re.ASCII)
BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII)


def _quantities(value: object) -> object:
    """Amounts of resources; a text is read as Slurm writes them."""
    if isinstance(value, str):
        slurm_amounts(value, "")
        return dict(part.split("=", 1) for part in value.split(",")) if value else {}
    if isinstance(value, Mapping):
        amounts({str(name): item for name, item in value.items()}, "")
    return value


Duration = Annotated[
    float | None,
    by(lambda value: None if value is None else parse_duration(value, ""), float | str | None),
    Field(description="seconds, or 90s, 15m, 2h, 1-12:00:00"),
]
Quantities = Annotated[
    dict[str, str | int | float],
    by(_quantities),
    Field(description="amounts by resource, such as {cpu: 500m, memory: 16Gi, gpu: 1}", max_length=64),
]
Name = Annotated[str, Field(pattern=NAME)]
Label = Annotated[str, Field(max_length=256)]
PerServer = Annotated[
    int | None, Field(ge=1, le=100_000, description="the most tasks on one server; as many as fit where left out")
]


class RoleSpec(Spec):
    """Tasks of a job that are alike."""

    count: Annotated[int, Field(ge=1, le=100_000)] = 1
    minimum: Annotated[int, Field(ge=0, le=100_000)] | None = None
    resources: Quantities = Field(default_factory=dict)
    per_server: PerServer = None


class JobSpec(Spec):
    """A job to be submitted."""

    name: Annotated[Name | None, Field(description="its id; made up where it is left out")] = None
    type: Annotated[
        Name | None,
        Field(
            description="jobs of one type are expected to run alike; by default the user and the program or the name"
        ),
    ] = None
    tasks: Annotated[int, Field(ge=1, le=100_000)] = 1
    minimum: Annotated[int, Field(ge=1, le=100_000)] | None = None
    resources: Quantities = Field(default_factory=dict)
    per_server: PerServer = None
    roles: Annotated[dict[Name, RoleSpec], Field(max_length=64)] = Field(default_factory=dict)
    team: Name = "default"
    queue: Name = "default"
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    needs: Annotated[dict[Label, Label], Field(max_length=64)] = Field(default_factory=dict)
    work: Duration = None
    estimate: Duration = None
    limit: Annotated[Duration, Field(description="time limit: the job is ended when it runs longer")] = None
    value: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)] = 1.0
    decay: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)] = 0.0
    deadline: Duration = None
    retries: Annotated[int, Field(ge=0, le=1000)] = 0
    command: Annotated[list[str], Field(max_length=1000)] = Field(default_factory=list)
    script: Annotated[str | None, Field(max_length=1_000_000)] = None
    callable: Annotated[
        str | None, Field(max_length=1_000_000, description="for Ray: a Python callable, pickled, as base64 text")
    ] = None
    environment: Annotated[dict[str, str], Field(max_length=1000)] = Field(default_factory=dict)
    workdir: Annotated[str | None, Field(max_length=4096)] = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.roles and (self.resources or self.tasks != 1 or (self.minimum, self.per_server) != (None, None)):
            raise ValueError("roles, or tasks and resources at the top, not both")
        if bool(self.command) + (self.script is not None) + (self.callable is not None) > 1:
            raise ValueError("a command, a script or a callable, not two of them")
        if self.callable is not None and not BASE64.fullmatch(self.callable):
            raise ValueError("a callable as base64 text")
        if self.limit is not None and self.limit < 1.0:
            raise ValueError("a time limit of at least 1s")
        for text in (*self.command, *self.environment, *self.environment.values()):
            if "\0" in text:
                raise ValueError("no NUL characters in command and environment")
        return self

    def _derived_type(self, user: str) -> str:
        """A type for a job that came without one: its user, and the program that it runs or its name without a number.

        >>> JobSpec(command=["python3", "-u", "x.py"], name="sweep-12")._derived_type("ann")
        'ann.sweep'
        >>> JobSpec(command=["/opt/bin/solve", "--fast"])._derived_type("ann")
        'ann.solve'
        """
        stem = _program(self.command) or re.sub(r"[-_.]*\d*$", "", self.name or "")
        return re.sub(r"[^A-Za-z0-9._@-]", "-", f"{user}.{stem}")[:128] if stem else UNTYPED

    def job(self, job_id: str, user: str) -> Job:
        """The job that it describes.

        >>> JobSpec(tasks=2, resources={"cpu": "500m"}).job("a1", "ann").roles[0]
        Role(name='task', count=2, demand={'cpu': 500}, minimum=2, per_server=None)
        """
        top = RoleSpec(count=self.tasks, minimum=self.minimum, resources=self.resources, per_server=self.per_server)
        given = self.roles or {"task": top}
        roles = tuple(
            Role(
                name,
                role.count,
                amounts(_plain(role.resources)),
                -1 if role.minimum is None else role.minimum,
                role.per_server,
            )
            for name, role in given.items()
        )
        payload: dict[str, Any] = {
            "command": list(self.command),
            "script": self.script,
            "callable": self.callable,
            "environment": dict(self.environment),
            "workdir": self.workdir,
        }
        return Job(
            job_id,
            self.type or self._derived_type(user),
            roles,
            user,
            self.team,
            self.queue,
            self.priority,
            dict(self.needs),
            self.work or None,
            self.estimate or None,
            self.value,
            self.decay,
            self.deadline,
            self.retries,
            {key: value for key, value in payload.items() if value},
            limit=self.limit or None,
        )


def _program(command: list[str]) -> str:
    """The name of the program that a command runs: of an interpreter, the file or module that it is given.

    >>> _program(["python", "-m", "pkg.train"]), _program(["bash", "run.sh"]), _program(["sh", "-c", "true"])
    ('pkg.train', 'run.sh', '')
    """
    name = command[0].rpartition("/")[2] if command else ""
    if not INTERPRETER.fullmatch(name):
        return name
    rest = command[2:] if command[1:2] == ["-m"] else command[1:]
    return rest[0].rpartition("/")[2] if rest and not rest[0].startswith("-") else ""


def _plain(given: Mapping[str, object]) -> dict[str, object]:
    """With Slurm's names and sizes in our words, where a spec was written in Slurm's."""
    plain: dict[str, object] = {}
    for name, value in given.items():
        if name == "mem" or name.startswith("gres/"):
            plain.update({key: f"{milli}m" for key, milli in slurm_amounts(f"{name}={value}").items()})
        else:
            plain[name] = value
    return plain


class _Metadata(Spec):
    name: Annotated[str | None, Field(strict=True)] = None


class _Manifest(Spec):
    """A job in the envelope that Kubernetes uses; `spec` is checked as a job of its own."""

    apiVersion: Annotated[Literal["berth/v1"] | None, Field(validate_default=True)] = None
    kind: Annotated[Literal["Job"] | None, Field(validate_default=True)] = None
    metadata: _Metadata | None = None
    spec: dict[str, Any]


def read_manifests(text: str, file: str = "manifest") -> list[JobSpec]:
    """Jobs of a YAML manifest, one or several documents; each `apiVersion/kind/metadata/spec`, or a spec alone.

    >>> read_manifests("{tasks: 2, resources: {cpu: 1}}")[0].tasks
    2
    """
    documents = read_documents(text, file)
    if not documents:
        raise InvalidInput("at least one job", found="nothing", file=file)
    return [_document(tree) for tree in documents]


def _document(tree: Tree) -> JobSpec:
    if isinstance(tree.value, dict) and tree.value.keys() & {"kind", "apiVersion"}:
        checked(tree, _Manifest)
        spec, metadata = tree.under("spec"), tree.under("metadata")
        tree = Tree({**spec.value, **(metadata.value or {})}, spec.places | metadata.places)
    return checked(tree, JobSpec)


OPTIONS = {
    "--name": "name",
    "--job-name": "name",
    "--type": "type",
    "--tasks": "tasks",
    "--ntasks": "tasks",
    "--minimum": "minimum",
    "--per-server": "per_server",
    "--ntasks-per-node": "per_server",
    "--resources": "resources",
    "--team": "team",
    "--account": "team",
    "--queue": "queue",
    "--partition": "queue",
    "--priority": "priority",
    "--work": "work",
    "--estimate": "estimate",
    "--time": "limit",
    "--value": "value",
    "--decay": "decay",
    "--deadline": "deadline",
    "--retries": "retries",
    "--needs": "needs",
    "--chdir": "workdir",
}
RESOURCES = {
    *("-c", "--cpus-per-task", "--mem", "--mem-per-cpu", "--gres", "-G", "--gpus", "--gpus-per-task"),
    *("--gpus-per-node", "--mem-per-gpu", "--cpus-per-gpu"),
}
"""Options of sbatch that `--resources` takes the place of."""
SHORT = {
    "-J": "--name",
    "-n": "--tasks",
    "-r": "--resources",
    "-p": "--queue",
    "-q": "--queue",
    "-t": "--time",
    "-A": "--team",
    "-D": "--chdir",
}


def read_script(text: str, file: str = "script") -> JobSpec:
    """A job from a script with `#BERTH` lines at its top, as sbatch reads `#SBATCH` lines; the script itself is data.

    >>> read_script("#!/bin/sh\\n#BERTH --tasks=2 --resources=cpu=1,mem=2G\\nsrun hostname\\n").tasks
    2

    A script with `#SBATCH` lines and no `#BERTH` line is refused: it would run without what it asks for.
    """
    given: dict[str, Any] = {}
    places: dict[Key, Place] = {}
    ignored = sbatch_lines(text)
    if ignored and not any(line.startswith(MARK) for line in text.splitlines()):
        number, words, instead = ignored[0]
        raise InvalidInput(f"#BERTH lines: berth does not read #SBATCH; {instead}", value=words, file=file, line=number)
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(MARK):
            for option, value in _options(line.removeprefix(MARK), file, number):
                given[option] = value
                places[option,] = file, number
        elif line.strip() and not line.startswith("#"):
            break
    if "needs" in given:
        parts = [part.partition("=") for part in str(given["needs"]).split(",")]
        if not all(equals and key for key, equals, _ in parts):
            raise InvalidInput(
                "label=value,…", value=given["needs"], key="--needs", file=file, line=places["needs",][1]
            )
        given["needs"] = {key: value for key, _, value in parts}
    return checked(Tree({**given, "script": text}, {(): (file, None), **places}), JobSpec)


def sbatch_lines(text: str) -> list[tuple[int, str, str]]:
    """The `#SBATCH` lines of a script that sbatch would read: their number, the line, and what to write instead.

    >>> sbatch_lines("#!/bin/sh\\n#SBATCH -n 4\\n#SBATCH --array=1-9\\ntrue\\n#SBATCH --time=5\\n")
    [(2, '#SBATCH -n 4', '#BERTH has -n too'), (3, '#SBATCH --array=1-9', 'berth has no option like --array')]
    """
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#SBATCH"):
            words = " ".join(line.split())
            option = re.split(r"[\s=]", words.removeprefix("#SBATCH").strip())[0]
            option = option if option.startswith("--") else option[:2]
            if option in ("--time", "-t"):
                instead = f"#BERTH has {option} too, where a plain number means seconds"
            elif option in OPTIONS or option in SHORT:
                instead = f"#BERTH has {option} too"
            elif option in RESOURCES:
                instead = "say what each task needs with #BERTH --resources=cpu=…,mem=…,gpu=…"
            else:
                instead = f"berth has no option like {option}"
            found.append((number, words[:200], instead))
        elif line.strip() and not line.startswith("#"):
            break
    return found


def _options(text: str, file: str, line: int) -> list[tuple[str, str]]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise InvalidInput("options that a shell could read", found=str(error), file=file, line=line) from None
    found: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        option = SHORT.get(name, name)
        if option not in OPTIONS:
            raise InvalidInput(f"one of {', '.join(sorted(OPTIONS))}", value=name, file=file, line=line)
        if not equals:
            value = next(rest, "")
            if not value:
                raise InvalidInput("a value", found="nothing", key=name, file=file, line=line)
        found.append((OPTIONS[option], value))
    return found

"""The submission of a job to Slurm: its allocation (`berth.live.engines.slurm.layout`) and the batch script.

* A `command` runs in every task, started by `srun`; no shell interprets its words. When a task fails, all end.
* A `script` runs once, on the first server, as sbatch's users expect; `srun` and `mpirun` in it start all tasks. Slurm
  does not read `#SBATCH` lines in it: berth decides what the job gets.

Every task has `BERTH_JOB`, `BERTH_ATTEMPT`, `BERTH_TASKS` (their number) and `BERTH_SERVERS` (separated by commas);
tasks of a `command` also have `BERTH_ROLE`, `BERTH_RANK` (from 0, over all roles) and `BERTH_SERVER`.
Jobs run as the user that runs berth, unless `users` is set.
"""

from __future__ import annotations

import math
import pwd
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from berth.files.quantities import Amounts
from berth.live.core.events import Start
from berth.live.core.jobs import Job
from berth.live.engines.slurm.environment import (
    MPI_TYPE,
    NotPossible,
    enter_directory,
    job_environment,
    job_user,
    run_job,
)
from berth.live.engines.slurm.layout import MIB, Component, check, layout
from berth.live.engines.slurm.outputs import AGAIN, DIRECTORY, LAUNCH, mark_of, output_of
from berth.live.engines.slurm.parsing import Config
from berth.live.engines.slurm.partitions import GRACE, Partition
from berth.live.engines.slurm.settings import SlurmSettings

__all__ = ["MIB", "Component", "NotPossible", "Submission", "layout", "read_tag", "submission", "write_tag"]

LONGEST = 120_000
"""The most bytes of a command with its arguments, which is one argument of another command."""
ALL = 1_000_000
"""The most bytes of the commands of all components, which are arguments of one command."""
NOT_LAUNCHED = 253
"""The exit code of srun when it failed itself."""


@dataclass(frozen=True)
class Submission:
    """All that Slurm is told about a job."""

    name: str
    tag: str
    components: tuple[Component, ...]
    script: str
    environment: Mapping[str, str]
    directory: str
    output: str
    partition: str = ""
    minutes: int | None = None
    user: pwd.struct_passwd | None = None
    """The user as whom it runs; None for the user that runs berth."""


def write_tag(instance: str, job: str, attempt: int) -> str:
    """The comment that identifies an attempt. Slurm reuses its own job ids after a crash of slurmctld."""
    return f"berth:{instance}:{job}:{attempt}"


def read_tag(comment: str, instance: str) -> tuple[str, int] | None:
    """The attempt that a comment names, if it is of this instance.

    >>> read_tag("berth:k3:train-7:2", "k3"), read_tag("berth:other:train-7:2", "k3"), read_tag("my job", "k3")
    (('train-7', 2), None, None)
    """
    parts = comment.split(":")
    if len(parts) != 4 or parts[:2] != ["berth", instance] or not re.fullmatch(r"\d{1,9}", parts[3], re.ASCII):
        return None
    return parts[2], int(parts[3])


def quote(text: str) -> str:
    """A word for bash; sbatch refuses scripts with carriage returns, so these are escaped."""
    return shlex.quote(text).replace("\r", "'$'\\r''") if "\r" in text else shlex.quote(text)


def _task(component: Component, first: int, before: int, command: Sequence[str], alone: bool) -> str:
    """What each task runs: it sets the task's variables, and becomes the command.

    The component's tasks have ranks from `first`, of which Slurm does not count those `before` its step. If there are
    several tasks, one that fails waits a moment: srun would not end those that are only just being started.
    """
    roles, at = [], first
    for place in component.places:
        at += place.count
        roles.append((at, place.role))
    merged = [pair for pair, after in zip(roles, [*roles[1:], (0, "")], strict=True) if pair[1] != after[1]]
    lines = [f'BERTH_RANK=$(({before} + SLURM_PROCID)) BERTH_SERVER="$SLURMD_NODENAME"', f"BERTH_ROLE={merged[-1][1]}"]
    lines += [f'[ "$BERTH_RANK" -ge {upto} ] || BERTH_ROLE={role}' for upto, role in reversed(merged[:-1])]
    lines.append("export BERTH_ROLE BERTH_RANK BERTH_SERVER")
    words = " ".join(shlex.quote(word) for word in command)
    run = run_job(words)
    last = [run] if alone else [f"(\n{run})", "ended=$?; [ $ended = 0 ] || sleep 1; exit $ended"]
    return "\n".join([*lines, *last])


def _batch(components: Sequence[Component], command: Sequence[str], spanning: bool) -> list[str]:
    """Lines that run a command in every task, until all have ended or one has failed.

    It is one step, and for MPI one world, unless Slurm is configured without steps `spanning` components, or roles
    share servers: only one component of a step can have a file that says where its tasks run. Then each component has
    a step of its own.
    """
    lines = ["unset SLURM_HOSTFILE " + _unset(len(components)), f"export SLURM_EXIT_ERROR={NOT_LAUNCHED}"]
    counts = [component.total for component in components]
    together = (spanning or len(components) == 1) and all(component.alike for component in components)
    parts, first = [], 0
    for number, (component, count) in enumerate(zip(components, counts, strict=True)):
        options = ["--kill-on-bad-exit=1", f"--nodes={len(component.nodes)}", f"--ntasks={count}"]
        if not component.alike:
            options += ["--distribution=arbitrary", "--overcommit"]
        else:
            options.append(f"--cpus-per-task={component.cpus}")
            options += [] if component.tasks is None else [f"--ntasks-per-node={component.tasks}"]
        if len(components) > 1:
            options.insert(0, f"--het-group={number}")
        text = _task(component, first, 0 if together else first, command, alone=sum(counts) == 1)
        most = min(LONGEST, ALL // len(components))
        if len(text.encode("utf-8", "surrogateescape")) > most:
            raise NotPossible(f"a command of at most {most} bytes, with its arguments; longer ones go into a script")
        parts.append(f"{' '.join(options)} /bin/sh -c {quote(text)}")
        first += count
    if together:
        lines.append(f"srun {' : '.join(parts)} &")
    else:
        for number, (component, part) in enumerate(zip(components, parts, strict=True)):
            lines += _hosts(number, component)
            told = "" if component.alike else f'SLURM_HOSTFILE="$_hosts{number}" '
            lines.append(f"{told}srun {part} &")
    files = " ".join(f'"$_hosts{n}"' for n, component in enumerate(components) if not component.alike)
    steps = 1 if together else len(components)
    lines.append(f"_ended=0; for ((_i = 0; _i < {steps}; _i++)); do wait -n || {{ _ended=$?; break; }}; done")
    # what srun says, if the output is a file and can be read again
    lines.append('_said=; [ ! -f /proc/$$/fd/1 ] || _said=$(tail -c 4096 /proc/$$/fd/1 | grep -a "^srun: ")')
    # not the job's fault; if a node could not be reached, only srun's output says so: its exit code may be 0
    failed = '[[ "$_said" =~ "Application launch failed"|"aborted before step completely launched" ]]'
    lines.append(f'if [ "$_ended" = {NOT_LAUNCHED} ] || {failed}; then kill -s {LAUNCH} $$; fi')
    if sum(counts) > 1:  # tasks that were ended with the first that failed have higher codes
        own = '[[ "$_said" =~ "Exited with exit code "([0-9]+) ]]'
        lines.append(f'if [ "$_ended" -gt 128 ] && {own}; then _code=${{BASH_REMATCH[1]}}; fi')
    return [*lines, *([f"rm -f {files}"] if files else [])]


def _hosts(number: int, component: Component) -> list[str]:
    """Lines that write a file with the node of each task of a component, if Slurm is not to choose."""
    if component.alike:
        return []
    names = " ".join(f"{quote(place.server)} {place.count}" for place in component.places)
    return [
        f"_hosts{number}=$(mktemp) || exit 1",
        f"set -- {names}",
        f'while [ $# -gt 0 ]; do for ((_i = 0; _i < $2; _i++)); do echo "$1"; done; shift 2; done >"$_hosts{number}"',
    ]


def _unset(components: int) -> str:
    names = ["SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_DISTRIBUTION"]
    names.append("SLURM_GPUS_PER_TASK")
    groups = [f"{name}_HET_GROUP_{n}" for n in range(components) for name in names[:2]] if components > 1 else []
    return " ".join([*names, *groups])


def _script(text: str) -> list[str]:
    """Lines that run a user's script by its `#!` line or with sh; as a file, since that is what it expects."""
    if "\r\n" in text:
        raise NotPossible("Slurm takes scripts with Unix line breaks, and this has carriage returns")
    first = text.partition("\n")[0]
    try:
        program = shlex.split(first.removeprefix("#!")) if first.startswith("#!") else []
    except ValueError:
        program = []
    words = " ".join(quote(word) for word in program or ["/bin/sh"])
    here = "END-OF-SCRIPT"
    while here in text:
        here += "-"
    return [
        "unset SLURM_GPUS_PER_TASK",  # each task sees all GPUs of the job on its node, in every layout
        "_script=$(mktemp) || exit 1",
        f"cat >\"$_script\" <<'{here}'",
        text,
        here,
        "(",
        run_job(f'{words} "$_script"') + ")",
        '_ended=$?; rm -f "$_script"',
    ]


def _marked(mark: str, lines: Sequence[str]) -> str:
    """The batch script: it leaves marks (`berth.live.engines.slurm.outputs`), and does not run a second time.

    It does not see the environment of the job (`environment`); `-p` keeps bash from importing functions.
    """
    before = f'(set -C; date "+began %s.%N" >"$_mark") 2>/dev/null || [ ! -e "$_mark" ] || kill -s {AGAIN} $$'
    after = '[ ! -f "$_mark" ] || date "+ended %s.%N $_ended" >>"$_mark"'
    first = ["#!/bin/bash -p", f"_mark={quote(mark)} _code=", before, enter_directory(f"kill -s {DIRECTORY} $$")]
    return "\n".join([*first, *lines, after, "exit ${_code:-$_ended}", ""])


def _mpi_check() -> list[str]:
    """Lines that fail a job whose MPI type Slurm does not have: srun would fail as if Slurm were to blame."""
    said = f'echo "berth: Slurm has no MPI type ${MPI_TYPE} (srun --mpi=list)"'
    return [f'srun --mpi=list 2>&1 | grep -qwF -e "${MPI_TYPE}" || {{ {said}; exit 1; }}']


def _clean(words: Iterable[str]) -> None:
    if any("\0" in word for word in words):
        raise NotPossible("text without null characters in its command, script and directory")


def _minutes(limit: float | None, partition: Partition | None) -> int | None:
    """The time limit for Slurm, in case berth is away at the job's own; None for the partition's default."""
    if limit is None:
        return None
    minutes = math.ceil(limit / 60) + math.ceil(GRACE / 60)
    longest = None if partition is None else partition.max_time
    return minutes if longest is None else min(minutes, math.ceil(longest / 60))


def submission(
    start: Start,
    job: Job,
    settings: SlurmSettings,
    instance: str,
    config: Config | None = None,
    room: Mapping[str, Amounts] | None = None,
    partition: Partition | None = None,
    *,
    secret: str = "",
) -> Submission:
    """The submission of a job; raises `NotPossible` if Slurm cannot express it.

    `room` is as in `layout`; `secret` is part of the name of the job's mark.
    """
    command, script = list(job.payload.get("command") or ()), job.payload.get("script")
    check(job, partition)
    default_memory = config is not None and config.default_memory
    components = layout(job, start.places, default_memory=default_memory, script=script is not None, room=room)
    user = job_user(job, settings)
    directory = str(job.payload.get("workdir") or user.pw_dir)
    if not directory.startswith("/"):
        raise NotPossible(f"a working directory by its absolute path, not {directory[:80]!r}")
    _clean([*command, script or "", directory])
    if script is not None:
        lines = _script(script)
    elif command:
        environment = job.payload.get("environment") or {}
        lines = _mpi_check() if environment.get(MPI_TYPE) else []
        lines += _batch(components, command, spanning=config is None or config.spanning)
    else:
        raise NotPossible("it has neither a command nor a script, so there is nothing to run")
    output = settings.outputs.absolute() / (user.pw_name if settings.users else "")
    return Submission(
        start.job,
        write_tag(instance, start.job, start.attempt),
        components,
        _marked(str(mark_of(output, instance, start.job, start.attempt, secret)), lines),
        job_environment(job, start, user),
        directory,
        str(output_of(output, start.job, start.attempt)),
        settings.partition,
        _minutes(job.limit, partition),
        user if settings.users else None,
    )

"""The user as whom a job runs, and its environment, apart from that in which berth's own commands run on the node.

The batch script, srun and the shells around a task run with a plain environment: neither PATH nor LD_PRELOAD, BASH_ENV
or SLURM_CONF of the job reach them. The job's own variables travel as the values of `BERTH_ENV_1`, `BERTH_ENV_2`, …,
each `NAME=value`. The last shell before the job's process sets them (`run_job`). No value is on a command line, where
other users could see it.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from berth.errors import BerthError
from berth.live.core.events import Start
from berth.live.core.jobs import Job
from berth.live.engines.slurm.settings import SlurmSettings

__all__ = ["MPI_TYPE", "NotPossible", "enter_directory", "job_environment", "job_user", "ordinary_uids", "run_job"]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MPI_TYPE = "SLURM_MPI_TYPE"
"""The only variable of a job that reaches berth's srun: how MPI programs find each other."""
RESERVED = re.compile(r"BERTH_(JOB|ATTEMPT|TASKS|SERVERS|ROLE|RANK|SERVER|WORKDIR|ENV(_\d+)?|NUMBER|PAIR)", re.ASCII)
"""Names that berth itself uses."""
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
ENTER = r"""if [ -n "${BERTH_WORKDIR-}" ] && ! cd -- "$BERTH_WORKDIR" 2>/dev/null; then
echo "berth: cannot enter directory $BERTH_WORKDIR on $SLURMD_NODENAME" >&2; """
RUN_JOB = r"""BERTH_NUMBER=0 BERTH_ENV=
while BERTH_NUMBER=$((BERTH_NUMBER + 1)); eval "BERTH_PAIR=\${BERTH_ENV_$BERTH_NUMBER-}"; [ -n "$BERTH_PAIR" ]; do
unset "BERTH_ENV_$BERTH_NUMBER"
case "$BERTH_PAIR" in
SLURM*) eval "[ -n \"\${${BERTH_PAIR%%=*}+set}\" ]" || export "$BERTH_PAIR" ;;
BASHOPTS=*|BASH_VERSINFO=*|EUID=*|PPID=*|SHELLOPTS=*|UID=*) set -- "$BERTH_PAIR" "$@"; BERTH_ENV=yes ;;
*) export "$BERTH_PAIR" ;;
esac
done
[ -z "$BERTH_ENV" ] || set -- /usr/bin/env "$@"
unset BERTH_NUMBER BERTH_PAIR BERTH_ENV BERTH_WORKDIR
exec "$@"
"""
"""For sh and bash. What Slurm has set stays as it is. Shells refuse to set six names, which `env` sets instead."""
LOGIN_DEFS = Path("/etc/login.defs")


def enter_directory(otherwise: str) -> str:
    """Shell text that enters the job's working directory, if it has one: Slurm would use another."""
    return f"{ENTER}{otherwise}; fi"


def run_job(words: str) -> str:
    """Shell text that becomes the job's process: in its directory, with its environment.

    `words` are the command and its arguments, quoted for a shell.
    """
    return f"set -- {words}\n{enter_directory('exit 1')}\n{RUN_JOB}"


def node_path() -> str:
    """The PATH of berth's commands on nodes: the usual one, and the directory of Slurm's commands on this machine."""
    srun = shutil.which("srun")
    here = "" if srun is None else str(Path(os.path.abspath(srun)).parent)
    return PATH if not here or here in PATH.split(":") else f"{PATH}:{here}"


def job_environment(job: Job, start: Start, user: pwd.struct_passwd) -> dict[str, str]:
    """The environment of the batch script, from which `run_job` makes that of the job."""
    given: Mapping[str, str] = job.payload.get("environment") or {}
    for name, value in given.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise NotPossible(f"{name[:80]!r} cannot be a variable of the environment")
    if not re.fullmatch(r"\w*", given.get(MPI_TYPE, ""), re.ASCII):
        raise NotPossible(
            f"{MPI_TYPE}: got {given[MPI_TYPE][:80]!r}, expected one of those that `srun --mpi=list` names"
        )
    servers = list(dict.fromkeys(place.server for place in start.places))
    known = {name: value for name, value in given.items() if not RESERVED.fullmatch(name)}
    handed = [f"{name}={value}" for name, value in known.items() if IDENTIFIER.fullmatch(name)]
    return {
        # no shell can set these, and no program of berth or Slurm reads them
        **{name: value for name, value in known.items() if not IDENTIFIER.fullmatch(name)},
        **({MPI_TYPE: given[MPI_TYPE]} if given.get(MPI_TYPE) else {}),
        **{f"BERTH_ENV_{number}": pair for number, pair in enumerate(handed, 1)},
        "PATH": node_path(),
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": user.pw_shell or "/bin/sh",
        "BERTH_JOB": start.job,
        "BERTH_ATTEMPT": str(start.attempt),
        "BERTH_TASKS": str(sum(place.count for place in start.places)),
        "BERTH_SERVERS": ",".join(servers),
        "BERTH_WORKDIR": str(job.payload.get("workdir") or ""),
    }


class NotPossible(BerthError):
    """Slurm cannot run such a job; the message says why."""


@cache
def ordinary_uids(file: Path = LOGIN_DEFS) -> range:
    """The uids of ordinary users on this system: UID_MIN to UID_MAX of /etc/login.defs, by default 1000 to 60000."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    limits = {name: re.search(rf"^\s*{name}\s+(\d+)", text, re.MULTILINE) for name in ("UID_MIN", "UID_MAX")}
    low, high = limits["UID_MIN"], limits["UID_MAX"]
    return range(1000 if low is None else int(low[1]), 1 + (60000 if high is None else int(high[1])))


def job_user(job: Job, settings: SlurmSettings) -> pwd.struct_passwd:
    """The system user as whom a job runs: with `users` its owner, otherwise the user that runs berth.

    Root, nobody and system accounts are refused unless `system_users` names them.
    """
    if not settings.users:
        return pwd.getpwuid(os.getuid())
    try:
        # two names may share a uid: Slurm shows the primary name of the uid
        user = pwd.getpwuid(pwd.getpwnam(job.user).pw_uid)
    except KeyError:
        raise NotPossible(f"{job.user}, as whom the job would run, is not a user of this system") from None
    if not re.fullmatch(r"[^/\0.][^/\0]*", user.pw_name):
        raise NotPossible(f"{user.pw_name!r} cannot be the name of an output directory")
    ordinary = user.pw_uid in ordinary_uids() and user.pw_name != "nobody"
    if not ordinary and not {job.user, user.pw_name} & set(settings.system_users):
        raise NotPossible(
            f"jobs do not run as the system account {user.pw_name} (uid {user.pw_uid}); "
            "an operator can allow it with `system_users` in the settings of the engine"
        )
    return user

"""The system user as whom a job runs."""

from __future__ import annotations

import os
import pwd
import re
from functools import cache
from pathlib import Path

from berth.dispatch.jobs import Job
from berth.engines.slurm.settings import SlurmSettings
from berth.errors import BerthError

__all__ = ["NotPossible", "first_ordinary_uid", "job_user"]

NOBODY = 65534
LOGIN_DEFS = Path("/etc/login.defs")


class NotPossible(BerthError):
    """Slurm cannot run such a job; the message says why."""


@cache
def first_ordinary_uid(file: Path = LOGIN_DEFS) -> int:
    """The lowest uid of a person on this system: UID_MIN of /etc/login.defs, by default 1000."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^\s*UID_MIN\s+(\d+)", text, re.MULTILINE)
    return 1000 if match is None else int(match[1])


def job_user(job: Job, settings: SlurmSettings) -> pwd.struct_passwd:
    """The system user as whom a job runs: with `users` its owner, otherwise the user that runs berth.

    Root, nobody and system accounts are refused unless `system_users` names them.
    """
    if not settings.users:
        return pwd.getpwuid(os.getuid())
    try:
        # two names may have one uid: Slurm shows the name that the uid has
        user = pwd.getpwuid(pwd.getpwnam(job.user).pw_uid)
    except KeyError:
        raise NotPossible(f"{job.user} is no user of this system, as which the job would run") from None
    if not re.fullmatch(r"[^/\0.][^/\0]*", user.pw_name):
        raise NotPossible(f"{user.pw_name!r} cannot be the name of an output directory")
    ordinary = user.pw_uid >= first_ordinary_uid() and user.pw_uid != NOBODY and user.pw_name != "nobody"
    if not ordinary and not {job.user, user.pw_name} & set(settings.system_users):
        raise NotPossible(
            f"jobs do not run as the system account {user.pw_name} (uid {user.pw_uid}); "
            "an operator can allow it with `system_users` in the settings of the engine"
        )
    return user

"""The system user as whom a job runs."""

from __future__ import annotations

import os
import pwd
import re
from functools import cache
from pathlib import Path

from berth.errors import BerthError
from berth.live.core.jobs import Job
from berth.live.engines.slurm.settings import SlurmSettings

__all__ = ["NotPossible", "job_user", "ordinary_uids"]

LOGIN_DEFS = Path("/etc/login.defs")


class NotPossible(BerthError):
    """Slurm cannot run such a job; the message says why."""


@cache
def ordinary_uids(file: Path = LOGIN_DEFS) -> range:
    """The uids of people on this system: UID_MIN to UID_MAX of /etc/login.defs, by default 1000 to 60000."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = {name: re.search(rf"^\s*{name}\s+(\d+)", text, re.MULTILINE) for name in ("UID_MIN", "UID_MAX")}
    low, high = found["UID_MIN"], found["UID_MAX"]
    return range(1000 if low is None else int(low[1]), 1 + (60000 if high is None else int(high[1])))


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
    ordinary = user.pw_uid in ordinary_uids() and user.pw_name != "nobody"
    if not ordinary and not {job.user, user.pw_name} & set(settings.system_users):
        raise NotPossible(
            f"jobs do not run as the system account {user.pw_name} (uid {user.pw_uid}); "
            "an operator can allow it with `system_users` in the settings of the engine"
        )
    return user

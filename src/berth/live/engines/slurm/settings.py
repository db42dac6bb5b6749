"""Settings of berth for a Slurm cluster: a YAML file, validated when it is read."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from berth.files.quantities import parse_duration
from berth.files.wording import Route, Spec, Switch, at_least, by, checked, said
from berth.files.yaml_tree import read_file
from berth.live.engines import Owner

__all__ = ["SlurmSettings", "read_settings"]

OUTPUTS = Path("/var/lib/berth/output")
"""The default output directory for jobs of several users."""
FOREVER = "forever"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def _state() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "berth" / "slurm"


def _seconds(value: object) -> float:
    return math.inf if value == math.inf else parse_duration(value, "")


Partition = Annotated[str, Field(pattern=rf"^({NAME.pattern})?$"), said("the name of a partition")]


class SlurmSettings(Spec):
    """All settings; each has a default.

    * `conf`: slurm.conf, if it is not where Slurm's commands look for it
    * `partition`: where jobs are submitted, and whose nodes are the servers; by default Slurm's default partition
    * `companion`: a partition whose held jobs berth places and releases
    * `poll`: seconds between two polls of Slurm; `patience`: seconds that Slurm may take to start a job
    * `spool`: a directory for the records of attempts; each berth service needs its own, and by default has one
    * `hooks`: where the hooks of slurmctld write, if they are installed
    * `output`: a directory for the output of jobs, as the nodes see it
    * `retention`: how long the output of jobs is kept after their end; `forever` keeps it
    * `users`: run jobs as the system user with the name of their owner; berth must run as root, and creates a
      private directory for each user in `output`
    * `system_users`: system accounts as whom jobs may run with `users`: root, nobody, or uids below UID_MIN of
      /etc/login.defs
    * `rest`: slurmrestd, `http://host:port` or `unix:/path`, instead of commands; `token`: a file with a JWT for it
    * `command_seconds`: how long a command of Slurm may take
    """

    conf: Route | None = None
    partition: Partition = ""
    companion: Partition = ""
    poll: Annotated[float, at_least(0.01)] = 1.0
    patience: Annotated[float, at_least(0.1)] = 30.0
    spool: Route = Field(default_factory=_state)
    hooks: Route | None = None
    output: Route | None = None
    users: Switch = False
    rest: Annotated[str, Field(pattern=r"^(|https?://[^\s/]+|unix:/\S+)$"), said("http://host:port or unix:/path")] = ""
    token: Route | None = None
    command_seconds: Annotated[float, at_least(1.0)] = 20.0
    retention: Annotated[float, by(lambda value: math.inf if value == FOREVER else _seconds(value))] = 30 * 86400.0
    system_users: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], said("a list of names")] = ()

    @model_validator(mode="after")
    def _with_rest(self) -> Self:
        for name in ("companion", "users"):
            if self.rest and getattr(self, name):
                raise ValueError(f"not both rest and {name}: slurmrestd does not support it")
        return self

    @property
    def outputs(self) -> Path:
        """The output directory of jobs; other users cannot reach the spool, which may be in a home directory."""
        return self.output or (OUTPUTS if self.users else self.spool / "output")

    def of(self, owner: Owner | None) -> SlurmSettings:
        """The settings for an owner, with directories of its own if none were chosen."""
        if owner is None:
            return self
        spool = self.spool / owner.name if self.spool == _state() else self.spool
        output = OUTPUTS / owner.name if self.users and self.output is None else self.output
        return self.replace(spool=spool, output=output)


def read_settings(path: Path) -> SlurmSettings:
    """Read settings from a file."""
    return checked(read_file(path, "settings", may_be_empty=True), SlurmSettings)

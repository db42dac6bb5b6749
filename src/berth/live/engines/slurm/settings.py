"""How berth uses a Slurm cluster: a YAML file, checked when it is read."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from berth.errors import InvalidInput
from berth.live.core.specs import parse_duration
from berth.live.engines import Owner

__all__ = ["SlurmSettings", "read_settings"]

OUTPUTS = Path("/var/lib/berth/output")
"""Where jobs of several users print by default."""
FOREVER = "forever"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def _state() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "berth" / "slurm"


@dataclass(frozen=True)
class SlurmSettings:
    """All that can be set; everything has a default.

    * `conf`: slurm.conf, where it is not where Slurm's commands look for it
    * `partition`: where jobs are submitted, and whose nodes are the servers; Slurm's default one where left out
    * `companion`: a partition whose held jobs berth places and releases
    * `poll`: seconds between two looks at Slurm; `patience`: seconds that Slurm may take to start a job
    * `spool`: a directory for what must be remembered; each berth service needs its own, and by default has one
    * `hooks`: where the hooks of slurmctld write, if they are installed
    * `output`: a directory for what jobs print, seen from the nodes
    * `retention`: how long what jobs print is kept after their end; `forever` keeps it
    * `users`: run jobs as the system's user of the same name as their owner; berth must run as root, and makes a
      private directory for each user in `output`
    * `system_users`: system accounts as whom jobs may run with `users`: root, nobody, or uids below UID_MIN of
      /etc/login.defs
    * `rest`: slurmrestd, `http://host:port` or `unix:/path`, in place of commands; `token`: a file with a JWT for it
    * `command_seconds`: how long a command of Slurm may take
    """

    conf: Path | None = None
    partition: str = ""
    companion: str = ""
    poll: float = 1.0
    patience: float = 30.0
    spool: Path = dataclasses.field(default_factory=_state)
    hooks: Path | None = None
    output: Path | None = None
    users: bool = False
    rest: str = ""
    token: Path | None = None
    command_seconds: float = 20.0
    retention: float = 30 * 86400.0
    system_users: tuple[str, ...] = ()

    @property
    def outputs(self) -> Path:
        """The directory for what jobs print; other users cannot reach the spool, which may be in a home directory."""
        return self.output or (OUTPUTS if self.users else self.spool / "output")

    def of(self, owner: Owner | None) -> SlurmSettings:
        """The settings for an owner, who has directories of its own where none were chosen."""
        if owner is None:
            return self
        spool = self.spool / owner.name if self.spool == _state() else self.spool
        output = OUTPUTS / owner.name if self.users and self.output is None else self.output
        return dataclasses.replace(self, spool=spool, output=output)

    def __post_init__(self) -> None:
        for name in ("conf", "spool", "hooks", "output", "token"):
            value = getattr(self, name)
            if isinstance(value, str) and value:
                object.__setattr__(self, name, Path(value).expanduser())
            elif value is not None and not isinstance(value, Path):
                raise InvalidInput("a path", value=value, key=name)
        for name in ("partition", "companion"):
            value = getattr(self, name)
            if value != "" and not (isinstance(value, str) and NAME.fullmatch(value)):
                raise InvalidInput("the name of a partition", value=value, key=name)
        for name, low in (("poll", 0.01), ("patience", 0.1), ("command_seconds", 1.0)):
            seconds = parse_duration(getattr(self, name), name)
            if seconds < low:
                raise InvalidInput(f"a duration of at least {low:g} s", value=getattr(self, name), key=name)
            object.__setattr__(self, name, seconds)
        if not isinstance(self.users, bool):
            raise InvalidInput("true or false", value=self.users, key="users")
        kept: object = self.retention
        if kept != math.inf:
            retention = math.inf if kept == FOREVER else parse_duration(self.retention, "retention")
            object.__setattr__(self, "retention", retention)
        names: object = self.system_users
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
            raise InvalidInput("a list of names", value=names, key="system_users")
        object.__setattr__(self, "system_users", tuple(names))
        rest: object = self.rest
        if not (isinstance(rest, str) and re.fullmatch(r"|https?://[^\s/]+|unix:/\S+", rest)):
            raise InvalidInput("http://host:port or unix:/path", value=rest, key="rest")
        for name in ("companion", "users"):
            if rest and getattr(self, name):
                raise InvalidInput("not both: with slurmrestd this cannot be done", key=f"rest and {name}")


def read_settings(path: Path) -> SlurmSettings:
    """Settings from a file."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("a file that can be read", found=error.strerror or "nothing", file=path) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput("YAML", found=" ".join(str(error).split())[:100], file=path) from None
    return _settings(found, path)


def _settings(found: object, path: Path) -> SlurmSettings:
    known = [field.name for field in dataclasses.fields(SlurmSettings)]
    if found is None:
        found = {}
    if not isinstance(found, Mapping):
        raise InvalidInput(f"a mapping with some of {', '.join(known)}", found=type(found).__name__, file=path)
    given: dict[str, Any] = {str(key): value for key, value in found.items()}
    for key in given:
        if key not in known:
            raise InvalidInput(f"one of {', '.join(known)}", value=key, file=path)
    try:
        return SlurmSettings(**given)
    except InvalidInput as error:
        raise error.at(file=path) from None

"""Jobs and servers of the live scheduler: frozen records, validated on creation.

Amounts are in whole thousandths (`berth.files.quantities`), times in seconds since the caller's epoch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from berth.errors import InvalidInput
from berth.files.quantities import Amounts

__all__ = ["ID", "NOTHING_SAID", "UNTYPED", "Job", "Place", "Role", "Server", "check_id", "check_type"]

UNTYPED = "default"
"""The type of jobs without a type: nothing is learned from them."""

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}", re.ASCII)
NOTHING_SAID = 60.0
"""Seconds of work of a job of which nothing is known."""
TASKS = 100_000
"""The most tasks that a role may have."""


def check_id(text: object, key: str) -> str:
    """Check a name that may stand in paths, logs and commands of any engine."""
    if not isinstance(text, str) or not ID.fullmatch(text):
        raise InvalidInput("letters, digits and . _ @ -, at most 128, first a letter or digit", value=text, key=key)
    return text


def check_type(text: object, key: str) -> str:
    """Check the name of a job type: groups of types and its own name, separated by slashes."""
    parts = text.split("/") if isinstance(text, str) else []
    if not parts or len(str(text)) > 128 or not all(ID.fullmatch(part) for part in parts):
        expected = "letters, digits and . _ @ -, at most 128, with / between the parts of a path"
        raise InvalidInput(expected, value=text, key=key)
    return str(text)


def _number(value: float | None, key: str, low: float = 0.0) -> None:
    if value is not None and not (math.isfinite(value) and value >= low):
        raise InvalidInput(f"a finite number ≥ {low:g}", value=value, key=key)


@dataclass(frozen=True)
class Role:
    """Equal tasks of a job: the job starts with at least `minimum` of them, and with up to `count` if there is room.

    `demand` is what each task takes of its server; at most `per_server` tasks share a server. `asked` is what its owner
    asked for, if the engine says that a task takes more than that (`Sizing`).
    """

    name: str
    count: int
    demand: Amounts
    minimum: int = -1
    per_server: int | None = None
    asked: Amounts | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_id(self.name, "roles.name")
        if not 1 <= self.count <= TASKS:
            raise InvalidInput(f"1 to {TASKS} tasks", value=self.count, key=f"roles.{self.name}.count")
        if self.minimum == -1:
            object.__setattr__(self, "minimum", self.count)
        if not 0 <= self.minimum <= self.count:
            raise InvalidInput(f"0 to {self.count} tasks", value=self.minimum, key=f"roles.{self.name}.minimum")
        if self.per_server is not None and self.per_server < 1:
            raise InvalidInput("at least 1 task", value=self.per_server, key=f"roles.{self.name}.per_server")
        for name, milli in self.demand.items():
            if milli < 0:
                raise InvalidInput("an amount ≥ 0", value=milli, key=f"roles.{self.name}.demand.{name}")

    @property
    def requests(self) -> Amounts:
        """What its owner asked for."""
        return self.demand if self.asked is None else self.asked

    @property
    def each(self) -> int:
        """The most tasks of the role on one server."""
        return self.count if self.per_server is None else min(self.per_server, self.count)


@dataclass(frozen=True)
class Job:
    """A gang: all of its roles start together or none does.

    `type` is its port: jobs of one type are expected to run alike, and share what is learned. It may be a path, such
    as `train/resnet50/b64`: types of one path are expected to be similar. `work` is how much there is to do, in
    seconds on a server of speed 1; `estimate` is the run time that its owner expects; `limit` is the time limit in
    seconds, after which the scheduler ends an attempt. `needs` are labels that its servers must have. `payload` is
    what the engine runs; only the engine reads it. `origin` names the engine that the job was submitted to, if that
    was not berth: the job waits there too.
    """

    id: str
    type: str
    roles: tuple[Role, ...]
    user: str = "nobody"
    team: str = "default"
    queue: str = "default"
    priority: int = 0
    needs: Mapping[str, str] = field(default_factory=dict)
    work: float | None = None
    estimate: float | None = None
    value: float = 1.0
    decay: float = 0.0
    deadline: float | None = None
    retries: int = 0
    payload: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""
    limit: float | None = None

    def __post_init__(self) -> None:
        for name in ("id", "user", "team", "queue"):
            check_id(getattr(self, name), name)
        check_type(self.type, "type")
        if not self.roles:
            raise InvalidInput("at least one role", key="roles")
        names = [role.name for role in self.roles]
        if len(set(names)) < len(names):
            raise InvalidInput("each role once", value=names, key="roles")
        if not any(role.minimum for role in self.roles):
            raise InvalidInput("at least one task that must be there", value=0, key="roles.minimum")
        if not -1_000_000 <= self.priority <= 1_000_000:
            raise InvalidInput("a number between -1000000 and 1000000", value=self.priority, key="priority")
        if not 0 <= self.retries <= 1000:
            raise InvalidInput("0 to 1000", value=self.retries, key="retries")
        for name, low in (("work", 1e-9), ("estimate", 1e-9), ("value", 0.0), ("decay", 0.0), ("deadline", 0.0)):
            _number(getattr(self, name), name, low)
        _number(self.limit, "limit", 1e-9)

    def replace(self, **changes: Any) -> Self:
        """A copy with these fields changed, checked again."""
        return dataclasses.replace(self, **changes)

    @cached_property
    def shape(self) -> tuple[Any, ...]:
        """Everything that decides where it fits: jobs of one shape fit in the same places."""
        roles = tuple((r.name, r.count, r.minimum, r.each, tuple(sorted(r.demand.items()))) for r in self.roles)
        return roles, tuple(sorted(self.needs.items()))

    @cached_property
    def kind(self) -> str:
        """Its user, type, and a digest of its shape: see `berth.live.core.refusals`."""
        return f"{self.user} {self.type} {hashlib.sha256(repr(self.shape).encode()).hexdigest()[:16]}"

    @cached_property
    def total(self) -> Amounts:
        """What it takes with all of its tasks."""
        total: dict[str, int] = {}
        for role in self.roles:
            for name, milli in role.demand.items():
                total[name] = total.get(name, 0) + milli * role.count
        return total

    @property
    def expected_seconds(self) -> float:
        """The run time on a server of speed 1, by the work or estimate of its owner; a minute by default."""
        return self.work or self.said_seconds or NOTHING_SAID

    @property
    def said_seconds(self) -> float | None:
        """The run time that its owner stated: the estimate, or else the time limit."""
        return self.estimate or self.limit


@dataclass(frozen=True)
class Server:
    """A server: its capacity, labels and stated speed.

    `closed` is the engine's reason why nothing new may start on it; running jobs go on. `taken` is what berth may not
    use, by the engine's account: foreign jobs hold it, or berth's jobs hold more than they asked for. Nothing may run
    there past the time `until`, for example because of maintenance (`until_reason`): only jobs whose time limit ends
    before may start there.
    """

    name: str
    capacity: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    speed: float = 1.0
    closed: str = ""
    taken: Amounts = field(default_factory=dict)
    until: float | None = None
    until_reason: str = ""

    def __post_init__(self) -> None:
        check_id(self.name, "server")
        for what, amounts in (("capacity", self.capacity), ("taken", self.taken)):
            for name, milli in amounts.items():
                if milli < 0:
                    raise InvalidInput("an amount ≥ 0", value=milli, key=f"{self.name}.{what}.{name}")
        for name in self.taken:
            if name not in self.capacity:
                there = ", ".join(self.capacity) or "it has none"
                raise InvalidInput(f"a resource of the server: {there}", value=name, key=f"{self.name}.taken")
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise InvalidInput("a finite number > 0", value=self.speed, key=f"{self.name}.speed")

    def has(self, needs: Mapping[str, str]) -> bool:
        """Whether it has these labels; `a|b` means either value."""
        return all(self.labels.get(label) in wanted.split("|") for label, wanted in needs.items())


@dataclass(frozen=True)
class Place:
    """A number of tasks of a role on a server: the berths of a job are its places."""

    server: str
    role: str
    count: int

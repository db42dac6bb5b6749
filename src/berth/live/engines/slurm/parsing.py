"""Parse Slurm's output into small records: jobs from JSON as 22.05 and as 24.11 write it, nodes and settings from
text.

Jobs carry text of their users, so they are read from JSON, where a value cannot pass for another field. Nodes and
settings are the operator's; the format of `scontrol` has been stable for many years, that of `sinfo --json` has not.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from berth.errors import InvalidInput
from berth.live.engines import EngineError
from berth.live.engines.slurm.long_json import loads
from berth.live.engines.slurm.node_parts import NodePart, read_parts
from berth.live.engines.slurm.unsupported import beyond
from berth.traces.formats.slurm import expand_hosts

__all__ = [
    "NUMBER",
    "Config",
    "Node",
    "SlurmJob",
    "number",
    "parse_gres",
    "read_config",
    "read_field",
    "read_job",
    "read_jobs",
    "read_json_node",
    "read_nodes",
]

NUMBER = "berth-number"
"""The name of held jobs that only use up job ids; they are cancelled at once."""
ENDED = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"),
        *("PREEMPTED", "BOOT_FAIL", "DEADLINE", "REVOKED"),
    }
)
"""States in which nothing of a job is left."""


CLOSED = (
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "FAILING",
    "REBOOT_ISSUED",
    "BLOCKED",
    "NOT_RESPONDING",
)
"""States of a node on which nothing new may start; for reservations see `berth.live.engines.slurm.partitions`."""


@dataclass(frozen=True)
class Node:
    """A node: `states` such as DOWN or DRAIN; `since` is the start of its daemon, if known to this slurmctld."""

    name: str
    states: frozenset[str]
    cpus: int
    memory_mib: int
    threads: int = 1
    gres: tuple[tuple[str, str, int], ...] = ()
    """Name, type and count of each resource."""
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    reason: str = ""
    since: float | None = 0.0

    @property
    def registered(self) -> bool:
        """Whether its daemon has contacted this slurmctld."""
        return self.since is not None

    @property
    def there(self) -> bool:
        """Whether jobs may run there; a node that does not respond for a moment, as after a resume, is not away yet."""
        away = {"DOWN", "FAIL", "ERROR", "FUTURE", "POWERED_DOWN", "POWERING_DOWN", "UNKNOWN"}
        return self.registered and not self.states & away

    @property
    def silent(self) -> bool:
        """Whether it is up and has not contacted slurmctld since that was started."""
        never = {"DOWN", "FUTURE", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "CLOUD"}
        return not self.registered and not self.states & never

    @property
    def closed(self) -> str:
        """Why nothing new may start there; empty if it may."""
        for state in CLOSED:
            if state in self.states:
                words = state.lower().replace("_", " ")
                return f"{words} in Slurm{': ' + self.reason if self.reason else ''}"
        return ""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as Slurm knows it; times are seconds since the epoch, None if unknown or unlimited."""

    id: int
    states: frozenset[str]
    comment: str = ""
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    nodes: tuple[str, ...] = ()
    submit: float | None = None
    start: float | None = None
    end: float | None = None
    limit: float | None = None
    """Its time limit in seconds."""
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    restarts: int = 0
    leader: int = 0
    """The id of the first component, if it is part of a heterogeneous job."""
    priority: int | None = None
    held: bool = False
    array: bool = False
    node_count: int = 1
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus: int = 1
    cpus_per_task: int | None = None
    memory_per_node: int | None = None
    memory_per_cpu: int | None = None
    tres_per_node: str = ""
    features: str = ""
    required: tuple[str, ...] = ()
    allocated: tuple[NodePart, ...] = ()
    """What it has of each node."""
    gres: tuple[str, ...] = ()
    """What it has of the GRES of each node."""
    eligible: float | None = None
    """The earliest time at which it may run."""
    most_nodes: int | None = None
    least_cpus: int = 1
    """The least CPUs that each of its nodes gives."""
    tres_per_job: str = ""
    tres_per_task: str = ""
    beyond: str = ""
    """What it asks for that berth does not support."""

    @property
    def ended(self) -> bool:
        """Whether nothing of it is left."""
        return bool(self.states & ENDED) and "COMPLETING" not in self.states

    @property
    def running(self) -> bool:
        """Whether it runs, or is suspended."""
        return bool(self.states & {"RUNNING", "SUSPENDED", "STOPPED"}) and "CONFIGURING" not in self.states

    @property
    def holding(self) -> bool:
        """Whether it holds resources of nodes: it runs, or they are being prepared for it or cleaned up after it."""
        return bool(self.nodes) and not self.ended and ("COMPLETING" in self.states or not self.pending)

    @property
    def refused(self) -> bool:
        """Whether Slurm refused it: it keeps such a job for a while, with a status that reads as signal 1."""
        return self.ended and self.reason == "BadConstraints" and (self.exit_code, self.signal) == (0, 1)

    @property
    def pending(self) -> bool:
        """Whether it waits."""
        return "PENDING" in self.states


@dataclass(frozen=True)
class Config:
    """The settings of slurmctld that matter: its start, how long it remembers jobs, their default memory."""

    boot: str
    min_job_age: float
    default_memory: bool
    """Whether a job that asks for no memory gets an amount that the operator has set."""
    version: str = ""
    select: str = ""
    spanning: bool = True
    """Whether one step may have tasks in several components of a heterogeneous job."""

    @property
    def age(self) -> float:
        """Seconds since slurmctld was started."""
        try:
            return max(time.time() - datetime.fromisoformat(self.boot).timestamp(), 0.0)
        except ValueError:
            return math.inf


def number(value: object) -> float | None:
    """A number: plain, or in the format of newer versions, {"set": true, "infinite": false, "number": 4}."""
    if isinstance(value, Mapping):
        if not value.get("set", True) or value.get("infinite"):
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _whole(value: object) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def _time(value: object) -> float | None:
    return number(value) or None


def _exit(value: object) -> tuple[int, int]:
    """Exit code and signal; older versions write the status of `wait` as one number."""
    if isinstance(value, Mapping):
        signal = value.get("signal")
        which = signal.get("id", signal.get("signal_id")) if isinstance(signal, Mapping) else signal
        return _whole(value.get("return_code")) or 0, _whole(which) or 0
    status = _whole(value) or 0
    return (status >> 8) & 0xFF, status & 0x7F


def _states(value: object) -> frozenset[str]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value or not all(isinstance(state, str) for state in value):
        raise InvalidInput("a state or a list of states", value=value, key="job_state")
    return frozenset(state.upper() for state in value)


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    return value if isinstance(value, str) else ""


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(expand_hosts("" if text == "(null)" else text))


def _required_nodes(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(str(name) for name in value)
    return _hosts(value) if isinstance(value, str) else ()


def _job(found: Mapping[str, Any]) -> SlurmJob:
    id_ = _whole(found.get("job_id"))
    if id_ is None:
        raise InvalidInput("a number", value=found.get("job_id"), key="job_id")
    code, signal = _exit(found.get("exit_code"))
    limit, priority = number(found.get("time_limit")), _whole(found.get("priority"))
    reason = _text(found, "state_reason")
    return SlurmJob(
        id_,
        _states(found.get("job_state")),
        _text(found, "comment"),
        _text(found, "name"),
        _text(found, "user_name"),
        _text(found, "account"),
        _text(found, "partition"),
        _text(found, "qos"),
        _hosts(_text(found, "nodes")),
        _time(found.get("submit_time")),
        _time(found.get("start_time")),
        _time(found.get("end_time")),
        None if limit is None else 60.0 * limit,
        code,
        signal,
        reason,
        _whole(found.get("restart_cnt")) or 0,
        _whole(found.get("het_job_id")) or 0,
        priority,
        priority == 0 or reason.startswith("JobHeld") or bool(found.get("hold")),
        bool(_whole(found.get("array_job_id"))),
        _whole(found.get("node_count")) or 1,
        _whole(found.get("tasks")),
        _whole(found.get("tasks_per_node")),
        _whole(found.get("cpus")) or 1,
        _whole(found.get("cpus_per_task")),
        _whole(found.get("memory_per_node")),
        _whole(found.get("memory_per_cpu")),
        _text(found, "tres_per_node"),
        _text(found, "features"),
        _required_nodes(found.get("required_nodes")),
        allocated=tuple(read_parts(found.get("job_resources"))),
        gres=tuple(str(each) for each in found.get("gres_detail") or ()),
        eligible=_time(found.get("eligible_time")),
        most_nodes=_whole(found.get("max_nodes")) or None,
        least_cpus=_whole(found.get("minimum_cpus_per_node")) or 1,
        tres_per_job=_text(found, "tres_per_job"),
        tres_per_task=_text(found, "tres_per_task"),
        beyond=beyond(found),
    )


def read_job(found: Any) -> SlurmJob:
    """Read a job of `squeue --json` or slurmrestd."""
    try:
        return _job(found)
    except (InvalidInput, AttributeError) as error:
        shown = found.get("job_id") if isinstance(found, dict) else found
        raise EngineError(f"job {shown}: {error}") from None


def read_jobs(text: str) -> list[SlurmJob]:
    """Read the jobs of `squeue --json`."""
    try:
        found = loads(text, jobs=read_job)
    except ValueError:
        raise EngineError(f"squeue --json did not answer in JSON, but: {text.strip()[-120:]!r}") from None
    except EngineError as error:
        raise EngineError(f"squeue --json: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("jobs"), list):
        raise EngineError(f"squeue --json: expected an object with a list of jobs, got {text.strip()[:120]!r}")
    if errors := found.get("errors"):  # if slurmctld is away, it answers with no jobs and exit code 0
        first = errors[0] if isinstance(errors, list) else errors
        said = first.get("description") or first.get("error") if isinstance(first, dict) else first
        raise EngineError(f"squeue --json: {said} (is slurmctld running?)")
    jobs: list[SlurmJob] = found["jobs"]
    return jobs


def parse_gres(text: str) -> tuple[tuple[str, str, int], ...]:
    """Name, type and count of each resource in a list in the format of `Gres=`, or of job requests.

    >>> parse_gres("gpu:a100:4(S:0-1),lic:3"), parse_gres("gres:gpu:2"), parse_gres("gres/gpu=1"), parse_gres("(null)")
    ((('gpu', 'a100', 4), ('lic', '', 3)), (('gpu', '', 2),), (('gpu', '', 1),), ())
    """
    found = []
    for item in re.sub(r"\([^)]*\)", "", text).split(","):
        parts = re.split(r"[:=]", re.sub(r"^gres[:/]", "", item.strip()))
        if not parts[0] or parts[0] in ("N/A", "none"):
            continue
        count = re.fullmatch(r"(\d+)([KMGT]?)", parts[-1], re.ASCII) if len(parts) > 1 else None
        if count is None:
            found.append((parts[0], ":".join(parts[1:]), 1))
        else:
            times = 1024 ** (" KMGT".index(count[2]) if count[2] else 0)
            found.append((parts[0], ":".join(parts[1:-1]), int(count[1]) * times))
    return tuple(found)


def read_field(line: str, name: str, default: str | None = None) -> str:
    """A field of a line of `scontrol -o show …`; empty if it has no value."""
    match = re.search(rf"(?:^|\s){name}=(\S*)", line)
    if match is None and default is None:
        raise EngineError(f"scontrol show: expected {name}=…, got {line[:120]!r}")
    found = default or "" if match is None else match[1]
    return "" if found in ("(null)", "N/A", "None") else found


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _moment(text: str) -> float | None:
    """A time in scontrol's format; an unreadable one counts as long ago."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return 0.0


def _node(line: str) -> Node:
    state = read_field(line, "State")
    states = {part for part in re.split(r"[+*~#!%$@^-]+", state.upper()) if part}
    if "*" in state:
        states.add("NOT_RESPONDING")
    reason = re.search(r"\sReason=(.*?)(?:\s\[[^\[\]]*\])?\s*$", line)
    try:
        return Node(
            read_field(line, "NodeName"),
            frozenset(states),
            int(read_field(line, "CPUEfctv", read_field(line, "CPUTot"))),
            int(read_field(line, "RealMemory")),
            int(read_field(line, "ThreadsPerCore", "1")),
            parse_gres(read_field(line, "Gres", "")),
            _list(read_field(line, "ActiveFeatures", "")),
            _list(read_field(line, "Partitions", "")),
            "" if reason is None else reason[1].strip(),
            _moment(read_field(line, "SlurmdStartTime", "")),
        )
    except ValueError:
        raise EngineError(f"scontrol show nodes: expected whole numbers, got {line[:120]!r}") from None


def read_nodes(text: str) -> list[Node]:
    """Read the nodes of `scontrol -o show nodes`."""
    return [_node(line) for line in text.splitlines() if line.startswith("NodeName=")]


def read_json_node(found: Any) -> Node:
    """Read a node of slurmrestd."""
    if not isinstance(found, dict) or not found.get("name"):
        raise EngineError(f"expected a node, got {str(found)[:120]}")
    states = found.get("state") or "unknown"
    flags = found.get("state_flags") or []
    features, partitions = found.get("active_features"), found.get("partitions")
    return Node(
        str(found["name"]),
        frozenset(str(state).upper() for state in [*([states] if isinstance(states, str) else states), *flags]),
        _whole(found.get("cpus")) or 0,
        _whole(found.get("real_memory")) or 0,
        _whole(found.get("threads")) or 1,
        parse_gres(_text(found, "gres")),
        _list(features) if isinstance(features, str) else tuple(features or ()),
        _list(partitions) if isinstance(partitions, str) else tuple(partitions or ()),
        _text(found, "reason"),
        bool(_time(found.get("slurmd_start_time"))),
    )


def read_config(text: str) -> Config:
    """Read `scontrol show config`."""
    found = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", text, re.MULTILINE))
    if "BOOT_TIME" not in found:
        raise EngineError(f"scontrol show config: expected BOOT_TIME = …, got {text.strip()[:120]!r}")
    age = re.match(r"\d+", found.get("MinJobAge", "300"))
    default = found.get("DefMemPerNode", found.get("DefMemPerCPU", found.get("DefMemPerGPU", "UNLIMITED")))
    return Config(
        found["BOOT_TIME"],
        float(age[0]) if age else 300.0,
        default != "UNLIMITED",
        found.get("SLURM_VERSION", ""),
        found.get("SelectTypeParameters", ""),
        "disable_hetjob_steps" not in found.get("SchedulerParameters", ""),
    )

"""Jobs that users submit to Slurm itself: held in one partition until berth pins and releases them.

A companion job is one task on each of its nodes, with what it takes of a node. Its comment may say more, such as
`berth:type=resnet,work=2h`; else its name is its type. It is accepted when it may run (`--begin`). Jobs with options
that berth does not support (`unsupported`; fixed nodes, ranges of node counts) stay held, with a warning.

A job keeps its node count, so users should submit with `-N`; without it, Slurm's value counts. When a job is released,
its node count and the CPUs of each node are pinned, so that Slurm gives what berth has booked.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from berth.errors import InvalidInput
from berth.files.quantities import MILLI, parse_duration
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines import ADOPTED
from berth.live.engines.slurm.parsing import NUMBER, SlurmJob, parse_gres
from berth.live.engines.slurm.spool import Key, Spool
from berth.live.engines.slurm.submission import MIB, read_tag

__all__ = ["ORIGIN", "Companion", "HeldJob", "is_own", "pinned", "request"]

ORIGIN = "slurm"
SAID = "berth:"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeldJob:
    """A job that waits in Slurm to be placed."""

    job: Job
    slurm: int


def is_own(key: Key, job: SlurmJob) -> bool:
    """Whether an attempt is of this job; users write the comments of their jobs, and might name another's."""
    return ADOPTED[ORIGIN].fullmatch(key[0]) is not None and key[0].split("-")[1] == str(job.id)


def _tag(job: SlurmJob, instance: str) -> Key | None:
    """The attempt that the comment of a job names, if it is of this job."""
    tagged = read_tag(job.comment, instance)
    return tagged if tagged is not None and is_own(tagged, job) else None


def _name(job: SlurmJob, instance: str) -> str:
    """berth's id of a companion job; once pinned, its tag has the id, since Slurm changes what the id is made of.

    A job that is released and held again, or may run at another time, is a new job to berth.
    """
    tagged = _tag(job, instance)
    return tagged[0] if tagged is not None else f"slurm-{job.id}-{int(job.eligible or job.submit or 0)}"


class Companion:
    """Finds the jobs of a partition (none if it is empty) that wait to be placed."""

    def __init__(self, partition: str, spool: Spool) -> None:
        self._partition, self._spool = partition, spool
        self._warned: set[int] = set()

    def waiting(self, jobs: Iterable[SlurmJob]) -> dict[str, HeldJob]:
        """Held jobs that were not released and may run now, by berth's ids."""
        held, now = {}, time.time()
        for job in jobs:
            if job.partition != self._partition or not job.pending or not job.reason.startswith("JobHeld"):
                continue
            if job.name == NUMBER:
                continue
            tagged = _tag(job, self._spool.instance)
            if tagged is not None:
                record = self._spool.records.get(tagged)
                if record is not None and record.end is None:
                    continue
            elif read_tag(job.comment, self._spool.instance) is not None:
                continue  # one of berth's own jobs, or a job that pretends to be
            if (job.eligible or 0.0) > now:
                continue
            try:
                if job.required and tagged is None:  # else berth pinned it to them
                    raise InvalidInput("a job without nodes of its own (--nodelist, --nodefile)")
                asked = request(job, self._spool.instance)
                held[asked.id] = HeldJob(asked, job.id)
            except InvalidInput as error:
                if job.id not in self._warned:
                    self._warned.add(job.id)
                    log.warning("job %d waits in Slurm and is ignored: %s", job.id, error)
        return held


def request(job: SlurmJob, instance: str) -> Job:
    """A companion job as a job of berth; raises `InvalidInput` if berth does not support it."""
    if job.beyond:
        raise InvalidInput(f"a job without {job.beyond}")
    said = _said(job.comment)
    nodes = max(job.node_count, 1)
    if job.most_nodes not in (None, nodes):
        raise InvalidInput("a fixed number of nodes (--nodes)", value=f"{nodes}-{job.most_nodes}")
    cpus = max(math.ceil(job.cpus / nodes), job.least_cpus)
    demand = {"cpu": cpus * MILLI}
    memory = job.memory_per_node if job.memory_per_node is not None else (job.memory_per_cpu or 0) * cpus
    if memory:
        demand["memory"] = memory * MIB
    needs = _needs(job.features)
    for name, kind, count in _gres(job):
        demand[name] = demand.get(name, 0) + count * MILLI
        if kind and needs.setdefault(name, kind) != kind:
            raise InvalidInput(f"one type of {name}", value=f"{needs[name]} and {kind}")
    return Job(
        _name(job, instance),
        _word(said.get("type", job.name)),
        (Role("node", nodes, demand, per_server=1),),
        user=_word(job.user),
        team=_word(job.account),
        priority=int(said["priority"]) if re.fullmatch(r"-?\d{1,6}", said.get("priority", "")) else 0,
        needs={**needs, f"partition.{job.partition}": "yes"},
        work=parse_duration(_plain(said["work"]), "comment: work") if "work" in said else None,
        limit=job.limit or None,
        origin=ORIGIN,
    )


def pinned(job: Job, places: Sequence[Place]) -> dict[str, str]:
    """The changes of a companion job that make Slurm give it exactly these places."""
    nodes = list(dict.fromkeys(place.server for place in places))
    cpus = job.roles[0].demand["cpu"] // MILLI
    return {
        "ReqNodeList": ",".join(nodes),
        "NumNodes": f"{len(nodes)}-{len(nodes)}",
        "MinCPUsNode": str(cpus),  # a minimum for each node, and so the exact number of each
    }


def _said(comment: str) -> dict[str, str]:
    """Read a comment like `berth:type=resnet,work=3600`.

    >>> _said("berth:type=resnet,work=3600"), _said("mine"), _said("berth:0a:slurm-1-2:3")
    ({'type': 'resnet', 'work': '3600'}, {}, {})
    """
    if not comment.startswith(SAID):
        return {}
    pairs = (part.partition("=") for part in comment.removeprefix(SAID).split(","))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _plain(text: str) -> str | float:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) else text


def _word(text: str) -> str:
    """A text as an id: invalid characters become `_`."""
    plain = re.sub(r"[^A-Za-z0-9._@-]", "_", text)[:128]
    return plain if re.match(r"[A-Za-z0-9]", plain) else f"x{plain}"[:128] if plain else "default"


def _gres(job: SlurmJob) -> list[tuple[str, str, int]]:
    """Name, type and count of what it takes of each node."""
    if (job.tres_per_job or job.tres_per_task) and job.most_nodes != 1:
        raise InvalidInput("one node (-N 1) where GPUs are asked for per job or task (--gpus, --gpus-per-task)")
    tasks = [(name, kind, count * (job.tasks or 1)) for name, kind, count in parse_gres(job.tres_per_task)]
    return [*parse_gres(job.tres_per_node), *(tasks or parse_gres(job.tres_per_job))]


def _needs(features: str) -> dict[str, str]:
    """Features that all nodes must have, as labels."""
    pairs = [part.partition("=") for part in re.split(r"[&,]", features) if part]
    needs = {name: value if equals else "yes" for name, equals, value in pairs}
    if not re.fullmatch(r"[\w.=:&,-]*", features) or len(needs) < len(pairs):
        raise InvalidInput("features that each node must have, with & between (--constraint)", value=features)
    return needs

"""Jobs that people give to Slurm itself: held in one partition, they wait there until berth pins and releases them.

A job of theirs is one task on each of its nodes, with what it takes of a node. Its comment may say more, such as
`berth:type=resnet,work=2h`; else its name is its type. What berth cannot place is left alone, held, with a warning:
arrays, and heterogeneous jobs. A job keeps its own node count, so `-N` belongs into what people submit.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from berth.dispatch.jobs import Job, Role
from berth.dispatch.quantities import MILLI
from berth.dispatch.specs import parse_duration
from berth.engines.slurm.reading import SlurmJob, parse_gres
from berth.engines.slurm.spool import Key, Spool
from berth.engines.slurm.writing import MIB, read_tag
from berth.errors import InvalidInput

__all__ = ["ORIGIN", "Companion", "Waiting", "is_theirs", "request"]

ORIGIN = "slurm"
ID = re.compile(r"slurm-\d+-\d+", re.ASCII)
SAID = "berth:"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Waiting:
    """A job that waits in Slurm to be placed."""

    job: Job
    slurm: int


def is_theirs(key: Key) -> bool:
    """Whether an attempt is one of a job that was given to Slurm."""
    return ID.fullmatch(key[0]) is not None


def _name(job: SlurmJob, instance: str) -> str:
    """Our id of their job; its tag says it once it was pinned, since Slurm changes what it is made of."""
    tagged = read_tag(job.comment, instance)
    return tagged[0] if tagged is not None else f"slurm-{job.id}-{int(job.submit or 0)}"


class Companion:
    """Finds the jobs of a partition (none where it is empty) that wait to be placed."""

    def __init__(self, partition: str, spool: Spool) -> None:
        self._partition, self._spool = partition, spool
        self._warned: set[int] = set()

    def waiting(self, jobs: Iterable[SlurmJob]) -> dict[str, Waiting]:
        """Jobs that are held and that nobody has released, by our ids."""
        found = {}
        for job in jobs:
            if job.partition != self._partition or not job.pending or not job.reason.startswith("JobHeld"):
                continue
            tagged = read_tag(job.comment, self._spool.instance)
            if tagged is not None:
                record = self._spool.records.get(tagged)
                if not is_theirs(tagged) or (record is not None and record.end is None):
                    continue
            try:
                if job.array or job.leader:
                    raise InvalidInput("a job that is neither an array nor heterogeneous")
                asked = request(job, self._spool.instance)
                found[asked.id] = Waiting(asked, job.id)
            except InvalidInput as error:
                if job.id not in self._warned:
                    self._warned.add(job.id)
                    log.warning("job %d waits in Slurm and is not taken: %s", job.id, error)
        return found


def request(job: SlurmJob, instance: str) -> Job:
    """Their request as a job of ours."""
    said = _said(job.comment)
    nodes = max(job.node_count, 1)
    cpus = math.ceil(job.cpus / nodes)
    demand = {"cpu": cpus * MILLI}
    memory = job.memory_per_node if job.memory_per_node is not None else (job.memory_per_cpu or 0) * cpus
    if memory:
        demand["memory"] = memory * MIB
    for name, _, count in parse_gres(job.tres_per_node):
        demand[name] = demand.get(name, 0) + count * MILLI
    return Job(
        _name(job, instance),
        _word(said.get("type", job.name)),
        (Role("node", nodes, demand, per_server=1),),
        user=_word(job.user),
        team=_word(job.account),
        priority=int(said["priority"]) if re.fullmatch(r"-?\d{1,6}", said.get("priority", "")) else 0,
        needs=_needs(job.features),
        work=parse_duration(_plain(said["work"]), "comment: work") if "work" in said else None,
        estimate=job.limit or None,
        origin=ORIGIN,
    )


def _said(comment: str) -> dict[str, str]:
    """What a comment like `berth:type=resnet,work=3600` says.

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
    """A text as an id: what may not stand there becomes `_`."""
    plain = re.sub(r"[^A-Za-z0-9._@-]", "_", text)[:128]
    return plain if re.match(r"[A-Za-z0-9]", plain) else f"x{plain}"[:128] if plain else "default"


def _needs(features: str) -> dict[str, str]:
    """Features that all nodes must have; other expressions are left to Slurm."""
    if re.search(r"[|*\[\]()]", features):
        return {}
    pairs = (part.partition("=") for part in re.split(r"[&,]", features) if part)
    return {name: value if equals else "yes" for name, equals, value in pairs}

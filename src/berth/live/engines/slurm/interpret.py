"""The meaning of Slurm's records: servers from nodes, and how attempts ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from berth.files.quantities import MILLI
from berth.live.core.events import Failed, Finished
from berth.live.core.jobs import Server
from berth.live.engines.slurm.outputs import AGAIN, DIRECTORY, LAUNCH, Mark
from berth.live.engines.slurm.parsing import Node, SlurmJob
from berth.live.engines.slurm.spool import AttemptRecord
from berth.live.engines.slurm.submission import MIB

__all__ = ["FORGOT", "how_it_ended", "requeued", "server", "twice", "when_it_began"]

NO_OUTPUT = 53
"""The signal that Slurm reports when it cannot open the files of a job."""
FORGOT = "slurmctld was killed, forgot that it ran, and wanted to run it again"
DUPLICATE = "Duplicate jobid"
AT_ONCE = 10.0
"""Seconds after its start in which a slurmctld that was killed starts jobs again."""
REQUEUED = frozenset({"REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
BEFORE = frozenset({"JobLaunchFailure", "FailedLaunch", "SystemFailure", "BadConstraints", "Prolog", "BeginTime"})
"""Reasons of failures that are not the job's fault."""


def server(node: Node) -> Server:
    """A node as a server.

    Features and partitions are labels: `class=fast` is the label `class` with the value `fast`; any other is a label
    with the value `yes`, as is `partition.NAME`. A GRES is a label too, with its type.
    """
    labels = {f"partition.{name}": "yes" for name in node.partitions}
    for feature in node.features:
        name, equals, value = feature.partition("=")
        labels[name] = value if equals else "yes"
    capacity = {"cpu": node.cpus * MILLI, "memory": node.memory_mib * MIB}
    for name, _, count in node.gres:
        capacity[name] = capacity.get(name, 0) + count * MILLI
        types = {type_ for same, type_, _ in node.gres if same == name}
        if len(types) == 1:
            labels[name] = types.pop() or "yes"
    return Server(node.name, capacity, labels, closed=node.closed)


def requeued(job: SlurmJob) -> bool:
    """Whether Slurm has requeued it, or wants to."""
    return job.restarts > 0 or bool(job.states & REQUEUED)


def _moment(whole: float | None, low: float, high: float, otherwise: float) -> float:
    """The best estimate of a time, from Slurm's whole second and the two polls around it."""
    if whole is None:
        return otherwise
    first, last = max(whole, low), min(whole + 1.0, high)
    return 0.5 * (first + last) if first <= last else whole


def when_it_began(record: AttemptRecord, parts: Sequence[SlurmJob], now: float) -> float:
    """The best estimate of when all of its parts ran."""
    if "began" in record.hooked:
        return record.hooked["began"]
    whole = max((job.start for job in parts if job.start is not None), default=None)
    return _moment(whole, max(record.asked, record.waited), now, now)


def _when_it_ended(record: AttemptRecord, parts: Sequence[SlurmJob], now: float) -> float:
    if "ended" in record.hooked:
        return record.hooked["ended"]
    whole = max((job.end for job in parts if job.end is not None), default=None)
    return _moment(whole, max(record.asked, record.ran, record.started), now, now)


def how_it_ended(
    record: AttemptRecord, parts: Sequence[SlurmJob], nodes: Mapping[str, Node], now: float, mark: Mark | None = None
) -> Finished | Failed:
    """How an attempt of which nothing is left ended."""
    at = max(_when_it_ended(record, parts, now), record.started)
    if all("COMPLETED" in job.states for job in parts):
        began = record.started or when_it_began(record, parts, now)
        seconds = None if mark is None else mark.seconds
        return Finished(at, *record.key, max(at - began, 0.0) if seconds is None else seconds)
    worst = min((job for job in parts if "COMPLETED" not in job.states), key=_severity)
    done = None if mark is None else mark.end(record.key)
    if worst.states & {"NODE_FAIL", "BOOT_FAIL"}:
        if done is not None:  # a slurmctld that forgot its end found it missing on its node
            return done
        away = [name for name in worst.nodes if name in nodes and not nodes[name].there] or list(worst.nodes)
        return Failed(at, *record.key, f"Slurm lost node {', '.join(away[:3])}", "server")
    if isinstance(record.verdict, Failed):
        return replace(record.verdict, time=at)
    if record.verdict is not None:
        return record.verdict
    if isinstance(done, Finished) and worst.states & {"CANCELLED", "FAILED"}:
        # a slurmctld that was killed wanted to run it again, or found it missing on its node and calls that exit code 1
        return done
    if any(job.signal == AGAIN for job in parts):
        return done or Failed(at, *record.key, FORGOT, "engine")
    if "TIMEOUT" in worst.states:  # srun, ended in the middle of a launch, would call it a failed one
        return Failed(at, *record.key, *_reason(worst))
    if any(job.signal == LAUNCH for job in parts):
        return Failed(at, *record.key, "srun could not start its tasks; see its output", "engine")
    if any(job.signal == DIRECTORY for job in parts):
        return Failed(at, *record.key, "its working directory cannot be entered on its first server", "job")
    return Failed(at, *record.key, *_reason(worst))


def twice(end: Failed, parts: Sequence[SlurmJob], nodes: Mapping[str, Node], boot: float) -> Failed:
    """The end of a job that was cancelled, perhaps by Slurm itself, whose slurmctld was started at `boot`.

    A slurmctld that was killed reuses job ids, and starts jobs again at once. A node that still has the first of two
    jobs with one id cancels the second, and Slurm drains the node until an operator resumes it.
    """
    names = [name for job in parts for name in job.nodes if name in nodes and nodes[name].reason == DUPLICATE]
    if names:
        return replace(end, fault="engine", reason=f"node {names[0]} already had a job with its id")
    if all((job.submit or boot) < boot and (job.end or math.inf) < boot + AT_ONCE for job in parts):
        return replace(end, fault="engine", reason="cancelled in Slurm, perhaps by a slurmctld that was just started")
    return end


def _severity(job: SlurmJob) -> int:
    order = ("NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE", "FAILED", "PREEMPTED", "CANCELLED")
    return min((order.index(state) for state in job.states if state in order), default=len(order))


def _reason(job: SlurmJob) -> tuple[str, Any]:
    states = job.states
    if "TIMEOUT" in states:
        limit = "its time limit" if job.limit is None else f"its time limit of {math.ceil(job.limit / 60)} min"
        return f"it reached {limit} in Slurm", "job"
    if "OUT_OF_MEMORY" in states:
        return "it took more memory than it asked for", "job"
    if "DEADLINE" in states:
        return "it reached its deadline in Slurm", "job"
    if "CANCELLED" in states:
        return "cancelled in Slurm, not by berth", "cancelled"
    if states & {"PREEMPTED", "REVOKED"}:
        return "Slurm took its servers for another job", "engine"
    if job.refused or (job.reason in BEFORE and not job.exit_code and not job.signal):
        return f"Slurm could not launch it: {job.reason}", "engine"
    if job.signal == NO_OUTPUT:
        return "Slurm could not open its output or its directory on the node", "job"
    if job.signal:
        return f"it was killed by signal {job.signal}", "job"
    if job.exit_code:
        return f"it ended with exit code {job.exit_code}", "job"
    return f"it ended as {', '.join(sorted(states)).lower()} in Slurm ({job.reason or 'no reason'})", "job"

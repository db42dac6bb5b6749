"""The queues of a service for the jobs of a log: who submits each job, and which jobs the service refuses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import polars as pl

from berth.errors import InvalidInput
from berth.files.quantities import MILLI, Amounts
from berth.files.wording import counted, spoken
from berth.live.core.jobs import Job, Role
from berth.live.core.queues import Queues
from berth.model import Resource
from berth.traces.trace import Trace

__all__ = ["UNITS", "ServedQueues", "in_log_units"]

UNITS = {"GiB": 2**30}
"""How many units of a cluster file are one unit of a log, where that is not 1."""


def in_log_units(queues: Queues, resources: Sequence[Resource], units: Amounts) -> Queues:
    """The same queues, with limits and quotas in the units of the servers of a replay."""
    each = {kind.name: Fraction(units[kind.name], MILLI * UNITS.get(kind.unit, 1)) for kind in resources}

    def scaled(limit: Amounts, key: str) -> Amounts:
        for name in limit:
            if name not in each:
                raise InvalidInput(f"a resource that the log counts: {', '.join(each)}", value=name, key=key)
        return {name: int(milli * each[name]) for name, milli in limit.items()}

    return replace(
        queues,
        queues={name: replace(one, limit=scaled(one.limit, f"queues.{name}")) for name, one in queues.queues.items()},
        quotas={owner: scaled(limit, f"quotas.{owner}") for owner, limit in queues.quotas.items()},
    )


class ServedQueues:
    """The queues of a service for the jobs of a log: who submits each job, and which the service refuses.

    A job's team is its group, and its queue is its kind, if the service has a queue of that name, else `default`. With
    `stopped` its estimate is its time limit; else time limits are refused, and `instead` says how they are played.
    """

    def __init__(self, queues: Queues, stopped: bool = False, instead: str = "") -> None:
        self.queues, self._stopped = queues, stopped
        if not stopped and (timed := [name for name, one in queues.queues.items() if one.max_time or one.default_time]):
            expected = f"queues without time limits{instead}"
            raise InvalidInput(expected, found="default_time or max_time", key=f"queues.{timed[0]}")

    def submitted(self, user: str | None, group: str | None, kind: str | None, estimate: float = 0.0) -> dict[str, Any]:
        """What the service knows of a job besides its size: user, team, queue and time limit."""
        queue = _name(kind, "default")
        if queue not in self.queues.queues:
            if "default" not in self.queues.queues:
                expected = (
                    f"a queue for each kind of job, or one named default; there are {', '.join(self.queues.queues)}"
                )
                raise InvalidInput(expected, value=queue, key="queues")
            queue = "default"
        limit = {"limit": max(estimate, 1e-9)} if self._stopped else {}
        return {"user": _name(user, "nobody"), "team": _name(group, "default"), "queue": queue, **limit}

    def accepted(self, trace: Trace) -> tuple[Trace, Mapping[str, int]]:
        """The jobs that the service accepts, and how many it refuses by reason."""
        keys = trace.jobs.select("user", "group", "kind", "estimate_s").rows()
        why = {key: self.refusal(*key) for key in dict.fromkeys(keys)}
        reasons = [why[key] for key in keys]
        counts = Counter(f"refused: {reason}" for reason in reasons if reason is not None)
        kept = pl.Series([reason is None for reason in reasons], dtype=pl.Boolean)
        return (trace.replace(jobs=trace.jobs.filter(kept)) if counts else trace), counts

    def moved(self, kinds: pl.Series) -> str:
        """Which kinds of jobs are in the queue `default` because no queue has their name, in words; empty if none."""
        kinds = kinds.drop_nulls()
        others = kinds.filter(~kinds.map_elements(lambda kind: _name(kind, "") in self.queues.queues, pl.Boolean))
        if not len(others):
            return ""
        names = others.value_counts().sort("count", "kind", descending=[True, False])["kind"].to_list()
        few = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
        return f"{counted(len(others), 'job')} of kind {few} in queue default, as no queue has that name"

    def refusal(self, user: str | None, group: str | None, kind: str | None, estimate: float = 0.0) -> str | None:
        """Why the service refuses such a job, if it does."""
        job = Job("job", "any", (Role("main", 1, {}),), **self.submitted(user, group, kind, estimate))
        queue = self.queues.queues[job.queue]
        if not queue.accepts:
            return f"queue {job.queue} accepts no jobs"
        if job.limit is not None and queue.max_time is not None and job.limit > queue.max_time:
            return f"longer than {spoken(queue.max_time)}, max_time of queue {job.queue}"
        return (self.queues.refusal(job) or ("", None))[1]


def _name(text: str | None, default: str) -> str:
    """A name of a log as a name of a user, team or queue."""
    name = re.sub(r"[^A-Za-z0-9._@-]", "-", text or default)[:128]
    return name if name[:1].isalnum() or not name else f"x{name}"[:128]

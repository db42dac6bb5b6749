"""Conservative backfilling on a live cluster: a rule that promises every waiting job a start.

Axes: n jobs, q rows of promised places, R servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from berth.families.placement.policies.queue_rule import CONSERVATIVE, QueueRule
from berth.live.core.drivers.deferral import Waits
from berth.live.core.drivers.rules import RulePolicy, asked_of, ends_of, room_for, rule_of
from berth.live.core.kernels import Ends, Promises, plan_all
from berth.live.core.view import Mask, Placing, View
from berth.model import Ints
from berth.registry import PolicySpec

__all__ = ["PromisingPolicy", "rule_driver"]


class Promise(NamedTuple):
    """When a job starts, and its places: role, counted from the job's first, server and number of tasks of each."""

    start: float
    role: Ints
    server: Ints
    tasks: Ints


class Memory(NamedTuple):
    """What a decision about a level leaves for the next: promises and known ends by job, and usable servers (R,)."""

    promises: dict[int, Promise]
    ends: dict[int, float]
    usable: Mask


class PromisingPolicy(RulePolicy):
    """Plans every job when it comes, and starts it when that is due: see the lab's policy `conservative`."""

    def __init__(self, name: str, rule: QueueRule, waits: Waits) -> None:
        super().__init__(name, rule, waits)
        self._time = -np.inf
        self._before: dict[int, Memory] = {}
        self._memory: dict[int, Memory] = {}
        """By level: of the moment before, and of this one."""

    def _started(self, view: View, order: Ints) -> Placing:
        if view.time != self._time:
            self._time, self._before, self._memory = view.time, self._memory, {}
        level, usable, asked = int(view.level[0]), view.usable.copy(), asked_of(view, self.rule)
        memory = self._memory.get(level) or self._before.get(level) or Memory({}, {}, usable[:0])
        ends, running = ends_of(view, 0), view.state.table.running
        known = dict(zip(view.state.table.number(running.rows)[running.job].tolist(), ends.end.tolist(), strict=True))
        anew, forward = _surprises(view, memory, known)
        promises = _recalled(view, memory)
        slowest = np.where(view.reach, asked.speed, np.inf).min(axis=1)
        slowest = np.where(np.isfinite(slowest), slowest, 1.0)
        forward = forward or bool((view.reach & (asked.speed != slowest[:, None])).any())  # it may be promised too long
        length, by_end = asked.work / slowest[view.gangs.reach], np.argsort(ends.end, kind="stable")
        ends = Ends(ends.end[by_end], ends.server[by_end], ends.amount[by_end], ends.size)
        plan_all(asked, order, length, view.free, ends, view.time, anew, forward, promises, room_for(view))
        due, places = promises.at <= view.time, list[Placing]()
        left: dict[int, Promise] = {}
        for job, number in enumerate(view.state.table.number(view.rows).tolist()):
            rows = slice(promises.first[job], promises.first[job] + promises.size[job])
            role, server, count = (column[rows] for column in (promises.role, promises.server, promises.count))
            if due[job]:
                by = np.lexsort((server, role))
                places.append(Placing(np.full(len(role), job), role[by], server[by], count[by]))
                known[number] = view.time + float(asked.work[job] / asked.speed[server].min())
            elif np.isfinite(promises.at[job]):
                left[number] = Promise(float(promises.at[job]), role - view.gangs.start[job], server, count)
        self._memory[level] = Memory(left, known, usable)
        return Placing.joined(places)


def _surprises(view: View, memory: Memory, known: Mapping[int, float]) -> tuple[bool, bool]:
    """Whether plans must be made anew, and whether they may move forward; `known` are the ends of running jobs."""
    gone = [end for job, end in memory.ends.items() if job not in known]
    waiting = dict(zip(view.state.table.number(view.rows).tolist(), view.gangs.reach.tolist(), strict=True))
    late = any(end <= view.time for end in known.values()) or any(end < view.time for end in gone)
    late = late or not np.array_equal(memory.usable, view.usable)
    late = late or any(promise.start < view.time for promise in memory.promises.values())
    late = late or not all(
        view.reach[waiting[job], promise.server].all() for job, promise in memory.promises.items() if job in waiting
    )
    dropped = not memory.promises.keys() <= waiting.keys()  # a job that is gone frees its place
    return late, dropped or any(end > view.time for end in gone)


def _recalled(view: View, memory: Memory) -> Promises:
    """The promises of the jobs of a view, with room for new ones."""
    most = np.add.reduceat(np.minimum(view.gangs.most, 2 * len(view.servers)), view.gangs.start[:-1])
    first, jobs = np.cumsum(most) - most, len(most)
    role, server, count = (np.zeros(int(most.sum()), dtype=np.int64) for _ in range(3))
    promises = Promises(np.full(jobs, np.nan), first, np.zeros(jobs, dtype=np.int64), role, server, count)
    for job, number in enumerate(view.state.table.number(view.rows).tolist()):
        if (promise := memory.promises.get(number)) is not None:
            rows = slice(first[job], first[job] + len(promise.role))
            promises.at[job], promises.size[job] = promise.start, len(promise.role)
            role[rows], server[rows], count[rows] = promise.role + view.gangs.start[job], promise.server, promise.tasks
    return promises


def rule_driver(spec: PolicySpec, waits: Waits) -> RulePolicy | None:
    """The driver of a policy that is a rule; None if it is more than that."""
    rule = rule_of(spec)
    if rule is None:
        return None
    return (PromisingPolicy if rule.backfill == CONSERVATIVE else RulePolicy)(str(spec), rule, waits)
